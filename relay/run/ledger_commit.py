"""Committing what people have written into the ledger between sessions: `relay ledger add` and its like, or by hand."""

from relay.errors import LedgerError, within
from relay.files.tree import read_file
from relay.git.names import render_path
from relay.git.status import read_status
from relay.ledger import Entry, merge_entries, parse_ledger
from relay.plan.encoding import decode_text, encode_text
from relay.run.file_commit import FileCommit, commit_file
from relay.run.start import read_ledger
from relay.setup.context import RunContext
from relay.store.texts import find_text


def commit_ledger_edit(ctx: RunContext) -> bool:
    """Commit the ledger's file by itself where it differs from HEAD's; return whether there was anything to commit.

    Entries that only HEAD has stay, behind those of the file: a session committed them after the file was opened.

    Raises:
        LedgerError: One of the two cannot be read as a ledger.
        RepoError: The commit could not be made.
    """
    repo, path = ctx.repo, ctx.ledger_path
    disk, committed = read_file(repo.root, path), find_text(repo, "HEAD", path)
    if disk is None or decode_text(disk) == (committed or ""):
        return False
    if committed is not None and path not in read_status(repo, (path,)).changed:
        return False  # line endings may differ from the blob's
    with within(render_path(path)):
        ledger = merge_entries(parse_ledger(decode_text(disk)), read_ledger(ctx.files, "HEAD").entries)
    file = FileCommit(
        title="ledger",
        path=path,
        disk=disk,
        data=encode_text(ledger.text),
        status="amended",
        words="ledger",
        is_same=lambda data: _read_entries(data) == ledger.entries,
    )
    commit_file(ctx, file)
    return True


def _read_entries(data: bytes) -> tuple[Entry, ...]:
    try:
        return parse_ledger(decode_text(data)).entries
    except LedgerError:
        return ()

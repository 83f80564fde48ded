"""Committing what people have written into the ledger between sessions: `relay ledger add` and its like, or by hand."""

from relay.errors import RepoError, within
from relay.files.tree import read_file
from relay.git.message import Message
from relay.git.names import render_path
from relay.git.status import read_status
from relay.ledger import merge_entries, parse_ledger
from relay.plan.encoding import decode_text, encode_text
from relay.run.gates import open_hooks
from relay.run.start import read_ledger
from relay.session.events import Committed, Noticed
from relay.session.usage import Spent
from relay.setup.context import RunContext
from relay.store import trailers
from relay.store.commit import CommitRequest, commit_paths
from relay.store.legs import get_branch
from relay.store.texts import find_text

_SUBJECT = "relay: ledger"


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
    message = Message(
        subject=_SUBJECT,
        trailers=(
            (trailers.PLAN, render_path(ctx.plan_path)),
            (trailers.STATUS, "amended"),
            (trailers.SANDBOX, ctx.workspace.sandbox.mechanism),
            *trailers.render_spent(Spent()),
        ),
    )
    request = CommitRequest(
        branch=get_branch(repo),
        head=repo.head(),
        message=message,
        replace={path: encode_text(ledger.text)},
        based_on={path: disk},
        take_in=False,
    )
    with open_hooks(ctx) as hooks:
        outcome = commit_paths(repo, request, hooks=hooks)
    if outcome.commit is None:
        raise RepoError(f"the ledger could not be committed ({outcome.end}): {outcome.output}")
    ctx.observe(Committed(commit=outcome.commit, subject=_SUBJECT, status="amended", phase_id="", items=()))
    for words in outcome.left:
        ctx.observe(Noticed(text=words, warning=True))
    return True

"""The plan and the ledger as commits have them, and commits of one of the two alone.

That is a new plan before the first phase, and people's own edits between legs.
"""

from functools import partial

from relay.base.errors import LedgerError, PlanError, within
from relay.base.hints import TypedPath
from relay.base.tree import read_file, replace_file
from relay.base.words import list_some
from relay.git.names import render_path
from relay.git.status import read_status
from relay.git.trees import FILE
from relay.ledger import Entry, Ledger, merge_entries, parse_ledger
from relay.plan.files import decode_text, encode_text, require_utf8
from relay.plan.lineage import find_lineage
from relay.plan.model import Plan
from relay.plan.parse import parse_plan
from relay.plan.transitions import has_same_words
from relay.run.commit.file_commit import FileCommit, commit_file
from relay.session.events import Noticed
from relay.session.usage import Spent
from relay.setup.context import PlanFiles, RunContext
from relay.store.legs import keep_snapshot
from relay.store.obstacle import make_refusal
from relay.store.plan_edit import EditKind, find_edit, put_ticks
from relay.store.planning_cost import PlanningRecord, drop_plan_usage, read_plan_usage
from relay.store.situation import PlanSource
from relay.store.snapshot import write_snapshot_tree
from relay.store.texts import find_text


def ensure_plan_committed(ctx: RunContext) -> Plan:
    """Commit the plan file by itself where it differs from HEAD; return it as HEAD has it then.

    Raises:
        PlanError: There is no plan, it cannot be read, or what relay has ticked was changed.
        RepoError: The commit could not be made.
    """
    disk = _read_file(ctx.files)
    shown = _parse(ctx.plan_path, disk)
    edit = find_edit(ctx.repo, ctx.plan_path, shown)
    match edit.kind:
        case EditKind.NONE:
            pass
        case EditKind.NEW:
            words = f"plan — {shown.title}" if shown.title else "plan"
            return _commit(ctx, shown, disk=disk, status="planned", words=words)
        case EditKind.AMENDED:
            return _commit(ctx, edit.plan, disk=disk, status="amended", words="plan amended")
        case EditKind.REFUSED:
            raise make_refusal(ctx.plan_path, edit.violations)
    return edit.plan


def tick_edited_plan(files: PlanFiles, commit: str, items: tuple[str, ...]) -> None:
    """Put the ticks of a commit into the plan's file where the user edited that while the session worked.

    Done before the leg is closed: from then on a box that is open in the file was opened by the user.

    Args:
        commit: HEAD, whose plan is in the file already unless it was edited.
        items: Ids of the items that the commit ticked.
    """
    if (found := _find_edited(files, commit)) is None:
        return
    committed, shown = found
    ticked = put_ticks(committed, shown, items)
    if ticked.text != shown.text:
        replace_file(files.repo.root, files.plan_path, encode_text(ticked.text), FILE)


def put_ticks_aside(ctx: RunContext) -> None:
    """Take ticks out of the plan's file that a person made while a session worked, and say where they are kept.

    Else the next phase would be refused because of them, in the middle of the night. An edit that is not allowed for
    another reason stays as it is: the next look at the file says it.
    """
    if (found := _find_edited(ctx.files, ctx.repo.head())) is None:
        return
    before, shown = found
    heirs = find_lineage(before, shown).items
    by_hand = shown.done_ids - {heirs[item] for item in before.done_ids if item in heirs}
    kept = shown.untick(by_hand)
    kinds = [find_edit(ctx.repo, ctx.plan_path, plan).kind is EditKind.REFUSED for plan in (shown, kept)]
    if kinds != [True, False]:
        return
    ref, _ = keep_snapshot(ctx.repo, write_snapshot_tree(ctx.repo), "relay: the plan as it was ticked by hand")
    replace_file(ctx.repo.root, ctx.plan_path, encode_text(kept.text), FILE)
    words = (
        f"{list_some(sorted(by_hand))} was ticked by hand while a session worked; only relay ticks, so it is open again"
    )
    ctx.observe(Noticed(text=f"{words}. The file as it was: git show {ref}:{ctx.plan_path}", warning=True))


def _find_edited(files: PlanFiles, commit: str | None) -> tuple[Plan, Plan] | None:
    """Return the plan as a commit and as the file has it; None where they are the same, or the file cannot be used.

    What is wrong with the file, the next look at it says.
    """
    disk = read_file(files.repo.root, files.plan_path)
    committed = find_text(files.repo, commit, files.plan_path)
    if disk is None or committed is None or decode_text(disk) == committed:
        return None
    try:
        return parse_plan(committed), _parse(files.plan_path, disk)
    except PlanError:
        return None


def read_plan(files: PlanFiles) -> Plan:
    """Read the plan as the file has it.

    Raises:
        PlanError: There is none, or it cannot be used.
    """
    return _parse(files.plan_path, _read_file(files))


def make_source(files: PlanFiles) -> PlanSource:
    """Return the plan as the question where it stands needs it."""
    return PlanSource(plan_name=files.plan_path, load=partial(read_plan, files))


def _parse(plan_path: str, disk: bytes) -> Plan:
    with within(plan_path):
        return parse_plan(require_utf8(disk))


def _read_file(files: PlanFiles) -> bytes:
    disk = read_file(files.repo.root, files.plan_path)
    if disk is None:
        hint = ("git restore ", TypedPath(path=files.plan_path), " brings back the committed one")
        raise PlanError("there is no such plan any more", path=files.plan_path, hint=hint)
    return disk


def _find_planning(files: PlanFiles) -> PlanningRecord | None:
    record = read_plan_usage(files.repo)
    return record if record and record.plan_path == files.plan_path else None


def _commit(ctx: RunContext, plan: Plan, *, disk: bytes, status: str, words: str) -> Plan:
    """Commit the plan and return it as it was committed: a hook may have formatted it."""
    planning = _find_planning(ctx.files)
    file = FileCommit(
        title="plan",
        path=ctx.plan_path,
        disk=disk,
        data=encode_text(plan.text),
        status=status,
        words=words,
        is_same=lambda data: _is_same(plan, data),
        session_id=planning.session_id if planning else "",
        spent=planning.spend if planning else Spent(),
    )
    data = commit_file(ctx, file, on_commit=lambda: drop_plan_usage(ctx.repo, planning) if planning else None)
    return plan if data == file.data else _parse(ctx.plan_path, data)


def _is_same(plan: Plan, data: bytes) -> bool:
    try:
        return has_same_words(plan, parse_plan(require_utf8(data)))
    except PlanError:
        return False


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


def find_plan(files: PlanFiles, commit: str | None) -> Plan | None:
    """Return the plan as a commit or a snapshot has it; None when it has none."""
    text = find_text(files.repo, commit, files.plan_path)
    return parse_plan(text) if text else None


def read_ledger(files: PlanFiles, commit: str | None) -> Ledger:
    """Read the ledger of a commit or a snapshot, empty when it has none; the error names its file.

    Raises:
        LedgerError: It cannot be read as one.
    """
    with within(render_path(files.ledger_path)):
        return parse_ledger(find_text(files.repo, commit, files.ledger_path) or "")


def _read_entries(data: bytes) -> tuple[Entry, ...]:
    try:
        return parse_ledger(decode_text(data)).entries
    except LedgerError:
        return ()

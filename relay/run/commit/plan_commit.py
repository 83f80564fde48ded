"""Commits of the plan or the ledger alone, and both files as commits have them.

These are a new plan before the first phase, and people's own edits between sessions.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from relay.base.errors import LedgerError, PlanError, RepoError, within
from relay.base.hints import TypedPath
from relay.base.tree import find_stat, read_file, replace_file
from relay.base.values import dataclass
from relay.base.words import list_some, shorten
from relay.config import Settings
from relay.config.model import COMMIT_HOOKS
from relay.gate.model import GateMemory
from relay.git.identity import render_signoff
from relay.git.lock_journal import hold_collections
from relay.git.message import Message
from relay.git.names import list_paths, render_path
from relay.git.objects import find_blob_id, read_blob, read_entries
from relay.git.repository import Repo
from relay.git.status import read_status
from relay.git.trees import FILE, find_mode
from relay.ledger.model import Entry, Ledger, merge_entries, parse_ledger
from relay.plan.lineage import check_ticks_kept, find_lineage
from relay.plan.model import Plan, is_reformatted
from relay.plan.operations import Tick, describe_reworded, read_operations
from relay.plan.parse import parse_plan
from relay.plan.text import decode_text, encode_text, require_utf8
from relay.run.commit.gates import open_hooks
from relay.run.commit.hooks import explain_hook
from relay.session.events import Committed, Noticed, Observe
from relay.session.usage import Spent
from relay.setup.context import PlanFiles, RunContext
from relay.store import trailers
from relay.store.attempts import keep_snapshot
from relay.store.commit import CommitRequest, commit_paths
from relay.store.history import find_removed, find_text
from relay.store.loose import is_loose, read_own, write_own
from relay.store.plan_state import PlanSource, make_refusal
from relay.store.plan_versions import EditKind, find_edit, replay_commit
from relay.store.refs import get_branch
from relay.store.snapshot import write_snapshot_tree
from relay.store.spend import PlanningRecord, drop_plan_usage, read_plan_usage
from relay.tools.workspace import Workspace

SUBJECT_CHARS = 72
"""Longest subject of a session. Source: git's convention, a log stays below 80 columns."""
_USUAL = "chore: {subject}"
"""Conventional Commits, the form that most hooks of this kind require. Source: conventionalcommits.org, 1.0.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCommit:
    """A file to commit."""

    title: str
    """For messages: plan, ledger."""
    path: str
    disk: bytes
    """The file in the work tree; if it has changed by then, nothing is committed."""
    data: bytes
    """The new content for the commit and the work tree."""
    status: str
    """For the trailer."""
    words: str
    """The subject, before the settings format it."""
    is_same: Callable[[bytes], bool]
    """Whether other bytes mean the same; then a hook's version of the file is committed."""
    session_id: str = ""
    """The session that wrote the file; empty for a person."""
    spent: Spent = Spent()
    """The cost of writing it."""
    doubts: tuple[str, ...] = ()
    """Sentences that speak against ticks in it."""


class Committer(Protocol):
    """What a commit of a file needs; a run's context has it."""

    @property
    def repo(self) -> Repo: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def workspace(self) -> Workspace: ...
    @property
    def plan_path(self) -> str: ...
    @property
    def observe(self) -> Observe: ...
    @property
    def memory(self) -> GateMemory: ...


def commit_file(ctx: Committer, file: FileCommit, *, on_commit: Callable[[], None] = lambda: None) -> bytes:
    """Commit a file with the user's hooks, which may format it; return its committed content.

    Args:
        on_commit: Called as soon as the commit exists.

    Raises:
        RepoError: The commit could not be made.
    """
    message = Message(
        subject=render_subject(file.words, ctx.settings),
        trailers=(
            (trailers.PLAN, render_path(ctx.plan_path)),
            (trailers.STATUS, file.status),
            *(((trailers.SESSION, file.session_id),) if file.session_id else ()),
            *((trailers.DOUBT, words) for words in file.doubts),
            (trailers.SANDBOX, ctx.workspace.sandbox.mechanism),
            *trailers.render_hooks(ctx.settings.hooks),
            *trailers.render_spent(file.spent),
            *render_signoff(ctx.repo, wanted=ctx.settings.signoff),
        ),
    )
    request = CommitRequest(
        branch=get_branch(ctx.repo),
        head=ctx.repo.head(),
        message=message,
        other_subjects=list_other_subjects(file.words, ctx.settings),
        replace={file.path: file.data},
        based_on={file.path: file.disk},
        loose=ctx.plan_path if is_loose(ctx.repo, ctx.plan_path) else "",
        adopt=lambda _, data: file.is_same(data),
    )
    with open_hooks(ctx.repo, ctx.settings, ctx.workspace) as hooks:
        outcome = commit_paths(ctx.repo, request, hooks=hooks)
    if outcome.commit is None:
        hint = explain_hook(outcome).ways if outcome.hook else ""
        raise RepoError(f"the {file.title} could not be committed ({outcome.end}): {outcome.output}", hint=hint)
    on_commit()
    # Message hooks have not seen the lines of a phase yet.
    ctx.memory.knows_hooks |= hooks is not None and not {*COMMIT_HOOKS[1:]} & {*(hooks.names or ())}
    ctx.observe(Committed(commit=outcome.commit, subject=outcome.subject, status=file.status, phase_id="", items=()))
    for sentence in outcome.left:
        ctx.observe(Noticed(text=sentence, warning=True))
    if outcome.replaced[file.path] != file.data:
        ctx.observe(Noticed(text=f"a commit hook formatted the {file.title}; its version is committed"))
    if file.path in outcome.not_taken:
        words = f"a commit hook changed the words of the {file.title}; that is not committed: only you may change them"
        ctx.observe(Noticed(text=words, warning=True))
    if others := [path for path in outcome.not_taken if path != file.path]:
        told = f"a commit hook rewrote files that are not committed with the {file.title}: {list_paths(others)}"
        ctx.observe(Noticed(text=told, warning=True))
    return outcome.replaced[file.path]


def render_subject(words: str, settings: Settings) -> str:
    """Return a subject of relay in the form of the settings."""
    return _fill(settings.commit_subject, words)


def list_other_subjects(words: str, settings: Settings) -> tuple[str, ...]:
    """Return alternative subjects, in the order of trial, for a hook that refuses the first one."""
    forms = [settings.commit_subject]
    if settings.origins.get("commit_subject", "default") == "default":
        forms.append(_USUAL)
    # Such hooks also refuse a capital after the colon.
    lowered = words[:1].lower() + words[1:] if words[1:2].islower() else words
    return tuple(dict.fromkeys(_fill(form, text) for text in (words, lowered) for form in forms))


def _fill(form: str, words: str) -> str:
    return shorten(form.replace("{subject}", words), SUBJECT_CHARS)


def ensure_plan_committed(ctx: RunContext) -> Plan:
    """Commit the plan's file if it differs from HEAD; return HEAD's plan.

    Raises:
        PlanError: There is no plan, it is invalid, or somebody changed relay's ticks.
        RepoError: The commit could not be made.
    """
    disk = _read_file(ctx.files)
    shown = _parse(ctx.plan_path, disk)
    edit = find_edit(ctx.repo, ctx.plan_path, shown)
    match edit.kind:
        case EditKind.NONE:
            data = encode_text(edit.plan.text)  # a loose plan's file follows a landing, or another branch, here
            if is_loose(ctx.repo, ctx.plan_path) and read_own(ctx.repo, ctx.plan_path) != data:
                write_own(ctx.repo, ctx.plan_path, data)
        case EditKind.NEW:
            words = f"plan — {shown.title}" if shown.title else "plan"
            return _commit(ctx, shown, disk=disk, status="planned", words=words)
        case EditKind.AMENDED:
            said = describe_reworded(edit.before or shown, edit.plan, edit.plan.done_ids)
            for words in said:
                ctx.observe(Noticed(text=words, warning=True))
            return _commit(ctx, edit.plan, disk=disk, status="amended", words="plan amended", doubts=said)
        case EditKind.REFUSED:
            raise make_refusal(ctx.plan_path, edit)
    return edit.plan


def put_back(files: PlanFiles) -> tuple[str, ...]:
    """Make plan and ledger in a work tree of relay's own as HEAD has them: nobody but relay writes them there.

    A process of a session may outlive the mount that covers them, when relay replaces a file by the commit's.

    Returns:
        A sentence for each file that was otherwise.
    """
    repo, own = files.repo, (files.plan_path, files.ledger_path)
    found = {path: read_file(repo.root, path) for path in own}
    modes = {path: find_mode(find_stat(repo.root, path)) for path in own}
    now = {path: (modes[path], find_blob_id(repo, data)) for path, data in found.items() if data is not None}
    if now == read_entries(repo, "HEAD", own):
        return ()
    status = read_status(repo, own)  # git may have written line ends of its own
    changed = [path for path in own if path in {*status.changed, *status.untracked}]
    if not changed:
        return ()
    with hold_collections(repo):
        ref, _ = keep_snapshot(repo, write_snapshot_tree(repo), "relay: the plan as it was found")
    for path in changed:
        if (committed := read_blob(repo, "HEAD", path)) is None:
            (repo.root / path).unlink()
        else:
            replace_file(repo.root, path, committed, FILE)
    return tuple(f"{path} in {repo.root} was put back; as it was found: git show {ref}:{path}" for path in changed)


def change_edited_plan(files: PlanFiles, commit: str) -> tuple[str, ...]:
    """Do what a commit did to the plan in the plan's file too, if the user edited it while the session worked.

    This happens before the attempt closes: from then on, an open box in the file was opened by the user.

    Args:
        commit: HEAD, whose plan is in the file unless the user edited it.

    Returns:
        A sentence for each tick, item and note that found no place there.
    """
    if (found := _find_edited(files, commit)) is None:
        return ()
    replayed = replay_commit(files.repo, files.plan_path, commit, found[1])
    if replayed.plan.text != found[1].text:
        write_own(files.repo, files.plan_path, encode_text(replayed.plan.text))
    return replayed.left


def take_edit(ctx: RunContext, begun: str | None) -> None:
    """Settle what a person did to ticks, and to the items of a session, in the plan's file while it worked.

    A box that was ticked by hand is opened. Where an item that the session has done is gone from the file, or another
    stands in its place, the file stays as it is and is committed so. Otherwise relay would refuse the next phase
    because of them, in the middle of the night. Edits that are refused for another reason stay; the next look at the
    file reports them.

    Args:
        begun: The commit from which the session began.
    """
    if (found := _find_edited(ctx.files, ctx.repo.head())) is None:
        return
    before, shown = found
    lineage = find_lineage(before, shown)
    heirs = {**lineage.reworded, **lineage.items}
    by_hand = shown.done_ids - {heirs[item] for item in before.done_ids if item in heirs}
    kept, start = shown.untick(by_hand), find_plan(ctx.files, begun)
    done = [one for one in read_operations(start, before) if isinstance(one, Tick)] if start else []
    gone = [one for one in done if one.item_id not in heirs]
    if not (by_hand or gone) or find_edit(ctx.repo, ctx.plan_path, shown).kind is not EditKind.REFUSED:
        return
    rest = before.untick([one.item_id for one in gone])
    if check_ticks_kept(rest, kept):
        return
    if by_hand:
        with hold_collections(ctx.repo):
            as_left = write_snapshot_tree(ctx.repo, replace={ctx.plan_path: encode_text(shown.text)})
            ref, _ = keep_snapshot(ctx.repo, as_left, "relay: the plan as a person left it")
        words = f"{list_some(sorted(by_hand))} was ticked by hand while a session worked; only relay ticks"
        text = f"{words}, so it is open again. The file as it was: git show {ref}:{ctx.plan_path}"
        ctx.observe(Noticed(text=text, warning=True))
        write_own(ctx.repo, ctx.plan_path, encode_text(kept.text))
    if gone:
        told = [f"item {one.item_id} is done, and is in the plan no more as `{one.text}`" for one in gone]
        told += describe_reworded(before, kept, kept.done_ids)
        _commit(ctx, kept, disk=encode_text(kept.text), status="amended", words="plan amended", doubts=tuple(told))


def _find_edited(files: PlanFiles, commit: str | None) -> tuple[Plan, Plan] | None:
    """Return the plan of a commit and of the file; None if they are the same, or the file is invalid.

    The next look at the file reports the error.
    """
    disk = read_own(files.repo, files.plan_path)
    committed = find_text(files.repo, commit, files.plan_path)
    if disk is None or committed is None or decode_text(disk) == committed:
        return None
    try:
        return parse_plan(committed), _parse(files.plan_path, disk)
    except PlanError:
        return None


def read_plan(files: PlanFiles) -> Plan:
    """Read the plan's file.

    Raises:
        PlanError: There is none, or it is invalid.
    """
    return _parse(files.plan_path, _read_file(files))


def make_source(files: PlanFiles) -> PlanSource:
    """Return the plan as a source for `relay.store.plan_state`."""
    return PlanSource(plan_name=files.plan_path, load=partial(read_plan, files))


def _parse(plan_path: str, disk: bytes) -> Plan:
    with within(plan_path):
        return parse_plan(require_utf8(disk))


def _read_file(files: PlanFiles) -> bytes:
    disk = read_own(files.repo, files.plan_path)
    if disk is None and is_loose(files.repo, files.plan_path):
        text = find_text(files.repo, "HEAD", files.plan_path)  # a clone that has its ref, and not its file
        disk = None if text is None else encode_text(text)
    if disk is None:
        gone = find_text(files.repo, files.repo.head(), files.plan_path) is None
        took = find_removed(files.repo, files.plan_path)[:12] if gone else ""
        words = f"git restore {f'--source {took}~1 ' if took else ''}"
        hint = (words, TypedPath(path=files.plan_path), " brings back the committed one")
        raise PlanError("there is no such plan any more", path=files.plan_path, hint=hint)
    return disk


def _find_planning(files: PlanFiles) -> PlanningRecord | None:
    record = read_plan_usage(files.repo)
    return record if record and record.plan_path == files.plan_path else None


def _commit(  # two private callers
    ctx: RunContext, plan: Plan, *, disk: bytes, status: str, words: str, doubts: tuple[str, ...] = ()
) -> Plan:
    """Commit the plan and return it as committed: a hook may have formatted it."""
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
        doubts=doubts,
    )
    data = commit_file(ctx, file, on_commit=lambda: drop_plan_usage(ctx.repo, planning) if planning else None)
    return plan if data == file.data else _parse(ctx.plan_path, data)


def _is_same(plan: Plan, data: bytes) -> bool:
    try:
        return is_reformatted(plan, parse_plan(require_utf8(data)))
    except PlanError:
        return False


def commit_ledger_edit(ctx: RunContext) -> bool:
    """Commit the ledger's file if it differs from HEAD; return whether it did.

    Entries that only HEAD has are kept after those of the file: a session committed them after the user opened the
    file.

    Raises:
        LedgerError: One of the two is no valid ledger.
        RepoError: The commit could not be made.
    """
    repo, path = ctx.repo, ctx.ledger_path
    disk, committed = read_own(repo, ctx.plan_path, path), find_text(repo, "HEAD", path)
    loose = is_loose(repo, ctx.plan_path)
    if (disk is None and not loose) or decode_text(disk or b"") == (committed or ""):
        return False
    if not loose and committed is not None and path not in read_status(repo, (path,)).changed:
        return False  # only line endings differ from the blob
    with within(render_path(path)):
        ledger = merge_entries(parse_ledger(decode_text(disk or b"")), read_ledger(ctx.files, "HEAD").entries)
    if disk is None or (loose and {*ledger.entries} == {*read_ledger(ctx.files, "HEAD").entries}):
        write_own(repo, ctx.plan_path, encode_text(ledger.text), path)
        return False
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
    """Return the plan of a commit or a checkpoint; None without one."""
    text = find_text(files.repo, commit, files.plan_path)
    return parse_plan(text) if text else None


def read_ledger(files: PlanFiles, commit: str | None) -> Ledger:
    """Return the ledger of a commit or a checkpoint, empty without one; errors name its file.

    Raises:
        LedgerError: It is no valid ledger.
    """
    with within(render_path(files.ledger_path)):
        return parse_ledger(find_text(files.repo, commit, files.ledger_path) or "")


def _read_entries(data: bytes) -> tuple[Entry, ...]:
    try:
        return parse_ledger(decode_text(data)).entries
    except LedgerError:
        return ()

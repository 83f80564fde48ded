"""The refs under ``refs/relay/`` of one branch: the open attempt, its snapshots; and the cost of an open session.

===================================  =====================================================================
``refs/relay/leg/<branch>``          the open attempt; its tree is the work tree at the attempt's start
``refs/relay/wip/<branch>/<n>``      one ref per attempt, n counting up; a chain of snapshots, newest first
``refs/relay/written/<branch>``      a written plan that no commit has yet, with the cost of planning
``refs/relay/rejected/<branch>/<n>`` the same for a plan that was turned down
``refs/relay/spent/<branch>/<n>``    the cost of an attempt that was given up
===================================  =====================================================================

``<branch>`` has ``/`` written as ``%2F`` and ``%`` as ``%25`` (`relay.git.names.render_ref_part`). All facts are in
trailers, so a ref fetched on another machine says as much as here.

A session's cost is noted with each request in ``.git/relay/spent/<session>``, for the time between two snapshots: a
kill loses none of it. The last whole line of that file counts; it holds the cost since the session's beginning, so
nothing is added twice. Cost from before the session is in its attempt, or in the record of its planning
(`relay.store.spend`).
"""

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import field, replace
from datetime import UTC, datetime

from relay.base.errors import RepoError
from relay.base.hints import ANOTHER_RELAY, RUN, WHY
from relay.base.tree import find_boot_id
from relay.base.values import dataclass
from relay.base.walk import open_parent, open_regular, sync_fd
from relay.git import objects, refs
from relay.git.command import GitError
from relay.git.lock_journal import storing
from relay.git.message import CommitText, Message, read_text, read_texts
from relay.git.names import parse_path, render_path, with_parents
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.plan.text import find_ledger_path
from relay.session.usage import Spent, rank_spent
from relay.session.values import SessionEnd
from relay.store import trailers
from relay.store.refs import find_attempt_ref, get_branch, next_ref
from relay.store.snapshot import Skipped, Snapshot, TreeSnapshot, find_unheld, write_snapshot_tree
from relay.store.trailers import (
    BASE,
    BOOT,
    ENDED,
    ERROR,
    PLACE,
    PROPOSED,
    REPLACED,
    SESSION,
    SKIPPED,
    WAIT_UNTIL,
    WIP,
)
from relay.store.worktree_notes import find_home, read_brought

_UNBORN = "none"
NOWHERE = "nowhere"
"""The place of an attempt whose work is in no work tree yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStart:
    """Facts needed to open an attempt."""

    session_id: str
    phase_id: str
    plan_path: str
    trailers: tuple[tuple[str, str], ...] = ()
    """Further trailers, kept and returned."""
    onto: str = ""
    """The commit at which it begins, if branch and work tree are not there yet; else empty."""
    merges: str = ""
    """The commit that it is to merge there; empty for an attempt that does work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAttempt:
    """An attempt that has begun and was not closed."""

    branch: str
    commit: str
    base_head: str | None
    """HEAD at the attempt's start; None on an unborn branch."""
    base_tree: str
    """The work tree at the attempt's start, with the user's own changes."""
    session_id: str
    phase_id: str
    plan_path: str
    boot_id: str
    """Identifies the machine's start in which the attempt began; empty where the system has no such id."""
    place: str
    """The work tree in which it began, from `find_place_id`."""
    wip_ref: str
    last_wip: Snapshot | None = None
    """The newest snapshot of this attempt."""
    spend: Spent = field(default_factory=Spent)
    """Cost of all its sessions, as noted with the last request, else as of the newest snapshot."""
    items: tuple[str, ...] = ()
    """Ids of the items that the session has claimed, as of the newest snapshot."""
    handoff_note: str = ""
    """The newest snapshot's text: the handoff note."""
    skipped: tuple[Skipped, ...] = ()
    """Paths that the snapshot at the start left out: never the attempt's."""
    trailers: tuple[tuple[str, str], ...] = ()
    """All trailers of the attempt's commit."""
    wip_trailers: tuple[tuple[str, str], ...] = ()
    """Trailers of the newest snapshot, with the caller's own."""

    @property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """Trailers that each further session and snapshot of the attempt keeps, each once, in order."""
        found = self.trailers + self.wip_trailers
        return tuple(dict.fromkeys(pair for pair in found if pair[0] in trailers.CARRIED))

    @property
    def said(self) -> tuple[str, ...]:
        """The user's words to the sessions of this attempt."""
        return trailers.parse_said(self.carried)

    @property
    def merges(self) -> str:
        """The phase's own commit, if this attempt only merges it onto what others landed; empty if it does work."""
        return dict(self.carried).get(trailers.MERGE, "")

    @property
    def is_unchecked(self) -> bool:
        """Whether nothing of a landing attempt's commit was checked in this work tree."""
        return trailers.UNCHECKED in dict(self.carried)


def find_place_id(repo: Repo) -> str:
    """Return an id of this work tree on this machine; other clones and linked work trees have other ids."""
    return hashlib.sha256(os.fsencode(repo.git_dir)).hexdigest()[:16]


@storing
def open_attempt(repo: Repo, start: AttemptStart, *, base: TreeSnapshot | None = None) -> OpenAttempt:
    """Open an attempt on the branch, with the work tree as it is now for its start.

    Args:
        base: A snapshot of the work tree as it is, or as it will be; None takes one.

    Raises:
        RepoError: HEAD is detached, or an attempt is open on the branch already.
    """
    branch, head = get_branch(repo), start.onto or repo.head()
    # The attempt's commit names this ref, so that a run after a crash finds the snapshots by the attempt alone.
    wip_ref = next_ref(repo, "wip", branch)
    base = base or write_snapshot_tree(repo)
    place = NOWHERE if start.onto else find_place_id(repo)
    kept = _render_start(start, head, place, wip_ref, skipped=base.skipped, spent=Spent())
    message = Message(subject=f"relay: phase {start.phase_id} begins on {branch}", trailers=kept)
    commit = objects.write_commit(repo, base.tree, _list_parents(head, start.merges), message)
    if not refs.move_ref(repo, find_attempt_ref(branch), commit, None):
        raise RepoError(f"an attempt is open on {branch} already", hint=WHY)
    return _parse_attempt(branch, read_text(repo, commit))


def _list_parents(*commits: str | None) -> tuple[str, ...]:
    """Return the parents of an attempt's commit: they keep the commits that it names."""
    return tuple(commit for commit in commits if commit)


def _render_start(
    start: AttemptStart, head: str | None, place: str, wip_ref: str, *, skipped: tuple[Skipped, ...], spent: Spent
) -> tuple[tuple[str, str], ...]:
    return (
        (trailers.PLAN, render_path(start.plan_path)),
        (trailers.PHASE, start.phase_id),
        (trailers.SESSION, start.session_id),
        (BASE, head or _UNBORN),
        (BOOT, find_boot_id()),
        (PLACE, place),
        (WIP, wip_ref),
        *trailers.render_spent(spent),
        *(((trailers.MERGE, start.merges),) if start.merges else ()),
        *render_skipped(skipped),
        *start.trailers,
    )


def read_attempt(repo: Repo, branch: str | None = None) -> OpenAttempt | None:
    """Return the open attempt of `branch` (HEAD's by default), with its newest snapshot; None without one.

    Raises:
        GitError: Git has lost it (see `relay.store.checkpoints`).
    """
    branch = branch or repo.branch
    commit = refs.find_ref(repo, find_attempt_ref(branch)) if branch else None
    if branch is None or commit is None:
        return None
    attempt = _parse_attempt(branch, _read(repo, find_attempt_ref(branch), commit))
    tip = refs.find_ref(repo, attempt.wip_ref) if attempt.wip_ref.startswith("refs/relay/wip/") else None
    before = attempt.spend
    attempt = attempt if tip is None else _advance(attempt, _read(repo, attempt.wip_ref, tip))
    noted = find_spent(repo, attempt.session_id)
    return attempt if noted is None else replace(attempt, spend=before + noted)


def _read(repo: Repo, ref: str, commit: str) -> CommitText:
    try:
        return read_text(repo, commit)
    except GitError as error:
        words = f"{ref} names {commit[:10]}, which cannot be read: {error}"
        raise GitError(words, hint=("`", RUN, "` goes on from the newest checkpoint that is whole")) from error


def _parse_attempt(branch: str, text: CommitText) -> OpenAttempt:
    base = text.get(BASE)
    return OpenAttempt(
        branch=branch,
        commit=text.commit,
        base_head=None if base == _UNBORN else base,
        base_tree=text.tree,
        session_id=text.get(trailers.SESSION),
        phase_id=text.get(trailers.PHASE),
        plan_path=parse_path(text.get(trailers.PLAN)),
        boot_id=text.get(BOOT),
        place=text.get(PLACE),
        wip_ref=text.get(WIP),
        spend=_parse_spent(text) if text.get(trailers.COST) else Spent(),
        skipped=_parse_skipped(text),
        trailers=text.found,
    )


def _parse_skipped(text: CommitText) -> tuple[Skipped, ...]:
    parts = (value.removesuffix(")").rpartition(" (") for value in text.get_all(SKIPPED))
    return tuple(Skipped(path=parse_path(path), reason=reason) for path, _, reason in parts)


def _advance(attempt: OpenAttempt, text: CommitText) -> OpenAttempt:
    snapshot = Snapshot(
        commit=text.commit,
        tree=text.tree,
        skipped=_parse_skipped(text),
        replaced=tuple(parse_path(value) for value in text.get_all(REPLACED)),
    )
    return replace(
        attempt,
        last_wip=snapshot,
        # The cost only grows: a snapshot from before this session was put on the attempt has a lower one.
        spend=max(attempt.spend, _parse_spent(text), key=rank_spent),
        items=tuple(text.get(trailers.ITEMS).split()),
        handoff_note=text.message.body,
        wip_trailers=text.found,
    )


def _parse_spent(text: CommitText) -> Spent:
    return trailers.parse_spent(text.get(trailers.USAGE), text.get(trailers.COST))


@storing
def continue_attempt(repo: Repo, attempt: OpenAttempt, start: AttemptStart) -> OpenAttempt:
    """Put another session on an open attempt: base and snapshots stay; session, boot id and further trailers are new.

    Raises:
        RepoError: Another process opened or closed the branch's attempt meanwhile.
    """
    place = find_place_id(repo)
    start = replace(start, trailers=start.trailers + attempt.carried)
    kept = _render_start(start, attempt.base_head, place, attempt.wip_ref, skipped=attempt.skipped, spent=attempt.spend)
    message = Message(subject=f"relay: phase {start.phase_id} goes on in {start.session_id}", trailers=kept)
    parents = _list_parents(attempt.base_head, attempt.merges)
    commit = objects.write_commit(repo, attempt.base_tree, parents, message)
    if not refs.move_ref(repo, find_attempt_ref(attempt.branch), commit, attempt.commit):
        raise RepoError(f"the open attempt of {attempt.branch} was changed by somebody else", hint=WHY)
    drop_spent(repo, attempt.session_id)
    opened = _parse_attempt(attempt.branch, read_text(repo, commit))
    return replace(
        opened,
        last_wip=attempt.last_wip,
        items=attempt.items,
        handoff_note=attempt.handoff_note,
        wip_trailers=attempt.wip_trailers,
    )


@storing
def displace_attempt(repo: Repo, branch: str) -> None:
    """Note that no work tree has the work of a branch's open attempt any more: its newest snapshot must be restored.

    Raises:
        RepoError: Another process opened or closed the branch's attempt meanwhile.
    """
    if (attempt := read_attempt(repo, branch)) is None or attempt.place == NOWHERE:
        return
    text = read_text(repo, attempt.commit)
    kept = tuple((key, NOWHERE if key == PLACE else value) for key, value in text.found)
    message = replace(text.message, trailers=kept)
    commit = objects.write_commit(repo, text.tree, text.parents, message)
    if not refs.move_ref(repo, find_attempt_ref(branch), commit, attempt.commit):
        raise RepoError(f"the open attempt of {branch} was changed by somebody else", hint=WHY)


@storing
def keep_snapshot(repo: Repo, found: TreeSnapshot, subject: str) -> tuple[str, str]:
    """Keep a snapshot that belongs to no attempt, under a ref of its own among those of the attempts.

    Returns:
        The ref and the commit.

    Raises:
        RepoError: HEAD is detached, or another process made the ref meanwhile.
    """
    branch, head = get_branch(repo), repo.head()
    ref = next_ref(repo, "wip", branch)
    message = Message(subject=subject, trailers=render_skipped(found.skipped))
    commit = objects.write_commit(repo, found.tree, (head,) if head else (), message)
    if not refs.move_ref(repo, ref, commit, None):
        raise RepoError(f"{ref} was made by somebody else", hint=ANOTHER_RELAY)
    return ref, commit


def close_attempt(repo: Repo, attempt: OpenAttempt) -> bool:
    """Drop the open attempt's ref; its snapshots stay. Its cost is on the branch, or kept elsewhere, by now.

    Returns:
        False when another attempt is open by now; nothing has changed then.
    """
    drop_spent(repo, attempt.session_id)
    return refs.drop_ref(repo, find_attempt_ref(attempt.branch), attempt.commit)


def render_skipped(skipped: tuple[Skipped, ...]) -> tuple[tuple[str, str], ...]:
    """Return the trailers that list the paths which a snapshot does not hold."""
    return tuple((SKIPPED, f"{render_path(entry.path)} ({entry.reason})") for entry in skipped)


def find_attempt_changes(repo: Repo, attempt: OpenAttempt, now: TreeSnapshot) -> tuple[PathChange, ...]:
    """Return the attempt's changes: the difference to its start.

    Paths that either snapshot left out are missing, and paths whose bytes in `now` are not the work tree's.
    """
    changes = objects.diff_trees(repo, attempt.base_tree, now.tree)
    unheld = find_unheld(repo, attempt.base_head, [c.path for c in changes], attempt.skipped, now.skipped)
    return tuple(c for c in changes if c.path not in now.replaced and c.path not in unheld)


def find_owned_paths(repo: Repo, plan_path: str, attempt: OpenAttempt, now: TreeSnapshot) -> tuple[str, ...]:
    """Return the paths that an attempt's sessions changed, without files that only relay writes."""
    changes = find_attempt_changes(repo, attempt, now)
    added = (change.path for change in changes if change.kind is ChangeKind.ADDED)
    return select_owned(plan_path, attempt, changes, find_brought_paths(repo, added))


def find_brought_paths(repo: Repo, paths: Iterable[str]) -> frozenset[str]:
    """Return those of new paths that are in the user's work tree and ignored there.

    A session may have changed ``.gitignore``.
    """
    brought, home = read_brought(repo), find_home(repo)
    copies = brought.copies.keys() if brought else set[str]()
    below = (path for path in paths if not copies.isdisjoint(with_parents([path])))
    return frozenset(path for path in below if os.path.lexists(home / path))


def select_owned(
    plan_path: str, attempt: OpenAttempt, changes: Iterable[PathChange], without: frozenset[str]
) -> tuple[str, ...]:
    """Return the paths of those changes that a commit takes: no submodule, and no file that only relay writes."""
    # A plan that was renamed meanwhile has two names.
    plans = {plan_path, attempt.plan_path or plan_path}
    others = {*without, *plans, *map(find_ledger_path, plans)}
    return tuple(change.path for change in changes if change.path not in others and not change.is_submodule)


_NOT_ITS_FAULT = frozenset({
    SessionEnd.INTERRUPTED, SessionEnd.LIMIT, SessionEnd.API_FAILED, SessionEnd.DENIED, SessionEnd.BUDGET,
    SessionEnd.AGENT_FAILED,
})  # fmt: skip
"""Ends that say nothing about the phase: such a session has no number of its own, and is none without progress."""
_NO_SUBJECT = "-"
_ERROR_CHARS = 240
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_MOST_SNAPSHOTS = 20_000


def render_end(end: SessionEnd, *, item: str, error: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers of a session's last snapshot.

    Args:
        item: The item that it worked on; empty when all are claimed.
        error: The last error that it did not overcome; empty without one.
    """
    words = " ".join(error.split())
    if len(words) > _ERROR_CHARS:
        words = f"{words[: _ERROR_CHARS // 2]} … {words[-_ERROR_CHARS // 2 :]}"
    return (ENDED, end), (ERROR, f"{item or 'all ticked'}: {words}" if words else "")


def has_ended_with(attempt: OpenAttempt, source: str, words: str) -> bool:
    """Return whether the attempt's last session had ticked everything and ended with this error."""
    (_, error) = render_end(SessionEnd.FINISHED, item="", error=f"{source}: {words}")
    return error in attempt.wip_trailers


def render_proposal(subject: str) -> tuple[tuple[str, str], ...]:
    """Return the trailer of a session that finished its phase, and whose work was not committed."""
    return ((PROPOSED, " ".join(subject.split()) or _NO_SUBJECT),)


def find_proposal(attempt: OpenAttempt) -> str | None:
    """Return the subject that the attempt's last session proposed, empty for none; None if it left work to do."""
    found = dict(attempt.wip_trailers)
    if PROPOSED not in found:
        return None
    return "" if found[PROPOSED] == _NO_SUBJECT else found[PROPOSED]


def render_wait(until: float | None, model: str) -> tuple[tuple[str, str], ...]:
    """Return the trailer for a limit; nothing if its end (seconds since the epoch) is unknown."""
    if until is None:
        return ()
    return ((WAIT_UNTIL, f"{datetime.fromtimestamp(until, tz=UTC):{_TIME}} {model}"),)


def find_reset(attempt: OpenAttempt, model: str) -> float | None:
    """Return when this model's limit that the attempt met resets, in seconds since the epoch; None without one."""
    found = find_wait_until(attempt)
    return found[0] if found is not None and found[1] == model else None


def find_wait_until(attempt: OpenAttempt) -> tuple[float, str] | None:
    """Return when a limit that the attempt met resets, in seconds since the epoch, and its model."""
    moment, _, limited = dict(attempt.wip_trailers).get(WAIT_UNTIL, "").partition(" ")
    try:
        return datetime.strptime(moment, _TIME).replace(tzinfo=UTC).timestamp(), limited
    except ValueError:
        return None


def is_refunded(attempt: OpenAttempt) -> bool:
    """Return whether the attempt's last session ended without fault of its own: a kill, a limit, a failing endpoint."""
    return not attempt.handoff_note or dict(attempt.wip_trailers).get(ENDED, "") in _NOT_ITS_FAULT


def find_repeated_error(repo: Repo, attempt: OpenAttempt) -> tuple[int, str]:
    """Return how many of the attempt's last sessions ended at the same item with the same error, and that error.

    Numbers in errors are not compared: lines, times and process ids differ where nothing else does.
    """
    errors = _read_errors(repo, attempt)
    if not errors or not errors[0]:
        return 0, ""
    first = _NUMBER.sub("#", errors[0].partition(": ")[2])
    item = errors[0].partition(": ")[0]
    times = 0
    for error in errors:
        if error.partition(": ")[0] != item or _NUMBER.sub("#", error.partition(": ")[2]) != first:
            break
        times += 1
    return times, errors[0]


def _read_errors(repo: Repo, attempt: OpenAttempt) -> list[str]:
    """Return the errors of the sessions that ended by themselves, newest first; empty for one that ended without."""
    if attempt.last_wip is None:
        return []
    revs = (attempt.last_wip.commit, *((f"^{attempt.base_head}",) if attempt.base_head else ()))
    texts = read_texts(repo.git, "--first-parent", f"--max-count={_MOST_SNAPSHOTS}", *revs, "--")
    # Later snapshots repeat the words of the session that ended: each session counts once.
    ended = {text.get(SESSION): text for text in reversed(texts) if text.get(ENDED)}
    return [text.get(ERROR) for text in reversed(ended.values()) if text.get(ENDED) not in _NOT_ITS_FAULT]


_SESSION = re.compile(r"[0-9A-Za-z]{1,64}")
_LAST_BYTES = 4_096
"""No line is nearly as long."""


def note_spent(repo: Repo, session_id: str, spent: Spent, *, synced: bool) -> None:
    """Note the cost of a session since its beginning.

    Args:
        spent: All of it, with the most that a request under way can cost.
        synced: Whether the note must survive a power cut; it always survives a kill. Only then is a file made: if the
            file is gone, something lasting records the session by now, and it is not noted again.

    Raises:
        OSError: It cannot be written.
    """
    # Begin with a line feed too: a line that a full disk cut off must not spoil this one.
    (_, usage), (_, cost) = trailers.render_spent(spent)
    line = f"\n{cost}; {usage};\n".encode()
    with open_parent(repo.common_dir, _get_spent_path(session_id), create=synced) as (parent, name):
        fd = open_regular(name, parent, os.O_WRONLY | os.O_APPEND | (os.O_CREAT if synced else 0))
        try:
            is_new = os.fstat(fd).st_size == 0
            if os.write(fd, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), session_id)
            if synced:
                sync_fd(fd)
        finally:
            os.close(fd)
        if synced and is_new:
            sync_fd(parent)


def find_spent(repo: Repo, session_id: str) -> Spent | None:
    """Return the noted cost of a session; None without a note."""
    try:
        with (
            open_parent(repo.common_dir, _get_spent_path(session_id)) as (parent, name),
            os.fdopen(open_regular(name, parent), "rb") as stream,
        ):
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _LAST_BYTES))
            lines = stream.read(_LAST_BYTES).decode("ascii", "replace").split("\n")
    except OSError:
        return None
    return next((spent for line in reversed(lines[:-1]) if (spent := _parse_line(line)) is not None), None)


def drop_spent(repo: Repo, session_id: str) -> None:
    """Remove a session's note: something lasting records its cost by now."""
    with contextlib.suppress(OSError), open_parent(repo.common_dir, _get_spent_path(session_id)) as (parent, name):
        os.unlink(name, dir_fd=parent)


def _parse_line(line: str) -> Spent | None:
    cost, _, rest = line.partition("; ")
    return trailers.parse_spent(rest, cost) if rest.endswith(";") and trailers.parse_usage(rest) else None


def _get_spent_path(session_id: str) -> str:
    """Return the file of a session's note, below the directory that all work trees share.

    Raises:
        OSError: The id is not one of relay's.
    """
    if not _SESSION.fullmatch(session_id):
        raise OSError(errno.EINVAL, "not a session", session_id)
    return f"relay/spent/{session_id}"

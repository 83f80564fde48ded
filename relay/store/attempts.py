"""The refs under ``refs/relay/`` of one branch: the open attempt, its snapshots; and the cost of an open session.

===================================  =====================================================================
``refs/relay/leg/<branch>``          the open attempt; its tree is the work tree at the attempt's start
``refs/relay/wip/<branch>/<n>``      one ref per attempt, n counting up; a chain of snapshots, newest first
``refs/relay/written/<branch>``      a written plan that no commit has yet, with the cost of planning
``refs/relay/spent/<branch>/<n>``    the cost of an attempt that was given up
===================================  =====================================================================

``<branch>`` has ``/`` written as ``%2F`` and ``%`` as ``%25`` (`relay.git.names.render_ref_part`). All facts are in
the commits' messages (`relay.store.ref_notes`), so a ref fetched on another machine says as much as here.

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
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from shlex import quote
from typing import Any

from msgspec import structs

from relay.base.errors import RepoError
from relay.base.hints import ANOTHER_RELAY, RUN, WHY
from relay.base.tree import find_boot_id
from relay.base.values import dataclass
from relay.base.walk import open_parent, open_regular, sync_fd
from relay.git import objects, refs
from relay.git.command import GitError
from relay.git.lock_journal import storing
from relay.git.message import CommitText, Message, read_text, read_texts
from relay.git.names import with_parents
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.plan.text import find_ledger_path
from relay.session.usage import Spent, rank_spent
from relay.session.values import SessionEnd
from relay.store import trailers
from relay.store.ref_notes import Carried, Course, Ending, Notes, make_message, note_spending, read_notes
from relay.store.refs import find_attempt_ref, get_branch, next_ref
from relay.store.snapshot import Skipped, Snapshot, TreeSnapshot, find_unheld, write_snapshot_tree
from relay.store.worktree_notes import find_home, read_brought

NOWHERE = "nowhere"
"""The place of an attempt whose work is in no work tree yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStart:
    """Facts needed to open an attempt."""

    session_id: str
    phase_id: str
    plan_path: str
    course: Course = Course()
    carried: Carried = Carried()
    onto: str = ""
    """The commit at which it begins, if branch and work tree are not there yet; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAttempt:
    """An attempt that has begun and was not closed."""

    branch: str
    commit: str
    base_tree: str
    """The work tree at the attempt's start, with the user's own changes."""
    begun: Notes
    """As its commit says, from its newest session's beginning."""
    last_wip: Snapshot | None = None
    """The newest snapshot of this attempt."""
    saved: Notes = Notes()
    """What that says."""
    spend: Spent = field(default_factory=Spent)
    """Cost of all its sessions, as noted with the last request, else as of the newest snapshot."""

    @property
    def base_head(self) -> str | None:
        """HEAD at the attempt's start; None on an unborn branch."""
        return self.begun.base or None

    @property
    def session_id(self) -> str:
        """Its newest session."""
        return self.begun.session

    @property
    def phase_id(self) -> str:
        """The phase, by its id at the start."""
        return self.begun.phase

    @property
    def plan_path(self) -> str:
        """The plan, as it was named at the start."""
        return self.begun.plan

    @property
    def place(self) -> str:
        """The work tree in which it began, from `find_place_id`."""
        return self.begun.place

    @property
    def wip_ref(self) -> str:
        """The ref of its snapshots."""
        return self.begun.wip

    @property
    def course(self) -> Course:
        """How far the phase was when the newest session began."""
        return self.begun.course

    @property
    def items(self) -> tuple[str, ...]:
        """Ids of the items that the session has claimed, as of the newest snapshot."""
        return self.saved.items

    @property
    def handoff_note(self) -> str:
        """The newest snapshot's handoff note; empty while a session works."""
        return self.saved.handoff_note

    @property
    def ending(self) -> Ending:
        """How the session of the newest snapshot ended."""
        return self.saved.ending

    @property
    def author(self) -> str:
        """The session that did the work: after a killed review, the attempt names the review's session."""
        return self.saved.session or self.session_id

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Paths that the snapshot at the start left out: never the attempt's."""
        return list_skipped(self.begun)

    @property
    def carried(self) -> Carried:
        """What each further session and snapshot of the attempt keeps."""
        return self.begun.carried.join(self.saved.carried)

    @property
    def merges(self) -> str:
        """The phase's own commit, if this attempt only merges it onto what others landed; empty if it does work."""
        return self.carried.merges

    @property
    def joined(self) -> str:
        """The second parent of the attempt's commit; empty without one."""
        return self.carried.merges or self.carried.joins


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
    base = base or write_snapshot_tree(repo)
    notes = Notes(
        plan=start.plan_path,
        phase=start.phase_id,
        session=start.session_id,
        base=head or "",
        boot=find_boot_id(),
        place=NOWHERE if start.onto else find_place_id(repo),
        # The attempt's commit names this ref, so that a run after a crash finds the snapshots by the attempt alone.
        wip=next_ref(repo, "wip", branch),
        skipped=render_skipped(base.skipped),
        course=start.course,
        carried=start.carried,
    )
    subject = f"relay: phase {start.phase_id} begins on {branch}"
    commit = _write(repo, base.tree, notes, subject)
    if not refs.move_ref(repo, find_attempt_ref(branch), commit, None):
        raise RepoError(f"an attempt is open on {branch} already", hint=WHY)
    return OpenAttempt(branch=branch, commit=commit, base_tree=base.tree, begun=notes)


def _write(repo: Repo, tree: str, notes: Notes, subject: str) -> str:
    """Store an attempt's commit; its parents keep the commits that it names."""
    parents = tuple(filter(None, (notes.base, notes.carried.merges, notes.carried.joins)))
    return objects.write_commit(repo, tree, parents, make_message(subject, notes))


def read_attempt(repo: Repo, branch: str | None = None) -> OpenAttempt | None:
    """Return the open attempt of `branch` (HEAD's by default), with its newest snapshot; None without one.

    Raises:
        GitError: Git has lost it (see `relay.store.checkpoints`), or it is not relay's.
    """
    branch = branch or repo.branch
    commit = refs.find_ref(repo, find_attempt_ref(branch)) if branch else None
    if branch is None or commit is None:
        return None
    text, begun = _read(repo, find_attempt_ref(branch), commit)
    attempt = OpenAttempt(branch=branch, commit=commit, base_tree=text.tree, begun=begun, spend=begun.spent)
    before = attempt.spend
    if begun.wip and (tip := refs.find_ref(repo, begun.wip)):
        text, saved = _read(repo, begun.wip, tip)
        last = Snapshot(commit=tip, tree=text.tree, skipped=list_skipped(saved), replaced=saved.replaced)
        # The cost only grows: a snapshot from before this session was put on the attempt has a lower one.
        attempt = replace(attempt, last_wip=last, saved=saved, spend=max(before, saved.spent, key=rank_spent))
    noted = find_spent(repo, attempt.session_id)
    return attempt if noted is None else replace(attempt, spend=before + noted)


def _read(repo: Repo, ref: str, commit: str) -> tuple[CommitText, Notes]:
    try:
        text = read_text(repo, commit)
    except GitError as error:
        words = f"{ref} names {commit[:10]}, which cannot be read: {error}"
        raise GitError(words, hint=("`", RUN, "` goes on from the newest checkpoint that is whole")) from error
    if (notes := read_notes(text)) is None:
        raise GitError(f"{ref} names {commit[:10]}, which is not relay's", hint=f"git update-ref -d {quote(ref)}")
    return text, notes


def render_skipped(skipped: Iterable[Skipped]) -> tuple[tuple[str, str], ...]:
    """Return the paths that a snapshot does not hold, for its notes."""
    return tuple((entry.path, entry.reason) for entry in skipped)


def list_skipped(notes: Notes) -> tuple[Skipped, ...]:
    """Undo it."""
    return tuple(Skipped(path=path, reason=reason) for path, reason in notes.skipped)


@storing
def continue_attempt(repo: Repo, attempt: OpenAttempt, start: AttemptStart) -> OpenAttempt:
    """Put another session on an open attempt: base and snapshots stay; session, boot id and course are new.

    Raises:
        RepoError: Another process opened or closed the branch's attempt meanwhile.
    """
    notes = structs.replace(
        attempt.begun,
        plan=start.plan_path,
        phase=start.phase_id,
        session=start.session_id,
        boot=find_boot_id(),
        place=find_place_id(repo),
        course=start.course,
        carried=attempt.carried.join(start.carried),
        **note_spending(attempt.spend),
    )
    subject = f"relay: phase {start.phase_id} goes on in {start.session_id}"
    moved = _replace(repo, attempt, notes, subject)
    drop_spent(repo, attempt.session_id)
    return replace(moved, spend=notes.spent)


def _replace(repo: Repo, attempt: OpenAttempt, notes: Notes, subject: str) -> OpenAttempt:
    commit = _write(repo, attempt.base_tree, notes, subject)
    if not refs.move_ref(repo, find_attempt_ref(attempt.branch), commit, attempt.commit):
        raise RepoError(f"the open attempt of {attempt.branch} was changed by somebody else", hint=WHY)
    return replace(attempt, commit=commit, begun=notes)


@storing
def displace_attempt(repo: Repo, attempt: OpenAttempt) -> OpenAttempt:
    """Note that no work tree has the work of an open attempt: its newest snapshot must be restored.

    Raises:
        RepoError: Another process opened or closed the branch's attempt meanwhile.
    """
    subject = f"relay: phase {attempt.phase_id} is in no work tree"
    return _replace(repo, attempt, structs.replace(attempt.begun, place=NOWHERE), subject)


def displace_open_attempt(repo: Repo, branch: str) -> None:
    """Note it of the branch's, if there is one."""
    if (attempt := read_attempt(repo, branch)) is not None and attempt.place != NOWHERE:
        displace_attempt(repo, attempt)


@storing
def keep_snapshot(repo: Repo, found: TreeSnapshot, subject: str) -> tuple[str, str]:
    """Keep a snapshot that belongs to no attempt, for a person.

    Returns:
        The ref and the commit.

    Raises:
        RepoError: HEAD is detached, or another process made the ref meanwhile.
    """
    branch, head = get_branch(repo), repo.head()
    ref = next_ref(repo, "aside", branch)
    commit = objects.write_commit(repo, found.tree, (head,) if head else (), Message(subject=subject))
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
_ERROR_CHARS = 240
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)
_MOST_SNAPSHOTS = 20_000


def make_ending(end: SessionEnd, *, item: str, error: str) -> Ending:
    """Return what a session's last snapshot says of its end.

    Args:
        item: The item that it worked on; empty when all are claimed.
        error: The last error that it did not overcome; empty without one.
    """
    words = " ".join(error.split())
    if len(words) > _ERROR_CHARS:
        words = f"{words[: _ERROR_CHARS // 2]} … {words[-_ERROR_CHARS // 2 :]}"
    return Ending(end=end, error=f"{item or 'all ticked'}: {words}" if words else "")


def has_ended_with(attempt: OpenAttempt, source: str, words: str) -> bool:
    """Return whether the attempt's last session had ticked everything and ended with this error."""
    ended = make_ending(SessionEnd.FINISHED, item="", error=f"{source}: {words}")
    return ended.error == attempt.ending.error


def note_wait(until: float | None, model: str) -> Mapping[str, Any]:
    """Return the fields of `Ending` for a limit; nothing if its end (seconds since the epoch) is unknown."""
    return {} if until is None else {"wait_until": int(until), "limited": model}


def is_refunded(attempt: OpenAttempt) -> bool:
    """Return whether the attempt's last session ended without fault of its own: a kill, a limit, a failing endpoint."""
    return not attempt.handoff_note or attempt.ending.end in _NOT_ITS_FAULT


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
    saved = [notes for text in reversed(texts) if (notes := read_notes(text)) is not None]
    # Later snapshots repeat the words of the session that ended: each session counts once.
    ended = {notes.session: notes.ending for notes in saved if notes.ending.end}
    return [ending.error for ending in reversed(ended.values()) if ending.end not in _NOT_ITS_FAULT]


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

"""Cost that no commit on this branch records: planning, and sessions that are open or were given up.

===================================== ============================================================================
commits' trailers                     cost of the sessions behind a commit: on the branch, on jobs' branches that
                                      have not landed, and in commits that `relay rewind` left
                                      (``refs/relay/rewound/``)
``refs/relay/leg/``, ``…/wip/``       an open attempt and its checkpoints (`relay.store.attempts`)
``refs/relay/written/<branch>``       a written plan that no commit has yet; the ``planned`` commit takes it over
``refs/relay/spent/<branch>/<n>``     an attempt closed without a commit: its phase was finished by hand, or is gone
``.git/relay/spent/<session>``        an open session, request by request (`relay.store.attempts`)
===================================== ============================================================================

`relay.store.plan_state.read_plan_cost` adds them up and counts each session once: an attempt whose commit arrives later
is not counted twice. The refs travel with a fetch and survive the loss of ``.git/relay``. The file of a session is
written with each request, without the git processes that moving a ref takes. The planning record is there from the
moment a planning session begins: a kill loses none of its cost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.command import GitError
from relay.git.lock_journal import storing
from relay.git.message import read_text
from relay.git.names import parse_ref_part, render_ref_part
from relay.git.repository import Repo
from relay.git.trees import FILE, find_tree
from relay.plan.lineage import has_heirs
from relay.session.usage import Spent
from relay.store.attempts import OpenAttempt, close_attempt, drop_spent, find_spent, read_attempt
from relay.store.history import (
    RelayCommit,
    add_spent,
    find_origin,
    find_text,
    read_relay_commits,
)
from relay.store.ref_notes import Notes, make_message, note_spending, read_notes
from relay.store.refs import ATTEMPTS, SPENT, WRITTEN, find_attempt_ref, get_branch, next_ref


def read_uncommitted(
    repo: Repo, plan_path: str, own: Sequence[RelayCommit], others: Sequence[RelayCommit]
) -> Iterator[Spent]:
    """Yield the cost of attempts that are open elsewhere or were given up, and of a plan that is not committed.

    Args:
        own: The plan's commits on the branch, from `relay.store.history.read_plan_commits`.
        others: Its commits elsewhere.
    """
    yield from _read_unrecorded(repo, plan_path, own, others)
    planning = read_plan_usage(repo)
    # A run that was killed right after the plan's commit has both.
    recorded = {commit.session for commit in (*own, *others)}
    if planning is not None and planning.plan_path == plan_path and planning.session_id not in recorded:
        yield planning.spend


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningRecord:
    """One planning session, or several added up."""

    plan_path: str
    session_id: str
    spend: Spent
    is_open: bool = False
    """Whether the session has begun and not ended. `spend` is then the cost before it; when read back, all of it."""


def read_plan_usage(repo: Repo) -> PlanningRecord | None:
    """Return the record of the written plan of HEAD's branch; None without one."""
    found = find_plan_record(repo)
    if found is None:
        return None
    notes = found[2]
    noted = find_spent(repo, notes.session) if notes.is_open else None
    spent = notes.spent + noted if noted else notes.spent
    return PlanningRecord(plan_path=notes.plan, session_id=notes.session, spend=spent, is_open=notes.is_open)


def find_plan_record(repo: Repo) -> tuple[str, str, Notes] | None:
    """Return the ref and the commit that keep the branch's written plan, and what that says; None without one.

    A plan that was written on another branch counts here if HEAD is where it was then: the user took the file along
    with ``git switch -c``.
    """
    branch = repo.branch
    if branch is None:
        return None
    own, head = f"{WRITTEN}{render_ref_part(branch)}", repo.head() or ""
    plans = sorted(_read_all(repo, WRITTEN), key=lambda plan: plan[0] != own)
    return next((plan for plan in plans if plan[0] == own or plan[2].base == head), None)


def _read_all(repo: Repo, place: str) -> Iterator[tuple[str, str, Notes]]:
    """Yield the refs of a place, each with its commit and what that says; without commits that are not relay's."""
    for ref, commit in repo.list_refs(place).items():
        if (notes := read_notes(read_text(repo, commit))) is not None:
            yield ref, commit, notes


_Entry = tuple[str, str, str, Spent]
"""Session, plan, the commit where its attempt began, and its cost."""


def _read_unrecorded(
    repo: Repo, plan_path: str, own: Sequence[RelayCommit], others: Sequence[RelayCommit]
) -> tuple[Spent, ...]:
    """Return the cost of the plan's sessions that is neither in a commit nor in the open attempt of HEAD's branch."""
    listed = repo.list_refs(ATTEMPTS, SPENT)
    here = read_attempt(repo)
    if not listed or (here is not None and len(listed) == 1):
        return ()
    origin = find_origin(repo, plan_path, own)
    names = {plan_path, *(commit.plan for commit in (*own, *others))}
    seen = {commit.session for commit in (*own, *others)} | ({here.session_id} if here else set())
    found: list[Spent] = []
    for session, plan, base, spent in (*read_kept_spent(repo), *_read_attempts(repo)):
        if session not in seen and plan in names and _is_of_plan(repo, origin, plan_path, base):
            found.append(spent)
            seen.add(session)
    return tuple(found)


def read_kept_spent(repo: Repo, place: str = SPENT) -> Iterator[_Entry]:
    """Yield the cost of sessions that no commit records; for a killed session, as noted with its last request."""
    for _, _, notes in _read_all(repo, place):
        yield notes.session, notes.plan, notes.base, find_spent(repo, notes.session) or notes.spent


def find_phase_cost(repo: Repo, plan_path: str, branch: str, phase_id: str, start: str) -> Spent:
    """Return the cost of a job's phase since a commit, with its open session and those that were given up.

    A request that was never answered counts with the cost noted before it was sent.
    """
    # A phase that is being merged is in the history of its attempt, and on no branch.
    tips = (refs.find_ref(repo, ref) for ref in (f"refs/heads/{branch}", find_attempt_ref(branch)))
    found = (one for tip in tips if tip for one in read_relay_commits(repo, plan_path, rev=tip, newer_than=start))
    made = {one.commit: one for one in found if one.status and one.phase == phase_id}.values()
    spent, attempt = add_spent(made), read_attempt(repo, branch)
    if attempt is not None and all(one.session != attempt.session_id for one in made):  # else killed behind its commit
        spent += attempt.spend
    given_up = read_kept_spent(repo, f"{SPENT}{render_ref_part(branch)}/")
    return sum((one for _, _, _, one in given_up), start=spent)


def _read_attempts(repo: Repo) -> Iterator[_Entry]:
    for name in repo.list_refs(ATTEMPTS):
        if (attempt := read_attempt(repo, parse_ref_part(name.removeprefix(ATTEMPTS)))) is not None:
            yield attempt.session_id, attempt.plan_path, attempt.base_head or "", attempt.spend


def _is_of_plan(repo: Repo, origin: str, plan_path: str, base: str) -> bool:
    """Return whether an attempt that began at `base` worked on the plan that `origin` brought, or rewrote."""
    if not (origin and base):
        return False
    if objects.is_ancestor(repo, origin, base):
        return True
    head, began = find_text(repo, "HEAD", plan_path), find_text(repo, base, plan_path)
    return not objects.is_ancestor(repo, base, origin) and began is not None and has_heirs(began, head or "")


def begin_planning(repo: Repo, plan_path: str, session_id: str) -> PlanningRecord:
    """Note that a session begins to plan, with the cost before it; the branch's kept plan stays."""
    earlier = read_plan_usage(repo)
    is_same = earlier is not None and earlier.plan_path == plan_path
    spent = earlier.spend if earlier is not None and is_same else Spent()
    record = PlanningRecord(plan_path=plan_path, session_id=session_id, spend=spent, is_open=True)
    save_plan_usage(repo, record, (read_written_plan(repo, plan_path) if is_same else None) or b"")
    if earlier is not None:
        drop_spent(repo, earlier.session_id)
    return record


@storing
def save_plan_usage(repo: Repo, record: PlanningRecord, plan: bytes) -> None:
    """Keep the cost of a written plan, with the plan's text; replaces the branch's earlier record.

    The caller adds up the cost of sessions before this one. The replaced record stays in the new commit's history.
    """
    ref = f"{WRITTEN}{render_ref_part(get_branch(repo))}"
    for _ in range(3):
        old = refs.find_ref(repo, ref)
        if refs.move_ref(repo, ref, _write(repo, record, plan, (old,) if old else ()), old):
            return
    raise GitError(f"{ref} is being moved by somebody else")


def read_written_plan(repo: Repo, plan_path: str) -> bytes | None:
    """Return the plan that waits for its commit on HEAD's branch, as relay wrote it; None without one."""
    found = find_plan_record(repo)
    return objects.read_blob(repo, found[1], plan_path) if found else None


def drop_plan_usage(repo: Repo, kept: PlanningRecord) -> None:
    """Remove a record, whichever branch it was kept for: the ``planned`` commit carries it now."""
    for ref, commit, notes in tuple(_read_all(repo, WRITTEN)):
        if notes.session == kept.session_id:
            refs.drop_ref(repo, ref, commit)


@storing
def save_rejected_plan(repo: Repo, record: PlanningRecord, plan: bytes) -> str:
    """Keep a plan that was turned down, with its cost, and return the ref."""
    ref = next_ref(repo, "aside", get_branch(repo))
    refs.move_ref(repo, ref, _write(repo, record, plan, ()), None)
    return ref


def _write(repo: Repo, record: PlanningRecord, plan: bytes, parents: tuple[str, ...]) -> str:
    blob = repo.store_object("blob", plan)
    tree = objects.write_paths_tree(repo, ((record.plan_path, FILE, blob),))
    notes = Notes(
        plan=record.plan_path,
        session=record.session_id,
        base=repo.head() or "",
        is_open=record.is_open,
        **note_spending(record.spend),
    )
    return objects.write_commit(repo, tree, parents, make_message("relay: plan", notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """The session whose cost is kept."""

    plan_path: str
    phase_id: str
    session_id: str
    base: str | None
    """The commit where it began; None on an unborn branch."""


def give_up_attempt(repo: Repo, attempt: OpenAttempt) -> None:
    """Close an attempt that no commit will come from; its snapshots stay, and so does its cost."""
    # Keep the cost before the attempt is dropped; a run that was killed in between does not keep it twice.
    if attempt.spend != Spent() and all(entry[0] != attempt.session_id for entry in read_kept_spent(repo)):
        own = Whose(
            plan_path=attempt.plan_path,
            phase_id=attempt.phase_id,
            session_id=attempt.session_id,
            base=attempt.base_head,
        )
        keep_spent(repo, next_ref(repo, "spent", attempt.branch), own, attempt.spend)
    close_attempt(repo, attempt)


@contextmanager
def keeping_spent(repo: Repo, plan_path: str, session_id: str, read_spent: Callable[[], Spent]) -> Iterator[None]:
    """Keep the cost of a session that no commit will record; after a kill, its note of each request counts.

    Args:
        plan_path: The plan that it counts for.
        read_spent: Returns its cost in the end.
    """
    own = Whose(plan_path=plan_path, phase_id="", session_id=session_id, base=repo.head())
    ref = next_ref(repo, "spent", repo.branch or "HEAD")
    begun = keep_spent(repo, ref, own, Spent())
    try:
        yield
    finally:
        keep_spent(repo, ref, own, read_spent(), before=begun)
        drop_spent(repo, session_id)


@storing
def keep_spent(repo: Repo, ref: str, own: Whose, spent: Spent, *, before: str | None = None) -> str:
    """Keep cost that no commit records under a ref, which is at `before` (None: not there yet); return the commit."""
    notes = Notes(
        plan=own.plan_path,
        phase=own.phase_id,
        session=own.session_id,
        base=own.base or "",
        **note_spending(spent),
    )
    what = f"phase {own.phase_id}" if own.phase_id else f"session {own.session_id}"
    message = make_message(f"relay: what was spent on {what}", notes)
    tree = find_tree(repo, own.base) if own.base else repo.empty_tree
    commit = objects.write_commit(repo, tree, (own.base,) if own.base else (), message)
    refs.move_ref(repo, ref, commit, before)
    return commit

"""The writers of cost that no commit tells of: planning, until its plan is committed, and sessions without a commit.

`relay plan` writes a plan but does not commit it; what it cost waits under ``refs/relay/plan/<branch>`` for the
``planned`` commit. A leg that is closed without a commit of its own leaves its cost under
``refs/relay/spent/<branch>/<n>``. `relay.store.spend` reads both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.command import GitError
from relay.git.message import Message, read_text
from relay.git.names import render_path, render_ref_part
from relay.git.repository import Repo
from relay.git.trees import FILE, find_tree
from relay.session.usage import Spent
from relay.store import trailers
from relay.store.legs import OpenLeg, close_leg
from relay.store.refs import PLANS, get_branch, next_ref
from relay.store.session_spend import drop_spent
from relay.store.spend import (
    UNBORN,
    YES,
    PlanningRecord,
    find_plan_record,
    parse_planning,
    read_kept_spent,
    read_plan_usage,
)
from relay.store.trailers import BASE


def begin_planning(repo: Repo, plan_path: str, session_id: str) -> PlanningRecord:
    """Note that a session begins to plan, with what was spent before it; what is kept of the branch's plan stays."""
    earlier = read_plan_usage(repo)
    is_same = earlier is not None and earlier.plan_path == plan_path
    spent = earlier.spend if earlier is not None and is_same else Spent()
    record = PlanningRecord(plan_path=plan_path, session_id=session_id, spend=spent, is_open=True)
    save_plan_usage(repo, record, (read_written_plan(repo, plan_path) if is_same else None) or b"")
    if earlier is not None:
        drop_spent(repo, earlier.session_id)
    return record


def save_plan_usage(repo: Repo, record: PlanningRecord, plan: bytes) -> None:
    """Keep what a written plan cost, with the plan's text; replaces what was kept for the branch before.

    The caller adds up what sessions before this one cost. What is replaced stays in the new commit's history.
    """
    ref = f"{PLANS}{render_ref_part(get_branch(repo))}"
    for _ in range(3):
        old = refs.find_ref(repo, ref)
        if refs.move_ref(repo, ref, _write(repo, record, plan, (old,) if old else ()), old):
            return
    raise GitError(f"{ref} is being moved by somebody else")


def read_written_plan(repo: Repo, plan_path: str) -> bytes | None:
    """Return the plan that waits for its commit on HEAD's branch, as relay wrote it; None when none does."""
    found = find_plan_record(repo)
    return objects.read_blob(repo, found[1], plan_path) if found else None


def drop_plan_usage(repo: Repo, kept: PlanningRecord) -> None:
    """Forget a record, whichever branch it was kept for: the ``planned`` commit carries it now."""
    for ref, commit in repo.list_refs(PLANS).items():
        if parse_planning(read_text(repo, commit)).session_id == kept.session_id:
            refs.drop_ref(repo, ref, commit)


def save_rejected_plan(repo: Repo, record: PlanningRecord, plan: bytes) -> str:
    """Keep a plan that was turned down, with what it cost, and return the ref."""
    ref = next_ref(repo, "rejected", get_branch(repo))
    refs.move_ref(repo, ref, _write(repo, record, plan, ()), None)
    return ref


def _write(repo: Repo, record: PlanningRecord, plan: bytes, parents: tuple[str, ...]) -> str:
    blob = objects.hash_bytes(repo.git, plan)
    tree = objects.write_paths_tree(repo, ((record.plan_path, FILE, blob),))
    kept = (
        (trailers.PLAN, render_path(record.plan_path)),
        (trailers.SESSION, record.session_id),
        (trailers.BASE, repo.head() or UNBORN),
        *trailers.render_spent(record.spend),
        *(((trailers.OPEN, YES),) if record.is_open else ()),
        *record.trailers,
    )
    return objects.write_commit(repo, tree, parents, Message(subject="relay: plan", trailers=kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """Whose cost is kept."""

    plan_path: str
    phase_id: str
    session_id: str
    base: str | None
    """The commit where it began; None on an unborn branch."""


def give_up_leg(repo: Repo, leg: OpenLeg) -> None:
    """Close a leg that no commit will come from; its snapshots stay, and what it has cost."""
    # Kept before the leg goes; a run that is killed in between does not keep it twice.
    if leg.spend != Spent() and all(entry[0] != leg.session_id for entry in read_kept_spent(repo)):
        own = Whose(plan_path=leg.plan_path, phase_id=leg.phase_id, session_id=leg.session_id, base=leg.base_head)
        keep_spent(repo, next_ref(repo, "spent", leg.branch), own, leg.spend)
    close_leg(repo, leg)


@contextmanager
def keeping_spent(repo: Repo, plan_path: str, session_id: str, read_spent: Callable[[], Spent]) -> Iterator[None]:
    """Keep what a session costs that no commit will tell of; after a kill, what is noted of it counts.

    Args:
        plan_path: Of the plan that it counts for.
        read_spent: Says in the end what it has cost.
    """
    own = Whose(plan_path=plan_path, phase_id="", session_id=session_id, base=repo.head())
    ref = next_ref(repo, "spent", repo.branch or "HEAD")
    begun = keep_spent(repo, ref, own, Spent())
    try:
        yield
    finally:
        keep_spent(repo, ref, own, read_spent(), before=begun)
        drop_spent(repo, session_id)


def keep_spent(repo: Repo, ref: str, own: Whose, spent: Spent, *, before: str | None = None) -> str:
    """Keep what no commit tells of under a ref, which is at `before` (None: not there yet); return the commit."""
    kept = (
        (trailers.PLAN, render_path(own.plan_path)),
        (trailers.PHASE, own.phase_id),
        (trailers.SESSION, own.session_id),
        (BASE, own.base or ""),
        *trailers.render_spent(spent),
    )
    what = f"phase {own.phase_id}" if own.phase_id else f"session {own.session_id}"
    message = Message(subject=f"relay: what was spent on {what}", trailers=kept)
    tree = find_tree(repo, own.base) if own.base else repo.empty_tree
    commit = objects.write_commit(repo, tree, (own.base,) if own.base else (), message)
    refs.move_ref(repo, ref, commit, before)
    return commit

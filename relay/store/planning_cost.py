"""What planning cost, kept until the plan is committed.

`relay plan` writes a plan but does not commit it, so what it cost would be lost with the telemetry. It waits under
``refs/relay/plan/<branch>`` for the ``planned`` commit, whose trailers carry it from then on. It is there from the
moment a planning session begins: what a killed one has cost is noted with each of its requests
(`relay.store.session_cost`).
"""

from dataclasses import replace

from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.command import GitError
from relay.git.message import CommitText, Message, read_text
from relay.git.names import parse_path, render_path, render_ref_part
from relay.git.repository import Repo
from relay.git.trees import FILE
from relay.session.usage import Spent
from relay.store import trailers
from relay.store.legs import get_branch, next_ref
from relay.store.session_cost import drop_spent, find_spent


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningRecord:
    """One planning session, or several added up."""

    plan_path: str
    session_id: str
    spend: Spent
    is_open: bool = False
    """Whether the session has begun and not ended: `spend` is what was spent before it; when read back, all of it."""
    trailers: tuple[tuple[str, str], ...] = ()
    """Further ones, kept and handed back."""


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
    ref = f"refs/relay/plan/{render_ref_part(get_branch(repo))}"
    for _ in range(3):
        old = refs.find_ref(repo, ref)
        if refs.move_ref(repo, ref, _write(repo, record, plan, (old,) if old else ()), old):
            return
    raise GitError(f"{ref} is being moved by somebody else")


def read_plan_usage(repo: Repo) -> PlanningRecord | None:
    """Return what is kept for the written plan of HEAD's branch; None when nothing is."""
    found = _find_plan(repo)
    if found is None:
        return None
    record = _parse(read_text(repo, found[1]))
    noted = find_spent(repo, record.session_id) if record.is_open else None
    return replace(record, spend=record.spend + noted) if noted else record


def _find_plan(repo: Repo) -> tuple[str, str] | None:
    """Return the ref and the commit that keep the branch's written plan; None without one.

    A plan that was written on another branch waits here when HEAD is where it was then: the user took the file along
    with ``git switch -c``.
    """
    branch = repo.branch
    if branch is None:
        return None
    ref = f"{_PLANS}{render_ref_part(branch)}"
    if (commit := refs.find_ref(repo, ref)) is not None:
        return ref, commit
    head = repo.head() or _UNBORN
    others = repo.list_refs(_PLANS).items()
    return next(((name, commit) for name, commit in others if read_text(repo, commit).get(trailers.BASE) == head), None)


def read_written_plan(repo: Repo, plan_path: str) -> bytes | None:
    """Return the plan that waits for its commit on HEAD's branch, as relay wrote it; None when none does."""
    found = _find_plan(repo)
    return objects.read_blob(repo, found[1], plan_path) if found else None


def drop_plan_usage(repo: Repo, kept: PlanningRecord) -> None:
    """Forget a record, whichever branch it was kept for: the ``planned`` commit carries it now."""
    for ref, commit in repo.list_refs(_PLANS).items():
        if _parse(read_text(repo, commit)).session_id == kept.session_id:
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
        (trailers.BASE, repo.head() or _UNBORN),
        *trailers.render_spent(record.spend),
        *(((trailers.OPEN, _YES),) if record.is_open else ()),
        *record.trailers,
    )
    return objects.write_commit(repo, tree, parents, Message(subject="relay: plan", trailers=kept))


_OWN = frozenset({trailers.PLAN, trailers.SESSION, trailers.USAGE, trailers.COST, trailers.OPEN, trailers.BASE})
_YES = "yes"
_UNBORN = "none"
_PLANS = "refs/relay/plan/"


def _parse(text: CommitText) -> PlanningRecord:
    return PlanningRecord(
        plan_path=parse_path(text.get(trailers.PLAN)),
        session_id=text.get(trailers.SESSION),
        spend=trailers.parse_spent(text.get(trailers.USAGE), text.get(trailers.COST)),
        is_open=text.get(trailers.OPEN) == _YES,
        trailers=tuple(pair for pair in text.found if pair[0] not in _OWN),
    )

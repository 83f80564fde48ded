"""Where a run goes on, and what it does first: the one answer for `relay status`, ``--dry-run`` and `relay run`.

`ask` changes nothing: no ref, no file of the work tree, nothing in the user's index.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from relay.base.errors import LockedError
from relay.base.values import dataclass
from relay.git.names import parse_ref_part
from relay.plan.model import Plan
from relay.store.kept_refs import Kept
from relay.store.plan_edit import EditKind, PlanEdit, find_edit, parse_at
from relay.store.presence import LEGS, has_kept_refs
from relay.store.resume import Facts, LegFacts, ResumePoint, find_resume_point

if TYPE_CHECKING:
    from relay.git.message import CommitText
    from relay.git.repository import Repo
    from relay.store.legs import OpenLeg


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """The plan that is asked about, and how to read it as the file has it."""

    plan_name: str
    """Relative to the repository's root; absolute for one outside of it."""
    load: Callable[[], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Where a plan stands, and what a run would do."""

    edit: PlanEdit
    """The plan, and what a run does about its file."""
    kept: Kept
    """What relay keeps for the branch. A leg of another plan is in the way when it holds work; else a run closes it."""
    point: ResumePoint | None = None
    """None when a run would be refused, or cannot be foreseen: `obstacle`, `kept`, `edit` or `running` says why."""
    facts: LegFacts | None = None
    """The open leg's, which `point` rests on."""
    obstacle: str = ""
    """What of git's has to be ended first, and how."""
    running: str = ""
    """Who is at work here."""

    def get_point(self) -> ResumePoint:
        """Return where a run goes on.

        Raises:
            LookupError: Nowhere; `relay.run.resume.settlement.require_point` tells the user why.
        """
        if self.point is None:
            raise LookupError(self.obstacle or self.running)
        return self.point

    @property
    def plan(self) -> Plan:
        """The plan as a run goes by it."""
        return self.edit.plan

    @property
    def goes_on(self) -> bool:
        """Whether a run puts its next session on the open leg."""
        point, leg = self.point, self.facts
        return bool(point and leg and not self.kept.leg_commit and leg.phase_id and point.phase_id == leg.phase_id)


def ask(source: PlanSource, repo: "Repo", *, is_locked: bool = False) -> Situation:
    """Ask git and the work tree where the plan stands.

    Args:
        is_locked: Whether the caller holds the work tree's lock. Comparing the work tree with an open leg uses the
            private index, which belongs to the lock's holder; without it, the lock is taken here when it is free.

    Raises:
        PlanError: There is no plan, or it cannot be used.
    """
    kept = _read_kept(repo, source, is_locked=is_locked)
    with ExitStack() as stack:
        if not is_locked and (kept.leg or kept.foreign):
            from relay.store.lock import lock_worktree

            try:
                stack.enter_context(lock_worktree(repo))
            except LockedError as error:
                edit = PlanEdit(kind=EditKind.NONE, plan=source.load())
                return Situation(edit=edit, kept=kept, running=str(error))
            kept = _read_kept(repo, source, is_locked=True)  # as whoever held the lock left it
        return _answer(source, repo, kept)


def find_done(source: PlanSource, repo: "Repo") -> Plan | None:
    """Return the plan where `ask` finds it done and nothing left to be done; the caller holds the work tree's lock.

    An open leg says no by itself: the work tree is not compared with it.

    Raises:
        PlanError: There is no plan, or it cannot be used.
    """
    kept = _read_kept(repo, source, is_locked=True)
    if kept.leg is not None or kept.move is not None:
        return None
    found = _answer(source, repo, kept)
    return found.plan if found.plan.done and found.point and found.edit.kind is EditKind.NONE else None


def _read_kept(repo: "Repo", source: PlanSource, *, is_locked: bool) -> Kept:
    if not is_locked and not has_kept_refs(repo):
        return Kept()
    from relay.store.facts import read_kept

    return read_kept(repo, source.plan_name)


def _answer(source: PlanSource, repo: "Repo", kept: Kept) -> Situation:
    edit = _read_edit(source, repo, kept)
    if edit.plan.done and edit.kind is EditKind.NONE:
        kept = replace(kept, foreign=None)  # a plan that needs no run is not held up by another plan's leg
    refused = Situation(edit=edit, kept=kept, obstacle=_find_obstacle(repo))
    if refused.obstacle or (edit.kind is EditKind.REFUSED and not kept.leg_commit):
        return refused
    if kept.foreign is not None and _has_work(repo, kept.foreign, source.plan_name):
        return refused
    facts = Facts(plan=edit.plan, head=None, boot_id="", leg=None)
    if kept.leg is not None:
        from relay.store.facts import read_facts

        facts = read_facts(repo, edit, kept, source.plan_name)
    return replace(refused, facts=facts.leg, point=_put_first(find_resume_point(facts), kept.move))


def _read_edit(source: PlanSource, repo: "Repo", kept: Kept) -> PlanEdit:
    shown = source.load()
    if kept.unfinished is not None:
        from relay.store.facts import find_projected

        if (text := find_projected(repo, source.plan_name, kept.unfinished, shown)) is not None:
            return PlanEdit(kind=EditKind.NONE, plan=parse_at(text, source.plan_name))
    ticked = kept.leg_commit.items if kept.leg_commit is not None and kept.leg_commit is kept.unfinished else ()
    return find_edit(repo, source.plan_name, shown, ticked=ticked)


def _find_obstacle(repo: "Repo") -> str:
    from relay.git.index import check_state

    if (words := check_state(repo)) or repo.branch:
        return words or ""
    legs = [parse_ref_part(ref.removeprefix(LEGS)) for ref in repo.list_refs(LEGS)]
    back = "".join(f"git switch {quote(branch)} goes back to where a phase is open, or " for branch in legs[:1])
    return f"HEAD is detached; relay commits on a branch: {back}git switch -c <name>"


def _has_work(repo: "Repo", leg: "OpenLeg", plan_name: str) -> bool:
    """Return whether anything was done in a leg."""
    from relay.store.ownership import find_owned_paths
    from relay.store.snapshot import write_snapshot_tree

    return leg.last_wip is not None or bool(find_owned_paths(repo, plan_name, leg, write_snapshot_tree(repo)))


def _put_first(point: ResumePoint, move: "CommitText | None") -> ResumePoint:
    """Say that a run finishes a move of the branch before anything else, when there is one."""
    if move is None:
        return point
    from relay.store.trailers import PHASE, REWOUND, STATUS

    is_rewind = move.get(STATUS) == REWOUND
    what = f"rewind to before phase {move.get(PHASE)}" if is_rewind else f"move of the files to {move.commit[:10]}"
    return replace(point, why=f"The {what} was cut off. {point.why}", then=f"finishes the {what}, then {point.then}")

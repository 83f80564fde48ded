"""Putting in order what a run that was killed, a power loss or a busy user left, before a session starts.

`relay.store.situation.ask` says what there is to do and changes nothing; only `settle` does it.
"""

from dataclasses import replace

from relay.base.errors import RepoError
from relay.base.hints import RUN
from relay.git.names import list_paths
from relay.git.objects import diff_trees
from relay.plan.files import find_ledger_path
from relay.plan.model import Plan
from relay.run.commit.plan_commit import (
    commit_ledger_edit,
    ensure_plan_committed,
    make_source,
    tick_edited_plan,
)
from relay.run.resume.rescue import carry_over, restore_saved, save_found
from relay.session.events import Noticed
from relay.setup.context import PlanFiles, RunContext
from relay.store.completion import finish_commit
from relay.store.facts import is_current
from relay.store.history import RelayCommit
from relay.store.legs import OpenLeg, close_leg, find_leg_ref
from relay.store.obstacle import find_obstacle
from relay.store.ownership import find_owned_paths
from relay.store.resume import LegFacts, ResumeCase, ResumePoint
from relay.store.situation import Situation, ask
from relay.store.unrecorded_cost import give_up_leg


def settle(ctx: RunContext) -> Situation:
    """Do what has to be done before a session; where a commit was made or a leg was closed, git is asked again.

    The rest is made good as the lock is taken (`relay.setup.repository`), for planning and landing too: processes and
    locks that a killed relay left, refs that name what is lost, and the files and index of a commit or a move of the
    branch that was cut off. Until then git says something else than what happened.

    Returns:
        Where the plan stands, which is somewhere to go on from, with the leg as the next session takes it up.

    Raises:
        RelayError: Something that the user has to change first.
    """
    situation = ask(make_source(ctx.files), ctx.repo, is_locked=True)
    kept, point = situation.kept, require_point(situation, ctx.plan_path)
    # First: until that commit is finished, files and index that are behind it look like changes of the user's.
    if kept.leg is not None and kept.leg_commit is not None:
        _finish(ctx, kept.leg, kept.leg_commit)
        return settle(ctx)
    if kept.foreign is not None:
        give_up_leg(ctx.repo, kept.foreign)
        return settle(ctx)
    if ensure_plan_committed(ctx).text != situation.plan.text:
        return settle(ctx)  # the user edited it since the question was asked
    if commit_ledger_edit(ctx):
        return settle(ctx)
    if kept.leg is None or situation.facts is None:
        return situation
    if point.case is ResumeCase.MOVED_ON and not situation.goes_on:
        _give_up(ctx, kept.leg, point)
        return settle(ctx)
    leg = _take_up(ctx, situation.plan, kept.leg, situation.facts, point)
    return replace(situation, kept=replace(kept, leg=leg))


def require_point(situation: Situation, plan_path: str) -> ResumePoint:
    """Return where a run goes on.

    Raises:
        RelayError: Nowhere, until the user has changed something.
    """
    if situation.point is not None:
        return situation.point
    raise find_obstacle(situation, plan_path) or RepoError(situation.running)


def _take_up(ctx: RunContext, plan: Plan, leg: OpenLeg, facts: LegFacts, point: ResumePoint) -> OpenLeg:
    """Return the leg as the next session finds it, with all that is in the work tree kept in a snapshot."""
    if point.case is ResumeCase.MOVED_ON:
        ctx.observe(Noticed(text=f"{point.why} Its work is kept."))
        return carry_over(ctx.files, plan, leg, ctx.observe, discarded=facts.discarded)
    if point.case is ResumeCase.POWER_LOSS:
        return restore_saved(ctx.files, leg, ctx.observe)
    if facts.saved or point.case is ResumeCase.UNTOUCHED:
        return leg
    return save_found(ctx.files, leg, discarded=facts.discarded)


def _finish(ctx: RunContext, leg: OpenLeg, commit: RelayCommit) -> None:
    """Do what follows a commit that an earlier process made and did not live to finish."""
    replaced = {leg.plan_path: None, find_ledger_path(leg.plan_path): None}
    if is_current(ctx.repo, commit):
        for words in finish_commit(ctx.repo, commit.commit, replaced):
            ctx.observe(Noticed(text=words, warning=True))
        tick_edited_plan(ctx.files, commit.commit, commit.items)
    close_leg(ctx.repo, leg)
    ctx.meter.record()


def _give_up(ctx: RunContext, leg: OpenLeg, point: ResumePoint) -> None:
    """Close a leg whose phase is done or gone; its work must not become the next phase's by accident.

    Raises:
        RepoError: Its uncommitted work is still in the work tree.
    """
    # Saved before anything is refused or closed: the user may clear the work tree next.
    kept = save_found(ctx.files, leg)
    if owned := _find_uncommitted(ctx.files, kept):
        shown = list_paths(owned)
        leave = f"To leave it where it is, its cost uncounted: git update-ref -d {find_leg_ref(leg.branch)}"
        raise RepoError(
            f"{point.why} Phase {leg.phase_id} cannot go on, and its uncommitted work is in {shown}",
            hint=("commit it or put it away, then ", RUN, f"; all of it is kept under {leg.wip_ref}. {leave}"),
        )
    ctx.observe(Noticed(text=f"{point.why} What its sessions did is kept under {leg.wip_ref}.", warning=True))
    give_up_leg(ctx.repo, kept)
    ctx.meter.record()  # what it has cost has a ref of its own


def _find_uncommitted(files: PlanFiles, leg: OpenLeg) -> list[str]:
    """Return the leg's own files that are not as HEAD has them; its newest snapshot is of the work tree as it is."""
    if leg.last_wip is None:
        return []
    changes = diff_trees(files.repo, files.repo.head() or files.repo.empty_tree, leg.last_wip.tree)
    open_paths = {change.path for change in changes}
    return [path for path in find_owned_paths(files.repo, files.plan_path, leg, leg.last_wip) if path in open_paths]

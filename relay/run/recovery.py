"""Putting in order what a run that was killed, a power loss or a busy user left, before a session starts."""

from relay.errors import RepoError
from relay.git.names import list_paths
from relay.git.objects import diff_trees
from relay.git.repository import Repo
from relay.plan.files import find_ledger_path
from relay.plan.model import Plan
from relay.run.plan_commit import ensure_plan_committed
from relay.run.start import carry_over, restore_saved, save_found
from relay.session.events import Noticed
from relay.setup.context import RunContext
from relay.state.facts import find_leg_commit, is_of_another_plan, read_standing
from relay.state.resume import ResumeCase, ResumePoint, find_resume_point
from relay.store.completion import finish_commit
from relay.store.history import RelayCommit
from relay.store.legs import OpenLeg, close_leg, find_boot_id, find_leg_ref, read_leg
from relay.store.ownership import find_owned_paths
from relay.store.snapshot import write_snapshot_tree


def settle(ctx: RunContext) -> tuple[Plan, OpenLeg | None, ResumePoint]:
    """Ask git where the run stands, and tidy up what a killed run or a busy user left."""
    _finish_commit(ctx)
    plan = ensure_plan_committed(ctx)
    standing = read_standing(ctx.repo, plan, ctx.plan_path, boot_id=find_boot_id())
    point, leg, facts = find_resume_point(standing.facts), standing.leg, standing.facts.leg
    if leg is None or facts is None:
        return plan, None, point
    if point.case is ResumeCase.MOVED_ON and point.phase_id == leg.phase_id:
        ctx.observe(Noticed(text=f"{point.why} Its work is kept."))
        return plan, carry_over(ctx, plan, leg, discarded=facts.discarded), point
    if point.case is ResumeCase.MOVED_ON:
        _give_up(ctx, leg, point)
        return settle(ctx)
    if point.case is ResumeCase.POWER_LOSS:
        return plan, restore_saved(ctx, leg), point
    if not facts.saved and point.case is not ResumeCase.UNTOUCHED:
        leg = save_found(ctx, leg, discarded=facts.discarded)
    return plan, leg, point


def _finish_commit(ctx: RunContext) -> None:
    """Do what follows a commit that an earlier process made and did not live to finish."""
    leg = read_leg(ctx.repo)
    if leg is None:
        return
    commit = find_leg_commit(ctx.repo, leg)
    if commit is None:
        _require_own_plan(ctx, leg)
        return
    replaced = {leg.plan_path: None, find_ledger_path(leg.plan_path): None}
    for words in finish_commit(ctx.repo, commit.commit, replaced) if _is_current(ctx.repo, commit) else ():
        ctx.observe(Noticed(text=words, warning=True))
    close_leg(ctx.repo, leg)
    ctx.meter.record()


def _is_current(repo: Repo, commit: RelayCommit) -> bool:
    """Say whether nobody has committed something else since to what a commit changed."""
    head = repo.head() or repo.empty_tree
    since = {change.path for change in diff_trees(repo, commit.commit, head)}
    changed = diff_trees(repo, commit.parents[0] if commit.parents else repo.empty_tree, commit.commit)
    return since.isdisjoint(change.path for change in changed)


def _require_own_plan(ctx: RunContext, leg: OpenLeg) -> None:
    """Keep the work of another plan's phase out of this one's; a leg that was opened and never used is closed.

    Raises:
        RepoError: There is such work.
    """
    if not is_of_another_plan(ctx.repo, leg, ctx.plan_path):
        return
    if leg.last_wip is not None or find_owned_paths(ctx.repo, ctx.plan_path, leg, write_snapshot_tree(ctx.repo)):
        raise RepoError(
            f"phase {leg.phase_id} of {leg.plan_path} is open and has uncommitted work",
            hint=ctx.caller.render_for(leg.plan_path, "run"),
        )
    close_leg(ctx.repo, leg)


def _give_up(ctx: RunContext, leg: OpenLeg, point: ResumePoint) -> None:
    """Close a leg whose phase is done or gone; its work must not become the next phase's by accident.

    Raises:
        RepoError: Its uncommitted work is still in the work tree.
    """
    kept = save_found(ctx, leg)
    if owned := _find_uncommitted(ctx, kept):
        shown = list_paths(owned)
        raise RepoError(
            f"{point.why} Phase {leg.phase_id} cannot go on, and its uncommitted work is in {shown}",
            hint=f"commit it or put it away, then {ctx.caller.render('run')}; all of it is kept under {leg.wip_ref}. "
            f"To leave it where it is: git update-ref -d {find_leg_ref(leg.branch)}",
        )
    ctx.observe(Noticed(text=f"{point.why} What its sessions did is kept under {leg.wip_ref}.", warning=True))
    close_leg(ctx.repo, kept)


def _find_uncommitted(ctx: RunContext, leg: OpenLeg) -> list[str]:
    """Return the leg's own files that are not as HEAD has them; its newest snapshot is of the work tree as it is."""
    if leg.last_wip is None:
        return []
    open_paths = {
        change.path for change in diff_trees(ctx.repo, ctx.repo.head() or ctx.repo.empty_tree, leg.last_wip.tree)
    }
    return [path for path in find_owned_paths(ctx.repo, ctx.plan_path, leg, leg.last_wip) if path in open_paths]

"""Landing what a job has committed on its own branch: the plan's branch goes there, or others are merged first.

Nothing is remembered between two steps: `find_landing` asks git each time, so that a parent that was killed and one
that goes on take the same path.
"""

from enum import StrEnum

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.identity import get_identity
from relay.git.merging import find_base, is_ancestor
from relay.git.repository import Repo
from relay.plan.lineage import find_lineage
from relay.plan.model import Plan
from relay.store import branch_move
from relay.store.home import is_checked
from relay.store.legs import OpenLeg, get_branch, read_leg
from relay.store.plan_edit import parse_at
from relay.store.texts import find_text


class LandingCase(StrEnum):
    """How far a job's phase is from the plan's branch."""

    LANDED = "landed"
    """The plan's branch has all of the job's: its work tree is free."""
    WORKING = "working"
    """The phase is not done on the job's branch: a run in its work tree goes on with it."""
    MERGING = "merging"
    """It is done, and a run in its work tree has to commit it on top of what others landed."""
    FORWARD = "forward"
    """The plan's branch can go there as it is: relay checked it here, and nothing else has landed since."""
    APART = "apart"
    """Others have landed since it began, or it has commits that relay did not check here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A phase that is worked on in a work tree of its own."""

    phase_id: str
    plan_path: str
    repo: Repo
    """The job's own work tree; its branch is the job's."""

    @property
    def is_there(self) -> bool:
        """Whether its work tree is still there, and what git keeps of it: somebody may remove either."""
        return (self.repo.root / ".git").exists() and self.repo.git_dir.exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Where a job's phase stands."""

    case: LandingCase
    tip: str
    """The commit that the plan's branch is at."""
    own: str
    """The commit that the job's branch is at."""
    done: str = ""
    """The commit in which the phase is done; empty while it is not."""


def find_landing(main: Repo, job: Job) -> Landing:
    """Say what there is to do until the plan's branch has the job's phase; changes nothing.

    Args:
        main: The work tree whose branch is the plan's.

    Raises:
        RepoError: One of the two has no commit.
    """
    tip, own = get_tip(main), get_tip(job.repo)
    case, leg = _find_case(main, job, tip, own), read_leg(job.repo)
    done = "" if case is LandingCase.WORKING else leg.merges if leg is not None and leg.merges else own
    return Landing(case=case, tip=tip, own=own, done=done)


def is_open(case: LandingCase, leg: OpenLeg | None) -> bool:
    """Return whether a job whose open leg this is has work that has not landed."""
    return case is not LandingCase.LANDED and (case is not LandingCase.WORKING or leg is not None)


def find_phase_id(job: Job) -> str:
    """Return what the plan calls a job's phase, for a run in its work tree: others may have moved it."""
    leg = read_leg(job.repo)
    return leg.phase_id if leg is not None else job.phase_id


def require_unmoved(main: Repo, job: Job, plan: Plan) -> None:
    """Refuse a plan in which a phase is called otherwise than in its work tree, or is gone, while its work is there.

    Args:
        main: The work tree whose branch is the plan's.
        plan: As that branch has it.

    Raises:
        RepoError: Somebody has changed the plan so.
    """
    text = find_text(job.repo, job.repo.head(), job.plan_path)
    own = parse_at(text, job.plan_path) if text is not None else plan
    phase = own.find_phase(job.phase_id)
    now = find_lineage(own, plan).phases.get(job.phase_id)
    if phase is None or now == job.phase_id:
        return
    if find_landing(main, job).case is LandingCase.LANDED or (
        read_leg(job.repo) is None and not _has_commits(main, job)
    ):
        return
    words = f"is phase {now}" if now else "is gone"
    raise RepoError(
        f"phase {job.phase_id}, {phase.title!r}, {words} in the plan, and its work in {job.repo.root} has not landed",
        hint=f"put it back as {phase.heading!r} and give the new phases other numbers, then run this again",
    )


def _has_commits(main: Repo, job: Job) -> bool:
    return not is_ancestor(main, get_tip(job.repo), get_tip(main))


def _find_case(main: Repo, job: Job, tip: str, own: str) -> LandingCase:
    leg = read_leg(job.repo)
    if leg is not None and not _is_cut_off(leg, own):
        return LandingCase.MERGING if leg.merges else LandingCase.WORKING
    if not _is_done(job, own):
        return LandingCase.WORKING
    if is_ancestor(main, own, tip):
        return LandingCase.LANDED
    return LandingCase.FORWARD if is_checked(job.repo, own) and is_ancestor(main, tip, own) else LandingCase.APART


def get_tip(repo: Repo) -> str:
    """Return the commit at HEAD.

    Raises:
        RepoError: There is none yet.
    """
    if (head := repo.head()) is None:
        raise RepoError("there is no commit yet that a phase could begin from", hint="git commit")
    return head


def _is_cut_off(leg: OpenLeg, own: str) -> bool:
    """Return whether a landing leg was made and the branch has not gone to its start."""
    return leg.merges == own


def _is_done(job: Job, commit: str) -> bool:
    """Return whether the job's phase is done in the plan as a commit has it."""
    text = find_text(job.repo, commit, job.plan_path)
    phase = parse_at(text, job.plan_path).find_phase(job.phase_id) if text is not None else None
    return phase is not None and phase.done


def find_obstacles(main: Repo, landing: Landing) -> tuple[str, ...]:
    """Return what of the user's the landing would touch: it has to wait until that is committed or put away."""
    # Where it is to be merged, what others have landed is here already.
    base = find_base(main, landing.tip, landing.own) or landing.tip
    return branch_move.find_in_the_way(main, base, landing.own, at=landing.tip)


def land(main: Repo, job: Job, landing: Landing) -> tuple[str, ...]:
    """Take the plan's branch and its work tree to the job's commit.

    Args:
        main: The work tree whose branch is the plan's; the caller holds its lock.
        landing: `LandingCase.FORWARD`, as `find_landing` said.

    Returns:
        A sentence for each file, or the index, that could not be updated; the next run tries again.

    Raises:
        RepoError: The branch moved meanwhile, or git has no name for the user; nothing was changed.
    """
    branch, identity = get_branch(main), get_identity(main).environment
    reason = f"relay: phase {job.phase_id} lands"
    left = branch_move.move_branch(main, branch, landing.tip, landing.own, reason=reason, identity=identity)
    if left is None:
        raise RepoError(f"{branch} moved meanwhile; nothing was changed", hint="run this again")
    return left

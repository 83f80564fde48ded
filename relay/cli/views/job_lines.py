"""Lines of `relay status` about jobs (phases with their own work tree) and about a fleet."""

import time
from collections.abc import Iterator
from pathlib import Path

from relay.base.errors import ExitCode
from relay.base.values import dataclass
from relay.base.words import render_span
from relay.cli.views.last_run import find_job_works, tell_work
from relay.git.names import render_path
from relay.git.notes import is_locked
from relay.git.repository import Repo
from relay.insight.telemetry.log import LogTail, list_own_logs
from relay.plan.model import Plan
from relay.run.phases.landing import LandingCase, find_landing, find_obstacles, is_open
from relay.run.phases.worktrees import find_lost, look_at_trees, name_job_branch
from relay.session.events import JobMoved
from relay.store.attempts import read_attempt
from relay.store.obstacles import describe_in_the_way
from relay.store.worktree_notes import FleetSight, read_last_run

_WORDS = {
    LandingCase.LANDED: "merged; no work is left in it",
    LandingCase.WORKING: "not at work; the next run goes on there",
    LandingCase.MERGING: "done; relay has to commit it on top of other merged work",
    LandingCase.FORWARD: "done; waits to be merged",
    LandingCase.APART: "done; other phases were merged before it",
}
_MOVES, _MOST_MOVES = frozenset({JobMoved.__name__}), 10_000
_NO_STOPS = frozenset({None, ExitCode.DONE, ExitCode.INTERRUPTED})
_WAITS, _BEGINS = frozenset({"held", "waiting"}), frozenset({"started", "merging"})
"""States of a phase that the present run goes on with by itself; a run that begins or ends holds no lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    """The state of one phase's own work tree."""

    phase_id: str
    place: Path | None
    """None if the phase waits for its work tree, or somebody removed it."""
    case: LandingCase
    at_work: bool = False
    is_open: bool = False
    """Whether the work tree has work of the phase that is not merged."""
    is_told: bool = False
    """Whether the present run works on phases side by side, and has told of this one."""
    stopped: str = ""
    """Why its last run stopped early; empty if it finished or was interrupted."""
    claims: int = 0
    """Items that its session claims, as of the newest checkpoint."""
    waits: str = ""
    """Why the phase waits, in the words of the present run, which goes on with it by itself; or the user's files that
    are in the way of its landing."""


def find_job_standings(repo: Repo, plan_path: str, plan: Plan) -> tuple[JobStanding, ...]:
    """Return the plan's jobs, by phase, with removed work trees that had work in them."""
    said, found, trees = _find_told(repo), list[JobStanding](), look_at_trees(repo, plan_path)
    for job in trees.jobs:
        session, landing, state = read_attempt(job.repo), find_landing(repo, job), said.pop(job.phase_id, ("", ""))
        waits = state[1] if state[0] in _WAITS else ""
        if not waits and landing.case in {LandingCase.FORWARD, LandingCase.APART}:
            files = find_obstacles(repo, landing)
            waits = f"done; {describe_in_the_way(repo, files)}" if files else ""
        last = read_last_run(job.repo)
        has_stopped = last and last.branch == job.repo.branch and last.exit_code not in _NO_STOPS
        found.append(
            JobStanding(
                phase_id=job.phase_id,
                place=job.repo.root,
                case=landing.case,
                is_open=is_open(landing.case, session),
                claims=len(session.items) if session is not None else 0,
                at_work=state[0] in _BEGINS or is_locked(job.repo),
                is_told=bool(state[0]),
                stopped=last.reason if last and has_stopped else "",
                waits=waits,
            )
        )
    for phase_id in find_lost(trees, plan):
        session = read_attempt(repo, name_job_branch(repo, phase_id))
        claims = len(session.items) if session is not None else 0
        found.append(JobStanding(phase_id=phase_id, place=None, case=LandingCase.WORKING, is_open=True, claims=claims))
    rest = (
        JobStanding(phase_id=phase_id, place=None, case=LandingCase.WORKING, waits=waits, is_told=True)
        for phase_id, (state, waits) in said.items()
        if state in _WAITS and waits
    )
    return (*sorted(found, key=lambda job: job.phase_id), *rest)


def _find_told(repo: Repo) -> dict[str, tuple[str, str]]:
    """Return each phase's last state and its detail, from the log of the present run."""
    run_id = next(list_own_logs(repo.root), "") if is_locked(repo) else ""
    try:
        with LogTail(repo.root, run_id) as log:
            records = log.read_end(_MOVES, until="RunStarted", most=_MOST_MOVES)
    except OSError:
        return {}
    moves = (record.event for record in records)
    return {move.phase_id: (move.state, move.detail) for move in moves if isinstance(move, JobMoved)}


def tell_jobs(root: Path, jobs: tuple[JobStanding, ...]) -> Iterator[str]:
    """Yield a line for each job, and lines about the activity of working jobs."""
    works = find_job_works(root, [job.phase_id for job in jobs if job.at_work and job.is_told])
    for job in jobs:
        claims = f", {job.claims} claimed" if job.claims else ""
        if job.place is None and job.is_open:
            yield f"job    phase {job.phase_id}: its work tree is gone{claims}; the next run creates it again"
            continue
        if job.place is None:
            yield f"wait   phase {job.phase_id} {job.waits}"
            continue
        state = f"at work{claims}" if job.at_work else job.waits or _WORDS[job.case]
        if job.stopped and not (job.at_work or job.waits):
            state = f"stopped: {job.stopped.removeprefix(f'phase {job.phase_id}: ')}; the next run goes on there"
        yield f"job    phase {job.phase_id} in {render_path(str(job.place))}: {state}"
        if job.phase_id in works:
            yield from (f"       {line}" for line in tell_work(works[job.phase_id], now=time.time()))


def tell_fleet(sight: FleetSight) -> Iterator[str]:
    """Yield what a fleet was at when a person last looked from here."""
    ago = render_span(max(0.0, time.time() - sight.at))
    yield f"fleet  workers of a fleet are at this plan, as of {ago} ago; relay fleet status --why asks what they do now"
    for phase_id, words in sight.phases.items():
        yield f"       phase {phase_id}: {words}"


def warn_of_fleet(sight: FleetSight) -> str:
    """Return the warning for who runs a plan that a fleet is at."""
    ago, phases = render_span(max(0.0, time.time() - sight.at)), ", ".join(sight.phases)
    words = f"a fleet was given phase{'s' if len(sight.phases) > 1 else ''} {phases} of this plan, as of {ago} ago"
    return f"{words}; relay run may pay for it a second time; relay fleet status asks"

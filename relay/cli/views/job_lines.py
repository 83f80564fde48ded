"""Phases that have a work tree of their own, or wait for one, as `relay status` shows them."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relay.base.errors import ExitCode
from relay.base.values import dataclass
from relay.cli.views.current_work import find_job_works, render_work, tell_work
from relay.fleet.landing import LandingCase, find_landing, is_open
from relay.fleet.worktrees import find_jobs, find_lost, name_job_branch
from relay.git.names import render_path
from relay.git.notes import is_locked
from relay.git.repository import Repo
from relay.insight.telemetry.log import LogTail
from relay.insight.telemetry.logs import list_own_logs
from relay.plan.model import Plan
from relay.session.events import JobMoved
from relay.store.last_run import read_last_run
from relay.store.legs import read_leg

_WORDS = {
    LandingCase.LANDED: "landed; nothing is left in it",
    LandingCase.WORKING: "not at work; the next run goes on there",
    LandingCase.MERGING: "done; to be committed on top of what others landed",
    LandingCase.FORWARD: "done; waits to be landed",
    LandingCase.APART: "done; others landed before it",
}
_SHOWN_WAITS = 10
_MOVES, _MOST_MOVES = frozenset({JobMoved.__name__}), 10_000
_WAITS, _BEGINS = frozenset({"held", "waiting"}), frozenset({"started", "merging"})
"""States in which the run that is at work goes on with a phase by itself; a run that begins or ends has no lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    """One phase's own work tree."""

    phase_id: str
    place: Path | None
    """None for a phase that has none yet, and waits, or whose own was removed."""
    case: LandingCase
    at_work: bool = False
    is_open: bool = False
    """Whether there is work of the phase's in it that has not landed."""
    stopped: str = ""
    """Why its last run stopped that did not come to its end; empty for one that did, or that was interrupted."""
    claims: int = 0
    """How many items its session claims, as of its newest snapshot."""
    waits: str = ""
    """What it waits for, as the run says that is at work here; it goes on with it by itself."""


def find_told(repo: Repo) -> Mapping[str, tuple[str, str]]:
    """Return what the run that is at work here has said of each phase last: its state, and the detail."""
    run_id = next(list_own_logs(repo.root), "") if is_locked(repo) else ""
    try:
        with LogTail(repo.root, run_id) as log:
            records = log.read_end(_MOVES, until="RunStarted", most=_MOST_MOVES)
    except OSError:
        return {}
    moves = (record.event for record in records)
    return {move.phase_id: (move.state, move.detail) for move in moves if isinstance(move, JobMoved)}


def find_job_standings(
    repo: Repo, plan_path: str, plan: Plan, told: Mapping[str, tuple[str, str]] | None = None
) -> tuple[JobStanding, ...]:
    """Return the work trees of the plan's jobs, by phase; those that are gone too, where work was in them.

    Args:
        told: What the run that is at work here has said of each phase.
    """
    said = dict(told or {})
    found = [
        JobStanding(
            phase_id=job.phase_id,
            place=job.repo.root,
            case=(case := find_landing(repo, job).case),
            is_open=is_open(case, leg),
            claims=len(leg.items) if leg is not None else 0,
            at_work=(state := said.pop(job.phase_id, ("", "")))[0] in _BEGINS or is_locked(job.repo),
            stopped=_find_reason(job.repo),
            waits=_find_wait(state),
        )
        for job, leg in ((job, read_leg(job.repo)) for job in find_jobs(repo, plan_path))
    ]
    for phase_id in find_lost(repo, plan):
        leg = read_leg(repo, name_job_branch(repo, phase_id))
        claims = len(leg.items) if leg is not None else 0
        found.append(JobStanding(phase_id=phase_id, place=None, case=LandingCase.WORKING, is_open=True, claims=claims))
    rest = (
        JobStanding(phase_id=phase_id, place=None, case=LandingCase.WORKING, waits=waits)
        for phase_id, state in said.items()
        if (waits := _find_wait(state))
    )
    return (*sorted(found, key=lambda job: job.phase_id), *rest)


def _find_wait(told: tuple[str, str]) -> str:
    return told[1] if told[0] in _WAITS else ""


def _find_reason(repo: Repo) -> str:
    last = read_last_run(repo)
    if last is None or last.branch != repo.branch or last.exit_code in {None, ExitCode.DONE, ExitCode.INTERRUPTED}:
        return ""
    return last.reason


def tell_jobs(root: Path, jobs: tuple[JobStanding, ...]) -> Iterator[str]:
    """Yield a line for each, and what those that are at work do."""
    works = {work.phase_id: work for work in find_job_works(root, [job.phase_id for job in jobs if job.at_work])}
    waiting = 0
    for job in jobs:
        claims = f", {job.claims} claimed" if job.claims else ""
        if job.place is None and job.is_open:
            yield f"job    phase {job.phase_id}: its work tree is gone{claims}; the next run makes it again"
            continue
        if job.place is None:
            waiting += 1
            if waiting <= _SHOWN_WAITS:
                yield f"wait   phase {job.phase_id} {job.waits}"
            continue
        state = f"at work{claims}" if job.at_work else job.waits or _WORDS[job.case]
        if job.stopped and not (job.at_work or job.waits):
            state = f"stopped: {job.stopped.removeprefix(f'phase {job.phase_id}: ')}; the next run goes on there"
        yield f"job    phase {job.phase_id} in {render_path(str(job.place))}: {state}"
        if job.phase_id in works:
            yield from (f"       {line}" for line in tell_work(works[job.phase_id], now=time.time()))
    if waiting > _SHOWN_WAITS:
        yield f"       and {waiting - _SHOWN_WAITS} more"


def render_jobs(root: Path, jobs: tuple[JobStanding, ...]) -> list[dict[str, Any]]:
    """Return them as JSON has them."""
    works = {work.phase_id: work for work in find_job_works(root, [job.phase_id for job in jobs if job.at_work])}
    return [
        {
            "phase": job.phase_id,
            "worktree": str(job.place) if job.place else None,
            "state": job.case.value if job.place else "lost" if job.is_open else "waiting",
            "at_work": render_work(works.get(job.phase_id)) if job.at_work else None,
            "stopped": None if job.at_work or job.waits else job.stopped or None,
            "waits": None if job.at_work else job.waits or None,
        }
        for job in jobs
    ]

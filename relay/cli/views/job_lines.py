"""Phases that have a work tree of their own, as `relay status` shows them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relay.cli.views.at_work import find_job_works, render_work, tell_work
from relay.errors import ExitCode
from relay.fleet.landing import LandingCase, find_landing
from relay.fleet.worktrees import find_jobs
from relay.git.holder import is_locked
from relay.git.names import render_path
from relay.git.repository import Repo
from relay.store.last_run import read_last_run
from relay.store.legs import read_leg
from relay.values import dataclass

_WORDS = {
    LandingCase.LANDED: "landed; nothing is left in it",
    LandingCase.WORKING: "not at work; the next run goes on there",
    LandingCase.MERGING: "done; to be committed on top of what others landed",
    LandingCase.FORWARD: "done; waits to be landed",
    LandingCase.APART: "done; others landed before it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    """One phase's own work tree."""

    phase_id: str
    place: Path
    case: LandingCase
    at_work: bool
    is_open: bool = False
    """Whether there is work of the phase's in it that has not landed."""
    stopped: str = ""
    """Why its last run stopped that did not come to its end; empty for one that did, or that was interrupted."""


def find_job_standings(repo: Repo, plan_path: str) -> tuple[JobStanding, ...]:
    """Return the work trees of the plan's jobs, by phase."""
    found = (
        JobStanding(
            phase_id=job.phase_id,
            place=job.repo.root,
            case=(case := find_landing(repo, job).case),
            is_open=case is not LandingCase.LANDED
            and (case is not LandingCase.WORKING or read_leg(job.repo) is not None),
            at_work=is_locked(job.repo),
            stopped=_find_reason(job.repo),
        )
        for job in find_jobs(repo, plan_path)
    )
    return tuple(sorted(found, key=lambda job: job.phase_id))


def _find_reason(repo: Repo) -> str:
    last = read_last_run(repo)
    if last is None or last.branch != repo.branch or last.exit_code in {None, ExitCode.DONE, ExitCode.INTERRUPTED}:
        return ""
    return last.reason


def tell_jobs(root: Path, jobs: tuple[JobStanding, ...]) -> Iterator[str]:
    """Yield a line for each, and what those that are at work do."""
    works = {work.phase_id: work for work in find_job_works(root, [job.phase_id for job in jobs if job.at_work])}
    for job in jobs:
        state = "at work" if job.at_work else _WORDS[job.case]
        if job.stopped and not job.at_work:
            state = f"stopped: {job.stopped.removeprefix(f'phase {job.phase_id}: ')}; the next run goes on there"
        yield f"job    phase {job.phase_id} in {render_path(str(job.place))}: {state}"
        if job.phase_id in works:
            yield from (f"       {line}" for line in tell_work(works[job.phase_id], now=time.time()))


def render_jobs(root: Path, jobs: tuple[JobStanding, ...]) -> list[dict[str, Any]]:
    """Return them as JSON has them."""
    works = {work.phase_id: work for work in find_job_works(root, [job.phase_id for job in jobs if job.at_work])}
    return [
        {
            "phase": job.phase_id,
            "worktree": str(job.place),
            "state": job.case.value,
            "at_work": render_work(works.get(job.phase_id)) if job.at_work else None,
            "stopped": None if job.at_work else job.stopped or None,
        }
        for job in jobs
    ]

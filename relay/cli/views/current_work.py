"""What the relay that is at work here does, from the end of its log: for `relay status`."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from relay.base.values import dataclass
from relay.base.words import render_clock, render_tokens, shorten
from relay.cli.views.board import MOMENT_KINDS, Board
from relay.insight.telemetry.log import LogTail, list_runs
from relay.session.gauge import find_band, render_band

_SHOWN_CHARS = 90
_LOGS_OF_A_JOB = 4
"""So many of the last logs are looked at for each job: one that was stopped and taken up has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A run that goes on."""

    run_id: str
    board: Board
    """Without the plan, and with what the session has used since its last answers only."""
    phase_id: str
    """Empty between phases and while planning."""


def find_work(root: Path) -> AtWork | None:
    """Return what the last log says of a run that has not ended; None where it says nothing."""
    return next((_read_work(root, run_id) for run_id in list_runs(root)[-1:]), None)


def find_job_works(root: Path, phase_ids: Collection[str]) -> tuple[AtWork, ...]:
    """Return the same for the runs of phases that have one each and are at work."""
    found: dict[str, AtWork] = {}
    for run_id in reversed(list_runs(root)[-_LOGS_OF_A_JOB * (len(phase_ids) + 1) :]):
        work = _read_work(root, run_id)
        if work is not None and work.phase_id in phase_ids:
            found.setdefault(work.phase_id, work)
    return tuple(found[phase_id] for phase_id in phase_ids if phase_id in found)


def _read_work(root: Path, run_id: str) -> AtWork | None:
    try:
        with LogTail(root, run_id) as log:
            records = log.read_end(MOMENT_KINDS, until="LegStarted")
    except OSError:
        return None
    if not records:
        return None
    board = Board(started_at=records[0].at)
    for record in records:
        board.apply(record.event, record.at)
    scope = records[-1].scope
    phase_id = scope.phase_id or (board.leg.phase_id if board.leg else "")
    return None if board.ended else AtWork(run_id=scope.run_id or run_id, board=board, phase_id=phase_id)


def tell_work(work: AtWork, *, now: float) -> Iterator[str]:
    """Yield lines: the leg, its gauge, what runs right now."""
    board = work.board
    if board.leg is not None:
        of = f"phase {board.leg.phase_id} leg {board.leg.leg}" if board.leg.phase_id else "planning"
        yield f"{of} — {shorten(board.leg.title, _SHOWN_CHARS)} (session {board.leg.session_id}, run {work.run_id})"
    else:
        yield f"a run is at work here (run {work.run_id})"
    response = board.response
    if response is not None and response.fill_tokens is not None:
        fill, soft = response.fill_tokens, response.soft_tokens
        band = render_band(find_band(fill, soft))
        share = f"{fill * 100 // max(1, soft)}%"
        lines = f"{render_tokens(fill)} of {render_tokens(soft)} tokens, {share}, {band}"
        yield f"context {lines}; stops at {render_tokens(response.hard_tokens)}"
    activity = board.activity
    if activity is not None:
        left = activity.until - now if activity.until is not None else None
        time = f"in {render_clock(left)}" if left is not None else render_clock(now - activity.since)
        yield f"{activity.name}: {shorten(activity.summary, _SHOWN_CHARS)}, {time}"


def render_work(work: AtWork | None) -> dict[str, Any] | None:
    """Return it as JSON has it; times are seconds since the epoch."""
    if work is None:
        return None
    leg, response, activity = work.board.leg, work.board.response, work.board.activity
    return {
        "run": work.run_id,
        "phase": work.phase_id or None,
        "session": leg.session_id if leg else None,
        "leg": leg.leg if leg else None,
        "fill_tokens": response.fill_tokens if response else None,
        "soft_tokens": response.soft_tokens if response else None,
        "hard_tokens": response.hard_tokens if response else None,
        "activity": None
        if activity is None
        else {"name": activity.name, "summary": activity.summary, "since": activity.since, "until": activity.until},
    }

"""Lines of `relay status` and `relay gate` about the last run, the present run, and a gate's result."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from relay.base.values import dataclass
from relay.base.words import render_clock, render_moment, render_tokens, shorten
from relay.cli.screen import say
from relay.cli.views.board import MOMENT_KINDS, Board
from relay.cli.views.narrate import Line, Tone, tell_output
from relay.insight.telemetry.log import LogTail, list_runs
from relay.session.gauge import find_band, render_band
from relay.store.worktree_notes import LastGate, LastRun

_SHOWN_LINES = 20
_SHOWN_IN_FULL = 60
_SHOWN_CHARS = 120


def tell_last_run(run: LastRun, *, now: float, why: bool) -> Iterator[Line]:
    """Yield how a run ended that did not do all that the user asked for; with `why`, also its failures."""
    began = render_moment(run.began, now=now)
    if run.ended is None:
        words = f"relay {run.command} of {began} has no end: killed, or the power failed"
        yield Line(text=f"last   {words}", tone=Tone.WARNING)
        return
    if run.waits_for:
        yield Line(text=f"waits  {run.waits_for}, for a yes", tone=Tone.WARNING)
        return
    if not run.exit_code:
        return
    when = render_moment(run.ended, now=now)
    yield Line(text=f"last   stopped {when} (exit {run.exit_code}): {' '.join(run.reason.split())}", tone=Tone.WARNING)
    if not why:
        return
    if run.next_command:
        yield Line(text=f"       its advice: {run.next_command}", tone=Tone.QUIET)
    if run.gate is not None:
        yield from tell_failures(run.gate, indent="       ")


def tell_failures(gate: LastGate, *, indent: str = "", shown: int = _SHOWN_LINES) -> Iterator[Line]:
    """Yield each failed command of a gate, with the end of its output and what the sandbox blocked."""
    from relay.gate.model import WORDS

    for check in gate.failed:
        status = str(check.get("status", ""))
        how = f"failed with exit {check.get('exit_code')}" if status == "failed" else WORDS.get(status, status)
        yield Line(text=f"{indent}`{_name(check)}` {how}", tone=Tone.BAD)
        lines = str(check.get("output", "")).splitlines()
        if len(lines) > shown:
            lines = [f"… ({len(lines) - shown} lines above)", *lines[-shown:]]
        yield from tell_output(lines, check.get("causes", ()), f"{indent}  ")


def tell_gate(gate: LastGate) -> Iterator[Line]:
    """Yield every command of a gate with its output."""
    for check in gate.checks:
        if check.get("status") == "passed":
            yield Line(text=f"`{_name(check)}` passed ({float(check.get('duration_s') or 0):.1f} s)", tone=Tone.GOOD)
            for line in str(check.get("output", "")).splitlines()[-_SHOWN_IN_FULL:]:
                yield Line(text=f"  | {line}", tone=Tone.QUIET)
    yield from tell_failures(gate, shown=_SHOWN_IN_FULL)


def _name(check: Mapping[str, Any]) -> str:
    return shorten(" ".join(str(check.get("command", "")).split()), _SHOWN_CHARS)


def say_lines(lines: Iterable[Line]) -> None:
    """Print lines, each in its tone."""
    for line in lines:
        say(line.text, style=line.tone)


_ACTIVITY_CHARS = 90
_LOGS_OF_A_JOB = 4
"""Number of the last logs to search for each job; a job that was stopped and resumed has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A run at work."""

    run_id: str
    board: Board
    """Without the plan; usage covers only the last answers."""
    phase_id: str
    """Empty between phases and while planning."""


def find_work(root: Path) -> AtWork | None:
    """Return the run of the newest log, if it has not ended; None if the log says nothing."""
    return next((_read_work(root, run_id) for run_id in list_runs(root)[-1:]), None)


def find_job_works(root: Path, phase_ids: Collection[str]) -> Mapping[str, AtWork]:
    """Return the runs at work of the given phases, by phase."""
    found: dict[str, AtWork] = {}
    for run_id in reversed(list_runs(root)[-_LOGS_OF_A_JOB * (len(phase_ids) + 1) :]):
        work = _read_work(root, run_id)
        if work is not None and work.phase_id in phase_ids:
            found.setdefault(work.phase_id, work)
    return found


def _read_work(root: Path, run_id: str) -> AtWork | None:
    try:
        with LogTail(root, run_id) as log:
            records = log.read_end(MOMENT_KINDS, until="SessionStarted")
    except OSError:
        return None
    if not records:
        return None
    board = Board(started_at=records[0].at)
    for record in records:
        board.apply(record.event, record.at)
    scope = records[-1].scope
    phase_id = scope.phase_id or (board.session.phase_id if board.session else "")
    return None if board.ended else AtWork(run_id=scope.run_id or run_id, board=board, phase_id=phase_id)


def tell_work(work: AtWork, *, now: float) -> Iterator[str]:
    """Yield lines about the session, its context and its present activity."""
    board = work.board
    if board.session is not None:
        of = f"phase {board.session.phase_id} session {board.session.number}" if board.session.phase_id else "planning"
        title, name = shorten(board.session.title, _ACTIVITY_CHARS), board.session.session_id
        yield f"{of} — {title} (session {name}, run {work.run_id})"
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
        yield f"{activity.name}: {shorten(activity.summary, _ACTIVITY_CHARS)}, {time}"

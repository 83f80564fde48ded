"""The live region of a run with jobs: all phases, and below each that is at work its gauge and what it does. Pure."""

from rich.text import Text

from relay.cli.board import Board
from relay.cli.draw import draw, draw_activity, draw_gauge, draw_head, draw_phase, draw_spend, fit
from relay.session.events import RunStarted
from relay.words import count

_INDENT = 4
_LINES_OF_A_JOB = 2


def draw_run(board: Board, *, now: float, width: int, height: int) -> list[Text]:
    """Lay a board out in at most `height` lines of at most `width` cells, with its jobs where it has any."""
    if board.run is None or not board.jobs or board.ended is not None or board.lost:
        return draw(board, now=now, width=width, height=height)
    return _draw_jobs(board, board.run, now, width, height)


def _draw_jobs(board: Board, run: RunStarted, now: float, width: int, height: int) -> list[Text]:
    head = [Text("─" * width, "dim"), *draw_head(board, run, now, width), draw_spend(board, width)]
    shown: list[list[Text]] = []
    for phase in board.phases:
        phase_id = str(phase["id"])
        job = board.jobs.get(phase_id)
        current = next((p for p in job.phases if str(p["id"]) == phase_id), phase) if job else phase
        lines = [draw_phase(current, width, current=job is not None)]
        if job is not None:
            lines += [_indent(draw_gauge(job, width - _INDENT)), _indent(draw_activity(job, now, width - _INDENT))]
        elif words := board.job_states.get(phase_id):
            lines[0] = draw_phase(phase, max(1, width - len(words) - 2), current=False).append(f"  {words}", "yellow")
        shown.append(lines)
    gap = [Text("")] if height > len(head) + len(shown) + _LINES_OF_A_JOB * len(board.jobs) else []
    lines = _choose(shown, max(1, height - len(head) - len(gap)))
    return [fit(line, width) for line in (*head, *gap, *lines)][:height]


def _indent(line: Text) -> Text:
    return Text(" " * _INDENT).append_text(line)


def _choose(phases: list[list[Text]], room: int) -> list[Text]:
    """Leave out what does not fit: phases at which nobody is first, from both ends."""
    left = list(phases)
    while sum(map(len, left)) > room:
        idle = [n for n, lines in enumerate(left) if len(lines) <= 1]
        if not idle:
            break
        del left[idle[0] if idle[0] < len(left) - 1 - idle[-1] else idle[-1]]
        room -= len(left) == len(phases) - 1  # for the line that says so
    hidden = len(phases) - len(left)
    lines = [line for phase in left for line in phase]
    return [*lines, *([Text(f"  … {count(hidden, 'more phase')}", "dim")] if hidden else [])]

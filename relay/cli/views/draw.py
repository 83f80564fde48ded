"""Draw the live region: lines of a given width and height from a board. Pure; imports rich.

From top to bottom: the run, the phases (the current one with its items), the context gauge, spend, the present
activity, the model's last words. Every text is cleaned here and never read as markup; every line is cut to the width.
"""

import textwrap
from collections.abc import Sequence
from enum import IntEnum

from rich.cells import cell_len
from rich.text import Text

from relay.base.words import (
    BOXES,
    BoxState,
    count,
    count_boxes,
    count_questions,
    name_item,
    render_clock,
    render_tokens,
    render_usd,
    shorten,
    sum_up,
)
from relay.cli.screen import clean_line
from relay.cli.views.board import Board
from relay.cli.views.narrate import LOST, STOPPING
from relay.session.events import RunEnded, RunStarted, ShownItem, ShownPhase
from relay.session.gauge import Band, find_band, render_band

BAND_STYLES = {
    Band.ORIENT: "cyan",
    Band.EXPLORE: "cyan",
    Band.EXECUTE: "green",
    Band.CONSOLIDATE: "yellow",
    Band.HAND_OFF: "red",
}
_BOX_STYLES = {"open": "", "optional": "", "yours": "yellow", "claimed": "yellow", "done": "green"}
_LABEL_CELLS = 9
_BAR_CELLS = 32
_NARROW_CELLS = 44
"""Narrower screens get no bars, no right column and no labels."""
_WIDE_CELLS = 64
_FAR_CELLS = 100
"""Further to the right nobody sees which line a count belongs to."""
_ROOM_FOR_OTHERS = 3
_ROOMY_LINES = 12
"""Shorter screens show neither the cache nor a command's output."""
_LONGEST_CHARS = 600
_HEALTHY, _POOR = 0.8, 0.5
"""Bounds on the share of input from the cache: healthy above, poor below. Source: Token Wiki, chapter 3."""
_INDENT = 4
_TITLE_CELLS = 24
"""Least width of a phase's title, before the text to its right."""


def draw(board: Board, *, now: float, width: int, height: int) -> list[Text]:
    """Lay the board out in at most `height` lines of at most `width` cells."""
    if board.run is None:
        first = Text("relay checks repository, sandbox and model", "dim")
        waiting = [draw_activity(board, now, width)] if board.activity else []
        return [fit(line, width) for line in (*_draw_stop(board), first, *waiting)][:height]
    head = [Text("─" * min(width, _FAR_CELLS), "dim"), *draw_head(board, board.run, now, width)]
    meters = _draw_meters(board, now, width, height)
    if height <= len(head) + len(meters):  # a tiny screen shows the end of these lines, the most needed ones
        lines = [head[1], *_draw_phases(board, width, 1), *meters, *_draw_stop(board)]
        return [fit(line, width) for line in lines[-height:]]
    gaps = 2 if height > len(head) + len(meters) + 8 else 0
    room = height - len(head) - len(meters) - gaps
    said = _draw_said(board, width, min(4, room // 3) if room > 2 * _ROOM_FOR_OTHERS else 0)
    phases = _draw_phases(board, width, max(1, room - len(said)))
    lines = [*head, *_gap(gaps), *phases, *_gap(gaps), *meters, *said]
    return [fit(line, width) for line in lines[:height]]


def _draw_meters(board: Board, now: float, width: int, height: int) -> list[Text]:
    """Draw the gauges and the present activity; a small screen gets only the most needed ones."""
    lines = [draw_gauge(board, width), draw_spend(board, width)]
    if board.used.prompt_tokens and height >= _ROOMY_LINES:
        lines.insert(1, _draw_cache(board, width))
    left = board.response.turns_left if board.response else None
    if left is not None and board.ended is None and height >= _ROOMY_LINES:
        lines.insert(1, _label("ahead", width).append(f"~{count(left, 'turn')} to the line"))
    if board.ended is not None:
        return [*lines, *_draw_end(board.ended)]
    if board.lost:
        return [*lines, Text(LOST, "bold yellow")]
    lines.append(draw_activity(board, now, width))
    if board.activity is not None and board.activity.output and height >= _ROOMY_LINES:
        lines.append(_label("", width).append(f"│ {_safe(board.activity.output)}", "dim"))
    return lines


def _draw_end(ended: RunEnded) -> list[Text]:
    word, style = ("done", "bold green") if ended.exit_code == 0 else ("stopped", "bold yellow")
    lines = [Text(f"{word}: {_safe(ended.reason)}", style)]
    if ended.questions:
        lines.append(Text(count_questions(ended.questions), "bold yellow"))
    return [*lines, Text(f"next: {_safe(ended.next_command)}", "bold")] if ended.next_command else lines


def _draw_cache(board: Board, width: int) -> Text:
    """Draw the share of the session's input that came from the cache."""
    read, prompt = board.used.cache_read_tokens, board.used.prompt_tokens
    share = read / prompt
    style = "green" if share > _HEALTHY else "yellow" if share >= _POOR else "red"
    line = _label("cache", width)
    if width >= _NARROW_CELLS:
        line.append_text(_draw_bar(share, None, style, _bar_cells(width))).append("  ")
    line.append(f"{read * 100 // prompt}% ", f"bold {style}").append("of the input", "not bold")
    return line.append(f" ({render_tokens(read)} of {render_tokens(prompt)})", "dim") if width >= _WIDE_CELLS else line


def _gap(gaps: int) -> list[Text]:
    return [Text("")] if gaps else []


def fit(line: Text, width: int) -> Text:
    """Cut a line to the width."""
    line.truncate(max(1, width), overflow="ellipsis")
    line.no_wrap = True
    return line


def _safe(text: str) -> str:
    return clean_line(shorten(text, _LONGEST_CHARS))


def _spread(left: Text, right: str, width: int) -> Text:
    """Put a short text at the right edge, except on narrow screens; on wide ones nearer to the left text."""
    if not right or width < _NARROW_CELLS:
        return left
    room = min(width, max(_FAR_CELLS, left.cell_len + cell_len(right) + 2)) - cell_len(right) - 2
    left.truncate(room, overflow="ellipsis", pad=True)
    return left.append(f"  {right}", "dim")


def draw_head(board: Board, run: RunStarted, now: float, width: int) -> list[Text]:
    """Draw the run, its duration, and a requested stop."""
    where = f"{_safe(run.plan_path)} on {_safe(run.branch)}" if run.branch else _safe(run.plan_path)
    line = Text(f"relay {_safe(run.command)}", "bold")
    line.append(f"  {where} · {_safe(run.model)} · sandbox {_safe(run.sandbox)}", "not bold")
    until = board.heard_at if board.lost or board.ended else now
    head = [_spread(line, render_clock(until - board.started_at), width)]
    head += _draw_stop(board)
    if run.rehearsed:
        head.append(Text("rehearsed: a script plays the model", "yellow"))
    return head


def _draw_stop(board: Board) -> list[Text]:
    return [Text(STOPPING[board.stopping], "bold yellow")] if board.stopping else []


def _draw_phases(board: Board, width: int, room: int) -> list[Text]:
    phases = board.phases
    current = _find_current(board)
    if current is not None and room < _ROOM_FOR_OTHERS:
        return [draw_phase(phases[current], width, current=True)]
    items = () if current is None else phases[current]["items"]
    digits = max((len(_safe(phase["id"])) for phase in phases), default=0)
    neighbours = min(len(phases) - 1, max(2, room - 1 - len(items)))
    item_lines = _draw_items(items, width, max(0, room - 1 - neighbours))
    lines: list[Text] = []
    start, stop = _window(len(phases), current or 0, max(1, room - len(item_lines)))
    if start:
        lines.append(_more(start, "phase", "above", 0))
    for index in range(start, stop):
        lines.append(draw_phase(phases[index], width, current=index == current, digits=digits))
        if index == current:
            lines.extend(item_lines)
    if stop < len(phases):
        lines.append(_more(len(phases) - stop, "phase", "below", 0))
    return lines


def _find_current(board: Board) -> int | None:
    """Return the position of the present phase, else of the first open one."""
    for index, phase in enumerate(board.phases):
        if phase["id"] == board.focus:
            return index
    return next((i for i, phase in enumerate(board.phases) if _phase_state(phase) != "done"), None)


def _phase_state(phase: ShownPhase) -> BoxState:
    return sum_up([item["state"] for item in phase["items"]])


def draw_phase(phase: ShownPhase, width: int, *, current: bool, digits: int = 0) -> Text:
    """Draw a phase's box, id, title and count; `digits` is the width of the id's column."""
    state = _phase_state(phase)
    line = Text("▸ " if current else "  ", "bold")
    line.append(f"{BOXES[state]} ", _BOX_STYLES[state] or "not bold")
    style = "bold" if current else "dim not bold" if state == "done" else "not bold"
    line.append(f"{_safe(phase['id']):<{digits}}  {_safe(phase['title'])}", style)
    return _spread(line, count_boxes([item["state"] for item in phase["items"]]), width)


def _draw_items(items: Sequence[ShownItem], width: int, room: int) -> list[Text]:
    indent = 2 if width < _NARROW_CELLS else 8
    at = next((i for i, item in enumerate(items) if item["state"] == "open"), max(0, len(items) - 1))
    if room < 1 or not items:
        return []
    start, stop = _window(len(items), at, room)
    lines = [_more(start, "item", "above", indent)] if start else []
    for item in items[start:stop]:
        state = item["state"]
        line = Text(" " * indent).append(f"{BOXES[state]} ", _BOX_STYLES[state])
        line.append(_safe(name_item(item["id"], item["text"])), "dim" if state == "done" else "")
        lines.append(line)
    if stop < len(items):
        lines.append(_more(len(items) - stop, "item", "below", indent))
    return lines[:room]


def _more(n: int, noun: str, where: str, indent: int) -> Text:
    return Text(f"{' ' * indent}  … {count(n, noun)} {where}", "dim")


def _window(n: int, at: int, room: int) -> tuple[int, int]:
    """Return the range of `n` lines around `at` to show, with room for a note on each side that is cut."""
    if n <= room:
        return 0, n
    if room < 4:  # noqa: PLR2004  # too little for two notes and two lines: only the line itself
        return at, min(n, at + 1)
    inner = room - 2
    start = max(0, min(at - inner // 3, n - inner))
    if start <= 1:
        return 0, room - 1
    return (start - 1, n) if start + inner >= n else (start, start + inner)


def draw_gauge(board: Board, width: int) -> Text:
    """Draw the context's fill against the soft line and the hard line."""
    response = board.response
    if response is None:
        return _label("context", width).append("unknown until the first answer", "dim")
    fill, soft, hard = response.fill_tokens, response.soft_tokens, max(1, response.hard_tokens)  # a log may have any
    if fill is None:
        return _label("context", width).append(f"unknown; hands over at {render_tokens(soft)}", "dim")
    band = find_band(fill, soft)
    style = BAND_STYLES[band] if band else "dim"
    line = _label("context", width)
    if width >= _NARROW_CELLS:
        line.append_text(_draw_bar(fill / hard, soft / hard, style, _bar_cells(width))).append(" ")
    line.append(f"{render_band(band)} ", f"bold {style}")
    line.append(f"{render_tokens(fill)}/{render_tokens(soft)}")
    if width >= _NARROW_CELLS:
        line.append(f"  {fill * 100 // max(1, soft)}%, stops at {render_tokens(hard)}", "dim")
    return line


def _bar_cells(width: int) -> int:
    return max(8, min(_BAR_CELLS, width - _LABEL_CELLS - 42))


def _draw_bar(fill: float, soft: float | None, style: str, cells: int) -> Text:
    """Draw a bar whose right edge is the hard line; the soft line is a mark in it."""
    full = min(cells, round(fill * cells)) if fill > 0 else 0
    full = max(full, 1) if fill > 0 else 0
    mark = None if soft is None else min(cells - 1, int(soft * cells))
    bar = Text()
    for cell in range(cells):
        filled = cell < full
        if cell == mark:
            bar.append("┃", "bold")
        else:
            bar.append("█" if filled else "░", style if filled else "dim")
    return bar.append("▌" if soft is not None else "", "bold")


def draw_spend(board: Board, width: int) -> Text:
    """Draw the plan's cost, with earlier runs, against the cap."""
    cap = board.run.cap_usd if board.run else None
    spent, complete = board.spent_usd
    line = _label("spend", width)
    if cap and spent is not None and width >= _NARROW_CELLS:
        style = "red" if spent > 0.8 * cap else "green"
        line.append_text(_draw_bar(spent / cap, None, style, _bar_cells(width))).append("  ")
    shown = render_usd(spent, estimated=board.estimated)
    words = shown if complete or spent is None else f"{shown} + unknown"
    line.append(words, "bold").append(f" of {render_usd(cap)}" if cap is not None else ", no cap", "not bold")
    if board.unseen_usd:
        line.append(f"  up to {render_usd(board.unseen_usd)} unseen", "dim")
    elif board.run and board.run.spent_usd and spent is not None:
        line.append(f"  this run {render_usd(board.run_usd)}", "dim")
    return line


def draw_activity(board: Board, now: float, width: int) -> Text:
    """Draw the present activity and its duration."""
    activity = board.activity
    if activity is None:
        return _label("now", width).append("relay is at work", "dim")
    if activity.until is not None:
        left = render_clock(activity.until - now)
        line = _label(activity.name, width).append(f"{'in ' * (activity.name == 'retry')}{left}, ", "yellow")
        return line.append(_safe(activity.summary), "yellow")
    name = _safe(activity.name)
    line = _label(name, width) if width >= _NARROW_CELLS else Text(f"{name} ", "dim")
    line.append(_safe(activity.summary), "not dim")
    return _spread(line, render_clock(now - activity.since), width)


def _label(word: str, width: int) -> Text:
    if width < _NARROW_CELLS:
        return Text()
    return Text(f"{word[: _LABEL_CELLS - 1]:<{_LABEL_CELLS}}", "dim").append("", "not dim")


def _draw_said(board: Board, width: int, room: int) -> list[Text]:
    lines: list[Text] = []
    for thinking, raw in board.said:
        safe = _safe(raw)
        cells = max(8, width - 2)
        parts = textwrap.wrap(safe, cells if cell_len(safe) == len(safe) else cells // 2)
        style = "dim italic" if thinking else "not dim"
        lines.extend(Text("┆ ", "dim").append(part, style) for part in parts)
    return lines[-room:] if room else []


class _Worth(IntEnum):
    """The value of a line if there is too little room, the least first."""

    IDLE = 0
    """A phase without a job."""
    REASON = 1
    RULE = 2
    GAUGE = 3
    HALTED = 4
    """A phase that stopped, or waits."""
    NOW = 5
    JOB = 6


_PHASES = frozenset({_Worth.IDLE, _Worth.HALTED, _Worth.JOB})
_Lines = list[tuple[_Worth, Text]]


def draw_run(board: Board, *, now: float, width: int, height: int) -> list[Text]:
    """Draw a board as `draw` does; with jobs, draw each job's gauge and activity below its phase."""
    has_jobs = board.jobs or board.job_states
    if board.run is None or not has_jobs or board.ended is not None or board.lost:
        return draw(board, now=now, width=width, height=height)
    head = [*draw_head(board, board.run, now, width), draw_spend(board, width)]
    lines: _Lines = [(_Worth.RULE, Text(""))]
    for phase in board.phases:
        lines += _draw_job_phase(board, phase, now, width)
    lines.insert(0, (_Worth.RULE, Text("─" * min(width, _FAR_CELLS), "dim")))
    below = _choose(lines, max(1, height - len(head)))
    rule = below[:1] if below[0] is lines[0][1] else []
    return [fit(line, width) for line in (*rule, *head, *below[len(rule) :])][:height]


def _draw_job_phase(board: Board, phase: ShownPhase, now: float, width: int) -> _Lines:
    """Draw a phase of a run with jobs: its job's gauge and activity, or why it has none."""
    phase_id = str(phase["id"])
    if job := board.jobs.get(phase_id):
        current = next((p for p in job.phases if str(p["id"]) == phase_id), phase)
        return [
            (_Worth.JOB, draw_phase(current, width, current=True)),
            (_Worth.GAUGE, _indent(draw_gauge(job, width - _INDENT))),
            (_Worth.NOW, _indent(draw_activity(job, now, width - _INDENT))),
        ]
    state, why = board.job_states.get(phase_id, ("", ""))
    if not state:
        return [(_Worth.IDLE, draw_phase(phase, width, current=False))]
    is_held = state == "held"
    end = Text(f"  {_safe(why) if is_held else state}", "dim" if is_held else "yellow")
    end.truncate(max(1, width - _TITLE_CELLS), overflow="ellipsis")
    line = fit(draw_phase(phase, width - cell_len(end.plain), current=False), width - cell_len(end.plain))
    line.append_text(end)
    if is_held:
        return [(_Worth.IDLE, line)]
    return [(_Worth.HALTED, line), (_Worth.REASON, _indent(Text(_safe(why), "yellow")))]


def _indent(line: Text) -> Text:
    return Text(" " * _INDENT).append_text(line)


def _choose(lines: _Lines, room: int) -> list[Text]:
    """Leave out the least valuable lines if there is too little room; a last line counts the missing phases."""
    last = len(lines) - 1

    def rank(n: int) -> tuple[int, int]:
        worth = lines[n][0]
        return worth, min(n, last - n) if worth is _Worth.IDLE else -n

    order, excess = sorted(range(len(lines)), key=rank), max(0, len(lines) - room)
    excess += any(lines[n][0] in _PHASES for n in order[:excess])
    gone = frozenset(order[:excess])
    hidden = sum(lines[n][0] in _PHASES for n in gone)
    note = [Text(f"  … {count(hidden, 'more phase')}", "dim")] if hidden else []
    return [*(line for n, (_, line) in enumerate(lines) if n not in gone), *note]

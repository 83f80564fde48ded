"""Draw the live region: lines of a given width and height from a board. Pure; imports rich.

From top to bottom: the run, the phases (those at work with their items), the context gauge, spend, the present
activity, the model's last words. Of phases side by side each has its gauge, activity and words below it, and the spend
is at the top. Lines have a worth: those with the least are left out where a screen is too small, and phases and items
that are left out are counted in their place. Every text is cleaned here and never read as markup; every line is cut to
the width.
"""

import textwrap
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

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
from relay.session.events import ShownItem, ShownPhase
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
_FAR_CELLS = 100
"""Further to the right nobody sees which line a count belongs to."""
_LONGEST_CHARS = 600
_HEALTHY, _POOR = 0.8, 0.5
"""Bounds on the share of input from the cache: healthy above, poor below. Source: Token Wiki, chapter 3."""
_INDENT = 4
_TITLE_CELLS = 24
"""Least width of a phase's title, before the text to its right."""
_NEAR = 2
"""Phases and items that are no further from the present one go after what is only nice to know."""
_SAID_LINES = 4
_COUNTING_LINES = 9
"""Smaller screens do not say what is left out."""


class _Worth(IntEnum):
    """The value of a line if there is too little room, the least first."""

    FAR = 0
    """A phase or an item far from those at work."""
    GAP = 1
    SAID = 2
    EXTRA = 3
    NEAR = 4
    """A phase or an item beside those at work."""
    REASON = 5
    """Why a phase stopped, or waits."""
    RULE = 6
    GAUGE = 7
    """Of one of several jobs."""
    HALTED = 8
    """A phase that stopped, or waits."""
    HEAD = 9
    NOW = 10
    KEY = 11
    """A phase at work; the gauge and the spend; how the run ended, or will."""


class _Line(NamedTuple):
    """A line of the frame."""

    text: Text
    worth: _Worth
    far: int = 0
    """Of lines of the same worth the furthest goes first."""
    noun: str = ""
    """What a note counts where the line is left out."""


def draw(board: Board, *, now: float, width: int, height: int) -> list[Text]:
    """Lay the board out in at most `height` lines of at most `width` cells."""
    lines = [_Line(Text(STOPPING[board.stopping], "bold yellow"), _Worth.KEY)] if board.stopping else []
    is_over, run = board.ended is not None or board.lost, board.run
    if run is None:
        lines.append(_Line(Text("relay checks repository, sandbox and model", "dim"), _Worth.HEAD))
        lines += [_Line(_draw_activity(board, now, width), _Worth.NOW)] if board.activity else []
        return _choose(lines, width, height)
    is_beside = not is_over and bool(board.jobs or board.job_states)
    rule = _Line(Text("─" * min(width, _FAR_CELLS), "dim"), _Worth.RULE)
    where = f"{_safe(run.plan_path)} on {_safe(run.branch)}" if run.branch else _safe(run.plan_path)
    head = Text(f"relay {_safe(run.command)}", "bold")
    head.append(f"  {where} · {_safe(run.model)} · sandbox {_safe(run.sandbox)}", "not bold")
    took = render_clock((board.heard_at if is_over else now) - board.started_at)
    lines = [rule, _Line(_spread(head, took, width), _Worth.HEAD), *lines]
    if run.rehearsed:
        lines.append(_Line(Text("rehearsed: a script plays the model", "yellow"), _Worth.HEAD))
    spend, gap = _Line(_draw_spend(board, width), _Worth.KEY), _Line(Text(""), _Worth.GAP)
    lines += [*([spend] if is_beside else []), gap, *_list_phases(board, now, width, is_beside=is_beside)]
    if not is_beside:
        lines += [gap, *_list_session(board, now, width, spend)]
    return _choose(lines, width, height)


def _choose(lines: Sequence[_Line], width: int, height: int) -> list[Text]:
    """Draw the most valuable lines, in their order, with a note for each group of phases or items that is left out."""
    order = sorted(range(len(lines)), key=lambda n: (lines[n].worth, -lines[n].far, -n))
    excess = max(0, len(lines) - height)
    while True:
        gone, shown = frozenset(order[:excess]), list[Text]()
        for is_gone, group in groupby(range(len(lines)), gone.__contains__):
            found = [lines[n] for n in group]
            nouns = [line.noun for line in found]
            noun = "phase" if "phase" in nouns else "item" if "item" in nouns else ""
            if not is_gone:
                shown += [line.text for line in found]
            elif noun and height >= _COUNTING_LINES:
                indent = " " * (2 if noun == "phase" else 10)
                shown.append(Text(f"{indent}… {count(nouns.count(noun), noun)}", "dim"))
        if len(shown) <= height:
            return [_fit(text, width) for text in shown]
        excess += len(shown) - height


def _fit(line: Text, width: int) -> Text:
    line.truncate(max(1, width), overflow="ellipsis")
    line.no_wrap = True
    return line


def _safe(text: str) -> str:
    return clean_line(shorten(text, _LONGEST_CHARS))


def _spread(left: Text, right: str, width: int) -> Text:
    """Put a short text at the right edge; on wide screens nearer to the left text."""
    room = min(width, max(_FAR_CELLS, left.cell_len + cell_len(right) + 2)) - cell_len(right) - 2
    left.truncate(max(1, room), overflow="ellipsis", pad=True)
    return left.append(f"  {right}", "dim")


def _list_phases(board: Board, now: float, width: int, *, is_beside: bool) -> Iterator[_Line]:
    """List the phases; below one at work its items and, of phases side by side, the state of its session."""
    phases = board.phases
    works = {n: job for n, phase in enumerate(phases) if is_beside and (job := board.jobs.get(str(phase["id"])))}
    if not is_beside:
        focus = (n for n, phase in enumerate(phases) if phase["id"] == board.focus)
        still_open = (n for n, phase in enumerate(phases) if _sum_up(phase) != "done")
        present = next(focus, next(still_open, None))
        works = {} if present is None else {present: board}
    digits = max((len(_safe(phase["id"])) for phase in phases), default=0)
    for n, phase in enumerate(phases):
        far = min((abs(n - at) for at in works), default=n)
        if job := works.get(n):
            own = next((one for one in job.phases if str(one["id"]) == str(phase["id"])), phase)
            yield _Line(_draw_phase(own, width, digits, is_current=True), _Worth.KEY, noun="phase")
            yield from _list_items(own["items"])
            for text, worth, nth, _ in _list_session(job, now, width - _INDENT, None) if is_beside else ():
                indented = Text(" " * _INDENT).append_text(text)
                yield _Line(indented, _Worth.GAUGE if worth is _Worth.KEY else worth, nth)
            continue
        state, why = board.job_states.get(str(phase["id"]), ("", "")) if is_beside else ("", "")
        idle = _Worth.NEAR if far <= _NEAR else _Worth.FAR
        end = why if state == "held" else state
        is_halted = state not in {"", "held"}
        text = _draw_phase(phase, width, digits, end=end, end_style="dim" if state == "held" else "yellow")
        yield _Line(text, _Worth.HALTED if is_halted else idle, far, "phase")
        if is_halted:
            yield _Line(Text(f"{' ' * _INDENT}{_safe(why)}", "yellow"), _Worth.REASON)


def _sum_up(phase: ShownPhase) -> BoxState:
    return sum_up([item["state"] for item in phase["items"]])


def _draw_phase(
    phase: ShownPhase, width: int, digits: int, *, is_current: bool = False, end: str = "", end_style: str = ""
) -> Text:
    """Draw a phase's box, id, title and count; `digits` is the width of the id's column, `end` stands at the right."""
    state = _sum_up(phase)
    line = Text("▸ " if is_current else "  ", "bold")
    line.append(f"{BOXES[state]} ", _BOX_STYLES[state] or "not bold")
    style = "bold" if is_current else "dim not bold" if state == "done" else "not bold"
    line.append(f"{_safe(phase['id']):<{digits}}  {_safe(phase['title'])}", style)
    last = Text(f"  {_safe(end)}" if end else "", end_style)
    last.truncate(max(1, width - _TITLE_CELLS), overflow="ellipsis")
    room = width - last.cell_len
    return _fit(_spread(line, count_boxes([item["state"] for item in phase["items"]]), room), room).append_text(last)


def _list_items(items: Sequence[ShownItem]) -> Iterator[_Line]:
    present = next((n for n, item in enumerate(items) if item["state"] == "open"), len(items) - 1)
    for n, item in enumerate(items):
        far, state = abs(n - present), item["state"]
        line = Text(" " * 8).append(f"{BOXES[state]} ", _BOX_STYLES[state])
        line.append(_safe(name_item(item["id"], item["text"])), "dim" if state == "done" else "")
        yield _Line(line, _Worth.NEAR if far <= _NEAR else _Worth.FAR, far, "item")


def _list_session(board: Board, now: float, width: int, spend: _Line | None) -> Iterator[_Line]:
    """List the gauge of a session and its present activity, or how the run ended, with the spend if that is given."""
    yield _Line(_draw_gauge(board, width), _Worth.KEY)
    left = board.response.turns_left if board.response else None
    if left is not None and board.ended is None:
        yield _Line(_label("ahead").append(f"~{count(left, 'turn')} to the line"), _Worth.EXTRA)
    if board.used.prompt_tokens:
        yield _Line(_draw_cache(board, width), _Worth.EXTRA)
    if spend:
        yield spend
    if ended := board.ended:
        word, style = ("done", "bold green") if ended.exit_code == 0 else ("stopped", "bold yellow")
        yield _Line(Text(f"{word}: {_safe(ended.reason)}", style), _Worth.KEY)
        if ended.questions:
            yield _Line(Text(count_questions(ended.questions), "bold yellow"), _Worth.KEY)
        if ended.next_command:
            yield _Line(Text(f"next: {_safe(ended.next_command)}", "bold"), _Worth.KEY)
        return
    if board.lost:
        yield _Line(Text(LOST, "bold yellow"), _Worth.KEY)
        return
    yield _Line(_draw_activity(board, now, width), _Worth.NOW)
    if board.activity is not None and board.activity.output:
        yield _Line(_label("").append(f"│ {_safe(board.activity.output)}", "dim"), _Worth.EXTRA)
    said, cells = list[Text](), max(8, width - 2)
    for thinking, raw in board.said:
        text, style = _safe(raw), "dim italic" if thinking else "not dim"
        parts = textwrap.wrap(text, cells if cell_len(text) == len(text) else cells // 2)
        said += [Text("┆ ", "dim").append(part, style) for part in parts]
    yield from (_Line(text, _Worth.SAID, -n) for n, text in enumerate(said[-_SAID_LINES:]))


def _draw_cache(board: Board, width: int) -> Text:
    """Draw the share of the session's input that came from the cache."""
    read, prompt = board.used.cache_read_tokens, board.used.prompt_tokens
    share = read / prompt
    style = "green" if share > _HEALTHY else "yellow" if share >= _POOR else "red"
    line = _draw_bar(_label("cache"), share, None, style, width)
    line.append(f"{read * 100 // prompt}% ", f"bold {style}").append("of the input", "not bold")
    return line.append(f" ({render_tokens(read)} of {render_tokens(prompt)})", "dim")


def _draw_gauge(board: Board, width: int) -> Text:
    """Draw the context's fill against the soft line and the hard line."""
    response, line = board.response, _label("context")
    if response is None:
        return line.append("unknown until the first answer", "dim")
    fill, soft, hard = response.fill_tokens, response.soft_tokens, max(1, response.hard_tokens)  # a log may have any
    if fill is None:
        return line.append(f"unknown; hands over at {render_tokens(soft)}", "dim")
    band = find_band(fill, soft)
    style = BAND_STYLES[band] if band else "dim"
    line = _draw_bar(line, fill / hard, soft / hard, style, width)
    line.append(f"{render_band(band)} ", f"bold {style}").append(f"{render_tokens(fill)}/{render_tokens(soft)}")
    return line.append(f"  {fill * 100 // max(1, soft)}%, stops at {render_tokens(hard)}", "dim")


def _draw_bar(line: Text, fill: float, soft: float | None, style: str, width: int) -> Text:
    """Append a bar whose right edge is the hard line; the soft line is a mark in it."""
    cells = max(8, min(_BAR_CELLS, width - _LABEL_CELLS - 42))
    full = max(1, min(cells, round(fill * cells))) if fill > 0 else 0
    mark = None if soft is None else min(cells - 1, int(soft * cells))
    for cell in range(cells):
        if cell == mark:
            line.append("┃", "bold")
        else:
            line.append(*("█", style) if cell < full else ("░", "dim"))
    return line.append("  " if soft is None else "▌ ", "bold")


def _draw_spend(board: Board, width: int) -> Text:
    """Draw the plan's cost, with earlier runs, against the cap."""
    cap = board.run.cap_usd if board.run else None
    spent, complete = board.spent_usd
    line = _label("spend")
    if cap and spent is not None:
        line = _draw_bar(line, spent / cap, None, "red" if spent > 0.8 * cap else "green", width)
    shown = render_usd(spent, estimated=board.estimated)
    words = shown if complete or spent is None else f"{shown} + unknown"
    line.append(words, "bold").append(f" of {render_usd(cap)}" if cap is not None else ", no cap", "not bold")
    if board.unseen_usd:
        line.append(f"  up to {render_usd(board.unseen_usd)} unseen", "dim")
    elif board.run and board.run.spent_usd and spent is not None:
        line.append(f"  this run {render_usd(board.run_usd)}", "dim")
    return line


def _draw_activity(board: Board, now: float, width: int) -> Text:
    """Draw the present activity and its duration."""
    activity = board.activity
    if activity is None:
        return _label("now").append("relay is at work", "dim")
    if activity.until is not None:
        left = render_clock(activity.until - now)
        line = _label(activity.name).append(f"{'in ' * (activity.name == 'retry')}{left}, ", "yellow")
        return line.append(_safe(activity.summary), "yellow")
    line = _label(_safe(activity.name)).append(_safe(activity.summary), "not dim")
    return _spread(line, render_clock(now - activity.since), width)


def _label(word: str) -> Text:
    return Text(f"{word[: _LABEL_CELLS - 1]:<{_LABEL_CELLS}}", "dim").append("", "not dim")

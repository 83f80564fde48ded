"""Build the page of another agent's transcript: how full its contexts were, and what a relay would have cost."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from relay.base.words import UNKNOWN, count, list_some, render_tokens, render_usd
from relay.insight.database import Row
from relay.insight.figures import Figures
from relay.insight.report.blocks import Card, Ink, Page
from relay.insight.report.contents import make_page
from relay.insight.transcripts.emitter import MAIN, Reading
from relay.insight.transcripts.library import Course, RelayedTally, Transcript
from relay.session.gauge import Band


def make_transcript_page(transcript: Transcript, figures: Figures, relayed: RelayedTally, reading: Reading) -> Page:
    """Make the page of another agent's transcript, which has no ticks and no evidence."""
    answers = answer_transcript(transcript, figures, relayed, reading)
    page = make_page(figures, None)
    known = figures.totals.turns > figures.totals.unknown_turns
    sections = tuple(c for c in (*page.sections, *page.more) if known and c.name != "evidence")
    title = f"relay lab inspect: {answers[0].question}"
    return Page(title=title, facts=(), answers=answers, sections=sections)


BAR_CELLS = 48
_BARS = "▁▂▃▄▅▆▇█"
_SOURCES = 5
"""Sources of tokens that are named."""
_MOST_CONTEXTS = 40
"""Contexts that are shown, the first and the last half of them; the figures count all."""


def answer_transcript(
    transcript: Transcript, figures: Figures, relayed: RelayedTally, reading: Reading
) -> tuple[Card, ...]:
    """Sum up a transcript, and compare it with a relay."""
    run = figures.runs[0]
    sessions = [session for session in run.sessions if session.turns]
    main = [session for session in sessions if session.phase_id == MAIN]
    cards = [_say_what(transcript, run, (sessions, main), figures.totals)]
    if figures.totals.turns > figures.totals.unknown_turns:
        tops = f"contexts, to {render_tokens(_find_top(main, relayed))}"
        question = f"{tops}; a relay's line is at {render_tokens(relayed.line_tokens)}"
        cards += [
            Card(question=question, words="", lines=tuple(_list_contexts(main, relayed))),
            Card(
                question="the conversation as a relay, by the same model of prices and cache",
                words="",
                lines=tuple(_list_courses(relayed, main)),
            ),
        ]
    return (*cards, _say_read(reading, figures.totals))


def _say_what(
    transcript: Transcript,
    run: Row,
    found: tuple[Sequence[Row], Sequence[Row]],
    totals: Row,
) -> Card:
    sessions, main = found
    models = dict.fromkeys(session.model for session in sessions if session.model)
    began = f"{datetime.fromtimestamp(run.began, tz=UTC):%Y-%m-%d %H:%M} UTC" if run.began else "start unknown"
    title = f" · {transcript.title}" if transcript.title else ""
    others = len(sessions) - len(main)
    beside = f" and {count(others, 'further one')} (sub-agents, summaries)" if others else ""
    calls = f"{count(totals.turns, 'turn')} and {count(totals.calls, 'tool call')}"
    lines = [f"{began} · {', '.join(models) or 'model unknown'}", f"{calls} in {count(len(main), 'context')}{beside}"]
    if totals.turns > totals.unknown_turns:
        hit = "" if totals.cache_hit is None else f", {totals.cache_hit:.0%} of them from the cache"
        cost = totals.cost_usd
        paid = f"{_say_usd(cost)}{'' if cost is None else ' at list prices'}"
        prompts = f"{render_tokens(totals.prompt_tokens)} tokens of prompts{hit}"
        lines.append(f"{prompts}; {render_tokens(totals.output_tokens)} of answers; {paid}")
    if totals.unknown_turns:
        lines.append(f"the tokens of {count(totals.unknown_turns, 'turn')} are unknown; no figure includes them")
    if not sessions:
        lines.append("it holds no answer of a model")
    ink = Ink.TEXT if sessions and not totals.unknown_turns else Ink.SOFT
    return Card(question=f"{run.command} · {run.run_id}{title}", words="", lines=tuple(lines), ink=ink)


def _find_top(main: Sequence[Row], relayed: RelayedTally) -> int:
    return max([relayed.line_tokens or 1, *(session.peak_tokens or 0 for session in main)])


def _list_contexts(main: Sequence[Row], relayed: RelayedTally) -> Iterator[str]:
    top, half = _find_top(main, relayed), _MOST_CONTEXTS // 2
    for number, session in enumerate(main):
        if number == half and len(main) > _MOST_CONTEXTS:
            yield f"… {len(main) - _MOST_CONTEXTS} more"
        if half <= number < len(main) - half:
            continue
        yield from _list_context(session, main[number + 1] if number + 1 < len(main) else None, top)
    turns = {band.value: 0 for band in Band}
    for row in (row for session in main for row in session.bands):
        turns[row.band] += row.turns
    inside = sum(turns.values())
    bands = " · ".join(f"{band.capitalize()} {n / inside:.0%}" for band, n in turns.items() if inside)
    yield f"turns by band: {bands or UNKNOWN}"


def _list_context(session: Row, after: Row | None, top: int) -> Iterator[str]:
    ends = f"{render_tokens(session.first_tokens)} → {render_tokens(session.last_tokens)}"
    yield f"{draw_fill(session.series, top)}  {count(session.turns, 'turn')}, {ends} tokens"
    for fall in session.compactions:
        sizes = f"{render_tokens(fall.before_tokens)} to {render_tokens(fall.after_tokens)}"
        yield f"  turn {fall.turn}: fell from {sizes} tokens; took {_name_sources(fall.dropped)}"
    if session.result != "compacted":
        return
    left = f"; the next context began with {render_tokens(after.first_tokens)}" if after else ""
    yield f"  {session.detail}{left}"
    yield f"  its content then: {_name_sources(session.held)}"


def draw_fill(series: Sequence[Row], top: int) -> str:
    """Draw how full a context was: a bar for each turn, or for the fullest of several."""
    fills = [point.fill_tokens for point in series if point.fill_tokens is not None]
    if not fills:
        return UNKNOWN
    width = min(BAR_CELLS, len(fills))
    groups = [fills[len(fills) * cell // width : len(fills) * (cell + 1) // width] for cell in range(width)]
    return "".join(_BARS[min(len(_BARS) - 1, max(group) * len(_BARS) // max(1, top))] for group in groups)


def _name_sources(sources: Mapping[str, int]) -> str:
    return list_some([f"{name} {render_tokens(tokens)}" for name, tokens in sources.items()], _SOURCES) or UNKNOWN


def _list_courses(relayed: RelayedTally, main: Sequence[Row]) -> Iterator[str]:
    yield _say_course("as it was", relayed.was)
    costs = [session.cost_usd for session in main]
    paid = sum(cost or 0.0 for cost in costs)
    if relayed.was.usd and paid and None not in costs:
        error = relayed.was.usd / paid - 1
        yield f"at list prices it was {render_usd(paid)}: this model of the cache is {error:+.0%} off"
    if not relayed.most.resets:
        yield f"it never reached the line at {render_tokens(relayed.line_tokens)}: a relay changes nothing"
        return
    yield _say_course("a relay, little read again", relayed.least)
    yield _say_course("a relay, much read again", relayed.most)


def _say_course(name: str, way: Course) -> str:
    resets = f", {count(way.resets, 'reset')}" if way.resets else ""
    tokens = f"{render_tokens(way.prompt_tokens)} tokens of prompts, at most {render_tokens(way.peak_tokens)} at a time"
    return f"{name + ':':<28}{_say_usd(way.usd)}, {tokens}{resets}"


def _say_read(reading: Reading, totals: Row) -> Card:
    lines = [count(reading.lines, "line")]
    own, ours = reading.own_cost_usd, totals.cost_usd
    if own is not None and ours is not None and own > ours:
        rest = render_usd(own - ours)
        lines.append(f"the agent counted {render_usd(own)}: {rest} for requests in no transcript (summaries, titles)")
    notes = list(reading.notes)
    if reading.torn:
        notes.append(f"skipped {count(reading.torn, 'unreadable line')}")
    if reading.unknown:
        kinds = [f"{kind} ({n})" for kind, n in sorted(reading.unknown.items(), key=lambda pair: -pair[1])]
        notes.append(f"unknown and not counted: {list_some(kinds)}")
    return Card(question="what relay read", words="", lines=(*lines, *notes), ink=Ink.SOFT if notes else Ink.TEXT)


def _say_usd(amount: float | None) -> str:
    return "cost unknown" if amount is None else render_usd(amount)

"""A transcript's figures in words: contexts as bars, compactions, what was paid for twice, and the relay beside it."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from relay.cli.bands import render_band
from relay.cli.text import clean_line
from relay.figures.values import Figures, LegFigures, RunFigures, Totals, TurnFigures
from relay.transcripts.comparison import Course, Relayed
from relay.transcripts.library import Format, Transcript
from relay.transcripts.lines import Reading
from relay.transcripts.teller import MAIN
from relay.words import UNKNOWN, count, list_some, render_tokens, render_usd, shorten

BAR_CELLS = 48
_BARS = "▁▂▃▄▅▆▇█"
_SOURCES = 5
"""Sources of tokens that are named."""
_COSTLY = 3
_MOST_CONTEXTS = 40
"""Contexts that are shown, the first and the last half of them; the figures count all."""
_KILO = 1000

Styled = tuple[str, str]


def write_inspection(transcript: Transcript, figures: Figures, relayed: Relayed, reading: Reading) -> Iterator[Styled]:
    """Yield lines, each with its style; their texts are made safe where they are shown."""
    run = figures.runs[0]
    legs = [leg for leg in run.legs if leg.totals.turns]
    main = [leg for leg in legs if leg.phase_id == MAIN]
    yield from _write_head(transcript, run, legs, main, figures.totals)
    if not legs:
        yield "no answer of a model is in it", "yellow"
    elif figures.totals.turns > figures.totals.unknown_turns:
        yield from _write_contexts(main, relayed)
        yield from _write_helpers([leg for leg in legs if leg.phase_id != MAIN])
        yield from _write_losses(figures, main)
        yield from _write_relayed(relayed)
    yield from _write_reading(reading, figures.totals)


def _write_head(
    transcript: Transcript, run: RunFigures, legs: Sequence[LegFigures], main: Sequence[LegFigures], totals: Totals
) -> Iterator[Styled]:
    models = dict.fromkeys(leg.model for leg in legs if leg.model)
    began = f"{datetime.fromtimestamp(run.began, tz=UTC):%Y-%m-%d %H:%M} UTC" if run.began else "begun at no known time"
    title = f" · {clean_line(transcript.title)}" if transcript.title else ""
    yield f"{clean_line(run.command)} · {clean_line(run.run_id)}{title}", "bold"
    yield f"{began} · {clean_line(', '.join(models)) or 'model unknown'}", ""
    others = len(legs) - len(main)
    beside = f" and {count(others, 'further one')} (sub-agents, summaries)" if others else ""
    calls = f"{count(totals.turns, 'turn')} and {count(totals.calls, 'tool call')}"
    yield f"{calls} in {count(len(main), 'context')}{beside}", ""
    usage = totals.spent.usage
    hit = "" if totals.cache_hit is None else f", {totals.cache_hit:.0%} of them from the cache"
    prompts = f"{render_tokens(usage.prompt_tokens)} tokens of prompts{hit}"
    answers = f"{render_tokens(usage.output_tokens)} of answers"
    cost = totals.spent.cost_usd
    if totals.turns > totals.unknown_turns:
        yield f"{prompts}; {answers}; {_say_usd(cost)}{'' if cost is None else ' at list prices'}", ""
    if totals.unknown_turns:
        yield f"of {count(totals.unknown_turns, 'turn')} the tokens are unknown: they are in no figure", "yellow"


def _write_contexts(main: Sequence[LegFigures], relayed: Relayed) -> Iterator[Styled]:
    top = max([relayed.line_tokens or 1, *(leg.peak_tokens or 0 for leg in main)])
    yield "", ""
    yield f"contexts, to {render_tokens(top)}; a relay's line is at {render_tokens(relayed.line_tokens)}", "bold"
    half = _MOST_CONTEXTS // 2
    for number, leg in enumerate(main):
        if number == half and len(main) > _MOST_CONTEXTS:
            yield f"  … {len(main) - _MOST_CONTEXTS} more", "dim"
        if half <= number < len(main) - half:
            continue
        yield from _write_context(leg, main[number + 1] if number + 1 < len(main) else None, top)
    inside = sum(turns for _, turns in relayed.bands)
    bands = " · ".join(f"{render_band(band)} {turns / inside:.0%}" for band, turns in relayed.bands if inside)
    yield f"  turns by band: {bands}" if inside else "  turns by band: unknown", ""


def _write_context(leg: LegFigures, after: LegFigures | None, top: int) -> Iterator[Styled]:
    ends = f"{render_tokens(leg.first_tokens)} → {render_tokens(leg.last_tokens)}"
    yield f"  {draw_fill(leg.series, top)}  {count(leg.totals.turns, 'turn')}, {ends} tokens", ""
    for fall in leg.compactions:
        sizes = f"{render_tokens(fall.before_tokens)} to {render_tokens(fall.after_tokens)}"
        yield f"    turn {fall.turn}: fell from {sizes} tokens; took {_name_sources(fall.dropped)}", "yellow"
    if leg.result != "compacted":
        return
    left = f"; the next context began with {render_tokens(after.first_tokens)}" if after else ""
    yield f"    {clean_line(leg.detail)}{left}", "yellow"
    yield f"    what it held then: {_name_sources(leg.held)}", ""


def draw_fill(series: Sequence[TurnFigures], top: int) -> str:
    """Draw how full a context was, turn by turn: a bar for each, or for the fullest of several."""
    fills = [point.fill_tokens for point in series if point.fill_tokens is not None]
    if not fills:
        return UNKNOWN
    width = min(BAR_CELLS, len(fills))
    groups = [fills[len(fills) * cell // width : len(fills) * (cell + 1) // width] for cell in range(width)]
    return "".join(_BARS[min(len(_BARS) - 1, max(group) * len(_BARS) // max(1, top))] for group in groups)


def _name_sources(sources: Sequence[tuple[str, int]]) -> str:
    named = [f"{clean_line(name)} {render_tokens(tokens)}" for name, tokens in sources]
    return list_some(named, _SOURCES) or UNKNOWN


def _write_helpers(others: Sequence[LegFigures]) -> Iterator[Styled]:
    if not others:
        return
    summed = sum(leg.totals.spent.usage.prompt_tokens for leg in others)
    costs = [leg.totals.spent.cost_usd for leg in others]
    cost = None if None in costs else sum(filter(None, costs))
    yield f"  beside it: {render_tokens(summed)} tokens of prompts, {_say_usd(cost)}", ""


def _write_losses(figures: Figures, main: Sequence[LegFigures]) -> Iterator[Styled]:
    totals = figures.totals
    again = sum(start.orientation_tokens for start in figures.hand_offs if start.to_session in _after(main))
    yield "", ""
    yield "paid for twice", "bold"
    tax = f"{render_tokens(totals.tax_tokens)} tokens of what was superseded, {_say_usd(totals.tax_usd)}"
    yield f"  re-read tax: {tax}", ""
    duplicates = f"{count(totals.duplicate_reads, 'read')} of what was there, unchanged"
    yield f"  {duplicates}: {render_tokens(totals.duplicate_tokens)} tokens", ""
    if len(main) > 1:
        yield f"  read again after compactions: {render_tokens(again)} tokens", ""
    ghosts = count(totals.ghost_edits, "file")
    yield f"  ghost edits: {ghosts} changed without being shown, after a compaction", ""
    costly = sorted((one for tool in figures.tools for one in tool.costliest), key=lambda one: one.tokens, reverse=True)
    for result in costly[:_COSTLY]:
        words = clean_line(f"{result.tool} {shorten(result.summary, 60)}")
        yield f"  {render_tokens(result.tokens)} tokens in every prompt from turn {result.turn} on: {words}", "dim"


def _after(main: Sequence[LegFigures]) -> frozenset[str]:
    return frozenset(leg.session_id for leg in main[1:])


def _write_relayed(relayed: Relayed) -> Iterator[Styled]:
    least, most, was = relayed.least, relayed.most, relayed.was
    yield "", ""
    yield "the conversation as a relay, by the same model of prices and cache", "bold"
    yield _say_way("as it was", was), ""
    if not most.resets:
        yield f"  it never reached the line at {render_tokens(relayed.line_tokens)}: a relay changes nothing", ""
        return
    yield _say_way("a relay, little read again", least), ""
    yield _say_way("a relay, much read again", most), ""


def _say_way(name: str, way: Course) -> str:
    resets = f", {count(way.resets, 'reset')}" if way.resets else ""
    tokens = f"{render_tokens(way.prompt_tokens)} tokens of prompts, at most {render_tokens(way.peak_tokens)} at a time"
    return f"  {name + ':':<28}{_say_usd(way.usd)}, {tokens}{resets}"


def _write_reading(reading: Reading, totals: Totals) -> Iterator[Styled]:
    yield "", ""
    yield "what was read", "bold"
    sent = f"{_say_size(reading.sent_bytes)} of them ever in a prompt"
    yield f"  on disk: {_say_size(reading.size_bytes)} in {count(reading.lines, 'line')}, {sent}", "dim"
    own, ours = reading.own_cost_usd, totals.spent.cost_usd
    if own is not None and ours is not None and own > ours:
        rest = render_usd(own - ours)
        yield f"  the agent counted {render_usd(own)}: {rest} for what is in no transcript (summaries, titles)", "dim"
    for note in reading.notes:
        yield f"  {note}", "yellow"
    if reading.torn:
        yield f"  passed over: {count(reading.torn, 'line')} that cannot be read", "yellow"
    if reading.unknown:
        kinds = [f"{clean_line(kind)} ({n})" for kind, n in sorted(reading.unknown.items(), key=lambda pair: -pair[1])]
        yield f"  not known, and not counted: {list_some(kinds)}", "yellow"


def _say_usd(amount: float | None) -> str:
    return "cost unknown" if amount is None else render_usd(amount)


def _say_size(size_bytes: int) -> str:
    size, unit = float(size_bytes), "bytes"
    for larger in ("kB", "MB", "GB"):
        if size < _KILO:
            break
        size, unit = size / _KILO, larger
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def write_listing(found: Sequence[Transcript], root: Path, quote: Callable[[str], str]) -> Iterator[str]:
    """Yield a line on each transcript, with the command that inspects it."""
    if not found:
        known = ", ".join(known.value for known in Format)
        yield f"no transcript of {known} is about {root}"
    for one in found:
        when = f"{datetime.fromtimestamp(one.updated, tz=UTC):%Y-%m-%d %H:%M}"
        size = "" if one.size_bytes is None else _say_size(one.size_bytes)
        session = f" --session {quote(one.session)}" if one.session else ""
        title = f"  # {clean_line(shorten(one.title, 60))}" if one.title else ""
        yield f"{when}  {one.format.value:<11}  {size:>9}  relay inspect {quote(str(one.path))}{session}{title}"

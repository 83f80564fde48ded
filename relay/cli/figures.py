"""Figures as lines of text."""

import re
from collections.abc import Iterable, Iterator, Sequence

from relay.figures.evidence import DRIFT_WARNING
from relay.figures.values import Figures, LegFigures, PhaseFigures, RunFigures, Totals
from relay.values import dataclass
from relay.words import UNKNOWN, count, render_duration, render_tokens, render_usd, shorten

HEALTHY_CACHE = 0.8
"""Source: `relay.figures.values.Totals.cache_hit`."""
_SHOWN = 12
_TITLE_CHARS = 28
_NONE = "n/a"
_NUMBER = re.compile(r"~?\$?\d|n/a|unknown|never|saved|cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLine:
    """A line and how it looks."""

    text: str
    style: str = ""


def render_figures(figures: Figures) -> Iterator[TextLine]:
    """Write all figures, the most important first: what was done, why it stopped, what it cost, what needs you."""
    for run in figures.runs[-1:]:
        yield from _render_head(figures, run)
    yield from _render_totals(figures.totals)
    yield from _table("Tokens of all prompts, by source", _list_sources(figures.totals))
    yield from _table("Phases", _list_phases(figures.phases))
    yield from _table("Sessions", _list_legs(figures.legs))
    yield from _table("Tools", _list_tools(figures))
    yield from _table("Hand-offs", _list_hand_offs(figures))
    yield from _render_ticks(figures)
    yield from _render_log(figures)


def _render_head(figures: Figures, run: RunFigures) -> Iterator[TextLine]:
    """Write how the newest run ended, and what all of them came to."""
    totals = figures.totals
    yield TextLine(text=f"{run.command or 'run'} {run.run_id}: {run.reason or 'it works, or was killed'}", style="bold")
    done = sum(phase.is_done for phase in figures.phases)
    parts = [
        count(done, "phase") + " done",
        count(totals.ticks, "item") + " ticked",
        count(totals.commits, "commit"),
        count(len(figures.legs) + sum(one.legs_left_out for one in figures.runs), "session"),
    ]
    runs = f"{count(len(figures.runs), 'run')}, " if len(figures.runs) > 1 else ""
    yield TextLine(text=f"{runs}{', '.join(parts)}, cost {_render_cost(totals)}")
    if figures.forecast and figures.forecast.items:
        ahead = figures.forecast
        span = f" ({render_usd(ahead.low_usd)} to {render_usd(ahead.high_usd)})" if ahead.low_usd is not None else ""
        to_go = f"{count(ahead.phases, 'phase')} with {count(ahead.items, 'item')} to go"
        yield TextLine(text=f"{to_go}, forecast {render_usd(ahead.usd, estimated=ahead.usd is not None)}{span}")
    if run.next_command:
        yield TextLine(text=f"next: {run.next_command}", style="bold")
    for words in run.warnings[:_SHOWN]:
        yield TextLine(text=f"warning: {words}", style="yellow")


def _render_totals(totals: Totals) -> Iterator[TextLine]:
    usage = totals.spent.usage
    hit = totals.cache_hit
    unknown = f", {totals.unknown_turns} of them with unknown usage" if totals.unknown_turns else ""
    yield TextLine(text="")
    yield TextLine(
        text=f"{count(totals.turns, 'turn')}{unknown}: {usage.prompt_tokens:,} tokens in, {usage.output_tokens:,} out"
    )
    yield TextLine(
        text=f"cache hit {_percent(hit)}: {usage.cache_read_tokens:,} read, {usage.cache_write_tokens:,} written, "
        f"{usage.input_tokens:,} neither",
        style="yellow" if hit is not None and hit < HEALTHY_CACHE else "",
    )
    yield TextLine(
        text=f"carried again from turn to turn {totals.carried_tokens:,} tokens ({render_usd(totals.carried_usd)}), "
        f"superseded ones among them {totals.tax_tokens:,} ({render_usd(totals.tax_usd)})"
    )
    yield TextLine(
        text=f"duplicate reads {totals.duplicate_reads} ({totals.duplicate_tokens:,} tokens), ghost edits "
        f"{totals.ghost_edits}, failed calls {totals.errors} of {totals.calls}, retries {totals.retries}"
    )
    density = totals.decision_density
    yield TextLine(
        text=f"decisions {totals.decisions} ({totals.ticks} ticks, {totals.records} records, {totals.amendments} "
        f"amendments, {totals.commits} commits), {_per_decision(totals)} each, "
        f"{_NONE if density is None else f'{density:.2f}'} a turn"
    )
    yield TextLine(
        text=f"time: answers {render_duration(totals.answer_s)}, tools {render_duration(totals.tools_s)}, "
        f"gates {render_duration(totals.gates_s)}"
    )


def _list_sources(totals: Totals) -> Iterator[tuple[str, ...]]:
    whole = totals.spent.usage.prompt_tokens
    if totals.sources:
        yield "source", "tokens", "part"
    for source, tokens in totals.sources:
        yield source, f"{tokens:,}", _percent(tokens / whole)
    if totals.sources:
        yield "sum", f"{whole:,}", "100%"


def _list_phases(phases: Sequence[PhaseFigures]) -> Iterator[tuple[str, ...]]:
    if phases:
        yield "phase", "title", "sessions", "turns", "cost", "a decision", "red gates", "drift", ""
    for phase in phases:
        work, drift = phase.work, phase.work.drift
        strays = f"! {', '.join(work.strayed[:3])}" if drift is not None and drift > DRIFT_WARNING else ""
        yield (
            phase.phase_id or "none",
            shorten(phase.title, _TITLE_CHARS),
            str(phase.legs),
            str(phase.totals.turns),
            _render_cost(phase.totals),
            _per_decision(phase.totals),
            f"{work.red_gates}/{work.gates}",
            _NONE if drift is None else _percent(drift),
            strays,
        )


def _list_legs(legs: Sequence[LegFigures]) -> Iterator[tuple[str, ...]]:
    if legs:
        yield "session", "phase", "turns", "peak", "line", "signal", "cache", "cost", "result"
    for leg in legs:
        yield (
            leg.session_id[:12],
            leg.phase_id or "none",
            str(leg.totals.turns),
            render_tokens(leg.peak_tokens),
            render_tokens(leg.soft_tokens),
            _percent(leg.signal),
            _percent(leg.totals.cache_hit),
            _render_cost(leg.totals),
            leg.result or "works, or was cut off",
        )


def _list_tools(figures: Figures) -> Iterator[tuple[str, ...]]:
    if figures.tools:
        yield "tool", "calls", "errors", "time", "tokens", "same again", "costliest"
    for tool in figures.tools[:_SHOWN]:
        dearest = tool.costliest[0] if tool.costliest else None
        yield (
            tool.name,
            f"{tool.calls:,}",
            f"{tool.errors:,}",
            render_duration(tool.duration_s),
            f"{tool.result_tokens:,}",
            f"{tool.duplicates} ({tool.duplicate_tokens:,})",
            f"{dearest.tokens:,} {shorten(' '.join(dearest.summary.split()), _TITLE_CHARS)}" if dearest else "",
        )


def _list_hand_offs(figures: Figures) -> Iterator[tuple[str, ...]]:
    if figures.hand_offs:
        yield "to session", "phase", "left", "begins with", "read again", "pays after", "took", "net"
    for step in figures.hand_offs[-_SHOWN:]:
        pays = step.break_even_turns
        yield (
            step.to_session[:12],
            step.phase_id or "none",
            render_tokens(step.context_tokens),
            render_tokens(step.prefix_tokens),
            render_tokens(step.orientation_tokens),
            "never" if pays is None else f"{pays:.1f} turns",
            count(step.turns, "turn"),
            _render_net(step.saved_usd),
        )


def _render_ticks(figures: Figures) -> Iterator[TextLine]:
    if figures.ticks:
        yield from _title("What stands for each tick")
    for tick in figures.ticks:
        items = " ".join(tick.items)
        yield TextLine(text=f"{tick.commit[:8]} phase {tick.phase_id or 'none'} items {items}: {tick.subject}")
        for check in tick.checks:
            code = "killed" if check.exit_code is None else f"exit {check.exit_code}"
            digest = f", output {check.output_sha256[:12]}" if check.output_sha256 else ""
            yield TextLine(text=f"  `{check.command}` {code} after {render_duration(check.duration_s)}{digest}")
        if tick.files:
            added, deleted = (sum(getattr(file, name) or 0 for file in tick.files) for name in ("added", "deleted"))
            yield TextLine(text=f"  {count(len(tick.files), 'file')}, +{added:,} −{deleted:,} lines")


def _render_log(figures: Figures) -> Iterator[TextLine]:
    log = figures.log
    yield TextLine(text="")
    yield TextLine(
        text=f"log: {log.lines:,} lines, {render_tokens(log.size_bytes)}B, of that {render_tokens(log.noise_bytes)}B "
        "words for a screen; none of it was in a prompt",
        style="dim",
    )


def _table(title: str, rows: Iterable[tuple[str, ...]]) -> Iterator[TextLine]:
    """Write rows below each other, numbers to the right; nothing where there are none."""
    kept = [*rows]
    if not kept:
        return
    yield from _title(title)
    columns = [_align([row[n] for row in kept], is_text=n in {0, len(kept[0]) - 1}) for n in range(len(kept[0]))]
    for cells in zip(*columns, strict=True):
        yield TextLine(text=f"  {'  '.join(cells)}".rstrip())


def _align(cells: Sequence[str], *, is_text: bool) -> tuple[str, ...]:
    """Make cells of a column as wide as the widest; a column of numbers stands to the right."""
    width = max(map(len, cells))
    left = is_text or not all(_NUMBER.match(cell) for cell in cells[1:])
    return tuple(cell.ljust(width) if left else cell.rjust(width) for cell in cells)


def _title(words: str) -> Iterator[TextLine]:
    yield TextLine(text="")
    yield TextLine(text=words, style="bold")


def _percent(part: float | None) -> str:
    return _NONE if part is None else f"{part * 100:.0f}%"


def _render_cost(totals: Totals) -> str:
    return render_usd(totals.spent.cost_usd, estimated=totals.spent.estimated)


def _per_decision(totals: Totals) -> str:
    """Write the cost of a decision; none is n/a and not nothing."""
    return _NONE if not totals.decisions else render_usd(totals.usd_per_decision, estimated=totals.spent.estimated)


def _render_net(usd: float | None) -> str:
    if usd is None:
        return UNKNOWN
    return f"{'saved' if usd >= 0 else 'cost'} {render_usd(abs(usd))}"

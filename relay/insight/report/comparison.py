"""Two runs side by side."""

from collections.abc import Callable

from relay.base.words import UNKNOWN, render_duration, render_tokens, render_usd
from relay.insight.figures.values import Figures
from relay.insight.report.blocks import Chapter, Table, make_table
from relay.insight.report.head import list_facts
from relay.insight.report.sessions import plot_teeth
from relay.insight.report.spending import plot_sources
from relay.insight.report.wording import NOTHING, render_share

_Number = float | int | None


def compare(one: Figures, other: Figures) -> tuple[Chapter, ...]:
    """Show the figures of two runs next to each other, and how far the second is from the first."""
    rows = [_compare(name, read, write, one, other) for name, read, write in _FIGURES]
    columns = "Figure, #A, #B, #B against A"
    lead = "The same figures of both; the last column is how much more or less B has."
    tables = (_describe(one, other), make_table("Figures", columns, rows), _compare_phases(one, other))
    return (
        Chapter(name="comparison", title="Side by side", lead=lead, tables=tables),
        _show_contexts(one, other),
        _show_sources(one, other),
    )


def _describe(one: Figures, other: Figures) -> Table:
    a, b = dict(list_facts(one)), dict(list_facts(other))
    columns = "What, A, B"
    return make_table("Runs", columns, ((name, a.get(name, ""), b.get(name, "")) for name in {**a, **b}))


def _show_contexts(one: Figures, other: Figures) -> Chapter:
    most = max((leg.hard_tokens or 0 for leg in (*one.legs, *other.legs)), default=0)
    plots = [
        plot_teeth(figures.legs, f"teeth-{letter.lower()}", most=most) for letter, figures in (("A", one), ("B", other))
    ]
    lead = "A on the left or above, B on the right or below, on the same scale. One tooth for each session."
    return Chapter(name="context", title="Context", lead=lead, plots=tuple(plots))


def _show_sources(one: Figures, other: Figures) -> Chapter:
    a, b = dict(one.totals.sources), dict(other.totals.sources)
    both = sorted({**a, **b}, key=lambda source: -(a.get(source, 0) + b.get(source, 0)))
    most = max((sum(n for _, n in phase.totals.sources) for f in (one, other) for phase in f.phases), default=0)
    plots = (plot_sources(one, "sources-a", both, most), plot_sources(other, "sources-b", both, most))
    columns = "Source, #A, #B, #B against A"
    rows = [
        (
            source,
            render_tokens(a.get(source, 0)),
            render_tokens(b.get(source, 0)),
            _render_change(a.get(source, 0), b.get(source, 0)),
        )
        for source in both
    ]
    lead = "Tokens of all prompts, A on the left or above, B on the right or below, on the same scale."
    tables = (make_table("All prompts", columns, rows),)
    return Chapter(name="sources", title="Tokens by source", lead=lead, plots=plots, tables=tables)


def _compare(
    name: str, read: Callable[[Figures], _Number], write: Callable[[_Number], str], one: Figures, other: Figures
) -> tuple[str, ...]:
    a, b = read(one), read(other)
    return name, write(a), write(b), _render_change(a, b)


def _render_change(a: _Number, b: _Number) -> str:
    if a is None or b is None:
        return UNKNOWN
    if a == b:
        return "same"
    return f"{(b - a) / abs(a):+.0%}".replace("-", "−") if a else NOTHING


def _compare_phases(one: Figures, other: Figures) -> Table:
    """Set phases next to each other that have the same title, in the order of the first."""
    found = {phase.title: phase for phase in other.phases if phase.legs}
    columns = "Phase, #Cost A, #Cost B, #Turns A, #Turns B, #Red gates A, #Red gates B"
    rows = (
        (
            f"{a.phase_id} {a.title}".strip(),
            render_usd(a.totals.spent.cost_usd),
            render_usd(b.totals.spent.cost_usd),
            f"{a.totals.turns:,}",
            f"{b.totals.turns:,}",
            f"{a.work.red_gates:,}",
            f"{b.work.red_gates:,}",
        )
        for a in one.phases
        if a.legs and (b := found.get(a.title))
    )
    return make_table("Phases that both worked on", columns, rows)


def _count(n: _Number) -> str:
    return UNKNOWN if n is None else f"{n:,}"


def _tokens(n: _Number) -> str:
    return render_tokens(None if n is None else round(n))


def _seconds(n: _Number) -> str:
    return UNKNOWN if n is None else render_duration(n)


def _peak(figures: Figures) -> _Number:
    return max((leg.peak_tokens for leg in figures.legs if leg.peak_tokens is not None), default=None)


def _first_red(figures: Figures) -> _Number:
    return sum(phase.work.first_gate_red is True for phase in figures.phases)


def _saved(figures: Figures) -> _Number:
    known = [step.saved_usd for step in figures.hand_offs if step.saved_usd is not None]
    return sum(known) if len(known) == len(figures.hand_offs) else None


_FIGURES: tuple[tuple[str, Callable[[Figures], _Number], Callable[[_Number], str]], ...] = (
    ("Phases done", lambda f: sum(phase.work.is_done for phase in f.phases), _count),
    ("Boxes ticked", lambda f: f.totals.ticks, _count),
    ("Commits", lambda f: f.totals.commits, _count),
    ("Sessions", lambda f: len(f.legs), _count),
    ("Turns", lambda f: f.totals.turns, _count),
    ("Cost", lambda f: f.totals.spent.cost_usd, render_usd),
    ("Cost per decision", lambda f: f.totals.usd_per_decision, render_usd),
    ("Tokens in", lambda f: f.totals.spent.usage.prompt_tokens, _tokens),
    ("Tokens out", lambda f: f.totals.spent.usage.output_tokens, _tokens),
    ("From the cache", lambda f: f.totals.cache_hit, render_share),
    ("Fullest context", _peak, _tokens),
    ("Sessions past the line", lambda f: f.totals.crossings, _count),
    ("Re-read tax, tokens", lambda f: f.totals.tax_tokens, _tokens),
    ("Duplicate reads", lambda f: f.totals.duplicate_reads, _count),
    ("Files edited unseen", lambda f: f.totals.ghost_edits, _count),
    ("Red gates", lambda f: sum(phase.work.red_gates for phase in f.phases), _count),
    ("Phases whose first gate was red", _first_red, _count),
    ("Repairs", lambda f: sum(phase.work.repairs for phase in f.phases), _count),
    ("Faults confirmed by reviews", lambda f: sum(review.confirmed for review in f.reviews), _count),
    ("Saved by fresh starts", _saved, render_usd),
    ("Time for answers", lambda f: f.totals.answer_s, _seconds),
    ("Time in tools", lambda f: f.totals.tools_s, _seconds),
    ("Time in gates", lambda f: f.totals.gates_s, _seconds),
)

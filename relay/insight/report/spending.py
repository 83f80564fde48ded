"""The sections on tokens by source, on money by phase and by decision, and on tools."""

from collections.abc import Mapping, Sequence

from relay.base.words import count, render_duration, render_tokens, render_usd
from relay.insight.figures.tallies import TokenSource, name_tool_source
from relay.insight.figures.values import Figures, PhaseFigures
from relay.insight.report.blocks import (
    NOTHING,
    SERIES,
    Bar,
    Chapter,
    Details,
    Ink,
    Plot,
    Span,
    cut_id,
    make_table,
    render_number,
    render_per_decision,
    render_share,
)
from relay.insight.report.sessions import make_plot

_ROWS = 8
"""Tools with a row of their own; calls of other tools share one."""
_OTHERS = "others"
_COSTLIEST = 20


def show_tools(figures: Figures) -> Chapter:
    """Show when tools ran, and the size of their results."""
    columns = "Tool, #Calls, #Errors, #Time, #Tokens of results, #Same again, #Tokens of those"
    table = make_table(
        "Tools",
        columns,
        (
            (
                tool.name,
                render_number(tool.calls),
                render_number(tool.errors),
                render_duration(tool.duration_s),
                render_tokens(tool.result_tokens),
                render_number(tool.duplicates),
                render_tokens(tool.duplicate_tokens),
            )
            for tool in figures.tools
        ),
    )
    lead = f"{count(figures.totals.calls, 'call')}, {count(figures.totals.errors, 'error')}."
    return Chapter(name="tools", title="Tools", lead=lead, plots=_plot_spans(figures), tables=(table,))


def _plot_spans(figures: Figures) -> tuple[Plot, ...]:
    rows = [tool.name for tool in sorted(figures.tools, key=lambda tool: -tool.calls)[:_ROWS]]
    spans = [
        Span(
            row=span.name if span.name in rows else _OTHERS,
            begin=span.at,
            end=span.at + span.duration_s,
            ink=Ink.BAD if span.is_error else Ink.S1,
        )
        for leg in figures.legs
        for span in leg.spans
    ]
    if not spans:
        return ()
    lines = list(dict.fromkeys([*rows, *(span.row for span in spans)]))

    label = "When each tool ran; the table has its sums"
    caption = "Left to right: minutes since the first call. The shortest calls are drawn longer than they were."
    legend = ((Ink.S1, "answered"), (Ink.BAD, "with an error"))
    return (make_plot("draw_spans", spans, lines, name="tools-plot", label=label, legend=legend, caption=caption),)


def show_reads(figures: Figures) -> Chapter:
    """Show repeated reads, the largest results, and the noise of context and log."""
    totals = figures.totals
    lead = (
        f"{count(totals.duplicate_reads, 'time')} the same part of an unchanged file was shown again in one session: "
        f"{render_tokens(totals.duplicate_tokens)} tokens. {count(totals.ghost_edits, 'file')} changed by a session "
        "that had not been shown it, while an earlier one had."
    )
    costliest = sorted((r for tool in figures.tools for r in tool.costliest), key=lambda r: -r.tokens)[:_COSTLIEST]
    results = make_table(
        "The costliest results",
        "Tool, `Call`, #Tokens, `Session`, #Turn",
        ((r.tool, r.summary, render_tokens(r.tokens), cut_id(r.session_id), render_number(r.turn)) for r in costliest),
    )
    return Chapter(
        name="reads",
        title="Read again",
        lead=lead,
        tables=(results,) if costliest else (),
        folds=(_fold_noise(figures),),
    )


def _fold_noise(figures: Figures) -> Details:
    log = figures.log
    context = make_table(
        "Noise of contexts: superseded tokens at the end of a session",
        "`Session`, #Noise, #Signal",
        ((cut_id(leg.session_id), render_tokens(leg.noise_tokens), render_share(leg.signal)) for leg in figures.legs),
    )
    kinds = make_table(
        "The log on disk: none of it is ever in a prompt",
        "Event, #Lines, #Bytes",
        ((name, render_number(lines), render_number(size)) for name, lines, size in log.kinds),
    )
    return Details(title="Two kinds of noise: in the context, and in the log", tables=(context, kinds))


_TOOLS_SHOWN = 3
"""Tools with a colour of their own, those with the largest results."""
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "role, tools and rules": (
        TokenSource.SYSTEM,
        TokenSource.TOOLS,
        TokenSource.RULES,
        TokenSource.ENVIRONMENT,
        TokenSource.RELAY,
    ),
    "plan, notes and ledger": (TokenSource.PLAN, TokenSource.BATON, TokenSource.LEDGER),
    "answers and thinking": (TokenSource.ASSISTANT, TokenSource.THINKING),
}
_OTHER_TOOLS = "results of other tools"
_OTHER = "other"
_BELOW = "The number below is the phase."


def show_sources(figures: Figures) -> Chapter:
    """Show the prompts by source of tokens."""
    whole = figures.totals.spent.usage.prompt_tokens
    rows = [(name, render_tokens(n), render_share(n / whole)) for name, n in figures.totals.sources]
    table = make_table("All prompts", "Source, #Tokens, #Share", rows)
    lead = (
        f"{render_tokens(whole)} tokens were sent in {count(figures.totals.turns, 'turn')}; what is in a context is "
        f"sent with every turn. {render_tokens(figures.totals.carried_tokens)} were sent before in the same session. "
        "Parts are estimated by size and scaled to what the endpoint counted; what nothing explains is “other”."
    )
    plots = (plot_sources(figures, "sources-plot"),) if rows else ()
    return Chapter(name="sources", title="Tokens by source", lead=lead, plots=plots, tables=(table,))


def plot_sources(figures: Figures, name: str, ranked: Sequence[str] = (), most: float = 0) -> Plot:
    """Plot the prompts of each phase by source.

    Args:
        name: Of the drawing.
        ranked: Sources in the order of their colours; empty for those of the figures.
        most: The least height in tokens.
    """
    groups = group_sources(ranked or [source for source, _ in figures.totals.sources])
    inks = dict(zip(dict.fromkeys(groups.values()), SERIES, strict=False))
    bars = [_stack(phase, groups, inks) for phase in figures.phases if phase.totals.sources]
    label = "Tokens of all prompts by source, by phase; the table has their sums"
    legend = tuple((ink, group) for group, ink in inks.items())
    return make_plot("draw_bars", bars, dollars=False, name=name, label=label, most=most, legend=legend, caption=_BELOW)


def group_sources(ranked: Sequence[str]) -> Mapping[str, str]:
    """Map each source to the group that it is drawn in.

    Args:
        ranked: Sources, most tokens first.
    """
    tool = name_tool_source("")
    shown = [source for source in ranked if source.startswith(tool)][:_TOOLS_SHOWN]
    named = {source: name for name, members in _GROUPS.items() for source in members}
    named |= {source: f"results of {source.removeprefix(tool)}" for source in shown}
    groups = {source: named.get(source, _OTHER_TOOLS if source.startswith(tool) else _OTHER) for source in ranked}
    order = [*_GROUPS, *(named[source] for source in shown), _OTHER_TOOLS, _OTHER]
    return dict(sorted(groups.items(), key=lambda pair: order.index(pair[1])))


def _stack(phase: PhaseFigures, groups: Mapping[str, str], inks: Mapping[str, Ink]) -> Bar:
    parts = dict.fromkeys(inks.values(), 0)
    for source, tokens in phase.totals.sources:
        parts[inks[groups.get(source, _OTHER)]] += tokens
    return Bar(label=phase.phase_id or NOTHING, parts=tuple((ink, float(n)) for ink, n in parts.items() if n))


def show_cost(figures: Figures) -> Chapter:
    """Show the cost of each phase and of a decision."""
    phases = [phase for phase in figures.phases if phase.totals.spent.cost_usd is not None and phase.totals.turns]
    plots = _plot_money(phases) if phases else ()
    totals = figures.totals
    lead = (
        f"{render_per_decision(totals)} per decision. A decision is explicit: a tick, a record, an "
        "amendment or a commit; no words are searched for."
    )
    rows = [
        (
            "carried from turn to turn, at the price of a cache read",
            render_tokens(totals.carried_tokens),
            render_usd(totals.carried_usd),
        ),
        (
            "re-read tax: superseded results, sent again with each turn",
            render_tokens(totals.tax_tokens),
            render_usd(totals.tax_usd),
        ),
        ("duplicate reads", render_tokens(totals.duplicate_tokens), NOTHING),
    ]
    tables = [make_table("What remembering cost", "What, #Tokens, #Cost", rows)]
    if (forecast := figures.forecast) and forecast.phases:
        row = (
            render_number(forecast.phases),
            render_number(forecast.items),
            render_usd(forecast.usd),
            NOTHING
            if forecast.low_usd is None
            else f"{render_usd(forecast.low_usd)} to {render_usd(forecast.high_usd)}",
        )
        columns = "#Phases, #Open items, #Cost, Range"
        tables.append(make_table("What is to come, at the cost per item so far", columns, [row]))
    return Chapter(name="cost", title="Cost", lead=lead, plots=plots, tables=tuple(tables))


def _plot_money(phases: Sequence[PhaseFigures]) -> tuple[Plot, ...]:
    def plot(ink: Ink, what: str, costs: Sequence[float | None], label: str, caption: str) -> Plot:
        bars = [
            Bar(label=phase.phase_id or NOTHING, parts=((ink, usd or 0.0),))
            for phase, usd in zip(phases, costs, strict=True)
        ]
        name = f"{what.replace(' ', '-')}-plot"
        return make_plot(
            "draw_bars", bars, dollars=True, name=name, label=label, legend=((ink, what),), caption=caption
        )

    costs, each = zip(*((p.totals.spent.cost_usd, p.totals.usd_per_decision) for p in phases), strict=True)
    said = "Cost per decision of each phase"
    return (
        plot(Ink.S1, "cost of the phase", costs, "Cost of each phase; the table of phases has it", _BELOW),
        plot(Ink.S5, "cost per decision", each, said, f"{_BELOW} No bar: no decision."),
    )

"""The sections on tools: when they ran, what they took, what was read twice."""

from functools import cache
from typing import TYPE_CHECKING

from relay.base.words import count, render_duration, render_tokens
from relay.insight.figures.values import Figures
from relay.insight.report.blocks import Chapter, Details, Ink, Plot, Span, make_table
from relay.insight.report.wording import cut_id, render_number, render_share

if TYPE_CHECKING:
    from markupsafe import Markup

_ROWS = 8
"""Tools with a line of their own; calls of others share one."""
_OTHERS = "others"
_COSTLIEST = 20


def show_tools(figures: Figures) -> Chapter:
    """Show when tools ran, and what their results took."""
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

    @cache
    def draw() -> "Markup":
        from relay.insight.report.plots import draw_spans

        return draw_spans(spans, lines, name="tools-plot", label="When each tool ran; the table has its sums")

    caption = "Left to right: minutes since the first call. The shortest calls are drawn longer than they were."
    return (Plot(draw=draw, legend=((Ink.S1, "answered"), (Ink.BAD, "with an error")), caption=caption),)


def show_reads(figures: Figures) -> Chapter:
    """Show what was read twice, what took most, and what of context and log was noise."""
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

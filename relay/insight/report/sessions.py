"""The sections on context: the saw-tooth, phases and their sessions, hand-offs, the cache."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from relay.base.words import count, list_some, render_duration, render_tokens, render_usd
from relay.insight.figures.evidence import DRIFT_WARNING, FreshStart
from relay.insight.figures.values import HEALTHY_CACHE, Figures, LegFigures, PhaseFigures
from relay.insight.report.blocks import (
    NOTHING,
    Chapter,
    Details,
    Ink,
    Plot,
    Table,
    cut_id,
    make_table,
    render_length,
    render_number,
    render_per_decision,
    render_share,
    render_signed_tokens,
    render_signed_usd,
    render_time,
    render_turns,
)

if TYPE_CHECKING:
    from markupsafe import Markup


def make_plot(function: str, *drawn: Any, legend: tuple[tuple[Ink, str], ...], caption: str, **options: Any) -> Plot:
    """Make a plot that a function of `relay.insight.report.plots` draws from these arguments."""

    @cache
    def draw() -> "Markup":
        from relay.insight.report import plots

        drawing: Markup = getattr(plots, function)(*drawn, **options)
        return drawing

    return Plot(draw=draw, legend=legend, caption=caption)


MOST_FOLDS = 60
"""Phases with a folded part; further phases have only their row in the table."""
_CONTEXT_LEGEND = (
    (Ink.FILL, "tokens in context"),
    (Ink.SOFT, "hand-off line (dashed); ▲ handed over"),
    (Ink.HARD, "hard line"),
    (Ink.GOOD, "● done"),
    (Ink.BAD, "✕ ended otherwise"),
)


def show_context(figures: Figures) -> Chapter:
    """Show how full the context was, session by session."""
    legs = figures.legs
    crossed, peak = figures.totals.crossings, max((leg.peak_tokens or 0 for leg in legs), default=0)
    left_out = sum(run.legs_left_out for run in figures.runs)
    lead = (
        f"One rising line for each of {count(len(legs), 'session')}: a fresh context fills turn by turn "
        f"and is left behind at its hand-off line. {count(crossed, 'session')} crossed it; "
        f"the fullest held {render_tokens(peak)} tokens."
    )
    if left_out:
        lead += f" {count(left_out, 'older session')} are in the sums only."
    plots = (plot_contexts(legs, "contexts"),) if legs else ()
    tables = (_list_compactions(legs),) if any(leg.compactions for leg in legs) else ()
    return Chapter(name="context", title="Context", lead=lead, plots=plots, tables=tables)


def plot_contexts(legs: Sequence[LegFigures], name: str, *, by_leg: bool = False, most: float = 0) -> Plot:
    """Plot sessions, labelled by phase or (`by_leg`) by number; `most` is the least height in tokens."""
    marks = [(n, str(leg.leg)) for n, leg in enumerate(legs)] if by_leg else mark_phases(legs)
    return make_plot(
        "draw_contexts",
        legs,
        marks,
        name=name,
        label=f"How full the context of {count(len(legs), 'session')} was, turn by turn; the tables have the figures",
        most=most,
        legend=_CONTEXT_LEGEND,
        caption="Left to right: turns; the number below says which session begins." if by_leg else PHASES_BELOW,
    )


PHASES_BELOW = "Left to right: turns; the number below says which phase begins."


def mark_phases(legs: Sequence[LegFigures]) -> list[tuple[int, str]]:
    """Return the positions of sessions where a phase begins, with the phase's id."""
    return [
        (n, leg.phase_id or leg.title or NOTHING)
        for n, leg in enumerate(legs)
        if not n or legs[n - 1].phase_id != leg.phase_id
    ]


def show_phases(figures: Figures) -> Chapter:
    """Show each phase as a row, and folded with its sessions."""
    legs: dict[str, list[LegFigures]] = {}
    for leg in figures.legs:
        legs.setdefault(leg.phase_id, []).append(leg)
    columns = "Phase, State, #Sessions, #Turns, #Tokens in, #Cost, #Per decision, #Peak, #Red gates, #Drift"
    worked = [phase for phase in figures.phases if phase.legs or phase.totals.turns]
    rows = [_list_cells(phase, legs.get(phase.phase_id, ())) for phase in worked]
    folds = tuple(
        _fold_phase(n, phase, legs.get(phase.phase_id, ())) for n, phase in enumerate(worked[:MOST_FOLDS]) if phase.legs
    )
    lead = (
        "Drift is the share of touched files that the phase's items do not name, "
        f"worth a look above {render_share(DRIFT_WARNING)}."
    )
    tables = (make_table("Phases", columns, rows),)
    return Chapter(name="phases", title="Phases", lead=lead, tables=tables, folds=folds)


def _name_phase(phase: PhaseFigures) -> str:
    return f"{phase.phase_id} {phase.title}".strip() or "outside of phases"


def _list_cells(phase: PhaseFigures, legs: Sequence[LegFigures]) -> tuple[str, ...]:
    totals, work = phase.totals, phase.work
    peaks = [leg.peak_tokens for leg in legs if leg.peak_tokens is not None]
    return (
        _name_phase(phase),
        "done" if work.is_done else f"{len(work.ticked)} of {len(work.items)}" if work.items else NOTHING,
        render_number(phase.legs),
        render_number(totals.turns),
        render_tokens(totals.spent.usage.prompt_tokens),
        render_usd(totals.spent.cost_usd, estimated=totals.spent.estimated),
        render_per_decision(totals),
        render_tokens(max(peaks)) if peaks else NOTHING,
        f"{work.red_gates} of {work.gates}",
        f"{render_share(work.drift)}{' !' if (work.drift or 0) > DRIFT_WARNING else ''}",
    )


def _fold_phase(n: int, phase: PhaseFigures, legs: Sequence[LegFigures]) -> Details:
    totals, work = phase.totals, phase.work
    facts = {
        "Boxes ticked": f"{len(work.ticked)} of {len(work.items)}",
        "Commits": list_some([commit[:9] for commit in work.commits]),
        "Gates": f"{work.gates}, {work.red_gates} red, {count(work.repairs, 'repair')}",
        "Files": list_some(work.touched),
        "Not named by items": list_some(work.strayed),
        "Decisions": f"{count(totals.ticks, 'tick')}, {count(totals.records, 'record')}, "
        f"{count(totals.amendments, 'amendment')}, {count(totals.commits, 'commit')}",
        "Time": f"answers {render_duration(totals.answer_s)}, tools {render_duration(totals.tools_s)}, "
        f"gates {render_duration(totals.gates_s)}",
        "Read again": f"{count(totals.duplicate_reads, 'part')}, {render_tokens(totals.duplicate_tokens)} tokens",
        "Edited unseen": count(totals.ghost_edits, "file") if totals.ghost_edits else "",
    }
    return Details(
        title=_name_phase(phase),
        facts=tuple((name, text) for name, text in facts.items() if text),
        plots=(plot_contexts(legs, f"phase-{n}", by_leg=True),) if legs else (),
        tables=(_list_sessions(legs), _list_batons(legs)),
    )


def _list_sessions(legs: Sequence[LegFigures]) -> Table:
    columns = "Session, Began, #Took, #Turns, #First prompt, #Peak, #Cost, #Signal, Why it began, How it ended"
    rows = (
        (
            f"{leg.leg} ({cut_id(leg.session_id)})",
            render_time(leg.began),
            render_length(leg.began, leg.ended),
            render_number(leg.totals.turns),
            render_tokens(leg.first_tokens),
            render_tokens(leg.peak_tokens),
            render_usd(leg.totals.spent.cost_usd, estimated=leg.totals.spent.estimated),
            render_share(leg.signal),
            leg.reason,
            f"{leg.result}: {leg.detail}" if leg.detail else leg.result or "cut off",
        )
        for leg in legs
    )
    return make_table("Sessions", columns, rows)


def _list_batons(legs: Sequence[LegFigures]) -> Table:
    """List each session's handoff note line by line."""
    rows = (
        (f"{leg.leg} ({cut_id(leg.session_id)})", line)
        for leg in legs
        for line in leg.baton.splitlines()
        if line.strip()
    )
    return make_table("Batons", "To session, What it was told", rows)


def _list_compactions(legs: Sequence[LegFigures]) -> Table:
    columns = "`Session`, #Turn, #Before, #After, Most of what went"
    rows = (
        (
            cut_id(leg.session_id),
            render_number(fall.turn),
            render_tokens(fall.before_tokens),
            render_tokens(fall.after_tokens),
            list_some([f"{source} {render_tokens(n)}" for source, n in fall.dropped], 4),
        )
        for leg in legs
        for fall in leg.compactions
    )
    return make_table("Compactions", columns, rows)


def show_hand_offs(hand_offs: Sequence[FreshStart]) -> Chapter:
    """Show the cost and the saving of each fresh session."""
    paid_off = [step for step in hand_offs if step.saved_usd is not None and step.saved_usd > 0]
    known = [step.saved_usd for step in hand_offs if step.saved_usd is not None]
    lead = (
        "A fresh session pays for its prefix B and for what it reads again, O; each of its R turns then carries less "
        "than the context C of the session before would have been. It has paid off after "
        "R* = (B + O) · write / ((C − B − O) · read) turns."
    )
    if hand_offs:
        share = f"{len(paid_off)} of {count(len(hand_offs), 'fresh start')} paid off"
        lead += f" {share}, {render_signed_usd(sum(known))} in all."
    columns = "Phase, `From → to`, #C, #B, #O, #Turns R, #Break-even R*, #Not carried, #Net"
    rows = [
        (
            step.phase_id or NOTHING,
            f"{cut_id(step.from_session)} → {cut_id(step.to_session)}",
            render_tokens(step.context_tokens),
            render_tokens(step.prefix_tokens),
            render_tokens(step.orientation_tokens),
            render_number(step.turns),
            render_turns(step.break_even_turns),
            render_signed_tokens(step.saved_tokens),
            render_signed_usd(step.saved_usd),
        )
        for step in hand_offs
    ]
    tables = (make_table("Fresh starts", columns, rows),)
    return Chapter(name="hand-offs", title="Hand-offs", lead=lead, tables=tables)


def show_cache(figures: Figures) -> Chapter:
    """Show the tokens that came from the cache."""
    totals = figures.totals
    usage = totals.spent.usage
    lead = (
        f"{render_share(totals.cache_hit)} of all prompt tokens were read from the cache; above "
        f"{render_share(HEALTHY_CACHE)} (dashed) is healthy. A session's first prompt is written, not read."
    )
    amounts: Mapping[str, int] = {
        "read from the cache": usage.cache_read_tokens,
        "written for five minutes": usage.cache_write_5m_tokens,
        "written for an hour": usage.cache_write_1h_tokens,
        "neither": usage.input_tokens,
    }
    rows = [(name, render_tokens(n), render_share(n / usage.prompt_tokens)) for name, n in amounts.items() if n]
    rows.append(("times that less was read than promised", render_number(totals.cache_breaks), NOTHING))
    if totals.refreshes:
        cost = render_usd(totals.refresh_usd)
        rows.append(("requests that kept it through a wait", render_number(totals.refreshes), cost))
    table = make_table("Prompt tokens", "What, #Amount, #Share", rows)
    return Chapter(name="cache", title="Cache", lead=lead, plots=_plot_cache(figures.legs), tables=(table,))


def _plot_cache(legs: Sequence[LegFigures]) -> tuple[Plot, ...]:
    if not legs:
        return ()
    label = "Part of each prompt that came from the cache; the table has the sums"
    legend = ((Ink.FILL, "read from the cache, of one prompt"), (Ink.SOFT, f"{render_share(HEALTHY_CACHE)} (dashed)"))
    plot = make_plot(
        "draw_cache", legs, mark_phases(legs), name="cache-plot", label=label, legend=legend, caption=PHASES_BELOW
    )
    return (plot,)

"""The sections on context, phases, hand-offs and cache; on tokens by source and their cost; on tools."""

from collections.abc import Mapping, Sequence

from relay.base.values import dataclass
from relay.base.words import UNKNOWN, count, list_some, render_duration, render_tokens, render_usd
from relay.insight.database import Row
from relay.insight.figures import DRIFT_WARNING, HEALTHY_CACHE, Figures
from relay.insight.report.blocks import (
    NOTHING,
    SERIES,
    Bar,
    Chapter,
    Details,
    Ink,
    Plot,
    Span,
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
from relay.insight.report.plots import draw_bars, draw_cache, draw_contexts, draw_spans
from relay.session.recall import LARGE_TOKENS

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
    sessions = figures.sessions
    crossed, peak = figures.totals.crossings, max((session.peak_tokens or 0 for session in sessions), default=0)
    lead = (
        f"{count(len(sessions), 'session')}, each a rising line: a fresh context fills turn by turn until the session "
        f"hands over or ends. {count(crossed, 'session')} crossed the hand-off line; the fullest held "
        f"{render_tokens(peak)} tokens."
    )
    plots = (plot_contexts(sessions),) if sessions else ()
    tables = (_list_compactions(sessions),) if any(session.compactions for session in sessions) else ()
    return Chapter(name="context", title="Context", lead=lead, plots=plots, tables=tables)


def show_decay(figures: Figures) -> Chapter:
    """Show how far each context had decayed at its last answer, its layers, and what of it was used."""
    sessions = figures.sessions
    tables = (_list_decay(sessions), _list_layers(sessions), _list_retrieved(sessions))
    lead = "What filled each context at its last answer, how much of it was of use, and how far the line was."
    return Chapter(name="decay", title="State of the contexts", lead=lead, tables=tables, folds=(_explain_decay(),))


def _list_decay(sessions: Sequence[Row]) -> Table:
    """List the state of each session's context at its last answer."""
    columns = (
        "`Session`, #History, #Distance, #Growth, #Turns left, #Superseded, #Unused, #Cut off, #Signal, #Decisions"
    )
    rows = (
        (
            cut_id(session.session_id),
            _mark("history", session.history_share, render_share(session.history_share)),
            _mark("distance", session.distance_tokens, render_tokens(session.distance_tokens)),
            render_tokens(None if session.growth_tokens is None else round(session.growth_tokens)),
            _mark("turns left", left := session.turns_left, NOTHING if left is None else render_number(left)),
            render_tokens(session.superseded_tokens),
            render_tokens(session.unused_tokens),
            render_tokens(session.cut_tokens),
            _mark("signal", session.signal, render_share(session.signal)),
            NOTHING if (density := session.decision_density) is None else f"{density:.2f}",
        )
        for session in sessions
    )
    return make_table("State of each context at its last answer", columns, rows)


def _list_layers(sessions: Sequence[Row]) -> Table:
    """List the layers of all last contexts, each with the session that has the most of it."""
    rows = []
    whole = sum(layer.tokens for session in sessions for layer in session.layers)
    for found in zip(*(session.layers for session in sessions if session.layers), strict=True):
        largest = max(found, key=lambda layer: layer.tokens)
        cuts = [layer.cut_tokens for layer in found]
        over = sum(layer.tokens > layer.most_tokens for layer in found)
        rows.append(
            (
                largest.name,
                render_share(sum(layer.tokens for layer in found) / whole if whole else None),
                render_tokens(largest.tokens),
                render_tokens(largest.most_tokens),
                f"{render_number(over)}{' !' * (over > 0)}",
                UNKNOWN if None in cuts else render_tokens(sum(cut or 0 for cut in cuts)),
            )
        )
    columns = "Layer, #Share of contexts, #Largest, #Should take, #Sessions over it, #Cut"
    return make_table("Layers of the contexts at their last answers", columns, rows)


def _mark(name: str, figure: float | None, text: str) -> str:
    return f"{text}{' !' * THRESHOLDS[name].is_crossed(figure)}"


def _list_retrieved(sessions: Sequence[Row]) -> Table:
    rows = []
    for kind, words in _KINDS.items():
        found = [vars(one) for session in sessions for one in session.retrieved if one.kind == kind]
        if not found:
            continue
        shown, used, tokens = (sum(one[name] for one in found) for name in ("shown", "used", "tokens"))
        rate = render_share(used / shown if shown else None)
        rows.append((words, render_number(shown), render_number(used), rate, render_tokens(tokens)))
    return make_table("What sessions were shown, and used", "What, #Shown, #Used, #Hit rate, #Tokens", rows)


_KINDS = {
    "file": "files read",
    "ledger": "claims in the first message",
    "preload": "files in the first message",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """From where on a person should look at a figure; it stops or steers no run."""

    value: float
    is_most: bool
    """Whether larger figures are worse."""
    source: str

    def is_crossed(self, figure: float | None) -> bool:
        """Return whether a figure is beyond the threshold; an unknown one is not."""
        return figure is not None and (figure > self.value if self.is_most else figure < self.value)


_CLAUDE_LAB = "When a Long-Running Agent's Context Quietly Decays"
_SPECTRE = "ContextSpectre, cleaning cadence"
THRESHOLDS: Mapping[str, Threshold] = {
    "history": Threshold(value=0.8, is_most=True, source=_CLAUDE_LAB),
    "distance": Threshold(value=150_000, is_most=True, source=_CLAUDE_LAB),
    "turns left": Threshold(value=10, is_most=False, source=f"{_SPECTRE}: proximity"),
    "signal": Threshold(value=0.7, is_most=False, source=f"{_SPECTRE}: noise above 30 % is overdue"),
}
_DEFINITIONS = (
    ("History", "answers, calls, results and relay's words, as part of the room from the first prompt to the line"),
    ("Distance", "tokens from the end of role, tools and rules to the newest turn"),
    ("Growth, turns left", "tokens of context per turn, and the turns until the line at that growth"),
    ("Superseded", "results of calls made again, and parts of files shown again"),
    ("Unused", f"results over {render_tokens(LARGE_TOKENS)} tokens of which no later call names a path or a line"),
    ("Cut off", "output that the cap on results kept out"),
    ("Signal", "the part of history that is neither superseded nor unused"),
    ("Decisions", "ticks, records, amendments and commits per turn"),
    ("Used", "a later call names or changes it; of a file also a line of it, of a claim also the file that it cites"),
)


def _explain_decay() -> Details:
    """Define the figures, and name the source of each mark."""
    rows = (
        (name, f"{'above' if line.is_most else 'below'} {_render_line(line.value)}", line.source)
        for name, line in THRESHOLDS.items()
    )
    table = make_table("A mark (!) says: look closer. It stops nothing.", "Figure, Mark, Source", rows)
    return Details(title="What these figures say", facts=_DEFINITIONS, tables=(table,))


def _render_line(value: float) -> str:
    return render_share(value) if value < 1 else render_tokens(round(value))


def plot_contexts(sessions: Sequence[Row], *, by_session: bool = False, most: float = 0) -> Plot:
    """Plot sessions, labelled by phase or (`by_session`) by number; `most` is the least height in tokens."""
    marks = [(n, str(session.number)) for n, session in enumerate(sessions)] if by_session else mark_phases(sessions)
    return draw_contexts(
        sessions,
        marks,
        label=f"Context of {count(len(sessions), 'session')}, turn by turn; the tables have the figures",
        most=most,
        legend=_CONTEXT_LEGEND,
        caption="Left to right: turns; the number below is the session that begins." if by_session else PHASES_BELOW,
    )


PHASES_BELOW = "Left to right: turns; the number below is the phase that begins."


def mark_phases(sessions: Sequence[Row]) -> list[tuple[int, str]]:
    """Return the positions of sessions where a phase begins, with the phase's id."""
    return [
        (n, session.phase_id or session.title or NOTHING)
        for n, session in enumerate(sessions)
        if not n or sessions[n - 1].phase_id != session.phase_id
    ]


def show_phases(figures: Figures) -> Chapter:
    """Show each phase as a row, and folded with its sessions."""
    sessions: dict[str, list[Row]] = {}
    for session in figures.sessions:
        sessions.setdefault(session.phase_id, []).append(session)
    columns = "Phase, State, #Sessions, #Turns, #Tokens in, #Cost, #Per decision, #Peak, #Red gates, #Drift"
    worked = [phase for phase in figures.phases if phase.sessions or phase.turns]
    rows = [_list_cells(phase, sessions.get(phase.phase_id, ())) for phase in worked]
    folds = tuple(
        _fold_phase(phase, sessions.get(phase.phase_id, ())) for phase in worked[:MOST_FOLDS] if phase.sessions
    )
    lead = (
        "Drift is the share of changed files that the phase's items do not name; "
        f"look closer above {render_share(DRIFT_WARNING)}."
    )
    tables = (make_table("Phases", columns, rows),)
    return Chapter(name="phases", title="Phases", lead=lead, tables=tables, folds=folds)


def _name_phase(phase: Row) -> str:
    return f"{phase.phase_id} {phase.title}".strip() or "outside phases"


def _list_cells(phase: Row, sessions: Sequence[Row]) -> tuple[str, ...]:
    totals = work = phase
    peaks = [session.peak_tokens for session in sessions if session.peak_tokens is not None]
    return (
        _name_phase(phase),
        "done" if work.is_done else f"{len(work.ticked)} of {len(work.items)}" if work.items else NOTHING,
        render_number(phase.sessions),
        render_number(totals.turns),
        render_tokens(totals.prompt_tokens),
        render_usd(totals.cost_usd, estimated=totals.estimated),
        render_per_decision(totals),
        render_tokens(max(peaks)) if peaks else NOTHING,
        f"{work.red_gates} of {work.gates}",
        f"{render_share(work.drift)}{' !' if (work.drift or 0) > DRIFT_WARNING else ''}",
    )


def _fold_phase(phase: Row, sessions: Sequence[Row]) -> Details:
    totals = work = phase
    facts = {
        "Boxes ticked": f"{len(work.ticked)} of {len(work.items)}",
        "Commits": list_some([commit[:9] for commit in work.commit_ids]),
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
        plots=(plot_contexts(sessions, by_session=True),) if sessions else (),
        tables=(_list_sessions(sessions), _list_handoff_notes(sessions)),
    )


def _list_sessions(sessions: Sequence[Row]) -> Table:
    columns = "Session, Began, #Took, #Turns, #First prompt, #Peak, #Cost, #Signal, Why it began, How it ended"
    rows = (
        (
            f"{session.number} ({cut_id(session.session_id)})",
            render_time(session.began),
            render_length(session.began, session.ended),
            render_number(session.turns),
            render_tokens(session.first_tokens),
            render_tokens(session.peak_tokens),
            render_usd(session.cost_usd, estimated=session.estimated),
            render_share(session.signal),
            session.reason,
            f"{session.result}: {session.detail}" if session.detail else session.result or "cut off",
        )
        for session in sessions
    )
    return make_table("Sessions", columns, rows)


def _list_handoff_notes(sessions: Sequence[Row]) -> Table:
    """List each session's handoff note line by line."""
    rows = (
        (f"{session.number} ({cut_id(session.session_id)})", line)
        for session in sessions
        for line in session.handoff_note.splitlines()
        if line.strip()
    )
    return make_table("Handoff notes", "To session, Note", rows)


def _list_compactions(sessions: Sequence[Row]) -> Table:
    columns = "`Session`, #Turn, #Before, #After, Largest losses"
    rows = (
        (
            cut_id(session.session_id),
            render_number(fall.turn),
            render_tokens(fall.before_tokens),
            render_tokens(fall.after_tokens),
            list_some([f"{source} {render_tokens(n)}" for source, n in fall.dropped.items()], 4),
        )
        for session in sessions
        for fall in session.compactions
    )
    return make_table("Compactions", columns, rows)


def show_hand_offs(hand_offs: Sequence[Row]) -> Chapter:
    """Show the cost and the saving of each fresh session."""
    paid_off = [step for step in hand_offs if step.saved_usd is not None and step.saved_usd > 0]
    known = [step.saved_usd for step in hand_offs if step.saved_usd is not None]
    lead = (
        "A fresh session pays for its prefix B and for O, what it reads again. In each of its R turns it then carries "
        "less than C, the context of the session before. It pays off after "
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
    usage = totals
    lead = (
        f"{render_share(totals.cache_hit)} of all prompt tokens were read from the cache; above "
        f"{render_share(HEALTHY_CACHE)} (dashed) is healthy. A session's first prompt is written to the cache."
    )
    amounts: Mapping[str, int] = {
        "read from the cache": usage.cache_read_tokens,
        "written for five minutes": usage.cache_write_5m_tokens,
        "written for an hour": usage.cache_write_1h_tokens,
        "neither": usage.input_tokens,
    }
    rows = [(name, render_tokens(n), render_share(n / usage.prompt_tokens)) for name, n in amounts.items() if n]
    rows.append(("cache misses: less read than expected", render_number(totals.cache_breaks), NOTHING))
    table = make_table("Prompt tokens", "What, #Amount, #Share", rows)
    return Chapter(name="cache", title="Cache", lead=lead, plots=_plot_cache(figures.sessions), tables=(table,))


def _plot_cache(sessions: Sequence[Row]) -> tuple[Plot, ...]:
    if not sessions:
        return ()
    label = "Part of each prompt that came from the cache; the table has the sums"
    legend = ((Ink.FILL, "read from the cache, of one prompt"), (Ink.SOFT, f"{render_share(HEALTHY_CACHE)} (dashed)"))
    plot = draw_cache(
        sessions,
        mark_phases(sessions),
        label=label,
        legend=legend,
        caption=PHASES_BELOW,
    )
    return (plot,)


_ROWS = 8
"""Tools with a row of their own; calls of other tools share one."""
_OTHERS = "others"
_COSTLIEST = 20


def show_tools(figures: Figures) -> Chapter:
    """Show when tools ran, and the size of their results."""
    columns = "Tool, #Calls, #Errors, #Time, #Tokens of results, #Repeats, #Tokens of repeats"
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
        for session in figures.sessions
        for span in session.spans
    ]
    if not spans:
        return ()
    lines = list(dict.fromkeys([*rows, *(span.row for span in spans)]))

    label = "When each tool ran; the table has the sums"
    caption = "Left to right: minutes since the first call. Very short calls are drawn longer."
    legend = ((Ink.S1, "answered"), (Ink.BAD, "with an error"))
    return (draw_spans(spans, lines, label=label, legend=legend, caption=caption),)


def show_reads(figures: Figures) -> Chapter:
    """Show repeated reads and the largest results."""
    totals = figures.totals
    lead = (
        f"{count(totals.duplicate_reads, 'time')} a session saw the same part of an unchanged file again: "
        f"{render_tokens(totals.duplicate_tokens)} tokens. {count(totals.ghost_edits, 'file')} changed by a session "
        "that had not seen the file, while an earlier session had."
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
    )


_TOOLS_SHOWN = 3
"""Tools with a colour of their own, those with the largest results."""
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "role, tools and rules": ("system", "tools", "rules", "skills", "environment", "relay"),
    "plan, notes and ledger": ("plan", "phase", "handoff_note", "ledger", "preload", "review", "steering"),
    "answers and calls": ("history",),
}
_TOOL = "tool "
_OTHER_TOOLS = "results of other tools"
_OTHER = "other"
_BELOW = "The number below is the phase."


def show_sources(figures: Figures) -> Chapter:
    """Show the prompts by source of tokens."""
    whole = figures.totals.prompt_tokens
    rows = [(name, render_tokens(n), render_share(n / whole)) for name, n in figures.totals.sources.items()]
    table = make_table("All prompts", "Source, #Tokens, #Share", rows)
    lead = (
        f"{count(figures.totals.turns, 'turn')} sent {render_tokens(whole)} tokens; every turn sends the whole "
        f"context, so {render_tokens(figures.totals.carried_tokens)} of them had been sent before in the same session. "
        "relay estimates the parts by size and scales them to the endpoint's count; “history” is the rest: answers, "
        "calls and thinking."
    )
    plots = (plot_sources(figures),) if rows else ()
    return Chapter(name="sources", title="Tokens by source", lead=lead, plots=plots, tables=(table,))


def plot_sources(figures: Figures, ranked: Sequence[str] = (), most: float = 0) -> Plot:
    """Plot the prompts of each phase by source.

    Args:
        ranked: Sources in the order of their colours; empty for those of the figures.
        most: The least height in tokens.
    """
    groups = group_sources(ranked or [*figures.totals.sources])
    inks = dict(zip(dict.fromkeys(groups.values()), SERIES, strict=False))
    bars = [_stack(phase, groups, inks) for phase in figures.phases if phase.sources]
    label = "Tokens of all prompts by source and phase; the table has the sums"
    legend = tuple((ink, group) for group, ink in inks.items())
    return draw_bars(bars, dollars=False, label=label, most=most, legend=legend, caption=_BELOW)


def group_sources(ranked: Sequence[str]) -> Mapping[str, str]:
    """Map each source to the group that it is drawn in.

    Args:
        ranked: Sources, most tokens first.
    """
    shown = [source for source in ranked if source.startswith(_TOOL)][:_TOOLS_SHOWN]
    named = {source: name for name, members in _GROUPS.items() for source in members}
    named |= {source: f"results of {source.removeprefix(_TOOL)}" for source in shown}
    groups = {source: named.get(source, _OTHER_TOOLS if source.startswith(_TOOL) else _OTHER) for source in ranked}
    order = [*_GROUPS, *(named[source] for source in shown), _OTHER_TOOLS, _OTHER]
    return dict(sorted(groups.items(), key=lambda pair: order.index(pair[1])))


def _stack(phase: Row, groups: Mapping[str, str], inks: Mapping[str, Ink]) -> Bar:
    parts = dict.fromkeys(inks.values(), 0)
    for source, tokens in phase.sources.items():
        parts[inks[groups.get(source, _OTHER)]] += tokens
    return Bar(label=phase.phase_id or NOTHING, parts=tuple((ink, float(n)) for ink, n in parts.items() if n))


def show_cost(figures: Figures) -> Chapter:
    """Show the cost of each phase and of a decision."""
    phases = [phase for phase in figures.phases if phase.cost_usd is not None and phase.turns]
    plots = _plot_money(phases) if phases else ()
    totals = figures.totals
    lead = f"{render_per_decision(totals)} per decision. A decision is a tick, a record, an amendment or a commit."
    rows = [
        (
            "context carried from turn to turn, at the price of a cache read",
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
    if totals.explored_tokens:
        words = f"explorers, which answered {count(totals.explored, 'question')}"
        rows.append((words, render_tokens(totals.explored_tokens), render_usd(totals.explored_usd)))
    tables = [make_table("Cost of carried context", "What, #Tokens, #Cost", rows)]
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
        tables.append(make_table("Forecast, at the cost per item so far", columns, [row]))
    return Chapter(name="cost", title="Cost", lead=lead, plots=plots, tables=tuple(tables))


def _plot_money(phases: Sequence[Row]) -> tuple[Plot, ...]:
    def plot(ink: Ink, what: str, costs: Sequence[float | None], label: str, caption: str) -> Plot:
        bars = [
            Bar(label=phase.phase_id or NOTHING, parts=((ink, usd or 0.0),))
            for phase, usd in zip(phases, costs, strict=True)
        ]
        return draw_bars(bars, dollars=True, label=label, legend=((ink, what),), caption=caption)

    costs, each = zip(*((p.cost_usd, p.usd_per_decision) for p in phases), strict=True)
    said = "Cost per decision of each phase"
    return (
        plot(Ink.S1, "cost of the phase", costs, "Cost of each phase; as in the table of phases", _BELOW),
        plot(Ink.S5, "cost per decision", each, said, f"{_BELOW} No bar: no decision."),
    )

"""The sections on context, phases and cache; on tokens by source and their cost; on tools."""

from collections.abc import Mapping, Sequence

from relay.base.words import count, list_some, render_duration, render_tokens, render_usd
from relay.insight.database import Row
from relay.insight.figures import DRIFT_WARNING, HEALTHY_CACHE, Figures, sum_retrieved
from relay.insight.report.blocks import (
    NOTHING,
    SERIES,
    THRESHOLDS,
    Chapter,
    Ink,
    Plot,
    Table,
    cut_id,
    list_rows,
    make_table,
    render_number,
    render_per_decision,
    render_share,
)
from relay.insight.report.plots import draw_bars, draw_contexts
from relay.session.recall import LARGE_TOKENS

MOST_FOLDS = 60
"""Phases with a folded part; further phases have only their row in the table."""


def show_context(figures: Figures) -> Chapter:
    """Show how full the context was, session by session."""
    sessions = figures.sessions
    crossed, peak = figures.totals.crossings, max((session.peak_tokens or 0 for session in sessions), default=0)
    lead = (
        f"{count(len(sessions), 'session')}, each a rising line: a fresh context fills turn by turn until the session "
        f"hands over or ends. {count(crossed, 'session')} crossed the hand-off line; the fullest held "
        f"{render_tokens(peak)} tokens."
    )
    columns = (
        "`Session {session_id:id} | #Turn {turn:n} | #Before {before_tokens:tokens} | #After {after_tokens:tokens} | "
        "Largest losses {dropped:sources}"
    )
    falls = [Row(session_id=one.session_id, **vars(fall)) for one in sessions for fall in one.compactions]
    tables = (list_rows("Compactions", columns, falls),)
    plots = (draw_contexts(sessions),) if sessions else ()
    return Chapter(name="context", title="Context", lead=lead, plots=plots, tables=tables)


_DECAY = (
    "`Session {session_id:id} | #History {history_share:share}{history_share:!history} | "
    "#Distance {distance_tokens:tokens}{distance_tokens:!distance} | #Growth {growth_tokens:tokens} | "
    "#Turns left {turns_left:n}{turns_left:!turns left} | #Superseded {superseded_tokens:tokens} | "
    "#Unused {unused_tokens:tokens} | #Cut off {cut_tokens:tokens} | #Signal {signal:share}{signal:!signal} | "
    "#Decisions {decision_density:part}"
)


def show_decay(figures: Figures) -> Chapter:
    """Show how far each context had decayed at its last answer, its layers, and what of it was used."""
    sessions = figures.sessions
    state = list_rows("State of each context at its last answer", _DECAY, sessions)
    marks = (
        (
            name,
            f"{'above' if is_most else 'below'} {render_share(value) if value < 1 else render_tokens(round(value))}",
            source,
        )
        for name, (value, is_most, source) in THRESHOLDS.items()
    )
    table = make_table("A mark (!) says: look closer. It stops nothing.", "Figure, Mark, Source", marks)
    lead = "What filled each context at its last answer, how much of it was of use, and how far the line was."
    return Chapter(
        name="decay",
        title="State of the contexts",
        lead=lead,
        tables=(state, _list_layers(sessions), _list_retrieved(sessions)),
        folds=(Chapter(title="What these figures say", facts=_DEFINITIONS, tables=(table,)),),
    )


def _list_layers(sessions: Sequence[Row]) -> Table:
    """List the layers of all last contexts, each with the session that has the most of it."""
    rows = []
    whole = sum(layer.tokens for session in sessions for layer in session.layers)
    for found in zip(*(session.layers for session in sessions if session.layers), strict=True):
        largest = max(found, key=lambda layer: layer.tokens)
        cuts, tokens = [layer.cut_tokens for layer in found], sum(layer.tokens for layer in found)
        over = sum(layer.tokens > layer.most_tokens for layer in found)
        sums = {"part": tokens / whole if whole else None, "over": over, "mark": " !" * (over > 0)}
        rows.append(Row(**{**vars(largest), **sums, "cut_tokens": None if None in cuts else sum(cuts)}))
    columns = (
        "Layer {name} | #Share of contexts {part:share} | #Largest {tokens:tokens} | "
        "#Should take {most_tokens:tokens} | #Sessions over it {over:n}{mark} | #Cut {cut_tokens:tokens}"
    )
    return list_rows("Layers of the contexts at their last answers", columns, rows)


def _list_retrieved(sessions: Sequence[Row]) -> Table:
    found = sum_retrieved(sessions)
    rows = [Row(**vars(one), what=_KINDS[one.kind], rate=one.used / one.shown if one.shown else None) for one in found]
    columns = "What {what} | #Shown {shown:n} | #Used {used:n} | #Hit rate {rate:share} | #Tokens {tokens:tokens}"
    return list_rows("What sessions were shown, and used", columns, rows)


_KINDS = {
    "file": "files read",
    "ledger": "claims in the first message",
    "preload": "files in the first message",
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


_PHASES = (
    "Phase {name} | State {state} | #Sessions {sessions:n} | #Turns {turns:n} | #Tokens in {prompt_tokens:tokens} | "
    "#Cost {0:cost} | #Per decision {0:each} | #Peak {peak} | #Red gates {red_gates} of {gates} | "
    "#Drift {drift:share}{mark}"
)
_SESSIONS = (
    "Session {number} ({session_id:id}) | Began {began:at} | #Took {took_s:s} | #Turns {turns:n} | "
    "#First prompt {first_tokens:tokens} | #Peak {peak_tokens:tokens} | #Cost {0:cost} | #Signal {signal:share} | "
    "Why it began {reason} | How it ended {how}"
)


def show_phases(figures: Figures) -> Chapter:
    """Show each phase as a row, and folded with its sessions."""
    rows, folds = [], []
    for phase in figures.phases:
        sessions = [session for session in figures.sessions if session.phase_id == phase.phase_id]
        if not (phase.sessions or phase.turns):
            continue
        name = f"{phase.phase_id} {phase.title}".strip() or "outside phases"
        peaks = [session.peak_tokens for session in sessions if session.peak_tokens is not None]
        ticked = f"{len(phase.ticked)} of {len(phase.items)}"
        state = "done" if phase.is_done else ticked if phase.items else NOTHING
        peak = render_tokens(max(peaks)) if peaks else NOTHING
        mark = " !" * ((phase.drift or 0) > DRIFT_WARNING)
        rows.append(Row(**vars(phase), name=name, state=state, peak=peak, mark=mark))
        if phase.sessions and len(rows) <= MOST_FOLDS:
            folds.append(_fold_phase(name, ticked, phase, sessions))
    lead = (
        "Drift is the share of changed files that the phase's items do not name; "
        f"look closer above {render_share(DRIFT_WARNING)}."
    )
    tables = (list_rows("Phases", _PHASES, rows),)
    return Chapter(name="phases", title="Phases", lead=lead, tables=tables, folds=tuple(folds))


def _fold_phase(name: str, ticked: str, phase: Row, sessions: Sequence[Row]) -> Chapter:
    facts = {
        "Boxes ticked": ticked,
        "Commits": list_some([cut_id(commit) for commit in phase.commit_ids]),
        "Gates": f"{phase.gates}, {phase.red_gates} red, {count(phase.repairs, 'repair')}",
        "Files": list_some(phase.touched),
        "Not named by items": list_some(phase.strayed),
        "Decisions": f"{count(phase.ticks, 'tick')}, {count(phase.records, 'record')}, "
        f"{count(phase.amendments, 'amendment')}, {count(phase.commits, 'commit')}",
        "Time": f"answers {render_duration(phase.answer_s)}, tools {render_duration(phase.tools_s)}, "
        f"gates {render_duration(phase.gates_s)}",
        "Read again": f"{count(phase.duplicate_reads, 'part')}, {render_tokens(phase.duplicate_tokens)} tokens",
        "Edited unseen": count(phase.ghost_edits, "file") if phase.ghost_edits else "",
    }
    rows, notes = [], []
    for session in sessions:
        took = None if session.ended is None else session.ended - session.began
        how = f"{session.result}: {session.detail}" if session.detail else session.result or "cut off"
        rows.append(Row(**vars(session), took_s=took, how=how))
        lines = (line for line in session.handoff_note.splitlines() if line.strip())
        notes += [Row(**vars(session), line=line) for line in lines]
    return Chapter(
        title=name,
        facts=tuple((fact, text) for fact, text in facts.items() if text),
        plots=(draw_contexts(sessions, by_session=True),) if sessions else (),
        tables=(
            list_rows("Sessions", _SESSIONS, rows),
            list_rows("Handoff notes", "To session {number} ({session_id:id}) | Note {line}", notes),
        ),
    )


def show_cache(figures: Figures) -> Chapter:
    """Show the tokens that came from the cache."""
    totals, healthy = figures.totals, render_share(HEALTHY_CACHE)
    lead = (
        f"{render_share(totals.cache_hit)} of all prompt tokens were read from the cache; above {healthy} is "
        "healthy. A session's first prompt is written to the cache."
    )
    amounts: Mapping[str, int] = {
        "read from the cache": totals.cache_read_tokens,
        "written for five minutes": totals.cache_write_5m_tokens,
        "written for an hour": totals.cache_write_1h_tokens,
        "neither": totals.input_tokens,
    }
    rows = [(name, render_tokens(n), render_share(n / totals.prompt_tokens)) for name, n in amounts.items() if n]
    rows.append(("cache misses: less read than expected", render_number(totals.cache_breaks), NOTHING))
    table = make_table("Prompt tokens", "What, #Amount, #Share", rows)
    return Chapter(name="cache", title="Cache", lead=lead, tables=(table,))


_COSTLIEST = 20


def show_tools(figures: Figures) -> Chapter:
    """Show how often and how long tools ran, the size of their results, and what was read again."""
    totals = figures.totals
    lead = (
        f"{count(totals.calls, 'call')}, {count(totals.errors, 'error')}. "
        f"{count(totals.duplicate_reads, 'time')} a session saw the same part of an unchanged file again: "
        f"{render_tokens(totals.duplicate_tokens)} tokens. {count(totals.ghost_edits, 'file')} changed by a session "
        "that had not seen the file, while an earlier session had."
    )
    columns = (
        "Tool {name} | #Calls {calls:n} | #Errors {errors:n} | #Time {duration_s:s} | "
        "#Tokens of results {result_tokens:tokens} | #Repeats {duplicates:n} | "
        "#Tokens of repeats {duplicate_tokens:tokens}"
    )
    costliest = sorted((r for tool in figures.tools for r in tool.costliest), key=lambda r: -r.tokens)[:_COSTLIEST]
    results = "Tool {tool} | `Call {summary} | #Tokens {tokens:tokens} | `Session {session_id:id} | #Turn {turn:n}"
    tables = (list_rows("Tools", columns, figures.tools), list_rows("The costliest results", results, costliest))
    return Chapter(name="tools", title="Tools", lead=lead, tables=tables)


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
    plots = (_plot_sources(figures),) if rows else ()
    return Chapter(name="sources", title="Tokens by source", lead=lead, plots=plots, tables=(table,))


def _plot_sources(figures: Figures) -> Plot:
    """Stack the prompts of each phase; the smallest sources share a colour."""
    *own, rest = SERIES
    inks = dict(zip(figures.totals.sources, own, strict=False))
    smaller = len(figures.totals.sources) > len(inks)
    bars = list[tuple[str, dict[Ink, int]]]()
    for phase in (phase for phase in figures.phases if phase.sources):
        sizes = dict.fromkeys([*inks.values(), rest], 0)
        for source, tokens in phase.sources.items():
            sizes[inks.get(source, rest)] += tokens
        bars.append((phase.phase_id or NOTHING, sizes))
    label = "Tokens of all prompts by source and phase; the table has the sums"
    legend = (*((ink, source) for source, ink in inks.items()), *([(rest, "smaller sources")] if smaller else []))
    return draw_bars(bars, label=label, legend=legend, caption="The number below is the phase.")


def show_cost(figures: Figures) -> Chapter:
    """Show the cost of each phase and of a decision."""
    totals = figures.totals
    lead = f"{render_per_decision(totals)} per decision. A decision is a tick, a record, an amendment or a commit."
    rows = [
        ("context carried from turn to turn, at the price of a cache read", totals.carried_tokens, totals.carried_usd),
        ("re-read tax: superseded results, sent again with each turn", totals.tax_tokens, totals.tax_usd),
        ("duplicate reads", totals.duplicate_tokens, NOTHING),
    ]
    if totals.explored_tokens:
        words = f"explorers, which answered {count(totals.explored, 'question')}"
        rows.append((words, totals.explored_tokens, totals.explored_usd))
    cells = ((words, render_tokens(n), usd if usd == NOTHING else render_usd(usd)) for words, n, usd in rows)
    tables = [make_table("Cost of carried context", "What, #Tokens, #Cost", cells)]
    if (forecast := figures.forecast) and forecast.phases:
        low, high = render_usd(forecast.low_usd), render_usd(forecast.high_usd)
        row = Row(**vars(forecast), range=NOTHING if forecast.low_usd is None else f"{low} to {high}")
        columns = "#Phases {phases:n} | #Open items {items:n} | #Cost {usd:usd} | Range {range}"
        tables.append(list_rows("Forecast, at the cost per item so far", columns, [row]))
    return Chapter(name="cost", title="Cost", lead=lead, tables=tuple(tables))

"""Build the page from figures: of one plan's runs, of two runs side by side, or of another agent's transcript.

Both the HTML page and the terminal's report are written from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relay.base.words import UNKNOWN, count, list_some, render_duration, render_usd
from relay.insight.database import Row
from relay.insight.figures import DRIFT_WARNING, Figures
from relay.insight.report.blocks import (
    FORMATS,
    NOTHING,
    Card,
    Chapter,
    Ink,
    Page,
    cut_id,
    list_rows,
    make_table,
    render_per_decision,
    render_share,
    render_time,
)
from relay.insight.report.chapters import (
    plot_contexts,
    plot_sources,
    show_cache,
    show_context,
    show_cost,
    show_decay,
    show_hand_offs,
    show_phases,
    show_reads,
    show_sources,
    show_tools,
)
from relay.insight.report.evidence import (
    Beliefs,
    ReadLeftFile,
    count_findings,
    list_contradictions,
    show_beliefs,
    show_evidence,
    show_reviews,
)

_BESIDE_PHASES = {
    "plan": "relay worked on a plan",
    "converge": "relay compared the plan with the repository",
    "review": "relay reviewed a change",
}
"""Commands that work on no phase; their logs do not say how many phases are left."""
_LATEST = 5
"""Most commits and warnings at the head of the page."""


def list_facts(figures: Figures) -> tuple[tuple[str, str], ...]:
    """Return the names and texts at the head of the page."""
    if not figures.runs:
        return ()
    first, last = figures.runs[0], _get_last(figures.runs)
    models = dict.fromkeys(session.model or run.model for run in figures.runs for session in run.sessions)
    facts = {
        "Plan": last.plan_path,
        "Branch": last.branch,
        "Model": ", ".join(models or [last.model]),
        "Runner": ", ".join(dict.fromkeys(session.runner for session in figures.sessions if session.runner)),
        "Began": f"{render_time(first.began)} UTC",
        "Took": render_duration((last.last_at if last.ended is None else last.ended) - first.began),
        "Runs": ", ".join(run.run_id for run in figures.runs),
        "Sandbox": last.sandbox,
        "Context": last.context,
        "Rehearsed": "a script played the model" if last.rehearsed else "",
    }
    return tuple((name, text) for name, text in facts.items() if text)


def answer_all(figures: Figures, beliefs: Beliefs | None) -> tuple[Card, ...]:
    """Answer the reader's four questions."""
    return (_say_done(figures), _say_stopped(figures), _say_cost(figures), _say_needed(figures, beliefs))


def _say_done(figures: Figures) -> Card:
    question, sessions = (
        "What was done",
        f"{count(len(figures.sessions), 'session')}, {count(figures.totals.turns, 'turn')}",
    )
    commands = dict.fromkeys(run.command for run in figures.runs)
    if commands and commands.keys() <= _BESIDE_PHASES.keys():
        found, confirmed = count_findings(figures.reviews)
        reviewed = (f"{count(found, 'finding')}, {confirmed} confirmed",) if figures.reviews else ()
        return Card(
            question=question, words="; ".join(_BESIDE_PHASES[name] for name in commands), lines=(*reviewed, sessions)
        )
    done = [phase for phase in figures.phases if phase.phase_id and phase.is_done]
    totals = figures.totals
    to_go = figures.forecast.phases if figures.forecast else None
    rest = UNKNOWN if to_go is None else f"{to_go} to go" if to_go else "none to go"
    ticked = f"{count(totals.ticks, 'box', 'boxes')} ticked in {count(totals.commits, 'commit')}"
    commits = [f"{cut_id(tick.commit)} {tick.subject}" for tick in figures.ticks[-_LATEST:]]
    return Card(
        question=question,
        words=f"{count(len(done), 'phase')} done, {rest}",
        lines=(f"{ticked}, {sessions}", *commits),
        ink=Ink.GOOD if to_go == 0 else Ink.TEXT,
    )


def _get_last(runs: Sequence[Row]) -> Row:
    """Return the run that ended last: a run that started jobs ends after them."""
    return max(runs, key=lambda run: run.ended or run.last_at)


def _say_stopped(figures: Figures) -> Card:
    question = "Why it stopped"
    if not figures.runs:
        return Card(question=question, words="The log has no run", ink=Ink.SOFT)
    run = _get_last(figures.runs)
    if run.exit_code is None:
        words = "Its log has no end: killed, or still at work"
        return Card(question=question, words=words, lines=_end_of_last(run), ink=Ink.SOFT)
    ink = {0: Ink.GOOD, 4: Ink.SOFT, 130: Ink.SOFT}.get(run.exit_code, Ink.BAD)
    lines = (f"exit status {run.exit_code}", *_end_of_last(run))
    return Card(question=question, words=run.reason, lines=lines, ink=ink)


def _end_of_last(run: Row) -> tuple[str, ...]:
    if not run.sessions:
        return ()
    session = run.sessions[-1]
    end = f"{session.result or 'cut off'}: {session.detail}" if session.detail else session.result or "cut off"
    return (f"last session: phase {session.phase_id or NOTHING}, session {session.number}, {end}",)


def _say_cost(figures: Figures) -> Card:
    totals, runs, forecast = figures.totals, figures.runs, figures.forecast
    cap = _get_last(runs).cap_usd if runs else None
    cached = f"{render_share(totals.cache_hit)} of them from the cache"
    lines = [
        f"{totals.prompt_tokens:,} tokens in, {cached}, {totals.output_tokens:,} out",
        f"{render_per_decision(totals)} per decision, {count(totals.decisions, 'decision')}",
    ]
    if runs and runs[0].spent_usd:
        lines.append(f"the plan had cost {render_usd(runs[0].spent_usd)} before")
    if forecast and forecast.phases and forecast.usd is not None:
        lines.append(f"{count(forecast.items, 'open item')} may cost {render_usd(forecast.usd)} more")
    if totals.unknown_turns:
        lines.append(f"no sum includes {count(totals.unknown_turns, 'turn')} of unknown usage")
    words = render_usd(totals.cost_usd, estimated=totals.estimated)
    return Card(
        question="What it cost", words=words if cap is None else f"{words} of {render_usd(cap)}", lines=tuple(lines)
    )


def _say_needed(figures: Figures, beliefs: Beliefs | None) -> Card:
    run = _get_last(figures.runs) if figures.runs else None
    strayed = [phase for phase in figures.phases if (phase.drift or 0) > DRIFT_WARNING]
    warnings = [text for found in figures.runs for text in found.warnings]
    lines = [
        *figures.yours,
        *(run.questions if run else ()),
        *(list_contradictions(beliefs) if beliefs else ()),
        *(
            f"phase {phase.phase_id} changed files that its items do not name: {list_some(phase.strayed, 3)}"
            for phase in strayed
        ),
        *warnings,
    ]
    more = (f"and {len(lines) - _LATEST} more, further down",) if len(lines) > _LATEST else ()
    command = run.next_command if run else ""
    words = "Please check this" if lines else "Nothing"
    return Card(
        question="What needs you",
        words="Type this to go on" if command else words,
        lines=(*lines[:_LATEST], *more),
        command=command,
        ink=Ink.SOFT if command or lines else Ink.GOOD,
    )


_FIGURES = {
    "Phases done": "phases_done:n",
    "Boxes ticked": "ticks:n",
    "Commits": "commits:n",
    "Sessions": "sessions:n",
    "Turns": "turns:n",
    "Cost": "cost_usd:usd",
    "Cost per decision": "usd_per_decision:usd",
    "Tokens in": "prompt_tokens:tokens",
    "Tokens out": "output_tokens:tokens",
    "From the cache": "cache_hit:share",
    "Fullest context": "peak_tokens:tokens",
    "Sessions past the line": "crossings:n",
    "Re-read tax, tokens": "tax_tokens:tokens",
    "Duplicate reads": "duplicate_reads:n",
    "Files edited unseen": "ghost_edits:n",
    "Red gates": "red_gates:n",
    "Phases whose first gate was red": "first_gate_red:n",
    "Repairs": "repairs:n",
    "Faults confirmed by reviews": "confirmed:n",
    "Saved by fresh starts": "saved_usd:usd",
    "Time for answers": "answer_s:s",
    "Time in tools": "tools_s:s",
    "Time in gates": "gates_s:s",
}


_SIDES = "A is on the left or above, B on the right or below, on the same scale"


def _sum_up(figures: Figures) -> Mapping[str, Any]:
    """Return what `_FIGURES` names."""
    saved = [step.saved_usd for step in figures.hand_offs]
    phases, peaks = figures.phases, (session.peak_tokens for session in figures.sessions if session.peak_tokens)
    return {
        **vars(figures.totals),
        "phases_done": sum(phase.is_done for phase in phases),
        "sessions": len(figures.sessions),
        "peak_tokens": max(peaks, default=None),
        "red_gates": sum(phase.red_gates for phase in phases),
        "first_gate_red": sum(phase.first_gate_red is True for phase in phases),
        "repairs": sum(phase.repairs for phase in phases),
        "confirmed": sum(review.confirmed for review in figures.reviews),
        "saved_usd": None if None in saved else sum(saved),
    }


def _compare(one: Figures, other: Figures) -> tuple[Chapter, ...]:
    """Show the figures of two runs side by side, with the change from the first to the second."""
    a, b = _sum_up(one), _sum_up(other)
    rows = []
    for name, (column, form) in ((name, spec.split(":")) for name, spec in _FIGURES.items()):
        rows.append((name, FORMATS[form](a[column]), FORMATS[form](b[column]), _render_change(a[column], b[column])))
    facts = dict(list_facts(one)), dict(list_facts(other))
    runs = ((name, *(found.get(name, "") for found in facts)) for name in {**facts[0], **facts[1]})
    of_other = {phase.title: phase for phase in other.phases if phase.sessions}
    both = [Row(a=phase, b=of_other[phase.title]) for phase in one.phases if phase.sessions and phase.title in of_other]
    columns = (
        "Phase {a.phase_id} {a.title} | #Cost A {a.cost_usd:usd} | #Cost B {b.cost_usd:usd} | #Turns A {a.turns:n} | "
        "#Turns B {b.turns:n} | #Red gates A {a.red_gates:n} | #Red gates B {b.red_gates:n}"
    )
    tables = (
        make_table("Runs", "What, A, B", runs),
        make_table("Figures", "Figure, #A, #B, #B against A", rows),
        list_rows("Phases that both worked on", columns, both),
    )
    most = max((session.hard_tokens or 0 for session in (*one.sessions, *other.sessions)), default=0)
    return (
        Chapter(
            name="comparison",
            title="Side by side",
            lead="The same figures of both; the last column is the change from A to B.",
            tables=tables,
        ),
        Chapter(
            name="context",
            title="Context",
            lead=f"{_SIDES}. Each rising line is a session.",
            plots=tuple(plot_contexts(figures.sessions, most=most) for figures in (one, other)),
        ),
        _compare_sources(one, other),
    )


def _compare_sources(one: Figures, other: Figures) -> Chapter:
    rows = [
        Row(source=source, a=one.totals.sources.get(source, 0), b=other.totals.sources.get(source, 0))
        for source in {**one.totals.sources, **other.totals.sources}
    ]
    rows.sort(key=lambda row: (-row.a - row.b, row.source))
    for row in rows:
        row.change = _render_change(row.a, row.b)
    most = max((sum(phase.sources.values()) for f in (one, other) for phase in f.phases), default=0)
    plots = tuple(plot_sources(figures, [row.source for row in rows], most) for figures in (one, other))
    columns = "Source {source} | #A {a:tokens} | #B {b:tokens} | #B against A {change}"
    lead = f"Tokens of all prompts; {_SIDES}."
    tables = (list_rows("All prompts", columns, rows),)
    return Chapter(name="sources", title="Tokens by source", lead=lead, plots=plots, tables=tables)


def _render_change(a: float | None, b: float | None) -> str:
    if a is None or b is None:
        return UNKNOWN
    if a == b:
        return "same"
    return f"{(b - a) / abs(a):+.0%}".replace("-", "−") if a else NOTHING


def make_page(figures: Figures, beliefs: Beliefs | None, read: ReadLeftFile = lambda _name, _sha256: None) -> Page:
    """Make the page of one plan's runs.

    Args:
        beliefs: None if the plan has no ledger, or it cannot be read.
        read: Reads the files that gates left.
    """
    reviews = (show_reviews(figures.reviews),) if figures.reviews else ()
    sections = (show_phases(figures), show_context(figures), show_evidence(figures, read), *reviews)
    more = (
        show_decay(figures),
        show_sources(figures),
        show_cost(figures),
        show_cache(figures),
        show_hand_offs(figures.hand_offs),
        *((show_beliefs(beliefs, figures),) if beliefs else ()),
        show_tools(figures),
        show_reads(figures),
    )
    names = dict.fromkeys(run.plan_path or run.run_id for run in figures.runs)
    return Page(
        title=f"relay: {', '.join(names)}",
        facts=list_facts(figures),
        answers=answer_all(figures, beliefs),
        sections=sections,
        more=more,
    )


def make_comparison(one: Figures, other: Figures) -> Page:
    """Make the page of two runs side by side."""
    answers = tuple(
        replace(answer, question=f"{letter}: {answer.question}")
        for both in zip(answer_all(one, None)[:3], answer_all(other, None)[:3], strict=True)
        for letter, answer in zip("AB", both, strict=True)
    )
    title = " against ".join(", ".join(run.run_id for run in figures.runs) for figures in (one, other))
    return Page(title=f"relay: {title}", facts=(), answers=answers, sections=_compare(one, other))

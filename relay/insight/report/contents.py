"""Build the page from figures: of one plan's runs, of two runs side by side, or of another agent's transcript.

Both the HTML page and the terminal's report are written from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from relay.base.words import UNKNOWN, count, list_some, render_duration, render_tokens, render_usd
from relay.insight.database import Row
from relay.insight.figures import DRIFT_WARNING, Figures
from relay.insight.report.blocks import (
    NOTHING,
    Card,
    Chapter,
    Ink,
    Page,
    Table,
    cut_id,
    make_table,
    render_length,
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
        "Took": render_length(first.began, last.ended if last.ended is not None else last.last_at),
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


_Number = float | int | None


def compare(one: Figures, other: Figures) -> tuple[Chapter, ...]:
    """Show the figures of two runs side by side, with the change from the first to the second."""
    rows = [
        (name, write(a), write(b), _render_change(a, b))
        for name, read, write in _FIGURES
        for a, b in [(read(one), read(other))]
    ]
    columns = "Figure, #A, #B, #B against A"
    lead = "The same figures of both; the last column is the change from A to B."
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
    most = max((session.hard_tokens or 0 for session in (*one.sessions, *other.sessions)), default=0)
    plots = tuple(plot_contexts(figures.sessions, most=most) for figures in (one, other))
    lead = "A is on the left or above, B on the right or below, on the same scale. Each rising line is a session."
    return Chapter(name="context", title="Context", lead=lead, plots=plots)


def _show_sources(one: Figures, other: Figures) -> Chapter:
    a, b = one.totals.sources, other.totals.sources
    both = sorted({**a, **b}, key=lambda source: -(a.get(source, 0) + b.get(source, 0)))
    most = max((sum(phase.sources.values()) for f in (one, other) for phase in f.phases), default=0)
    plots = (plot_sources(one, both, most), plot_sources(other, both, most))
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
    lead = "Tokens of all prompts; A is on the left or above, B on the right or below, on the same scale."
    tables = (make_table("All prompts", columns, rows),)
    return Chapter(name="sources", title="Tokens by source", lead=lead, plots=plots, tables=tables)


def _render_change(a: _Number, b: _Number) -> str:
    if a is None or b is None:
        return UNKNOWN
    if a == b:
        return "same"
    return f"{(b - a) / abs(a):+.0%}".replace("-", "−") if a else NOTHING


def _compare_phases(one: Figures, other: Figures) -> Table:
    """Show phases of the same title side by side, in the order of the first run."""
    found = {phase.title: phase for phase in other.phases if phase.sessions}
    columns = "Phase, #Cost A, #Cost B, #Turns A, #Turns B, #Red gates A, #Red gates B"
    rows = (
        (
            f"{a.phase_id} {a.title}".strip(),
            render_usd(a.cost_usd),
            render_usd(b.cost_usd),
            f"{a.turns:,}",
            f"{b.turns:,}",
            f"{a.red_gates:,}",
            f"{b.red_gates:,}",
        )
        for a in one.phases
        if a.sessions and (b := found.get(a.title))
    )
    return make_table("Phases that both worked on", columns, rows)


def _count(n: _Number) -> str:
    return UNKNOWN if n is None else f"{n:,}"


def _tokens(n: _Number) -> str:
    return render_tokens(None if n is None else round(n))


def _seconds(n: _Number) -> str:
    return UNKNOWN if n is None else render_duration(n)


def _saved(figures: Figures) -> _Number:
    known = [step.saved_usd for step in figures.hand_offs if step.saved_usd is not None]
    return sum(known) if len(known) == len(figures.hand_offs) else None


_FIGURES: tuple[tuple[str, Callable[[Figures], _Number], Callable[[_Number], str]], ...] = (
    ("Phases done", lambda f: sum(phase.is_done for phase in f.phases), _count),
    ("Boxes ticked", lambda f: f.totals.ticks, _count),
    ("Commits", lambda f: f.totals.commits, _count),
    ("Sessions", lambda f: len(f.sessions), _count),
    ("Turns", lambda f: f.totals.turns, _count),
    ("Cost", lambda f: f.totals.cost_usd, render_usd),
    ("Cost per decision", lambda f: f.totals.usd_per_decision, render_usd),
    ("Tokens in", lambda f: f.totals.prompt_tokens, _tokens),
    ("Tokens out", lambda f: f.totals.output_tokens, _tokens),
    ("From the cache", lambda f: f.totals.cache_hit, render_share),
    (
        "Fullest context",
        lambda f: max((session.peak_tokens for session in f.sessions if session.peak_tokens), default=None),
        _tokens,
    ),
    ("Sessions past the line", lambda f: f.totals.crossings, _count),
    ("Re-read tax, tokens", lambda f: f.totals.tax_tokens, _tokens),
    ("Duplicate reads", lambda f: f.totals.duplicate_reads, _count),
    ("Files edited unseen", lambda f: f.totals.ghost_edits, _count),
    ("Red gates", lambda f: sum(phase.red_gates for phase in f.phases), _count),
    ("Phases whose first gate was red", lambda f: sum(p.first_gate_red is True for p in f.phases), _count),
    ("Repairs", lambda f: sum(phase.repairs for phase in f.phases), _count),
    ("Faults confirmed by reviews", lambda f: sum(review.confirmed for review in f.reviews), _count),
    ("Saved by fresh starts", _saved, render_usd),
    ("Time for answers", lambda f: f.totals.answer_s, _seconds),
    ("Time in tools", lambda f: f.totals.tools_s, _seconds),
    ("Time in gates", lambda f: f.totals.gates_s, _seconds),
)


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
    return Page(title=f"relay: {title}", facts=(), answers=answers, sections=compare(one, other))

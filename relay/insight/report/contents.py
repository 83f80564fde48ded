"""Build the page of one plan's runs from figures; the HTML page and the terminal's report are written from it."""

from collections.abc import Sequence

from relay.base.words import UNKNOWN, count, list_some, render_duration, render_usd
from relay.insight.database import Row
from relay.insight.figures import DRIFT_WARNING, Figures
from relay.insight.report import chapters
from relay.insight.report.blocks import (
    NOTHING,
    Card,
    Ink,
    Page,
    cut_id,
    render_per_decision,
    render_share,
    render_time,
)
from relay.insight.report.chapters import Beliefs, ReadLeftFile

_BESIDE_PHASES = {
    "plan": "relay worked on a plan",
    "converge": "relay compared the plan with the repository",
    "review": "relay reviewed a change",
}
"""Commands that work on no phase; their logs do not say how many phases are left."""
_LATEST = 5
"""Most commits and warnings at the head of the page."""


def _list_facts(figures: Figures) -> tuple[tuple[str, str], ...]:
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


def _say_done(figures: Figures) -> Card:
    question = "What was done"
    sessions = f"{count(len(figures.sessions), 'session')}, {count(figures.totals.turns, 'turn')}"
    commands = dict.fromkeys(run.command for run in figures.runs)
    if commands and commands.keys() <= _BESIDE_PHASES.keys():
        found, confirmed = chapters.count_findings(figures.reviews)
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
        before = render_usd(runs[0].spent_usd, estimated=bool(runs[0].spent_estimated))
        lines.append(f"the plan had cost {before} before")
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
        *(chapters.list_contradictions(beliefs) if beliefs else ()),
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


def make_page(figures: Figures, beliefs: Beliefs | None, read: ReadLeftFile = lambda _name, _sha256: None) -> Page:
    """Make the page of one plan's runs.

    Args:
        beliefs: None if the plan has no ledger, or it cannot be read.
        read: Reads the files that gates left.
    """
    reviews = (chapters.show_reviews(figures.reviews),) if figures.reviews else ()
    sections = (
        chapters.show_phases(figures),
        chapters.show_context(figures),
        chapters.show_evidence(figures, read),
        *reviews,
    )
    more = (
        chapters.show_decay(figures),
        chapters.show_sources(figures),
        chapters.show_cost(figures),
        chapters.show_cache(figures),
        *((chapters.show_beliefs(beliefs, figures),) if beliefs else ()),
        chapters.show_tools(figures),
    )
    names = dict.fromkeys(run.plan_path or run.run_id for run in figures.runs)
    return Page(
        title=f"relay: {', '.join(names)}",
        facts=_list_facts(figures),
        answers=(_say_done(figures), _say_stopped(figures), _say_cost(figures), _say_needed(figures, beliefs)),
        sections=sections,
        more=more,
    )

"""The top of the page: what was done, why it stopped, what it cost, what needs you."""

from collections.abc import Sequence

from relay.base.words import UNKNOWN, count, list_some, render_usd
from relay.insight.figures.evidence import DRIFT_WARNING
from relay.insight.figures.values import Figures, RunFigures
from relay.insight.report.beliefs import Beliefs, find_worries
from relay.insight.report.blocks import Card, Ink
from relay.insight.report.evidence import count_findings
from relay.insight.report.wording import NOTHING, cut_id, render_length, render_per_decision, render_share, render_time

_BESIDE_PHASES = {
    "plan": "A plan was asked for",
    "converge": "The plan was held against the repository",
    "review": "A change was reviewed",
}
"""What commands did that work on no phase: how many are to go is not theirs to say."""
_LATEST = 5
"""Commits and warnings that are shown at the top; all others are further down."""


def list_facts(figures: Figures) -> tuple[tuple[str, str], ...]:
    """Return what the page is about."""
    if not figures.runs:
        return ()
    first, last = figures.runs[0], _get_last(figures.runs)
    models = dict.fromkeys(leg.model or run.model for run in figures.runs for leg in run.legs)
    facts = {
        "Plan": last.plan_path,
        "Branch": last.branch,
        "Model": ", ".join(models or [last.model]),
        "Runner": ", ".join(dict.fromkeys(leg.runner for leg in figures.legs if leg.runner)),
        "Began": f"{render_time(first.began)} UTC",
        "Took": render_length(first.began, last.ended if last.ended is not None else last.last_at),
        "Runs": ", ".join(run.run_id for run in figures.runs),
        "Sandbox": last.sandbox,
        "Context": last.context,
        "Rehearsed": "a script played the model" if last.rehearsed else "",
    }
    return tuple((name, text) for name, text in facts.items() if text)


def answer_all(figures: Figures, beliefs: Beliefs | None) -> tuple[Card, ...]:
    """Card the four questions of whoever opens the page."""
    return (_say_done(figures), _say_stopped(figures), _say_cost(figures), _say_needed(figures, beliefs))


def _say_done(figures: Figures) -> Card:
    question, sessions = (
        "What was done",
        f"{count(len(figures.legs), 'session')}, {count(figures.totals.turns, 'turn')}",
    )
    commands = dict.fromkeys(run.command for run in figures.runs)
    if commands and commands.keys() <= _BESIDE_PHASES.keys():
        found, confirmed = count_findings(figures.reviews)
        reviewed = (f"{count(found, 'finding')}, {confirmed} confirmed",) if figures.reviews else ()
        return Card(
            question=question, words="; ".join(_BESIDE_PHASES[name] for name in commands), lines=(*reviewed, sessions)
        )
    done = [phase for phase in figures.phases if phase.phase_id and phase.work.is_done]
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


def _get_last(runs: Sequence[RunFigures]) -> RunFigures:
    """Return the run that ended last: who started others, not the last of those."""
    return max(runs, key=lambda run: run.ended or run.last_at)


def _say_stopped(figures: Figures) -> Card:
    question = "Why it stopped"
    if not figures.runs:
        return Card(question=question, words="Nothing of it is in the log", ink=Ink.SOFT)
    run = _get_last(figures.runs)
    if run.exit_code is None:
        words = "Its log has no end: it was killed, or it still works"
        return Card(question=question, words=words, lines=_end_of_last(run), ink=Ink.SOFT)
    ink = {0: Ink.GOOD, 4: Ink.SOFT, 130: Ink.SOFT}.get(run.exit_code, Ink.BAD)
    lines = (f"exit status {run.exit_code}", *_end_of_last(run))
    return Card(question=question, words=run.reason, lines=lines, ink=ink)


def _end_of_last(run: RunFigures) -> tuple[str, ...]:
    if not run.legs:
        return ()
    leg = run.legs[-1]
    end = f"{leg.result or 'cut off'}: {leg.detail}" if leg.detail else leg.result or "cut off"
    return (f"last session: phase {leg.phase_id or NOTHING}, session {leg.leg}, {end}",)


def _say_cost(figures: Figures) -> Card:
    totals, runs, forecast = figures.totals, figures.runs, figures.forecast
    usage, spent = totals.spent.usage, totals.spent
    cap = _get_last(runs).cap_usd if runs else None
    cached = f"{render_share(totals.cache_hit)} of them from the cache"
    lines = [
        f"{usage.prompt_tokens:,} tokens in, {cached}, {usage.output_tokens:,} out",
        f"{render_per_decision(totals)} per decision, {count(totals.decisions, 'decision')}",
    ]
    if runs and runs[0].spent_before_usd:
        lines.append(f"the plan had cost {render_usd(runs[0].spent_before_usd)} before")
    if forecast and forecast.phases and forecast.usd is not None:
        lines.append(f"{count(forecast.items, 'open item')} may cost {render_usd(forecast.usd)} more")
    if totals.unknown_turns:
        lines.append(f"{count(totals.unknown_turns, 'turn')} of unknown usage are in no sum")
    words = render_usd(spent.cost_usd, estimated=spent.estimated)
    return Card(
        question="What it cost", words=words if cap is None else f"{words} of {render_usd(cap)}", lines=tuple(lines)
    )


def _say_needed(figures: Figures, beliefs: Beliefs | None) -> Card:
    run = _get_last(figures.runs) if figures.runs else None
    strayed = [phase for phase in figures.phases if (phase.work.drift or 0) > DRIFT_WARNING]
    warnings = [text for found in figures.runs for text in found.warnings]
    lines = [
        *(run.questions if run else ()),
        *(find_worries(beliefs) if beliefs else ()),
        *(
            f"phase {phase.phase_id} touched files that its items do not name: {list_some(phase.work.strayed, 3)}"
            for phase in strayed
        ),
        *warnings,
    ]
    more = (f"and {len(lines) - _LATEST} more, further down",) if len(lines) > _LATEST else ()
    command = run.next_command if run else ""
    words = "A look at this" if lines else "Nothing"
    return Card(
        question="What needs you",
        words="To go on" if command else words,
        lines=(*lines[:_LATEST], *more),
        command=command,
        ink=Ink.SOFT if command or lines else Ink.GOOD,
    )

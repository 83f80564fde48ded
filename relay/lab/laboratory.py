"""The work on an experiment: trial after trial, each measured, reviewed and checked; what is done is not done again."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import convert

from relay.base.words import count, render_usd
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.insight.figures import read_figures
from relay.insight.telemetry.log import list_logs, read_logs
from relay.lab.comparing import TrialResult
from relay.lab.experiment import Experiment, Trial, name_trial, note, read_note, save_experiment
from relay.lab.judging import check_hidden, open_judged, require_hidden, review_trial
from relay.lab.trial import Bench, fetch_trial, open_trial, run_trial
from relay.plan.parse import find_plan_in
from relay.session.usage import Usage
from relay.store.history import find_text
from relay.store.plan_state import read_plan_cost

_LOST = "its clone was removed before it was over; its whole share of the cap counts"


def work_on(bench: Bench) -> None:
    """Work through the trials that have no result yet.

    Raises:
        UnfinishedError: The experiment stops here and goes on later.
        RelayError: The user has to change something first.
    """
    experiment = bench.experiment
    with lock_worktree(bench.main, "compare"):
        trials = experiment.list_trials()
        if save_experiment(bench.main, experiment) and experiment.hidden:
            require_hidden(bench, trials[0])
        for trial in trials:
            if read_note(bench.main, experiment, trial, "result") is None:
                name = f"trial {trial.number} of {len(trials)}: {trial.arm}, repeat {trial.repeat}"
                bench.say(f"{name}, at most {render_usd(experiment.share_usd)}")
                result = _complete(bench, trial)
                note(bench.main, experiment, trial, "result", result)
                bench.say(f"{name}: {_describe(convert(result, TrialResult))}")


def _complete(bench: Bench, trial: Trial) -> dict[str, Any]:
    """Run, measure and judge a trial; return its result."""
    experiment = bench.experiment
    result: dict[str, Any] = {"number": trial.number, "arm": trial.arm, "repeat": trial.repeat}
    repo = open_trial(bench, trial)
    if repo is None:
        return {**result, "exit_code": None, "reason": _LOST}
    over = read_note(bench.main, experiment, trial, "over")
    if over is None:
        over = run_trial(bench, trial, repo)
        note(bench.main, experiment, trial, "over", over)
    fetch_trial(bench, trial, repo)
    begun = read_note(bench.main, experiment, trial, "begun") or {}
    result |= {**over, **_measure_trial(repo, experiment, trial, begun)}
    judged = open_judged(bench, trial, repo)
    if experiment.reviews:
        result |= review_trial(bench, trial, judged)
    if experiment.hidden:  # last: the checks may write into the tree
        checked = check_hidden(bench, judged)
        result |= {"hidden_passed": checked.passed, "hidden_total": checked.total}
    return result


def _measure_trial(repo: Repo, experiment: Experiment, trial: Trial, begun: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `relay.lab.comparing.TrialResult` that a clone tells.

    Args:
        repo: The trial's clone.
        begun: The note that it began: the plan's cost before it.
    """
    tip = repo.head() or experiment.base
    total = read_plan_cost(repo, experiment.plan_path).spent
    usage, before = total.usage, Usage(**begun["usage"])
    known = total.cost_usd is not None and begun["usd"] is not None
    plan = find_plan_in(find_text(repo, tip, experiment.plan_path) or "")
    entries = list_logs(repo.root)
    found: dict[str, Any] = {
        "phases_done": sum(phase.done for phase in plan.phases) if plan else None,
        "phases": len(plan.phases) if plan else None,
        "input_tokens": usage.input_tokens - before.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens - before.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens - before.cache_write_tokens,
        "output_tokens": usage.output_tokens - before.output_tokens,
        "cost_usd": (total.cost_usd or 0.0) - begun["usd"] if known else None,
        "estimated": total.estimated,
        "ref": name_trial(experiment, trial, "tip"),
        "logs": tuple(str(entry.path) for entry in reversed(entries)),
    }
    figures = read_figures(read_logs(entry.path for entry in reversed(entries))[0])
    if runs := [run for run in figures.runs if run.sessions]:
        took = sum((run.ended or run.last_at) - run.began - run.retries_s for run in runs)
        found |= {
            "red_gates": sum(phase.red_gates for phase in figures.phases),
            "repairs": sum(phase.repairs for phase in figures.phases),
            "wall_s": max(0.0, took),
            "sessions": len(figures.sessions),
            "fill": max((session.peak_tokens or 0 for session in figures.sessions), default=0) or None,
            "cuts": len(runs) - 1,
            "rehearsed": any(run.rehearsed for run in runs),
        }
    return found


def _describe(result: TrialResult) -> str:
    parts = [f"{result.phases_done} of {count(result.phases or 0, 'phase')} done"] if result.phases else []
    if result.hidden_total:
        parts.append(f"{result.hidden_passed} of {count(result.hidden_total, 'held-out check')} pass")
    parts.append(render_usd(result.cost_usd, estimated=result.estimated))
    return ", ".join(parts) if not result.reason or result.exit_code == 0 else f"{', '.join(parts)}; {result.reason}"


def read_results(repo: Repo, experiment: Experiment) -> Iterator[TrialResult]:
    """Yield the results that are there, in the order of work."""
    for trial in experiment.list_trials():
        if (body := read_note(repo, experiment, trial, "result")) is not None:
            yield convert(body, TrialResult)

"""The work on an experiment: trial after trial, each measured, reviewed and checked; what is done is not done again."""

from collections.abc import Iterator
from typing import Any

from msgspec import convert

from relay.base.words import count, render_usd
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.lab.comparing import TrialResult
from relay.lab.experiment import Experiment, Trial, note, read_note, save_experiment
from relay.lab.judging import check_hidden, open_judged, require_hidden, review_trial
from relay.lab.measures import measure_trial
from relay.lab.trial import Bench, fetch_trial, open_trial, run_trial

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
    result |= {**over, **measure_trial(repo, experiment, trial, begun)}
    judged = open_judged(bench, trial, repo)
    if experiment.reviews:
        result |= review_trial(bench, trial, judged)
    if experiment.hidden:  # last: the checks may write into the tree
        checked = check_hidden(bench, judged)
        result |= {"hidden_passed": checked.passed, "hidden_total": checked.total}
    return result


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

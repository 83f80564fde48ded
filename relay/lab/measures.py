"""What a trial made: counted from git, and from the event logs of its runs."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from relay.git.repository import Repo
from relay.insight.figures import read_figures
from relay.insight.telemetry.log import list_logs, open_events
from relay.lab.experiment import Experiment, Trial, name_trial
from relay.plan.parse import find_plan_in
from relay.session.usage import Usage
from relay.store.history import find_text
from relay.store.plan_state import read_plan_cost


def measure_trial(repo: Repo, experiment: Experiment, trial: Trial, begun: Mapping[str, Any]) -> dict[str, Any]:
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
    readers = [reader for entry in entries if (reader := open_events(entry.path))]
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
    figures = read_figures(chain.from_iterable(reversed(readers)))
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

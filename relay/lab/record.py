"""The files of an experiment, in ``.relay/compare/<id>/``: a page, a CSV, a JSON document and the logs of its runs.

All but the logs is made anew from git whenever the experiment is shown.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from relay.base.tree import read_file, replace_with_file
from relay.base.walk import open_folder, open_ignored
from relay.insight.database import Row
from relay.insight.figures import read_figures
from relay.insight.telemetry.log import read_logs
from relay.lab.comparing import Comparison, TrialResult
from relay.lab.experiment import Experiment
from relay.plan.text import STATE_DIR

_FOLDER = "compare"
_LOGS = "logs"


def keep_logs(root: Path, experiment: Experiment, results: Iterable[TrialResult]) -> tuple[TrialResult, ...]:
    """Copy the logs of the runs to the experiment's directory; return the results with the places of the copies there.

    Raises:
        OSError: They cannot be written.
    """
    kept = []
    with open_ignored(root, (STATE_DIR,), _FOLDER, experiment.id, _LOGS) as folder:
        for result in results:
            names = []
            for log in map(Path, result.logs):
                name = f"{result.number}-{log.name}"
                data = read_file(log.parent, log.name) if log.parent.is_dir() else None
                if data is not None:
                    replace_with_file(folder, name, data)
                if (_find_place(root, experiment) / _LOGS / name).is_file():
                    names.append(f"{_LOGS}/{name}")
            kept.append(replace(result, logs=tuple(names)))
    return tuple(kept)


def read_contexts(root: Path, experiment: Experiment, results: Sequence[TrialResult]) -> dict[str, tuple[Row, ...]]:
    """Return the sessions of the first trial of each arm, as far as its log is there."""
    place, found = _find_place(root, experiment), dict[str, tuple[Row, ...]]()
    for result in results:
        if result.arm not in found:
            found[result.arm] = read_figures(read_logs(place / log for log in result.logs)[0]).sessions
    return {arm: found[arm] for arm in experiment.arms if found.get(arm)}


def render_comparison(experiment: Experiment, comparison: Comparison) -> dict[str, Any]:
    """Return an experiment as a document."""
    return {
        "id": experiment.id,
        "experiment": asdict(experiment),
        "rehearsed": any(one.rehearsed for one in comparison.results),
        "trials": [asdict(one) for one in comparison.results],
        "medians": comparison.medians,
        "differences": [
            {
                "outcome": one.outcome.name,
                "arm": one.arm,
                "other": one.other,
                "pairs": one.pairs,
                "interval": asdict(one.interval) if one.interval else None,
                "is_shown": one.is_shown,
                "more_repeats": one.more,
            }
            for one in comparison.differences
        ],
    }


def save_files(root: Path, experiment: Experiment, document: Mapping[str, Any], html: str) -> Path:
    """Write page, CSV and JSON of an experiment; return their directory.

    Raises:
        OSError: They cannot be written.
    """
    table = io.StringIO()
    writer = csv.DictWriter(table, [one.name for one in fields(TrialResult)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**trial, "logs": " ".join(trial["logs"])} for trial in document["trials"])
    place = _find_place(root, experiment)
    with open_folder(root, (STATE_DIR, _FOLDER, experiment.id)) as folder:
        replace_with_file(folder, "result.csv", table.getvalue().encode("utf-8", "backslashreplace"))
        replace_with_file(folder, "result.json", (json.dumps(document, indent=1) + "\n").encode())
        replace_with_file(folder, "index.html", html.encode())
    return place


def _find_place(root: Path, experiment: Experiment) -> Path:
    return root / STATE_DIR / _FOLDER / experiment.id

"""What a trial made: counted from git, from the event logs of its runs, and from the diff."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from relay.git.objects import diff_trees, load_blob, read_patch
from relay.git.repository import Repo
from relay.insight.figures import Figures, read_figures
from relay.insight.telemetry.log import list_logs, open_events
from relay.lab.experiment import Experiment, Trial, name_trial
from relay.plan.parse import find_plan_in
from relay.plan.text import find_ledger_path
from relay.run.commit.changed_checks import SKIPS, TEST_FILE
from relay.session.usage import Usage
from relay.store.history import find_text
from relay.store.plan_state import read_plan_cost

_MOST_PATCH_BYTES = 4 * 1024 * 1024
_MOST_FILE_BYTES = 512 * 1024
BLOCK_LINES = 6
"""Equal lines in a row that make a duplicate: what jscpd and PMD take, in lines, for about 70 tokens."""
_TEST = re.compile(
    r"\s*(?:(?:async\s+)?def test\w*\s*\(|func Test\w+\s*\(|#\[(?:\w+::)?test\]|@Test\b|(?:it|test)(?:\.each\S*)?\s*\()"
)
_ASSERTION = re.compile(r"\bassert|\bexpect\s*\(|\b(?:t|require|assert)\.\w+\s*\(")


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
    return {
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
        **_read_figures(read_figures(chain.from_iterable(reversed(readers)))),
        **_measure_change(repo, experiment, tip),
    }


def _read_figures(figures: Figures) -> dict[str, Any]:
    runs = [run for run in figures.runs if run.sessions]
    if not runs:
        return {}
    waited = sum(run.retries_s for run in runs)
    return {
        "red_gates": sum(phase.red_gates for phase in figures.phases),
        "repairs": sum(phase.repairs for phase in figures.phases),
        "wall_s": max(0.0, sum((run.ended or run.last_at) - run.began for run in runs) - waited),
        "sessions": len(figures.sessions),
        "fill": max((session.peak_tokens or 0 for session in figures.sessions), default=0) or None,
        "cuts": len(runs) - 1,
        "rehearsed": any(run.rehearsed for run in runs),
    }


def _measure_change(repo: Repo, experiment: Experiment, tip: str) -> dict[str, Any]:
    own = {experiment.plan_path, find_ledger_path(experiment.plan_path)}
    changes = [change for change in diff_trees(repo, experiment.base, tip) if change.path not in own]
    paths = {change.path for change in changes}
    patch = read_patch(repo, experiment.base, tip, most_bytes=_MOST_PATCH_BYTES, only=paths)
    added, deleted = list_changed(patch, "+"), list_changed(patch, "-")
    texts = [_load_text(repo, change.object_id) for change in changes if change.object_id.strip("0")]
    return {
        "added": sum(map(len, added.values())),
        "deleted": sum(map(len, deleted.values())),
        "weakened": count_weakened(added, deleted),
        "duplicated": count_duplicated(texts, [line for lines in added.values() for line in lines]),
    }


def _load_text(repo: Repo, blob: str) -> str:
    data = load_blob(repo, blob)
    return "" if len(data) > _MOST_FILE_BYTES or b"\0" in data else data.decode(errors="replace")


def list_changed(patch: str, sign: str) -> dict[str, list[str]]:
    """Return the added (``+``) or deleted (``-``) lines of a patch by file."""
    path, in_hunk, found = "", False, dict[str, list[str]]()
    for line in patch.split("\n"):  # other ends of lines are a file's own text
        if line.startswith("diff --git "):
            path, in_hunk = line.partition(" b/")[2], False
        elif line.startswith("@@"):
            in_hunk = True
        elif in_hunk and line.startswith(sign):
            found.setdefault(path, []).append(line[1:])
    return found


def count_weakened(added: Mapping[str, Sequence[str]], deleted: Mapping[str, Sequence[str]]) -> int:
    """Count tests and assertions that are gone, and tests that are skipped now, in test files; moved ones count not."""
    gone = Counter(line.strip() for line in _pick(deleted)) - Counter(line.strip() for line in _pick(added))
    tests = sum(number for line, number in gone.items() if _TEST.match(line))
    skips = sum(bool(SKIPS.search(line)) for line in _pick(added)) - sum(map(bool, map(SKIPS.search, _pick(deleted))))
    asserts = sum(bool(_ASSERTION.search(line)) for line in _pick(deleted))
    asserts -= sum(bool(_ASSERTION.search(line)) for line in _pick(added))
    return tests + max(0, skips) + max(0, asserts)


def _pick(lines: Mapping[str, Sequence[str]]) -> Iterator[str]:
    return (line for path, found in lines.items() if TEST_FILE.search(path) for line in found)


def count_duplicated(texts: Sequence[str], added: Sequence[str]) -> int:
    """Count the added lines that stand in a block of `BLOCK_LINES` lines which the changed files hold twice.

    Blank lines and indentation do not count; nor do blocks without a line of some length, such as closing brackets.
    """
    kept = [[line.strip() for line in text.splitlines() if line.strip()] for text in texts]
    blocks = Counter(block for lines in kept for block in _list_blocks(lines))
    twice = {line for block, number in blocks.items() if number > 1 for line in block}
    return sum(line.strip() in twice for line in added if line.strip())


def _list_blocks(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(len(lines) - BLOCK_LINES + 1):
        block = tuple(lines[start : start + BLOCK_LINES])
        if sum(map(len, block)) >= 20 * BLOCK_LINES:  # half a line on average
            yield block

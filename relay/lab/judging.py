"""The judges of a trial: blind reviews by fresh sessions, and held-out checks in the sandbox.

Both see one commit on the experiment's base: the final tree, without the trial's own commits, whose trailers and
messages tell the arm, and with the plan and the ledger as they were before. The commit's message is the plan.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from relay.base.errors import ConfigError, ExitCode
from relay.base.values import dataclass
from relay.git.message import Message
from relay.git.objects import read_entries, write_commit, write_paths_tree
from relay.git.refs import find_ref, move_ref
from relay.git.repository import Repo
from relay.git.trees import ABSENT
from relay.lab.experiment import REVIEW_PART, Trial, note, read_note
from relay.lab.trial import Bench, follow, open_clone, require_over
from relay.plan.text import find_ledger_path
from relay.run.commit.hooks import try_gate
from relay.run.commit.review import MAX_TASK_CHARS
from relay.session.events import ReviewFinished
from relay.session.usage import Usage
from relay.session.values import SessionKind
from relay.setup.context import RunRequest
from relay.setup.place import find_settings
from relay.setup.workspace import open_own_workspace
from relay.store.history import find_text
from relay.store.plan_state import read_plan_cost

_JUDGED = "refs/relay/compare/judged"
_DIR = "RELAY_HIDDEN"
_ROUNDS = (("review-1", ()), ("review-2", ("--turned",)))
_NEAR_LINES = 10
"""Two findings in the same file so close to each other are one."""
_PYTEST = re.compile(r"^(?:=+ )?(?=\d{1,9} (?:failed|passed|errors?)\b)([^\n]*) in [\d.]+s", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d{1,9}) tests? in [^\n]*\n\n(?:OK|FAILED)([^\n]*)", re.MULTILINE)


def open_judged(bench: Bench, trial: Trial, repo: Repo) -> Repo:
    """Return a clone for the judges of a trial."""
    experiment, place = bench.experiment, bench.experiment.find_place(bench.main.root, trial, "judged")
    if find_ref(repo, _JUDGED) is None:
        paths = (experiment.plan_path, find_ledger_path(experiment.plan_path))
        before = read_entries(repo, experiment.base, paths)
        files = [(path, *before.get(path, (ABSENT, repo.zero_id))) for path in paths]
        tree = write_paths_tree(repo, files, start=repo.head())
        plan = find_text(repo, experiment.base, experiment.plan_path) or ""
        message = Message(subject="The change", body=plan[: MAX_TASK_CHARS // 2])
        move_ref(repo, _JUDGED, write_commit(repo, tree, (experiment.base,), message), None)
    return open_clone(bench, place, repo.common_dir.parent, _JUDGED)


def review_trial(bench: Bench, trial: Trial, repo: Repo) -> dict[str, Any]:
    """Have a trial reviewed twice, the second time with the files in the opposite order; return what both found.

    Raises:
        UnfinishedError: A review stopped for a reason that says nothing about the trial.
    """
    experiment, found = bench.experiment, list[Any]()
    begun = read_note(bench.main, experiment, trial, "begun") or {}
    before = begun.get("usd") or 0.0
    most = experiment.share_usd * REVIEW_PART
    for number, (name, more) in enumerate(_ROUNDS, 1):
        body = read_note(bench.main, experiment, trial, name)
        if body is None:
            cap = f"{before + most * number / len(_ROUNDS):.6f}"
            words = ("review", f"{experiment.base}..HEAD", "--plan", experiment.plan_path, "--max-cost", cap, *more)
            end, ends = follow(bench, trial, repo, (*words, *experiment.options), {})
            require_over(bench, trial, end, ends)
            reviews = [event for event in ends if isinstance(event, ReviewFinished)]
            faults = [one for review in reviews for one in review.findings if one["verdict"] == "confirmed"]
            body = {"faults": faults, "ended": bool(reviews) or end.exit_code == ExitCode.DONE}
            note(bench.main, experiment, trial, name, body)
        found.append(body)
    total = read_plan_cost(repo, experiment.plan_path).spent
    spent = {
        "review_usd": None if total.cost_usd is None else total.cost_usd - before,
        "review_tokens": total.tokens - Usage(**begun["usage"]).context_tokens,
    }
    if not all(body["ended"] for body in found):
        return spent
    both, once = match_faults(found[0]["faults"], found[1]["faults"])
    return {**spent, "findings": both, "disputed": once}


def match_faults(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return how many faults two reviews have in common, and how many only one of them has."""
    left, both = list(other), 0
    for fault in one:
        beside = (each for each in left if fault["file"] == each["file"])
        same = next((each for each in beside if abs(fault["line"] - each["line"]) <= _NEAR_LINES), None)
        if same is not None:
            left.remove(same)
            both += 1
    return both, len(one) + len(other) - 2 * both


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutResult:
    """The result of the held-out checks."""

    passed: int
    total: int
    remarks: tuple[str, ...]
    """One sentence for each command that proved nothing."""


def check_hidden(bench: Bench, repo: Repo) -> HeldOutResult:
    """Run the held-out checks in the sandbox on the tree of a clone.

    Raises:
        SandboxError: The sandbox could not be set up.
    """
    experiment = bench.experiment
    settings = find_settings(bench.flags, bench.environ, repo.root, plan=None)
    environ = {**bench.environ, _DIR: experiment.hidden_dir}
    shown = (experiment.hidden_dir,) if experiment.hidden_dir else ()
    paths = structs.replace(settings.paths, read=(*settings.paths.read, *shown))
    settings = replace(settings, paths=paths, env=(*settings.env, _DIR))
    request = RunRequest(
        kind=SessionKind.RUN,
        repo=repo,
        settings=settings,
        plan_path=experiment.plan_path,
        environ=environ,
    )
    with open_own_workspace(request) as workspace:
        gate = try_gate(request, workspace, "", experiment.hidden, lambda _: None)
    counts = [count_tests(check["output"], green=check["status"] == "passed") for check in gate.checks]
    odd = [check for check in gate.checks if check["status"] in {"missing", "no tests", "exit code thrown away"}]
    return HeldOutResult(
        passed=sum(passed for passed, _ in counts),
        total=sum(total for _, total in counts),
        remarks=tuple(f"`{check['command']}`: {check['status']}: {check['output'][-200:]}" for check in odd),
    )


def count_tests(output: str, *, green: bool) -> tuple[int, int]:
    """Return how many tests of a command passed, and how many there are; one that does not count them is one test.

    The exit code has the last word: code under test can print anything.
    """
    failed = total = 0
    for words in _PYTEST.findall(output):
        counts = {kind: int(number) for number, kind in re.findall(r"\b(\d{1,9}) (failed|passed|error)", words)}
        failed += counts.get("failed", 0) + counts.get("error", 0)
        total += sum(counts.values())
    for number, words in _UNITTEST.findall(output):
        failed += sum(map(int, re.findall(r"(?:failures|errors)=(\d{1,9})\b", words)))
        total += int(number)
    if not total:
        return int(green), 1
    return (total, total) if green else (max(0, min(total - failed, total - 1)), total)


def require_hidden(bench: Bench, trial: Trial) -> None:
    """Run the held-out checks on the base, which must not pass: they would show nothing.

    Raises:
        ConfigError: A check cannot run, or all pass before any work is done.
    """
    place = bench.experiment.find_place(bench.main.root, trial, "base")
    checked = check_hidden(bench, open_clone(bench, place, bench.main.root, bench.experiment.base_ref))
    if checked.remarks:
        raise ConfigError(f"--hidden: {checked.remarks[0]}")
    if checked.passed == checked.total:
        raise ConfigError(
            f"--hidden: all {checked.total} checks pass before any work is done: they would show no difference"
        )

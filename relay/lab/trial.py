"""One trial: a whole `relay run` as a child process, in a clone that has the experiment's commit and nothing newer.

A clone, because a session can read every ref of its repository: in a linked work tree it would find what the trials
before it made. git in the clone holds the state of an unfinished trial, as of any run; a note in the user's repository
says that a trial began and that its run is over.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import structs

from relay.base.errors import ExitCode, RelayError
from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.config import Settings
from relay.git.clones import CloneSource, ensure_work_tree
from relay.git.identity import get_identity
from relay.git.names import STORE
from relay.git.notes import is_locked
from relay.git.remote import Remote
from relay.git.repository import Repo
from relay.lab.arms import parse_arm
from relay.lab.experiment import Experiment, Trial, name_trial, note, read_note
from relay.run.phases.jobs import JobEnd, JobRun
from relay.session.events import ReviewFinished, SessionEnded
from relay.session.records import LoggedEvent
from relay.session.values import SessionEnd
from relay.setup.ignored import copy_named
from relay.store.plan_state import read_plan_cost

_LOOK_S = 0.5
_MOST_KILLS = 3
"""Times that a killed run is gone on with before the experiment stops."""
_LONGEST_WAIT_S = 7 * 86_400
"""A trial waits for a provider's limit as long as a setting allows: a shorter wait would count as a failure."""
_NOT_OVER = frozenset({
    SessionEnd.LIMIT, SessionEnd.API_FAILED, SessionEnd.DENIED, SessionEnd.AGENT_FAILED, SessionEnd.INTERRUPTED,
})  # fmt: skip
"""Ends of a last session that say nothing about the arm."""


class UnfinishedError(RelayError):
    """The experiment stops here and goes on later; what it has is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The surroundings of all trials."""

    main: Repo
    experiment: Experiment
    settings: Settings
    """Those of the user's repository."""
    flags: Mapping[str, Any]
    """The typed settings, which hold in every clone."""
    environ: Mapping[str, str]
    interrupts: Interrupts
    tell: Callable[[LoggedEvent, Trial], None]
    """Takes the events of a trial."""
    say: Callable[[str], None]
    """Prints a line."""


def open_trial(bench: Bench, trial: Trial) -> Repo | None:
    """Return a trial's clone, made if it has not begun; None if it has begun and somebody removed its clone.

    From the note that it has begun on, its share of the cap counts as spent.
    """
    experiment, place = bench.experiment, bench.experiment.find_place(bench.main.root, trial)
    has_begun = read_note(bench.main, experiment, trial, "begun") is not None
    if has_begun and not (place / STORE).exists():
        return None
    repo = open_clone(bench, place, bench.main.root, experiment.base_ref)
    if not has_begun:
        before = read_plan_cost(repo, experiment.plan_path).spent
        note(bench.main, experiment, trial, "begun", {"usage": asdict(before.usage), "usd": before.cost_usd})
    return repo


def open_clone(bench: Bench, place: Path, source: Path, ref: str) -> Repo:
    """Return a clone on the experiment's branch, with the ignored files that a build needs."""
    repo = ensure_work_tree(place, CloneSource(remote=str(source), ref=ref), bench.experiment.branch, bench.environ)
    copy_named(bench.main, repo, bench.settings.copy)
    return repo


def make_environ(bench: Bench, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: one phase at a time, nobody called, and none of the user's places visible."""
    paths = bench.settings.paths
    hidden = [str(bench.main.root), *([bench.experiment.hidden_dir] if bench.experiment.hidden_dir else [])]
    setup = {"RELAY_SETUP": "\n".join(bench.settings.setup)} if bench.settings.setup else {}  # approved there
    return {
        **bench.environ,
        **setup,
        **get_identity(bench.main).environment,  # a clone has none of the repository's own settings
        "RELAY_JOBS": "1",
        "RELAY_NOTIFY": "off",
        "RELAY_MAX_WAIT_S": str(_LONGEST_WAIT_S),
        "RELAY_PATHS": json.dumps({**structs.asdict(paths), "hide": (*paths.hide, *hidden)}),
        **extra,
    }


def run_trial(bench: Bench, trial: Trial, repo: Repo) -> dict[str, Any]:
    """Run a trial until its run is over; return how it ended.

    Raises:
        UnfinishedError: The run stopped for a reason that says nothing about the arm.
    """
    experiment, arm = bench.experiment, parse_arm(trial.arm)
    before = (read_note(bench.main, experiment, trial, "begun") or {}).get("usd") or 0.0
    options = tuple(chain.from_iterable(arm.options))
    words = ("run", "--plan", experiment.plan_path, "--max-cost", f"{before + experiment.run_usd:.6f}")
    kills = 0
    while True:
        end, ends = follow(bench, trial, repo, (*words, *experiment.options, *options), arm.environ)
        kills += end.exit_code < 0
        if end.exit_code >= 0 or kills >= _MOST_KILLS or bench.interrupts.finish_turn:
            break
    require_over(bench, trial, end, ends)
    return {"exit_code": end.exit_code, "reason": end.reason}


def require_over(bench: Bench, trial: Trial, end: JobEnd, ends: Sequence[SessionEnded | ReviewFinished]) -> None:
    """Require that a child's end is an outcome of the trial.

    Args:
        ends: Of its sessions and reviews, as `follow` returns them.

    Raises:
        UnfinishedError: It is not: a limit, a fault of the endpoint, a refused start, a kill, the user's wish.
    """
    if bench.interrupts.finish_turn and end.exit_code != ExitCode.DONE:
        raise UnfinishedError(f"interrupted in trial {trial.number} ({trial.arm}); everything is kept")
    last = next((event.end for event in reversed(ends) if isinstance(event, SessionEnded)), None)
    if end.exit_code not in {ExitCode.DONE, ExitCode.STOPPED} or (
        end.exit_code == ExitCode.STOPPED and last in _NOT_OVER
    ):
        raise UnfinishedError(f"trial {trial.number} ({trial.arm}) waits: {end.reason}", hint=end.hint)


def follow(
    bench: Bench, trial: Trial, repo: Repo, words: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[JobEnd, tuple[SessionEnded | ReviewFinished, ...]]:
    """Run a command of relay in a clone and pass its events on; return its end, and those of its sessions and reviews.

    The user's wish to stop is handed over to it.
    """
    ends: list[SessionEnded | ReviewFinished] = []
    while is_locked(repo) and not bench.interrupts.wait(_LOOK_S):  # the child of a killed experiment hands over
        continue
    child = JobRun(repo.root, words, make_environ(bench, environ))
    try:
        for record in chain.from_iterable(child.follow(bench.interrupts, _LOOK_S)):
            ends += [record.event] if isinstance(record.event, SessionEnded | ReviewFinished) else []
            bench.tell(record, trial)
    finally:
        if not child.has_ended:
            child.interrupt(now=True)
        end = child.close()
    return end, tuple(ends)


def fetch_trial(bench: Bench, trial: Trial, repo: Repo) -> None:
    """Keep a trial's commits, and all that its run kept, in the user's repository."""
    experiment = bench.experiment
    tip, kept = name_trial(experiment, trial, "tip"), name_trial(experiment, trial, "relay")
    store = Remote(repo=bench.main, name=str(repo.common_dir.parent), environ=bench.environ)
    store.fetch(f"+refs/heads/{experiment.branch}:{tip}", f"+refs/relay/*:{kept}/*")

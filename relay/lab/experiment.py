"""An experiment, and what git keeps of it: its description, and for each trial its beginning, its end and its result.

All of it is below ``refs/relay/compare/<id>/``: ``experiment``; and of each trial ``<number>/begun``, ``/over``,
``/review-1``, ``/review-2`` and ``/result``, commits with JSON as text; ``/tip``, the commits that the run made; and
``/relay/``, the refs that the run kept. The id is a digest of the description: the same command goes on with the same
experiment.
"""

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec import convert

from relay.base.errors import ConfigError
from relay.base.values import dataclass
from relay.git.lock_journal import storing
from relay.git.message import Message, read_text
from relay.git.objects import write_commit
from relay.git.refs import find_ref, move_ref
from relay.git.repository import Repo
from relay.git.trees import find_tree
from relay.store.worktree_notes import get_jobs_place

_PLACE = "refs/relay/compare/"
REVIEW_PART = 0.2
"""The part of a trial's share of the cap for its two reviews."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of an experiment."""

    number: int
    """From 1, in the order of work."""
    arm: str
    repeat: int
    """From 1; trials of the same repeat are compared with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The description of an experiment."""

    plan_path: str
    base: str
    """The commit that each trial begins at."""
    branch: str
    arms: tuple[str, ...]
    """As typed; the first one is what the others are compared with."""
    repeats: int
    seed: int
    cap_usd: float
    hidden: tuple[str, ...] = ()
    """Commands that check the final tree, which no session is told."""
    hidden_dir: str = ""
    """A directory for them that no session can read; empty for none."""
    reviews: bool = True
    options: tuple[str, ...] = ()
    """Options of every run."""

    @property
    def id(self) -> str:
        """Eight hexadecimal digits; another cap is no other experiment."""
        said = json.dumps({**asdict(self), "cap_usd": None}, sort_keys=True)
        return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:8]

    @property
    def base_ref(self) -> str:
        """The ref that clones begin at: the commit itself, and nothing that tells of the experiment."""
        return f"{_PLACE}{self.id}/base"

    @property
    def share_usd(self) -> float:
        """What one trial may cost, its reviews included."""
        return self.cap_usd / (len(self.arms) * self.repeats)

    @property
    def run_usd(self) -> float:
        """The part of that for its run."""
        return self.share_usd * (1 - REVIEW_PART) if self.reviews else self.share_usd

    def list_trials(self) -> tuple[Trial, ...]:
        """Return the trials in the order of work: repeat after repeat, the arms of each shuffled by the seed."""
        chance, trials = random.Random(self.seed), list[Trial]()  # noqa: S311  # reproducible, no secret
        for repeat in range(1, self.repeats + 1):
            for arm in chance.sample(self.arms, len(self.arms)):
                trials.append(Trial(number=len(trials) + 1, arm=arm, repeat=repeat))
        return tuple(trials)

    def find_place(self, root: Path, trial: Trial, what: str = "") -> Path:
        """Return the directory of a trial's clone; its name tells a session nothing.

        Args:
            what: Empty for the clone that the run works in.
        """
        name = hashlib.sha256(f"{self.id} {trial.number} {what}".encode()).hexdigest()[:16]
        return get_jobs_place(root) / name


def save_experiment(repo: Repo, experiment: Experiment) -> bool:
    """Keep an experiment that begins; return False if it is there already, with the same cap.

    Raises:
        ConfigError: It began with another cap, by which its trials were divided.
    """
    ref = f"{_PLACE}{experiment.id}/experiment"
    if find_ref(repo, ref) is None:
        move_ref(repo, experiment.base_ref, experiment.base, find_ref(repo, experiment.base_ref))
        _write(repo, ref, experiment.base, "an experiment", asdict(experiment))
        return True
    before = load_experiment(repo, experiment.id).cap_usd
    if before != experiment.cap_usd:
        raise ConfigError(
            f"this experiment began with --max-cost {before:g}, which its trials share",
            hint="type that cap to go on, or another --seed to begin anew",
        )
    return False


def load_experiment(repo: Repo, experiment_id: str) -> Experiment:
    """Return an experiment by its id.

    Raises:
        ConfigError: There is none.
    """
    body = _read(repo, f"{_PLACE}{experiment_id}/experiment") if experiment_id.isalnum() else None
    if body is None:
        known = ", ".join(list_experiments(repo)) or "none yet"
        raise ConfigError(f"there is no experiment {experiment_id!r} here", hint=f"there is: {known}")
    return convert(body, Experiment)


def list_experiments(repo: Repo) -> tuple[str, ...]:
    """Return the ids of the experiments of a repository."""
    refs = repo.list_refs(_PLACE)
    return tuple(ref.split("/")[3] for ref in refs if ref.endswith("/experiment"))


def name_trial(experiment: Experiment, trial: Trial, what: str) -> str:
    """Return the ref of a part of a trial."""
    return f"{_PLACE}{experiment.id}/{trial.number}/{what}"


def note(repo: Repo, experiment: Experiment, trial: Trial, what: str, body: Mapping[str, Any]) -> None:
    """Keep a note on a trial; a note that is there already stays."""
    ref = name_trial(experiment, trial, what)
    if find_ref(repo, ref) is None:
        _write(repo, ref, experiment.base, f"trial {trial.number}, {what}", body)


def read_note(repo: Repo, experiment: Experiment, trial: Trial, what: str) -> dict[str, Any] | None:
    """Return a note on a trial; None without one."""
    return _read(repo, name_trial(experiment, trial, what))


@storing
def _write(repo: Repo, ref: str, base: str, what: str, body: Mapping[str, Any]) -> None:
    message = Message(subject=f"relay lab compare: {what}", body=json.dumps(body, ensure_ascii=True))
    move_ref(repo, ref, write_commit(repo, find_tree(repo, base), (base,), message), None)


def _read(repo: Repo, ref: str) -> dict[str, Any] | None:
    commit = find_ref(repo, ref)
    return None if commit is None else json.loads(read_text(repo, commit).message.body)

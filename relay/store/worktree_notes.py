"""Where work trees are, and the notes in each one's git directory: its home, words for its run, its last run.

A work tree that relay made for a job keeps the logs of its runs in the work tree where the user typed the command. The
notes of that home, and of where the job may land, are in the job's git directory, which no session writes and no fetch
brings.

A person steers a run from another terminal by one file for each text in ``relay/said/`` of the work tree's git
directory. The run takes the texts in the order they came, and removes each once a snapshot holds it. ``relay/pause``
is there while the run is to wait. No session can write there (`relay.sandbox`), so relay believes these files.

The notes on the last run and its last gate answer a person who comes back (`relay status --why`, `relay gate --last`).
No run depends on them. They outlive `.relay/`, and no clone has them.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from relay.base.errors import RepoError
from relay.base.replacement import replace_with_file
from relay.base.values import dataclass
from relay.base.walk import open_folder, open_regular
from relay.git.notes import drop_note, read_note, write_note
from relay.git.repository import Repo

STORE = "store"
"""In each directory of those in which a fleet's worker keeps its clones: the repository, beside its work trees."""
_HOME = "home"
_CHECKED = "checked"
_JOBS = ".relay"
_CLONE = re.compile(r"[0-9a-f]{16}")


def get_jobs_place(root: Path) -> Path:
    """Return the directory that the work trees of a work tree's jobs are in: beside it."""
    return root.parent / f"{root.name}{_JOBS}"


def find_other_trees(repo: Repo) -> tuple[Path, ...]:
    """Return the roots of the repository's other work trees.

    Raises:
        GitError: See `list_roots`.
    """
    from relay.git.worktrees import list_roots

    return tuple(root for root in list_roots(repo) if root != repo.root)


def find_made_places(repo: Repo, others: Iterable[Path]) -> tuple[Path, ...]:
    """Return the directories in which relay has made work trees or clones, beside work trees of the repository.

    Args:
        others: As `find_other_trees` gave them.
    """
    beside = {place for root in (repo.root, *others) for place in root.parent.glob(f"*{_JOBS}")}
    jobs = [place for place in beside if os.path.lexists(place.with_suffix("") / ".git")]
    clone, store = repo.common_dir.parents[1], repo.common_dir.parent.name
    return (*sorted(jobs), *([clone.parent] if store == STORE and _CLONE.fullmatch(clone.name) else []))


def note_home(repo: Repo, home: Path) -> None:
    """Note whose job a work tree is."""
    write_note(repo, _HOME, str(home))


def find_home(repo: Repo) -> Path:
    """Return the root of the work tree whose job this one is, where runs leave what is kept; its own without a note."""
    if repo.git_dir == repo.common_dir:
        return repo.root
    noted = Path(read_note(repo, _HOME) or repo.root)
    return noted if noted.is_absolute() and os.path.lexists(noted / ".git") else repo.root


def note_checked(repo: Repo, *commits: str) -> None:
    """Note where a job's branch may land: the plan's branch has these commits, or relay checked and made them here.

    Name the commit that the branch is about to move to and the one that it is at: a kill leaves it at either.
    """
    write_note(repo, _CHECKED, " ".join(commits), synced=False)  # lost in a power cut, they are checked once more


def is_checked(repo: Repo, commit: str) -> bool:
    """Whether a job's branch may land at a commit: it was checked in this work tree, with all below it.

    What somebody else committed there, or a fetch brought, was not.
    """
    return commit in read_note(repo, _CHECKED).split()


_CLAIM = "claim"
_LONGEST_TIME = 12


def read_clock() -> float:
    """Return seconds on a clock of this machine alone, which goes on while it sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def write_claim_end(repo: Repo, ends_s: float) -> None:
    """Say until when runs that this process starts in a work tree may ask a model, by `read_clock`."""
    write_note(repo, _CLAIM, f"{os.getpid()} {ends_s:.0f}")


def drop_claim_end(repo: Repo) -> None:
    """Let runs in a work tree go on for as long as they like."""
    drop_note(repo, _CLAIM)


def is_claim_over(repo: Repo) -> bool:
    """Return whether this is the run of a worker whose claim has run out; what a dead one has left says nothing."""
    worker, _, ends = read_note(repo, _CLAIM).partition(" ")
    if worker != str(os.getppid()) or not ends.isdecimal() or len(ends) > _LONGEST_TIME:
        return False
    return read_clock() > int(ends)


MAX_CHARS = 2_000
"""Of one text: about 500 tokens, which every further session of the phase is told again."""
_MAX_BYTES = 6 * MAX_CHARS + 1_000
"""Of a file: each character may be escaped."""
_FOLDER = ("relay", "said")
_PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A text that somebody left."""

    name: str
    """Of its file."""
    text: str
    phase_id: str
    """For which phase only; empty for whichever session comes to it first."""


def leave_words(repo: Repo, text: str, *, phase_id: str = "") -> None:
    """Leave a text for the run; it is on the disk when this returns.

    Raises:
        OSError: It cannot be written.
    """
    import json

    repo.make_relay_dir()
    data = json.dumps({"text": text, "phase": phase_id}).encode()
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    with open_folder(repo.git_dir, _FOLDER, create=True, permissions=0o700) as folder:
        replace_with_file(folder, name, data)


def read_words(repo: Repo, phase_id: str) -> tuple[Said, ...]:
    """Return what waits for a session of this phase, in the order it came; what cannot be read is passed over."""
    try:
        with open_folder(repo.git_dir, _FOLDER) as folder:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(".json"))
            found = [_read(folder, name) for name in names]
    except OSError:
        return ()
    return tuple(said for said in found if said and said.phase_id in {"", phase_id})


def _read(folder: int, name: str) -> Said | None:
    import json

    try:
        with os.fdopen(open_regular(name, folder), "rb") as stream:
            body = json.loads(stream.read(_MAX_BYTES))
        return Said(name=name, text=str(body["text"])[:MAX_CHARS], phase_id=str(body["phase"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def drop_words(repo: Repo, names: tuple[str, ...]) -> None:
    """Remove texts that are kept elsewhere by now; those that are gone already are passed over."""
    with contextlib.suppress(FileNotFoundError), open_folder(repo.git_dir, _FOLDER) as folder:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)


def ask_for_pause(repo: Repo) -> None:
    """Have the run wait at its next tool boundary.

    Raises:
        OSError: It cannot be written.
    """
    repo.make_relay_dir()
    (repo.relay_dir / _PAUSE).touch()


def end_pause(repo: Repo) -> bool:
    """Let the run go on; return whether it was asked to pause."""
    try:
        (repo.relay_dir / _PAUSE).unlink()
    except FileNotFoundError:
        return False
    return True


def is_paused(repo: Repo) -> bool:
    """Return whether the run is asked to pause."""
    return os.path.lexists(repo.relay_dir / _PAUSE)


_RUN, _GATE = "last-run", "last-gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGate:
    """The gate that ran last."""

    at: float
    """Seconds since the epoch, when it had run."""
    phase_id: str
    passed: bool
    baseline: bool = False
    expected: str = ""
    """As `relay.session.events.GateFinished` has it."""
    summary: str = ""
    checks: tuple[Mapping[str, Any], ...] = ()
    """As the event has it."""

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        """Return the commands that were not green."""
        return tuple(check for check in self.checks if check.get("status") != "passed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The run, or the planning, that was last."""

    began: float
    command: str
    """``run`` or ``plan``."""
    plan_path: str
    branch: str
    ended: float | None = None
    """None where nothing was said of its end: it is at work, was killed, or the power went."""
    exit_code: int | None = None
    reason: str = ""
    next_command: str = ""
    waits_for: str = ""
    """The phase that waits for a yes, of ``run --approve``."""
    gate: LastGate | None = None
    """The last one of the run that was red and should not have been; None when there was none."""


def save_last_run(repo: Repo, run: LastRun, secret_values: tuple[str, ...] = ()) -> None:
    """Keep it; what cannot be written is lost, and stops nothing."""
    gate = _pack(run.gate) if run.gate else None
    body = {name: getattr(run, name) for name in LastRun.__slots__ if name != "gate"} | {"gate": gate}
    _save(repo, _RUN, body, secret_values)


def save_last_gate(repo: Repo, gate: LastGate, secret_values: tuple[str, ...] = ()) -> None:
    """Keep it, in the same way."""
    _save(repo, _GATE, _pack(gate), secret_values)


def _pack(gate: LastGate) -> dict[str, Any]:
    return {name: getattr(gate, name) for name in LastGate.__slots__}


def _save(repo: Repo, name: str, body: Mapping[str, Any], secret_values: tuple[str, ...]) -> None:
    import json

    from relay.base.redaction import redact

    text = redact(json.dumps(body, default=list), environ_values=secret_values)
    with contextlib.suppress(OSError, RepoError):
        write_note(repo, name, text, synced=False)


def read_last_run(repo: Repo) -> LastRun | None:
    """Return the last run; None when there was none, or nothing that relay wrote can be read."""
    body = _load(repo, _RUN)
    try:
        gate = body.pop("gate", None)
        return LastRun(**body, gate=_unpack(gate) if gate else None) if body else None
    except (ValueError, TypeError, AttributeError):
        return None


def read_last_gate(repo: Repo) -> LastGate | None:
    """Return the last gate, in the same way."""
    body = _load(repo, _GATE)
    try:
        return _unpack(body) if body else None
    except (ValueError, TypeError, AttributeError):
        return None


def _load(repo: Repo, name: str) -> dict[str, Any]:
    try:
        text = read_note(repo, name)
    except OSError:
        return {}
    if not text:
        return {}
    import json

    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _unpack(body: Mapping[str, Any]) -> LastGate:
    return LastGate(**{**body, "checks": tuple(dict(check) for check in body.get("checks", ()))})

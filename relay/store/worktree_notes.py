"""Where work trees are, and the notes in each one's git directory: its home, words for its run, its last run.

A work tree that relay made for a job keeps the logs of its runs in the work tree where the user typed the command. The
notes of that home, and of where the job may land, are in the job's git directory, which no session writes and no fetch
brings.

A person steers a run from another terminal by one file for each text in ``relay/said/`` of the work tree's git
directory. The run takes the texts in the order they came, and removes each once a snapshot holds it. No session can
write there (`relay.sandbox`), so relay believes these files.

The notes on the last run and its last gate answer a person who comes back (`relay status --why`, `relay gate --last`).
No run depends on them. They outlive `.relay/`, and no clone has them.
"""

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from relay.base.errors import RepoError
from relay.base.tree import replace_with_file
from relay.base.values import dataclass
from relay.base.walk import open_folder, open_regular
from relay.git.names import STORE
from relay.git.notes import read_note, write_note
from relay.git.repository import Repo

if TYPE_CHECKING:
    from relay.session.events import CapMoved

ValueT = TypeVar("ValueT")
_HOME = "home"
_CHECKED = "checked"
_JOBS = ".relay"
_CLONE = re.compile(r"[0-9a-f]{16}")


def get_jobs_place(root: Path) -> Path:
    """Return the directory of relay's own work trees for one of the user's: beside it.

    Where nobody can write there, or where that is in a repository, which would show it: in the user's data directory.
    """
    beside = root.parent / f"{root.name}{_JOBS}"
    is_in_repo = any(os.path.lexists(place / ".git") for place in (root.parent, *root.parent.parents))
    with contextlib.suppress(OSError):
        found = os.lstat(beside)  # in a shared directory another user may have made it
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and os.access(beside, os.W_OK):
            return beside
    if os.access(root.parent, os.W_OK) and not is_in_repo and not os.path.lexists(beside):
        return beside
    data = Path(os.environ.get("XDG_DATA_HOME") or Path(os.environ.get("HOME", "/"), ".local/share"))
    return data / "relay/trees" / f"{root.name}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"


def get_gate_place(repo: Repo) -> Path:
    """Return the directory of the tree in which the gates of a work tree's phases run."""
    return repo.root.with_name(f"{repo.root.name}.gate") if is_own_tree(repo) else get_jobs_place(repo.root) / "0.gate"


def find_other_trees(repo: Repo) -> tuple[Path, ...]:
    """Return the roots of the repository's other work trees.

    Raises:
        GitError: See `relay.git.worktrees.list_roots`.
    """
    from relay.git.worktrees import list_roots

    return tuple(root for root in list_roots(repo) if root != repo.root)


def find_made_places(repo: Repo, others: Iterable[Path]) -> tuple[Path, ...]:
    """Return the directories in which relay has made work trees or clones, beside work trees of the repository.

    Args:
        others: From `find_other_trees`.
    """
    beside = {place for root in (repo.root, *others) for place in root.parent.glob(f"*{_JOBS}")}
    jobs = [place for place in beside if os.path.lexists(place.with_suffix("") / ".git")]
    clone, store = repo.common_dir.parents[1], repo.common_dir.parent.name
    return (*sorted(jobs), *([clone.parent] if store == STORE and _CLONE.fullmatch(clone.name) else []))


def note_home(repo: Repo, home: Path) -> None:
    """Note whose job a work tree is."""
    write_note(repo, _HOME, str(home))


def find_home(repo: Repo) -> Path:
    """Return the root of the work tree whose job this one is, where its logs are kept; without a note its own root."""
    if repo.git_dir == repo.common_dir:
        return repo.root
    noted = Path(read_note(repo, _HOME) or repo.root)
    return noted if noted.is_absolute() and os.path.lexists(noted / ".git") else repo.root


def is_own_tree(repo: Repo) -> bool:
    """Return whether a work tree is one of relay's own."""
    return find_home(repo) != repo.root


def note_checked(repo: Repo, *commits: str) -> None:
    """Note where a job's branch may land: the plan's branch has these commits, or relay checked and made them here.

    Name the commit that the branch is about to move to and the present one: a kill leaves the branch at either.
    """
    write_note(
        repo, _CHECKED, " ".join(commits), synced=False
    )  # if a power cut loses the note, relay checks the commits once more


def is_checked(repo: Repo, commit: str) -> bool:
    """Return whether a job's branch may land at a commit: relay checked it in this work tree, with all below it.

    Commits that somebody else made there, or that a fetch brought, were not checked.
    """
    return commit in read_note(repo, _CHECKED).split()


_BROUGHT = "brought"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What git ignores in the user's work tree and relay has brought into this one."""

    copies: dict[str, tuple[str, str]]
    """Path of a copied file or directory → marks of the original and of the copy, as they were then."""
    lent: tuple[str, ...]
    """Directories that commands see as the user has them."""


def save_brought(repo: Repo, brought: Brought) -> None:
    """Note it."""
    write_note(repo, _BROUGHT, _render(brought), synced=False)


def read_brought(repo: Repo) -> Brought | None:
    """Return it; None without the note."""
    return _load(repo, _BROUGHT, Brought)


_WORKER, _FLEET = "worker", "fleet"


def ensure_worker(repo: Repo) -> str:
    """Return the name of this clone as a worker of a fleet, made at first use."""
    import secrets
    import socket

    if not (token := read_note(repo, _WORKER).strip()).isalnum():
        token = secrets.token_hex(4)
        write_note(repo, _WORKER, token)
    return f"{socket.gethostname()}-{token}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSight:
    """What a person's last `relay fleet` command here saw of a plan."""

    plan_path: str
    branch: str
    at: float
    """Seconds since the epoch."""
    phases: Mapping[str, str]
    """Phases that are queued or at work: id → state in words."""


def save_fleet_sight(repo: Repo, sight: FleetSight) -> None:
    """Note it for `relay status` and `relay run`, which ask no database."""
    write_note(repo, _FLEET, _render(sight), synced=False)


def read_fleet_sight(repo: Repo, plan_path: str) -> FleetSight | None:
    """Return the last sight of a plan on this branch with phases queued or at work; None without one."""
    sight = _load(repo, _FLEET, FleetSight)
    return sight if sight and sight.phases and (sight.plan_path, sight.branch) == (plan_path, repo.branch) else None


MAX_CHARS = 2_000
"""Limit for one text: about 500 tokens, which every further session of the phase is told again."""
_MAX_BYTES = 6 * MAX_CHARS + 1_000
"""Limit for a file: each character may be escaped."""
_FOLDER = ("relay", "said")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWords:
    """A text from a person."""

    name: str
    """The name of its file."""
    text: str
    phase_id: str
    """The only phase that it is for; empty for the next session, whatever its phase."""


def leave_words(repo: Repo, text: str, *, phase_id: str = "") -> None:
    """Leave a text for the run; it is on the disk when this returns.

    Raises:
        OSError: It cannot be written.
    """
    _leave(repo, {"text": text, "phase": phase_id})


def leave_cap(repo: Repo, cap_usd: float | None) -> None:
    """Leave another cap for the run that is at work; None: no cap. Raises what `leave_words` does."""
    _leave(repo, {"cap_usd": cap_usd})


def _leave(repo: Repo, body: Mapping[str, object]) -> None:
    import json

    repo.make_relay_dir()
    data = json.dumps(body).encode()
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    with open_folder(repo.git_dir, _FOLDER, create=True, permissions=0o700) as folder:
        replace_with_file(folder, name, data)


def read_words(repo: Repo, phase_id: str) -> tuple[UserWords, ...]:
    """Return the texts for a session of this phase, in the order they came; unreadable ones are skipped."""
    return tuple(
        UserWords(name=name, text=str(body["text"])[:MAX_CHARS], phase_id=str(body["phase"]))
        for name, body in _read_left(repo)
        if {"text", "phase"} <= body.keys() and body["phase"] in ("", phase_id)  # anything may stand there, a list too
    )


def take_cap(repo: Repo) -> "CapMoved | None":
    """Remove the caps that a person left, and return the last one; None without any."""
    from relay.session.events import CapMoved

    found = {name: body["cap_usd"] for name, body in _read_left(repo) if "cap_usd" in body}
    drop_words(repo, tuple(found))
    caps = [cap for cap in found.values() if cap is None or (isinstance(cap, int | float) and cap >= 0)]
    return CapMoved(cap_usd=caps[-1]) if caps else None


def _read_left(repo: Repo) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the name and content of each file that a person left, in the order they came."""
    import json

    left: list[tuple[str, Mapping[str, Any]]] = []
    with contextlib.suppress(OSError), open_folder(repo.git_dir, _FOLDER) as folder:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".json"))
        for name in names:
            with contextlib.suppress(OSError, ValueError, RecursionError):
                with os.fdopen(open_regular(name, folder), "rb") as stream:
                    body = json.loads(stream.read(_MAX_BYTES))
                if isinstance(body, dict):
                    left.append((name, body))
    return left


def drop_words(repo: Repo, names: tuple[str, ...]) -> None:
    """Remove texts that are kept elsewhere by now; texts that are gone already are skipped."""
    with contextlib.suppress(FileNotFoundError), open_folder(repo.git_dir, _FOLDER) as folder:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)


_LAST_RUN, _LAST_GATE = "last-run", "last-gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGate:
    """The gate that ran last."""

    at: float
    """Seconds since the epoch, at its end."""
    phase_id: str
    passed: bool
    baseline: bool = False
    expected: str = ""
    """As in `relay.session.events.GateFinished`."""
    summary: str = ""
    checks: tuple[Mapping[str, Any], ...] = ()
    """As in the event."""

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(check for check in self.checks if check.get("status") != "passed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The last run, or planning."""

    began: float
    command: str
    """``run`` or ``plan``."""
    plan_path: str
    branch: str
    ended: float | None = None
    """None if its end was not noted: it is at work, was killed, or the power failed."""
    exit_code: int | None = None
    reason: str = ""
    next_command: str = ""
    waits_for: str = ""
    """The phase that waits for approval, with ``run --approve``."""
    gate: LastGate | None = None
    """The run's last gate that was unexpectedly red; None without one."""


def save_last_run(repo: Repo, run: LastRun, secret_values: tuple[str, ...] = ()) -> None:
    """Save it; if it cannot be written, it is lost and nothing stops."""
    _save_last(repo, _LAST_RUN, run, secret_values)


def save_last_gate(repo: Repo, gate: LastGate, secret_values: tuple[str, ...] = ()) -> None:
    """Save it, in the same way."""
    _save_last(repo, _LAST_GATE, gate, secret_values)


def _save_last(repo: Repo, name: str, value: LastRun | LastGate, secret_values: tuple[str, ...]) -> None:
    from relay.base.redaction import redact

    with contextlib.suppress(OSError, RepoError):
        write_note(repo, name, redact(_render(value), environ_values=secret_values), synced=False)


def read_last_run(repo: Repo) -> LastRun | None:
    """Return the last run; None without a note that relay wrote."""
    return _load(repo, _LAST_RUN, LastRun)


def read_last_gate(repo: Repo) -> LastGate | None:
    """Return the last gate, in the same way."""
    return _load(repo, _LAST_GATE, LastGate)


def _render(value: object) -> str:
    import json

    from msgspec import to_builtins

    return json.dumps(to_builtins(value))


def _load(repo: Repo, name: str, kind: type[ValueT]) -> ValueT | None:
    """Return what a note says; None without one that relay wrote."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if text := read_note(repo, name):  # as a rule there is none: then nothing is loaded
            import json

            from msgspec import ValidationError, convert

            with contextlib.suppress(ValidationError):
                return convert(json.loads(text), kind)
    return None

"""What a person leaves for the run of a work tree from another terminal: words for its session, and a wish to pause.

One file for each text in ``relay/said/`` of the work tree's git directory, taken in the order they came and removed
once a snapshot holds them; ``relay/pause`` is there while the run is to wait. No session can write there
(`relay.sandbox`), which is why what stands in these files is believed.
"""

import contextlib
import json
import os
import time

from relay.base.replacement import replace_with_file
from relay.base.values import dataclass
from relay.base.walk import open_folder, open_regular
from relay.git.notes import drop_note, read_note, write_note
from relay.git.repository import Repo

_NOTE = "claim"
_LONGEST_TIME = 12


def read_clock() -> float:
    """Return seconds on a clock of this machine alone, which goes on while it sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def write_claim_end(repo: Repo, ends_s: float) -> None:
    """Say until when runs that this process starts in a work tree may ask a model, by `read_clock`."""
    write_note(repo, _NOTE, f"{os.getpid()} {ends_s:.0f}")


def drop_claim_end(repo: Repo) -> None:
    """Let runs in a work tree go on for as long as they like."""
    drop_note(repo, _NOTE)


def is_claim_over(repo: Repo) -> bool:
    """Return whether this is the run of a worker whose claim has run out; what a dead one has left says nothing."""
    worker, _, ends = read_note(repo, _NOTE).partition(" ")
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

"""Until when the claim holds under which a worker has a run go on; behind that the run asks for nothing.

A worker that was stopped, or slept with its machine, may have lost the phase without knowing: its run finds out before
it spends more.
"""

import os
import time

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

"""What is seen to before a command may begin."""

import contextlib
import time
from pathlib import Path

from relay.sandbox.launcher import find_descendants

ATTEMPTS = 3
"""A path that vanished between check and mount fails the set-up before a command runs; then it is laid out anew."""
_EXPENDABLE = "1000"
_LOOKS, _PAUSE_S = 2000, 0.0005


def make_expendable(*pids: int) -> None:
    """Put processes first in line when memory runs out: else the kernel may take relay, or the user's editor.

    In bwrap's view /proc is read-only: no command takes it back.
    """
    for pid in pids:
        with contextlib.suppress(OSError):  # no Linux, or it has ended
            _find_score(pid).write_text(_EXPENDABLE)


def settle(init: int) -> None:
    """Wait until the first process of a sandbox is bound to bwrap, and see to its place in the line.

    bwrap itself is bound to relay before it tells of its child. The child is when it waits for the first time; it has
    had far more time for that than it needs, but a busy machine promises nothing.
    """
    for _ in range(_LOOKS):
        if _is_asleep(init):
            break
        time.sleep(_PAUSE_S)
    with contextlib.suppress(OSError):
        if _find_score(init).read_text() != f"{_EXPENDABLE}\n":  # it was made before relay could say it of bwrap
            make_expendable(init, *_list_below(init))


def _list_below(pid: int) -> list[int]:
    """Return the processes below one that waits, and so starts none: not by a look at all that the machine has."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended, or the kernel does not keep that
        return find_descendants(pid)
    return children + [below for child in children for below in _list_below(child)]


def _find_score(pid: int) -> Path:
    return Path(f"/proc/{pid}/oom_score_adj")


def _is_asleep(pid: int) -> bool:
    """Return whether a process waits for something, or is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"S"
    except OSError:
        return True

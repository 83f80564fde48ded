"""Processes that outlived the relay that started them.

A command begins only when its end is tied to relay's. What can be left is what was on the way to a command: bwrap waits
for ever for a parent that was killed before it wrote a word. And without a process namespace, what stood below a
supervisor that was killed too. Each names the private directory of its sandbox, which nobody can guess and which no
living relay holds: so no stranger is taken for one.
"""

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from relay.base.errors import SandboxError
from relay.sandbox.supervisor import read_processes

_PATIENCE_S = 10.0
"""A process that was killed may take seconds to go where the machine has much to do."""
_PAUSE_S = 0.005


def end_survivors(tmp: Path) -> None:
    """End every process of the sandbox whose private temporary directory is `tmp`, and wait until they are gone.

    Raises:
        SandboxError: One does not end.
    """
    _end(lambda: find_survivors(tmp))


def end_orphans(tmp: Path) -> None:
    """End those whose parent is gone: where one of the two processes of bwrap is killed alone, the other may stay.

    Raises:
        SandboxError: One does not end.
    """
    _end(lambda: _find_orphans(tmp))


def _find_orphans(tmp: Path) -> tuple[int, ...]:
    found, table = find_survivors(tmp), read_processes()
    above = {os.getpid(), *found}
    return tuple(pid for pid in found if pid in table and table[pid].parent not in above)


def _end(find: Callable[[], tuple[int, ...]]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while found := find():
        if time.monotonic() > until:
            numbers = " ".join(map(str, found))
            words = f"a command of an earlier run does not end: process {numbers}"
            raise SandboxError(words, hint=f"kill -9 {numbers}")
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # it has ended
        time.sleep(_PAUSE_S)


def find_survivors(tmp: Path) -> tuple[int, ...]:
    """Return the processes that bwrap was to give `tmp`, or whose environment has it; never this one's own line."""
    mark, own = os.fsencode(tmp), _find_line()
    others = (pid for pid in read_processes() if pid not in own)
    return tuple(pid for pid in others if _is_marked(Path("/proc", str(pid)), mark))


def _find_line() -> frozenset[int]:
    """Return this process and those above it: relay may itself have been started by what is looked for."""
    table, line = read_processes(), [os.getpid()]
    while line[-1] in table and table[line[-1]].parent not in line:
        line.append(table[line[-1]].parent)
    return frozenset(line)


def _is_marked(process: Path, mark: bytes) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        if (b"--bind", mark) in itertools.pairwise(words):
            return True
        return b"TMPDIR=" + mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it has ended, or is another user's

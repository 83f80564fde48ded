"""How a confined program is started, and what is seen to before it may begin."""

import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import IO

from relay.base.values import dataclass
from relay.sandbox.supervisor import find_descendants

ATTEMPTS = 3
"""A path that vanished between check and mount fails the set-up before a command runs; then it is laid out anew."""
_EXPENDABLE = "1000"
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # how the kernel writes a blank, a tab, a newline and a backslash
_LOOKS, _PAUSE_S = 2000, 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program line that confines and runs a command, ready to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    status_fd: int | None = None
    """Read end of bwrap's `--json-status-fd`; closed by `run_launch`."""
    in_memory: tuple[Path, ...] = ()
    """Directories that the command writes and that live in memory, as it sees them."""
    hear: Callable[[bytes], None] = lambda _: None  # as `Sandbox.hear`
    prepare: Callable[[], object] = lambda: None  # as `Sandbox.prepare`
    words: bytes = b"\n"
    """What lets the command go; see `wrap_limits`."""
    alike: object = None
    """What is equal to that of another launch where either does for both."""
    points: tuple[Path, ...] = ()
    """Where something is mounted for the command."""

    def close(self) -> None:
        """Give up a launch that is not started."""
        for fd in (*self.pass_fds, *(() if self.status_fd is None else (self.status_fd,))):
            os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A program that waits for the words that let its command go."""

    process: subprocess.Popen[bytes]
    """Its output is a pipe."""
    speak: socket.socket
    """The other end of its standard input."""
    launch: Launch
    early: bool = False
    """Whether time has passed since its mounts were laid out, in which somebody may have changed what they cover."""


def spawn(launch: Launch, *, stderr: int | IO[bytes]) -> Started:
    """Start a program.

    Raises:
        OSError: It cannot be started.
        ValueError: Its command line holds what none can hold.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = subprocess.Popen(
                launch.argv,
                env=dict(launch.env),
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                pass_fds=launch.pass_fds,
                # Ctrl-C goes to the terminal's foreground group: here relay alone ends a command, which cannot ask on
                # the terminal either.
                start_new_session=True,
            )
    except (OSError, ValueError):
        if launch.status_fd is not None:
            os.close(launch.status_fd)
        ours.close()
        raise
    finally:
        # bwrap's end of the status pipe is among them: while relay holds it too, the pipe never ends.
        for fd in launch.pass_fds:
            os.close(fd)
    if launch.status_fd is not None:
        make_expendable(process.pid)
    return Started(process=process, speak=ours, launch=launch)


def make_expendable(*pids: int) -> None:
    """Put processes first in line when memory runs out: else the kernel may take relay, or the user's editor.

    In bwrap's view /proc is read-only: no command takes it back.
    """
    for pid in pids:
        with contextlib.suppress(OSError):  # no Linux, or it has ended
            _find_score(pid).write_text(_EXPENDABLE)


def wait_until_bound(init: int) -> None:
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


def has_mounts(init: int, points: Collection[Path]) -> bool:
    """Say whether a sandbox still has all of these mounts, and none of something that was removed.

    The kernel takes away what is mounted on a file or directory that is removed or replaced outside of the sandbox, and
    what is mounted on one that is renamed goes with it: what stands there now has nothing over it.
    """
    try:
        lines = Path(f"/proc/{init}/mountinfo").read_bytes().splitlines()
    except OSError:  # it has ended
        return False
    rows = [line.split(b" ", 5) for line in lines]
    names = (name for _, _, _, source, name, _ in rows if not source.endswith(b"//deleted"))
    there = {_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), name) for name in names}
    return there.issuperset(map(os.fsencode, points))


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

"""Starts a confined program, watches its process tree, and kills it.

Memory is the kernel's to bound: when it runs out, the kernel kills a command's processes first. RLIMIT_AS counts
reserved address space, which for Node, Java, Go and sanitizers is many times the memory in use. RLIMIT_DATA counts
shadow memory and thread stacks that were never touched. Both allow each child as much again. A cgroup would count
correctly, but only the administrator may allow one.
"""

import contextlib
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from relay.base.values import dataclass
from relay.sandbox.supervisor import find_descendants

ATTEMPTS = 3
"""Launches of a command. A path that vanishes between check and mount fails the set-up before the command runs; the
next attempt lays the view out anew."""
START_S = 20.0
"""Time limit for the set-up of the sandbox, which takes a hundredth of it."""
GONE_S = 2.0
"""How long a killed tree may take to disappear before harder means are used."""
_EXPENDABLE = "1000"
_LOOKS, _PAUSE_S = 2000, 0.0005


LET_GO = b"\n"
"""Sent to a waiting command to let it begin; see `relay.sandbox.command.wrap_limits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program line that confines and runs a command, ready to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    status_fd: int | None = None
    """Read end of bwrap's `--json-status-fd`; whoever starts the launch closes it."""

    def close(self) -> None:
        """Close the descriptors of a launch that is not started."""
        for fd in (*self.pass_fds, *(() if self.status_fd is None else (self.status_fd,))):
            os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A running program whose command waits for `LET_GO`."""

    process: subprocess.Popen[bytes]
    """Its output is a pipe."""
    speak: socket.socket
    """The other end of its standard input."""
    launch: Launch

    def close(self) -> None:
        """Close relay's ends of its input and of bwrap's status."""
        self.speak.close()
        if self.launch.status_fd is not None:
            os.close(self.launch.status_fd)


def spawn(launch: Launch, *, stderr: int | IO[bytes]) -> Started:
    """Start a program.

    Raises:
        OSError: It cannot be started.
        ValueError: An argument holds a NUL byte.
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
                # Ctrl-C goes to the terminal's foreground group. Only relay may end a command, and a command must not
                # read from the terminal.
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
    """Have the kernel kill these processes first when memory runs out, before relay or the user's editor.

    In bwrap's view /proc is read-only, so no command can undo this.
    """
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            _find_score(pid).write_text(_EXPENDABLE)


def let_go(started: Started) -> int | None:
    """Let a command begin once its sandbox is set up.

    Returns:
        The sandbox's init process, 0 without one; None if the set-up failed, and the program has ended or must be.
    """
    started.speak.settimeout(START_S)
    ready, init, status_fd = b"", 0, started.launch.status_fd
    with contextlib.suppress(OSError):  # it has ended
        ready = started.speak.recv(1)
    if not ready:
        return None
    if status_fd is not None:
        status = b""
        while b"\n" not in status and (chunk := os.read(status_fd, 4096)):  # bwrap's first document names it
            status += chunk
        init = int(json.loads(status.split(b"\n", 1)[0] or b"{}").get("child-pid", 0))
        wait_until_bound(init)
    with contextlib.suppress(OSError):  # it has ended meanwhile
        started.speak.sendall(LET_GO)
    return init


def wait_until_bound(init: int) -> None:
    """Wait until the sandbox's init process is bound to bwrap's life, and make it and its children expendable.

    bwrap binds itself to relay before it reports its child. The child binds itself before its first sleep. It has had
    far more time for that than it needs, but a busy machine promises nothing.
    """
    for _ in range(_LOOKS):
        if _is_asleep(init):
            break
        time.sleep(_PAUSE_S)
    with contextlib.suppress(OSError):
        if _find_score(init).read_text() != f"{_EXPENDABLE}\n":  # bwrap made it before relay made bwrap expendable
            make_expendable(init, *find_descendants(init))


def _find_score(pid: int) -> Path:
    return Path(f"/proc/{pid}/oom_score_adj")


def _is_asleep(pid: int) -> bool:
    """Return whether a process sleeps, or is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"S"
    except OSError:
        return True


def kill_below(root: int) -> None:
    """Kill all descendants of a process; the caller ends the process itself."""
    until = time.monotonic() + GONE_S
    # Children before their parent: once it is gone they belong to init, and no walk from here finds them.
    while time.monotonic() < until and (found := find_descendants(root)):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


_STOPPING_S = 10.0
"""How long a process may wait in the kernel before it stops."""


_TRIES = 200
"""After so many all go on for a moment: a parent in vfork(2) waits for its stopped child to start a program."""


def stop(root: int) -> bool:
    """Stop the descendants of a process until `resume`; return False if some still run, which wake each other."""
    until = time.monotonic() + _STOPPING_S
    for tries in itertools.count(1):
        if not (running := [pid for pid in find_descendants(root) if _is_running(pid)]):
            break
        if time.monotonic() > until:
            return False
        if tries % _TRIES == 0:
            resume(root)
            time.sleep(_PAUSE_S)
        _signal(running, signal.SIGSTOP)
        time.sleep(_PAUSE_S)
    return True


def _is_running(pid: int) -> bool:
    """Return whether a thread of a process goes on: one that waits in the kernel takes the signal later."""
    with contextlib.suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if (thread / "stat").read_bytes().rpartition(b")")[2].split()[0] not in b"TtZX":
                return True
    return False


def resume(root: int) -> None:
    """Let the descendants of a process go on, children first: a shell would take a stopped child for suspended."""
    _signal(reversed(find_descendants(root)), signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            os.kill(pid, number)


_PR_SET_DUMPABLE = 4


def prepare_process() -> None:
    """Close relay's memory and environment to other processes of the same user, and turn off core dumps.

    Call this once at start, before a key is read. Without it a command outside a process namespace can read
    `/proc/PID/environ` (measured: readable, then `Permission denied`).
    """
    import ctypes

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

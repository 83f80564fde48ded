"""Runs one command and its process tree to the end: bounded output, limits, and no process left over.

Measurements gave these rules. A closed pipe is not an exit, and an exit is not a closed pipe. `communicate()` waits
for every process that inherited the pipe, so it is not used. Both the head and the tail of the output are kept.
"""

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from relay.base.values import dataclass
from relay.base.walk import open_ignored
from relay.plan.text import OUTPUTS
from relay.sandbox.policy import Limits
from relay.sandbox.process import (
    GONE_S,
    Started,
    kill_below,
    let_go,
)
from relay.sandbox.supervisor import find_descendants, read_processes

POLL_S = 0.1
"""Interval at which `should_stop` and the limits are checked."""
DRAIN_S = 0.2
"""How long output is still read after the process has ended."""
_CHUNK_BYTES = 256 * 1024
_SHELL = "/bin/sh"
NOT_STARTED = 126
"""Exit code for a command that could not be started, as shells use it; 127 is a missing binary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The outcome of a command. A command never causes an exception."""

    exit_code: int | None
    """None if relay killed it. 127: no such binary; 126: not startable; 128 + N: died of signal N."""
    output: bytes
    """Standard output and error in the order they came; a line in the middle says how much was cut."""
    total_bytes: int
    """Size of the whole output."""
    timed_out: bool
    interrupted: bool
    """`should_stop` returned True."""
    duration_s: float
    notes: tuple[str, ...] = ()
    """Sentences about relay's part: a limit that killed the command, a spool file that failed."""


def make_not_started(words: str) -> CommandResult:
    """Return the result of a command that was not started."""
    output = f"relay: {words}\n".encode(errors="backslashreplace")
    return CommandResult(
        exit_code=NOT_STARTED,
        output=output,
        total_bytes=len(output),
        timed_out=False,
        interrupted=False,
        duration_s=0.0,
    )


END_BYTES = 1024


def _create(file: Path) -> int:
    """Create or truncate an output file without following a link."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def keep_output(file: Path, output: bytes) -> bool:
    """Write a whole output to a file; return whether that worked."""
    try:
        with os.fdopen(_create(file), "wb") as stream:
            stream.write(output)
    except OSError:
        return False
    return True


def reserve_output(root: Path, name: str) -> Path | None:
    """Return a new file's path in the directory of outputs of a work tree, which is made and which git ignores.

    None if the directory cannot be made, or is a link: relay writes nothing through a link that a repository ships.
    """
    try:
        with open_ignored(root, OUTPUTS.split("/")):
            return root / OUTPUTS / name
    except OSError:
        return None


class Capture:
    """Takes a stream chunk by chunk; memory stays below twice `keep_bytes`, and a little for the end.

    Args:
        keep_bytes: Size of head and tail together.
        spool: File for the stream from its start, created once head and tail cannot hold all of it; None for no copy.
            If nothing is kept in memory it is created at once.
        spool_bytes: Largest size of the spool file.
    """

    def __init__(self, *, keep_bytes: int, spool: Path | None, spool_bytes: int) -> None:
        self._head_bytes = keep_bytes // 2
        self._tail_bytes = keep_bytes - self._head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._spool_left = spool_bytes
        self._spool_fd: int | None = None
        self.total_bytes = 0
        self.notes: tuple[str, ...] = ()
        """A sentence for each failure of the copy on disk."""
        self._spool = spool
        if not self._head_bytes:
            self._open()

    def _open(self) -> None:
        spool, self._spool = self._spool, None
        if spool is None:
            return
        try:
            self._spool_fd = _create(spool)
        except OSError as error:
            self.notes += (f"the full output was not kept: {error}",)

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total_bytes += len(chunk)
        if self._spool is not None and self.total_bytes > self._head_bytes:
            self._open()
            self._copy(self._head)
        self._copy(chunk)
        room = max(self._head_bytes - len(self._head), 0)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        # Cut at twice the size: cutting at every chunk would copy the tail every time.
        kept = max(self._tail_bytes, END_BYTES)
        if len(self._tail) > 2 * kept:
            del self._tail[:-kept]

    def _copy(self, chunk: bytes | bytearray) -> None:
        if self._spool_fd is None or self._spool_left <= 0:
            return
        part = memoryview(chunk)[: self._spool_left]
        try:
            while part:
                written = os.write(self._spool_fd, part)
                self._spool_left -= written
                part = part[written:]
        except OSError as error:
            self.notes += (f"the full output was kept only in part: {error}",)
            self.close()

    def close(self) -> None:
        """Close the copy on disk; a second call does nothing."""
        if self._spool_fd is not None:
            os.close(self._spool_fd)
            self._spool_fd = None

    def get_end(self) -> bytes:
        """Return the last `END_BYTES` of the stream, or all of a shorter one."""
        return bytes((self._head[-END_BYTES:] + self._tail[-END_BYTES:])[-END_BYTES:])

    def render(self) -> bytes:
        """Return head and tail, with a line between them that says how much is missing."""
        tail = bytes(self._tail[-self._tail_bytes :]) if self._tail_bytes else b""
        cut = self.total_bytes - len(self._head) - len(tail)
        if not cut:
            return bytes(self._head) + tail
        return bytes(self._head) + b"\n[relay: %d bytes of output cut here]\n" % cut + tail


def wrap_limits(
    argv: tuple[str, ...], limits: Limits, *, shared_user: bool, keeps_input: bool = False
) -> tuple[str, ...]:
    """Return a command that sets its own limits, reports that it is ready, and becomes `argv` when relay answers.

    A relay that was killed cannot answer. Before it answers, it has made sure that the command ends with relay, so no
    command goes on alone, without limits, in the tree of the next run.

    `/bin/sh` is the launcher: POSIX `ulimit` is on every system that can run a command, costs half a millisecond, and
    runs after the user namespace exists, in which the kernel counts processes per sandbox. Alpine has no `prlimit`,
    and `preexec_fn` is unsafe with threads.

    Args:
        argv: The command.
        limits: The limits; none is set above relay's own.
        shared_user: The command has no user namespace of its own, so the user's other processes count too.
        keeps_input: The command goes on to read from relay; otherwise its input is empty.
    """
    blocks = _cap(limits.file_bytes // 512, resource.RLIMIT_FSIZE, 512)
    others = [one.tasks for one in read_processes().values() if one.uid == os.getuid()] if shared_user else []
    tasks = _cap(limits.processes + sum(others), resource.RLIMIT_NPROC, 1)
    script = f"ulimit -c 0; ulimit -f {blocks} || exit {NOT_STARTED}; "
    # dash and busybox call it -p, which is something else in bash: -u comes first.
    script += f"ulimit -u {tasks} 2>/dev/null || ulimit -p {tasks} || exit {NOT_STARTED}; echo >&0; "
    script += f'read -r relay_answer || exit {NOT_STARTED}; exec "$@"'
    # Never the host's /dev/null, which uid 0 may chmod: the sandbox's own.
    script += "" if keeps_input else " </dev/null"
    return (_SHELL, "-c", script, "relay", *argv)


def _cap(wanted: int, which: int, unit: int) -> int:
    hard = resource.getrlimit(which)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard // unit)


def run_started(
    started: Started,
    *,
    limits: Limits,
    should_stop: Callable[[], bool],
    spool: Path | None,
    hear: Callable[[bytes], None],
) -> tuple[CommandResult | None, bytes]:
    """Run a started program until its command and all descendants are gone; see `Sandbox` for the callbacks.

    Returns:
        The result, None if the command never started; and the end of the output, even if the result holds none of it.
    """
    capture = Capture(keep_bytes=limits.keep_bytes, spool=spool, spool_bytes=limits.spool_bytes)
    with _Tree(started, capture) as tree:
        is_begun = tree.begin()
        stopped = tree.watch(limits=limits, should_stop=should_stop, hear=hear) if is_begun else _Stopped()
        tree.finish()
    if not is_begun:
        return None, capture.get_end()
    code = started.process.returncode
    result = CommandResult(
        exit_code=None if stopped.killed else code if code >= 0 else 128 - code,
        output=capture.render(),
        total_bytes=capture.total_bytes,
        timed_out=stopped.timed_out,
        interrupted=stopped.interrupted,
        duration_s=time.monotonic() - tree.begun_s,
        notes=(*stopped.notes, *capture.notes, *tree.notes),
    )
    return result, capture.get_end()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stopped:
    timed_out: bool = False
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        return self.timed_out or self.interrupted or bool(self.notes)


class _Tree:
    """A started launch: lets its command begin, reads its output, notices its end, and kills it."""

    def __init__(self, started: Started, capture: Capture) -> None:
        assert started.process.stdout is not None  # noqa: S101  # `spawn` asked for it
        self._started, self._process, self._pipe = started, started.process, started.process.stdout
        self._capture = capture
        self._idle_tasks = _count_all_tasks()
        self._init_pid = 0
        self._init_fd: int | None = None
        self._selector = selectors.DefaultSelector()
        self.begun_s = 0.0
        """When the command was let go."""
        self.notes: tuple[str, ...] = ()
        os.set_blocking(self._pipe.fileno(), False)
        self._selector.register(self._pipe, selectors.EVENT_READ, self._read_output)
        self._exit_fd = _open_pidfd(self._process.pid)
        if self._exit_fd is not None:
            self._selector.register(self._exit_fd, selectors.EVENT_READ, lambda: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._kill()
        self._selector.close()
        self._started.close()
        self._pipe.close()
        self._capture.close()
        for fd in (self._init_fd, self._exit_fd):
            if fd is not None:
                os.close(fd)

    def begin(self) -> bool:
        """Let the command begin; return False if its sandbox could not be set up."""
        init = let_go(self._started)
        self.begun_s = time.monotonic()
        self._init_pid = init or 0
        self._init_fd = _open_pidfd(init) if init else None
        return init is not None

    def watch(self, *, limits: Limits, should_stop: Callable[[], bool], hear: Callable[[bytes], None]) -> _Stopped:
        """Read until the process ends or must be ended."""
        next_look = 0.0
        while self._process.poll() is None:
            now, deadline = time.monotonic(), self.begun_s + limits.timeout_s
            if now >= deadline:
                return _Stopped(timed_out=True)
            if now >= next_look:
                next_look = now + POLL_S
                if should_stop():
                    return _Stopped(interrupted=True)
                hear(self._capture.get_end())
                # The kernel's limit on processes does not bind uid 0.
                # The machine's count is one cheap read: relay walks over /proc only where so many are new.
                tasks = limits.processes
                if _count_all_tasks() - self._idle_tasks > tasks:
                    table = read_processes()
                    if sum(table[pid].tasks for pid in find_descendants(self._process.pid, table)) > tasks:
                        return _Stopped(notes=(f"killed: more than {tasks} processes at once",))
            self._handle(min(POLL_S, deadline - now))
        return _Stopped()

    def _handle(self, timeout_s: float) -> None:
        # Without a pidfd (a kernel before 5.3) an exit does not end the wait: look often.
        wait_s = timeout_s if self._exit_fd is not None else min(timeout_s, 0.02)
        for key, _ in self._selector.select(max(wait_s, 0.0)):
            key.data()

    def finish(self) -> None:
        """Make sure that no process of the tree is left, then read the rest of the output from the pipe."""
        if self._process.poll() is None:
            self._kill()
        if self._exit_fd is not None:
            self._selector.unregister(self._exit_fd)
        if self._init_fd is not None and not _wait_readable(self._init_fd, GONE_S):
            self.notes += ("processes of this command may still be ending",)
        # Not until the pipe ends: a process that left the tree may hold its other end for hours.
        until = time.monotonic() + DRAIN_S
        while self._pipe in self._selector.get_map() and (left := until - time.monotonic()) > 0:
            self._handle(left)

    def _kill(self) -> None:
        """Kill the tree.

        A supervisor kills its descendants on SIGTERM. bwrap's child is the init of a process namespace, and the kernel
        kills all of that with it: no walk over thousands of processes comes first.
        """
        if self._started.launch.status_fd is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(GONE_S)
            except subprocess.TimeoutExpired:
                self.notes += ("the supervisor did not answer and was killed",)
        elif self._init_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init_pid, signal.SIGKILL)
        kill_below(self._process.pid)
        self._process.kill()
        self._process.wait()

    def _read_output(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return
        if chunk:
            self._capture.add(chunk)
        else:
            self._selector.unregister(self._pipe)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # it has ended, or the kernel is older than 5.3


def _wait_readable(fd: int, timeout_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def _count_all_tasks() -> int:
    """Return the number of tasks on this machine; one cheap read."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except OSError:
        return 0

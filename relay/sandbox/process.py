"""Starts a confined program and runs its process tree to the end: streamed output, limits, and no process left over.

Measurements gave these rules. A closed pipe is not an exit, and an exit is not a closed pipe. `communicate()` waits
for every process that inherited the pipe, so it is not used. Both the head and the tail of the output are kept.
"""

import contextlib
import json
import os
import re
import resource
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from relay.base.values import dataclass
from relay.sandbox.memory import holds_more, is_worth_a_look, read_files_bytes, render_limit
from relay.sandbox.output import Capture
from relay.sandbox.policy import Limits
from relay.sandbox.supervisor import find_descendants, read_processes

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


POLL_S = 0.1
"""`should_stop` and the limits are looked at this often."""
WALK_S = 0.5
"""All processes are walked over this often where the machine has more of them than a command may have."""
DRAIN_S = 0.2
"""How long output is still read after the process has ended."""
GONE_S = 2.0
"""How long a killed tree may take to disappear before harder means are used."""
_CHUNK_BYTES = 256 * 1024
_SHELL = "/bin/sh"
_END = "#told"
"""A comment for the shell."""
NOT_STARTED = 126
"""Exit code for a command that could not be started, as shells use it; 127 is a missing binary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command did. Nothing that a command does is an exception."""

    exit_code: int | None
    """None when relay killed it. 127: no such binary; 126: not startable; 128 + N: died of signal N."""
    output: bytes
    """Standard output and error in the order they came; a line in the middle says how much was cut."""
    total_bytes: int
    """Size of the whole output."""
    timed_out: bool
    interrupted: bool
    """`should_stop` said so."""
    duration_s: float
    notes: tuple[str, ...] = ()
    """Sentences on what relay did or could not do: a limit that killed the command, a spool file that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A result, and whether the command ever started."""

    result: CommandResult
    started: bool
    last: bytes
    """What was printed last, however little of it the result holds."""


def wrap_limits(
    argv: tuple[str, ...] | None, limits: Limits, *, shared_user: bool, keeps_input: bool = False
) -> tuple[str, ...]:
    """Return a command that sets its own limits, says that it is ready, and becomes `argv` when relay answers.

    A relay that is killed cannot answer. Before the answer whatever ends the command with relay is in force, so that
    no command goes on alone, without limits, in the tree of the next run.

    `/bin/sh` is the launcher: POSIX `ulimit` is on every system that can run a command, costs half a millisecond, and
    runs after the user namespace exists, where the kernel counts processes per sandbox. `prlimit` is missing on
    Alpine and macOS, `preexec_fn` is unsafe with threads.

    Args:
        argv: The command; None: relay's answer says it, see `render_words`.
        limits: What to set; never above the limits relay itself has.
        shared_user: The processes of the user outside count too: no user namespace of its own.
        keeps_input: The command goes on to read what relay says; else it reads nothing.
    """
    blocks = _cap(limits.file_bytes // 512, resource.RLIMIT_FSIZE, 512)
    tasks = _cap(limits.processes + (_count_own_tasks() if shared_user else 0), resource.RLIMIT_NPROC, 1)
    script = f"ulimit -c 0; ulimit -f {blocks} || exit {NOT_STARTED}; "
    # dash and busybox call it -p, which is something else in bash: -u comes first.
    script += f"ulimit -u {tasks} 2>/dev/null || ulimit -p {tasks} || exit {NOT_STARTED}; echo >&0; "
    if argv is None:  # by cat, which waits from now on: `read` asks the kernel for each byte
        script += f"relay_words=$(cat); case $relay_words in *{_END}) ;; *) exit {NOT_STARTED} ;; esac; "
        script += 'eval "exec $relay_words"'
    else:
        script += f'read -r relay_words || exit {NOT_STARTED}; exec "$@"'
    # Never the host's /dev/null, which uid 0 may chmod: the sandbox's own.
    script += "" if keeps_input else " </dev/null"
    return (_SHELL, "-c", script, "relay", *(argv or ()))


def render_words(argv: Sequence[str]) -> bytes:
    """Write how a command that waits is told what to become; it has been told all when the socket is closed.

    Raises:
        ValueError: No command line can hold a word of it.
    """
    line = f"{shlex.join(argv)} {_END}"
    if "\0" in line:
        raise ValueError("embedded null byte")
    return os.fsencode(line)


def _cap(wanted: int, which: int, unit: int) -> int:
    hard = resource.getrlimit(which)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard // unit)


def _count_own_tasks() -> int:
    me = os.getuid()
    return sum(process.tasks for process in read_processes().values() if process.uid == me)


def run_started(started: Started, *, limits: Limits, should_stop: Callable[[], bool], spool: Path | None) -> Ending:
    """Run it until the command and everything it started are gone."""
    capture = Capture(keep_bytes=limits.keep_bytes, spool=spool, spool_bytes=limits.spool_bytes)
    with _Tree(started, capture) as tree:
        stopped = tree.watch(limits=limits, should_stop=should_stop)
        tree.finish()
    exit_code = None if stopped.killed else _as_shell(started.process.returncode)
    result = CommandResult(
        exit_code=exit_code,
        output=capture.render(),
        total_bytes=capture.total_bytes,
        timed_out=stopped.timed_out,
        interrupted=stopped.interrupted,
        duration_s=time.monotonic() - tree.begun_s,
        notes=(*stopped.notes, *capture.notes, *tree.notes),
    )
    return Ending(result=result, started=stopped.killed or tree.command_started, last=capture.get_end())


def end_started(started: Started) -> None:
    """End what is not to be let go, and everything below it."""
    with _Tree(started, Capture(keep_bytes=0, spool=None, spool_bytes=0)):
        pass


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


def _as_shell(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stopped:
    timed_out: bool = False
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        return self.timed_out or self.interrupted or bool(self.notes)


class _Tree:
    """A started launch: reads its output, knows when it ended, and ends it."""

    def __init__(self, started: Started, capture: Capture) -> None:
        process, launch, command = started.process, started.launch, started.speak
        assert process.stdout is not None  # noqa: S101  # asked for above
        self._process = process
        self._pipe = process.stdout
        self._capture = capture
        self._launch = launch
        self._early = started.early
        self._is_stale = False
        self._status_fd = status_fd = launch.status_fd
        self._idle_tasks = _count_all_tasks()
        self._status = b""
        self._init_pid = 0
        self._init_fd: int | None = None
        self._command = command
        self._is_let_go = False
        self._selector = selectors.DefaultSelector()
        self.begun_s = time.monotonic()
        """When the command was let go; before that, when its sandbox was waited for."""
        self.notes: tuple[str, ...] = ()
        os.set_blocking(self._pipe.fileno(), False)
        self._selector.register(self._pipe, selectors.EVENT_READ, self._read_output)
        if status_fd is not None:
            os.set_blocking(status_fd, False)
            self._selector.register(status_fd, selectors.EVENT_READ, self._read_status)
        self._selector.register(command, selectors.EVENT_READ, self._let_go)
        self._exit_fd = _open_pidfd(process.pid)
        if self._exit_fd is not None:
            self._selector.register(self._exit_fd, selectors.EVENT_READ, lambda: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._kill()
        self._selector.close()
        self._command.close()
        self._pipe.close()
        self._capture.close()
        for fd in (self._status_fd, self._init_fd, self._exit_fd):
            if fd is not None:
                os.close(fd)

    @property
    def command_started(self) -> bool:
        """False when bwrap ended before the command was let go; one that was may have run, whatever ended bwrap."""
        return not self._is_stale and (self._status_fd is None or self._is_let_go or b'"exit-code"' in self._status)

    def watch(self, *, limits: Limits, should_stop: Callable[[], bool]) -> _Stopped:
        """Read until the process ends or must be ended."""
        next_look, next_walk = 0.0, time.monotonic() + WALK_S  # none of them can be the command's yet
        while self._process.poll() is None:
            now, deadline = time.monotonic(), self.begun_s + limits.timeout_s
            if now >= deadline:
                return _Stopped(timed_out=True)
            if now >= next_look:
                next_look = now + POLL_S
                if should_stop():
                    return _Stopped(interrupted=True)
                self._launch.hear(self._capture.get_end())
                # The kernel's limit on processes does not bind uid 0.
                tasks, all_tasks = limits.processes, _count_all_tasks()
                # The machine's count is one cheap read; the walk over /proc comes only when it could be true: at once
                # where the machine has got so many more, now and then where others may have ended meanwhile.
                if all_tasks - self._idle_tasks > tasks or (all_tasks > tasks and now >= next_walk):
                    next_walk = now + WALK_S
                    if self._count_tasks() > tasks:
                        return _Stopped(notes=(f"killed: more than {tasks} processes at once",))
                most = limits.memory_bytes
                if most and is_worth_a_look(most) and self._holds_more(most):
                    return _Stopped(notes=(render_limit(most),))
            self._handle(min(POLL_S, deadline - now))
        return _Stopped()

    def _holds_more(self, limit_bytes: int) -> bool:
        files_bytes = read_files_bytes(self._init_pid, self._launch.in_memory)
        return holds_more(find_descendants(self._process.pid), limit_bytes, files_bytes=files_bytes)

    def _handle(self, timeout_s: float) -> None:
        # Without a pidfd (macOS) an exit does not end the wait: look often.
        wait_s = timeout_s if self._exit_fd is not None else min(timeout_s, 0.02)
        for key, _ in self._selector.select(max(wait_s, 0.0)):
            key.data()

    def finish(self) -> None:
        """Make sure that nothing of the tree is left, then take the output still in the pipe."""
        if self._process.poll() is None:
            self._kill()
        self._drop(self._exit_fd)
        self._read_status()
        if self._init_fd is not None and not _wait_readable(self._init_fd, GONE_S):
            self.notes += ("processes of this command may still be ending",)
        # Not until the pipe ends: a process that left the tree may hold its other end for hours.
        until = time.monotonic() + DRAIN_S
        while self._pipe in self._selector.get_map() and (left := until - time.monotonic()) > 0:
            self._handle(left)

    def _kill(self) -> None:
        """End the tree.

        A supervisor ends its descendants when told to. bwrap's child is the init of a process namespace, and the
        kernel ends all of that with it.
        """
        if self._status_fd is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(GONE_S)
            except subprocess.TimeoutExpired:
                self.notes += ("the supervisor did not answer and was killed",)
        else:  # one that is killed as it clones its child leaves that behind, bound to nobody yet
            until = time.monotonic() + GONE_S
            while self._process.poll() is None and not self._init_pid and time.monotonic() < until:
                _wait_readable(self._status_fd, POLL_S)  # nothing else is heard: no command is let go any more
                self._read_status()
        kill_below(self._process.pid)
        self._process.kill()
        self._process.wait()

    def _count_tasks(self) -> int:
        table = read_processes()
        return sum(table[pid].tasks for pid in find_descendants(self._process.pid, table))

    def _let_go(self) -> None:
        """Let the command begin that has said that it is ready."""
        self._selector.unregister(self._command)
        try:
            ready = self._command.recv(1)
        except OSError:  # it has ended
            ready = b""
        if not ready:
            return
        self._read_status()
        if self._init_pid:
            wait_until_bound(self._init_pid)
        self._launch.prepare()
        # Behind what may take seconds, in which somebody saves a file that is covered.
        self._is_stale = self._early and not has_mounts(self._init_pid, self._launch.points)
        if self._is_stale:
            self._kill()
            return
        self.begun_s = time.monotonic()
        with contextlib.suppress(OSError):  # it has ended
            self._command.sendall(self._launch.words)
            self._is_let_go = True
        self._command.close()

    def _read_output(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return
        if chunk:
            self._capture.add(chunk)
        else:
            self._selector.unregister(self._pipe)

    def _read_status(self) -> None:
        """Take bwrap's status documents; the first names the init process of the sandbox."""
        if self._status_fd is None:
            return
        try:
            while chunk := os.read(self._status_fd, 4096):
                self._status += chunk
        except BlockingIOError:
            pass  # more comes later
        else:
            self._drop(self._status_fd)
        if self._init_fd is None and b"\n" in self._status:
            first = json.loads(self._status.split(b"\n", 1)[0])
            self._init_pid = first["child-pid"]
            self._init_fd = _open_pidfd(self._init_pid)

    def _drop(self, fd: int | None) -> None:
        if fd is not None and fd in self._selector.get_map():
            self._selector.unregister(fd)


def read_init_pid(status_fd: int) -> int:
    """Wait for bwrap's first status document; return the process that is the first of the sandbox."""
    status = b""
    while b"\n" not in status and (chunk := os.read(status_fd, 4096)):
        status += chunk
    return int(json.loads(status.split(b"\n", 1)[0] or b"{}").get("child-pid", 0))


def _open_pidfd(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # already gone, or a kernel before 5.3


def _wait_readable(fd: int, timeout_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def _count_all_tasks() -> int:
    """Tasks on this machine, one cheap read; 0 where there is no /proc."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except OSError:
        return 0


def kill_below(root: int) -> None:
    """Kill what a process has started, and whatever that has; the process itself is the caller's."""
    until = time.monotonic() + GONE_S
    # Children before their parent: once it is gone they belong to init, and no walk from here finds them.
    while time.monotonic() < until and (found := find_descendants(root)):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

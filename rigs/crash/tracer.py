"""A warm relay to start from, and the tracer that ends one at a chosen system call.

Importing everything takes half a second, a run of the whole scenario two; so one process imports everything once and
forks a child for every run. The child calls `relay`'s own entry point with an own environment, directory and output:
nothing in it is replaced, and the product has no hook.
"""

import contextlib
import ctypes
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from tests.starter import import_all

SOURCE = Path(__file__).with_name("killat.c")
LIMIT_S = 120.0
"""Longer than any run; one that hangs is a failure."""


class _Outcome(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_long),
        ("status", ctypes.c_int),
        ("reached", ctypes.c_int),
        ("orphans", ctypes.c_int),
        ("where", ctypes.c_char * 200),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens at which call; `killat.c` documents the modes."""

    at: int = 0
    """Number of the call, from 1; 0 counts only."""
    mode: str = "b"
    error: int = 0
    """The errno of the modes ``e`` and ``E``."""
    on: str = ""
    """Only calls are counted that are shown with this text; empty for all of the watched file system."""
    then: str = ""
    """The shell command of mode ``x``."""
    no_sync: bool = False
    """Every fsync says that it worked and does nothing: the control of power cuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One run of the command line."""

    root: Path
    output: Path
    """Where standard output and error are appended; not on the watched file system."""
    environ: dict[str, str]
    args: tuple[str, ...] = ("run",)
    fault: Fault | None = None
    """None runs it untraced."""
    log: Path | None = None
    """Where the calls are listed."""
    boot_id: Path | None = None
    """A file that is read in place of the system's boot id: the machine was restarted."""
    python: bool = False
    """Start a new interpreter (``python -m relay``) instead of a warm one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended."""

    code: int | None
    """Exit status; None when it was killed or hung."""
    count: int = 0
    """Calls that changed the watched file system."""
    reached: int = 0
    """1 when the fault happened; 2 when there was nothing to tear and it was killed before the call; 3 when the command
    of mode ``x`` failed."""
    orphans: int = 0
    """Processes that outlived the run by three seconds; -1: the run itself did not end."""
    where: str = ""
    """The call at which the fault happened."""


def find_obstacle() -> str:
    """Return why nothing can be traced here; empty when it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the tracer is written for x86-64 Linux"
    if shutil.which("cc") is None:
        return "there is no C compiler"
    if os.geteuid():
        return "needs root: relay closes its memory to other processes of the same user"
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    if "TracerPid:\t0" not in status:
        return "this process is being traced itself"
    return _try_trace()


def _try_trace() -> str:
    """Trace a child that does nothing: a container may forbid it."""
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).ptrace(0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return ""
    return "ptrace is not permitted"


def build(folder: Path) -> Path:
    """Compile the tracer into `folder`."""
    library = folder / "killat.so"
    if not library.exists():
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return library


@dataclass(slots=True)
class Starter:
    """Talks to the process that forks runs. Make it before any thread is started."""

    library: Path
    _pipe: Connection = field(init=False)
    _pid: int = field(init=False)

    def __post_init__(self) -> None:
        self._pipe, there = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._pipe.close()
            try:
                with contextlib.suppress(EOFError, KeyboardInterrupt):
                    _serve(there, self.library)
            except BaseException:  # noqa: BLE001  # shown; the parent sees that the pipe is closed
                traceback.print_exc()
            finally:  # nothing of the parent's is cleaned up here
                os._exit(0)
        there.close()

    def run(self, start: Start) -> Ended:
        """Run to the end, or to the fault."""
        self._pipe.send(start)
        ended = self._pipe.recv()
        assert isinstance(ended, Ended)
        return ended

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        os.waitpid(self._pid, 0)


@contextlib.contextmanager
def open_starter() -> Iterator[Starter]:
    """Give a starter, for any number of rigs."""
    with tempfile.TemporaryDirectory(prefix="relay-crash-starter-") as folder:
        starter = Starter(build(Path(folder)))
        try:
            yield starter
        finally:
            starter.close()


def _serve(pipe: Connection, library: Path) -> None:
    import_all()
    native = ctypes.CDLL(str(library))
    native.killat_trace.argtypes = (
        ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_char, ctypes.c_int, ctypes.c_ulong, ctypes.c_int,
        ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Outcome),
    )  # fmt: skip
    while True:
        pipe.send(_run(pipe.recv(), native))


def _run(start: Start, native: ctypes.CDLL) -> Ended:
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        _become_relay(start, native, ready)
    os.close(ready)
    try:
        return _trace(start, native, child, go) if start.fault else _wait(child, go)
    finally:
        os.close(go)


def _become_relay(start: Start, native: ctypes.CDLL, ready: int) -> None:
    code = 70
    try:
        os.read(ready, 1)
        os.close(ready)
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(start.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for target, source in ((0, null), (1, out), (2, out)):
            os.dup2(source, target)
        if start.boot_id:
            _restart_machine(start.boot_id)
        os.chdir(start.root)
        os.environ.clear()
        os.environ |= start.environ
        if start.fault and native.killat_arm():
            raise OSError("seccomp")
        if start.python:
            os.execv(sys.executable, [sys.executable, "-P", "-m", "relay", *start.args])
        code = _call_relay(start.args)
    finally:
        os._exit(code)


def leave_mounts() -> None:
    """Give this process a mount namespace of its own: what it mounts and unmounts, nobody else sees or keeps busy."""
    libc, private = ctypes.CDLL(None, use_errno=True), 1 << 18 | 1 << 14
    if libc.unshare(0x00020000) or libc.mount(None, b"/", None, private, None):
        raise OSError(ctypes.get_errno(), "no mount namespace of its own")


def _restart_machine(boot_id: Path) -> None:
    """Put a file over the boot id, for this process and its children only."""
    leave_mounts()
    libc, target = ctypes.CDLL(None, use_errno=True), b"/proc/sys/kernel/random/boot_id"
    if libc.mount(os.fsencode(boot_id), target, None, 4096, None):
        raise OSError(ctypes.get_errno(), "the boot id cannot be covered")


def _call_relay(args: tuple[str, ...]) -> int:
    from relay.__main__ import main

    sys.argv = ["relay", *args]
    # This process's own: what it has from a test writes to where the test's output is kept.
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _wait(child: int, go: int) -> Ended:
    os.write(go, b"!")
    deadline = time.monotonic() + LIMIT_S
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return Ended(code=os.waitstatus_to_exitcode(status))
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Ended(code=None, orphans=-1)
        time.sleep(0.005)


def _trace(start: Start, native: ctypes.CDLL, child: int, go: int) -> Ended:
    fault, out = start.fault or Fault(), _Outcome()
    device = start.root.stat().st_dev
    log = os.fsencode(start.log) if start.log else None
    on, then = (os.fsencode(text) if text else None for text in (fault.on, fault.then))
    numbers = (child, go, fault.at, fault.mode.encode(), fault.error, device, fault.no_sync)
    failed = native.killat_trace(*numbers, log, LIMIT_S, on, then, ctypes.byref(out))
    if failed:
        raise OSError(failed, "the tracer failed")
    ended = os.WIFEXITED(out.status) and (not out.reached or fault.mode in "oeEx")
    return Ended(
        code=os.WEXITSTATUS(out.status) if ended else None,
        count=out.count,
        reached=out.reached,
        orphans=out.orphans,
        where=out.where.decode(errors="replace"),
    )

"""Supervises one command that runs without a sandbox, so that no process of it is left over.

relay runs this file as a program, `python -I -S supervisor.py CWD -- COMMAND…`. It imports little of the standard
library and nothing else, because every command pays for each import. It makes itself the subreaper of the command's
descendants, so that a daemon cannot leave the tree. It kills them when the command ends, when it gets SIGTERM, or when
relay dies. Inside a sandbox the process namespace does all that.

A `preexec_fn` would be unsafe in a process with threads.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` itself needs enum: a fifth of the start's time
import os
import sys
import time

FAILED = 125
"""Exit code when the command could not be started; it did not run."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Process:
    """One row of the process table."""

    __slots__ = ("parent", "tasks", "uid")

    def __init__(self, parent: int, tasks: int, uid: int) -> None:
        self.parent = parent
        self.tasks = tasks
        """Threads."""
        self.uid = uid


def read_processes() -> dict[int, Process]:
    """Return the process table by process id."""
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib costs 5 ms of every start
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    # The name in parentheses may hold spaces and parentheses: fields are counted from the last one.
                    fields = stat.read().rpartition(b")")[2].split()
                    owner = os.fstat(stat.fileno()).st_uid
            except OSError:
                continue  # ended meanwhile
            # A process whose first thread has ended looks dead while others of its threads work on.
            if fields[0] != b"Z" or int(fields[17]) > 1:
                table[int(name)] = Process(int(fields[1]), int(fields[17]), owner)
    return table


def find_descendants(root: int, table: dict[int, Process] | None = None) -> list[int]:
    """Return the living descendants of `root`, parents first."""
    table = read_processes() if table is None else table
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _prctl(option: int, *values: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *arguments):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def _end_descendants() -> None:
    """Kill all descendants. Each round stops them before it kills them, so that a fork bomb cannot outrun the walk."""
    while _has_children():
        found = find_descendants(os.getpid())
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                try:
                    os.kill(pid, number)
                except OSError:
                    continue  # it has ended, or changed its user
        time.sleep(0.002)


def _has_children() -> bool:
    """Reap ended children and return whether one is left: a subreaper has children while any descendant lives."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _become(supervisor: int, cwd: str, command: list[str]) -> None:
    """Replace this child process by the command; return only by raising."""
    # A command that signals its own process group (`kill 0`) must not hit its supervisor.
    os.setsid()
    # After the fork: the kernel clears it in a child.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        raise OSError("its supervisor has ended")
    with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
        score.write("1000")  # the kernel kills it before relay when memory runs out
    # The child inherited the supervisor's handler.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(cwd)
    os.execv(command[0], command)  # noqa: S606  # the caller names an absolute program


def main(arguments: list[str]) -> int:
    """Run a command and return its exit code; 128 + N if signal N ended it."""
    cwd, _, *command = arguments
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: _end_descendants())
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _become(supervisor, cwd, command)
        except OSError as error:
            os.write(2, f"relay: the command was not started: {error}\n".encode())
        finally:
            # This child is a copy of the supervisor and must never return into its code.
            os._exit(FAILED)
    status = 0
    pid = 0
    while pid != child:
        try:
            pid, status = os.wait()
        except ChildProcessError:  # the SIGTERM handler took it
            return 128 + int(signal.SIGKILL)
    _end_descendants()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

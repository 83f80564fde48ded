"""Supervises one command that runs without a sandbox, where no process namespace ends what it leaves behind.

Run as a program of its own, `python -I -S supervisor.py CWD -- COMMAND…`, so it imports nothing but the standard
library and little of that: each import is paid for by every command. It is the subreaper of all that the command
starts, so that a daemon cannot leave the tree, and ends what is left when the command ends, when it gets SIGTERM, or
when relay dies.

It is not a `preexec_fn`, which is unsafe in a process with threads.
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
    if not os.path.isdir("/proc/self"):  # noqa: PTH112  # pathlib costs 5 ms of every start
        return _ask_ps()
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
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


def _ask_ps() -> dict[int, Process]:
    import subprocess

    ps = ("/bin/ps", "-A", "-o", "pid=,ppid=,uid=,state=")
    lines = subprocess.run(ps, capture_output=True, check=False).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {int(row[0]): Process(int(row[1]), 1, int(row[2])) for row in rows if not row[3].startswith(b"Z")}


def find_descendants(root: int, table: dict[int, Process] | None = None) -> list[int]:
    """Return every living process below `root`, parents first, without `root`."""
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
    """Kill all descendants. Each round stops them first, so that a fork bomb cannot outrun the walk."""
    while _has_children():
        found = find_descendants(os.getpid())
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                try:
                    os.kill(pid, number)
                except OSError:
                    continue  # ended meanwhile, or changed its user
        time.sleep(0.002)


def _has_children() -> bool:
    """Reap who has ended and return whether anybody is left; the subreaper of a tree has a child while it has one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _become(supervisor: int, cwd: str, command: list[str]) -> None:
    """Turn this child into the command; returns only by raising."""
    # A command that signals its own process group (`kill 0`) must not hit its supervisor.
    os.setsid()
    if sys.platform == "linux":
        # After the fork: the kernel clears it in a child.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            raise OSError("its supervisor has ended")
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
            score.write("1000")  # first in line when memory runs out, before relay
    # The supervisor's handler came along with the fork.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(cwd)
    os.execv(command[0], command)  # noqa: S606  # the caller names an absolute program


def main(arguments: list[str]) -> int:
    """Run the command of `arguments` and return its exit code, 128 + N when signal N ended it."""
    cwd, _, *command = arguments
    if sys.platform == "linux":
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
            # Never back into the supervisor's code, of which this child is a copy.
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

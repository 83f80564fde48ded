"""Supervises one command where no process namespace does, and confines it by Landlock when asked to.

Run as a program of its own, `python -I -S launcher.py RULES SECCOMP CWD -- COMMAND…`, so it imports nothing but the
standard library and little of that: each import is paid for by every command. RULES and SECCOMP are file descriptors
or `-`. It is the subreaper of all that the command starts, so that a daemon cannot leave the tree, and ends what is
left when the command ends, when it gets SIGTERM, or when relay dies.

It is not a `preexec_fn`, which is unsafe in a process with threads, and it never restricts relay itself.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` itself needs enum: a fifth of the start's time
import os
import struct
import sys
import time

FAILED = 125
"""Exit code when the command could not be confined; it did not run."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 36, 38, 22
_PR_CAPBSET_DROP = 24
_SECCOMP_MODE_FILTER = 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION_FLAG = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract Unix sockets, signals

LEAST_ABI = 3
"""Before it, truncation is not governed."""


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


def _apply_landlock(rules: bytes) -> None:
    """Deny every file access but those of the rules: records `KIND PATH` ended by NUL.

    Kinds: `r` read and execute below, `w` everything below but making devices, `d` read and write one device,
    `n /` TCP stays allowed.
    """
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall

    def call(number: int, *arguments: object) -> int:
        result = int(syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            raise OSError(ctypes.get_errno(), f"landlock call {number}")
        return result

    abi = call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    if abi < LEAST_ABI:
        raise OSError(f"Landlock ABI {abi} is too old, {LEAST_ABI} is needed")
    records = rules.split(b"\0")[:-1]
    everything = (_IOCTL - 1) | (_IOCTL if abi > 4 else 0)  # noqa: PLR2004  # ABI 5: ioctl on devices
    net = _TCP if abi > 3 and b"n /" not in records else 0  # noqa: PLR2004  # ABI 4: TCP
    scopes = _SCOPES if abi > 5 else 0  # noqa: PLR2004  # ABI 6: scopes
    size = 8 if abi < 4 else 16 if abi < 6 else 24  # noqa: PLR2004  # the structure grew with the ABI
    attribute = struct.pack("=QQQ", everything, net, scopes)[:size]
    ruleset = call(_CREATE_RULESET, attribute, ctypes.c_size_t(len(attribute)), ctypes.c_uint(0))
    grants = {b"r": _READ, b"w": everything & ~(_MAKE_CHAR | _MAKE_BLOCK), b"d": _READ_FILE | _WRITE_FILE | _IOCTL}
    for record in records:
        kind, _, path = record.partition(b" ")
        if kind not in grants:
            continue
        try:
            # A link that a command put in a path's place must not widen what is granted.
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # gone: nothing is granted
        access = grants[kind] & everything
        if not os.path.isdir(path):  # noqa: PTH112
            # The kernel refuses the whole rule when a file is given a right of directories.
            access &= _ON_FILES
        rule = struct.pack("=Qi", access, fd)
        call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint(0))
        os.close(fd)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    # Only now: without no_new_privs the kernel lets no ordinary user restrict itself.
    call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def _drop_capabilities() -> None:
    """Empty the bounding set, so that uid 0 has no capability after the exec; nothing to do for other users."""
    if os.geteuid() == 0:
        for capability in range(64):
            try:
                _prctl(_PR_CAPBSET_DROP, capability)
            except OSError:
                return  # beyond the last one of this kernel


def _apply_seccomp(program: bytes) -> None:
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    value = Program(len(program) // 8, program)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(value))


def _read_all(fd: str) -> bytes:
    with open(int(fd), "rb") as stream:  # noqa: PTH123
        return stream.read()


def _become(supervisor: int, rules: str, seccomp: str, cwd: str, command: list[str]) -> None:
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
    program = b"" if seccomp == "-" else _read_all(seccomp)
    if rules != "-":
        _drop_capabilities()
        _apply_landlock(_read_all(rules))
    if program:
        _apply_seccomp(program)
    os.execv(command[0], command)  # noqa: S606  # the caller names an absolute program


def main(arguments: list[str]) -> int:
    """Run the command of `arguments` and return its exit code, 128 + N when signal N ended it."""
    rules, seccomp, cwd, _, *command = arguments
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: _end_descendants())
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _become(supervisor, rules, seccomp, cwd, command)
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

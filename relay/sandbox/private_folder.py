"""The private directory of a sandbox on the host, and processes that outlive their relay.

A command begins only when its end is tied to relay's. Two kinds of process can still be left: bwrap, which waits for
ever for a parent that was killed before it wrote a word; and, without a process namespace, the children of a supervisor
that was killed too. The command line or environment of each names the private directory of its sandbox. Nobody can
guess that name and no living relay holds it, so relay never mistakes a stranger's process for one of them.
"""

import fcntl
import itertools
import os
import signal
import stat
import subprocess
import tempfile
import time
import weakref
from pathlib import Path

from relay.base.errors import SandboxError
from relay.base.walk import list_names
from relay.sandbox.supervisor import read_processes

_PATIENCE_S = 10.0
"""A process that was killed may take seconds to go where the machine has much to do."""
_PAUSE_S = 0.005


def end_survivors(tmp: Path) -> None:
    """Kill every process of the sandbox with this private temporary directory, and wait until they are gone.

    Raises:
        SandboxError: A process does not end.
    """
    until = time.monotonic() + _PATIENCE_S
    while found := find_survivors(tmp):
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
    """Return the processes whose bwrap arguments or environment name `tmp`, except this process and its ancestors."""
    mark, own = os.fsencode(tmp), _find_line()
    others = (pid for pid in read_processes() if pid not in own)
    return tuple(pid for pid in others if _is_marked(Path("/proc", str(pid)), mark))


def _find_line() -> frozenset[int]:
    """Return this process and its ancestors: such a process may itself have started relay."""
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


NOBODY = ("relay sandbox", "sandbox@localhost")
"""Name and address that git has in a session's commands: no person's."""
_GITCONFIG = """\
# Written by relay for commands in its sandbox.
[safe]
\tdirectory = *
[user]
\tname = "{}"
\temail = "{}"
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
# safe.directory: inside a user namespace every foreign owner is `nobody`. user: test fixtures commit in temporary
# repositories, and the user's own ~/.gitconfig is hidden.

_PREFIX = "relay-sandbox-"
_LOCK = "lock"

_MOST_BYTES = 60
"""Of the 108 that Linux allows for the path of a Unix socket; the names below the directory need the rest."""

DEVICE_NAMES = ("null", "zero", "full", "random", "urandom", "tty")


def find_folder() -> Path:
    """Return the parent of private directories: TMPDIR, or /tmp if a socket's path would be too long there."""
    usual = Path(tempfile.gettempdir())
    return usual if len(os.fsencode(usual)) <= _MOST_BYTES else Path("/tmp")  # noqa: S108  # made by mkdtemp


class PrivateDir:
    """Holds `tmp/`, which commands write, and files that only relay writes.

    `close` removes the directory; so do the object's collection and Python's exit. `user` is the name and address that
    git's configuration in the sandbox has.
    """

    def __init__(self, user: tuple[str, str] = NOBODY) -> None:
        self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX, dir=find_folder())))
        new = self.path / f"{_LOCK}.new"
        lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(self.path / _LOCK)  # under this name it is never free while its relay lives
        self._finalizer = weakref.finalize(self, _remove, self.path, lock)
        self.tmp.mkdir(mode=0o700)
        quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in user)
        self.gitconfig.write_bytes(os.fsencode(_GITCONFIG.format(*quoted)))

    @property
    def tmp(self) -> Path:
        """Temporary directory of the sandbox; it lives from command to command."""
        return self.path / "tmp"

    @property
    def gitconfig(self) -> Path:
        """Configuration of git in the sandbox; commands cannot write it."""
        return self.path / "gitconfig"

    def close(self) -> None:
        """Remove the directory; a second call does nothing."""
        self._finalizer()


def _remove(path: Path, lock: int) -> None:
    try:
        remove_tree(path)
    finally:
        os.close(lock)


def remove_left_overs(folder: Path) -> None:
    """Remove the private directories that killed relays of this user left, and kill the processes in them.

    Args:
        folder: The parent of private directories.

    Raises:
        SandboxError: A process does not end.
    """
    for path in (folder / name for name in list_names(folder) if name.startswith(_PREFIX)):
        try:
            seen = path.lstat()
            if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # without a lock it is empty: its relay was killed while it made it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end_survivors(path / "tmp")
            remove_tree(path)
        except BlockingIOError:
            continue  # in use
        finally:
            os.close(lock)


def ensure_device_nodes(path: Path) -> bool:
    """Make copies of the harmless device nodes in `path`; return False if the process or the file system cannot.

    Commands of uid 0 own the nodes of /dev, and bwrap binds the host's: `chmod 0 /dev/null` would hit the host.
    """
    path.mkdir(mode=0o755, exist_ok=True)
    try:
        for name in DEVICE_NAMES:
            node = path / name
            if not node.exists():
                os.mknod(node, 0o666 | stat.S_IFCHR, Path("/dev", name).stat().st_rdev)
                node.chmod(0o666)
        os.close(os.open(path / "null", os.O_RDWR | os.O_CLOEXEC))  # fails where the file system is mounted nodev
    except OSError:
        return False
    return True


def remove_tree(path: Path) -> None:
    """Remove a directory that commands wrote, at any modes and depth, without following links.

    Files that cannot be removed are left to the system, which cleans its temporary directory.
    """
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwX"), ("rm", "-rf")):
        if os.path.lexists(path):
            argv = (*words, "--", os.fspath(path))
            env = {"PATH": f"{os.defpath}:/run/current-system/sw/bin"}  # NixOS has rm there alone
            subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)

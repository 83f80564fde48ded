"""Keeps the mounts of running sandboxes in place while people save the files under them.

A sandbox protects and hides single files by mounts over them. If somebody outside replaces such a file by a rename, as
most editors and git do, the kernel drops the mount in the sandbox, or moves it away with the old file: the new file at
the old name is bare. One thread watches all sandboxes of this process. The kernel reports a dropped mount at once; a
moved one is seen at the next look. The thread then stops the sandbox's processes, mounts what a new sandbox would have
(`relay.sandbox.remount`), and lets them go on.

Until they stop, for about a millisecond, a process inside can write the bare file. So relay asks for a proof that none
did: the file was put there as a whole, nothing happened to its name since (`relay.sandbox.saves`), it has no second
name, and no process holds it. A protected file without that proof is in doubt (`Policy.doubt`). A process that holds
the file could write it past every new mount: its program is ended, as is one whose mounts cannot be put back.
"""

import contextlib
import os
import re
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from relay.base.errors import SandboxError
from relay.base.words import list_some
from relay.sandbox import remount
from relay.sandbox.places import is_dir, is_there, separate_file
from relay.sandbox.process import ATTEMPTS, Started
from relay.sandbox.saves import Saves
from relay.sandbox.supervisor import find_descendants, list_children
from relay.sandbox.view import DEV_NULL, Mount, Op

LOOK_S = 0.1
"""Interval of the looks at mount tables."""
AWAIT_S = 0.3
"""How long processes stay stopped while somebody is still saving a file: vim and git are quick."""
_PAUSE_S = 0.002
_STOPPING_S = 0.05
_MOST_LOOKS = 100
_REMOUNT_S = 10.0
_MOST_IDLE = 2
"""Each has two of the 128 inotify instances that a user has by default, editors and other relays included."""
_CHUNK_BYTES = 64 * 1024
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # how the kernel writes a blank, a tab, a newline and a backslash


def stop(root: int) -> None:
    """Stop the descendants of a process, so that none of them writes until `resume`."""
    _signal(list_children(root), signal.SIGSTOP)  # at once; the walk finds the children of threads
    held: set[int] = set()
    for _ in range(_MOST_LOOKS):  # a stopped process starts no other: each look finds fewer
        found = set(find_descendants(root)) - held
        if not found:
            break
        _signal(found, signal.SIGSTOP)
        held |= found
    until = time.monotonic() + _STOPPING_S
    while any(map(_is_running, held)) and time.monotonic() < until:
        time.sleep(_PAUSE_S / 10)


def _is_running(pid: int) -> bool:
    """Return whether a thread of a process goes on until it takes the signal."""
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


def has_mounts(init: int, points: Collection[Path]) -> bool:
    """Return whether a new sandbox still has all of these mounts, and none whose source was removed."""
    try:
        table = Path(f"/proc/{init}/mountinfo").read_bytes()
    except OSError:  # it has ended
        return False
    return _parse_points(table, removed=False).issuperset(map(os.fsencode, points))


def _parse_points(table: bytes, *, removed: bool = True) -> frozenset[bytes]:
    """Return the mount points in a `mountinfo`; `removed` keeps mounts whose sources were removed."""
    rows = (line.split(b" ", 5) for line in table.splitlines())
    names = (row[4] for row in rows if len(row) == 6 and (removed or not row[3].endswith(b"//deleted")))  # noqa: PLR2004
    return frozenset(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), name) for name in names)


class Cover:
    """The mounts of a running sandbox. Mutable: a thread keeps them in place until it is closed.

    Without bubblewrap there are none, and it only stops and resumes the program.

    Args:
        started: The program; its sandbox is set up.
        init: The sandbox's init process; 0 for none.
    """

    def __init__(self, started: Started, init: int) -> None:
        self.words = ""
        """Why the program was ended; empty if it was not."""
        launch = self._launch = started.launch
        self._root, self._init = started.process.pid, init
        self._lock = threading.RLock()
        self._is_held = False
        self._seen = b""
        """The mount table when all was in place."""
        self._points = frozenset(map(os.fsencode, launch.points))
        self._bare = frozenset[bytes]()
        """Mount points that are lost, and at whose path nothing is now."""
        self._made = frozenset[bytes]()
        """Those of them at whose path something is again."""
        self._table: int | None = None
        """The mount table's file; None if nothing is watched, or not any more."""
        with contextlib.suppress(OSError):  # it has ended
            self._table = os.open(f"/proc/{init}/mountinfo", os.O_RDONLY | os.O_CLOEXEC) if init else None
        self._saves = _WATCH.take(launch.watched if self._table is not None else frozenset())
        self.is_whole = not init or has_mounts(init, launch.points)
        """Whether all mounts were in place when the watch began; else the program must not begin."""
        if self._table is not None:
            _WATCH.add(self, self._table, self._saves)

    def stop(self) -> None:
        """Stop the program and its descendants until `resume`."""
        with self._lock:
            self._is_held = True
            stop(self._root)

    def resume(self) -> None:
        """Let them go on."""
        with self._lock:
            self._is_held = False
            resume(self._root)

    def _read(self) -> bytes:
        """Return the mount table; empty if the sandbox has ended."""
        table = b""
        with contextlib.suppress(OSError):
            while self._table is not None and (chunk := os.pread(self._table, _CHUNK_BYTES, len(table))):
                table += chunk
        return table

    def find_lost(self) -> frozenset[Path]:
        """Return the paths that lost their mounts since the last look; if there are any the program is stopped."""
        with self._lock:
            if self._table is None:  # closed meanwhile, and another sandbox has the watch
                return frozenset()
            self._saves.read()  # before the table: what happens in between is seen at the next look
            table = self._read()
            self._made = frozenset(filter(os.path.lexists, self._bare))
            lost = self._made
            if table != self._seen:
                lost |= self._list_lost(table)
            if lost:
                stop(self._root)
                lost |= self._list_lost(self._read())  # somebody who saves several files may have gone on
                self._saves.read()
            else:
                self._saves.settle()
            return frozenset(Path(os.fsdecode(place)) for place in lost)

    def _list_lost(self, table: bytes) -> frozenset[bytes]:
        """Return the mount points that a table lacks; none if the sandbox has ended."""
        if not table:
            return frozenset()
        self._seen = table
        lost = self._points - _parse_points(table) - self._bare
        # A socket elsewhere that was removed; it is nothing that somebody is just saving.
        gone = frozenset(place for place in lost if not self._saves.may_return(place))
        self._bare |= gone
        return lost - gone

    def is_under_way(self, lost: frozenset[Path]) -> bool:
        """Return whether somebody is still saving one of the paths."""
        with self._lock:
            self._saves.read()
            return any(map(self._saves.is_under_way, lost))

    def mend(self, lost: frozenset[Path], absent: frozenset[Path]) -> None:
        """Put the lost mounts back and resume the program, or end it.

        Args:
            lost: From `find_lost`.
            absent: Paths where nothing was when the program was stopped.
        """
        with self._lock:
            if self._table is None:  # closed meanwhile
                return
            names = list_some(sorted(place.name for place in lost), 3)
            held = self._find_held(lost)
            doubtful = [place for place in lost if place in held or not self._is_proven(place, absent)]
            if held:
                self.end(f"it held {names} open, which somebody replaced at that moment")
            elif not self._remount():
                self.end(f"somebody replaced {names} meanwhile, and relay could not protect it again")
            elif not self._is_held:
                resume(self._root)
            if found := [place for place in doubtful if place in self._launch.guarded and os.path.lexists(place)]:
                self._launch.doubt(tuple(sorted(found)))
                for place in found:
                    _separate(place)
            self._saves.settle()

    def _is_proven(self, place: Path, absent: frozenset[Path]) -> bool:
        """Return whether no process in the sandbox can have written a path before the program was stopped."""
        if place in absent:
            return True
        try:
            found = place.lstat()
        except OSError:
            return True
        is_made = os.fsencode(place) in self._made
        return not is_made and stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and self._saves.is_whole(place)

    def _find_held(self, lost: frozenset[Path]) -> frozenset[Path]:
        """Return the lost files, and guarded directories, that a process of the program holds as they are now."""
        steering = [place for place in lost if place in self._launch.guarded or not is_dir(place)]
        held = {f"{name}/" for pid in find_descendants(self._root) for name in _list_held(pid)} if steering else ()
        return frozenset(place for place in steering if any(name.startswith(f"{place}/") for name in held))

    def renew(self) -> None:
        """Hide and protect what a new sandbox would by now: sockets and `unreadable` files that appeared since."""
        with self._lock:
            try:
                is_whole = self._table is None or not self._list_missing() or self._remount()
            except (OSError, SandboxError):
                is_whole = False
            if not is_whole:
                self.end("relay could not hide a file or socket that appeared meanwhile")

    def _list_missing(self) -> tuple[str, ...]:
        there = _parse_points(self._read())
        return tuple(_render(mount for mount in self._launch.lay() if os.fsencode(mount.dest) not in there))

    def _remount(self) -> bool:
        """Mount what a new sandbox would have and this one lacks; return whether that worked, or the program ended."""
        failures, until = 0, time.monotonic() + _REMOUNT_S
        while failures < ATTEMPTS and time.monotonic() < until:
            try:
                words = self._list_missing()
                argv = (sys.executable, "-I", "-S", remount.__file__, str(self._init), *words)
                done = subprocess.run(argv, env={}, capture_output=True, timeout=_REMOUNT_S, check=False)
                self._seen = self._read()
                left = self._list_missing() if self._seen else ()
            except (OSError, SandboxError, subprocess.TimeoutExpired):
                return False
            if left and left != words:
                continue  # somebody has saved the next file meanwhile
            there, wanted = _parse_points(self._seen), {os.fsencode(word.partition("=")[2]) for word in words}
            lost = self._points - there
            bare = frozenset(place for place in lost if not os.path.lexists(place))
            if not self._seen or (done.returncode == 0 and not (lost & wanted) - bare):
                self._bare, self._points = bare, (self._points & there) | bare | (wanted & there)
                return True
            if not is_there(Path(f"/proc/{self._init}/ns/mnt")):  # it has ended; its open table stays
                return True
            failures += 1
        return False

    def end(self, words: str) -> None:
        """End the program, unless it is not watched any more; `words` say why."""
        with self._lock:
            if self._table is None:
                return
            self.words = f"killed: {words}; nothing is wrong with the command itself, so it can be run again"
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init, signal.SIGKILL)  # and the kernel ends all processes of its namespace
            resume(self._root)  # bubblewrap's own processes, which end with it

    def close(self) -> None:
        """Watch no more; wait for a repair that is under way."""
        with self._lock:
            if self._table is not None:
                _WATCH.remove(self._table, self._saves)
                os.close(self._table)
            self._table = None


def _list_held(pid: int) -> Iterator[str]:
    """Yield the paths that a process has open, stands in, or has mapped to write, without files that are gone.

    Its mounts give the repository's files their names on the host.
    """
    with contextlib.suppress(OSError):  # it has ended
        for entry in (*Path(f"/proc/{pid}/fd").iterdir(), Path(f"/proc/{pid}/cwd")):
            with contextlib.suppress(OSError):
                name, found = os.readlink(entry), entry.stat()  # noqa: PTH115
                if os.path.samestat(found, os.lstat(name)):
                    yield name
        for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
            if " rw-s " in line and "/" in line:
                yield line[line.index("/") :]


def _separate(place: Path) -> None:
    """Give a file with a second name a copy of its own at its first: what has the second name cannot change it."""
    with contextlib.suppress(FileNotFoundError):  # somebody has just removed it
        if place.is_file() and not place.is_symlink() and place.stat().st_nlink > 1:
            separate_file(place)


def _render(mounts: Iterable[Mount]) -> Iterator[str]:
    """Yield the words for `relay.sandbox.remount`.

    Layers and copies have sources that the sandbox does not see: what is under them stays read-only until the program
    ends.
    """
    for mount in mounts:
        if mount.source == DEV_NULL:
            yield f"hide={mount.dest}"
        elif mount.op is Op.EMPTY:
            yield f"empty={mount.dest}"
        elif mount.source == mount.dest and mount.op in {Op.READ, Op.WRITE}:
            yield f"{'read' if mount.op is Op.READ else 'write'}={mount.dest}"


class _Watch:
    """Watches the covers of this process. Mutable: its thread starts with the first one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._covers: dict[int, Cover] = {}
        self._poll: select.epoll | None = None
        self._idle: list[Saves] = []
        """For the next sandboxes of the same repository: to close one takes the kernel 10 to 30 ms."""

    def take(self, folders: frozenset[Path]) -> Saves:
        """Return the watch of some directories, from now on."""
        with self._changed:
            found = next((saves for saves in self._idle if saves.folders == folders), None)
            if found:
                self._idle.remove(found)
        if found and found.renew():
            return found
        if found:
            found.close()
        return Saves(folders)

    def add(self, cover: Cover, table: int, saves: Saves) -> None:
        """Watch a cover, by its mount table."""
        with self._changed:
            if self._poll is None:
                self._poll = select.epoll()
                threading.Thread(target=self._work, args=(self._poll,), name="relay-covers", daemon=True).start()
            self._poll.register(table, select.EPOLLPRI)
            if saves.moves >= 0:
                self._poll.register(saves.moves, select.EPOLLIN)
            self._covers[table] = cover
            self._changed.notify()

    def remove(self, table: int, saves: Saves) -> None:
        """Watch a cover no more."""
        with self._changed:
            if self._poll is not None and table in self._covers:
                del self._covers[table]
                self._poll.unregister(table)
                if saves.moves >= 0:
                    self._poll.unregister(saves.moves)
            self._idle.append(saves)
            surplus = self._idle[:-_MOST_IDLE]
            del self._idle[:-_MOST_IDLE]
        for left in surplus:
            left.close()

    def _work(self, poll: select.epoll) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._covers)
            poll.poll(LOOK_S)
            with self._changed:
                covers = tuple(self._covers.values())
            try:
                # All are stopped before the first is mended: they may share the file.
                if found := [(cover, lost) for cover in covers if (lost := cover.find_lost())]:
                    _mend(found)
            except OSError as error:
                for cover in covers:
                    cover.end(f"relay could not keep its files protected: {error}")


def _mend(found: list[tuple[Cover, frozenset[Path]]]) -> None:
    absent = frozenset(place for _, lost in found for place in lost if not os.path.lexists(place))
    until = time.monotonic() + AWAIT_S
    while not all(map(os.path.lexists, absent)) or any(cover.is_under_way(lost) for cover, lost in found):
        if time.monotonic() > until:
            break
        time.sleep(_PAUSE_S)
    for cover, lost in found:
        cover.mend(lost, absent)


_WATCH = _Watch()

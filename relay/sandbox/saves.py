"""Who saved a file: what happens to the names in some directories, by inotify.

`relay.sandbox.covers` asks it whether one writer, and nobody after that, made a file that lost its mount.
"""

import contextlib
import ctypes
import os
import struct
from pathlib import Path

_CHUNK_BYTES = 64 * 1024
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_REPLACES = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_OVERFLOW = 0x4000
_MOST_KEPT = 1_000
"""Events from before a loss: an editor writes a file under another name first."""
_ONLY_DIRECTORIES = 0x01000000
_HEAD = struct.Struct("=iIII")  # struct inotify_event
_Happened = tuple[Path, int, int]
"""Path, mask, and the number that both halves of a rename share."""


class Saves:
    """What happens to the names in some directories, by inotify. Mutable: each read adds what happened since."""

    def __init__(self, folders: frozenset[Path]) -> None:
        self.folders = folders
        self._found = _identify(folders)
        self._folders: dict[int, Path] = {}
        self._happened: list[_Happened] = []
        self._old = 0
        """How many of them happened while all mounts were in place."""
        self._fd = self.moves = -1
        if not folders:  # nothing is covered; and a Mac, where only a container or nothing confines, has no inotify
            return
        library = ctypes.CDLL(None, use_errno=True)
        self._fd, self.moves = (library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(2))
        every = ctypes.c_uint32(_MODIFY | _ATTRIB | _CLOSE_WRITE | _REPLACES | _ONLY_DIRECTORIES)
        for folder in map(os.fsencode, folders):
            self._folders[library.inotify_add_watch(self._fd, folder, every)] = Path(os.fsdecode(folder))
            library.inotify_add_watch(self.moves, folder, ctypes.c_uint32(_MOVED_FROM | _ONLY_DIRECTORIES))
        # The second one wakes the thread for a mount that may have been moved away: not for each write of a build.

    def read(self) -> None:
        """Note what happened since the last read."""
        _read_all(self.moves)
        chunk, at = _read_all(self._fd), 0
        while at < len(chunk):
            watch, mask, cookie, size = _HEAD.unpack_from(chunk, at)
            at += _HEAD.size + size
            name = os.fsdecode(chunk[at - size : at].rstrip(b"\0"))
            if mask & _OVERFLOW:
                self.close()
            elif watch in self._folders:
                self._happened.append((self._folders[watch] / name, mask, cookie))

    def renew(self) -> bool:
        """Drop all that happened; return whether the names are still those of the same directories."""
        for fd in (self._fd, self.moves):
            _read_all(fd)
        self._happened.clear()
        self._old = 0
        return self._fd >= 0 and self._found == _identify(self.folders)

    def may_return(self, place: bytes) -> bool:
        """Return whether a path is there, or in one of the directories."""
        return os.path.lexists(place) or Path(os.fsdecode(place)).parent in self.folders

    def settle(self) -> None:
        """Take what was read for old: all mounts are in place."""
        del self._happened[:-_MOST_KEPT]
        self._old = len(self._happened)

    def is_whole(self, place: Path) -> bool:
        """Return whether one writer made the file at a path, and nobody touched it since.

        Either it was made under another name and put here as a whole, or the file before was put aside, this one made,
        and the other removed, as vim does. No process inside can remove that: it carries the mount.
        """
        new = [one for one in self._happened[self._old :] if one[0] == place]
        at = next((at for at, (_, mask, _) in enumerate(new) if mask & _REPLACES), None)
        if self._fd < 0 or at is None:
            return False
        (_, mask, cookie), after = new[at], new[at + 1 :]
        if mask & _MOVED_TO:
            return not after and self._is_made(self._find_other(cookie, _MOVED_FROM, place))
        return bool(mask & _MOVED_FROM) and self._is_removed(cookie, place) and _is_made_once(after)

    def is_under_way(self, place: Path) -> bool:
        """Return whether somebody is still saving a file that lost its mount.

        The kernel drops a mount first and reports the rename later, by milliseconds. After that, the file before may
        have been put aside, and still be there.
        """
        new = [one for one in self._happened[self._old :] if one[0] == place and one[1] & _REPLACES]
        if self._fd < 0 or not new:
            return self._fd >= 0 and place.parent in self.folders
        aside = [cookie for _, mask, cookie in new if mask & _MOVED_FROM]
        return bool(aside) and not self._is_removed(aside[0], place)

    def _find_other(self, cookie: int, half: int, place: Path) -> list[_Happened]:
        """Return what happened to the other name of a rename."""
        names = {path for path, mask, other in self._happened if mask & half and other == cookie and path != place}
        return [one for one in self._happened if one[0] in names]

    def _is_made(self, other: list[_Happened]) -> bool:
        return bool(other) and _is_made_once(other[:-1]) and bool(other[-1][1] & _MOVED_FROM)

    def _is_removed(self, cookie: int, place: Path) -> bool:
        other = self._find_other(cookie, _MOVED_TO, place)
        return bool(other) and bool(other[-1][1] & _DELETE)

    def close(self) -> None:
        """Watch no more: then nothing is proven."""
        for fd in (self._fd, self.moves):
            if fd >= 0:
                os.close(fd)
        self._fd = self.moves = -1


def _identify(folders: frozenset[Path]) -> dict[Path, tuple[int, int] | None]:
    """Return device and inode of each directory; None for a missing one."""
    found = dict[Path, tuple[int, int] | None].fromkeys(folders)
    for folder in folders:
        with contextlib.suppress(OSError):
            status = folder.stat()
            found[folder] = (status.st_dev, status.st_ino)
    return found


def _read_all(fd: int) -> bytes:
    found = b""
    with contextlib.suppress(BlockingIOError):
        while fd >= 0 and (chunk := os.read(fd, _CHUNK_BYTES)):
            found += chunk
    return found


def _is_made_once(happened: list[_Happened]) -> bool:
    """Return whether a file was made, and written and closed by one writer."""
    masks = [mask for _, mask, _ in happened]
    closed = next((at for at, mask in enumerate(masks) if mask & _CLOSE_WRITE), len(masks))
    later = (mask & (_REPLACES | (_MODIFY | _CLOSE_WRITE if at > closed else 0)) for at, mask in enumerate(masks) if at)
    return bool(masks and masks[0] & _CREATE) and not any(later)

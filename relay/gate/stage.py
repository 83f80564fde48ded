"""A copy of the work tree as a commit will hold it, laid out beside it for a gate to run in.

Only differences are laid out: a directory without any is shown as it is, and one with differences is made anew. Small
files are copied, so that a gate may rename and remove them; large files are shown.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from relay.base.tree import find_stat, read_file
from relay.base.values import dataclass
from relay.git.names import with_parents
from relay.git.trees import EXECUTABLE, FILE, SYMLINK, find_mode
from relay.plan.text import STATE_DIR
from relay.sandbox.places import is_cache_of_packages

MAX_COPIED_FILES = 200
"""Limit for one directory; a larger one is shown as it is."""
MAX_COPIED_BYTES = 1_000_000
"""Limit for one file."""
MAX_COPIES = 1_000
"""Files in all. Measured: 0.11 s for files of 300 bytes, median of nine; a busy disk may take five times that."""


_MAX_PATH_BYTES = 2_048
"""A longer path may have no place below the stage: the kernel takes 4,096 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The differences between the work tree and a commit, to be laid out."""

    root: Path
    extra: frozenset[str]
    """Paths that are left out, with everything below them."""
    files: Mapping[str, tuple[str, bytes]] = field(hash=False)
    """``path: (mode, bytes)`` of files that the commit has in another form; for a symlink the bytes are its target."""
    modes: Mapping[str, str] = field(hash=False)
    """``path: mode`` of files that differ in their mode only."""
    backdated: frozenset[str]
    """Paths of files that get the present date."""
    is_hidden: Callable[[str], bool] = field(hash=False)
    """Returns whether no command may read a path: it gets the name and no content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """A directory that stands in for the work tree."""

    place: Path
    shown: tuple[str, ...]
    """Paths that are to be shown as the work tree has them; each has an empty file or directory here."""
    covered: tuple[tuple[str, Path], ...]
    """Paths below the shown ones, each with an empty directory that covers it."""
    copied: frozenset[str]
    """Paths of files that are as they are in the work tree."""


def build_stage(layout: Layout, place: Path) -> LaidOut:
    """Lay the commit out in a new directory.

    Raises:
        OSError: No space is left, or something cannot be read.
    """
    # In a directory of a thousand packages only the cache is covered: laying out each package would take a mount.
    caches = frozenset(path for path in layout.extra if is_cache_of_packages(path))
    above = {
        _find_parent(path)
        for path in (*layout.extra, *layout.files, *layout.modes, *layout.backdated)
        if path not in caches
    }
    opened = with_parents({*above, *(_find_parent(_find_parent(path)) for path in caches)} - {""})
    covered = sorted(path for path in caches if _find_parent(path) not in opened)
    builder = _Builder(layout=layout, place=place, opened=opened, whole=frozenset(map(_find_parent, covered)))
    place.mkdir(mode=0o755)
    builder.fill("")
    for path, (mode, data) in layout.files.items():
        _write(place / path, mode, data)
    for path, mode in layout.modes.items():
        with contextlib.suppress(FileNotFoundError):  # a large file, or in a large directory
            (place / path).chmod(0o755 if mode == EXECUTABLE else 0o644)
    empty = [(path, place.with_name(f"{place.name}-{number}")) for number, path in enumerate(covered)]
    for _, cover in empty:
        cover.mkdir(mode=0o755)
    return LaidOut(place=place, shown=tuple(builder.shown), covered=tuple(empty), copied=frozenset(builder.copied))


def _find_parent(path: str) -> str:
    return path.rpartition("/")[0]


def _write(target: Path, mode: str, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if mode == SYMLINK:
        target.symlink_to(os.fsdecode(data))
    else:
        target.write_bytes(data)
        target.chmod(0o755 if mode == EXECUTABLE else 0o644)


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Fills a stage. Mutable: collects the copied and the shown paths."""

    layout: Layout
    place: Path
    opened: frozenset[str]
    """Directories with differences."""
    whole: frozenset[str]
    """Directories that are shown as they are, whatever their size."""
    shown: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)

    def fill(self, folder: str) -> None:
        """Lay out every entry of a directory with differences, and of such directories below it."""
        for entry in _list(self.layout.root / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path in self.layout.extra or path in self.layout.files or path == STATE_DIR:
                continue
            if path == ".git":
                self._show(path, is_folder=entry.is_dir(follow_symlinks=False))
            elif not entry.is_dir(follow_symlinks=False):
                self._take_file(path, entry.stat(follow_symlinks=False))
            elif path in self.whole:
                self._show(path, is_folder=True)
            elif path in self.opened:
                self._make_folder(path, entry.stat(follow_symlinks=False))
                self.fill(path)
            else:
                self._take_folder(path, entry.stat(follow_symlinks=False))

    def _take_folder(self, path: str, found: os.stat_result) -> None:
        if self.layout.is_hidden(path):
            self._make_folder(path, found)
            return
        below = _list_small(self.layout.root, path, MAX_COPIES - len(self.copied))
        if below is None:
            self._show(path, is_folder=True)
            return
        self._make_folder(path, found)
        for inner, status in below:
            if stat.S_ISDIR(status.st_mode):
                self._make_folder(inner, status)
            else:
                self._take_file(inner, status)

    def _make_folder(self, path: str, found: os.stat_result) -> None:
        (self.place / path).mkdir()
        (self.place / path).chmod(stat.S_IMODE(found.st_mode) | stat.S_IRWXU)

    def _take_file(self, path: str, found: os.stat_result) -> None:
        source, target = self.layout.root / path, self.place / path
        if stat.S_ISLNK(found.st_mode):
            target.symlink_to(source.readlink())
        elif not stat.S_ISREG(found.st_mode):
            return  # a pipe or socket of a command that ended
        elif self.layout.is_hidden(path):
            target.touch(mode=0o600)
        elif found.st_size > MAX_COPIED_BYTES:
            self._show(path, is_folder=False)
        else:
            try:
                shutil.copyfile(source, target, follow_symlinks=False)
                if path not in self.layout.backdated:
                    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))  # builds go by the time
                target.chmod(stat.S_IMODE(found.st_mode))
                self.copied.append(path)
            except PermissionError:
                target.unlink(missing_ok=True)
                self._show(path, is_folder=False)

    def _show(self, path: str, *, is_folder: bool) -> None:
        if is_folder:
            (self.place / path).mkdir()
        else:
            (self.place / path).touch()
        self.shown.append(path)


def _list(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(found)


def _list_small(root: Path, folder: str, most: int) -> list[tuple[str, os.stat_result]] | None:
    """Return the entries below a directory, parents first; None if they are many, special, unreadable or deep."""
    most = min(most, MAX_COPIED_FILES)
    below: list[tuple[str, os.stat_result]] = []
    pending = [folder]
    while pending:
        try:
            there = _list(root / pending[-1])
        except OSError:
            return None
        above = pending.pop()
        if len(os.fsencode(above)) > _MAX_PATH_BYTES:
            return None
        for entry in there:
            status = entry.stat(follow_symlinks=False)
            below.append((f"{above}/{entry.name}", status))
            if stat.S_ISDIR(status.st_mode):
                pending.append(f"{above}/{entry.name}")
            elif status.st_size > MAX_COPIED_BYTES:
                return None
        if len(below) > most:
            return None
    return below


def find_rewritten(root: Path, laid: LaidOut, paths: Sequence[str]) -> dict[str, tuple[str, bytes]]:
    """Return ``path: (mode, bytes)`` of the regular files among `paths` that a gate rewrote.

    Files that the gate removed are missing, and files that were shown to it as the work tree has them.

    Args:
        laid: Where the gate ran.
    """
    rewritten = {}
    for path in laid.copied.intersection(paths):
        mode, data = find_mode(find_stat(laid.place, path)), read_file(laid.place, path)
        if data is not None and mode in {FILE, EXECUTABLE}:
            there = find_mode(find_stat(root, path)), read_file(root, path)
            if there != (mode, data):
                rewritten[path] = (mode, data)
    return rewritten

"""Files of the repository that have another name elsewhere: who writes one writes the other.

uv and pnpm fill `.venv` and `node_modules` with hard links into a cache that all projects share, and an archive may
hold a second name of the plan or of git's configuration.
"""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from relay.base.errors import SandboxError
from relay.base.values import dataclass
from relay.base.words import count, list_some

INSTALLED = frozenset({"node_modules", ".pnpm-store", ".venv", "venv", ".tox", ".nox"})
TOOL_CACHES = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"})
GENERATED = INSTALLED | TOOL_CACHES
"""Trees that tools make and remove; protecting a file in them would pin them in place."""

MOST = 400
"""Every find is a mount in the sandbox; bwrap takes 9,000 arguments and reads the mount table for each one."""

MOST_FILES = 20_000
"""Looked at outside of generated trees: one call of the kernel each, 0.03 to 0.2 s together. A tree that was copied by
its links is found by its first files."""
MOST_GENERATED = 2_000
"""Looked at in each generated tree: what fills it from a cache does so with nearly every file."""
_BUILDS = frozenset({"target"})
"""Cargo gives what it builds a second name beside the first, and has to replace both."""
CACHES = (".cache", ".vite", ".vite-temp", ".vitest")
"""Directories of node_modules that tests and builds write; they hold no package."""
_IN_PACKAGES = tuple(f"/node_modules/{name}" for name in CACHES)

_File = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What commands may only read because of its other names."""

    trees: tuple[Path, ...] = ()
    """Generated directories with files of a cache."""
    files: tuple[Path, ...] = ()


def list_entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a directory; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []  # unreadable for relay is unreadable for its commands too


def find_links(root: Path, protected: Iterable[Path]) -> Links:
    """Walk the repository; what is protected anyway is not named, a second name of it is."""
    kept = {place: found for place in protected if (found := _find_linked(place)) is not None}
    left = MOST_FILES if not kept else None
    names: dict[_File, list[Path]] = {}
    counts = dict(kept.values())
    trees: list[Path] = []
    pending = [os.fspath(root)]
    while pending and (left is None or left > 0):
        for entry in list_entries(pending.pop()):
            if entry.is_dir(follow_symlinks=False):
                if entry.name in GENERATED:
                    trees += [Path(entry.path)] if _holds_linked(entry.path, None if kept else MOST_GENERATED) else []
                elif entry.name != ".git" and (kept or entry.name not in _BUILDS):
                    pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                left = left - 1 if left is not None else None
                found = _find_linked(entry)
                if found is not None:
                    counts[found[0]] = found[1]
                    names.setdefault(found[0], []).append(Path(entry.path))
    guarded = {file for file, _ in kept.values()}
    elsewhere = (file for file in names if file in guarded or len(names[file]) < counts[file])
    return Links(
        trees=tuple(sorted(trees)),
        files=tuple(sorted(place for file in elsewhere for place in names[file] if place not in kept)),
    )


def _find_linked(place: "os.DirEntry[str] | Path") -> tuple[_File, int] | None:
    """Return device and inode of a regular file, and how many names it has; None for one name."""
    try:
        found = place.stat(follow_symlinks=False)
    except OSError:
        return None
    is_file = place.is_file() if isinstance(place, Path) else True
    return ((found.st_dev, found.st_ino), found.st_nlink) if found.st_nlink > 1 and is_file else None


def _holds_linked(top: str, most: int | None) -> bool:
    """Say whether one of the first files of a tree has another name."""
    pending = [top]
    while pending and (most is None or most > 0):
        for entry in list_entries(pending.pop()):
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                most = most - 1 if most is not None else None
                if _find_linked(entry) is not None:
                    return True
    return False


def require_few(links: Links) -> Links:
    """Return the same.

    Raises:
        SandboxError: There are more than a sandbox can hold.
    """
    if len(links.trees) + len(links.files) > MOST:
        raise SandboxError(
            f"{len(links.files)} files of the repository have another name outside of it (hard links), as "
            f"{links.files[0] if links.files else links.trees[0]}: commands would change them there, too",
            hint="a copy has files of its own (cp -a, git clone); writable_links = true in your own settings lets "
            "commands write them",
        )
    return links


def is_cache_of_packages(path: str) -> bool:
    """Say whether a directory is one of those that tools write in node_modules."""
    return f"/{path}".endswith(_IN_PACKAGES)


def find_caches(tree: Path) -> tuple[Path, ...]:
    """Return the directories of a generated tree that tests and builds write, as far as they are there."""
    places = (tree / name for name in CACHES)
    return tuple(place for place in places if place.is_dir() and not place.is_symlink())


def render_links(links: Links, root: Path, layered: Collection[Path] = ()) -> tuple[str, ...]:
    """Say what commands cannot write, and what to do; what has a layer they can."""
    said, way = [], "writable_links = true in your own settings lets commands write them"
    if trees := [place.relative_to(root).as_posix() for place in links.trees if place not in layered]:
        said.append(
            f"commands can only read {list_some(trees, 3)}: pnpm's and uv's hard links share the files with other "
            "projects, and this machine makes no layer over them; what writes there fails (vite, vitest, babel: "
            "EROFS). pnpm install --package-import-method copy and uv sync --link-mode copy install files of your own; "
            f"{way}"
        )
    if links.files:
        said.append(
            f"commands can only read {count(len(links.files), 'file')} of the repository: the same files have names "
            f"elsewhere (hard links), and would change there too; {way}"
        )
    return tuple(said)


def separate_tree(tree: Path) -> None:
    """Give each file of a tree that has another name elsewhere bytes of its own, with the same content and times.

    Raises:
        SandboxError: The disk is full, or something cannot be read.
    """
    pending = [os.fspath(tree)]
    while pending:
        folder = pending.pop()
        for entry in list_entries(folder):
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False) and _find_linked(entry) is not None:
                try:
                    number, copy = tempfile.mkstemp(dir=folder)
                    os.close(number)
                    Path(shutil.copy2(entry.path, copy)).rename(entry.path)
                except OSError as error:
                    words = f"{entry.path} is shared with other projects, and cannot be copied: {error.strerror}"
                    raise SandboxError(words, hint=f"remove {tree}, and setup makes it anew") from error

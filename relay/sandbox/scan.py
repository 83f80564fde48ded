"""Finds what needs protection inside the repository: nested git directories, rules files, files with secrets."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from relay.errors import SandboxError
from relay.sandbox.places import find_home, find_real, find_secrets
from relay.sandbox.policy import TEMPLATE_SUFFIXES, Policy

GENERATED = frozenset(
    {
        "node_modules",
        ".venv",
        "venv",
        ".tox",
        ".nox",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
    }
)
"""Trees that tools make and remove; protecting a file in them would pin them in place."""

_MOST = 400
"""Every find is a mount in the sandbox; bwrap takes 9,000 arguments and reads the mount table for each one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a scan of the repository found. Directories that are links are not walked."""

    protected: tuple[Path, ...]
    """Nested `.git` entries and files with a protected name."""
    secrets: tuple[Path, ...]


def scan_repository(policy: Policy) -> Found:
    """Walk the repository once.

    Raises:
        SandboxError: More paths need protection than a sandbox can hold.
    """
    protected: list[Path] = []
    secrets: list[Path] = []
    for _, entries in list_folders(policy):
        for entry in entries:
            if entry.name == ".git" or entry.name in policy.protected_names:
                protected += _find_real(entry, policy.root)
            elif not entry.is_dir(follow_symlinks=False) and is_secret_name(entry.name, policy.secret_names):
                secrets += _find_real(entry, policy.root)
    if len(protected) + len(secrets) > _MOST:
        raise SandboxError(
            f"{policy.root} holds {len(protected)} nested git directories and rules files and {len(secrets)} files "
            f"that look like secrets; the sandbox can protect {_MOST}",
            hint="move them out of the repository",
        )
    return Found(protected=tuple(sorted(set(protected))), secrets=tuple(sorted(set(secrets))))


def list_folders(policy: Policy) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each directory with what is in it; not git's, nor those of agents, nor trees that tools generate."""
    pending = [os.fspath(policy.root)]
    while pending:
        folder = pending.pop()
        entries = _list(folder)
        yield folder, entries
        closed = {".git", *policy.protected_names, *GENERATED}
        pending += [e.path for e in entries if e.name not in closed and e.is_dir(follow_symlinks=False)]


def _find_real(entry: os.DirEntry[str], root: Path) -> list[Path]:
    """A rules file or a secret that is a link is covered where its text is, as long as that is in the repository."""
    place = Path(entry.path)
    real = find_real(place) if entry.is_symlink() else place
    return [real] if real != root and real.is_relative_to(root) and real.exists() else []


def _list(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []  # unreadable for relay is unreadable for its commands too


def is_secret_name(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a file of this name usually holds credentials, and is no template of one."""
    return any(fnmatchcase(name, pattern) for pattern in patterns) and not name.endswith(TEMPLATE_SUFFIXES)


def make_hiding(policy: Policy) -> Callable[[str], bool]:
    """Return a test for whether commands may read nothing at a path of the repository, or below it."""
    places = [os.fspath(place) for place in (*find_secrets(find_home(policy.env)), *map(find_real, policy.unreadable))]
    hidden = frozenset(
        os.path.relpath(place, policy.root) for place in places if Path(place).is_relative_to(policy.root)
    )

    def is_hidden(path: str) -> bool:
        above = (path, *map(str, PurePosixPath(path).parents))
        return is_secret_name(above[0].rpartition("/")[2], policy.secret_names) or not hidden.isdisjoint(above)

    return is_hidden

"""Finds what needs protection inside the repository: nested git directories, rules files, files with secrets."""

import os
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from relay.base.errors import SandboxError
from relay.base.secrecy import is_secret_name
from relay.base.values import dataclass
from relay.sandbox.links import GENERATED, MOST, Links, find_links, list_entries, require_few
from relay.sandbox.places import find_credentials, find_home_directory, find_real, is_socket
from relay.sandbox.policy import Level, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a scan of the repository found. Directories that are links are not walked."""

    protected: tuple[Path, ...]
    """Nested `.git` entries and files with a protected name."""
    secrets: tuple[Path, ...]
    sockets: tuple[Path, ...] = ()
    """Unix sockets that somebody else made: no session was running yet."""
    links: Links = field(default_factory=Links)
    """What has names elsewhere; empty where commands write nothing."""


def scan_repository(policy: Policy, level: Level) -> Found:
    """Walk the repository.

    Raises:
        SandboxError: More paths need protection than a sandbox can hold.
    """
    found = _walk(policy)
    if level is not Level.WORKSPACE_WRITE or policy.writable_links:
        return found
    return replace(found, links=require_few(find_links(policy.root, _list_protected(policy, found))))


def _list_protected(policy: Policy, found: Found) -> tuple[Path, ...]:
    """Return the files that must not be written by another name of theirs either."""
    names = ("config", "config.worktree", "HEAD", "index", "packed-refs")
    git_files = [place / name for place in policy.git_dirs for name in names]
    git_files += [file for place in policy.git_dirs for file in (*place.glob("hooks/*"), *place.glob("info/*"))]
    return (*policy.protected, *found.protected, *git_files)


def _walk(policy: Policy) -> Found:
    protected: list[Path] = []
    secrets: list[Path] = []
    sockets: list[Path] = []
    for _, entries in list_folders(policy):
        for entry in entries:
            if entry.name == ".git" or entry.name in policy.protected_names:
                protected += _find_real(entry, policy.root)
            elif entry.is_dir(follow_symlinks=False):
                continue
            elif is_secret_name(entry.name):
                secrets += _find_real(entry, policy.root)
            elif not entry.is_file(follow_symlinks=False) and is_socket(entry.path):
                sockets.append(Path(entry.path))
    if len(protected) + len(secrets) + len(sockets) > MOST:
        raise SandboxError(
            f"{policy.root} holds {len(protected)} nested git directories and rules files and {len(secrets)} files "
            f"that look like secrets, and {len(sockets)} sockets; the sandbox can protect {MOST}",
            hint="move them out of the repository",
        )
    return Found(
        protected=tuple(sorted(set(protected))), secrets=tuple(sorted(set(secrets))), sockets=tuple(sorted(sockets))
    )


def list_folders(policy: Policy) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each directory with what is in it; not git's, nor those of agents, nor trees that tools generate."""
    pending, closed = [os.fspath(policy.root)], {".git", *policy.protected_names, *GENERATED}
    while pending:
        folder = pending.pop()
        entries = list_entries(folder)
        yield folder, entries
        pending += [e.path for e in entries if e.is_dir(follow_symlinks=False) and e.name not in closed]


def _find_real(entry: os.DirEntry[str], root: Path) -> list[Path]:
    """A rules file or a secret that is a link is covered where its text is, as long as that is in the repository."""
    place = Path(entry.path)
    real = find_real(place) if entry.is_symlink() else place
    return [real] if real != root and real.is_relative_to(root) and real.exists() else []


def make_hiding(policy: Policy) -> Callable[[str], bool]:
    """Return a test for whether commands may read nothing at a path of the repository, or below it."""
    places = [
        os.fspath(place)
        for place in (*find_credentials(find_home_directory(policy.env)), *map(find_real, policy.unreadable))
    ]
    hidden = frozenset(
        os.path.relpath(place, policy.root) for place in places if Path(place).is_relative_to(policy.root)
    )

    def is_hidden(path: str) -> bool:
        above = (path, *map(str, PurePosixPath(path).parents))
        return is_secret_name(above[0].rpartition("/")[2]) or not hidden.isdisjoint(above)

    return is_hidden

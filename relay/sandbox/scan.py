"""Finds what needs protection inside the repository: nested git directories, rules files, files with secrets."""

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from relay.errors import SandboxError
from relay.sandbox.places import find_real
from relay.sandbox.policy import TEMPLATE_SUFFIXES, Policy

_GENERATED = frozenset(
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
    pending = [os.fspath(policy.root)]
    while pending:
        for entry in _list(pending.pop()):
            if entry.name == ".git" or entry.name in policy.protected_names:
                protected += _find_real(entry, policy.root)
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in _GENERATED:
                    pending.append(entry.path)
            elif _is_secret(entry.name, policy.secret_names):
                secrets += _find_real(entry, policy.root)
    if len(protected) + len(secrets) > _MOST:
        raise SandboxError(
            f"{policy.root} holds {len(protected)} nested git directories and rules files and {len(secrets)} files "
            f"that look like secrets; the sandbox can protect {_MOST}",
            hint="move them out of the repository",
        )
    return Found(protected=tuple(sorted(set(protected))), secrets=tuple(sorted(set(secrets))))


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


def _is_secret(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns) and not name.endswith(TEMPLATE_SUFFIXES)

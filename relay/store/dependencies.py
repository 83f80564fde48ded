"""What a work tree's dependencies are installed from: the lock files of package managers, and what was made of them.

Which commands were run for which lock files is noted in the git directory, where no command of a session writes.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence

from relay.base.tree import read_start
from relay.git.config_guard import guard
from relay.git.notes import read_note, write_note
from relay.git.repository import Repo
from relay.sandbox.links import GENERATED

LOCK_FILES = (
    "Cargo.lock", "Gemfile.lock", "Pipfile.lock", "bun.lock", "bun.lockb", "composer.lock", "conda-lock.yml",
    "deno.lock", "go.sum", "gradle.lockfile", "mix.lock", "npm-shrinkwrap.json", "package-lock.json",
    "packages.lock.json", "pdm.lock", "pixi.lock", "pnpm-lock.yaml", "poetry.lock", "pubspec.lock", "pylock.toml",
    "uv.lock", "yarn.lock",
)  # fmt: skip
"""Names of files that say exactly what is to be installed, in any folder; `requirements*.txt` is taken for one."""

_REQUIREMENTS = re.compile(r"requirements[\w.-]*\.txt")
_MOST_BYTES = 64 * 1024 * 1024
_NOTE = "setup"


def is_lock_file(path: str) -> bool:
    """Say whether a path of the repository is the lock file of a package manager."""
    name = path.rpartition("/")[2]
    return name in LOCK_FILES or _REQUIREMENTS.fullmatch(name) is not None


def digest_setup(repo: Repo, commands: Sequence[str]) -> str:
    """Return a digest of commands and of every lock file as it is now."""
    files = {path: _digest(repo, path) for path in sorted(_list_lock_files(repo))}
    return hashlib.sha256(json.dumps([list(commands), files]).encode()).hexdigest()


def _list_lock_files(repo: Repo) -> Iterator[str]:
    out = guard(repo).git.run("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return (path for path in set(map(os.fsdecode, out.split(b"\0")[:-1])) if is_lock_file(path))


def _digest(repo: Repo, path: str) -> str:
    try:
        content = read_start(repo.root / path, _MOST_BYTES)
    except OSError:
        return "absent"
    return "no file" if content is None else hashlib.sha256(content).hexdigest()


def is_set_up(repo: Repo, digest: str) -> bool:
    """Say whether a setup of this digest has run here, and what it made still stands."""
    lines = read_note(repo, _NOTE).splitlines()
    return bool(lines) and lines[0] == digest and all((repo.root / name).is_dir() for name in lines[1:])


def save_set_up(repo: Repo, digest: str) -> None:
    """Note that a setup has run, with the environments that stand at the root now."""
    made = sorted(name for name in GENERATED if (repo.root / name).is_dir())
    write_note(repo, _NOTE, "\n".join((digest, *made)))

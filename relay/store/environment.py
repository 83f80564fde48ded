"""What git ignores and was there when a leg began: dependencies, build caches, local settings.

No commit holds it and a gate may see it all the same; it is the user's, also when a session takes a line out of
``.gitignore``. What git comes to ignore later is neither: a clean clone has nothing of it.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.git import objects
from relay.git.config_guard import guard
from relay.git.message import Message
from relay.git.names import parse_path, with_parents
from relay.git.notes import read_note, write_note
from relay.git.objects import diff_trees
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.git.trees import FILE
from relay.plan.text import STATE_DIR, find_ledger_path
from relay.sandbox.links import GENERATED
from relay.store.legs import OpenLeg, find_leg_changes
from relay.store.snapshot import TreeSnapshot
from relay.store.trailers import LEFTOVER

MAX_LISTED = 1_000
"""Files of one ignored directory that are listed by name; of a larger one only the directory is known."""
MAX_LISTED_IN_ALL = 20_000
_NAME = "environment"
_ID = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a gate may see beside a commit."""

    roots: frozenset[str] = frozenset()
    """Ignored files, and directories, which belong to it with all that is in them then or later."""
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Files that were there, those in small directories too, with what tells each of them under another name."""
    unlisted: frozenset[str] = frozenset()
    """Those of the directories whose files are not among them: too many."""

    def holds(self, path: str) -> bool:
        """Return whether a path belongs to it, or is of a kind that always does.

        A leg may make its dependencies and its tools' caches itself: an installation is not work of a phase.
        """
        parts = path.split("/")
        if parts[0] in {".git", STATE_DIR} or not GENERATED.isdisjoint(parts):
            return True
        return any("/".join(parts[:end]) in self.roots for end in range(1, len(parts) + 1))


def read_environment(repo: Repo) -> Environment:
    """Return what git ignores in the work tree as it is now."""
    out = guard(repo).git.run("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    roots = frozenset(os.fsdecode(name).rstrip("/") for name in out.split(b"\0")[:-1])
    files: dict[str, str] = {}
    unlisted = set()
    for root in sorted(roots):
        below = list(_list_files(repo.root, root))
        if len(below) > MAX_LISTED or len(files) + len(below) > MAX_LISTED_IN_ALL:
            unlisted.add(root)
        else:
            files |= below
    return Environment(roots=roots, files=files, unlisted=frozenset(unlisted))


def _list_files(top: Path, root: str) -> Iterator[tuple[str, str]]:
    """Yield the files at or below a path, each with its mark, one more than are listed at most."""
    pending, left = [root], MAX_LISTED + 1
    while pending:
        path = pending.pop()
        try:
            found = os.lstat(place := f"{top}/{path}")
            if stat.S_ISDIR(found.st_mode):
                pending += [f"{path}/{name}" for name in os.listdir(place)]  # noqa: PTH208  # names are wanted
                continue
            yield path, _mark(found)
            left -= 1
        except OSError:
            continue  # gone, or unreadable for relay and so for its commands
        if not left:
            return


def _mark(found: os.stat_result) -> str:
    """Return what stays the same when a file gets another name; no program is asked what time it is."""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def save_environment(repo: Repo, environment: Environment) -> str:
    """Store it as a commit that nothing points to yet, and return its id."""
    values = {
        "roots": sorted(environment.roots),
        "files": dict(environment.files),
        "unlisted": sorted(environment.unlisted),
    }
    (blob,) = objects.store_blobs(repo, [json.dumps(values).encode()])
    tree = objects.write_paths_tree(repo, [(_NAME, FILE, blob)])
    return objects.write_commit(repo, tree, (), Message(subject="relay: what git ignores as a phase begins"))


def load_environment(repo: Repo, commit: str) -> Environment | None:
    """Undo `save_environment`; None where there is none, or none of relay's."""
    data = objects.read_blob(repo, commit, _NAME) if _ID.fullmatch(commit) else None
    try:
        values = json.loads(data or b"")
        return Environment(
            roots=frozenset(map(str, values["roots"])),
            files={str(path): str(mark) for path, mark in values["files"].items()},
            unlisted=frozenset(map(str, values["unlisted"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def find_earlier_paths(repo: Repo, environment: Environment | None, changes: Sequence[PathChange]) -> frozenset[str]:
    """Return those of a leg's added paths that git ignored when it began: never to be committed by relay.

    A session that takes a line out of ``.gitignore`` makes them look new, and they may have been given another name.

    Args:
        environment: Of the leg's start; None when it is not known.
        changes: What differs from that start.
    """
    if environment is None or not (environment.files or environment.unlisted):
        return frozenset()
    marks = frozenset(environment.files.values())
    added = [change.path for change in changes if change.kind is ChangeKind.ADDED]
    return frozenset(path for path in added if _was_there(repo, environment, marks, path))


def _was_there(repo: Repo, environment: Environment, marks: frozenset[str], path: str) -> bool:
    if path in environment.files or not environment.unlisted.isdisjoint(with_parents([path])):
        return True
    try:
        return _mark(os.lstat(repo.root / path)) in marks
    except OSError:
        return False


def find_owned_paths(repo: Repo, plan_path: str, leg: OpenLeg, now: TreeSnapshot) -> tuple[str, ...]:
    """Return what the sessions of a leg changed: neither the user's dirt nor what only relay writes."""
    changes = find_leg_changes(repo, leg, now)
    environment = load_environment(repo, leg.environment)
    user = find_user_paths(repo, leg) | find_earlier_paths(repo, environment, changes)
    return select_owned(plan_path, leg, user, changes)


def select_owned(plan_path: str, leg: OpenLeg, user: frozenset[str], changes: Iterable[PathChange]) -> tuple[str, ...]:
    """Return the paths of those changes that are neither the user's nor of the files that only relay writes."""
    # A plan that was renamed meanwhile has two names.
    plans = {plan_path, leg.plan_path or plan_path}
    others = {*user, *plans, *map(find_ledger_path, plans)}
    return tuple(change.path for change in changes if change.path not in others and not change.is_submodule)


def find_user_paths(repo: Repo, leg: OpenLeg) -> frozenset[str]:
    """Return what differed from HEAD when the leg began: the user's, and never committed.

    Not among them is what the verify commands left behind just before: a session may change and commit that.
    """
    left = {parse_path(value) for key, value in leg.trailers if key == LEFTOVER}
    changes = diff_trees(repo, leg.base_head or repo.empty_tree, leg.base_tree)
    return frozenset(change.path for change in changes) - left


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

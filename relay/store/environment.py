"""What git ignores and was there when a leg began: dependencies, build caches, local settings.

No commit holds it and a gate may see it all the same; it is the user's, also when a session takes a line out of
``.gitignore``. What git comes to ignore later is neither: a clean clone has nothing of it.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from relay.base.values import dataclass
from relay.git import objects
from relay.git.config_guard import guard
from relay.git.message import Message
from relay.git.names import with_parents
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.git.trees import FILE
from relay.plan.files import STATE_DIR
from relay.sandbox.links import GENERATED

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

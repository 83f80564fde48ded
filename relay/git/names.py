"""Quote paths as git does, and write branch names as one part of a ref."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from relay.base.words import list_some

JOB_BRANCHES = "relay-jobs/"
"""The prefix of the branches of jobs; the plan's branch and the phase follow."""
SWITCH = "git switch --no-overwrite-ignore"
"""What relay tells users to type: without the option git writes over ignored files that the other branch tracks."""
STORE = "store"
"""The name of the repository in each clone that relay makes, beside the clone's work tree."""
_ODD = re.compile(rb'[^ -~]|["\\]')
_QUOTED = re.compile(r'"(.*)"')
_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")


def quote_path(path: str) -> str:
    """Return `path` in C style, one line of ASCII in double quotes; other bytes, quotes and backslashes as octal."""
    inner = _ODD.sub(lambda found: b"\\%03o" % ord(found[0]), os.fsencode(path))
    return f'"{inner.decode()}"'


def render_path(path: str) -> str:
    """Return `path`, quoted unless it is safe on one line."""
    plain = path.isprintable() and path == path.strip() and not path.startswith('"') and path
    return path if plain else quote_path(path)


def list_paths(paths: Sequence[str]) -> str:
    """Return the first ten of `paths` for a sentence, with the number of the rest."""
    return list_some([render_path(path) for path in paths])


def with_parents(paths: Iterable[str]) -> frozenset[str]:
    """Return `paths`, without trailing slashes, and every directory above them but the root."""
    pure = [PurePosixPath(path) for path in paths]
    return frozenset(str(part) for path in pure for part in (path, *path.parents[:-1]))


def parse_path(text: str) -> str:
    """Undo `render_path`; text that is not quoted properly stays as it is."""
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return text
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), os.fsencode(quoted[1])))


def render_ref_part(branch: str) -> str:
    """Return a branch name as one component of a ref name.

    As several components, ``feature`` and ``feature/login`` would need one name as a file and as a directory, and an
    open attempt of a deleted branch would block another branch's. ``%`` and ``/`` are written as in URLs.
    """
    return branch.replace("%", "%25").replace("/", "%2F")


def name_jobs(branch: str) -> str:
    """Return the prefix of the job branches of a plan on `branch`."""
    return f"{JOB_BRANCHES}{render_ref_part(branch)}/"


def find_plan_branch(branch: str) -> str:
    """Return the plan's branch of a job branch; any other branch itself."""
    return parse_ref_part(branch.split("/")[1]) if branch.startswith(JOB_BRANCHES) else branch


def parse_ref_part(part: str) -> str:
    """Undo `render_ref_part`."""
    return part.replace("%2F", "/").replace("%25", "%")

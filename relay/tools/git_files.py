"""Which files there are, asked of git inside the sandbox.

git knows what is ignored, works before the first commit and walks 100,000 files in well under a second. It runs in
the session's sandbox, with hooks, monitors and attribute drivers off: a hostile configuration of the repository can
do no more than a command of the model.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relay.sandbox.policy import MIB
from relay.sandbox.process import CommandResult
from relay.tools.workspace import RefusedError, Workspace

QUICK_S = 20.0
"""A listing or search that takes longer is cut off: the pattern is hostile or the repository is too big for it."""

KEEP_BYTES = 64 * MIB
"""Of git's answer: the names of a million files. Of more, the first half of this is looked at."""

_GIT = (
    "git",
    "--no-pager",
    "--no-optional-locks",
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.attributesFile=/dev/null"),
    *("-c", "submodule.recurse=false"),
    *("-c", "grep.fallbackToNoIndex=false"),
    *("-c", "safe.directory=*"),
)
_MOST_ALTERNATIVES = 64
_GLOB_CHARS = re.compile(r"([*?\[\\])")


def run_git(workspace: Workspace, *args: str) -> CommandResult:
    """Run git at the root, in the sandbox of the session.

    Raises:
        RefusedError: It took longer than `QUICK_S`.
    """
    limits = replace(workspace.limits, timeout_s=QUICK_S, keep_bytes=KEEP_BYTES)
    result = workspace.sandbox.run([*_GIT, *args], limits=limits, cwd=workspace.root, should_stop=workspace.should_stop)
    if result.timed_out:
        raise RefusedError(f"No answer within {QUICK_S:.0f} s. Narrow the path or make the pattern simpler.")
    return result


def is_ignored(workspace: Workspace, path: str) -> bool:
    """Say whether git ignores a path that is not tracked."""
    return path != "" and run_git(workspace, "check-ignore", "-q", "--", f"./{path}").exit_code == 0


def render_pathspecs(path: str, glob: str | None) -> tuple[str, ...]:
    """Return what limits git to a path and, below it, to a glob; braces are spelled out, git does not know them.

    Raises:
        RefusedError: The braces multiply beyond reason.
    """
    if not glob:
        return (f":(top,literal){path}",) if path else ()
    base = _GLOB_CHARS.sub(r"\\\1", path)
    globs = [part if "/" in part else f"**/{part}" for part in _expand_braces(glob.removeprefix("./").lstrip("/"))]
    return tuple(f":(top,glob){base}{'/' if base else ''}{part}" for part in globs)


def _expand_braces(glob: str) -> Sequence[str]:
    done: list[str] = []
    pending = [glob]
    while pending:
        current = pending.pop()
        match = re.search(r"\{([^{}]*,[^{}]*)\}", current)
        if match is None:
            done.append(current)
        else:
            pending += [current[: match.start()] + part + current[match.end() :] for part in match[1].split(",")]
        if len(done) + len(pending) > _MOST_ALTERNATIVES:
            raise RefusedError(f"The braces in glob stand for more than {_MOST_ALTERNATIVES} patterns.")
    return done


def find_mtime_ns(root: Path, path: str) -> int:
    """Return when a file was last changed; 0 when it is not there."""
    try:
        return os.lstat(f"{root}/{path}").st_mtime_ns  # a Path for each of 100,000 files costs seconds
    except OSError:
        return 0

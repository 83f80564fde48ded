"""`list`: what is in a directory, or which files below it match a glob; newest first."""

import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any

from relay.tools.confine import locate, require_readable
from relay.tools.git_files import is_ignored, render_pathspecs, run_git
from relay.tools.output import ToolAnswer
from relay.tools.workspace import RefusedError, Workspace

MAX_ENTRIES = 100
"""As Claude Code and OpenCode do."""


def run_list(workspace: Workspace, given: Mapping[str, Any]) -> ToolAnswer:
    """List one level, or with `glob` all levels."""
    with locate(workspace.root, given.get("path", ""), follow=True) as place:
        require_readable(workspace, place.path)
        if place.status is None:
            raise RefusedError(f"No such directory: {place.path}.")
        is_directory = stat.S_ISDIR(place.status.st_mode)
    path, glob = place.path, given.get("glob")
    names = _ask_git(workspace, path, glob if is_directory else None, ignored=False)
    remark = ""
    if not names and is_ignored(workspace, path):
        names, remark = _ask_git(workspace, path, glob if is_directory else None, ignored=True), " (ignored by git)"
    below = f"{path}/" if path else ""
    one_level = is_directory and not glob
    entries = {_first_part(name, below) for name in names} if one_level else set(names)
    return _answer(workspace, below if one_level else "", entries, f"{path or 'The repository'}{remark}")


def _ask_git(workspace: Workspace, path: str, glob: str | None, *, ignored: bool) -> list[str]:
    which = ("-o",) if ignored else ("-co", "--exclude-standard")
    result = run_git(workspace, "ls-files", "-z", *which, "--", *render_pathspecs(path, glob))
    if result.exit_code != 0:
        raise RefusedError(f"The files cannot be listed: {result.output[:500].decode('utf-8', 'replace').strip()}")
    return [os.fsdecode(name) for name in result.output.split(b"\0") if name]


def _first_part(name: str, below: str) -> str:
    """Return the entry of the directory `below` that leads to a file, with a slash when it is a directory."""
    first, slash, _ = name.removeprefix(below).partition("/")
    return first + slash


def _answer(workspace: Workspace, below: str, entries: Iterable[str], what: str) -> ToolAnswer:
    ages: dict[str, int] = {}
    for entry in entries:
        try:
            status = os.lstat(f"{workspace.root}/{below}{entry}")  # a Path for each costs seconds
        except OSError:
            continue  # tracked, but not in the work tree
        is_folder = stat.S_ISDIR(status.st_mode) and not entry.endswith("/")
        ages[f"{entry}/" if is_folder else entry] = status.st_mtime_ns
    ranked = sorted(ages, key=lambda name: (-ages[name], name))
    if not ranked:
        return ToolAnswer(text=f"{what}: nothing here that git does not ignore.")
    more = len(ranked) - MAX_ENTRIES
    return ToolAnswer(text="\n".join([*ranked[:MAX_ENTRIES], *([f"… {more:,} more; use glob"] if more > 0 else [])]))

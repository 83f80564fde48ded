"""`search` and `list` of sessions that only read: lines that match, names of files, newest first.

Both ask git inside the sandbox. Python's `re` would need an interpreter there (the sandbox may hide relay's own), uses
one core, and has no guard against patterns that backtrack for ever. git grep uses all cores, knows the ignored files,
takes PCRE (the syntax that models write), gives up after a number of steps, and is killed after 20 s. relay asks it
twice, for counts and then for the lines of the newest files, so that millions of hits cost no more than their count.
git also works before the first commit and walks 100,000 files in well under a second. Hooks, monitors and attribute
drivers are off: a hostile configuration can do no more than a command of the model.
"""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any

from relay.base.words import render_output
from relay.sandbox.command import CommandResult
from relay.sandbox.policy import MIB
from relay.session.values import ToolResult
from relay.tools.workspace import RefusedError, Workspace, is_readable, locate, require_readable

MAX_HITS = 100
"""Of lines and of names, as in OpenCode and Claude Code."""
SHOWN_CHARS = 240
"""Characters of a long line that are shown, around the match."""
QUICK_S = 20.0
"""Time limit: beyond it the pattern is hostile or the repository too big."""
KEEP_BYTES = 64 * MIB
"""Limit of git's answer: the names of a million files. Of a longer one, relay reads the first half of this."""

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
_GREP = ("grep", "-I", "-z", "--no-color", "--no-textconv", "--full-name")
_KNOWN, _ALL = ("--untracked", "--exclude-standard"), ("--no-index", "--no-exclude-standard")
"""Which files git grep takes: those that git does not ignore, or every one."""
_MOST_ALTERNATIVES = 64
_GLOB_CHARS = re.compile(r"([*?\[\\])")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_NO_PCRE = b"Perl-compatible"
_COUNT = re.compile(rb"([^\0]+)\0(\d+)\n")
_HIT = re.compile(rb"([^\0]+)\0(\d+)\0(\d+)\0([^\n]*)(?:\n|\Z)")


def run_list(workspace: Workspace, given: Mapping[str, Any]) -> ToolResult:
    """List one level of a directory, or with `glob` all levels."""
    path, is_directory = _find_place(workspace, given)
    glob = given.get("glob") if is_directory else None
    specs, remark = _render_pathspecs(path, glob), ""
    names = _list_files(workspace, "-co", "--exclude-standard", "--", *specs)
    if not names and _is_ignored(workspace, path):
        names, remark = _list_files(workspace, "-o", "--", *specs), " (ignored by git)"
    below = f"{path}/" if path and is_directory and not glob else ""
    if is_directory and not glob:
        parts = (name.removeprefix(below).partition("/") for name in names)
        names = {first + slash for first, slash, _ in parts}
    ranked = _rank(f"{workspace.root}/{below}", names)
    if not ranked:
        return ToolResult(text=f"{path or 'The repository'}{remark}: nothing here that git does not ignore.")
    more = len(ranked) - MAX_HITS
    return ToolResult(text="\n".join([*ranked[:MAX_HITS], *([f"… {more:,} more; use glob"] if more > 0 else [])]))


def run_search(workspace: Workspace, given: Mapping[str, Any]) -> ToolResult:
    """Search tracked and untracked files, and ignored ones if `path` is ignored."""
    pattern = given["pattern"]
    if not pattern or "\n" in pattern or "\0" in pattern:
        raise RefusedError("pattern must be one line of text; lines are matched one by one.")
    path, _ = _find_place(workspace, given)
    specs, which = _render_pathspecs(path, given.get("glob")), _KNOWN
    counts = _count_by_path(workspace, pattern, which, specs)
    if not counts and _is_ignored(workspace, path):
        which = _ALL
        counts = _count_by_path(workspace, pattern, which, specs)
    if not counts:
        return ToolResult(text="No line matches.")
    ranked = _rank(f"{workspace.root}/", counts)
    before = accumulate((counts[name] for name in ranked), initial=0)
    chosen = [name for name, hits in zip(ranked, before, strict=False) if hits < MAX_HITS]
    form = ("-n", "--column", f"-m{MAX_HITS}", *which)
    result = _grep(workspace, pattern, form, [f":(top,literal){name}" for name in chosen])
    output = result.output if result.total_bytes <= KEEP_BYTES else result.output[: KEEP_BYTES // 2]
    hits: defaultdict[str, list[str]] = defaultdict(list)
    for raw, line, column, text in _HIT.findall(output):
        hits[_find_path(workspace, raw)].append(f"{int(line)}: {_show_text(text, int(column) - 1)}")
    lines, shown = [], 0
    for name in chosen:
        part = hits[name][: MAX_HITS - shown]
        lines += [name, *part] if part else []
        shown += len(part)
    more = sum(counts.values()) - shown
    lines += [f"… {more:,} more lines match; narrow path, glob or pattern"] if more > 0 else []
    return ToolResult(text="\n".join(lines))


def _find_place(workspace: Workspace, given: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the path that the model names, without links, and whether it is a directory."""
    with locate(workspace, given.get("path", ""), follow=True) as place:
        require_readable(workspace, place.path)
        if place.status is None:
            raise RefusedError(f"No such file or directory: {place.path}.")
        return place.path, stat.S_ISDIR(place.status.st_mode)


def _run_git(workspace: Workspace, *args: str) -> CommandResult:
    limits = replace(workspace.limits, timeout_s=QUICK_S, keep_bytes=KEEP_BYTES)
    result = workspace.sandbox.run([*_GIT, *args], limits=limits, cwd=workspace.root, should_stop=workspace.should_stop)
    if result.timed_out:
        raise RefusedError(f"No answer within {QUICK_S:.0f} s. Narrow the path or make the pattern simpler.")
    return result


def _is_ignored(workspace: Workspace, path: str) -> bool:
    return path != "" and _run_git(workspace, "check-ignore", "-q", "--", f"./{path}").exit_code == 0


def _list_files(workspace: Workspace, *args: str) -> set[str]:
    result = _run_git(workspace, "ls-files", "-z", *args)
    if result.exit_code != 0:
        raise RefusedError(f"The files cannot be listed: {render_output(result.output[:500]).strip()}")
    return {os.fsdecode(name) for name in result.output.split(b"\0") if name}


def _count_by_path(workspace: Workspace, pattern: str, which: Sequence[str], specs: Sequence[str]) -> dict[str, int]:
    """Return the number of matching lines in each file that may be shown."""
    output = _grep(workspace, pattern, ("-c", *which), specs).output
    counts = {_find_path(workspace, raw): int(number) for raw, number in _COUNT.findall(output)}
    return {path: count for path, count in counts.items() if is_readable(workspace, path)}


def _grep(workspace: Workspace, pattern: str, form: Sequence[str], specs: Sequence[str]) -> CommandResult:
    tail = ("-e", pattern, "--", *specs)
    result = _run_git(workspace, *_GREP, *form, "-P", *tail)
    if result.exit_code not in {0, 1} and _NO_PCRE in result.output[:500]:
        result = _run_git(workspace, *_GREP, *form, "-E", *tail)
    if result.exit_code not in {0, 1}:
        raise RefusedError(f"The search failed: {render_output(result.output[:500]).strip()}")
    return result


def _rank(folder: str, names: Iterable[str]) -> list[str]:
    """Return the names that exist, newest first; a directory's ends with a slash."""
    ages: dict[str, int] = {}
    for name in names:
        with suppress(OSError):  # tracked, but not in the work tree
            status = os.lstat(f"{folder}{name}")  # a Path for each costs seconds
            is_bare = stat.S_ISDIR(status.st_mode) and not name.endswith("/")
            ages[f"{name}/" if is_bare else name] = status.st_mtime_ns
    return sorted(ages, key=lambda name: (-ages[name], name))


def _render_pathspecs(path: str, glob: str | None) -> tuple[str, ...]:
    """Return git's pathspecs for a path and a glob below it; braces, which git does not know, are spelled out."""
    if not glob:
        return (f":(top,literal){path}",) if path else ()
    done: list[str] = []
    pending = [glob.removeprefix("./").lstrip("/")]
    while pending:
        current = pending.pop()
        if braces := _BRACES.search(current):
            ways = braces[1].split(",")
            pending += [f"{current[: braces.start()]}{way}{current[braces.end() :]}" for way in ways]
        else:
            done.append(current if "/" in current else f"**/{current}")
        if len(done) + len(pending) > _MOST_ALTERNATIVES:
            raise RefusedError(f"The braces in glob stand for more than {_MOST_ALTERNATIVES} patterns.")
    base = _GLOB_CHARS.sub(r"\\\1", f"{path}/" if path else "")
    return tuple(f":(top,glob){base}{one}" for one in done)


def _find_path(workspace: Workspace, raw: bytes) -> str:
    """Return the path in front of a NUL. Lines before it are git's warnings, unless a file has that name."""
    path = os.fsdecode(raw)
    return path if "\n" not in path or os.path.lexists(f"{workspace.root}/{path}") else path.rpartition("\n")[2]


def _show_text(text: bytes, column: int) -> str:
    start = 0 if len(text) <= SHOWN_CHARS else max(min(column - SHOWN_CHARS // 4, len(text) - SHOWN_CHARS), 0)
    part = text[start : start + SHOWN_CHARS]
    shown = re.sub("^�+|�+$", "", render_output(part)) if len(part) < len(text) else render_output(part)
    return f"{'…' if start else ''}{shown.rstrip()}{'…' if start + SHOWN_CHARS < len(text) else ''}"

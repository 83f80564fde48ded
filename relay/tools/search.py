"""`search`: lines that match a regular expression, by git grep inside the sandbox.

Python's `re` was the other choice: it would need an interpreter inside the sandbox (which may hide the one relay runs
on), is single-threaded, and has no guard against patterns that backtrack for ever. git grep uses all cores, knows what
is ignored, takes PCRE (what models write), which gives up after a number of steps, and is killed after 20 s.
"""

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relay.sandbox.process import CommandResult
from relay.sandbox.text import render_output
from relay.tools.confine import ensure_readable, locate
from relay.tools.git_files import KEEP_BYTES, is_ignored, render_pathspecs, run_git
from relay.tools.output import Answer
from relay.tools.workspace import RefusedError, Workspace

MAX_HITS = 100
"""Source: DESIGN § 8, as OpenCode does."""

SHOWN_CHARS = 240
"""Of a long line, around the match."""

_GREP = ("grep", "-I", "-n", "-z", "--column", "--no-color", "--no-textconv", "--full-name")
_NO_PCRE = b"Perl-compatible"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    path: str
    line: int
    text: str


def run_search(workspace: Workspace, given: Mapping[str, Any]) -> Answer:
    """Search tracked and untracked files; ignored ones when `path` is one."""
    pattern = given["pattern"]
    if not pattern or "\n" in pattern or "\0" in pattern:
        raise RefusedError("pattern must be one line of text; lines are matched one by one.")
    with locate(workspace.root, given.get("path", ""), follow=True) as place:
        ensure_readable(workspace, place.path)
        if place.status is None:
            raise RefusedError(f"No such file or directory: {place.path}.")
    pathspecs = render_pathspecs(place.path, given.get("glob"))
    result = _grep(workspace, pattern, "--untracked", "--exclude-standard", pathspecs=pathspecs)
    if result.exit_code == 1 and is_ignored(workspace, place.path):
        result = _grep(workspace, pattern, "--no-index", "--no-exclude-standard", pathspecs=pathspecs)
    if result.exit_code == 1:
        return Answer(text="No line matches.")
    if result.exit_code != 0:
        raise RefusedError(f"The search failed: {render_output(result.output[:500]).strip()}")
    return _answer(workspace, result)


def _grep(workspace: Workspace, pattern: str, *which: str, pathspecs: tuple[str, ...]) -> CommandResult:
    tail = ("-e", pattern, "--", *pathspecs)
    result = run_git(workspace, *_GREP, *which, "-P", *tail)
    if result.exit_code != 0 and _NO_PCRE in result.output[:500]:
        result = run_git(workspace, *_GREP, *which, "-E", *tail)
    return result


def _answer(workspace: Workspace, result: CommandResult) -> Answer:
    cut = result.total_bytes > KEEP_BYTES
    by_path: defaultdict[str, list[_Hit]] = defaultdict(list)
    for hit in _parse_hits(result.output[: KEEP_BYTES // 2] if cut else result.output):
        by_path[hit.path].append(hit)
    ranked = sorted(by_path, key=lambda path: (-_find_age(workspace, path), path))
    hits = [hit for path in ranked for hit in by_path[path]]
    lines: list[str] = []
    for previous, hit in zip([None, *hits], hits[:MAX_HITS], strict=False):
        lines += [hit.path] if previous is None or previous.path != hit.path else []
        lines.append(f"{hit.line}: {hit.text}")
    more = len(hits) - MAX_HITS
    if more > 0:
        lines.append(f"… {'over ' if cut else ''}{more:,} more lines match; narrow path, glob or pattern")
    return Answer(text="\n".join(lines))


def _parse_hits(output: bytes) -> list[_Hit]:
    """Read ``path NUL line NUL column NUL text``; anything else is a warning of git."""
    hits = []
    for raw in output.split(b"\n"):
        match raw.split(b"\0", 3):
            case [path, line, column, text] if line.isdigit() and column.isdigit():
                shown = _show_text(text, int(column) - 1)
                hits.append(_Hit(path=os.fsdecode(path), line=int(line), text=shown))
            case _:
                pass
    return hits


def _show_text(text: bytes, column: int) -> str:
    start = 0 if len(text) <= SHOWN_CHARS else max(min(column - SHOWN_CHARS // 4, len(text) - SHOWN_CHARS), 0)
    part = text[start : start + SHOWN_CHARS]
    shown = re.sub("^�+|�+$", "", render_output(part)) if len(part) < len(text) else render_output(part)
    return f"{'…' if start else ''}{shown.rstrip()}{'…' if start + SHOWN_CHARS < len(text) else ''}"


def _find_age(workspace: Workspace, path: str) -> int:
    try:
        return (workspace.root / path).lstat().st_mtime_ns
    except OSError:
        return 0

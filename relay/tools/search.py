"""`search`: lines that match a regular expression, by git grep inside the sandbox.

Python's `re` was the other choice: it would need an interpreter inside the sandbox (which may hide the one relay runs
on), is single-threaded, and has no guard against patterns that backtrack for ever. git grep uses all cores, knows what
is ignored, takes PCRE (what models write), which gives up after a number of steps, and is killed after 20 s. It is
asked twice, for counts and then for the lines of the newest files: millions of hits cost no more than their count.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from relay.base.values import dataclass
from relay.sandbox.process import CommandResult
from relay.sandbox.text import render_output
from relay.tools.confine import is_readable, locate, require_readable
from relay.tools.git_files import KEEP_BYTES, find_mtime_ns, is_ignored, render_pathspecs, run_git
from relay.tools.output import ToolAnswer
from relay.tools.workspace import RefusedError, Workspace

MAX_HITS = 100
"""As OpenCode does."""

SHOWN_CHARS = 240
"""Of a long line, around the match."""

_GREP = ("grep", "-I", "-z", "--no-color", "--no-textconv", "--full-name")
_NO_PCRE = b"Perl-compatible"
_COUNT = re.compile(rb"([^\0]+)\0(\d+)\n")
_HIT = re.compile(rb"([^\0]+)\0(\d+)\0(\d+)\0([^\n]*)(?:\n|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """One search that can be asked twice: which files match how often, then the lines of the newest of them."""

    workspace: Workspace
    pattern: str
    which: tuple[str, ...]
    """Options that choose the files: tracked and untracked ones, or really all."""

    def run(self, form: Sequence[str], pathspecs: Sequence[str]) -> CommandResult:
        """Raises `RefusedError` when the pattern is not one, or git cannot search."""
        tail = ("-e", self.pattern, "--", *pathspecs)
        result = run_git(self.workspace, *_GREP, *form, *self.which, "-P", *tail)
        if result.exit_code not in {0, 1} and _NO_PCRE in result.output[:500]:
            result = run_git(self.workspace, *_GREP, *form, *self.which, "-E", *tail)
        if result.exit_code not in {0, 1}:
            raise RefusedError(f"The search failed: {render_output(result.output[:500]).strip()}")
        return result


def run_search(workspace: Workspace, given: Mapping[str, Any]) -> ToolAnswer:
    """Search tracked and untracked files; ignored ones when `path` is one."""
    pattern = given["pattern"]
    if not pattern or "\n" in pattern or "\0" in pattern:
        raise RefusedError("pattern must be one line of text; lines are matched one by one.")
    with locate(workspace.root, given.get("path", ""), follow=True) as place:
        require_readable(workspace, place.path)
        if place.status is None:
            raise RefusedError(f"No such file or directory: {place.path}.")
    pathspecs = render_pathspecs(place.path, given.get("glob"))
    search = _Search(workspace=workspace, pattern=pattern, which=("--untracked", "--exclude-standard"))
    counts = _count_by_path(search, pathspecs)
    if not counts and is_ignored(workspace, place.path):
        search = replace(search, which=("--no-index", "--no-exclude-standard"))
        counts = _count_by_path(search, pathspecs)
    return _show_newest(search, counts) if counts else ToolAnswer(text="No line matches.")


def _count_by_path(search: _Search, pathspecs: Sequence[str]) -> dict[str, int]:
    """Return the number of matching lines of each file that may be shown."""
    root, output = search.workspace.root, search.run(["-c"], pathspecs).output
    counts = {_find_path(root, match[1]): int(match[2]) for match in _COUNT.finditer(output)}
    return {path: count for path, count in counts.items() if is_readable(search.workspace, path)}


def _show_newest(search: _Search, counts: Mapping[str, int]) -> ToolAnswer:
    root = search.workspace.root
    ranked = sorted(counts, key=lambda path: (-find_mtime_ns(root, path), path))
    before = accumulate((counts[path] for path in ranked), initial=0)
    chosen = [path for path, hits in zip(ranked, before, strict=False) if hits < MAX_HITS]
    result = search.run(["-n", "--column"], [f":(top,literal){path}" for path in chosen])
    output = result.output if result.total_bytes <= KEEP_BYTES else result.output[: KEEP_BYTES // 2]
    by_path: defaultdict[str, list[str]] = defaultdict(list)
    for path, line in _parse_hits(root, output):
        by_path[path].append(line)
    lines, shown = [], 0
    for path in chosen:
        part = by_path[path][: MAX_HITS - shown]
        lines += [path, *part] if part else []
        shown += len(part)
    more = sum(counts.values()) - shown
    lines += [f"… {more:,} more lines match; narrow path, glob or pattern"] if more > 0 else []
    return ToolAnswer(text="\n".join(lines))


def _parse_hits(root: Path, output: bytes) -> Iterator[tuple[str, str]]:
    """Read as many lines of each file as can be shown."""
    taken: Counter[bytes] = Counter()
    for match in _HIT.finditer(output):
        raw, line, column, text = match.groups()
        taken[raw] += 1
        if taken[raw] <= MAX_HITS:
            yield _find_path(root, raw), f"{int(line)}: {_show_text(text, int(column) - 1)}"


def _find_path(root: Path, raw: bytes) -> str:
    """Return the path in front of a NUL; lines before it are warnings of git, unless the name itself has them."""
    path = os.fsdecode(raw)
    return path if "\n" not in path or os.path.lexists(f"{root}/{path}") else path.rpartition("\n")[2]


def _show_text(text: bytes, column: int) -> str:
    start = 0 if len(text) <= SHOWN_CHARS else max(min(column - SHOWN_CHARS // 4, len(text) - SHOWN_CHARS), 0)
    part = text[start : start + SHOWN_CHARS]
    shown = re.sub("^�+|�+$", "", render_output(part)) if len(part) < len(text) else render_output(part)
    return f"{'…' if start else ''}{shown.rstrip()}{'…' if start + SHOWN_CHARS < len(text) else ''}"

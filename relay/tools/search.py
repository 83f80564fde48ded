"""The tools that only look: `read` shows a picture or lines of a text, `search` greps, `list` names files and folders.

`read` shows no line numbers: `edit` goes by text, numbers cost about a tenth more tokens and end up in `old`. The model
knows from `search` and from the offset where a line stands. `read` leaves out carriage returns and a byte-order mark;
`edit` puts them back.

`search` and `list` ask git inside the sandbox. Python's `re` would need an interpreter there (the sandbox may hide
relay's own), uses one core, and has no guard against patterns that backtrack for ever. git grep uses all cores, knows
the ignored files, takes PCRE (the syntax that models write), gives up after a number of steps, and is killed after
20 s. relay asks it twice, for counts and then for the lines of the newest files, so that millions of hits cost no more
than their count. git also works before the first commit and walks 100,000 files in well under a second. Hooks, monitors
and attribute drivers are off: a hostile configuration can do no more than a command of the model.
"""

import mimetypes
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from relay.base.secrecy import is_covered
from relay.base.tree import FileState, make_look
from relay.base.values import dataclass
from relay.base.words import render_output
from relay.sandbox.command import CommandResult
from relay.sandbox.policy import MIB
from relay.session.pictures import MAX_PICTURE_BYTES, MAX_SIDE_PIXELS, read_picture
from relay.session.usage import MAX_READ_BYTES
from relay.session.values import Shown
from relay.tools.claims import AttemptNotes
from relay.tools.workspace import (
    RefusedError,
    ToolAnswer,
    Workspace,
    is_readable,
    locate,
    open_regular,
    require_readable,
)

MAX_READ_LINES = 2_000
MAX_LINE_CHARS = 2_000
"""Source of both: OpenCode's read tool."""

MAX_FILE_BYTES = 256 * 1024 * 1024
"""A larger file takes seconds to count through; a command does that better."""

_SNIFF_BYTES = 8_000
"""A NUL in the first bytes makes a file binary; the number is git's."""

_LINE_BYTES = 4 * MAX_LINE_CHARS + 4

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"RIFF", "WebP image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


_PICTURES = frozenset({"PNG image", "JPEG image", "WebP image"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    lines: tuple[str, ...]
    last: int
    """Number of the last line shown."""
    more: bool
    invalid: bool
    """Some shown bytes were not UTF-8."""


def run_read(workspace: Workspace, notes: AttemptNotes | None, given: Mapping[str, Any]) -> ToolAnswer:
    """Show a file from line `offset` on."""
    with locate(workspace.root, given["path"], follow=True) as place:
        require_readable(workspace, place.path)
        stream = os.fdopen(open_regular(place), "rb")
    with stream:
        found = os.fstat(stream.fileno())
        size = found.st_size
        if size > MAX_FILE_BYTES:
            raise RefusedError(f"{place.path} has {size:,} bytes; look at parts of it with sed -n or tail in bash.")
        spilled = is_covered(place.path, (workspace.render_handle(workspace.outputs_dir),))
        if not spilled and (kind := find_binary_kind(place.path, stream)):
            if kind in _PICTURES:
                return _show_picture(place.path, stream.read(MAX_PICTURE_BYTES + 1), size)
            raise RefusedError(f"{place.path} is binary: {size:,} bytes, {kind}.")
        offset = given.get("offset", 1)
        window = _read_window(stream, offset, min(given.get("limit", MAX_READ_LINES), MAX_READ_LINES), clean=spilled)
    if notes is not None:
        notes.seen[place.path] = make_look(found)
    if not window.lines:
        if size == 0:
            return ToolAnswer(text=f"({place.path} is empty)")
        return ToolAnswer(text=f"{place.path} has {window.last} lines; offset {offset} is past its end.", is_error=True)
    shown = Shown(path=place.path, first_line=offset, last_line=window.last)
    remarks = []
    if window.more:
        remarks.append(f"[lines {offset}-{window.last}. Use offset={window.last + 1} to continue]")
    if window.invalid:
        remarks.append("[not all of this is UTF-8: � stands for other bytes]")
    return ToolAnswer(text="\n".join([*window.lines, *remarks]), shown=shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFile:
    """A text file as `read` shows it, from its first line to its last."""

    path: str
    """Without links."""
    text: str
    look: FileState


def read_whole(workspace: Workspace, path: str, most_bytes: int) -> WholeFile | None:
    """Return a file of at most `most_bytes` that `read` would show whole; None for any other, and for an empty one.

    Also None for a file with another name, which may be that of a secret.
    """
    try:
        with locate(workspace.root, path, follow=True) as place:
            if place.status is None or not stat.S_ISREG(place.status.st_mode):
                return None
            require_readable(workspace, place.path)
            stream = os.fdopen(open_regular(place), "rb")
    except (RefusedError, OSError):
        return None
    with stream:
        found = os.fstat(stream.fileno())
        if not 0 < found.st_size <= most_bytes or found.st_nlink > 1 or find_binary_kind(place.path, stream):
            return None
        window = _read_window(stream, 1, MAX_READ_LINES, clean=False)
    if window.more or window.invalid or any(len(line) > MAX_LINE_CHARS for line in window.lines):
        return None
    return WholeFile(path=place.path, text="\n".join(window.lines), look=make_look(found))


def _show_picture(path: str, data: bytes, size: int) -> ToolAnswer:
    if len(data) > MAX_PICTURE_BYTES:
        raise RefusedError(f"{path} has {size:,} bytes; a picture may have {MAX_PICTURE_BYTES:,}. Make a smaller copy.")
    picture = read_picture(data)
    if picture is None:
        raise RefusedError(f"{path} is no whole picture: its header or its end is missing.")
    words = f"{path}: {picture.media_type}, {picture.width:,} x {picture.height:,} pixels."
    if max(picture.width, picture.height) > MAX_SIDE_PIXELS:
        raise RefusedError(f"{words} A side may have {MAX_SIDE_PIXELS:,}. Make a smaller copy.")
    return ToolAnswer(text=words, picture=picture)


def find_binary_kind(path: str, stream: BinaryIO) -> str | None:
    """Return the kind of a binary file, None for text; rewind the stream."""
    start = stream.read(_SNIFF_BYTES)
    stream.seek(0)
    if b"\0" not in start:
        return None
    kind = next((name for magic, name in _MAGIC if start.startswith(magic)), None)
    if kind == "WebP image" and start[8:12] != b"WEBP":  # another RIFF file: sound, film
        kind = None
    return kind or mimetypes.guess_type(path)[0] or "unknown kind"


def _read_window(stream: BinaryIO, offset: int, limit: int, *, clean: bool) -> _Window:
    number, used, invalid = 0, 0, False
    lines: list[str] = []
    while raw := _next_line(stream):
        number += 1
        if number < offset:
            continue
        line, valid = _show_line(*raw, first=number == 1, clean=clean)
        used += len(line.encode("utf-8")) + 1
        if len(lines) == limit or (lines and used > MAX_READ_BYTES):
            return _Window(lines=tuple(lines), last=number - 1, more=True, invalid=invalid)
        lines.append(line)
        invalid = invalid or not valid
    return _Window(lines=tuple(lines), last=number, more=False, invalid=invalid)


def _next_line(stream: BinaryIO) -> tuple[bytes, int] | None:
    """Return the start of the next line and the number of omitted bytes; None at the end."""
    start = stream.readline(_LINE_BYTES)
    if not start:
        return None
    left_out, part = 0, start
    while part and not part.endswith(b"\n"):
        part = stream.readline(1 << 20)
        left_out += len(part.removesuffix(b"\n"))
    return start, left_out


def _show_line(start: bytes, left_out: int, *, first: bool, clean: bool) -> tuple[str, bool]:
    """Return the line for the model, and whether it was UTF-8."""
    data = start.removeprefix(b"\xef\xbb\xbf") if first else start
    text = data.decode("utf-8", "replace")
    valid = "�" not in text or left_out > 0 or "�".encode() in data
    text = render_output(data).removesuffix("\n") if clean else text.removesuffix("\n").removesuffix("\r")
    cut = len(text) - MAX_LINE_CHARS
    if cut <= 0 and not left_out:
        return text, valid
    left_out_words = f"+{max(cut, 0) + left_out:,}"
    return f"{text[:MAX_LINE_CHARS]}… [{left_out_words} characters]", valid


QUICK_S = 20.0
"""Time limit of a listing or search: beyond it the pattern is hostile or the repository too big."""

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
_MOST_ALTERNATIVES = 64
_GLOB_CHARS = re.compile(r"([*?\[\\])")


def run_git(workspace: Workspace, *args: str) -> CommandResult:
    """Run git at the root, in the session's sandbox.

    Raises:
        RefusedError: It took longer than `QUICK_S`.
    """
    limits = replace(workspace.limits, timeout_s=QUICK_S, keep_bytes=KEEP_BYTES)
    result = workspace.sandbox.run([*_GIT, *args], limits=limits, cwd=workspace.root, should_stop=workspace.should_stop)
    if result.timed_out:
        raise RefusedError(f"No answer within {QUICK_S:.0f} s. Narrow the path or make the pattern simpler.")
    return result


def is_ignored(workspace: Workspace, path: str) -> bool:
    """Return whether git ignores an untracked path."""
    return path != "" and run_git(workspace, "check-ignore", "-q", "--", f"./{path}").exit_code == 0


def render_pathspecs(path: str, glob: str | None) -> tuple[str, ...]:
    """Return git's pathspecs for a path and a glob below it; braces, which git does not know, are spelled out.

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
    """Return a file's time of modification; 0 for a missing file."""
    try:
        return os.lstat(f"{root}/{path}").st_mtime_ns  # a Path for each of 100,000 files costs seconds
    except OSError:
        return 0


MAX_ENTRIES = 100
"""As in Claude Code and OpenCode."""


def run_list(workspace: Workspace, given: Mapping[str, Any]) -> ToolAnswer:
    """List one level of a directory, or with `glob` all levels."""
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
    parts = (name.removeprefix(below).partition("/") for name in names)  # with a slash after a directory's name
    entries = {first + slash for first, slash, _ in parts} if one_level else set(names)
    return _answer(workspace, below if one_level else "", entries, f"{path or 'The repository'}{remark}")


def _ask_git(workspace: Workspace, path: str, glob: str | None, *, ignored: bool) -> list[str]:
    which = ("-o",) if ignored else ("-co", "--exclude-standard")
    result = run_git(workspace, "ls-files", "-z", *which, "--", *render_pathspecs(path, glob))
    if result.exit_code != 0:
        raise RefusedError(f"The files cannot be listed: {result.output[:500].decode('utf-8', 'replace').strip()}")
    return [os.fsdecode(name) for name in result.output.split(b"\0") if name]


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


MAX_HITS = 100
"""As in OpenCode."""

SHOWN_CHARS = 240
"""Characters of a long line that are shown, around the match."""

_GREP = ("grep", "-I", "-z", "--no-color", "--no-textconv", "--full-name")
_NO_PCRE = b"Perl-compatible"
_COUNT = re.compile(rb"([^\0]+)\0(\d+)\n")
_HIT = re.compile(rb"([^\0]+)\0(\d+)\0(\d+)\0([^\n]*)(?:\n|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """A search that runs twice: for the number of matches in each file, then for the lines of the newest files."""

    workspace: Workspace
    pattern: str
    which: tuple[str, ...]
    """Options that choose the files: tracked and untracked ones, or all."""

    def run(self, form: Sequence[str], pathspecs: Sequence[str]) -> CommandResult:
        """Raises `RefusedError` if the pattern is invalid, or git cannot search."""
        tail = ("-e", self.pattern, "--", *pathspecs)
        result = run_git(self.workspace, *_GREP, *form, *self.which, "-P", *tail)
        if result.exit_code not in {0, 1} and _NO_PCRE in result.output[:500]:
            result = run_git(self.workspace, *_GREP, *form, *self.which, "-E", *tail)
        if result.exit_code not in {0, 1}:
            raise RefusedError(f"The search failed: {render_output(result.output[:500]).strip()}")
        return result


def run_search(workspace: Workspace, given: Mapping[str, Any]) -> ToolAnswer:
    """Search tracked and untracked files, and ignored ones if `path` is ignored."""
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
    """Return the number of matching lines in each file that may be shown."""
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
    taken: Counter[bytes] = Counter()
    for match in _HIT.finditer(output):
        raw, line, column, text = match.groups()
        taken[raw] += 1
        if taken[raw] <= MAX_HITS:
            by_path[_find_path(root, raw)].append(f"{int(line)}: {_show_text(text, int(column) - 1)}")
    lines, shown = [], 0
    for path in chosen:
        part = by_path[path][: MAX_HITS - shown]
        lines += [path, *part] if part else []
        shown += len(part)
    more = sum(counts.values()) - shown
    lines += [f"… {more:,} more lines match; narrow path, glob or pattern"] if more > 0 else []
    return ToolAnswer(text="\n".join(lines))


def _find_path(root: Path, raw: bytes) -> str:
    """Return the path in front of a NUL. Lines before it are git's warnings, unless a file has that name."""
    path = os.fsdecode(raw)
    return path if "\n" not in path or os.path.lexists(f"{root}/{path}") else path.rpartition("\n")[2]


def _show_text(text: bytes, column: int) -> str:
    start = 0 if len(text) <= SHOWN_CHARS else max(min(column - SHOWN_CHARS // 4, len(text) - SHOWN_CHARS), 0)
    part = text[start : start + SHOWN_CHARS]
    shown = re.sub("^�+|�+$", "", render_output(part)) if len(part) < len(text) else render_output(part)
    return f"{'…' if start else ''}{shown.rstrip()}{'…' if start + SHOWN_CHARS < len(text) else ''}"

"""The two streams of a command: `say` for results (standard output), `complain` for failures (standard error).

Both take untrusted text: model output, command output, file names and plan files may hold anything. Complete escape
sequences are dropped, and every other character that a terminal would act on becomes a visible escape. There is no
markup, so no text can be mistaken for it.
"""

import contextlib
import io
import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from msgspec import Struct

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor movement, erasing
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}+(?:\x07|\x1b\\|\x9c)"  # OSC, DCS
    r"|\x1b[ -/]++[0-~]"  # character sets
    r"|\x1b[0-OQ-WYZ\\`-~]"  # two-character escapes
)
_LINE_END = re.compile(r"\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_BLANK = re.compile(r"\s+")
_JOINERS = frozenset("\u200c\u200d")
"""Format characters that scripts and emoji need; they do not move the cursor."""
_SURROGATE_BYTES = range(0xDC80, 0xDD00)
"""How `os.fsdecode` writes a byte that is not UTF-8."""
TAB = "    "


def clean(text: str) -> str:
    """Make text of several lines safe to show; its lines end in a line feed and tabs are four spaces."""
    if text.isprintable():
        return text
    text = _LINE_END.sub("\n", _SEQUENCE.sub("", text))
    return text.translate(_SHOWN)


def clean_line(text: str) -> str:
    """Make text safe to show on one line: line ends and runs of blanks become one space."""
    return _BLANK.sub(" ", clean(text)).strip()


def escape_json(line: str) -> str:
    """Write one line of JSON with ASCII alone: valid on every output encoding, inert on every terminal."""
    if line.isascii() and "\x7f" not in line:
        return line
    import json

    return json.dumps(json.loads(line), separators=(",", ":")).replace("\x7f", "\\u007f")


class _Shown(dict[int, str]):
    """The shown form of each character, computed on first use; a table for `str.translate`."""

    def __missing__(self, code: int) -> str:
        self[code] = shown = _show(chr(code))
        return shown


def _show(char: str) -> str:
    if char == "\n" or char.isprintable() or char in _JOINERS:
        return char
    if char == "\t":
        return TAB
    return _escape(char) if unicodedata.category(char) in {"Cc", "Cf", "Cs"} else char


_SHOWN = _Shown()


def _escape(char: str) -> str:
    code = ord(char)
    if code in _SURROGATE_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:  # noqa: PLR2004  # the widest two-digit escape
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004  # the widest four-digit escape


_MARK = re.compile(r"\s*(?:[-*] |\d+\. |#+ |(?:[A-Za-z-]+(?: [a-z]+){0,2} {2,}){1,2})?(?:\[.\] )?")
"""The beginning of a line, below whose text the line goes on: a list's mark, or one or two labels."""
JSON_VERSION = 1
"""Increased when a field of a document is removed or changes its meaning, not when one is added."""
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def prepare_streams() -> None:
    """Make standard output and error accept every character; the program calls this once, tests do not.

    A closed stream is opened on the null device: otherwise the next file that relay opens would get the output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # it stays open
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            if isinstance(stream.buffer, io.RawIOBase):  # PYTHONUNBUFFERED: Python drops the rest of a short write
                fd, encoding, errors = stream.fileno(), stream.encoding, stream.errors
                setattr(sys, name, open(fd, "w", 1, encoding, errors, closefd=False))  # noqa: SIM115


def say(text: str = "", *, style: str = "", exact: bool = False) -> None:
    """Print lines to standard output, made safe, and styled on a terminal with colours.

    Args:
        text: The lines; a terminal gets long lines broken between words.
        style: The style of all lines.
        exact: Whether to break no line, because the user will copy the text.
    """
    safe = clean(text)
    if not exact and (width := find_width()):
        safe = "\n".join(_break(line, width) for line in safe.split("\n"))
    if style and safe and has_style(sys.stdout, os.environ):
        codes = ";".join(_STYLES[word] for word in style.split())
        safe = f"\x1b[{codes}m{safe}\x1b[0m"
    sys.stdout.write(f"{safe}\n")


def complain(text: str) -> None:
    """Print lines to standard error, made safe; a terminal gets long lines broken. Errors of the stream are ignored."""
    safe = clean(text)
    with contextlib.suppress(OSError):
        if width := find_width(sys.stderr):
            safe = "\n".join(_break(line, width, "  ") for line in safe.split("\n"))
        sys.stderr.write(f"{safe}\n")


def has_person() -> bool:
    """Return whether a person at the terminal can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def find_width(stream: TextIO | None = None) -> int | None:
    """Return the line width of a stream (default: standard output) in characters; None if it is no terminal."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    import shutil

    own = os.get_terminal_size(stream.fileno()).columns or 80  # shutil asks standard output, maybe no terminal
    return max(20, shutil.get_terminal_size((own, 24)).columns)


def _break(line: str, width: int, hang: str = "") -> str:
    """Break a line between words; further lines begin with `hang`, or stand below the line's text, not its mark."""
    if len(line) <= width:
        return line
    import textwrap

    mark = _MARK.match(line)
    hang = hang or " " * min(len(mark[0]) if mark else 0, width // 2)
    return textwrap.fill(
        line, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


def say_document(body: "Mapping[str, object] | Struct") -> None:
    """Print a command's result as one JSON document, with the version of its description in docs/reference/json.md."""
    say_json(render_document(body))


def render_document(body: "Mapping[str, object] | Struct") -> str:
    """Return a document on one line of ASCII."""
    import json
    from types import SimpleNamespace

    from msgspec import to_builtins

    def dump(value: object) -> object:
        return vars(value) if isinstance(value, SimpleNamespace) else str(value)  # a row of figures, or a path

    return json.dumps({"version": JSON_VERSION, **to_builtins(body, enc_hook=dump)}, ensure_ascii=True)


def say_json(line: str) -> None:
    """Print one JSON document on one line of ASCII."""
    sys.stdout.write(f"{escape_json(line)}\n")


def say_now(text: str = "") -> None:
    """Print lines and flush them, for a command that goes on working."""
    say(text)
    sys.stdout.flush()


def has_style(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether a stream shows colours: a terminal that is not dumb, without `NO_COLOR`."""
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") in {"dumb", "unknown"}:
        return False
    return stream.isatty()


def is_utf8(stream: TextIO) -> bool:
    """Return whether a stream can show every character."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").replace("_", "") == "utf8"

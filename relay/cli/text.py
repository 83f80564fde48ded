"""Hostile text made safe to show.

Model output, command output, file names and plan files may hold anything. Whatever goes to a terminal passes
through here first: complete escape sequences are dropped, every other character that a terminal acts on instead
of showing is written as a visible escape. Nothing here knows markup, so nothing can be taken for it.
"""

import codecs
import re
import unicodedata

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor movement, erasing
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}+(?:\x07|\x1b\\|\x9c)"  # OSC, DCS
    r"|\x1b[ -/]++[0-~]"  # character sets
    r"|\x1b[0-OQ-WYZ\\`-~]"  # two-character escapes
)
_LINE_END = re.compile(r"\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_BLANK = re.compile(r"\s+")
_JOINERS = frozenset("\u200c\u200d")
"""Format characters that scripts and emoji need; they move nothing."""
_SURROGATE_BYTES = range(0xDC80, 0xDD00)
"""How `os.fsdecode` writes a byte that is not UTF-8."""
_PLAINER = {
    "—": "-", "–": "-", "─": "-", "·": ".", "…": "...", "→": "->", "×": "x", "“": '"', "”": '"', "’": "'", "▸": ">",
    "│": "|", "┃": "|", "┆": "|", "█": "#", "▌": "#", "░": ".", "≤": "<=", "≥": ">=", "•": "*",
}  # fmt: skip
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


def clip(text: str, limit_chars: int) -> str:
    """Cut a line to a number of characters and say how many are missing."""
    if len(text) <= limit_chars:
        return text
    return f"{text[:limit_chars]}… (+{len(text) - limit_chars:,} characters)"


def escape_json(line: str) -> str:
    """Write one line of JSON with ASCII alone: valid on every output encoding, inert on every terminal."""
    if line.isascii() and "\x7f" not in line:
        return line
    return "".join(char if " " <= char < "\x7f" else _escape_unit(char) for char in line)


def plainer_errors(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: what an output encoding lacks becomes plainer punctuation or a visible escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(_PLAINER.get(char) or _escape(char) for char in bad), error.end


def ensure_codec() -> str:
    """Register `plainer_errors` with the codecs and return the name it goes by."""
    codecs.register_error("relay.plainer", plainer_errors)
    return "relay.plainer"


class _Shown(dict[int, str]):
    """What each character is shown as; found once for each, then a table for `str.translate`."""

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


def _escape_unit(char: str) -> str:
    """Write a character as the one or two UTF-16 units that JSON knows; a lone surrogate stays one unit."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

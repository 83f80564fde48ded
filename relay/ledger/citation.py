"""Cite a file, and check whether it still says the same.

Python's own parser reads the names of a Python file. Other languages have no equal: tree-sitter-language-pack 1.24
downloads its grammars on first use and runs them, native code, on a stranger's text inside of relay; universal-ctags is
a further program, absent on most machines. For these, lines are cited, and unchanged lines that moved are found again,
which is most of the use of a name.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from relay.base.values import dataclass
from relay.ledger.model import SYMBOL, Source

if TYPE_CHECKING:
    import ast


MAX_PARSED_BYTES = 512 * 1024
"""Size of a file. The worst found take 3 s and half a gigabyte with Python 3.11: a quarter of a million short names."""
SUFFIXES = (".py", ".pyi")
_KEPT = 8
_FAULT = "the Python that relay runs on cannot parse it"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTable:
    """The names of a file."""

    spans: Mapping[str, tuple[int, int]]
    """Name such as ``Client.send`` to the first and the last line of all its definitions with their decorators."""
    fault: str = ""
    """Why the names are unknown; empty if they were read."""


def read_names(path: str, data: bytes) -> NameTable:
    """Return the names that classes, functions and assignments define; a hostile text is a fault.

    Args:
        path: Its suffix tells the language.
    """
    if not path.endswith(SUFFIXES):
        return NameTable(spans={}, fault=f"names are found in Python files ({', '.join(SUFFIXES)}) only")
    if len(data) > MAX_PARSED_BYTES:
        return NameTable(spans={}, fault=f"names are found in files of up to {MAX_PARSED_BYTES // 1024} KiB")
    return _parse(data)


@lru_cache(maxsize=_KEPT)
def _parse(data: bytes) -> NameTable:
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes
            tree = ast.parse(data)
    except SyntaxError as error:
        return NameTable(spans={}, fault=f"{_FAULT}: {error.msg}" + (f", line {error.lineno}" if error.lineno else ""))
    except (ValueError, ArithmeticError, RecursionError, MemoryError, SystemError):  # all that ast is known to raise
        return NameTable(spans={}, fault=_FAULT)
    spans: dict[str, tuple[int, int]] = {}
    for name, (first, last) in _iter_spans(tree):
        known = spans.get(name, (first, last))
        spans[name] = (min(first, known[0]), max(last, known[1]))
    return NameTable(spans=spans)


def _iter_spans(tree: "ast.Module") -> Iterator[tuple[str, tuple[int, int]]]:
    import ast

    pending: list[tuple[str, ast.AST]] = [("", node) for node in tree.body]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.lineno, *(decorator.lineno for decorator in node.decorator_list))
            yield f"{prefix}{node.name}", (min(lines), node.end_lineno or node.lineno)
            pending += [(f"{prefix}{node.name}.", below) for below in node.body]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield f"{prefix}{target.id}", (node.lineno, node.end_lineno or node.lineno)
        elif not isinstance(node, ast.expr):  # the bodies of if, try, with, for and match
            pending += [(prefix, below) for below in ast.iter_child_nodes(node)]


HASH_CHARS = 12
"""Characters kept of an id: 48 bits tell two contents of one file apart."""
MAX_CITED_BYTES = 16 * 1024 * 1024
"""Larger files are not compared with what was cited of them."""
MAX_COMPARED_LINES = 500_000
"""Lines that are compared to find lines that moved; beyond that they count as changed."""
MAX_NAMES = 500
MAX_NAME_CHARS = 100
"""A longer name, or one beyond the first `MAX_NAMES`, is never suggested."""

PLACE = re.compile(
    rf"(?P<path>.+\.pyi?(?=::)|.+?)(?::(?P<lines>(?P<first>\d{{1,9}})(?:-(?P<last>\d{{1,9}}))?)"
    rf"|::(?P<symbol>{SYMBOL}))?"
)
"""``path``, ``path:12``, ``path:12-40`` or ``path.py::Class.method``; the path may hold colons."""
_WORD = re.compile(rb"[^\W_]|[\x80-\xff]")
Hash = Callable[[bytes], str]
"""Computes git's id of a blob."""


def cite(source: Source, data: bytes, make_id: Hash) -> Source:
    """Return a source with its present content.

    Lines past the file's end and an unknown symbol are left out. Lines without a word take in those around them.

    Args:
        source: Its path, and its lines or symbol.
    """
    whole = Source(path=source.path, blob=make_id(data)[:HASH_CHARS])
    rows = _split(data if not source.symbol else _unify(data))
    if source.symbol:
        span = read_names(source.path, data).spans.get(source.symbol)
    else:
        span = parse_lines(source.lines) if source.lines else None
    if span is None:
        return whole
    first, last = _widen(rows, span[0], min(span[1], len(rows)))
    if first > last:
        return whole
    shown = str(first) if first == last else f"{first}-{last}"
    text = _hash_rows(rows[first - 1 : last], make_id)
    copies = _count(rows, last - first + 1, text, make_id)
    return replace(whole, symbol=source.symbol, lines=shown, text=text, copies=str(copies) if copies > 1 else "")


def _widen(rows: list[bytes], first: int, last: int) -> tuple[int, int]:
    """Take in the lines around a range without a word: a lone bracket says nothing, and stands anywhere."""
    says = any(map(_WORD.search, rows[first - 1 : last]))
    while first <= last and not says:
        if (first, last) == (1, len(rows)):
            return 1, 0
        first, last = max(1, first - 1), min(last + 1, len(rows))
        says = any(map(_WORD.search, (rows[first - 1], rows[last - 1])))
    return first, last


def explain_missing(source: Source, data: bytes) -> str:
    """Return why a source's symbol or lines cannot be cited; empty if they can.

    Args:
        data: The file, or its first `MAX_CITED_BYTES` and more: then its lines are not counted.
    """
    if source.lines and len(data) <= MAX_CITED_BYTES and (count := len(_split(data))) < parse_lines(source.lines)[0]:
        return f"{source}: the file has {count} line{'s' * (count != 1)}"
    table = read_names(source.path, data) if source.symbol else None
    if table is None or source.symbol in table.spans:
        return ""
    near = _find_near(source.symbol, [name for name in table.spans if len(name) <= MAX_NAME_CHARS][:MAX_NAMES])
    why = table.fault or "there is no such name" + (f"; near it: {', '.join(near)}" if near else "")
    return f"{source}: {why}. Else cite lines: {source.path}:10-20"


def _find_near(symbol: str, names: list[str]) -> list[str]:
    import difflib  # costs start-up time and is needed only here

    last = symbol.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last]
    return same[:3] or difflib.get_close_matches(symbol, names, n=3)


def find_change(source: Source, data: bytes | None, make_id: Hash) -> str:
    """Return how a source has changed; empty if it still says the same, or its former content is unknown.

    Lines that moved unchanged still say the same, and so does a symbol; of lines with several copies, as many must be
    left. If a file can no longer be parsed, a symbol's lines are searched.

    Args:
        data: The file as it is; None if there is none.
    """
    if not source.blob:
        return ""
    if data is None:
        return f"{source} is gone"
    plain = data.replace(b"\r\n", b"\n")
    if any(make_id(found).startswith(source.blob) for found in (data, plain)):
        return ""
    rows = _split(plain if not source.symbol else _unify(data))
    table = read_names(source.path, data) if source.symbol else None
    if table is not None and not table.fault:
        span = table.spans.get(source.symbol)
        if span is None:
            return f"{source} is gone"
        same = _hash_rows(rows[span[0] - 1 : span[1]], make_id) == source.text
    else:
        same = bool(source.text and source.lines) and _stands_in(source, rows, make_id)
    return "" if same else f"{source} has changed"


def parse_place(text: str) -> Source:
    """Parse a `PLACE` into a source of unknown content; any other text is a path."""
    match = PLACE.fullmatch(text)
    if match is None:
        return Source(path=text)
    symbol = (match["symbol"] or "").replace("::", ".")
    return Source(path=match["path"], lines=match["lines"] or "", symbol=symbol)


def parse_lines(lines: str) -> tuple[int, int]:
    """Return the first and the last line of ``12`` or ``12-40``."""
    first, _, last = lines.partition("-")
    return int(first), int(last or first)


def _stands_in(source: Source, rows: list[bytes], make_id: Hash) -> bool:
    """Whether a text stands where it stood, or anywhere as often as it did: one of two copies may have been changed."""
    first, last = parse_lines(source.lines)
    if _hash_rows(rows[first - 1 : last], make_id) == source.text:
        return True
    return _count(rows, last - first + 1, source.text, make_id) >= int(source.copies or 1)


def _count(rows: list[bytes], size: int, text: str, make_id: Hash) -> int:
    """Count the places where these lines stand; 0 if there are too many lines to compare."""
    starts = len(rows) - size + 1
    if starts * size > MAX_COMPARED_LINES:
        return 0
    return sum(_hash_rows(rows[at : at + size], make_id) == text for at in range(starts))


def _split(data: bytes) -> list[bytes]:
    rows = data.replace(b"\r\n", b"\n").split(b"\n")
    return rows if rows[-1] else rows[:-1]


def _unify(data: bytes) -> bytes:
    """Return a file with the line ends that Python counts."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _hash_rows(rows: list[bytes], make_id: Hash) -> str:
    return make_id(b"\n".join(rows))[:HASH_CHARS]

"""Where the names of a Python file stand, so that a claim can cite one of them.

Read by Python's own parser, which the languages of others have no like of here: tree-sitter-language-pack 1.24 fetches
its grammars from the network when they are first used and then runs them, native code, on a stranger's text inside of
relay; universal-ctags is a further program, absent on most machines. Lines are cited there, and lines that moved as
they were are found again (`citation`), which is most of what a name is good for.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from relay.base.values import dataclass

if TYPE_CHECKING:
    import ast

MAX_PARSED_BYTES = 512 * 1024
"""Of a file. The worst found take 3 s and half a gigabyte with Python 3.11: a quarter of a million short names."""
SUFFIXES = (".py", ".pyi")
_KEPT = 8
_FAULT = "the Python that relay runs on cannot parse it"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTable:
    """The names of a file."""

    spans: Mapping[str, tuple[int, int]]
    """Name such as ``Client.send`` to the first and the last line of all that defines it, decorators with it."""
    fault: str = ""
    """Why there are none to be known; empty when it was read."""


def read_names(path: str, data: bytes) -> NameTable:
    """Return what classes, functions and assignments of modules, classes and functions define; hostile text is told.

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
            warnings.simplefilter("ignore")  # of odd escapes, on standard error
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
        elif not isinstance(node, ast.expr):  # what if, try, with, for and match hold
            pending += [(prefix, below) for below in ast.iter_child_nodes(node)]

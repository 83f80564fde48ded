"""Every refusal that relay's code can raise, read from the code: what it says and what it advises.

The words of a `RelayError` are found where it is raised: text as it is, and … for what is only known then.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType

from relay.base import errors
from relay.base.errors import ErrorKind, RelayError
from relay.base.hints import AT_ROOT, Command, TypedPath

ROOT = Path(__file__).parents[2]
GAP = "…"
KINDS: dict[str, type[RelayError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, RelayError)
}
TITLES = {
    ErrorKind.PLAN: "The plan",
    ErrorKind.LEDGER: "The ledger",
    ErrorKind.SETTINGS: "Settings and flags",
    ErrorKind.REPOSITORY: "The repository",
    ErrorKind.SANDBOX: "The sandbox",
    ErrorKind.RUNNER: "Model and agent",
    ErrorKind.OTHER: "Everything else",
}
_WORDS = re.compile("[a-z]{3}")
"""What quotes another program or the plan only has no words of its own."""
_MOST = 16
"""Ways in which one refusal can be worded; more are not told apart."""


@dataclass(frozen=True, kw_only=True, order=True)
class Refusal:
    """One way to be refused."""

    kind: ErrorKind
    message: str
    hint: str
    """Empty where there is none."""
    place: str
    """``path:line`` of the code."""


@cache
def find_refusals() -> list[Refusal]:
    """Return each refusal once, in the order of kinds and words."""
    found = {(r.kind, r.message, r.hint): r for path in sorted((ROOT / "relay").rglob("*.py")) for r in _read(path)}
    return sorted(refusal for refusal in found.values() if _WORDS.search(refusal.message))


def write_list() -> str:
    """Return all refusals as Markdown, by what a person has to change."""
    parts = []
    for kind in ErrorKind:
        lines = [_write_line(refusal) for refusal in find_refusals() if refusal.kind is kind]
        parts.append(f"\n### {TITLES[kind]}\n\n" + "\n".join(dict.fromkeys(lines)))
    return "\n".join(parts) + "\n"


def _write_line(refusal: Refusal) -> str:
    told = (refusal.message, *([refusal.hint] if refusal.hint.strip(f"{GAP} ·") else []))
    return "- " + " — ".join(f"`` {text} ``" if "`" in text else f"`{text}`" for text in told)


def _read(path: Path) -> Iterator[Refusal]:
    name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    nodes = tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    for call in (one for one in calls if _find_name(one) in KINDS):
        reader = _Reader(module=import_module(name), functions=functions, calls=calls, line=call.lineno)
        hint = next((word.value for word in call.keywords if word.arg == "hint"), None)
        advice = " · ".join(reader.read(hint)) if hint else ""
        for message in reader.read(call.args[0]):
            place = f"{path.relative_to(ROOT)}:{call.lineno}"
            kind = KINDS[_find_name(call)].kind
            yield Refusal(kind=kind, message=_tidy(message), hint=_tidy(advice), place=place)


def _find_name(call: ast.Call) -> str:
    """Return the name by which a function or class is called; empty if that is no name."""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _tidy(text: str) -> str:
    return re.sub(r"…(?:[ ,;]*…)+", GAP, " ".join(text.split()))


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Reads expressions as the texts that they can come to."""

    module: ModuleType
    functions: Sequence[ast.FunctionDef]
    calls: Sequence[ast.Call]
    """Those of the module."""
    line: int
    """Of the expression; what comes later in the code is not looked at."""

    def read(self, node: ast.expr) -> tuple[str, ...]:
        """Return what an expression can come to; `GAP` for what only a run knows."""
        match node:
            case ast.Constant(value=str(text)):
                return (text,)
            case ast.JoinedStr(values=parts) | ast.Tuple(elts=parts):
                return self._join(parts)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._join([left, right])
            case ast.IfExp(body=body, orelse=orelse):
                return tuple(dict.fromkeys(self.read(body) + self.read(orelse)))
            case ast.FormattedValue(value=value) if isinstance(value, ast.Constant | ast.IfExp | ast.Name):
                return self.read(value)
            case ast.Call(func=ast.Name(id="Command"), keywords=[ast.keyword(value=ast.Tuple(elts=parts)), *_]):
                words = (self.read(part)[0] for part in parts)
                return (" ".join(("relay", *(f'"{word}"' if " " in word else word for word in words))),)
            case ast.Name(id=name):
                return self._read_name(name)
            case _:
                return (GAP,)

    def _read_name(self, name: str) -> tuple[str, ...]:
        """Read the values that the functions around give a name, or that calls give a parameter; else a constant."""
        found = list[ast.expr]()
        for function in self.functions:
            if function.lineno <= self.line <= (function.end_lineno or 0):
                found += [value for value in _find_values(function, name) if value.lineno < self.line]
                given = [argument.arg for argument in function.args.args]
                calls = [call for call in self.calls if name in given and _find_name(call) == function.name]
                found += [call.args[given.index(name)] for call in calls if len(call.args) > given.index(name)]
        if found:
            texts = (text for value in found for text in replace(self, line=value.lineno).read(value))
            return tuple(dict.fromkeys(texts))[:_MOST]
        known = getattr(self.module, name, None)
        if isinstance(known, int):
            return (f"{known:,}",)
        return (AT_ROOT.write(known),) if isinstance(known, str | Command | TypedPath | tuple) else (GAP,)

    def _join(self, parts: Sequence[ast.expr]) -> tuple[str, ...]:
        return tuple(dict.fromkeys("".join(texts) for texts in product(*(self.read(p)[:_MOST] for p in parts))))[:_MOST]


def _find_values(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """Yield what a function gives a name."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                yield from (v for n, v in zip(names, values, strict=True) if isinstance(n, ast.Name) and n.id == name)

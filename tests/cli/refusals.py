"""Every refusal that relay's code can raise, read from the code: what it says and what it advises.

The words of a `RelayError` are found where it is raised: text as it is, and … for what is only known then.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
_WORDS = re.compile("[a-z]{3}")
"""What quotes another program or the plan only has no words of its own."""
_MOST = 8
"""Ways in which one refusal can be worded; more are not told apart."""


@dataclass(frozen=True, kw_only=True, order=True)
class Refusal:
    """One way to be refused."""

    kind: ErrorKind
    message: str
    hint: str
    """Empty where there is none."""
    room: str
    place: str
    """``path:line`` of the code."""


@cache
def find_refusals() -> list[Refusal]:
    """Return each refusal once, in the order of kinds and words."""
    found = {(r.kind, r.message, r.hint): r for path in sorted((ROOT / "relay").rglob("*.py")) for r in _read(path)}
    return sorted(refusal for refusal in found.values() if _WORDS.search(refusal.message))


def write_list() -> str:
    """Return all refusals as Markdown, by what a person has to change."""
    parts, refusals = [], find_refusals()
    for kind in ErrorKind:
        lines = [_write_line(refusal) for refusal in refusals if refusal.kind is kind]
        parts.append(f"\n### {TITLES[kind]}\n\n" + "\n".join(dict.fromkeys(lines)))
    return "\n".join(parts) + "\n"


TITLES = {
    ErrorKind.PLAN: "The plan",
    ErrorKind.LEDGER: "The ledger",
    ErrorKind.SETTINGS: "Settings and flags",
    ErrorKind.REPOSITORY: "The repository",
    ErrorKind.SANDBOX: "The sandbox",
    ErrorKind.RUNNER: "Model and agent",
    ErrorKind.OTHER: "Everything else",
}


def _write_line(refusal: Refusal) -> str:
    advice = f" — {_quote(refusal.hint)}" if refusal.hint.strip(f"{GAP} ·") else ""
    return f"- {_quote(refusal.message)}{advice}"


def _quote(text: str) -> str:
    """Write a text as a code span, whatever stands in it."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _read(path: Path) -> Iterator[Refusal]:
    name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    text = path.read_text(encoding="utf-8")
    if not any(f"{kind}(" in text for kind in KINDS):
        return
    nodes = tuple(ast.walk(ast.parse(text)))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    module = import_module(name)
    for call in _find_calls(nodes, set(KINDS)):
        around = _list_around(call, functions)
        reader = _Reader(module=module, around=around, line=call.end_lineno or 0)
        makers = _find_calls(nodes, {around[0].name}) if around and _names_parameter(call, around[0]) else []
        given = [
            _bind(around[0], at, _Reader(module=module, around=_list_around(at, functions), line=at.lineno))
            for at in makers
        ]
        hint = next((word.value for word in call.keywords if word.arg == "hint"), None)
        for bound in given or [{}]:
            inner = replace(reader, bound=bound)
            hints = inner.read(hint) if hint is not None else ("",)
            for message, advice in _pair(inner.read(call.args[0]), hints):
                place = f"{path.relative_to(ROOT)}:{makers[given.index(bound)].lineno if bound else call.lineno}"
                kind = KINDS[call.func.id].kind  # type: ignore[attr-defined]
                yield Refusal(
                    kind=kind, message=_tidy(message), hint=_tidy(advice), room=name.split(".")[1], place=place
                )


def _find_calls(nodes: Iterable[ast.AST], names: set[str]) -> list[ast.Call]:
    """Return the calls, with arguments, of functions or classes that are called by a name."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in names]


def _list_around(node: ast.expr, functions: list[ast.FunctionDef]) -> tuple[ast.FunctionDef, ...]:
    return tuple(f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0))[::-1]


def _names_parameter(call: ast.Call, function: ast.FunctionDef) -> bool:
    """Whether a function makes the error of words that it was given."""
    given = {argument.arg for argument in function.args.args}
    return any(isinstance(node, ast.Name) and node.id in given for node in ast.walk(call.args[0]))


def _bind(function: ast.FunctionDef, call: ast.Call, reader: "_Reader") -> "dict[str, tuple[_Reader, ast.expr]]":
    names = [argument.arg for argument in function.args.args]
    return {name: (reader, value) for name, value in zip(names, call.args, strict=False)}


def _pair(messages: tuple[str, ...], hints: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield messages with their hints: one with one where both have as many, as they are set together."""
    if len(messages) == len(hints):
        yield from zip(messages, hints, strict=True)
    else:
        yield from ((message, " · ".join(dict.fromkeys(hints))) for message in messages)


def _tidy(text: str) -> str:
    return re.sub(r"…(?:[ ,;]*…)+", GAP, " ".join(text.split()))


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Reads expressions as the texts that they can come to."""

    module: ModuleType
    around: tuple[ast.FunctionDef, ...]
    """The functions that the expression stands in, the inner first."""
    line: int
    """What comes later in the code is not looked at."""
    bound: "Mapping[str, tuple[_Reader, ast.expr]]" = field(default_factory=dict)
    """What a call gave the inner function, with what reads it."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Names that are being read, with the line of the value: it is made of an earlier one."""

    def read(self, node: ast.expr, depth: int = 0) -> tuple[str, ...]:
        """Return what an expression can come to; `GAP` for what only a run knows."""
        match node:
            case _ if depth > _MOST:
                return (GAP,)
            case ast.Constant(value=str(text)):
                return (text,)
            case ast.JoinedStr(values=parts) | ast.Tuple(elts=parts):
                return self._join([self.read(part, depth + 1) for part in parts])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._join([self.read(part, depth + 1) for part in (left, right)])
            case ast.IfExp(body=body, orelse=orelse):
                return tuple(dict.fromkeys(self.read(body, depth + 1) + self.read(orelse, depth + 1)))
            case ast.FormattedValue(value=value) if isinstance(value, ast.Constant | ast.IfExp | ast.Name):
                return self.read(value, depth + 1)
            case ast.Call(func=ast.Name(id="Command")) as call:
                return self._write_command(call)
            case _:
                return self._name(node, depth + 1)

    def _name(self, node: ast.expr, depth: int) -> tuple[str, ...]:
        if not isinstance(node, ast.Name):
            return (GAP,)
        if node.id in self.bound:
            reader, value = self.bound[node.id]
            return reader.read(value, depth)
        for function in self.around:
            values = _drop_remade(node.id, list(_find_values(function, node.id)), self.before.get(node.id, self.line))
            if values:
                inner = [replace(self, before={**self.before, node.id: value.lineno}) for value in values]
                texts = (text for at, value in zip(inner, values, strict=True) for text in at.read(value, depth))
                return tuple(dict.fromkeys(texts))[:_MOST]
            if node.id in self.before:
                return (GAP,)
        known = getattr(self.module, node.id, None)
        if isinstance(known, int):
            return (f"{known:,}",)
        return (AT_ROOT.write(known),) if isinstance(known, str | Command | TypedPath | tuple) else (GAP,)

    def _write_command(self, call: ast.Call) -> tuple[str, ...]:
        words = next((word.value for word in call.keywords if word.arg == "words"), None)
        if not isinstance(words, ast.Tuple):
            return (GAP,)
        shown = [self.read(part)[0] for part in words.elts]
        return (" ".join(("relay", *(f'"{word}"' if " " in word else word for word in shown))),)

    @staticmethod
    def _join(parts: list[tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys("".join(texts) for texts in product(*(part[:_MOST] for part in parts))))[:_MOST]


def _drop_remade(name: str, values: list[ast.expr], before: int) -> list[ast.expr]:
    """Leave out values that come later, and those that a later one is always made of: it stands in the same block."""
    earlier = [value for value in values if value.lineno < before]
    made = [v for v in earlier if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(v))]
    return [v for v in earlier if not any(m.lineno > v.lineno and m.col_offset == v.col_offset for m in made)]


def _find_values(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """Yield what a function gives a name."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                yield from (v for n, v in zip(names, values, strict=True) if isinstance(n, ast.Name) and n.id == name)

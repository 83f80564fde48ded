"""From a tree to text: part 5 of the specification."""

from typing import Any

from filters.parser import Tree

_RANKS = {"or": 0, "and": 1, "not": 2, "compare": 3, "in": 3, "field": 4, "literal": 4}
_OPERAND = 4


def show(tree: Tree) -> str:
    match tree:
        case ("or" | "and" as word, left, right):
            rank = _RANKS[word]
            return f"{_wrap(left, rank)} {word} {_wrap(right, rank + 1)}"
        case ("not", ("in", operand, values)):
            return f"{_wrap(operand, _OPERAND)} not in {_show_list(values)}"
        case ("not", inner):
            return f"not {_wrap(inner, 2)}"
        case ("compare", sign, left, right):
            return f"{_wrap(left, _OPERAND)} {sign} {_wrap(right, _OPERAND)}"
        case ("in", operand, values):
            return f"{_wrap(operand, _OPERAND)} in {_show_list(values)}"
        case ("field", name):
            return str(name)
        case _:
            return _show_literal(tree[1])


def _find_rank(tree: Tree) -> int:
    is_not_in = tree[0] == "not" and tree[1][0] == "in"
    return 3 if is_not_in else _RANKS[tree[0]]


def _wrap(tree: Tree, least: int) -> str:
    text = show(tree)
    return f"({text})" if _find_rank(tree) < least else text


def _show_list(values: tuple[Any, ...]) -> str:
    return f"[{', '.join(map(_show_literal, values))}]"


def _show_literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'"{text}"'
    if isinstance(value, float):
        text = f"{value:.340f}".rstrip("0")
        short = repr(value)
        text = text if "e" in short else short
        return f"{text}0" if text.endswith(".") else text
    return str(value)

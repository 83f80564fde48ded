"""Whether a filter is true of a record: part 3 of the specification."""

import operator
from collections.abc import Mapping
from typing import Any

from filters.parser import Tree, parse

UNKNOWN = object()
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def matches(text: str, record: Mapping[str, Any]) -> bool:
    return evaluate(parse(text), record) is True


def evaluate(tree: Tree, record: Mapping[str, Any]) -> bool | None:
    """Return True, False, or None for unknown."""
    match tree:
        case ("not", inner):
            value = evaluate(inner, record)
            return None if value is None else not value
        case ("and", left, right):
            return _join(left, right, record, decides=False)
        case ("or", left, right):
            return _join(left, right, record, decides=True)
        case ("compare", sign, left, right):
            return _compare(sign, _find(left, record), _find(right, record))
        case ("in", operand, values):
            value = _find(operand, record)
            return None if value is UNKNOWN else any(_is_equal(value, one) for one in values)
        case _:
            value = _find(tree, record)
            return value if isinstance(value, bool) else None


def _join(left: Tree, right: Tree, record: Mapping[str, Any], *, decides: bool) -> bool | None:
    both = [evaluate(left, record), evaluate(right, record)]
    if decides in both:
        return decides
    return None if None in both else not decides


def _find(tree: Tree, record: Mapping[str, Any]) -> Any:
    match tree:
        case ("literal", value):
            return value
        case ("field", name):
            found: Any = record
            for part in name.split("."):
                if not isinstance(found, Mapping) or part not in found:
                    return UNKNOWN
                found = found[part]
            return found
        case _:
            value = evaluate(tree, record)
            return UNKNOWN if value is None else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_equal(one: Any, other: Any) -> bool:
    if _is_number(one) and _is_number(other):
        return bool(one == other)
    return type(one) is type(other) and bool(one == other)


def _compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is UNKNOWN or right is UNKNOWN:
        return None
    if sign in {"=", "!="}:
        return _is_equal(left, right) == (sign == "=")
    is_ordered = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
    return bool(_ORDERS[sign](left, right)) if is_ordered else None

"""How a setting's value looks: what reads it, and the same as JSON Schema."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from relay.values import dataclass

Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a value looks: to relay, which reads it, and to an editor."""

    read: Read
    """Checked value from a decoded one; raises ValueError with what is allowed."""
    schema: Mapping[str, Any]
    """The same as JSON Schema."""

    def __call__(self, value: Any) -> Any:
        """Read a value."""
        return self.read(value)


def _or_none(schema: dict[str, Any], *, optional: bool) -> dict[str, Any]:
    return {"anyOf": [schema, {"const": "none"}]} if optional else schema


def make_number(low: float, high: float, *, whole: bool = False, optional: bool = False) -> Form:
    """Read a number in a range; ``none`` means None where that is allowed."""
    kind: Any = int if whole else (int, float)
    allowed = f"{'a whole' if whole else 'a'} number from {low:g} to {high:,.0f}{' or none' if optional else ''}"

    def read(value: Any) -> float | None:
        if optional and (value is None or value == "none"):
            return None
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise ValueError(allowed)
        return int(value) if whole else float(value)

    schema = {"type": "integer" if whole else "number", "minimum": low, "maximum": high}
    return Form(read=read, schema=_or_none(schema, optional=optional))


def make_choice(*words: str, optional: bool = False) -> Form:
    """Read one of a few words."""

    def read(value: Any) -> str | None:
        if optional and value in (None, "none"):
            return None
        if value not in words:
            raise ValueError(", ".join(words) + (" or none" if optional else ""))
        return str(value)

    return Form(read=read, schema={"enum": [*words, *(["none"] if optional else [])]})


def make_text(allowed: str, pattern: str, *, optional: bool = False) -> Form:
    """Read a text of a form."""

    def read(value: Any) -> str | None:
        if optional and value in (None, "none"):
            return None
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(allowed)
        return value

    schema = {"type": "string", "pattern": f"^(?:{pattern})$"}
    return Form(read=read, schema=_or_none(schema, optional=optional))


def make_list(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a list, or one of its entries alone."""
    return {"anyOf": [{"type": "array", "items": schema}, schema]}


def make_texts(allowed: str, pattern: str) -> Form:
    """Read a list of texts of a form; a bare text is a list of one."""
    one = make_text(allowed, pattern)

    def read(value: Any) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ValueError(allowed)  # noqa: TRY004  # every reader refuses with ValueError
        return tuple(one(item) for item in items)

    return Form(read=read, schema=make_list(one.schema))


def make_words(*words: str) -> Form:
    """Read a list of some of a few words, each at most once."""

    def read(value: Any) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(item in words for item in items):
            raise ValueError(f"some of {', '.join(words)}")
        return tuple(word for word in words if word in items)

    return Form(read=read, schema=make_list({"enum": list(words)}))


def make_table(forms: Mapping[str, Form], **more: Any) -> dict[str, Any]:
    """Describe a table of a few keys."""
    properties = {name: dict(form.schema) for name, form in forms.items()} | more
    return {"type": "object", "properties": properties, "additionalProperties": False}


def make_rows(row: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a table of tables."""
    return {"type": "object", "additionalProperties": row}

"""How a setting's value looks: what reads it, and the same as JSON Schema."""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from relay.base.values import dataclass

ReadValue = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a value looks: to relay, which reads it, and to an editor."""

    read: ReadValue
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


def make_object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Describe a table of some keys and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def make_texts(allowed: str, pattern: str, *, bare: bool = True) -> Form:
    """Read a list of texts of a form; where `bare` ones are allowed, such a text is a list of one."""
    one = make_text(allowed, pattern)

    def read(value: Any) -> tuple[str, ...]:
        items = [value] if bare and isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ValueError(allowed)  # noqa: TRY004  # every reader refuses with ValueError
        return tuple(one(item) for item in items)

    return Form(read=read, schema=make_list(one.schema) if bare else {"type": "array", "items": one.schema})


def make_words(*words: str, least: int = 0) -> Form:
    """Read a list of some of a few words, each at most once; at `least` so many."""

    def read(value: Any) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(item in words for item in items) or len(items) < least:
            raise ValueError(f"some of {', '.join(words)}")
        return tuple(word for word in words if word in items)

    return Form(read=read, schema=make_list({"enum": list(words)}))


def make_pairs(allowed: str, names: str, *, is_fit: Callable[[str], bool]) -> Form:
    """Read a table of texts, whose names have a form, as pairs."""

    def read(value: Any) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, Mapping):
            raise ValueError(allowed)  # noqa: TRY004  # as above
        pairs = tuple((str(name), text) for name, text in value.items())
        if not all(re.fullmatch(names, name) and isinstance(text, str) and is_fit(text) for name, text in pairs):
            raise ValueError(allowed)
        return pairs

    named = {"propertyNames": {"pattern": f"^(?:{names})$"}}
    return Form(read=read, schema={"type": "object", **named, "additionalProperties": {"type": "string"}})


def make_record(forms: Mapping[str, Form], build: Callable[..., Any], where: str) -> Form:
    """Read a table of a few keys, naming the one that does not fit.

    Args:
        forms: Of each key.
        build: Makes a value of what was read, by name; raises ValueError for what does not go together.
        where: Stands before the allowed keys: ``for each agent``.
    """

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping) or not value.keys() <= forms.keys():
            raise ValueError(f"{where} some of {', '.join(forms)}")
        found: dict[str, Any] = {}
        for key, item in value.items():
            try:
                found[key] = forms[key](item)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        return build(**found)

    properties = {name: dict(form.schema) for name, form in forms.items()}
    return Form(read=read, schema={"type": "object", "properties": properties, "additionalProperties": False})


def make_rows(what: str, make_row: Callable[[str], Form], *, names: str = ".*", allowed: str = "") -> Form:
    """Read a table of tables.

    Args:
        what: There is one for each of these.
        make_row: Given a row's name: its form.
        names: What a name looks like.
        allowed: The same in words.
    """

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(row, Mapping) for row in value.values()):
            raise ValueError(f"a table of tables, one for each {what}")
        if not all(re.fullmatch(names, str(name), re.DOTALL) for name in value):
            raise ValueError(allowed)
        return {str(name): make_row(str(name))(row) for name, row in value.items()}

    named = {"propertyNames": {"pattern": f"^(?:{names})$"}} if allowed else {}
    return Form(read=read, schema={"type": "object", **named, "additionalProperties": make_row("").schema})


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004  # every reader refuses with ValueError
    return value


def _read_line(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("one line of text")
    return value


def find_address(url: str) -> SplitResult | None:
    """Return the parts of an address that names a host; None for what is none."""
    try:
        found = urlsplit(url)
        return found if found.hostname and url.isprintable() and " " not in url else None
    except ValueError:
        return None


VARIABLE = r"[A-Za-z_]\w*"
SWITCH = Form(read=_read_bool, schema={"type": "boolean"})
LINE = Form(read=_read_line, schema={"type": "string", "minLength": 1})
TEXTS = make_texts("a list of texts", r"[^\0]*", bare=False)
HEADERS = make_pairs("a table of texts", r"[A-Za-z][A-Za-z0-9-]{0,63}", is_fit=str.isprintable)

"""Read a value of any author by a type, and say what is allowed where it does not fit.

A type is an annotation with its limits (`msgspec.Meta`), which are its JSON Schema too. A description says in words
what is allowed; without one the limits say it.
"""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert
from msgspec.json import schema_components

_PLACE = re.compile(r" - at (`key` in )?`\$(.*)`$")
_STEP = re.compile(r"\.(\w+)|\[[^\]]*\]")


def choice(*words: str) -> Meta:
    """Take one of a few words."""
    return Meta(pattern=f"^(?:{'|'.join(words)})$(?!\n)", extra_json_schema={"enum": [*words]})


def matching(allowed: str, pattern: str) -> Meta:
    """Take a text that matches a pattern as a whole; `allowed` describes it."""
    return Meta(pattern=f"^(?:{pattern})$(?!\n)", description=allowed)


def told(allowed: str) -> Meta:
    """Describe what is allowed."""
    return Meta(description=allowed)


Text = Annotated[str, matching("a text", r"[^\0]*")]
Line = Annotated[str, matching("one line of text", r"[^\0-\x1f\x7f-\x9f\u2028\u2029]+")]
Variable = Annotated[str, matching("a variable's name", r"[A-Za-z_]\w*")]


def decode(value: Any, kind: Any, *, is_text: bool = False) -> Any:
    """Return a value as its type has it.

    Args:
        is_text: Whether numbers and switches are written as text, as in a flag or variable.

    Raises:
        ValueError: It does not fit; the message says where inside of it, and what is allowed there.
    """
    try:
        return convert(value, kind, strict=not is_text, dec_hook=lambda own, given: own.read(given))
    except ValidationError as error:
        raise ValueError(_explain(error, kind)) from None


def describe(*kinds: Any) -> tuple[tuple[dict[str, Any], ...], dict[str, dict[str, Any]]]:
    """Return the JSON Schema of each type, and those of the classes in them by name."""
    return schema_components(kinds, schema_hook=attrgetter("SCHEMA"), ref_template="#/$defs/{name}")


def name_allowed(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Return in words what a schema allows, given those of the classes in it."""
    match schema:
        case {"anyOf": [inner, {"type": "null"}], **rest} if "description" not in rest:
            return f"{name_allowed(inner, parts)}, or none"
    match _open(schema, parts):
        case {"properties": fields}:
            return f"a table with some of {', '.join(fields)}"
        case {"description": words}:
            return str(words)
        case {"enum": words}:
            return ", ".join(words)
        case {"type": "integer" | "number" as kind, "minimum": low, "maximum": high}:
            return f"a{' whole' if kind == 'integer' else ''} number from {low:g} to {high:,.0f}"
        case {"type": "boolean"}:
            return "true or false"
        case inner:
            return f"a {inner['type']}"


def _explain(error: ValidationError, kind: Any) -> str:
    (schema,), parts = describe(kind)
    found = _PLACE.search(str(error))
    names = []
    for step in _STEP.finditer(found[2] if found else ""):
        if _is_told(schema):
            break
        inner = _open(schema, parts)
        names += [step[1]] if step[1] else []
        schema = inner["properties"][step[1]] if step[1] else inner.get("items") or inner["additionalProperties"]
    if found and found[1] and not _is_told(schema):
        schema = _open(schema, parts)["propertyNames"]
    is_own = isinstance(error.__cause__, ValueError) and "description" not in schema  # of a class's own check
    words = str(error.__cause__) if is_own else name_allowed(_open(schema, parts) if names else schema, parts)
    return f"{'.'.join(names)}: {words}" if names else words


def _is_told(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema's words say all of what is inside, too."""
    inner = schema.get("items") or schema.get("additionalProperties") or {}
    return "description" in schema and "$ref" not in inner


def _open(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a value that is there, not only named."""
    while "anyOf" in schema and "description" not in schema:
        schema = schema["anyOf"][0]
    return parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

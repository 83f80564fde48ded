"""Whether a value fits one of relay's JSON Schemas: what a reader of a log, or an editor of settings, checks."""

import re
from collections.abc import Mapping
from typing import Any

_KINDS: Mapping[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip


def fits(schema: Any, value: Any, parts: Mapping[str, Any]) -> bool:
    """Check a value; `parts` are the ``$defs`` of the whole schema."""
    schema = parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if among := schema.get("oneOf") or schema.get("anyOf"):
        fitting = [one for one in among if fits(one, value, parts)]
        return len(fitting) == 1 if "oneOf" in schema else bool(fitting)
    if words := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return value in words
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if isinstance(value, bool) != (names == ["boolean"]) or not any(isinstance(value, _KINDS[name]) for name in names):
        return False
    match value:
        case str():
            return bool(re.search(schema.get("pattern", "").replace("$", r"\Z"), value))
        case list():
            return all(fits(schema["items"], item, parts) for item in value)
        case dict():
            return _fits_table(schema, value, parts)
        case None | bool():
            return True
        case _:
            return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _fits_table(schema: Any, value: Mapping[str, Any], parts: Mapping[str, Any]) -> bool:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    return set(schema.get("required", ())) <= value.keys() and all(
        fits(known[name], item, parts) if name in known else rest is True or (rest and fits(rest, item, parts))
        for name, item in value.items()
    )

"""Check a call's input against its tool's schema before anything runs.

Only the part of JSON Schema that relay's own specs use: an object with string, integer, boolean and list-of-string
properties, ``minimum``, ``required`` and no others. A library for the whole standard would cost start-up time for
nothing.
"""

from collections.abc import Mapping
from typing import Any

from relay.session.values import ToolSpec


def check_input(spec: ToolSpec, given: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the input and what is allowed; None when nothing is."""
    properties: Mapping[str, Any] = spec.input_schema["properties"]
    required = spec.input_schema["required"]
    faults = [f'"{name}" is missing' for name in required if name not in given]
    faults += [f'"{name}" is not known' for name in given if name not in properties]
    faults += [
        f'"{name}" {fault}'
        for name, value in given.items()
        if name in properties and (fault := _check_value(properties[name], value))
    ]
    if not faults:
        return None
    allowed = ", ".join(f"{name}{'' if name in required else '?'}: {_words(properties[name])}" for name in properties)
    return f"{spec.name}: {'; '.join(faults)}. Nothing was done. Allowed: {allowed}."


def _check_value(schema: Mapping[str, Any], value: Any) -> str | None:
    match schema["type"]:
        case "string" if isinstance(value, str):
            return None if _is_text(value) else "holds half of a surrogate pair"
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            least = schema.get("minimum")
            return f"must be at least {least}" if least is not None and value < least else None
        case "boolean" if isinstance(value, bool):
            return None
        case "array" if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return None if all(map(_is_text, value)) else "holds half of a surrogate pair"
        case _:
            return f"must be {_words(schema)}"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _words(schema: Mapping[str, Any]) -> str:
    kinds = {"string": "a string", "integer": "an integer", "boolean": "true or false", "array": "a list of strings"}
    return kinds[schema["type"]]

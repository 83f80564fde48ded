"""Check a call's input against its tool's schema before anything runs.

Only the part of JSON Schema that relay's own specs use: objects with string, integer, boolean and list properties,
``minimum``, ``enum``, ``required`` and no others. A library for the whole standard would cost start-up time.
"""

from collections.abc import Mapping
from typing import Any

from relay.session.values import ToolSpec

_ENTRIES = {"string": str, "object": dict}


def check_input(spec: ToolSpec, given: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the input and what is allowed; None when nothing is."""
    faults = _check_object(spec.input_schema, given)
    if not faults:
        return None
    return f"{spec.name}: {'; '.join(faults)}. Nothing was done. Allowed: {_list_allowed(spec.input_schema)}."


def _list_allowed(schema: Mapping[str, Any]) -> str:
    required, properties = schema["required"], schema["properties"]
    return ", ".join(f"{name}{'' if name in required else '?'}: {_words(properties[name])}" for name in properties)


def _check_object(schema: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    properties: Mapping[str, Any] = schema["properties"]
    faults = [f'"{name}" is missing' for name in schema["required"] if name not in given]
    faults += [f'"{name}" is not known' for name in given if name not in properties]
    return faults + [
        f'"{name}" {fault}'
        for name, value in given.items()
        if name in properties and (fault := _check_value(properties[name], value))
    ]


def _check_value(schema: Mapping[str, Any], value: Any) -> str | None:
    match schema["type"]:
        case "string" if isinstance(value, str):
            if value not in schema.get("enum", (value,)):
                return f"must be one of {', '.join(schema['enum'])}"
            return None if _is_text(value) else "holds half of a surrogate pair"
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            least = schema.get("minimum")
            return f"must be at least {least}" if least is not None and value < least else None
        case "boolean" if isinstance(value, bool):
            return None
        case "array" if isinstance(value, list) and all(
            isinstance(e, _ENTRIES[schema["items"]["type"]]) for e in value
        ):
            return next((fault for entry in value if (fault := _check_value(schema["items"], entry))), None)
        case "object" if isinstance(value, dict):
            return "; ".join(_check_object(schema, value)) or None
        case _:
            return f"must be {_words(schema)}"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _words(schema: Mapping[str, Any]) -> str:
    kinds = {"string": "a string", "integer": "an integer", "boolean": "true or false"}
    match schema["type"]:
        case "array" if schema["items"]["type"] == "object":
            return f"a list of {{{_list_allowed(schema['items'])}}}"
        case "array":
            return "a list of strings"
        case "object":
            return f"{{{_list_allowed(schema)}}}"
        case kind:
            return kinds[kind]

"""Write docs/reference/events.md from the events themselves; `make docs` calls it."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from relay.config.schema import render_types
from relay.session.events import Event
from relay.session.records import SCHEMA_VERSION, Scope

HEAD = f"""\
# Events

`make docs` writes this page from the code; CI compares the two. `relay report --schema` prints the JSON Schema of a
line.

`.relay/sessions/<run>.jsonl` holds the events of a run, one JSON object per line; relay writes and flushes each event
at once. `relay run --json` prints the same events on standard output, with two differences: relay removes secrets from
the log only, and on standard output each `PlanShown` has the whole plan.

Each line has `v` (now {SCHEMA_VERSION}), `at` (seconds since the epoch), `event` (its name below), its place in the
run, and the event's own fields.

A reader must skip torn lines (a crash in mid-write), unknown events and unknown fields, as relay does. A line has all
fields of its event; those marked *optional*, of the values in it, may be missing.

## Place in the run

"""


def render() -> str:
    """Return the page."""
    kinds = get_args(Event)
    parts = render_types(kinds)
    place = render_types((Scope,))["Scope"]
    own = [kind.__name__ for kind in kinds]
    return HEAD + render_fields(place, {}).lstrip("\n") + render_sections(own, parts)


def render_sections(first: Iterable[str], parts: Mapping[str, Any]) -> str:
    """Return a section for each class with fields, `first` at the front."""
    names = dict.fromkeys((*first, *parts))
    return "".join(
        f"\n## `{name}`\n\n{parts[name]['description'].replace('``', '`')}\n{render_fields(parts[name], parts)}"
        for name in names
        if "properties" in parts[name]
    )


def render_fields(part: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Return the fields of a class as lines of a list; empty for a class without."""
    lines = []
    for name, schema in part["properties"].items():
        optional = "" if name in part["required"] else ", optional"
        words = f": {schema['description']}" if "description" in schema else ""
        lines.append(f"- `{name}` ({_name_type(schema, parts)}{optional}){words}\n")
    return "".join(["\n", *lines] if lines else [])


def _name_type(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    match parts[name] if "enum" in parts.get(name, {}) else schema:
        case {"anyOf": [inner, _]}:
            return f"{_name_type(inner, parts)} or null"
        case {"additionalProperties": inner}:
            return f"object of {_name_type(inner, parts)}"
        case {"items": inner}:
            return f"list of {_name_type(inner, parts)}"
        case {"$ref": _}:
            return f"`{name}`"
        case {"enum": values}:
            return "one of " + ", ".join(f"`{value}`" for value in values)
        case _:
            return str(schema["type"])


if __name__ == "__main__":
    sys.stdout.write(render())

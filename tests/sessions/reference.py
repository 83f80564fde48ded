"""Write docs/events.md from the events themselves: `python -m tests.sessions.reference > docs/events.md`."""

import sys
from collections.abc import Mapping
from typing import Any

from relay.insight.telemetry.schema import FieldEntry, list_events, list_scope, list_values
from relay.session.records import SCHEMA_VERSION

HEAD = f"""\
# Events

`make docs` writes this page from the code; a test compares the two. `relay report --schema` prints the JSON Schema of a
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
    parts = [HEAD, *(render_field(entry) for entry in list_scope())]
    for name, words, own in (*list_events(), *list_values()):
        parts.append(f"\n## `{name}`\n\n{words.replace('``', '`')}\n\n")
        parts += [render_field(entry) for entry in own]
    return "".join(parts).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


def render_field(entry: FieldEntry) -> str:
    """Return a field as a line of a list."""
    optional = ", optional" if entry.may_miss else ""
    words = f": {entry.words}" if entry.words else ""
    return f"- `{entry.name}` ({_name_type(entry.schema)}{optional}){words}\n"


def _name_type(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"anyOf": [inner, _]}:
            return f"{_name_type(inner)} or null"
        case {"additionalProperties": inner}:
            return f"object of {_name_type(inner)}"
        case {"items": inner}:
            return f"list of {_name_type(inner)}"
        case {"$ref": str(name)}:
            return f"`{name.rpartition('/')[2]}`"
        case {"enum": values}:
            return "one of " + ", ".join(f"`{value}`" for value in values)
        case _:
            return str(schema["type"])


if __name__ == "__main__":
    sys.stdout.write(render())

"""Write docs/events.md from the events themselves: `python -m tests.sessions.reference > docs/events.md`."""

import sys
from collections.abc import Mapping
from typing import Any

from relay.insight.telemetry.schema import FieldEntry, list_events, list_scope, list_values
from relay.session.records import SCHEMA_VERSION

HEAD = f"""\
# Events

Made from the code by `make docs`; a test compares the two. `relay report --schema` prints a JSON Schema of one line.

`.relay/sessions/<run>.jsonl` holds what happened in a run, one JSON object on each line, written and flushed as it
happens. `relay run --json` prints the same events on standard output, one on each line, but for two things: secrets are
left out of the log only, and each `PlanShown` has the whole plan there.

Each line has `v` (now {SCHEMA_VERSION}), `at` (seconds since the epoch), `event` (its name below), where in the
run it happened, and the event's own fields.

Whoever reads it passes over a line that is torn (a crash in mid-write), an event it does not know, and fields it does
not know: relay does. Fields marked *later* may be missing in logs of an older relay. Logs of schema 1 lack
`run_id`, `session_id`, `phase_id` and `turn` where the event has none of its own; they follow from the lines above.

## Where it happened

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
    later = ", later" if entry.is_later else ""
    words = f": {entry.words}" if entry.words else ""
    return f"- `{entry.name}` ({_name_type(entry.schema)}{later}){words}\n"


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

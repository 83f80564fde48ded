"""The event log as JSON Schema, made from the events' classes."""

from collections.abc import Mapping
from typing import Any, get_args

from relay.config.schema import render_types
from relay.session.events import Event
from relay.session.records import SCHEMA_VERSION, Scope


def render_event_schema() -> Mapping[str, Any]:
    """Return the schema of one line of a log. Unnamed fields are allowed: a newer relay may add some."""
    kinds = get_args(Event)
    parts = render_types(kinds)
    place = render_types((Scope,))["Scope"]["properties"]
    for kind in kinds:
        head = {
            "v": {"const": SCHEMA_VERSION},
            "at": {"type": "number", "description": "Seconds since the epoch."},
            "event": {"const": kind.__name__},
        }
        entries = {**head, **place, **parts[kind.__name__]["properties"]}
        parts[kind.__name__] |= {"properties": entries, "required": [*entries]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of relay's event log, schema {SCHEMA_VERSION}",
        "oneOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds],
        "$defs": parts,
    }

"""The event log as JSON Schema, made from the events' classes."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from relay.base.values import dataclass
from relay.config.schema import describe_fields
from relay.session.events import (
    ChangedFile,
    CheckResult,
    Event,
    HashedFile,
    LeftFile,
    ShownClaim,
    ShownFinding,
    ShownItem,
    ShownPhase,
    SizedPart,
)
from relay.session.records import SCHEMA_VERSION, Scope
from relay.session.usage import Usage
from relay.session.values import Shown

_VALUES = (
    Usage, Shown, ShownPhase, ShownItem, SizedPart, HashedFile, ShownClaim, CheckResult, LeftFile, ChangedFile,
    ShownFinding,
)  # fmt: skip
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEntry:
    """The description of an event's field."""

    name: str
    schema: Mapping[str, Any]
    words: str
    """Its meaning; empty if the name says it."""
    may_miss: bool


@cache  # Python parses a class's whole module for the docstrings of its fields
def list_events() -> tuple[tuple[str, str, tuple[FieldEntry, ...]], ...]:
    """Return each event's name, meaning and fields, in the order of a run."""
    return tuple((kind.__name__, _first_line(kind), tuple(list_fields(kind))) for kind in get_args(Event))


@cache
def list_scope() -> tuple[FieldEntry, ...]:
    """Return the fields that every line has besides its event's own."""
    return tuple(list_fields(Scope))


def list_values() -> tuple[tuple[str, str, tuple[FieldEntry, ...]], ...]:
    """Return the values in fields of events, in the form of `list_events`."""
    return tuple((kind.__name__, _first_line(kind), tuple(list_fields(kind))) for kind in _VALUES)


def render_event_schema() -> Mapping[str, Any]:
    """Return the schema of one line of a log. Unnamed fields are allowed: a newer relay may add some."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of relay's event log, schema {SCHEMA_VERSION}",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name, _, _ in list_events()],
        "$defs": {
            **{name: _render_event(name, words, own) for name, words, own in list_events()},
            **{kind.__name__: _render_value(kind) for kind in _VALUES},
        },
    }


def _render_event(name: str, words: str, own: tuple[FieldEntry, ...]) -> Mapping[str, Any]:
    entries = {entry.name: entry for entry in (*list_scope(), *own)}
    return {
        "description": words,
        "type": "object",
        "properties": {
            "v": {"const": SCHEMA_VERSION},
            "at": {"type": "number", "description": "Seconds since the epoch."},
            "event": {"const": name},
            **{entry.name: _describe(entry) for entry in entries.values()},
        },
        "required": ["v", "at", "event", *(entry.name for entry in entries.values())],
    }


def _render_value(kind: type[Any]) -> Mapping[str, Any]:
    entries = tuple(list_fields(kind))
    return {
        "type": "object",
        "properties": {entry.name: _describe(entry) for entry in entries},
        "required": [entry.name for entry in entries if not entry.may_miss],
    }


def _describe(entry: FieldEntry) -> Mapping[str, Any]:
    return {**entry.schema, **({"description": entry.words} if entry.words else {})}


def list_fields(kind: type[Any]) -> Iterator[FieldEntry]:
    """Yield the fields of a value, in their order."""
    words = describe_fields(kind)
    if is_typeddict(kind):
        for name, hint in get_type_hints(kind).items():
            may_miss = name not in kind.__required_keys__
            yield FieldEntry(name=name, schema=_render_type(hint), words=words.get(name, ""), may_miss=may_miss)
        return
    for field in fields(kind):
        schema = _render_type(field.type)
        yield FieldEntry(name=field.name, schema=schema, words=words.get(field.name, ""), may_miss=False)


def _render_type(kind: Any) -> Mapping[str, Any]:
    if get_origin(kind) in {Union, types.UnionType}:
        inner = next(arg for arg in get_args(kind) if arg is not type(None))
        return {"anyOf": [_render_type(inner), {"type": "null"}]}
    if get_origin(kind) in {dict, Mapping}:
        return {"type": "object", "additionalProperties": _render_type(get_args(kind)[1])}
    if get_origin(kind) in {tuple, list}:
        return {"type": "array", "items": _render_type(get_args(kind)[0])}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"enum": [one.value for one in kind]}
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _first_line(kind: type[Any]) -> str:
    return " ".join((kind.__doc__ or "").split())

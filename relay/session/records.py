"""Events as lines of JSON, each with when and where in a run it happened.

Schema 2 has the ids of run, session, phase and turn on every line. Lines of schema 1 are read as well: what they lack
follows from the lines above.
"""

import json
import types
from collections.abc import Callable
from dataclasses import MISSING, asdict, field, fields, replace
from typing import Any, Union, get_args, get_origin

from relay.session.events import Event, LegEnded, LegStarted, RunEnded, RunStarted
from relay.session.usage import Usage
from relay.session.values import SessionEnd, Shown
from relay.values import dataclass

SCHEMA_VERSION = 2
_WITHOUT_SCOPE = 1
_CLASSES: dict[str, type[Any]] = {cls.__name__: cls for cls in get_args(Event)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where in a run something happened; an event that names one of these itself is right about it."""

    run_id: str = ""
    """Empty before the run is named."""
    session_id: str = ""
    """Empty outside of a session."""
    phase_id: str = ""
    """The one that is worked on or was last; empty before the first, and for what concerns the whole plan."""
    turn: int = 0
    """1-based within the session; 0 before its first request and outside of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event as it is kept."""

    at: float
    """Seconds since the epoch."""
    scope: Scope = Scope()
    event: Event
    size_bytes: int = field(default=0, compare=False)
    """Of its line in the log it was read from; 0 for one that was not."""


class Recorder:
    """Says when and where events happened; remembers the scope between them.

    Args:
        clock: Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = Scope()

    def record(self, event: Event) -> LoggedEvent:
        """Take the next event."""
        record = LoggedEvent(at=self._clock(), scope=find_scope(self._last, event), event=event)
        self._last = leave_scope(record)
        return record


def find_scope(before: Scope, event: Event) -> Scope:
    """Return where an event happened.

    Args:
        before: What `leave_scope` made of the event before it.
        event: The event.
    """
    own = {name: value for name in _SCOPE if (value := getattr(event, name, None)) is not None}
    match event:
        case RunStarted():
            return Scope(**own)
        case LegStarted() | RunEnded():
            return Scope(**{"run_id": before.run_id, **own})
        case _:
            return replace(before, **own)


def leave_scope(record: LoggedEvent) -> Scope:
    """Return where the run is behind an event."""
    ended = isinstance(record.event, LegEnded)
    return replace(record.scope, session_id="", turn=0) if ended else record.scope


def render_record(record: LoggedEvent) -> str:
    """Write a record as one JSON line without its newline."""
    head = {"v": SCHEMA_VERSION, "at": round(record.at, 3), "event": type(record.event).__name__}
    body = {**head, **asdict(record.scope), **asdict(record.event)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


_NO_SCOPE = Scope()


def parse_record(line: str, before: Scope = _NO_SCOPE) -> LoggedEvent | None:
    """Read what `render_record` wrote, or what relay wrote before there was a scope.

    Args:
        line: One line of a log.
        before: What `leave_scope` made of the line above.

    Returns:
        None for a torn line, another version or an unknown event.
    """
    try:
        body = json.loads(line)
        version, at, cls = body["v"], float(body["at"]), _CLASSES[body["event"]]
        if version not in {SCHEMA_VERSION, _WITHOUT_SCOPE}:
            return None
        # A field that came later than the log has a default; any other that is missing makes the line unreadable.
        known = [f for f in fields(cls) if f.name in body or f.default is MISSING]
        event = cls(**{f.name: _restore(f.type, body[f.name]) for f in known})
        if version == _WITHOUT_SCOPE:
            return LoggedEvent(at=at, scope=find_scope(before, event), event=event)
        return LoggedEvent(at=at, scope=Scope(**{name: body[name] for name in _SCOPE}), event=event)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _restore(kind: Any, value: Any) -> Any:
    """Turn what JSON kept of a field back into the field's type."""
    if get_origin(kind) in {Union, types.UnionType}:
        inner = next(arg for arg in get_args(kind) if arg is not type(None))
        return None if value is None else _restore(inner, value)
    if get_origin(kind) is tuple:
        return tuple(value)
    if kind in {Usage, Shown}:
        return kind(**value)
    return SessionEnd(value) if kind is SessionEnd else value


_SCOPE = tuple(f.name for f in fields(Scope))

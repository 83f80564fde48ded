"""Events as lines of JSON, each with when and where in a run it happened.

Schema 2 has the ids of run, session, phase and turn on every line. Lines of schema 1 are read as well: what they lack
follows from the lines above.
"""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, field, fields, replace
from functools import cache
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
_Restore = Callable[[Any], Any]


def parse_record(line: str | bytes, before: Scope = _NO_SCOPE, *, size_bytes: int = 0) -> LoggedEvent | None:
    """Read what `render_record` wrote, or what relay wrote before there was a scope.

    Args:
        line: One line of a log, in UTF-8 where it is bytes.
        before: What `leave_scope` made of the line above.
        size_bytes: Of the line.

    Returns:
        None for a torn line, another version or an unknown event.
    """
    try:
        body = json.loads(line)
        version, at, (cls, known) = body["v"], float(body["at"]), _make_reader(body["event"])
        if version not in {SCHEMA_VERSION, _WITHOUT_SCOPE}:
            return None
        event = cls(
            **{
                name: body[name] if restore is None else restore(body[name])
                for name, restore, may_miss in known
                # A field that came later than the log has a default; without any other the line is unreadable.
                if not may_miss or name in body
            }
        )
        if version == _WITHOUT_SCOPE:
            scope = find_scope(before, event)
        else:
            scope = before if all(body[name] == getattr(before, name) for name in _SCOPE) else _read_scope(body)
        return LoggedEvent(at=at, scope=scope, event=event, size_bytes=size_bytes)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _read_scope(body: Mapping[str, Any]) -> Scope:
    return Scope(**{name: body[name] for name in _SCOPE})


@cache
def _make_reader(name: str) -> tuple[type[Any], tuple[tuple[str, _Restore | None, bool], ...]]:
    """Return the class of an event, and of each field its name, what restores it, and whether a line may lack it."""
    cls = _CLASSES[name]
    return cls, tuple((f.name, _find_restore(f.type), f.default is not MISSING) for f in fields(cls))


def _find_restore(kind: Any) -> _Restore | None:
    """Return what turns that which JSON kept of a field back into the field's type; None where nothing has to."""
    if get_origin(kind) in {Union, types.UnionType}:
        inner = _find_restore(next(arg for arg in get_args(kind) if arg is not type(None)))
        return inner and (lambda value: None if value is None else inner(value))
    if get_origin(kind) is tuple:
        return tuple
    if kind in {Usage, Shown}:
        return lambda value: kind(**value)
    return SessionEnd if kind is SessionEnd else None


_SCOPE = tuple(f.name for f in fields(Scope))

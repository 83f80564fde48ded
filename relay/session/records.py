"""Events as lines of JSON, each with when and where in a run it happened.

Each line has the ids of run, session, phase and turn.
"""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from relay.base.values import dataclass
from relay.session.events import Event, ResponseReceived, RunEnded, RunStarted, SessionEnded, SessionStarted
from relay.session.usage import Usage

SCHEMA_VERSION = 2
MOST_NUMBER = 2**53
"""A line with a larger number, or a smaller one below 0, is not relay's: JSON keeps no larger one for sure."""
MOST_AT = 2**37
"""Seconds since the epoch that calendars know in every zone."""
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
    """Says when and where events happened; remembers the scope between them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = Scope()

    def record(self, event: Event) -> LoggedEvent:
        """Take the next event."""
        record = LoggedEvent(at=self._clock(), scope=find_scope(self._last, event), event=event)
        if not isinstance(event, ResponseReceived) or event.turn:  # a request beside the conversation moves nothing on
            self._last = leave_scope(record)
        return record


def find_scope(before: Scope, event: Event) -> Scope:
    """Return where an event happened.

    Args:
        before: What `leave_scope` made of the event before it.
    """
    own = {name: value for name in _SCOPE if (value := getattr(event, name, None)) is not None}
    match event:
        case RunStarted():
            return Scope(**own)
        case SessionStarted() | RunEnded():
            return Scope(**{"run_id": before.run_id, **own})
        case _:
            return replace(before, **own)


def leave_scope(record: LoggedEvent) -> Scope:
    """Return where the run is behind an event."""
    ended = isinstance(record.event, SessionEnded)
    return replace(record.scope, session_id="", turn=0) if ended else record.scope


def render_record(record: LoggedEvent) -> str:
    """Write a record as one JSON line without its newline."""
    head = {"v": SCHEMA_VERSION, "at": round(record.at, 3), "event": type(record.event).__name__}
    scope = {name: getattr(record.scope, name) for name in _SCOPE}
    body = {**head, **scope, **asdict(record.event)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


_Take = Callable[[Any], Any]
"""Returns a value of a field as its type wants it, given what JSON kept of it; raises ValueError for any other."""


def parse_record(line: str | bytes) -> LoggedEvent | None:
    """Read what `render_record` wrote.

    A log may come from anywhere: what is read has the types that the event's fields have, and numbers of a usual size.

    Args:
        line: One line of a log, in UTF-8 where it is bytes.

    Returns:
        None for a torn line, another version or an unknown event.
    """
    try:
        body = json.loads(line)
        at, take = _take_number(body["at"]), _make_event_reader(body["event"])
        if body["v"] != SCHEMA_VERSION or not 0 <= at <= MOST_AT:
            return None
        return LoggedEvent(at=at, scope=_take_scope(body), event=take(body), size_bytes=len(line))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


@cache
def _make_event_reader(name: str) -> _Take:
    return _take_fields(_CLASSES[name])


def _take_fields(cls: type[Any]) -> _Take:
    """Return what makes a value of its fields, of which none may be missing."""
    find = _find_take if cls is not Usage else lambda _: _take_count
    return _take_names(cls, [(f.name, find(f.type), False) for f in fields(cls)])


def _take_keys(cls: type[Any]) -> _Take:
    """Return what makes a mapping of the names that its type has."""
    hints, needed = get_type_hints(cls), cls.__required_keys__
    return _take_names(dict, [(name, _find_take(kind), name not in needed) for name, kind in hints.items()])


def _take_names(make: Callable[..., Any], known: list[tuple[str, _Take, bool]]) -> _Take:
    def take(body: Any) -> Any:
        if type(body) is not dict:
            raise ValueError(body)
        return make(**{name: check(body[name]) for name, check, may_miss in known if not may_miss or name in body})

    return take


def _find_take(kind: Any) -> _Take:
    """Return what reads values of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        inner = _find_take(next(arg for arg in args if arg is not types.NoneType))
        return lambda value: None if value is None else inner(value)
    if origin in {tuple, list}:
        return _take_list(origin, _find_take(args[0]))
    if origin is Literal:
        return _take_one_of(args)
    if is_typeddict(kind):
        return _take_keys(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    return kind if issubclass(kind, StrEnum) else _take_fields(kind)


def _take_list(kind: type[Any], inner: _Take) -> _Take:
    def take(value: Any) -> Any:
        if type(value) is not list:
            raise ValueError(value)
        return kind(map(inner, value))

    return take


def _take_one_of(known: tuple[Any, ...]) -> _Take:
    return lambda value: known[known.index(value)]


def _take_text(value: Any) -> Any:
    if type(value) is not str:
        raise ValueError(value)
    return value


def _take_whole(value: Any) -> Any:
    if type(value) is not int:
        raise ValueError(value)
    return _take_number(value)


def _take_count(value: Any) -> Any:
    if _take_whole(value) < 0:
        raise ValueError(value)
    return value


def _take_number(value: Any) -> Any:
    # Also false for what is not a number (NaN).
    if type(value) not in {int, float} or not -MOST_NUMBER <= value <= MOST_NUMBER:
        raise ValueError(value)
    return value


def _take_flag(value: Any) -> Any:
    if type(value) is not bool:
        raise ValueError(value)
    return value


_PLAIN: Mapping[Any, _Take] = {str: _take_text, int: _take_whole, float: _take_number, bool: _take_flag}
_SCOPE = tuple(f.name for f in fields(Scope))
_take_scope = _take_fields(Scope)

"""Events as lines of JSON, each with when and where in a run it happened.

Each line has the ids of run, session, phase and turn.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, field, fields, replace
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, get_args

from msgspec import DecodeError, Meta, Struct, ValidationError, convert
from msgspec.json import Decoder

from relay.base.values import dataclass
from relay.session.events import Event, ResponseReceived, RunEnded, RunStarted, SessionEnded, SessionStarted
from relay.session.usage import Usage
from relay.session.values import MOST_NUMBER, Whole

SCHEMA_VERSION = 2
MOST_AT = 2**37
"""Seconds since the epoch that calendars know in every zone."""
_MOMENT = Annotated[float, Meta(ge=0, le=MOST_AT)]
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
    turn: Whole = 0
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


class _Head(Struct, gc=False):
    """What every line has beside the fields of its event."""

    v: int
    at: _MOMENT
    event: str
    run_id: str = ""
    session_id: str = ""
    phase_id: str = ""
    turn: Whole = 0


_HEADS = Decoder(_Head)


@cache
def _get_decoder(kind: str) -> Decoder[Event]:
    return Decoder(_CLASSES[kind])


def parse_record(line: str | bytes) -> LoggedEvent | None:
    """Read what `render_record` wrote.

    A log may come from anywhere: what is read has the types and limits of the event's annotations. Other fields are
    passed over.

    Args:
        line: One line of a log, in UTF-8 where it is bytes.

    Returns:
        None for a torn line, another version or an unknown event.
    """
    try:
        try:
            head = _HEADS.decode(line)
            event = _get_decoder(head.event).decode(line)
        except ValidationError:
            return None
        except (DecodeError, UnicodeEncodeError):  # msgspec's reader refuses the lone surrogates of a file's name
            body = json.loads(line)
            head = convert(body, _Head)
            event = convert(body, _CLASSES[head.event])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    usage = getattr(event, "usage", None)  # `relay status` needs `Usage`, and must not wait for its limits
    if head.v != SCHEMA_VERSION or (usage and any(not 0 <= n <= MOST_NUMBER for n in _COUNTS(usage))):
        return None
    scope = Scope(run_id=head.run_id, session_id=head.session_id, phase_id=head.phase_id, turn=head.turn)
    return LoggedEvent(at=head.at, scope=scope, event=event, size_bytes=len(line))


_COUNTS = attrgetter(*(f.name for f in fields(Usage)))
_SCOPE = tuple(f.name for f in fields(Scope))

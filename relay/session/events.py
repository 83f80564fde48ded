"""What happens in a run, as a closed union with a schema version.

Events are facts in order. The view draws them, telemetry writes them, figures are computed from them; none
of these can change what the run does. Texts may contain anything a model or a command printed: whoever shows
one strips control characters and keeps it away from markup.
"""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Union, get_args, get_origin

from relay.session.usage import Usage
from relay.session.values import SessionEnd

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A command that may talk to a model began."""

    run_id: str
    command: str
    """``plan`` or ``run``."""
    model: str
    plan_path: str
    branch: str
    sandbox: str
    cap_usd: float | None
    """None when no cap is set."""
    spent_usd: float | None
    """What the plan has cost before this run; None when unknown."""
    rehearsed: bool
    """Whether the endpoint said that it is a rehearsal server."""
    context: str = "reset"
    """The context strategy of the run; what logs written before there was a choice mean by leaving it out."""
    ablated: tuple[str, ...] = ()
    """relay's own features that were switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShown:
    """The plan as it stands; sent at the start and whenever boxes or claims change."""

    phases: tuple[Mapping[str, Any], ...]
    """``{"id", "title", "items": [{"id", "text", "state"}]}``, state one of open, claimed, done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegStarted:
    """A fresh session on a phase began."""

    session_id: str
    phase_id: str
    title: str
    leg: int
    """1 for the first leg of the phase."""
    reason: str
    """Why this leg starts here, in the words of `relay status --why`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted:
    """A request is about to be sent, or sent again."""

    turn: int
    """1-based within the session; the same for every try of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """A complete response arrived; recorded before its content is looked at."""

    turn: int
    model: str
    usage: Usage | None
    """None when the endpoint reported none: unknown, not zero."""
    cost_usd: float | None
    """None when the price of the model is unknown."""
    fill_tokens: int | None
    soft_tokens: int
    hard_tokens: int
    window_tokens: int
    stop_reason: str
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextShown:
    """The model said something; `thinking` marks a summary of its thinking."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call is about to run."""

    call_id: str
    name: str
    summary: str
    """One line: the path, the command, the item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool call was answered."""

    call_id: str
    name: str
    is_error: bool
    result_chars: int
    result_sha256: str
    duration_s: float
    changed_paths: tuple[str, ...] | None
    """None when unknown (a shell command)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeCrossed:
    """The fill passed one of its two lines."""

    line: str
    """``soft`` or ``hard``."""
    fill_tokens: int
    line_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """A request failed and will be sent again."""

    attempt: int
    wait_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBroken:
    """Less was read from the prompt cache than the last response promised."""

    changed: str
    """The part that changed: ``system``, ``tool <name>``, ``model``, ``messages`` or ``unknown``."""
    expected_tokens: int
    read_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStarted:
    """Verify commands are about to run."""

    phase_id: str
    baseline: bool
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinished:
    """Verify commands ran."""

    phase_id: str
    baseline: bool
    passed: bool
    summary: str
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRestored:
    """PLAN.md was changed by something other than relay and was put back."""

    tool: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """relay made a commit on the branch."""

    commit: str
    subject: str
    status: str
    """``planned``, ``done``, ``handoff`` or ``amended``."""
    phase_id: str
    """Empty for a commit of the plan alone."""
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LegEnded:
    """The session of a leg is over."""

    session_id: str
    phase_id: str
    end: SessionEnd
    result: str
    """``done``, ``handoff``, ``blocked``, ``failed`` or ``interrupted``."""
    detail: str
    usage: Usage
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something a person should know: a file that was left out, a rule that was cut, a lock that was removed."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The command is over."""

    exit_code: int
    reason: str
    """One line: what was done, or why it stopped."""
    next_command: str
    """What to type next; empty when nothing is left."""
    spent_usd: float | None


Event = (
    RunStarted
    | PlanShown
    | LegStarted
    | RequestStarted
    | ResponseReceived
    | TextShown
    | ToolStarted
    | ToolFinished
    | GaugeCrossed
    | RetryScheduled
    | CacheBroken
    | GateStarted
    | GateFinished
    | PlanRestored
    | Committed
    | LegEnded
    | Noticed
    | RunEnded
)

Observe = Callable[[Event], None]
"""Receives every event, in order, on the thread of the run. Must not raise and must return soon."""

_CLASSES: dict[str, type[Any]] = {cls.__name__: cls for cls in get_args(Event)}


def render_event(event: Event, *, at: float) -> str:
    """Write an event as one JSON line without its newline; `at` is seconds since the epoch."""
    body = {"v": SCHEMA_VERSION, "at": round(at, 3), "event": type(event).__name__, **asdict(event)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def parse_event(line: str) -> tuple[float, Event] | None:
    """Read what `render_event` wrote.

    Returns:
        Seconds since the epoch and the event; None for a torn line, another version or an unknown event.
    """
    try:
        body = json.loads(line)
        if body.pop("v") != SCHEMA_VERSION:
            return None
        at, cls = float(body.pop("at")), _CLASSES[body.pop("event")]
        # A field that came later than the log has a default; any other that is missing makes the line unreadable.
        known = [f for f in fields(cls) if f.name in body or f.default is MISSING]
        return at, cls(**{f.name: _restore(f.type, body[f.name]) for f in known})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _restore(kind: Any, value: Any) -> Any:
    """Turn what JSON kept of a field back into the field's type."""
    if get_origin(kind) in {Union, types.UnionType}:
        inner = next(arg for arg in get_args(kind) if arg is not type(None))
        return None if value is None else _restore(inner, value)
    if get_origin(kind) is tuple:
        return tuple(value)
    if kind is Usage:
        return Usage(**value)
    return SessionEnd(value) if kind is SessionEnd else value

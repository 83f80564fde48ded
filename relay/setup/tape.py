"""A session's history (its tape): recorded during the session, and replayed by `relay replay`.

A replay runs relay's own loop against a server that sends the recorded answers; tools answer from the tape.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import count
from typing import Any, Protocol

from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.runners.base import Callbacks, ModelInfo, Session, SessionSpec
from relay.session.events import Observe
from relay.session.gauge import parse_reset_at
from relay.session.pictures import Picture
from relay.session.tape import VERSION, KeepNote, Note, TapedSession, find_difference, render_wire, seal_content
from relay.session.values import SessionEnd, SessionOutcome, Shown, ToolCall, ToolResult, ToolSpec


class Tape(Protocol):
    """Receives the notes of a session."""

    def keep(self, note: Any) -> None:
        """Take the next note."""

    def close(self) -> None:
        """Take no more notes."""


OpenTape = Callable[[str], Tape]
"""Opens the tape of a session, by its id."""


def begin_tape(stack: ExitStack, open_tape: OpenTape, spec: SessionSpec, model: ModelInfo, agent: str) -> SessionSpec:
    """Open a session's tape and return the spec that fills it; `agent` is empty for relay's own loop."""
    tape = open_tape(spec.session_id)
    stack.callback(tape.close)
    tape.keep(
        {
            "kind": "session",
            "v": VERSION,
            "session_id": spec.session_id,
            "model_info": asdict(model),
            "model": spec.model,
            "system": spec.system,
            "tools": [asdict(tool) for tool in spec.tools],
            "reset_at": spec.reset_at.text,
            "max_output_tokens": spec.max_output_tokens,
            "max_turns": spec.max_turns,
            "effort": spec.effort,
            "cached": spec.cached,
            "cache_ttl": spec.cache_ttl,
            "slowest_turn_s": spec.slowest_turn_s,
            **({"runner": agent} if agent else {}),
        }
    )
    return tape_spec(spec, tape.keep)


def tape_spec(spec: SessionSpec, keep: KeepNote) -> SessionSpec:
    """Return a spec that notes the answers of relay's own parts to the session."""

    def run_tool(call: ToolCall) -> ToolResult:
        result = spec.callbacks.run_tool(call)
        keep({"kind": "tool", "id": call.id, **asdict(result)})
        return result

    return replace(
        spec,
        keep=keep,
        callbacks=replace(
            spec.callbacks,
            run_tool=run_tool,
            render_soft_notice=_note("notice", spec.callbacks.render_soft_notice, keep),
            render_band_notice=_note("band", spec.callbacks.render_band_notice, keep),
            hear=_note("heard", spec.callbacks.hear, keep),
        ),
        check_budget=_note("budget", spec.check_budget, keep),
    )


def _note(kind: str, ask: Callable[..., Any], keep: KeepNote) -> Callable[..., Any]:
    """Return a function that calls `ask` and notes any answer."""
    numbers = count(1)

    def asked(*given: Any) -> Any:
        n, text = next(numbers), ask(*given)
        if text:
            keep({"kind": kind, "n": n, "text": text})
        return text

    return asked


class TapedConversation:
    """A `relay.runners.base.Session` that notes each message to the model.

    Args:
        keep: Takes notes.
        hide: Redacts a message.
    """

    def __init__(self, session: Session, keep: KeepNote, hide: Callable[[str], str] = str) -> None:
        self._session = session
        self._keep = keep
        self._hide = hide

    def advance(self, message: str) -> SessionOutcome:
        """Send a message and work until the model stops or must be stopped."""
        message = self._hide(message)
        self._keep({"kind": "say", "text": message})
        return self._session.advance(message)


IDLE_S = 90.0
_GOES_ON = frozenset({SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRequest:
    """One request of the tape, made again."""

    number: int
    """From 1."""
    is_same: bool
    """Whether relay sent the same bytes again."""
    differs_at: str
    """Place of the first difference in the body; empty without one, or if the request was not sent."""
    made_differs_at: str
    """The same for relay's reading of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a replay."""

    requests: tuple[ReplayedRequest, ...]
    beyond: int
    """Requests after the end of the tape; the session was stopped there."""
    end: SessionEnd
    detail: str

    @property
    def is_same(self) -> bool:
        """Whether each request, and the reading of each answer, is the same."""
        return all(request.is_same and not request.made_differs_at for request in self.requests)


def replay_session(taped: TapedSession, observe: Observe) -> Replay:
    """Replay a session; it costs nothing, runs no command and touches no file."""
    from relay.rehearsal.server import serve_tape
    from relay.runners.messages.api import open_api
    from relay.runners.messages.connection import ApiConnection
    from relay.runners.messages.conversation import ApiRunner

    made: list[Note] = []
    interrupts = Interrupts(sleep=lambda _: None)
    with serve_tape([exchange.answer for exchange in taped.exchanges]) as server:
        environ = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "replay"}
        with open_api(environ=environ, interrupts=interrupts, idle_timeout_s=IDLE_S) as api:
            connection = ApiConnection(api=api, observe=observe, interrupts=interrupts, max_wait_s=float("inf"))
            model = ModelInfo(**taped.header["model_info"])
            spec = _make_spec(taped, made.append)
            runner = ApiRunner(connection=connection, known={spec.model: model})
            end, detail = SessionEnd.FINISHED, ""
            with runner.open_session(spec) as session:
                for message in taped.said:
                    outcome = session.advance(message)
                    end, detail = outcome.end, outcome.detail
                    if end not in _GOES_ON:
                        break
    sealed = [seal_content(note) for note in made if note["kind"] == "made"]
    outcomes = [{name: note[name] for name in note if name != "kind"} for note in sealed]
    return Replay(
        requests=tuple(_compare(n, taped, server.asked, outcomes) for n in range(len(taped.exchanges))),
        beyond=max(0, len(server.asked) - len(taped.exchanges)),
        end=end,
        detail=detail,
    )


def read_again(taped: TapedSession) -> Replay:
    """Read an agent's recorded requests and answers again, as the gateway did; the agent itself does not run."""
    from relay.runners.agents.dialects import Tally, describe_answer, find_dialect, read_request

    requests: list[ReplayedRequest] = []
    for number, exchange in enumerate(taped.exchanges, 1):
        path, answer = str(exchange.made.get("path", "")), exchange.answer
        differs_at = made_differs_at = ""
        try:
            read_request(path, render_wire(exchange.body), b"")
        except ValueError as error:
            differs_at = str(error)
        dialect = find_dialect(path)
        if dialect is not None and "usage" in exchange.made:
            tally = Tally(dialect=dialect, streamed="event-stream" in answer.headers.get("content-type", ""))
            tally.feed(answer.body)
            tally.close()
            now = describe_answer(tally)
            made_differs_at = find_difference({name: exchange.made.get(name) for name in now}, now)
        requests.append(
            ReplayedRequest(
                number=number, is_same=not differs_at, differs_at=differs_at, made_differs_at=made_differs_at
            )
        )
    return Replay(requests=tuple(requests), beyond=0, end=SessionEnd.FINISHED, detail="")


def _compare(n: int, taped: TapedSession, asked: Sequence[bytes], outcomes: list[dict[str, Any]]) -> ReplayedRequest:
    exchange = taped.exchanges[n]
    if n >= len(asked):
        return ReplayedRequest(number=n + 1, is_same=False, differs_at="", made_differs_at="")
    is_same = asked[n] == render_wire(exchange.body)
    now = outcomes[n] if n < len(outcomes) else {}
    # Compare only the kind of a fault: its words may name the address.
    before = {"fault": exchange.made["fault"]} if "fault" in exchange.made else exchange.made
    now = {"fault": now["fault"]} if "fault" in now else now
    return ReplayedRequest(
        number=n + 1,
        is_same=is_same,
        differs_at="" if is_same else find_difference(exchange.body, json.loads(asked[n])) or "the order of its fields",
        made_differs_at=find_difference(before, json.loads(json.dumps(now))) if before else "",
    )


def _make_spec(taped: TapedSession, keep: Any) -> SessionSpec:
    """Return the spec of the recorded session; its tools answer from the tape."""
    header = taped.header
    notices, bands, hearings, checks = count(1), count(1), count(1), count(1)
    kept = ("max_output_tokens", "max_turns", "effort", "cached", "cache_ttl", "slowest_turn_s")
    return SessionSpec(
        session_id=str(header["session_id"]),
        model=header["model"],
        system=header["system"],
        tools=tuple(ToolSpec(**tool) for tool in header["tools"]),
        callbacks=Callbacks(
            run_tool=lambda call: _find_result(taped.tools, call),
            render_soft_notice=lambda fill, room: _answer(taped.replies["notice"], notices) or f"{fill}, {room}",
            render_band_notice=lambda _fill, _line: _answer(taped.replies["band"], bands),
            hear=lambda: _answer(taped.replies["heard"], hearings),
        ),
        reset_at=parse_reset_at(header["reset_at"]),
        check_budget=lambda *_: _answer(taped.replies["budget"], checks) or None,
        keep=keep,
        price=None,
        **{name: header[name] for name in kept},
    )


def _answer(replies: Mapping[int, str], numbers: "count[int]") -> str:
    return replies.get(next(numbers), "")


def _find_result(tools: Mapping[str, Mapping[str, Any]], call: ToolCall) -> ToolResult:
    found = tools.get(call.id)
    if found is None:
        return ToolResult(text=f"relay: the tape has no result of the call {call.id}", is_error=True)
    shown, picture = found.get("shown"), found.get("picture")
    return ToolResult(
        text=str(found.get("text", "")),
        is_error=bool(found.get("is_error")),
        ends_session=bool(found.get("ends_session")),
        ends_turn=bool(found.get("ends_turn")),
        changed_paths=tuple(found["changed_paths"]) if found.get("changed_paths") is not None else None,
        shown=Shown(**shown) if shown else None,
        picture=Picture(**picture) if picture else None,
    )

"""One request and its response as the real API answers them: credentials, checks, the cache, faults on the wire.

A fault in the stream says after how many events something else is sent in place of the next one.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from relay.rehearsal.answer import render_event
from relay.rehearsal.connection import Connection
from relay.rehearsal.exchange import Exchange
from relay.rehearsal.other_apis import count_writes_as_input
from relay.rehearsal.stage import Cue
from relay.rehearsal.wire import (
    ApiError,
    ModelCard,
    RefusedError,
    find_error_type,
    refuse,
    render_model_name,
)
from tests.endpoint.answer import EndpointPerformer
from tests.endpoint.checks import check_refused, check_request, check_version
from tests.endpoint.faults import BEFORE, IN_STREAM, FaultName, FaultSpec, StrictCard, find_card, render_fault_error
from tests.endpoint.prompt import Prompt, list_edits
from tests.endpoint.state import EndpointState, Recorded

DEFAULT_AFTER_EVENTS = 3
_GARBAGE = "{this is not json"
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: close sends RST and drops unsent bytes."""
_UNSENT = 0x894B
"""SIOCOUTQNSD of Linux: how many bytes of a socket's buffer have not been sent."""


def end_connection(connection: Connection, how: str) -> NoReturn:
    """End a connection without ending the response; `how` is ``rst`` or ``fin``.

    Raises:
        ConnectionAbortedError: Always.
    """
    raw = connection.socket
    if how == "rst":
        _let_send(connection)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        os.close(raw.detach())  # `close` waits for the files that were made of the socket
    raise ConnectionAbortedError


def _let_send(connection: Connection) -> None:
    """Give the kernel a moment to send what was written: a reset drops its buffer."""
    for _ in range(200):
        if fcntl.ioctl(connection.socket, _UNSENT, bytes(4)) == bytes(4):
            return
        connection.wait(0.005)


CONTEXT_BETA = "context-management-2025-06-27"
_SECRETS = {"authorization", "x-api-key", "proxy-authorization", "cookie"}
_ERROR_EVENTS: Mapping[str, Callable[[str, str], Mapping[str, Any]]] = {
    "chat": lambda kind, words: {"error": {"message": words, "type": kind, "code": None, "param": None}},
    "gemini": lambda _, words: {"error": {"code": 503, "message": words, "status": "UNAVAILABLE"}},
    "responses": lambda kind, words: {
        "type": "error", "sequence_number": 0, "code": kind, "message": words, "param": None
    },
}  # fmt: skip
"""An error's type and message → the event in mid-stream, by API."""


class EndpointExchange(Exchange):
    """One request and its response. Mutable: filled as the request is read."""

    state: EndpointState

    def __init__(self, state: EndpointState, connection: Connection) -> None:
        super().__init__(state, connection)
        self.cue: Cue | None = None
        self.fault: FaultSpec | None = None
        self.prompt: Prompt | None = None

    def route(self) -> None:
        """Answer by method and path, whom may ask."""
        if problem := self._check_credentials():
            raise RefusedError(problem)
        super().route()

    def _check_credentials(self) -> ApiError | None:
        headers = self.headers
        scheme, _, token = headers.get("authorization", "").partition(" ")
        bearer = scheme.lower() == "bearer" and token.strip()
        if not (bearer or any(headers.get(name, "").strip() for name in ("x-api-key", "x-goog-api-key"))):
            return ApiError(status=401, message="x-api-key header is required")
        return None if self._is_foreign else check_version(headers.get("anthropic-version"))

    @property
    def _is_foreign(self) -> bool:
        """Whether the request belongs to another API; a question about models does if it names no API version."""
        asks = self.method == "GET" and "/models/" in self.path
        return self.other is not None or (asks and "anthropic-version" not in self.headers)

    # messages

    def find_card(self, model: str) -> ModelCard | None:
        """Find a model by its id or an alias."""
        return find_card(model, self.state.script.cards)

    def read_request(self) -> ModelCard:
        """Read and check a request."""
        card = super().read_request()
        assert isinstance(card, StrictCard)
        body, script = self.asked, self.state.script
        version, betas = (self.headers.get(name, "") for name in ("anthropic-version", "anthropic-beta"))
        paused = self.state.stage.has_paused(body)
        problem = check_refused(body, (*script.server.refuses, *script.refuses))
        if list_edits(body) and CONTEXT_BETA not in betas and script.server.signs:
            problem = refuse("context_management: Extra inputs are not permitted")
        counting = self.path.endswith("/count_tokens")
        problem = problem or check_request(body, card, version=version, paused=paused, counting=counting)
        prompt = problem or _fit_window(self.state.read_prompt(body, card))
        if isinstance(prompt, ApiError):
            raise RefusedError(prompt)
        self.prompt = prompt
        return card

    def perform(self, cue: Cue, card: ModelCard) -> None:
        """Play a turn, or its fault."""
        state, body = self.state, self.asked
        assert isinstance(card, StrictCard)
        assert self.prompt is not None
        with state.guard:
            self.cue, self.fault = cue, state.stage.take_fault(cue)
            prompt = _fit_window(state.pad(self.prompt, body, cue))
        if isinstance(prompt, ApiError):
            raise RefusedError(prompt)
        fault = self.fault
        works = fault is not None and bool(fault.options.get("after_work"))
        if fault is not None and fault.kind in BEFORE and not works:
            self._play_before(fault, prompt.tokens, card.window_tokens)
            return
        plan = state.plan_cache(prompt, body)
        use = count_writes_as_input(plan.use) if self.other else plan.use
        performer = EndpointPerformer(cue, fault, body, prompt, state.script)
        answer = performer.build_answer(f"msg_rehearsal_{self.number:06d}", card.id, use)
        self.hold_back(cue)
        state.begin_answer(plan, answer, cue)
        if fault is not None and works:
            self.bill = answer.render_bill(answer.output_tokens, final=True)
            self._play_before(fault, prompt.tokens, card.window_tokens)
            return
        if fault is not None and fault.kind is FaultName.ERROR_EVENT and not self.streams:
            kind = fault.options.get("type", find_error_type(529))
            status = {"overloaded_error": 529, "rate_limit_error": 429}.get(kind, 500)
            raise RefusedError(ApiError(status=status, type=kind, message=fault.options.get("message", kind)))
        self.send_answer(answer)

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream."""
        return super().streams and not (self.fault and self.fault.kind is FaultName.NO_STREAM)

    def deliver(self, pieces: list[bytes]) -> None:
        """Send the pieces of a response whose headers are sent, with a fault in between.

        Raises:
            ConnectionAbortedError: The fault ended the connection, or the client left.
        """
        fault = self.fault if self.fault and self.fault.kind in IN_STREAM else None
        if fault is None:
            super().deliver(pieces)
            return
        index = min(int(fault.options.get("after_events", DEFAULT_AFTER_EVENTS)), len(pieces) - 1)
        self.connection.write(b"".join(pieces[:index]))
        if self._break(fault):
            self.connection.write(b"".join(pieces[index:]))
        self.connection.end()

    def _break(self, fault: FaultSpec) -> bool:
        """Play the fault between two events; return True if the rest of the response follows."""
        connection, options = self.connection, fault.options
        match fault.kind:
            case FaultName.CUT:
                if options.get("how", "fin") != "end":
                    end_connection(connection, options.get("how", "fin"))
                return False
            case FaultName.ERROR_EVENT:
                kind, words = options.get("type", find_error_type(529)), options.get("message", "Overloaded")
                error = {"type": "error", "error": {"type": kind, "message": words}}
                connection.write(
                    render_event(_ERROR_EVENTS[self.other.api.name](kind, words), "")
                    if self.other
                    else render_event(error)
                )
                return False
            case FaultName.GARBAGE:
                data = options.get("data", _GARBAGE)
                connection.write(f"event: content_block_delta\ndata: {data}\n\n".encode())
            case _:
                connection.wait(options.get("seconds"))
        return True

    # the other endpoints

    def send_found(self, found: Mapping[str, Any]) -> None:
        """Send the answer of an endpoint, unless that of the Models API has a fault."""
        if not self.path.endswith("/count_tokens"):
            self.fault = self.state.find_models_fault()
        if self.fault is not None:
            self._play_before(self.fault, 0, 0)
            return
        super().send_found(found)

    def count_tokens(self) -> Mapping[str, Any]:
        """Answer ``count_tokens``."""
        self.read_request()
        assert self.prompt is not None
        return {"input_tokens": self.prompt.tokens}

    def get_model(self, model: str) -> Mapping[str, Any]:
        """Write a model, in the form of the API that is asked."""
        if not self.state.script.server.lists_limits and not self._is_foreign:
            return render_model_name(self.get_card(model))
        return super().get_model(model)

    # sending

    def _play_before(self, fault: FaultSpec, tokens: int, window: int) -> None:
        """Play a fault that replaces the answer."""
        if fault.kind is FaultName.DROP:
            self.record(0)
            end_connection(self.connection, fault.options.get("how", "rst"))
        error = render_fault_error(fault, prompt_tokens=tokens, window_tokens=window)
        self.refuse(error)

    def make_headers(self, kind: str) -> dict[str, str]:
        """Return the headers of every response."""
        return super().make_headers(kind) | {
            "anthropic-organization-id": "rehearsal",
            "anthropic-ratelimit-requests-limit": "4000",
            "anthropic-ratelimit-requests-remaining": "3999",
        }

    def record(self, status: int, stop_reason: str = "") -> None:
        """Note how a request is answered, just before it is."""
        headers = {name: "***" if name in _SECRETS else value for name, value in self.headers.items()}
        self.state.requests.append(
            Recorded(
                method=self.method,
                path=self.path,
                query=self.query,
                headers=headers,
                body=self.body if self.state.keeps_bodies else None,
                status=status,
                usage=self.bill,
                stop_reason=stop_reason,
                session=self.cue.session.name if self.cue else "",
                step=self.cue.step + 1 if self.cue else 0,
                fault=self.fault.kind if self.fault else "",
            )
        )


def _fit_window(prompt: Prompt | ApiError) -> Prompt | ApiError:
    if isinstance(prompt, ApiError) or prompt.tokens <= prompt.card.window_tokens:
        return prompt
    return refuse(f"prompt is too long: {prompt.tokens} tokens > {prompt.card.window_tokens} maximum")

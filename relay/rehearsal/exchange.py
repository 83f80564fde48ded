"""One request and its response: credentials, routes, checks, the turn, the cache, the answer on the connection.

A response is a list of pieces: the events of a stream, or slices of a JSON body. A fault in the stream says after how
many pieces, or after how many bytes, something else is sent in place of the next piece.
"""

import fcntl
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, NoReturn
from urllib.parse import unquote

from relay.base.values import dataclass
from relay.rehearsal.answer import PING, Performance, PlayedAnswer, build_answer, render_event, render_events
from relay.rehearsal.checks import check_refused, check_request, check_version
from relay.rehearsal.connection import Connection
from relay.rehearsal.other_apis import (
    OtherRoute,
    count_writes_as_input,
    find_other_api,
    map_error,
    render_part,
    render_stream,
    translate,
)
from relay.rehearsal.prompt import list_edits
from relay.rehearsal.stage import Cue, Miss, Prompt, Recorded, ServerState
from relay.rehearsal.turns import BEFORE, IN_STREAM, FaultName, FaultSpec, render_fault_error
from relay.rehearsal.wire import (
    ApiError,
    dump,
    find_card,
    find_error_type,
    list_models,
    refuse,
    render_error,
    render_google_model,
    render_model_info,
    render_model_name,
)

DEFAULT_AFTER_EVENTS = 3
_PIECES = 8
"""Pieces of a body that is not a stream."""
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
    raw = connection.connection
    if how == "rst":
        _let_send(raw)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        os.close(raw.detach())  # `close` waits for the files that were made of the socket
    raise ConnectionAbortedError


def _let_send(raw: socket.socket) -> None:
    """Give the kernel a moment to send what was written: a reset drops its buffer."""
    for _ in range(200):
        if fcntl.ioctl(raw, _UNSENT, bytes(4)) == bytes(4):
            return
        time.sleep(0.005)


def deliver(
    connection: Connection,
    pieces: list[bytes],
    *,
    fault: FaultSpec | None,
    event_s: float,
    render: Callable[[str, str], bytes] | None = None,
) -> None:
    """Send the pieces of a response whose headers are sent, with a fault in between.

    `render` writes an error's type and message for the stream; None for the Messages API's form.

    Raises:
        ConnectionAbortedError: The fault ended the connection, or the client left.
    """
    index = _find_break(pieces, fault)
    if not event_s:  # pieces without a pause in between are sent at once: each send wakes the client
        parts = pieces[: max(index, 0)], pieces[max(index, 0) :]
        pieces, index = [b"".join(part) for part in parts if part], min(index, 1)
    for number, piece in enumerate(pieces):
        if number == index and fault is not None and not _break(connection, fault, pieces, number, render):
            break
        connection.write(piece)
        connection.wait(event_s)
    connection.finish_body()


def cut_body(body: bytes) -> list[bytes]:
    """Slice a body that is not a stream, so that faults can happen in between."""
    size = max(1, -(-len(body) // _PIECES))
    return [body[i : i + size] for i in range(0, len(body), size)]


def _find_break(pieces: list[bytes], fault: FaultSpec | None) -> int:
    """Return the index of the piece before which the fault happens; -1 for none."""
    if fault is None:
        return -1
    after_bytes = fault.options.get("after_bytes")
    if after_bytes is None:
        return min(int(fault.options.get("after_events", DEFAULT_AFTER_EVENTS)), len(pieces) - 1)
    sizes = list(_accumulate(pieces))
    return next((i for i, size in enumerate(sizes) if size > after_bytes), len(pieces) - 1)


def _accumulate(pieces: list[bytes]) -> Iterator[int]:
    total = 0
    for piece in pieces:
        total += len(piece)
        yield total


def _break(
    connection: Connection,
    fault: FaultSpec,
    pieces: list[bytes],
    number: int,
    render: Callable[[str, str], bytes] | None,
) -> bool:
    """Play the fault before a piece; return True if the rest of the response follows."""
    options, piece = fault.options, pieces[number]
    match fault.kind:
        case FaultName.CUT:
            if "after_bytes" in options:
                sent = sum(map(len, pieces[:number]))
                connection.write(piece[: options["after_bytes"] - sent])
            if options.get("how", "fin") != "end":
                end_connection(connection, options.get("how", "fin"))
            return False
        case FaultName.ERROR_EVENT:
            error = _build_error_event(options)
            words = render(error["error"]["type"], error["error"]["message"]) if render else render_event(error)
            connection.write(words)
            return False
        case FaultName.GARBAGE:
            data = options.get("data", _GARBAGE)
            connection.write(f"event: content_block_delta\ndata: {data}\n\n".encode())
            return True
        case FaultName.STALL:
            _stall(connection, options)
            return True
        case _:
            return True


def _build_error_event(options: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = options.get("type", find_error_type(529))
    return {"type": "error", "error": {"type": kind, "message": options.get("message", "Overloaded")}}


def _stall(connection: Connection, options: Mapping[str, Any]) -> None:
    """Be silent, or send only pings, for a while or until the client leaves."""
    seconds, ping_s = options.get("seconds"), options.get("ping_s")
    if ping_s is None:
        connection.wait(seconds)
        return
    left = float("inf") if seconds is None else seconds
    while left > 0:
        connection.wait(min(max(ping_s, 0.001), left))
        left -= max(ping_s, 0.001)
        connection.write(PING)


CONTEXT_BETA = "context-management-2025-06-27"
_SECRETS = {"authorization", "x-api-key", "proxy-authorization", "cookie"}
_HTML = b"<html><head><title>error</title></head><body><h1>Something went wrong</h1></body></html>"


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request and its response. Mutable: filled as the request is read."""

    state: ServerState
    connection: Connection
    number: int
    method: str = ""
    path: str = ""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    other: OtherRoute | None = None
    """Set for a request of another API."""
    asked: Any = None
    """The request in the Messages API's form."""
    cue: Cue | None = None
    fault: FaultSpec | None = None
    bill: Mapping[str, Any] | None = None
    """The usage of the work that was done; None if there was none."""

    @property
    def cue_fault(self) -> FaultName | None:
        """The fault of this request; None without one."""
        return self.fault.kind if self.fault else None

    @property
    def request_id(self) -> str:
        return f"req_rehearsal_{self.number:06d}"

    def run(self) -> None:
        """Answer the request.

        Raises:
            ConnectionAbortedError: Nothing more can be sent: as scripted, or because the client left.
        """
        self.method = self.connection.command
        path, _, self.query = self.connection.path.partition("?")
        self.path = unquote(path)
        self.headers = {name.lower(): value for name, value in self.connection.headers.items()}
        self.other = find_other_api(self.method, self.path)
        problem = self._read_body() or self._check_credentials()
        if problem is not None:
            self._refuse(problem)
            return
        self._route()

    def _route(self) -> None:
        method, path = self.method, self.path
        if self.other is not None:
            self._answer_messages()
            return
        match method, path.strip("/").split("/"):
            case "POST", ["v1", "messages"]:
                self._answer_messages()
            case "POST", ["v1", "messages", "count_tokens"]:
                self._answer_endpoint("count_tokens", self._count_tokens)
            case "GET", ["v1", "models"]:
                self._answer_endpoint("models", lambda: list_models(self.state.script.cards))
            case "GET", ["v1" | "v1beta", "models", model]:
                self._answer_endpoint("models", lambda: self._get_model(model))
            case _:
                self._refuse(ApiError(status=404, message=f"Not found: {method} {path}"))

    def _read_body(self) -> ApiError | None:
        raw = self.connection.read_body()
        if isinstance(raw, ApiError):
            return raw
        try:
            self.body = json.loads(raw) if raw else None
        except (ValueError, RecursionError):
            return refuse("The request body is not valid JSON")
        return None

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

    def _answer_messages(self) -> None:
        """Check, count, find the turn, divide by the cache, answer."""
        read = self._read_request(counting=False)
        if isinstance(read, ApiError):
            self._refuse(read)
            return
        body = self.asked
        if body["max_tokens"] == 0:
            self._warm(read)
            return
        with self.state.guard:
            cue = self.state.stage.cue(body)
            prompt = read if isinstance(cue, Miss) else _fit_window(self.state.pad(read, body, cue))
        if isinstance(cue, Miss):
            self.state.errors.append(cue.words)
            self._refuse(refuse(f"rehearsal: {cue.words}"))
            return
        self.cue, self.fault = cue, cue.fault
        if isinstance(prompt, ApiError):
            self._refuse(prompt)
            return
        self._perform(prompt, cue)

    def _read_request(self, *, counting: bool) -> Prompt | ApiError:
        body = self.body
        if not isinstance(body, Mapping):
            return refuse("The request body should be a JSON object")
        model = self.other.model if self.other and self.other.model else body.get("model")
        if not isinstance(model, str):
            return refuse("model: Field required")
        card = find_card(model, self.state.script.cards)
        if card is None:
            return ApiError(status=404, message=f"model: {model}")
        body = self.asked = translate(self.other.api, body, model, card.output_tokens) if self.other else body
        version = self.headers.get("anthropic-version", "")
        paused = self.state.stage.has_paused(body)
        problem = check_refused(body, self.state.script.refuses)
        has_beta = CONTEXT_BETA in self.headers.get("anthropic-beta", "")
        if list_edits(body) and not has_beta and self.state.script.dialect.signs:
            problem = refuse("context_management: Extra inputs are not permitted")
        problem = problem or check_request(body, card, version=version, paused=paused, counting=counting)
        return problem or _fit_window(self.state.read_prompt(body, card))

    def _perform(self, prompt: Prompt, cue: Cue) -> None:
        fault, body = cue.fault, self.asked
        works = fault is not None and bool(fault.options.get("after_work"))
        if fault is not None and fault.kind in BEFORE and not works:
            self._play_before(fault, prompt.tokens, prompt.card.window_tokens)
            return
        plan = self.state.plan_cache(prompt, body)
        answer = build_answer(
            Performance(
                message_id=f"msg_rehearsal_{self.number:06d}",
                call_prefix=f"toolu_rehearsal_{cue.cast}_{cue.step}_",
                turn=cue.turn,
                n=cue.n,
                fault=fault,
                body=body,
                card=prompt.card,
                bound=prompt.bound,
                use=count_writes_as_input(plan.use) if self.other else plan.use,
                prompt_tokens=prompt.tokens,
                thinks_always=self.state.script.thinks_always,
                dialect=self.state.script.dialect,
                dropped=prompt.dropped,
                edits=prompt.edits,
            )
        )
        self.connection.wait(cue.turn.delay_s + self.state.script.first_byte_s)
        if fault is not None and fault.kind is FaultName.STALL and fault.options.get("before_headers"):
            self.connection.wait(fault.options.get("seconds"))
            fault = None
        self.state.begin(plan, answer, cue)
        if fault is not None and works:
            self.bill = answer.render_bill()
            self._play_before(fault, prompt.tokens, prompt.card.window_tokens)
            return
        self._send_answer(answer, fault if fault and fault.kind in IN_STREAM else None)

    def _send_answer(self, answer: PlayedAnswer, fault: FaultSpec | None) -> None:
        told = self.other.streams if self.other else None
        streams = bool(self.body.get("stream") if told is None else told)
        streams = streams and self.cue_fault is not FaultName.NO_STREAM
        if fault is not None and not streams and fault.kind is FaultName.ERROR_EVENT:
            kind = fault.options.get("type", find_error_type(529))
            status = {"overloaded_error": 529, "rate_limit_error": 429}.get(kind, 500)
            self._refuse(ApiError(status=status, type=kind, message=fault.options.get("message", kind)))
            return
        self.bill = answer.render_bill()
        self._record(200, stop_reason=answer.stop_reason)
        if streams:
            pieces, kind = self._render_stream(answer), "text/event-stream; charset=utf-8"
        else:
            pieces, kind = cut_body(dump(self._render(answer)).encode(errors="surrogatepass")), "application/json"
        self.connection.start(200, self._headers() | {"content-type": kind, "cache-control": "no-cache"})
        event_s = self.state.script.event_s if streams else 0.0
        deliver(self.connection, pieces, fault=fault, event_s=event_s, render=self._find_error_renderer())

    def _render(self, answer: PlayedAnswer) -> Mapping[str, Any]:
        return self.other.api.message(answer, self.body) if self.other else answer.render_message()

    def _render_stream(self, answer: PlayedAnswer) -> list[bytes]:
        if self.other is None:
            return render_events(answer)
        return render_stream(self.other.api, answer, self.body)

    def _find_error_renderer(self) -> Callable[[str, str], bytes] | None:
        if self.other is None:
            return None
        api = self.other.api
        return lambda kind, words: render_part("", api.error_event(kind, words))

    def _warm(self, prompt: Prompt) -> None:
        """Answer ``max_tokens: 0``: the cache is written, and nothing is generated."""
        plan = self.state.plan_cache(prompt, self.asked)
        answer = PlayedAnswer(
            id=f"msg_rehearsal_{self.number:06d}",
            model=prompt.card.id,
            blocks=(),
            stop_reason="max_tokens",
            use=plan.use,
            output_tokens=0,
        )
        self.state.begin(plan, None, None)
        self._send_answer(answer, None)

    # the other endpoints

    def _answer_endpoint(self, name: str, answer: Callable[[], Mapping[str, Any] | ApiError]) -> None:
        self.fault = self.state.find_endpoint_fault(name)
        if self.fault is not None and self.fault.kind is FaultName.STALL:
            self.connection.wait(self.fault.options.get("seconds"))
        elif self.fault is not None:
            self._play_before(self.fault, 0, 0)
            return
        result = answer()
        if isinstance(result, ApiError):
            self._refuse(result)
            return
        self._record(200)
        self._send_json(200, result, {})

    def _count_tokens(self) -> Mapping[str, Any] | ApiError:
        if not self.state.script.dialect.counts_tokens:
            return ApiError(status=404, message="404 page not found")
        prompt = self._read_request(counting=True)
        return prompt if isinstance(prompt, ApiError) else {"input_tokens": prompt.tokens}

    def _get_model(self, model: str) -> Mapping[str, Any] | ApiError:
        card = find_card(model, self.state.script.cards)
        if card is None:
            return ApiError(status=404, message=f"model: {model}")
        if "x-goog-api-key" in self.headers:
            return render_google_model(card)
        lists = self.state.script.dialect.lists_limits and not self._is_foreign
        return render_model_info(card) if lists else render_model_name(card)

    # sending

    def _play_before(self, fault: FaultSpec, tokens: int, window: int) -> None:
        """Play a fault that replaces the answer."""
        if fault.kind is FaultName.DROP:
            self._record(0)
            end_connection(self.connection, fault.options.get("how", "rst"))
        error = render_fault_error(fault, prompt_tokens=tokens, window_tokens=window)
        form = fault.options.get("body", "json")
        if form == "json":
            self._refuse(error)
            return
        self._record(error.status)
        headers = self._headers() | dict(error.headers) | {"content-type": "text/html"}
        self.connection.start(error.status, headers)
        self.connection.write(_HTML if form == "html" else b"")
        self.connection.finish_body()

    def _refuse(self, error: ApiError) -> None:
        body = render_error(error, self.request_id)
        if self.other is not None:
            error = map_error(error)
            body = self.other.api.error(error)
        self._record(error.status)
        self._send_json(error.status, body, error.headers)

    def _send_json(self, status: int, value: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        data = dump(value).encode(errors="surrogatepass")
        sizes = {"content-type": "application/json", "content-length": str(len(data))}
        self.connection.start(status, self._headers() | sizes | dict(headers))
        self.connection.write(data)
        self.connection.finish_body()

    def _headers(self) -> dict[str, str]:
        return {
            "relay-rehearsal": "1",
            "request-id": self.request_id,
            "anthropic-organization-id": "rehearsal",
            "anthropic-ratelimit-requests-limit": "4000",
            "anthropic-ratelimit-requests-remaining": "3999",
        }

    def _record(self, status: int, *, stop_reason: str = "") -> None:
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

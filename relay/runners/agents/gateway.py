"""The HTTP server between an agent and its endpoint: on a Unix socket, forwarding answers as they stream.

The gateway holds each request to a model until the session releases it, so every request is counted before it is sent.
A request of the session's own conversation shows that all of the agent's tools have ended. The gateway changes two
things only: it adds the key, which the agent never holds, and it lowers the output limit where the caps leave less.
Everything of an endpoint besides its models is out of reach.
"""

import contextlib
import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from dataclasses import asdict, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from relay.base.http_peer import MAX_BODY_BYTES, HttpPeer, MalformedError
from relay.base.redaction import redact
from relay.base.values import dataclass
from relay.runners.agents.dialects import (
    MESSAGES,
    ModelRequest,
    Tally,
    may_pass,
    read_request,
    shorten_answer,
)
from relay.runners.messages.answers import StreamBrokenError
from relay.runners.messages.connection import Fault, FaultKind
from relay.runners.messages.credentials import CredentialError
from relay.runners.messages.endpoint import PLAIN, Way
from relay.runners.messages.faults import judge_event, judge_failure, judge_status, name_cause
from relay.runners.messages.reading import most_answer_bytes
from relay.session.tape import KeepNote

if TYPE_CHECKING:
    import httpx2

    from relay.runners.messages.client import SdkWire
    from relay.runners.messages.transport import PlainWire

MAX_HELD_BYTES = 128 * 1024 * 1024
"""Most bytes of all open requests, with the unfinished lines of their answers."""
_ANSWER_TOKENS = 128_000
"""Longest answer of a request without a limit."""
_EVENT_SHARE = 4
"""How much larger an event may be than one of the Messages API: Chat's repeat the model, Responses' the text."""
_MODEL = re.compile(r"\w[\w.:/@-]*")
"""A model's name that may become part of an address."""
_SENT = re.compile(
    r"accept|accept-language|content-type|user-agent|originator|version|openai-beta|http-referer|thread-id"
    r"|anthropic-(?:version|beta|dangerous-direct-browser-access)|(?:agent-)?session[_-]id|x-goog-api-client"
    r"|x-(?:app|title|initiator|interaction|client|session|stainless|claude-code|codex)(?:-.+)?"
)
"""Request headers that pass: who asks, and what for. The others are keys, name who pays, or lead elsewhere."""
_LOGIN = frozenset({"authorization", "x-api-key", "chatgpt-account-id"})
_QUERY = re.compile(r"(?:beta|alt|limit|(?:after|before)_id|pageSize|pageToken|api-version|client_version)=[\w.-]*")
_TOLD = re.compile(r"content-type|retry-after(?:-ms)?|x-should-retry|(?:x-)?request-id")
"""Answer headers that an agent needs. The others name the owner of the key, and what is left of its limits."""
_CODINGS = frozenset({"", "identity", "gzip", "deflate"})


class _RejectedError(Exception):
    """The gateway answers a request itself."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRequest:
    """A request that waits for the session's decision."""

    request: ModelRequest
    release: "Future[int | str | None]" = field(default_factory=Future)
    """Result: a text refuses the request with these words, a number sends it with that output limit, None sends it as
    it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A request that was released, and is over."""

    request: ModelRequest
    tally: Tally | None
    """The answer as far as it came; None if the endpoint refused or was not reached."""
    fault: Fault | None
    """None for a complete answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRequest:
    """A request for something that no endpoint may do for a session."""

    words: str


Told = HeldRequest | Passed | RejectedRequest


@dataclass(slots=True, kw_only=True)
class Route:
    """Where the gateway sends requests, and what its connections share. Mutable: memory is taken and given back."""

    wire: "PlainWire | SdkWire"
    """Knows address and key."""
    mark: bytes
    """A text that only the session's own conversation contains."""
    secrets: tuple[str, ...]
    """Texts to remove from errors that come back."""
    tell: Callable[[Told], None]
    """Called twice for each request that a model answers, and once for each refused one; on a thread of its own."""
    way: Way = PLAIN
    """The kind of endpoint, and what proves who asks."""
    keep: KeepNote = lambda _: None
    """Takes notes of each request and answer, for the tape."""
    hide: Callable[[str], str] = str
    """Removes from a request what no model may see: an agent reads files itself."""
    turns: Lock = field(default_factory=Lock)
    """Held by each request of the session's own conversation: an agent gets an answer before its cost is counted, and
    its next request would be judged without that cost."""
    least_bytes: int = 0
    """A shorter request is not of the conversation: half of its first request, which was sent before any tool ran and
    which every later one contains. The mark is no secret: a command may find it in the agent's files, and use it."""
    lock: Lock = field(default_factory=Lock)
    """Keeps the notes of two requests apart."""
    taking: Lock = field(default_factory=Lock)
    left_bytes: int = MAX_HELD_BYTES
    """Memory that is left for all connections together."""
    reading: Lock = field(default_factory=Lock)
    """Held while a request is decoded: it then takes many times its size."""
    passes_login: bool = False
    """Whether the agent's own login goes with its requests, in place of relay's key."""
    api_key: str = ""
    """Replaces the ``x-api-key`` of an agent that sends one; empty for other agents."""

    def take(self, size: int) -> bool:
        """Take bytes of memory, or give them back if negative; return False if there are not enough."""
        with self.taking:
            is_free = size <= self.left_bytes
            self.left_bytes -= size if is_free else 0
            return is_free


def serve_agent(route: Route, connection: socket.socket) -> None:
    """Answer the requests of one connection, one after another."""
    peer = HttpPeer(connection)
    try:
        while peer.read_head():
            _Exchange(peer, route).answer()
    except MalformedError as error:
        _refuse(peer, 400, str(error))


class _Exchange:
    """One request and its answer. Mutable: takes memory."""

    def __init__(self, peer: HttpPeer, route: Route) -> None:
        self.peer = peer
        self.route = route
        self.command, self.path, self.headers = peer.command, peer.path, peer.headers
        self.held = 0
        """Bytes taken from the gateway's memory."""

    def answer(self) -> None:
        """Hold the request, forward it, or refuse it."""
        try:
            body = self._read_body()
            request = self._read_request(body)
            if request is None:
                self._forward(body, None)
            else:
                with self.route.turns if request.is_main else contextlib.nullcontext():
                    self._hold(request, body)
        except _RejectedError as refusal:
            _refuse(self.peer, refusal.status, str(refusal))
        finally:
            self._take(-self.held)

    def _take(self, size: int) -> bool:
        is_free = self.route.take(size)
        self.held += size if is_free else 0
        return is_free

    def _read_body(self) -> bytes:
        body = bytearray()
        if int(self.headers.get("content-length", 0)) > MAX_BODY_BYTES:
            raise _RejectedError(413, "the request is too large")
        for chunk in self.peer.read_body():
            if len(body) + len(chunk) > MAX_BODY_BYTES:
                raise _RejectedError(413, "the request is too large")
            if not self._take(len(chunk)):
                raise _RejectedError(503, "too many large requests are under way")
            body += chunk
        with self.route.reading:
            return self.route.hide(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _read_request(self, body: bytes) -> ModelRequest | None:
        if not may_pass(self.command, self.path):
            raise _RejectedError(404, f"relay's gateway does not forward {self.command} {self.path[:100]}")
        try:
            with self.route.reading:
                request = read_request(self.path, body, self.route.mark)
            self._require_fit(request)
        except ValueError as error:
            self.route.tell(RejectedRequest(words=str(error)))
            raise _RejectedError(400, str(error)) from None
        is_posing = request and request.is_main and request.prompt_bytes < self.route.least_bytes
        return replace(request, is_main=False) if request and is_posing else request

    def _require_fit(self, request: ModelRequest | None) -> None:
        """Refuse what a cloud has no place for: model and stream are part of the addresses there.

        Raises:
            ValueError: It asks for no stream, or its model can be part of no address.
        """
        way = self.route.way
        if request is None and not way.family.lists_models:
            raise _RejectedError(404, f"provider = {way.family.name} answers nothing but messages")
        fits = request is None or (request.is_streamed and _MODEL.fullmatch(request.model))
        if way.family.names_model and not fits:
            raise ValueError(f"provider = {way.family.name} is asked for nothing but streams of a model")

    def _hold(self, request: ModelRequest, body: bytes) -> None:
        held = HeldRequest(request=request)
        self.route.tell(held)
        try:
            said = held.release.result()
        except CancelledError:
            said = "the session has ended"
        if isinstance(said, str):
            raise _RejectedError(400, said)
        sent = request
        if request.is_main:
            self.route.least_bytes = self.route.least_bytes or request.prompt_bytes // 2
        if said is not None:
            with self.route.reading:
                sent, body = replace(request, max_output_tokens=said), shorten_answer(body, request.dialect, said)
        tally: Tally | None = None
        fault: Fault | None = None
        try:
            tally, fault = self._forward(body, sent)
        finally:
            self._keep(body, tally, fault)
            self.route.tell(Passed(request=request, tally=tally, fault=fault))

    def _keep(self, body: bytes, tally: Tally | None, fault: Fault | None) -> None:
        made: dict[str, Any] = {"kind": "answer", "path": self.path}
        if tally:
            usage = asdict(tally.usage) if tally.usage else None
            made |= {"model": tally.model, "stop_reason": tally.stop_reason, "usage": usage}
        if fault:
            made |= {"fault": fault.kind.value, "words": fault.message}
        with self.route.lock:
            self.route.keep({"kind": "request", "body": json.loads(body)})
            self.route.keep(made)

    def _forward(self, body: bytes, request: ModelRequest | None) -> tuple[Tally | None, Fault | None]:
        import httpx2

        tally = None
        try:
            with self._send(body) as response:
                if not response.is_success:
                    return None, self._pass_error(response)
                coding = response.headers.get("content-encoding", "")
                if coding.lower() not in _CODINGS:
                    raise httpx2.DecodingError(f"the endpoint compresses its answer unasked, as {coding[:100]}")
                chunks = self.route.wire.read(response)
                streamed = "event-stream" in response.headers.get("content-type", "")
                tally = Tally(dialect=request.dialect if request else MESSAGES, streamed=streamed)
                heard = self._pass(response, chunks, tally, (request and request.max_output_tokens) or _ANSWER_TOKENS)
        except UnicodeEncodeError as error:  # half a character, which a cloud's client cannot write; nothing was sent
            fault = Fault(kind=FaultKind.REQUEST, message=f"the request holds a text that is no UTF-8: {error.reason}")
            _refuse(self.peer, 400, fault.message)
            return None, fault
        except (CredentialError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, StreamBrokenError) as error:
            fault = judge_failure(error, self._clean(name_cause(error)))
            if tally is None:
                _refuse(self.peer, 401 if fault.kind is FaultKind.USER else 502, fault.message)
            return tally, fault  # the answer breaks off for the agent as well, which judges for itself
        tally.close()
        return tally, None if request is None else _judge(tally, heard=heard)

    def _send(self, body: bytes) -> AbstractContextManager["httpx2.Response"]:
        """Return the request to be sent: a context manager of the response, before its body is read.

        Raises:
            httpx2.HTTPError: The endpoint was not reached, or its answer cannot be read.
            CredentialError: There is no key.
        """
        login = _LOGIN if self.route.passes_login else ()
        headers = {name: value for name, value in self.headers.items() if _SENT.fullmatch(name) or name in login}
        headers |= {"accept-encoding": "identity"}
        if self.route.api_key and "x-api-key" in self.headers:
            headers["x-api-key"] = self.route.api_key
        bare, _, query = self.path.removeprefix(self.route.way.family.root).partition("?")
        known = "&".join(filter(_QUERY.fullmatch, query.split("&")))
        with self.route.reading:
            return self.route.wire.forward(self.command, f"{bare}?{known}" if known else bare, headers, body)

    def _pass(self, response: "httpx2.Response", chunks: Iterator[bytes], tally: Tally, output_tokens: int) -> bool:
        """Forward an answer; return False if the agent left, so that the endpoint can stop.

        Raises:
            httpx2.StreamError: The answer is longer than was asked for.
        """
        import httpx2

        heard = self.peer.begin(response.status_code, _choose_headers(response.headers))
        left_bytes = _EVENT_SHARE * most_answer_bytes(output_tokens)
        for chunk in chunks:
            left_bytes -= len(chunk)
            if left_bytes < 0:
                raise httpx2.StreamError(f"the answer is longer than the {output_tokens:,} tokens that it may have")
            held = tally.held_bytes
            tally.feed(chunk)
            if not self._take(tally.held_bytes - held):
                tally.forget()
            if not (heard and self.peer.send(chunk)):
                return False
        return self.peer.end()

    def _pass_error(self, response: "httpx2.Response") -> Fault:
        fault = judge_status(response, self.route.way.family, self.route.way.credential)
        said = self._clean(response.content.decode(errors="replace")).encode()
        self.peer.answer(response.status_code, _choose_headers(response.headers), said)
        return replace(fault, message=self._clean(fault.message))

    def _clean(self, text: str) -> str:
        """Redact a text, also the values so far of a credential, which the environment does not hold."""
        own = self.route.way.credential.secrets if self.route.way.credential else ()
        return redact(text, environ_values=(*self.route.secrets, *own))


def _refuse(peer: HttpPeer, status: int, words: str) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": f"relay: {words}"}}
    peer.answer(status, [("content-type", "application/json")], json.dumps(error).encode())


def _choose_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if _TOLD.fullmatch(name.lower())]


def _judge(tally: Tally, *, heard: bool) -> Fault | None:
    if tally.error is not None:
        return judge_event({"error": tally.error}, tally.usage, has_begun=tally.parts > 1)
    if not tally.is_complete:
        return Fault(kind=FaultKind.INFRA, message="the answer broke off", usage=tally.usage, may_be_billed=True)
    if not heard:
        return Fault(kind=FaultKind.INFRA, message="the agent did not wait for the answer", usage=tally.usage)
    return None

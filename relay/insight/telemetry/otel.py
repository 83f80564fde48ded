"""Turn a log's events into OpenTelemetry spans, and send them to a collector (OTLP over HTTP, protobuf).

`Spans` is pure and holds no content of a session. It makes the SDK's values without its tracers, because a log is sent
later than the work, and sending it twice must give the same spans: times are those of the log, and ids follow from the
run's id. The names of the GenAI conventions are in development
(open-telemetry/semantic-conventions-genai, November 2026), so they stand here as constants.

A run is ``invoke_workflow``, a session ``invoke_agent``, an answer ``chat``, and so is a request that kept the cache
warm (``relay.refresh``); a tool call is ``execute_tool``, a gate is ``relay.gate``. A session has the last state of its
context as ``relay.context.…``, named as in the event `ResponseReceived`.

The SDK's exporter reports only success or failure, and repeats a request for up to ten seconds. relay reports why a
request failed and what helps, and a run waits only a moment for it: so `_Session` tries once.
"""

import hashlib
import http.client
import logging
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind
from opentelemetry.trace.status import Status, StatusCode

from relay import __version__
from relay.session import events
from relay.session.records import LoggedEvent
from relay.session.usage import Usage

SCOPE = InstrumentationScope("relay")
OPERATION = "gen_ai.operation.name"
WORKFLOW = "gen_ai.workflow.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT = "gen_ai.usage.input_tokens"
OUTPUT = "gen_ai.usage.output_tokens"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"
REASONING = "gen_ai.usage.reasoning.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
ERROR = "error.type"
_OF_CONTEXT = ("turn", "fill_tokens", "soft_tokens", "turns_left")
OWN_RUNNER = frozenset({"", "api"})
"""Names of relay's own loop, which speaks Anthropic's API; agents may speak others."""
_MOST_NANO = 2**63 - 1


class Spans:
    """Folds a log into spans. Mutable: holds the open run and session.

    Args:
        resource: Attributes of relay and the run.
    """

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._run: LoggedEvent | None = None
        self._session: LoggedEvent | None = None
        self._noted: list[Event] = []
        self._answered: events.ResponseReceived | None = None
        self._last_at = 0.0

    def take(self, record: LoggedEvent) -> Iterator[ReadableSpan]:
        """Take the next event; yield the spans that end with it."""
        self._last_at = record.at
        event = record.event
        match event:
            case events.RunStarted():
                self._run = record
            case events.SessionStarted():
                yield from self._end_session(record.at, None)  # a session that was cut off has no end
                self._session, self._noted, self._answered = record, [], None
            case events.GaugeCrossed() | events.CacheBroken() | events.RetryScheduled() | events.Committed():
                self._noted.append(Event(f"relay.{type(event).__name__}", timestamp=render_nano(record.at)))
            case events.ResponseReceived() | events.ToolFinished() | events.GateFinished():
                yield from self._end_part(record, event)
            case events.SessionEnded():
                yield from self._end_session(record.at, event)
            case events.RunEnded():
                yield from self._end_run(record.at, event)
            case _:
                pass

    def finish(self) -> Iterator[ReadableSpan]:
        """Yield the spans of a killed relay's session and run, up to the last event."""
        yield from self._end_session(self._last_at, None)
        yield from self._end_run(self._last_at, None)

    def _end_part(
        self, record: LoggedEvent, event: events.ResponseReceived | events.ToolFinished | events.GateFinished
    ) -> Iterator[ReadableSpan]:
        times = record.at - event.duration_s, record.at
        said: dict[str, Any]
        match event:
            case events.ResponseReceived():
                self._answered = event if event.turn else self._answered
                provider = _find_provider(self._session.event if self._session else None)
                said = {**_describe_answer(event), CONVERSATION: record.scope.session_id, PROVIDER: provider}
                if self._run is not None and isinstance(self._run.event, events.RunStarted):
                    said[REQUEST_MODEL] = self._run.event.model
                key = f"turn {record.scope.session_id} {event.turn} {record.at}"
                yield self._make(f"chat {event.model}", key, times, said, kind=SpanKind.CLIENT)
            case events.ToolFinished():
                failed = {ERROR: "tool_error"} if event.is_error else {}
                said = {OPERATION: "execute_tool", TOOL: event.name, TOOL_CALL: event.call_id, **failed}
                key = f"tool {record.scope.session_id} {event.call_id}"
                yield self._make(f"execute_tool {event.name}", key, times, said, failed=event.is_error)
            case events.GateFinished():
                said = {"relay.phase": event.phase_id, "relay.gate.passed": event.passed}
                said["relay.gate.model"] = event.baseline
                yield self._make("relay.gate", f"gate {record.at}", times, said)

    def _end_session(self, at: float, event: events.SessionEnded | None) -> Iterator[ReadableSpan]:
        session, self._session = self._session, None
        if session is None or not isinstance(session.event, events.SessionStarted):
            return
        begun = session.event
        said: dict[str, Any] = {OPERATION: "invoke_agent", AGENT: "relay", CONVERSATION: begun.session_id}
        said |= {"relay.phase": begun.phase_id, "relay.number": begun.number}
        said["relay.result"] = event.result if event else "unknown"
        if event is not None:
            said |= {**_describe_usage(event.usage), "relay.cost_usd": event.cost_usd}
        if self._answered is not None:
            said |= {f"relay.context.{name}": getattr(self._answered, name) for name in _OF_CONTEXT}
        failed = event is None or event.result in {"failed", "blocked"}
        key = f"session {begun.session_id}"
        yield self._make(
            "invoke_agent relay", key, (session.at, at), said, failed=failed, above="run", noted=self._noted
        )

    def _end_run(self, at: float, event: events.RunEnded | None) -> Iterator[ReadableSpan]:
        run, self._run = self._run, None
        if run is None or not isinstance(run.event, events.RunStarted):
            return
        name = f"relay {run.event.command}"
        said: dict[str, Any] = {OPERATION: "invoke_workflow", WORKFLOW: name, "relay.run": run.event.run_id}
        said |= {"relay.exit_code": event.exit_code if event else None, "relay.rehearsed": run.event.rehearsed}
        failed = not event or event.exit_code != 0
        self._run = run  # `_make` derives ids from it
        yield self._make(f"invoke_workflow {name}", "run", (run.at, at), said, failed=failed, above="")
        self._run = None

    def _make(  # noqa: PLR0913  # a span is all of these
        self,
        name: str,
        key: str,
        times: tuple[float, float],
        said: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        failed: bool = False,
        above: str | None = None,
        noted: Sequence[Event] = (),
    ) -> ReadableSpan:
        run = self._run
        run_key = f"{run.scope.run_id} {run.at}" if run else ""
        trace_id = _digest(run_key, 16)

        def refer(to: str) -> SpanContext:
            return SpanContext(trace_id, _digest(f"{run_key} {to}", 8), is_remote=False)

        if above is None:
            above = f"session {self._session.scope.session_id}" if self._session else "run"
        return ReadableSpan(
            name=_clean(name),
            context=refer(key),
            parent=refer(above) if above else None,
            resource=self._resource,
            attributes=render_attributes(said),
            events=tuple(noted),
            kind=kind,
            status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
            start_time=render_nano(times[0]),
            end_time=render_nano(max(times)),
            instrumentation_scope=SCOPE,
        )


def _find_provider(session: events.Event | None) -> str | None:
    """Return the provider of a session's API, given its start; None if an agent may speak another."""
    return "anthropic" if not isinstance(session, events.SessionStarted) or session.runner in OWN_RUNNER else None


def _describe_answer(event: events.ResponseReceived) -> dict[str, Any]:
    said: dict[str, Any] = {OPERATION: "chat", RESPONSE_MODEL: event.model, "relay.cost_usd": event.cost_usd}
    said |= {} if event.usage is None or event.estimated else _describe_usage(event.usage)
    return {**said, FINISH_REASONS: [event.stop_reason], "relay.fill_tokens": event.fill_tokens}


def _describe_usage(usage: Usage) -> dict[str, Any]:
    """Input tokens include cache reads and writes, as the conventions want it."""
    return {
        INPUT: usage.prompt_tokens,
        OUTPUT: usage.output_tokens,
        CACHE_READ: usage.cache_read_tokens,
        CACHE_WRITE: usage.cache_write_tokens,
        REASONING: usage.thinking_tokens,
    }


def render_attributes(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes for the SDK; an unknown value (None) is left out, never 0."""
    return {
        name: _clean(value) if isinstance(value, str) else value for name, value in said.items() if value is not None
    }


def _clean(text: str) -> str:
    """Protobuf takes no lone surrogate, which JSON in a log may hold."""
    return text.encode("utf-8", "replace").decode()


def render_nano(at: float) -> int:
    """Return seconds since the epoch in nanoseconds, within the range of OTLP."""
    return min(max(0, round(at * 1e6) * 1000), _MOST_NANO)


def _digest(key: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "replace")).digest()[:size], "big")


DEFAULT = "http://localhost:4318"
TIMEOUT_S = 10.0
"""For each step of a request, as in OTLP's exporters."""
_BATCH = 512
"""Spans per request, as in the SDK's batches."""
_MOST_ANSWER_BYTES = 1 << 16
_CREDENTIALS = "OTEL_EXPORTER_OTLP_HEADERS has the credentials: name=value,name=value"
_ADDRESS = f"the address is that of OTLP over HTTP, whose port is 4318, without /v1/traces: {DEFAULT}"
_PROTOBUF = "relay sends OTLP as protobuf; an OpenTelemetry Collector in between turns it into other forms"
_HINTS = {400: _PROTOBUF, 401: _CREDENTIALS, 403: _CREDENTIALS, 404: _ADDRESS, 405: _ADDRESS, 415: _PROTOBUF}

# The SDK would print each failure to stderr, and header settings that it cannot read, credentials included.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


class CollectorError(Exception):
    """A collector did not take a request."""

    def __init__(self, words: str, *, hint: str) -> None:
        super().__init__(words)
        self.hint = hint


class _Session(requests.Session):
    """Sends each request once and follows no redirect. Mutable: keeps why the last request failed."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = True  # so that an endless answer is not read
        self.auth = _leave  # else requests would send what ~/.netrc has for that host
        self.headers["Connection"] = "close"
        self.failure: CollectorError | None = None

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> requests.Response:
        """Send a request.

        Raises:
            CollectorError: The collector did not take all of it. The exporter repeats no request that fails with it.
        """
        try:
            with super().request(method, url, *args, **options) as answer:
                said = answer.raw.read(_MOST_ANSWER_BYTES, decode_content=True)
                self.failure = _judge(url, answer, said)
                if self.failure is None:
                    return answer
        except (OSError, ValueError, http.client.HTTPException) as error:
            cause, hint = _explain(error)
            self.failure = CollectorError(f"nothing was sent to {url}: {cause}", hint=hint)
        raise self.failure


def _leave(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _judge(url: str, answer: requests.Response, said: bytes) -> CollectorError | None:
    """Return the error of an answer; None if all was taken."""
    if not 200 <= answer.status_code < 300:  # noqa: PLR2004  # HTTP's successes
        words = " ".join(said[: 1 << 10].decode("utf-8", "replace").split())[:200]
        return CollectorError(
            f"the collector at {url} answered {answer.status_code} {answer.reason}: {words or 'no more'}",
            hint=_HINTS.get(answer.status_code, ""),
        )
    if rejected := find_rejected(said):
        return CollectorError(f"the collector at {url} took a part only: {rejected}", hint="")
    return None


def find_rejected(said: bytes) -> str:
    """Return how much of a request a collector rejected, and why; empty if it took all or answers otherwise."""
    try:
        partial = ExportTraceServiceResponse.FromString(said).partial_success
    except DecodeError:
        return ""
    return f"{partial.rejected_spans} rejected: {partial.error_message[:200]}" if partial.rejected_spans else ""


def _explain(error: BaseException) -> tuple[str, str]:
    """Return why there was no answer, and a hint."""
    causes = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    match causes[-1]:
        case ConnectionRefusedError():
            return "nobody listens there", "start the collector, or name another with --endpoint"
        case socket.gaierror():
            return "no host has that name", "--endpoint names another"
        case TimeoutError():
            return "no answer in time", "is it a collector, and is a firewall in between?"
        case http.client.HTTPException() | ConnectionResetError():
            return "who listens there speaks no HTTP", _ADDRESS  # gRPC, most likely
        case root:
            return str(root) or type(root).__name__, _ADDRESS


class Collector:
    """An address that takes OTLP over HTTP.

    Args:
        endpoint: Without the path.
        environ: ``OTEL_EXPORTER_OTLP_HEADERS`` (``name=value,name=value``, values percent-encoded) is read from it. The
            SDK reads its other ``OTEL_EXPORTER_OTLP_*`` variables from the process.
        timeout_s: For each step of a request.
    """

    def __init__(self, endpoint: str, environ: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        self.endpoint = endpoint.rstrip("/")
        # Not by the SDK's reader, which drops a value with one of ",;\ in it.
        pairs = (
            pair.partition("=") for pair in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if "=" in pair
        )
        headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
        self._session = _Session()
        self._spans = OTLPSpanExporter(
            f"{self.endpoint}/v1/traces", headers=headers, timeout=timeout_s, session=self._session
        )

    def send(self, spans: Sequence[ReadableSpan]) -> None:
        """Send spans in one request.

        Raises:
            CollectorError: They were not taken, or not all.
        """
        if self._spans.export(spans) is not SpanExportResult.SUCCESS:
            raise self._session.failure or CollectorError("they cannot be written as OTLP", hint="")


def send_log(records: Iterable[LoggedEvent], collector: Collector, run_id: str) -> int:
    """Send the spans of a log, and return their number. Without an end, run and session end with the last event.

    Raises:
        CollectorError: Something was not taken; what was sent before it stays sent.
    """
    spans = Spans(Resource({"service.name": "relay", "service.version": __version__, "service.instance.id": run_id}))
    sent, batch = 0, list[ReadableSpan]()
    for record in records:
        batch += spans.take(record)
        if len(batch) >= _BATCH:
            collector.send(batch)
            sent += len(batch)
            batch.clear()
    batch += spans.finish()
    if batch:
        collector.send(batch)
    return sent + len(batch)

"""Turn a log's events into OpenTelemetry spans, and send them to a collector (OTLP over HTTP, protobuf).

`Spans` holds no content of a session. A log is sent later than the work, and sending it twice gives the same spans: the
SDK's tracer gets times from the log, and ids from the run's id and the event's place in the log. The names of the GenAI
conventions are in development (open-telemetry/semantic-conventions-genai, November 2026), so they stand here as
constants.

A run is ``invoke_workflow``, a session ``invoke_agent``, an answer ``chat``, and so is a request that kept the cache
warm (``relay.refresh``); a tool call is ``execute_tool``, a gate is ``relay.gate``. A session has the last state of its
context as ``relay.context.…``, named as in the event `ResponseReceived`.

The SDK's exporter reports only success or failure, and repeats a request for up to ten seconds. relay reports why a
request failed and what helps, and a run waits only a moment for it: so `_Session` tries once.
"""

import hashlib
import http.client
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import requests
from google.protobuf.message import DecodeError
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, set_span_in_context

from relay import __version__
from relay.base.errors import ConfigError
from relay.session import events
from relay.session.records import LoggedEvent
from relay.session.usage import Usage

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


class _Ids(IdGenerator):
    """Ids that follow from the event with which a span begins. Mutable: `key` names that event."""

    key = ""

    def generate_span_id(self) -> int:
        """Return 8 bytes."""
        return self._digest(8)

    def generate_trace_id(self) -> int:
        """Return 16 bytes."""
        return self._digest(16)

    def _digest(self, size: int) -> int:
        return int.from_bytes(hashlib.blake2b(_clean(self.key).encode(), digest_size=size).digest(), "big")


class Spans:
    """Folds a log into spans. Mutable: holds the open run and session, and the ended spans that nobody took.

    Args:
        run_id: Of the log.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id, self._ids, self._ended = run_id, _Ids(), InMemorySpanExporter()
        said = {"service.name": "relay", "service.version": __version__, "service.instance.id": run_id}
        provider = TracerProvider(resource=Resource(said), id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self._tracer = provider.get_tracer("relay")
        self._run: Span = INVALID_SPAN
        self._session: Span = INVALID_SPAN
        self._model: str | None = None
        self._runner = ""
        self._context: dict[str, Any] = {}
        self._position, self._at = 0, 0.0

    def take(self, record: LoggedEvent) -> None:
        """Take the next event."""
        self._position, self._at = self._position + 1, record.at
        self._ids.key = f"{self._run_id} {self._position} {record.at}"
        event = record.event
        said: dict[str, Any]
        match event:
            case events.RunStarted():
                self.finish()
                self._model = event.model
                name = f"relay {event.command}"
                said = {OPERATION: "invoke_workflow", WORKFLOW: name, "relay.run": event.run_id}
                said["relay.rehearsed"] = event.rehearsed
                self._run = self._begin(f"invoke_workflow {name}", said, above=INVALID_SPAN)
            case events.SessionStarted():
                self._end_session(None)  # a session that was cut off has no end
                self._runner, self._context = event.runner, {}
                said = {OPERATION: "invoke_agent", AGENT: "relay", CONVERSATION: event.session_id}
                said |= {"relay.phase": event.phase_id, "relay.number": event.number}
                self._session = self._begin("invoke_agent relay", said, above=self._run)
            case events.GaugeCrossed() | events.CacheBroken() | events.RetryScheduled() | events.Committed():
                if self._session.is_recording():
                    self._session.add_event(f"relay.{type(event).__name__}", timestamp=render_nano(record.at))
            case events.ResponseReceived():
                if event.turn:
                    self._context = {f"relay.context.{name}": getattr(event, name) for name in _OF_CONTEXT}
                said = {OPERATION: "chat", CONVERSATION: record.scope.session_id, REQUEST_MODEL: self._model}
                said |= {RESPONSE_MODEL: event.model, FINISH_REASONS: [event.stop_reason]}
                said |= {"relay.cost_usd": event.cost_usd, "relay.fill_tokens": event.fill_tokens}
                said |= {} if event.usage is None or event.estimated else _describe_usage(event.usage)
                said[PROVIDER] = "anthropic" if self._runner in OWN_RUNNER else None
                self._add_part(f"chat {event.model}", said, event.duration_s, kind=SpanKind.CLIENT)
            case events.ToolFinished():
                said = {OPERATION: "execute_tool", TOOL: event.name, TOOL_CALL: event.call_id}
                said[ERROR] = "tool_error" if event.is_error else None
                self._add_part(f"execute_tool {event.name}", said, event.duration_s, failed=event.is_error)
            case events.GateFinished():
                said = {"relay.phase": event.phase_id, "relay.gate.passed": event.passed}
                said["relay.gate.baseline"] = event.baseline
                self._add_part("relay.gate", said, event.duration_s)
            case events.SessionEnded():
                self._end_session(event)
            case events.RunEnded():
                self._end_run(event)
            case _:
                pass

    def finish(self) -> None:
        """End the session and the run of a killed relay with the last event."""
        self._end_run(None)

    def take_ended(self) -> Sequence[ReadableSpan]:
        """Return the spans that ended since the last call."""
        ended = self._ended.get_finished_spans()
        self._ended.clear()
        return ended

    def _add_part(
        self,
        name: str,
        said: Mapping[str, Any],
        took_s: float,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        failed: bool = False,
    ) -> None:
        above = self._session if self._session.is_recording() else self._run
        self._end(self._begin(name, said, above=above, at=self._at - took_s, kind=kind), {}, failed=failed)

    def _end_session(self, event: events.SessionEnded | None) -> None:
        said: dict[str, Any] = {"relay.result": event.result if event else "unknown", **self._context}
        if event is not None:
            said |= {**_describe_usage(event.usage), "relay.cost_usd": event.cost_usd}
        self._end(self._session, said, failed=event is None or event.result in {"failed", "blocked"})

    def _end_run(self, event: events.RunEnded | None) -> None:
        self._end_session(None)
        said = {"relay.exit_code": event.exit_code if event else None}
        self._end(self._run, said, failed=event is None or event.exit_code != 0)

    def _begin(
        self,
        name: str,
        said: Mapping[str, Any],
        *,
        above: Span,
        at: float | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        """Begin a span now, or at an earlier time."""
        return self._tracer.start_span(
            _clean(name),
            set_span_in_context(above, Context()),
            kind,
            render_attributes(said),
            start_time=render_nano(self._at if at is None else min(at, self._at)),
        )

    def _end(self, span: Span, said: Mapping[str, Any], *, failed: bool) -> None:
        """End a span now, unless it has ended; a clock that went back ends it when it began."""
        if not isinstance(span, ReadableSpan) or not span.is_recording():
            return
        span.set_attributes(render_attributes(said))
        if failed:
            span.set_status(StatusCode.ERROR)
        span.end(max(span.start_time or 0, render_nano(self._at)))


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


DEFAULT = "http://localhost:4318"
TIMEOUT_S = 10.0
"""For each step of a request, as in OTLP's exporters."""
_BATCH = 512
"""Events per request, most of which end no span; the SDK's batches have as many spans."""
_MOST_ANSWER_BYTES = 1 << 16
_HINT = (
    f"OTEL_EXPORTER_OTLP_ENDPOINT is the address of OTLP over HTTP, as protobuf, without /v1/traces: {DEFAULT}; "
    "OTEL_EXPORTER_OTLP_HEADERS has the credentials: name=value,name=value"
)

# The SDK would print each failure to stderr, and header settings that it cannot read, credentials included.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


class _Session(requests.Session):
    """Sends each request once and follows no redirect. Mutable: keeps why the last request failed."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = True  # so that an endless answer is not read
        self.auth = lambda request: request  # else requests would send what ~/.netrc has for that host
        self.headers["Connection"] = "close"
        self.failure: ConfigError | None = None

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> requests.Response:
        """Send a request.

        Raises:
            ConfigError: The collector did not take all of it. The exporter repeats no request that fails with it.
        """
        try:
            with super().request(method, url, *args, **options) as answer:
                said = answer.raw.read(_MOST_ANSWER_BYTES, decode_content=True)
        except (OSError, ValueError, http.client.HTTPException) as error:
            root: BaseException = error
            while cause := root.__cause__ or root.__context__:
                root = cause
            words = f"nothing was sent to {url}: {str(root) or type(root).__name__}"
        else:
            first = " ".join(said[: 1 << 10].decode("utf-8", "replace").split())[:200] or "no more"
            is_taken = 200 <= answer.status_code < 300  # noqa: PLR2004  # HTTP's successes
            refused = find_rejected(said) if is_taken else f"{answer.status_code} {answer.reason}: {first}"
            if not refused:
                return answer
            words = f"the collector at {url} answered {refused}"
        self.failure = ConfigError(words, hint=_HINT)
        raise self.failure


def find_rejected(said: bytes) -> str:
    """Return how much of a request a collector rejected, and why; empty if it took all or answers otherwise."""
    try:
        partial = ExportTraceServiceResponse.FromString(said).partial_success
    except DecodeError:
        return ""
    return f"{partial.rejected_spans} rejected: {partial.error_message[:200]}" if partial.rejected_spans else ""


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

    def send(self, spans: Sequence[ReadableSpan]) -> int:
        """Send spans, if there are any, in one request, and return their number.

        Raises:
            ConfigError: They were not taken, or not all.
        """
        if spans and self._spans.export(spans) is not SpanExportResult.SUCCESS:
            raise self._session.failure or ConfigError("they cannot be written as OTLP")
        return len(spans)


def send_log(records: Iterable[LoggedEvent], collector: Collector, run_id: str) -> int:
    """Send the spans of a log, and return their number. Without an end, run and session end with the last event.

    Raises:
        ConfigError: Something was not taken; what was sent before it stays sent.
    """
    spans, sent = Spans(run_id), 0
    for position, record in enumerate(records, 1):
        spans.take(record)
        if position % _BATCH == 0:
            sent += collector.send(spans.take_ended())
    spans.finish()
    return sent + collector.send(spans.take_ended())

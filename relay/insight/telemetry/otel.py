"""Turn a log's events into OpenTelemetry spans and metrics; send them to a collector (OTLP over HTTP, protobuf).

`Spans` and `Metrics` are pure and hold no content of a session. They make the SDK's values without its tracers and
meters, because a log is sent later than the work, and sending it twice must give the same spans: times are those of the
log, and ids follow from the run's id. The names of the GenAI conventions are in development
(open-telemetry/semantic-conventions-genai, November 2026), so they stand here as constants.

A run is ``invoke_workflow``, a session ``invoke_agent``, an answer ``chat``, and so is a request that kept the cache
warm (``relay.refresh``); a tool call is ``execute_tool``, a gate is ``relay.gate``. A session has the last state of its
context as ``relay.context.…``, named as in the event `ResponseReceived`.

Metrics are cumulative from the run's start. ``gen_ai.client.token.usage``, ``gen_ai.client.operation.duration``,
``gen_ai.invoke_agent.duration`` and ``gen_ai.execute_tool.duration`` have the names and bucket bounds of the
conventions as of November 2026. relay's own are ``relay.cost`` (USD), ``relay.gate.duration`` and ``relay.items``
(ticked).

The SDK's exporter reports only success or failure, and repeats a request for up to ten seconds. relay reports why a
request failed and what helps, and a run waits only a moment for it: so `_Session` tries once, and `Export` keeps spans
that can be sent later for its next push.
"""

import hashlib
import http.client
import logging
import socket
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import inf
from typing import Any
from urllib.parse import unquote

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind
from opentelemetry.trace.status import Status, StatusCode

from relay import __version__
from relay.base.values import dataclass
from relay.insight.telemetry.log import LogTail
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


TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  # no password
TOKEN_BOUNDS = tuple(float(4**n) for n in range(14))
SECOND_BOUNDS = tuple(round(0.01 * 2**n, 2) for n in range(14))
MOST_SERIES = 1_000
"""Per run; further series of a hostile log are not counted."""
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_Labels = tuple[tuple[str, Any], ...]


@dataclass(slots=True)
class _Series:
    """One time series of a metric. Mutable: it grows."""

    count: int = 0
    sum: float = 0.0
    least: float = inf
    most: float = 0.0
    buckets: list[int] = field(default_factory=list)


_UNITS = {
    "gen_ai.client.token.usage": ("{token}", TOKEN_BOUNDS),
    "gen_ai.client.operation.duration": ("s", SECOND_BOUNDS),
    "gen_ai.invoke_agent.duration": ("s", SECOND_BOUNDS),
    "gen_ai.execute_tool.duration": ("s", SECOND_BOUNDS),
    "relay.gate.duration": ("s", SECOND_BOUNDS),
    "relay.cost": ("{USD}", ()),
    "relay.items": ("{item}", ()),
}
"""Each metric's unit and the upper bounds of its buckets; a metric without bounds is a sum."""


class Metrics:
    """Folds a log into metrics. Mutable: holds the sums so far."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, _Labels], _Series] = {}
        self._began = self._at = 0.0
        self._model = ""
        self._session: tuple[float, events.SessionStarted] | None = None

    def take(self, record: LoggedEvent) -> None:
        """Take the next event."""
        self._began, self._at, event = self._began or record.at, record.at, record.event
        said: dict[str, Any]
        match event:
            case events.RunStarted():
                self._model = event.model
            case events.SessionStarted():
                self._session = record.at, event
            case events.ResponseReceived():
                self._take_answer(event)
            case events.ToolFinished():
                failed: dict[str, Any] = {ERROR: "tool_error"} if event.is_error else {}
                self._add("gen_ai.execute_tool.duration", event.duration_s, {TOOL: event.name, **failed})
            case events.GateFinished():
                said = {"relay.gate.passed": event.passed, "relay.gate.model": event.baseline}
                self._add("relay.gate.duration", event.duration_s, said)
            case events.Committed():
                self._add("relay.items", len(event.items), {})
            case events.SessionEnded() if self._session is not None:
                said = {OPERATION: "invoke_agent", AGENT: "relay", "relay.result": event.result}
                self._add("gen_ai.invoke_agent.duration", record.at - self._session[0], said)
                self._session = None
            case _:
                pass

    def _take_answer(self, event: events.ResponseReceived) -> None:
        said = {
            OPERATION: "chat",
            PROVIDER: _find_provider(self._session[1] if self._session else None),
            REQUEST_MODEL: self._model or None,
            RESPONSE_MODEL: event.model or None,
        }
        self._add("gen_ai.client.operation.duration", event.duration_s, said)
        if event.cost_usd is not None:
            self._add("relay.cost", event.cost_usd, said)
        if event.usage is not None and not event.estimated:
            self._add("gen_ai.client.token.usage", event.usage.prompt_tokens, {**said, TOKEN_TYPE: "input"})
            self._add("gen_ai.client.token.usage", event.usage.output_tokens, {**said, TOKEN_TYPE: "output"})

    def _add(self, name: str, value: float, said: dict[str, Any]) -> None:
        key = name, tuple(said.items())
        if key not in self._series and len(self._series) >= MOST_SERIES:
            return
        bounds = _UNITS[name][1]
        series = self._series.setdefault(key, _Series(buckets=[0] * (len(bounds) + 1)))
        value = max(0.0, value)
        series.count += 1
        series.sum += value
        series.least, series.most = min(series.least, value), max(series.most, value)
        series.buckets[bisect_left(bounds, value)] += 1

    def render(self) -> list[Metric]:
        """Return the metrics so far; empty before the first number."""
        found: dict[str, list[Any]] = {}
        for (name, labels), series in self._series.items():
            found.setdefault(name, []).append(self._render_point(_UNITS[name][1], dict(labels), series))
        return [_render(name, points) for name, points in found.items()]

    def _render_point(
        self, bounds: tuple[float, ...], labels: dict[str, Any], series: _Series
    ) -> HistogramDataPoint | NumberDataPoint:
        attributes, began, at = render_attributes(labels), render_nano(self._began), render_nano(self._at)
        if not bounds:
            return NumberDataPoint(attributes, began, at, series.sum)
        return HistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=began,
            time_unix_nano=at,
            count=series.count,
            sum=series.sum,
            bucket_counts=series.buckets,
            explicit_bounds=bounds,
            min=series.least,
            max=series.most,
        )


def _render(name: str, points: list[Any]) -> Metric:
    unit, bounds = _UNITS[name]
    data = Histogram(points, _CUMULATIVE) if bounds else Sum(points, _CUMULATIVE, is_monotonic=True)
    return Metric(name, None, unit, data)


DEFAULT = "http://localhost:4318"
TIMEOUT_S = 10.0
"""For each step of a request, as in OTLP's exporters."""
_BATCH = 512
"""Spans per request, as in the SDK's batches."""
_MOST_WAITING = 10_000
"""Spans kept while a collector is away."""
_MOST_ANSWER_BYTES = 1 << 16
_REFUSED = 400
_LATER = frozenset({0, 429, 502, 503, 504})
"""Statuses that OTLP calls retryable; 0 is no answer."""
_NO_METRICS = frozenset({404, 405})
_CREDENTIALS = "OTEL_EXPORTER_OTLP_HEADERS has the credentials: name=value,name=value"
_ADDRESS = f"the address is that of OTLP over HTTP, whose port is 4318, without /v1/traces: {DEFAULT}"
_PROTOBUF = "relay sends OTLP as protobuf; an OpenTelemetry Collector in between turns it into other forms"
_HINTS = {400: _PROTOBUF, 401: _CREDENTIALS, 403: _CREDENTIALS, 404: _ADDRESS, 405: _ADDRESS, 415: _PROTOBUF}

# The SDK would print each failure to stderr, and header settings that it cannot read, credentials included.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


class CollectorError(Exception):
    """A collector did not take a request.

    Args:
        status: The HTTP status of its answer; 0 for no answer.
    """

    def __init__(self, words: str, *, hint: str, status: int = 0) -> None:
        super().__init__(words)
        self.hint = hint
        self.status = status


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
            status=answer.status_code,
        )
    if rejected := find_rejected(said):
        return CollectorError(f"the collector at {url} took a part only: {rejected}", hint="", status=_REFUSED)
    return None


def find_rejected(said: bytes) -> str:
    """Return how much of a request a collector rejected, and why; empty if it took all or answers otherwise.

    The answers to spans and to metrics have the same field numbers.
    """
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
        self._metrics = OTLPMetricExporter(
            f"{self.endpoint}/v1/metrics", headers=headers, timeout=timeout_s, session=self._session
        )

    def send_spans(self, spans: Sequence[ReadableSpan]) -> None:
        """Send spans in one request.

        Raises:
            CollectorError: They were not taken, or not all.
        """
        self._require(self._spans.export(spans) is SpanExportResult.SUCCESS)

    def send_metrics(self, metrics: MetricsData) -> None:
        """Send metrics in one request.

        Raises:
            CollectorError: They were not taken, or not all.
        """
        self._require(self._metrics.export(metrics) is MetricExportResult.SUCCESS)

    def _require(self, was_taken: bool) -> None:  # noqa: FBT001  # of one request
        failure, self._session.failure = self._session.failure, None
        if not was_taken:
            raise failure or CollectorError("they cannot be written as OTLP", hint="", status=_REFUSED)


class Export:
    """Sends a growing log. Mutable: knows what was sent."""

    def __init__(self, log: LogTail, collector: Collector, run_id: str) -> None:
        self._log, self._collector = log, collector
        self._resource = Resource(
            {"service.name": "relay", "service.version": __version__, "service.instance.id": run_id}
        )
        self._spans, self._metrics = Spans(self._resource), Metrics()
        self._waiting: list[ReadableSpan] = []
        self.sent = self.lost = 0
        self.takes_metrics = True

    def push(self, *, last: bool = False) -> None:
        """Send the events since the last time.

        Args:
            last: The log is complete: a run or session without an end ends with the last event.

        Raises:
            CollectorError: Something was not taken. It is sent the next time, if that can help.
        """
        failed: CollectorError | None = None
        for record in self._log.read():  # to its end, whatever fails: what is not read now is not read again
            self._metrics.take(record)
            self._waiting += self._spans.take(record)
            if len(self._waiting) >= _BATCH and failed is None:
                failed = self._send_spans()
            self.lost += len(self._waiting[:-_MOST_WAITING])
            del self._waiting[:-_MOST_WAITING]
        if last:
            self._waiting += self._spans.finish()
        failed = failed or self._send_spans() or self._send_metrics()
        if failed is not None:
            raise failed

    def _send_spans(self) -> CollectorError | None:
        while batch := self._waiting[:_BATCH]:
            try:
                self._collector.send_spans(batch)
            except CollectorError as error:
                if error.status not in _LATER:  # nor will it be taken the next time
                    self.lost += len(batch)
                    del self._waiting[:_BATCH]
                return error
            self.sent += len(batch)
            del self._waiting[:_BATCH]
        return None

    def _send_metrics(self) -> CollectorError | None:
        found = self._metrics.render()
        if not found or not self.takes_metrics:
            return None
        scoped = ScopeMetrics(SCOPE, found, "")
        try:
            self._collector.send_metrics(MetricsData([ResourceMetrics(self._resource, [scoped], "")]))
        except CollectorError as error:
            self.takes_metrics = error.status not in _NO_METRICS
            return error if self.takes_metrics else None
        return None

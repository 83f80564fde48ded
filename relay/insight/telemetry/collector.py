"""Send spans and metrics to an OpenTelemetry collector with the exporters of its SDK (OTLP over HTTP, as protobuf).

The SDK's exporter reports only success or failure, and repeats a request for up to ten seconds. relay reports why a
request failed and what helps, and its run waits only a moment: so `_Session` tries once, and `Export` keeps spans that
can be sent later for its next push.
"""

import http.client
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from relay import __version__
from relay.insight.telemetry.log import LogTail
from relay.insight.telemetry.otel import SCOPE, Metrics, Spans

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

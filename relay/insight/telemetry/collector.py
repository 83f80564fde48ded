"""Send a log, as `relay.insight.telemetry.otel` renders it, to an OpenTelemetry collector: finished or growing.

OTLP over HTTP, as JSON, which the Collector and most others take; with the extra ``relay[otel]`` as protobuf, where one
answers 415 or OTEL_EXPORTER_OTLP_PROTOCOL wants it. While a run goes on a thread reads its log from the file: the run
waits for nothing, ids are those that `relay otel` gives the finished log, and what is not taken now can be sent later.
"""

import base64
import contextlib
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from relay import __version__
from relay.base.words import count
from relay.config.extras import advise_extra
from relay.insight.telemetry.log_tail import LogTail
from relay.insight.telemetry.metrics import Metrics
from relay.insight.telemetry.otel import Spans, render_metrics, render_spans
from relay.session.events import Noticed, Observe

DEFAULT = "http://localhost:4318"
TIMEOUT_S = 10.0
"""For each step of a request, as OTLP's exporters have it."""
EVERY_S = 5.0
"""How often a log that grows is looked at."""
LAST_S = 3.0
"""How long the end of a run waits for what is still to be sent."""
_BATCH = 512
_MOST_WAITING = 10_000
"""Spans that are kept for a collector that is away."""
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_UNSUPPORTED = 415
_LATER = frozenset({0, 429, 502, 503, 504})
"""What OTLP calls retryable; 0 is no answer."""
_NO_METRICS = frozenset({404, 405})
_REQUESTS = {
    "traces": ("trace.v1.trace", "ExportTraceServiceRequest"),
    "metrics": ("metrics.v1.metrics", "ExportMetricsServiceRequest"),
}
_CREDENTIALS = "OTEL_EXPORTER_OTLP_HEADERS has the credentials: name=value,name=value"
_ADDRESS = f"the address is that of OTLP over HTTP, whose port is 4318, without /v1/traces: {DEFAULT}"
_HINTS = {
    400: "where it takes protobuf only: {install}, and OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    401: _CREDENTIALS,
    403: _CREDENTIALS,
    404: _ADDRESS,
    405: _ADDRESS,
    _UNSUPPORTED: "it takes no JSON: {install} has relay speak protobuf",
}


class CollectorError(Exception):
    """A collector did not take what was sent.

    Args:
        status: What it answered; 0 for nothing.
    """

    def __init__(self, words: str, *, hint: str, status: int = 0) -> None:
        super().__init__(words)
        self.hint = hint
        self.status = status


class Collector:
    """An address that takes OTLP over HTTP. Mutable: learns which form it takes.

    Args:
        endpoint: Without the path.
        environ: ``OTEL_EXPORTER_OTLP_HEADERS`` (``name=value,name=value``, values as in an address) and
            ``OTEL_EXPORTER_OTLP_PROTOCOL`` of it are read.
        timeout_s: For each step of a request.
    """

    def __init__(self, endpoint: str, environ: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        self.endpoint = endpoint.rstrip("/")
        pairs = (
            pair.partition("=") for pair in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if "=" in pair
        )
        self._headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
        wish = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "http/protobuf"
        self._form = _PROTOBUF if wish and _can_protobuf() else _JSON
        self._timeout_s = timeout_s

    def send(self, kind: str, body: Mapping[str, Any]) -> None:
        """Send ``traces`` or ``metrics``.

        Raises:
            CollectorError: They were not taken, or not all.
        """
        try:
            self._post(kind, body)
        except CollectorError as error:
            if error.status != _UNSUPPORTED or self._form != _JSON or not _can_protobuf():
                raise
            self._form = _PROTOBUF
            self._post(kind, body)

    def _post(self, kind: str, body: Mapping[str, Any]) -> None:
        url = f"{self.endpoint}/v1/{kind}"
        data = json.dumps(body).encode() if self._form == _JSON else render_protobuf(kind, body)
        try:
            request = urllib.request.Request(url, data=data, headers={**self._headers, "Content-Type": self._form})  # noqa: S310  # http(s) only
            with _make_opener().open(request, timeout=self._timeout_s) as answer:
                rejected = find_rejected(answer.read(1 << 16))
        except urllib.error.HTTPError as error:
            with error:
                said = " ".join(error.read(1 << 10).decode("utf-8", "replace").split())[:200]
            words = f"the collector at {url} answered {error.code} {error.reason}: {said or 'no more'}"
            hint = _HINTS.get(error.code, "").replace("{install}", advise_extra("otel"))
            raise CollectorError(words, hint=hint, status=error.code) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            cause, hint = _explain(error)
            raise CollectorError(f"nothing was sent to {url}: {cause}", hint=hint) from None
        if rejected:
            raise CollectorError(
                f"the collector at {url} took a part of the {kind} only: {rejected}", hint="", status=400
            )


def _make_opener() -> urllib.request.OpenerDirector:
    """Return what follows no redirect: credentials go where the user sent them, and nowhere else."""
    wanted = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
    ):
        wanted.add_handler(handler())
    return wanted


def _explain(error: Exception) -> tuple[str, str]:
    """Return why there was no answer, and what helps."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    match cause:
        case ConnectionRefusedError():
            return "nobody listens there", "start the collector, or name another with --endpoint"
        case socket.gaierror():
            return "no host has that name", "--endpoint names another"
        case TimeoutError():
            return "no answer in time", "is it a collector, and is a firewall in between?"
        case http.client.HTTPException() | ConnectionResetError() if not isinstance(cause, http.client.InvalidURL):
            return "who listens there speaks no HTTP", _ADDRESS  # gRPC, most likely
        case _:
            return str(cause) or type(cause).__name__, _ADDRESS


def find_rejected(said: bytes) -> str:
    """Return what a collector says of what it did not take; empty where it took all, or says it in another form."""
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        partial = json.loads(said).get("partialSuccess") or {}
        rejected = int(partial.get("rejectedSpans") or partial.get("rejectedDataPoints") or 0)
        return f"{rejected} rejected: {str(partial.get('errorMessage'))[:200]}" if rejected else ""
    return ""


def _can_protobuf() -> bool:
    with contextlib.suppress(ImportError):
        return import_module("opentelemetry.proto") is not None
    return False


def render_protobuf(kind: str, body: Mapping[str, Any]) -> bytes:
    """Return a body as protobuf.

    Raises:
        ImportError: The extra ``relay[otel]`` is not there.
    """
    place, name = _REQUESTS[kind]
    request = getattr(import_module(f"opentelemetry.proto.collector.{place}_service_pb2"), name)()
    made: bytes = import_module("google.protobuf.json_format").ParseDict(_encode_ids(body), request).SerializeToString()
    return made


def _encode_ids(value: Any) -> Any:
    """Write ids as protobuf's own JSON form has bytes, which OTLP's form has as hexadecimal digits."""
    if isinstance(value, Mapping):
        return {
            name: base64.b64encode(bytes.fromhex(item)).decode()
            if name.endswith(("traceId", "panId"))
            else _encode_ids(item)
            for name, item in value.items()
        }
    return [_encode_ids(item) for item in value] if isinstance(value, list) else value


class Export:
    """Sends one log, as far as it is written. Mutable: knows what was sent."""

    def __init__(self, log: LogTail, collector: Collector, run_id: str) -> None:
        self._log, self._collector = log, collector
        self._about = {
            "service.name": "relay",
            "service.version": __version__,
            "service.instance.id": run_id,
        }
        self._spans, self._metrics = Spans(), Metrics()
        self._waiting: list[dict[str, Any]] = []
        self.sent = self.lost = 0
        self.takes_metrics = True

    def push(self, *, last: bool = False) -> None:
        """Send what was written since the last time.

        Args:
            last: Nothing more is written: what has no end of its own ends with the last event.

        Raises:
            CollectorError: What was not taken is sent the next time, where that can help.
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
                self._collector.send("traces", render_spans(batch, self._about))
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
        try:
            self._collector.send("metrics", render_metrics(found, self._about))
        except CollectorError as error:
            self.takes_metrics = error.status not in _NO_METRICS
            return error if self.takes_metrics else None
        return None


@contextmanager
def exporting(
    log: LogTail, collector: Collector, run_id: str, tell: Observe, *, last_s: float = LAST_S
) -> Iterator[None]:
    """Send a log while it grows; at its end what is left has a moment, and what failed is told.

    Args:
        log: Closed at the end.
        tell: Told, once, what was not sent.
        last_s: How long the end waits.
    """
    export, ended, failures = Export(log, collector, run_id), threading.Event(), list[str]()

    def push(*, last: bool) -> None:
        try:
            export.push(last=last)
            failures.clear()
        except CollectorError as error:
            failures.append(str(error))

    def work() -> None:
        with log:
            while not ended.wait(EVERY_S):
                push(last=False)
            push(last=True)

    thread = threading.Thread(target=work, name="otel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(last_s)
        if thread.is_alive():
            failures.append(f"{collector.endpoint} did not take the last of it in time")
        if failures or export.lost:
            words = failures[-1] if failures else f"{count(export.lost, 'span')} were lost while it was away"
            again = f"`relay otel {run_id} --endpoint {collector.endpoint}` sends the whole run"
            tell(Noticed(text=f"telemetry: {words}; {again}", warning=True))

"""Turn the events of a log into OpenTelemetry metrics, as values of its SDK: cumulative from the run's start. Pure.

Of the GenAI conventions: ``gen_ai.client.token.usage``, ``gen_ai.client.operation.duration``,
``gen_ai.invoke_agent.duration`` and ``gen_ai.execute_tool.duration``, with their names and bucket bounds as of November
2026. relay's own: ``relay.cost`` (USD), ``relay.gate.duration`` and ``relay.items`` (ticked).
"""

from bisect import bisect_left
from dataclasses import field
from math import inf
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

from relay.base.values import dataclass
from relay.insight.telemetry.otel import (
    AGENT,
    ERROR,
    OPERATION,
    OWN_RUNNER,
    PROVIDER,
    REQUEST_MODEL,
    RESPONSE_MODEL,
    TOOL,
    render_attributes,
    render_nano,
)
from relay.session import events
from relay.session.records import LoggedEvent

TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  # no password
TOKEN_BOUNDS = tuple(float(4**n) for n in range(14))
SECOND_BOUNDS = tuple(round(0.01 * 2**n, 2) for n in range(14))
MOST_SERIES = 1_000
"""Of a run; what a hostile log names beyond that is not counted."""
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_Labels = tuple[tuple[str, Any], ...]


@dataclass(slots=True)
class _Series:
    """One row of numbers. Mutable: it grows."""

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
"""Of each metric its unit, and the upper bounds of its buckets; without any it is a sum."""


class Metrics:
    """Folds a log into metrics. Mutable: holds the sums so far."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, _Labels], _Series] = {}
        self._began = self._at = 0.0
        self._model = ""
        self._leg: tuple[float, events.LegStarted] | None = None

    def take(self, record: LoggedEvent) -> None:
        """Take the next event."""
        self._began, self._at, event = self._began or record.at, record.at, record.event
        said: dict[str, Any]
        match event:
            case events.RunStarted():
                self._model = event.model
            case events.LegStarted():
                self._leg = record.at, event
            case events.ResponseReceived() | events.CacheRefreshed():
                self._take_answer(event)
            case events.ToolFinished():
                failed: dict[str, Any] = {ERROR: "tool_error"} if event.is_error else {}
                self._add("gen_ai.execute_tool.duration", event.duration_s, {TOOL: event.name, **failed})
            case events.GateFinished():
                said = {"relay.gate.passed": event.passed, "relay.gate.model": event.baseline}
                self._add("relay.gate.duration", event.duration_s, said)
            case events.Committed():
                self._add("relay.items", len(event.items), {})
            case events.LegEnded() if self._leg is not None:
                said = {OPERATION: "invoke_agent", AGENT: "relay", "relay.result": event.result}
                self._add("gen_ai.invoke_agent.duration", record.at - self._leg[0], said)
                self._leg = None
            case _:
                pass

    def _take_answer(self, event: events.ResponseReceived | events.CacheRefreshed) -> None:
        own = self._leg is None or self._leg[1].runner in OWN_RUNNER
        said = {
            OPERATION: "chat",
            PROVIDER: "anthropic" if own else None,
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

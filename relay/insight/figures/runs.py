"""A run as its events come in."""

from collections import deque
from dataclasses import replace

from relay.insight.figures.composition import TokenSource, add_sources
from relay.insight.figures.series import RUN_POINTS, thin
from relay.insight.figures.tallies import KEPT_WARNINGS, Sum, add_totals
from relay.insight.figures.values import LegFigures, RunFigures
from relay.session.events import CacheRefreshed, ResponseReceived, RetryScheduled, RunEnded, RunStarted
from relay.session.records import LoggedEvent

MOST_LEGS = 1_000
"""Sessions of a run that are kept; of more the oldest are in its totals only."""


class RunTally:
    """Figures of one run as they grow. Mutable: that is its purpose.

    Args:
        started: What it began with; None where the log has lost that.
    """

    def __init__(self, run_id: str, began: float, started: RunStarted | None) -> None:
        self.run_id = run_id
        self.last_at = began
        self.sum = Sum()
        self._began = began
        self._started = started
        self._ended: tuple[float, RunEnded] | None = None
        self._legs: deque[LegFigures] = deque(maxlen=MOST_LEGS)
        self._left_out = 0
        self._points = 0
        self._warnings: list[str] = []

    def end(self, at: float, event: RunEnded) -> None:
        """Take the end of the run."""
        self._ended = at, event

    def warn(self, text: str) -> None:
        """Keep a warning."""
        if len(self._warnings) < KEPT_WARNINGS and text not in self._warnings:
            self._warnings.append(text)

    def take_outside(self, record: LoggedEvent) -> None:
        """Take what happened outside of any session: a planner's trial, a log that lost the beginning of one."""
        match record.event:
            case ResponseReceived() as event:
                self.sum.answer(event)
                if event.usage is not None and event.usage.prompt_tokens:
                    add_sources(self.sum.sources, [(TokenSource.OTHER, event.usage.prompt_tokens)])
            case CacheRefreshed() as event:
                self.sum.refresh(event)
                add_sources(self.sum.sources, [(TokenSource.OTHER, event.usage.prompt_tokens)])
            case RetryScheduled() as event:
                self.sum.retry(event)
            case _:
                pass

    def add_leg(self, leg: LegFigures) -> None:
        """Take a session that is over."""
        self.sum.add(leg.totals)
        self._left_out += len(self._legs) == MOST_LEGS
        self._legs.append(leg)
        self._points += len(leg.series) + len(leg.spans)
        if self._points > RUN_POINTS:
            self._thin()

    def _thin(self) -> None:
        """Keep half of the points of all sessions."""
        legs = [
            replace(
                leg,
                series=thin(leg.series, lambda point: point.fill_tokens or 0),
                spans=thin(leg.spans, lambda span: span.duration_s),
            )
            for leg in self._legs
        ]
        self._legs = deque(legs, maxlen=MOST_LEGS)
        self._points = sum(len(leg.series) + len(leg.spans) for leg in legs)

    def render(self, working: LegFigures | None) -> RunFigures:
        """Return what it comes to so far.

        Args:
            working: The session that works now.
        """
        started, (ended_at, ended) = self._started, self._ended or (None, None)
        legs = (*self._legs, *([working] if working else []))
        return RunFigures(
            run_id=self.run_id,
            command=started.command if started else "",
            model=started.model if started else "",
            plan_path=started.plan_path if started else "",
            branch=started.branch if started else "",
            sandbox=started.sandbox if started else "",
            context=started.context if started else "",
            rehearsed=bool(started and started.rehearsed),
            cap_usd=started.cap_usd if started else None,
            spent_before_usd=started.spent_usd if started else None,
            began=self._began,
            ended=ended_at,
            last_at=self.last_at,
            exit_code=ended.exit_code if ended else None,
            reason=ended.reason if ended else "",
            next_command=ended.next_command if ended else "",
            questions=ended.questions if ended else (),
            totals=add_totals(self.sum.totals, *([working.totals] if working else [])),
            legs=legs,
            legs_left_out=self._left_out,
            warnings=tuple(self._warnings),
        )

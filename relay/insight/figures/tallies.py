"""Counts that grow event by event, each with a bound on what it keeps."""

import heapq
from dataclasses import replace
from itertools import count

from relay.insight.figures.composition import add_sources
from relay.insight.figures.values import MONEY, CostlyResult, LogFigures, ToolFigures, Totals, rank
from relay.session.events import CacheRefreshed, ResponseReceived, RetryScheduled
from relay.session.usage import Spent, Usage, add_usd

COSTLIEST = 10
"""Results that are kept of each tool."""
MOST_TOOLS = 200
"""Tools with figures of their own; what a hostile log names beyond that is one tool, ``(others)``."""
KEPT_WARNINGS = 100
OTHERS = "(others)"
SUMMARY_CHARS = 200
FOR_A_SCREEN = frozenset({"TextShown", "PlanShown", "Noticed", "GaugeCrossed", "HostAsked"})
"""Events that no figure of tokens is made from."""


class Sum:
    """`Totals` as they grow. Mutable: that is its purpose."""

    def __init__(self) -> None:
        self.spent = Spent()
        self.sources: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.usd: dict[str, float | None] = dict.fromkeys(MONEY, 0.0)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a number of `Totals`."""
        self.numbers[name] = self.numbers.get(name, 0) + by

    def wait(self, name: str, seconds: float) -> None:
        """Add to a duration of `Totals`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def answer(self, event: ResponseReceived) -> None:
        """Add a response."""
        self.spent += Spent(usage=event.usage or Usage(), cost_usd=event.cost_usd, estimated=event.estimated)
        self.count("turns")
        self.count("unknown_turns", event.usage is None)
        self.wait("answer_s", event.duration_s)

    def retry(self, event: RetryScheduled) -> None:
        """Add a wait for another try."""
        self.count("retries", event.attempt > 0)
        self.wait("retries_s", event.wait_s)

    def refresh(self, event: CacheRefreshed) -> None:
        """Add what kept the cache warm."""
        self.spent += Spent(usage=event.usage, cost_usd=event.cost_usd, estimated=event.estimated)
        self.count("refreshes")
        self.pay("refresh_usd", event.cost_usd)

    def pay(self, name: str, usd: float | None) -> None:
        """Add to a sum of money of `Totals`; unknown stays unknown."""
        self.usd[name] = add_usd(self.usd[name], usd)

    def add(self, totals: Totals) -> None:
        """Add what was summed elsewhere."""
        self.spent += totals.spent
        add_sources(self.sources, totals.sources)
        for name in MONEY:
            self.pay(name, getattr(totals, name))
        for name in _NUMBERS:
            self.count(name, getattr(totals, name))
        for name in _SECONDS:
            self.wait(name, getattr(totals, name))

    @property
    def totals(self) -> Totals:
        """What it comes to."""
        # The two kinds of numbers and the money are fields of `Totals` by their names; a typo would raise.
        return replace(Totals(spent=self.spent, sources=rank(self.sources)), **self.numbers, **self.seconds, **self.usd)  # type: ignore[arg-type]


_SECONDS = tuple(name for name in Totals.__dataclass_fields__ if name.endswith("_s"))
_NUMBERS = tuple(name for name in Totals.__dataclass_fields__ if name not in {"spent", "sources", *MONEY, *_SECONDS})


def add_totals(*found: Totals) -> Totals:
    """Add up."""
    total = Sum()
    for totals in found:
        total.add(totals)
    return total.totals


class ToolTally:
    """Figures of tools as they grow. Mutable: that is its purpose."""

    def __init__(self) -> None:
        self._figures: dict[str, ToolFigures] = {}
        self._costliest: dict[str, list[tuple[int, int, CostlyResult]]] = {}
        self._serial = count(step=-1)

    def name(self, tool: str) -> str:
        """Return the name that a tool is counted under."""
        return tool if tool in self._figures or len(self._figures) < MOST_TOOLS else OTHERS

    def end(self, tool: str, *, is_error: bool, duration_s: float) -> None:
        """Count a call."""
        self.add(ToolFigures(name=tool, calls=1, errors=int(is_error), duration_s=duration_s))

    def weigh(self, result: CostlyResult, *, duplicate: bool) -> None:
        """Count the tokens of a result, now that they are known."""
        self.add(
            ToolFigures(
                name=result.tool,
                result_tokens=result.tokens,
                duplicates=int(duplicate),
                duplicate_tokens=result.tokens * duplicate,
                costliest=(result,),
            )
        )

    def add(self, figures: ToolFigures) -> None:
        """Add what was counted elsewhere."""
        name = self.name(figures.name)
        own = self._figures.get(name) or ToolFigures(name=name)
        self._figures[own.name] = replace(
            own,
            calls=own.calls + figures.calls,
            errors=own.errors + figures.errors,
            duration_s=own.duration_s + figures.duration_s,
            result_tokens=own.result_tokens + figures.result_tokens,
            duplicates=own.duplicates + figures.duplicates,
            duplicate_tokens=own.duplicate_tokens + figures.duplicate_tokens,
        )
        for result in figures.costliest:
            self._keep(own.name, result)

    def _keep(self, name: str, result: CostlyResult) -> None:
        heap = self._costliest.setdefault(name, [])
        heapq.heappush(heap, (result.tokens, next(self._serial), result))
        if len(heap) > COSTLIEST:
            heapq.heappop(heap)

    @property
    def figures(self) -> tuple[ToolFigures, ...]:
        """All tools, most tokens first."""
        found = (
            replace(tool, costliest=tuple(result for *_, result in sorted(self._costliest.get(name, ()), reverse=True)))
            for name, tool in self._figures.items()
        )
        return tuple(sorted(found, key=lambda tool: (-tool.result_tokens, -tool.calls, tool.name)))


class LogTally:
    """The lines of a log as they are read. Mutable: that is its purpose."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[int, int]] = {}

    def add(self, kind: str, size_bytes: int) -> None:
        """Count a line."""
        lines, size = self._kinds.get(kind, (0, 0))
        self._kinds[kind] = lines + 1, size + size_bytes

    @property
    def figures(self) -> LogFigures:
        """What they come to."""
        kinds = [(kind, lines, size) for kind, (lines, size) in self._kinds.items()]
        kinds.sort(key=lambda kind: (-kind[2], kind[0]))
        return LogFigures(
            lines=sum(lines for _, lines, _ in kinds),
            size_bytes=sum(size for *_, size in kinds),
            noise_bytes=sum(size for kind, _, size in kinds if kind in FOR_A_SCREEN),
            kinds=tuple(kinds),
        )

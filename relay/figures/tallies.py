"""Counts that grow event by event, each with a bound on what it keeps."""

import heapq
from dataclasses import replace
from itertools import count

from relay.figures.composition import add_sources
from relay.figures.values import MONEY, CostlyResult, LogFigures, ToolFigures, Totals, rank
from relay.session.events import CacheRefreshed
from relay.session.usage import Spent, Usage

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
        self.usage = Usage()
        self.cost_usd: float | None = 0.0
        self.estimated = False
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

    def charge(self, usage: Usage, cost_usd: float | None, *, estimated: bool) -> None:
        """Add a response."""
        self.usage += usage
        self.cost_usd = None if cost_usd is None or self.cost_usd is None else self.cost_usd + cost_usd
        self.estimated = self.estimated or estimated

    def refresh(self, event: CacheRefreshed) -> None:
        """Add what kept the cache warm."""
        self.charge(event.usage, event.cost_usd, estimated=event.estimated)
        self.count("refreshes")
        self.pay("refresh_usd", event.cost_usd)

    def pay(self, name: str, usd: float | None) -> None:
        """Add to a sum of money of `Totals`; unknown stays unknown."""
        before = self.usd[name]
        self.usd[name] = None if usd is None or before is None else before + usd

    def add(self, totals: Totals) -> None:
        """Add what was summed elsewhere."""
        self.charge(totals.spent.usage, totals.spent.cost_usd, estimated=totals.spent.estimated)
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
        spent = Spent(usage=self.usage, cost_usd=self.cost_usd, estimated=self.estimated)
        # The two kinds of numbers and the money are fields of `Totals` by their names; a typo would raise.
        return replace(Totals(spent=spent, sources=rank(self.sources)), **self.numbers, **self.seconds, **self.usd)  # type: ignore[arg-type]


_SECONDS = tuple(name for name in Totals.__dataclass_fields__ if name.endswith("_s"))
_NUMBERS = tuple(name for name in Totals.__dataclass_fields__ if name not in {"spent", "sources", *MONEY, *_SECONDS})


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
        figures = self._find(tool)
        self._figures[figures.name] = replace(
            figures,
            calls=figures.calls + 1,
            errors=figures.errors + is_error,
            duration_s=figures.duration_s + duration_s,
        )

    def weigh(self, result: CostlyResult, *, duplicate: bool) -> None:
        """Count the tokens of a result, now that they are known."""
        figures = self._find(result.tool)
        self._figures[figures.name] = replace(
            figures,
            result_tokens=figures.result_tokens + result.tokens,
            duplicates=figures.duplicates + duplicate,
            duplicate_tokens=figures.duplicate_tokens + result.tokens * duplicate,
        )
        self._keep(figures.name, result)

    def add(self, figures: ToolFigures) -> None:
        """Add what was counted elsewhere."""
        own = self._find(figures.name)
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

    def _find(self, tool: str) -> ToolFigures:
        name = self.name(tool)
        return self._figures.get(name) or ToolFigures(name=name)

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

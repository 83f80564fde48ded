"""The prompt cache, as documented; pure: the time is an argument.

Source: platform.claude.com build-with-claude/prompt-caching, 2026-08-22. The rules in one place:

* A marked block writes one entry: the hash of the whole prefix that ends there. No other position is written.
* A read walks back from each marked block, 20 positions counting itself, looking for an entry that an earlier
  request wrote; later marks first, so the first hit is the longest.
* Prefixes shorter than the model's minimum are neither written nor billed as writes.
* Read tokens = the longest hit A; 1-hour writes = up to the last 1-hour mark B after A; 5-minute writes = from
  there to the last mark C; the rest is plain input.
* Lifetime counts from the *start* of the request that wrote or read the entry. An entry can be read once the
  response of the request that wrote it has begun.
* Each model has its own cache.
"""

from dataclasses import field
from enum import StrEnum

from relay.base.values import dataclass

LOOKBACK_BLOCKS = 20


class Ttl(StrEnum):
    """Lifetime of a cache entry, spelled as on the wire."""

    FIVE_MINUTES = "5m"
    ONE_HOUR = "1h"

    @property
    def seconds(self) -> float:
        """The lifetime in seconds."""
        return 3600.0 if self is Ttl.ONE_HOUR else 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One block of a prompt, seen by the cache."""

    key: str
    """Hash of everything up to and including the block."""
    tokens: int
    """Tokens up to and including the block."""
    ttl: Ttl | None = None
    """Set where the block is marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """How the tokens of one prompt divide; the four classes add up to the prompt."""

    input_tokens: int
    read_tokens: int = 0
    write_5m_tokens: int = 0
    write_1h_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """What one request reads, and what it will write once its response begins."""

    use: CacheUse
    model: str
    started: float
    """Clock reading at the start of the request."""
    writes: tuple[tuple[str, Ttl], ...]
    """Entries that become readable with `PromptCache.commit`."""
    touches: tuple[str, ...]
    """Entries whose lifetime restarts: the hit, and the marked entries before it."""


@dataclass(slots=True, kw_only=True)
class _Entry:
    """Mutable: each read makes it live longer."""

    ttl: Ttl
    used: float

    def lives_at(self, now: float) -> bool:
        return now - self.used < self.ttl.seconds


@dataclass(slots=True, kw_only=True)
class PromptCache:
    """Entries of all models of one workspace. Mutable: a cache."""

    _entries: dict[tuple[str, str], _Entry] = field(default_factory=dict)

    def plan(self, model: str, positions: tuple[Position, ...], *, minimum: int, now: float) -> CachePlan:
        """Divide a prompt into read, written and plain tokens.

        Args:
            model: The cache is looked up per model.
            positions: Every block of the prompt, in the order tools, system, messages.
            minimum: The model's shortest cacheable prefix in tokens.
            now: Clock reading at the start of the request, in seconds.
        """
        marked = [i for i, p in enumerate(positions) if p.ttl and p.tokens >= minimum]
        hit = self._find_hit(model, positions, marked, now)
        return CachePlan(
            use=_divide(positions, marked, hit),
            model=model,
            started=now,
            writes=tuple((positions[i].key, positions[i].ttl or Ttl.FIVE_MINUTES) for i in marked if i > hit),
            touches=tuple(positions[i].key for i in (*marked, hit) if 0 <= i <= hit),
        )

    def commit(self, plan: CachePlan) -> None:
        """Make the plan's entries readable: the first byte of the response is about to be sent."""
        for key in plan.touches:
            entry = self._entries.get((plan.model, key))
            if entry is not None and entry.lives_at(plan.started):
                entry.used = max(entry.used, plan.started)
        for key, ttl in plan.writes:
            self._write(plan, key, ttl)
        gone = [name for name, entry in self._entries.items() if not entry.lives_at(plan.started)]
        for name in gone:
            del self._entries[name]

    def _write(self, plan: CachePlan, key: str, ttl: Ttl) -> None:
        old = self._entries.get((plan.model, key))
        if old is not None and old.used + old.ttl.seconds > plan.started + ttl.seconds:
            return
        self._entries[plan.model, key] = _Entry(ttl=ttl, used=plan.started)

    def _find_hit(self, model: str, positions: tuple[Position, ...], marked: list[int], now: float) -> int:
        """Find the index of the longest cached prefix; -1 for none."""
        for mark in reversed(marked):
            for index in range(mark, max(mark - LOOKBACK_BLOCKS, -1), -1):
                entry = self._entries.get((model, positions[index].key))
                if entry is not None and entry.lives_at(now):
                    return index
        return -1


def _divide(positions: tuple[Position, ...], marked: list[int], hit: int) -> CacheUse:
    """Apply the billing positions A, B and C of the documentation."""
    total = positions[-1].tokens if positions else 0
    read = positions[hit].tokens if hit >= 0 else 0
    hour = max((positions[i].tokens for i in marked if positions[i].ttl is Ttl.ONE_HOUR), default=0)
    last = max((positions[i].tokens for i in marked), default=0)
    b = max(read, hour)
    c = max(b, last)
    return CacheUse(input_tokens=total - c, read_tokens=read, write_1h_tokens=b - read, write_5m_tokens=c - b)

"""What a prompt consists of, by source: estimates by size, scaled to what the endpoint counted."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

MOST_SCALE = 2
"""An estimate by size is at most so much too small: what the endpoint counted beyond that is of unknown source."""
LEAST_SCALE = 0.5
"""An estimate is at most so much too large: where less was added, thinking was taken out of the prompt."""
FALL_SHARE = 0.25
FALL_TOKENS = 10_000
"""A prompt that is smaller than the context before it by both was compacted, pruned or cleared."""


class TokenSource(StrEnum):
    """Where tokens of a prompt come from; results of a tool are ``tool <name>``."""

    SYSTEM = "system"
    """Role and protocol."""
    TOOLS = "tools"
    """The descriptions of the tools."""
    RULES = "rules"
    PLAN = "plan"
    """The phase, its notes, and the plan around it."""
    BATON = "baton"
    """What the session before wrote down."""
    LEDGER = "ledger"
    ENVIRONMENT = "environment"
    """Facts about branch and sandbox, red verify commands, stale files."""
    REVIEW = "review"
    """Faults that reviewers confirmed."""
    STEERING = "steering"
    """What a person said to the sessions before."""
    RELAY = "relay"
    """What relay says in mid-session: reminders, notices, the report of a red gate."""
    ASSISTANT = "assistant"
    """What the model answered: words and calls."""
    THINKING = "thinking"
    OTHER = "other"
    """What the endpoint counted and no event explains; all of a first prompt in older logs."""


def name_tool_source(tool: str) -> str:
    """Return the source that results of a tool are counted under."""
    return f"tool {tool}"


class Composition:
    """The context of one session, by source. Mutable: follows it turn by turn.

    The first prompt is divided by the estimated sizes of its parts. Every later one is what was there before, what the
    endpoint counted of the answer, and what was appended since, which takes what is left. So the sources of a prompt
    add up to what the endpoint counted of it, always.
    """

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        """Tokens in context after the last answer."""
        self._pending: list[tuple[str, int]] = []

    @property
    def tokens(self) -> int:
        """All of them."""
        return sum(self.held.values())

    def append(self, source: str, estimate_tokens: int) -> None:
        """Note what is in the next prompt and was not in the last."""
        self._pending.append((source, max(0, estimate_tokens)))

    def measure(self, prompt_tokens: int) -> tuple[int, ...]:
        """Take in what the endpoint counted of a prompt.

        Returns:
            What each of the appended has taken of it, in order.
        """
        estimates = [estimate for _, estimate in self._pending]
        room = prompt_tokens - self.tokens
        room += self._take_thinking(min(sum(estimates), int(sum(estimates) * LEAST_SCALE) + 1) - room)
        if room < 0:
            return self._shrink(prompt_tokens)
        taken = share(min(room, MOST_SCALE * sum(estimates)), estimates)
        self._add(TokenSource.OTHER, room - sum(taken))
        return self._take(taken)

    def divide(self, prompt_tokens: int) -> Mapping[str, int]:
        """Divide a prompt that nobody measured as the context is divided; the sum is `prompt_tokens`."""
        weights = dict(self.held)
        for source, estimate in self._pending:
            weights[source] = weights.get(source, 0) + estimate
        known = {source: weight for source, weight in weights.items() if weight}
        if not known:
            return {TokenSource.OTHER: prompt_tokens} if prompt_tokens else {}
        return dict(zip(known, share(prompt_tokens, list(known.values())), strict=True))

    def answer(self, output_tokens: int, thinking_tokens: int) -> None:
        """Take in an answer, which is in the next prompt."""
        thinking = min(max(0, thinking_tokens), output_tokens)
        self._add(TokenSource.THINKING, thinking)
        self._add(TokenSource.ASSISTANT, output_tokens - thinking)

    def _add(self, source: str, tokens: int) -> None:
        if tokens:
            self.held[source] = self.held.get(source, 0) + tokens

    def _take_thinking(self, missing: int) -> int:
        """Take thinking out of the context, as endpoints do with that of earlier turns; return how much."""
        taken = min(max(0, missing), self.held.get(TokenSource.THINKING, 0))
        self._add(TokenSource.THINKING, -taken)
        return taken

    def _shrink(self, prompt_tokens: int) -> tuple[int, ...]:
        """Divide a prompt that is smaller than what was there: something was taken out, of all in proportion."""
        sources = list(self.held)
        weights = [self.held[source] for source in sources] + [estimate for _, estimate in self._pending]
        parts = share(prompt_tokens, weights)
        self.held = dict(zip(sources, parts, strict=False))
        return self._take(parts[len(sources) :])

    def _take(self, taken: tuple[int, ...]) -> tuple[int, ...]:
        """Put what was appended into the context, each with so many tokens; return these."""
        for (source, _), tokens in zip(self._pending, taken, strict=True):
            self._add(source, tokens)
        self._pending.clear()
        return taken


def add_sources(totals: dict[str, int], found: Mapping[str, int] | Iterable[tuple[str, int]]) -> None:
    """Add tokens by source to others."""
    for source, tokens in found.items() if isinstance(found, Mapping) else found:
        totals[source] = totals.get(source, 0) + tokens


def has_fallen(before_tokens: int, prompt_tokens: int) -> bool:
    """Return whether a context was compacted, pruned or cleared: relative, so that small windows count as well.

    Source: an absolute fall of 50,000, as ContextSpectre has it, never fires in a window below 100,000.
    """
    fall = before_tokens - prompt_tokens
    return fall > FALL_SHARE * before_tokens and fall > FALL_TOKENS


def share(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Divide a whole number by weights; the parts add up to it, by largest remainder, the first of equals first.

    Args:
        total: At least 0.
        weights: None below 0; where all are 0 the parts are as equal as they can be.

    Returns:
        One part for each weight; nothing where there is no weight.
    """
    if not weights:
        return ()
    whole = sum(weights)
    if not whole:
        return share(total, [1] * len(weights))
    parts = [total * weight // whole for weight in weights]
    rest = total - sum(parts)
    if rest:
        order = sorted(range(len(weights)), key=lambda n: (-(total * weights[n] % whole), n))
        for n in order[:rest]:
            parts[n] += 1
    return tuple(parts)

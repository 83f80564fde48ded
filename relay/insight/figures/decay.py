"""How a session's context decays: one definition for each figure, and the value from which a person should look.

`relay.insight.figures.sessions` counts the tokens of a session; here they become figures. None is unknown, or
does not apply. No threshold stops or steers a run.
"""

from collections.abc import Mapping

from relay.base.values import dataclass
from relay.session.prices import Rates

_CLAUDE_LAB = "When a Long-Running Agent's Context Quietly Decays"
_SPECTRE = "ContextSpectre, cleaning cadence"
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """From where on a person should look at a figure."""

    value: float
    is_most: bool
    """Whether larger figures are worse."""
    source: str

    def is_crossed(self, figure: float | None) -> bool:
        """Return whether a figure is beyond the threshold; an unknown one is not."""
        return figure is not None and (figure > self.value if self.is_most else figure < self.value)


THRESHOLDS: Mapping[str, Threshold] = {
    "history": Threshold(value=0.8, is_most=True, source=_CLAUDE_LAB),
    "distance": Threshold(value=150_000, is_most=True, source=_CLAUDE_LAB),
    "turns left": Threshold(value=10, is_most=False, source=f"{_SPECTRE}: proximity"),
    "signal": Threshold(value=0.7, is_most=False, source=f"{_SPECTRE}: noise above 30 % is overdue"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """What a session was shown of one kind, and how much of it was of use."""

    kind: str
    """``file``: a file that was read; ``ledger``: a claim; ``preload``: a file in the first message."""
    shown: int
    used: int
    """Files that a later call names or changes, or of which it names a line; claims as in `ClaimUse.used`."""
    tokens: int
    """Of all that were shown; estimated for parts of the first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay:
    """The state of one session's context at its last answer."""

    history_tokens: int | None
    """Everything behind the first message: answers, calls, results, relay's words."""
    history_share: float | None
    """The part of its room that history fills: history / (reset line - first prompt)."""
    distance_tokens: int | None
    """From the end of role, tools and rules to the newest turn: the context without them."""
    growth_tokens: float | None
    """Per turn: (last context - first prompt) / turns; None before the second turn and where it shrank. Source:
    ContextSpectre, whose growth before the first compaction counts the prefix and is too large."""
    turns_left: int | None
    """Turns until the reset line, at that growth; 0 past it."""
    superseded_tokens: int
    """In context: parts of files that were shown again, results of calls that were made again."""
    unused_tokens: int
    """In context: results of more than `recall.LARGE_TOKENS` of which no later call names a path or a line, and that
    are not superseded."""
    cut_tokens: int | None
    """Of output that the cap kept out of the context."""
    signal: float | None
    """1 - (superseded + unused) / history, 0 to 1."""
    retrieved: tuple[Retrieved, ...]
    turns_to_go: int | None
    """Turns until the phase's likely end: turns per item that was claimed, times open items."""
    go_on_usd: float | None
    """Of those turns in this context; None if nothing is left to do."""
    hand_over_usd: float | None
    """Of those turns in a fresh session, with the restart: it writes its first prompt, and reads again what this
    session read before its first change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFigures:
    """A layer of a session's last context (`relay.session.layers`)."""

    name: str
    tokens: int
    share: float
    """Of the context."""
    most_tokens: int
    """The most that it should take, at the session's reset line."""
    cut_tokens: int | None
    """Of what was left out of it; None if unknown."""


def find_history_share(history_tokens: int, first_tokens: int, line_tokens: int) -> float | None:
    """Return the share of history in its room; None where the first prompt leaves none."""
    room = line_tokens - first_tokens
    return history_tokens / room if room > 0 else None


def find_turns_left(context_tokens: int, line_tokens: int, growth_tokens: float | None) -> int | None:
    """Return the turns until a line; None without growth."""
    return None if growth_tokens is None else int(max(0, line_tokens - context_tokens) // growth_tokens)


def find_signal(history_tokens: int, noise_tokens: int) -> float | None:
    """Return the part of history that is no noise; None without history."""
    return 1 - min(1.0, noise_tokens / history_tokens) if history_tokens > 0 else None


def find_turns_to_go(open_items: int, turns_per_item: float | None) -> int | None:
    """Return the turns that open items take; None if no item was claimed yet."""
    return None if turns_per_item is None else -int(-open_items * turns_per_item // 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsLeft:
    """The turns to the phase's likely end, the same in an old context and in a fresh one."""

    turns: int
    growth_tokens: float
    """Written to the cache by each turn, and read by all later ones."""
    output_tokens: float
    """Of each answer."""
    rates: Rates

    def cost_usd(self, context_tokens: int) -> float:
        """Return the cost of these turns from a context that is in the cache.

        Each turn reads the context and all growth before it: R C + g R (R - 1) / 2 tokens.
        """
        read = self.turns * context_tokens + self.growth_tokens * self.turns * (self.turns - 1) / 2
        written = self.growth_tokens * self.turns
        answers = self.output_tokens * self.turns
        usd = read * self.rates.read + written * self.rates.write_5m + answers * self.rates.output
        return usd / _MILLION

    def restart_usd(self, fresh_tokens: int) -> float:
        """Return the cost of the same turns in a fresh session, which writes its first prompt and what it reads."""
        return fresh_tokens * self.rates.write_5m / _MILLION + self.cost_usd(fresh_tokens)

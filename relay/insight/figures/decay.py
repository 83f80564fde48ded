"""What fills a session's context, how much of it was of use, and from which value a person should look.

No threshold stops or steers a run.
"""

from collections.abc import Mapping

from relay.base.values import dataclass

_CLAUDE_LAB = "When a Long-Running Agent's Context Quietly Decays"
_SPECTRE = "ContextSpectre, cleaning cadence"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimUse:
    """A claim that a session was shown. Reading or changing a cited file is no proof that the claim was the reason."""

    id: str
    tokens: int
    """Estimated size of its line."""
    named: bool
    """The session named its id, in its words or in what it recorded."""
    read: bool
    """It read a file that the claim cites."""
    changed: bool
    """It changed one, by name."""

    @property
    def used(self) -> bool:
        """Whether the session used it in one of these ways."""
        return self.named or self.read or self.changed


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
    """In context: large results of which no later call names a path or a line, and that are not superseded."""
    cut_tokens: int | None
    """Of output that the cap kept out of the context."""
    signal: float | None
    """1 - (superseded + unused) / history, 0 to 1."""
    retrieved: tuple[Retrieved, ...]


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

"""From which value of a figure of decay a person should look. No threshold stops or steers a run."""

from collections.abc import Mapping

from relay.base.values import dataclass

_CLAUDE_LAB = "When a Long-Running Agent's Context Quietly Decays"
_SPECTRE = "ContextSpectre, cleaning cadence"


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

"""What the trials of an experiment came to, and what can be said of the differences between its arms."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

from relay.base.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What one trial came to. None is unknown everywhere."""

    number: int
    arm: str
    repeat: int
    exit_code: int | None
    """Of its run; None if it was lost."""
    reason: str
    phases_done: int | None = None
    phases: int | None = None
    hidden_passed: int | None = None
    """Held-out checks that pass: tests where their runner counts them, else commands."""
    hidden_total: int | None = None
    red_gates: int | None = None
    repairs: int | None = None
    weakened: int | None = None
    """Test definitions and assertions that are gone, and tests that are skipped now."""
    duplicated: int | None = None
    """Added lines that stand in a block which the tree holds twice."""
    added: int | None = None
    deleted: int | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    estimated: bool = False
    """Whether tokens and cost are upper bounds."""
    wall_s: float | None = None
    """Of its runs, without waiting for a provider."""
    sessions: int | None = None
    fill: int | None = None
    """The most tokens in the context of a session."""
    cuts: int = 0
    """Times that the run was cut off from outside and went on."""
    findings: int | None = None
    """Faults that both blind reviews confirm."""
    disputed: int | None = None
    """Faults that one of them confirms."""
    review_usd: float | None = None
    review_tokens: int | None = None
    rehearsed: bool = False
    """Whether a script played the model."""
    ref: str = ""
    """The ref with its commits."""
    logs: tuple[str, ...] = ()
    """The event logs of its runs."""

    @property
    def tokens(self) -> int | None:
        """All tokens of its runs."""
        parts = (self.input_tokens, self.cache_read_tokens, self.cache_write_tokens, self.output_tokens)
        return None if None in parts else sum(filter(None, parts))

    @property
    def hidden_share(self) -> float | None:
        """The share of held-out checks that pass."""
        return self.hidden_passed / self.hidden_total if self.hidden_total and self.hidden_passed is not None else None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Read a result as it was kept; what this version does not know is left out."""
        names = {one.name for one in fields(cls)}
        known = {name: value for name, value in body.items() if name in names}
        return cls(**{**known, "logs": tuple(known.get("logs", ()))})

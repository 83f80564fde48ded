"""How full a session's context is, and where the session should stop.

The fill is what the last response reported (prompt and output, every cache class) plus a padded estimate of what was
appended since. A response without usage leaves the fill *unknown* or estimated, never 0. The gauge only decides the
zone; the runner decides how a session ends.

Sources: Codex and OpenCode count the fill in the same way, by the last usage and an estimate of what came after;
estimates are padded by a third as in Claude Code, because newer tokenizers give about 30 % more tokens. The bands are
relative to the soft line.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from relay.base.values import dataclass
from relay.base.words import UNKNOWN
from relay.session.usage import Usage, pad_tokens

LARGEST_RESULT_TOKENS = 10_000
"""Most tokens that one tool result may add; the tools cut longer results."""
OUTPUT_ROOM_TOKENS = 20_000
"""Part of the window kept free for one more answer: a long answer is about 5k, hand-offs and edits are longer."""
LEAST_WINDOW_TOKENS = 4
"""A smaller window cannot hold two lines."""
LOWEST_LINE_TOKENS = 1_000
"""A reset line below this would be crossed by tools and rules alone, before any work."""
DEFAULT_RESET_AT = "min(45%,100k)"
RESET_AT_GRAMMAR = "45%, 80k, 100000 or min(45%,100k)"

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)%", re.ASCII)
_TOKENS = re.compile(r"(\d{1,4}(?:\.\d{1,6})?)([km])|(\d{1,3}(?:_\d{3})+|\d{1,9})", re.IGNORECASE | re.ASCII)
_UNITS = {"k": 1_000, "m": 1_000_000}


class ResetAt(str):
    """Where a session hands over, as it was written: the lowest of its terms. `parse_reset_at` makes one."""

    __slots__ = ()
    SCHEMA: ClassVar[Mapping[str, Any]] = {"type": ["string", "integer"], "description": RESET_AT_GRAMMAR}

    @classmethod
    def read(cls, value: Any) -> "ResetAt":
        """Read a setting; a bare whole number is a number of tokens.

        Raises:
            ValueError: It is no reset line.
        """
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(RESET_AT_GRAMMAR)  # noqa: TRY004  # every reader refuses with ValueError
        return parse_reset_at(str(value))

    def line_tokens(self, window_tokens: int) -> int:
        """Return the line for a window of this size; a bare percentage has no absolute cap."""
        percents, tokens = _parse_terms(self)
        return min([*tokens, *(math.floor(window_tokens * part / 100) for part in percents)])


def parse_reset_at(text: str) -> ResetAt:
    """Read a reset line: a percentage of the window, a number of tokens, or ``min(…)`` of such terms.

    Raises:
        ValueError: The text is none of these; the message says what is allowed.
    """
    percents, tokens = _parse_terms(text)
    if not all(0 < part <= 100 for part in percents) or not all(tokens):  # noqa: PLR2004  # per cent
        raise ValueError(f"above 0, at most 100%, such as {RESET_AT_GRAMMAR}")
    return ResetAt(text.strip())


def _parse_terms(text: str) -> tuple[list[float], list[int]]:
    """Return the percentages of the window, and the numbers of tokens."""
    compact = "".join(text.split())
    inner = re.fullmatch(r"min\((.+)\)", compact, re.IGNORECASE)
    percents: list[float] = []
    tokens: list[int] = []
    for term in inner[1].split(",") if inner else [compact]:
        if percent := _PERCENT.fullmatch(term):
            percents.append(float(percent[1]))
        elif amount := _TOKENS.fullmatch(term):
            tokens.append(_read_amount(amount))
        else:
            raise ValueError(RESET_AT_GRAMMAR)
    return percents, tokens


def _read_amount(amount: re.Match[str]) -> int:
    """Read ``80k``, ``1.5M`` or ``100_000`` as tokens."""
    if amount[3]:
        return int(amount[3].replace("_", ""))
    return round(float(amount[1]) * _UNITS[amount[2].lower()])


class Zone(StrEnum):
    """Where the fill stands against the lines."""

    CLEAR = "clear"
    CONSOLIDATE = "consolidate"
    """At or past `CONSOLIDATE_SHARE` of the soft line: time to finish and to record what is done."""
    SOFT = "soft"
    """At or past the soft line: finish the item, then hand over."""
    HARD = "hard"
    """At or past the hard line: stop at this tool boundary."""


class Band(StrEnum):
    """What a session's fill, relative to its soft line, is good for."""

    ORIENT = "orient"
    EXPLORE = "explore"
    EXECUTE = "execute"
    CONSOLIDATE = "consolidate"
    HAND_OFF = "hand-off"


CONSOLIDATE_SHARE = 0.65
BAND_EDGES = (
    (0.20, Band.ORIENT),
    (0.50, Band.EXPLORE),
    (CONSOLIDATE_SHARE, Band.EXECUTE),
    (0.80, Band.CONSOLIDATE),
)
"""Upper edges, exclusive, as parts of the soft line. Source: the phases of *Session tokendynamics*."""


def find_band(fill_tokens: int | None, soft_tokens: int) -> Band | None:
    """Return the band of a fill; None if the fill is unknown."""
    if fill_tokens is None:
        return None
    return next((band for edge, band in BAND_EDGES if fill_tokens < edge * soft_tokens), Band.HAND_OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """The fill of one session against its lines; make one with `open_gauge`.

    Always ``0 < soft_tokens <= hard_tokens < window_tokens``.
    """

    window_tokens: int
    soft_tokens: int
    hard_tokens: int
    limited: str = ""
    """Why the lines differ from those asked for; empty if they do not."""
    measured_tokens: int | None = None
    """Prompt and output of the last response that reported its usage; None before the first."""
    appended_tokens: int = 0
    """Estimates, without margin, of everything appended since that response."""
    first_tokens: int = 0
    """Prompt of the first response that reported its usage."""
    responses: int = 0
    """Responses that reported their usage."""

    def measure(self, usage: Usage | None) -> Self:
        """Take in a response's usage; it covers the output, which must not be appended again.

        A missing usage, or a usage with an empty prompt (the endpoint does not count), changes nothing; the caller then
        appends an estimate of the answer too.
        """
        if usage is None or usage.prompt_tokens <= 0:
            return self
        return replace(
            self,
            measured_tokens=usage.context_tokens,
            appended_tokens=0,
            first_tokens=self.first_tokens or usage.prompt_tokens,
            responses=self.responses + 1,
        )

    def append(self, text_tokens: int) -> Self:
        """Count text appended since the last response, as `estimate_tokens` counts it."""
        return replace(self, appended_tokens=self.appended_tokens + max(0, text_tokens))

    def release(self, text_tokens: int) -> Self:
        """Subtract removed text, as `estimate_tokens` counts it, until the next response measures.

        It is subtracted without a margin, so that the fill is over- rather than underestimated.
        """
        if self.measured_tokens is None:
            return replace(self, appended_tokens=max(0, self.appended_tokens - text_tokens))
        return replace(self, measured_tokens=max(0, self.measured_tokens - text_tokens))

    @property
    def least_tokens(self) -> int:
        """What the context holds as far as is known: a lower bound until something was measured."""
        return (self.measured_tokens or 0) + pad_tokens(self.appended_tokens)

    @property
    def fill_tokens(self) -> int | None:
        """What the context holds; None until a response has reported its usage."""
        return None if self.measured_tokens is None else self.least_tokens

    @property
    def turns_left(self) -> int | None:
        """Turns until the soft line, at the growth per response so far; None before the second and without growth.

        Source: ContextSpectre, without the first prompt, which is no growth.
        """
        grown = (self.measured_tokens or 0) - self.first_tokens
        if self.responses < 2 or grown <= 0:  # noqa: PLR2004  # growth takes two
            return None
        return max(0, self.soft_tokens - (self.measured_tokens or 0)) * self.responses // grown

    @property
    def zone(self) -> Zone:
        """Where the fill stands. With an endpoint that never counts, both lines still hold, by the estimate."""
        if self.least_tokens >= self.hard_tokens:
            return Zone.HARD
        if self.least_tokens >= self.soft_tokens:
            return Zone.SOFT
        if self.least_tokens >= CONSOLIDATE_SHARE * self.soft_tokens:
            return Zone.CONSOLIDATE
        return Zone.CLEAR


def open_gauge(*, window_tokens: int, reset_at: ResetAt, room_tokens: int = OUTPUT_ROOM_TOKENS) -> Gauge:
    """Set the two lines of a session: the soft line where asked, the hard line one largest tool result above it.

    Both stay below the window minus the room for an answer. If the window is too small for that, room and distance
    shrink to half of the available space, and `Gauge.limited` says so.

    Args:
        window_tokens: The model's whole window; at least `LEAST_WINDOW_TOKENS`.
        reset_at: Where the user wants the soft line.
        room_tokens: Kept free for the answer; the output limit if that is smaller.
    """
    ceiling = window_tokens - max(1, min(room_tokens, window_tokens // 2))
    highest = max(ceiling - LARGEST_RESULT_TOKENS, ceiling // 2)
    asked = reset_at.line_tokens(window_tokens)
    soft = min(max(asked, LOWEST_LINE_TOKENS), highest)
    why = f"a window of {window_tokens:,} tokens must also hold tools, a result and an answer"
    return Gauge(
        window_tokens=window_tokens,
        soft_tokens=soft,
        hard_tokens=min(soft + LARGEST_RESULT_TOKENS, ceiling),
        limited="" if soft == asked else f"the reset line is {soft:,} instead of {asked:,} tokens: {why}",
    )


def render_band(band: Band | None) -> str:
    """Write a band's name for the screen."""
    return UNKNOWN if band is None else band.value.capitalize()

"""Tokens and money: what responses and sessions used and cost, and estimates of a text's tokens before that is known.

Apart from the other values of a session, because `relay status` needs no more than these.
"""

from dataclasses import field, fields
from typing import Self

from relay.base.values import dataclass

BYTES_PER_TOKEN = 4
"""Of English text and code, rounded down."""
MAX_READ_BYTES = 39_000
"""Most bytes that one call of `read` shows: just below a result's cap, beyond which the middle would be cut."""


def estimate_tokens(text: str, *, json: bool = False) -> int:
    """Estimate the tokens of a text: its UTF-8 bytes by 4, JSON by 2, **always rounded up**.

    Bytes are never fewer than characters, so they are the larger of the two usual measures. Rounding up keeps parts
    from adding up to less than the whole, and only the empty text is free.
    """
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size_bytes // (BYTES_PER_TOKEN // 2)) if json else estimate_size_tokens(size_bytes)


def estimate_size_tokens(size_bytes: int) -> int:
    """Estimate the tokens of a text by its size, rounded up."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def pad_tokens(n: int) -> int:
    """Return an estimate with its margin, ``ceil(n * 4 / 3)``: newer tokenizers count about 30 % more."""
    return -(-n * 4 // 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one response or of many added up; the classes are billed differently and never overlap."""

    input_tokens: int = 0
    """Input that neither came from the cache nor was written to it."""
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    """All output, thinking included."""
    thinking_tokens: int = 0
    """The part of `output_tokens` that was thinking; 0 if not reported."""

    def __add__(self, other: Self) -> Self:
        """Add up class by class."""
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def cache_write_tokens(self) -> int:
        """Cache writes of both lifetimes."""
        return self.cache_write_5m_tokens + self.cache_write_1h_tokens

    @property
    def prompt_tokens(self) -> int:
        """The whole prompt."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def context_tokens(self) -> int:
        """What the context holds after this response: prompt and output."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What some work used and cost."""

    usage: Usage = field(default_factory=Usage)
    """The reported usage; its upper bound where nothing was reported."""
    cost_usd: float | None = 0.0
    """None if some of it is unknown: no price for the model."""
    estimated: bool = False
    """Whether some of it is an upper bound, because it was never reported."""

    def __add__(self, other: Self) -> Self:
        """Add up; unknown stays unknown."""
        return type(self)(
            usage=self.usage + other.usage,
            cost_usd=add_usd(self.cost_usd, other.cost_usd),
            estimated=self.estimated or other.estimated,
        )

    @property
    def tokens(self) -> int:
        """All tokens of all classes."""
        return self.usage.context_tokens


def rank_spent(spent: Spent) -> tuple[int, bool, float]:
    """Return a key that orders two records of the same work by size; unknown counts as larger."""
    return spent.tokens, spent.cost_usd is None, spent.cost_usd or 0.0


def add_usd(one: float | None, other: float | None) -> float | None:
    """Add money; unknown stays unknown."""
    return None if one is None or other is None else one + other

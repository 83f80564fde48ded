"""How many tokens a text has, by its size: a cautious estimate, until a response counts them."""

BYTES_PER_TOKEN = 4
"""Of English text and code, rounded down."""
MAX_READ_BYTES = 39_000
"""What one call of `read` shows at most: just below the cap of a result, which would cut more in the middle."""


def estimate_tokens(text: str, *, json: bool = False) -> int:
    """Estimate the tokens of a text: its UTF-8 bytes by 4, JSON by 2, **always rounded up**.

    Bytes are never fewer than characters, so they are the larger of the two usual measures. Rounding up keeps
    parts from adding up to less than the whole, and nothing but the empty text is free.
    """
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size_bytes // (BYTES_PER_TOKEN // 2)) if json else estimate_size_tokens(size_bytes)


def estimate_size_tokens(size_bytes: int) -> int:
    """Estimate the tokens of a text that has so many bytes, rounded up."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def pad_tokens(n: int) -> int:
    """Return an estimate with its margin, ``ceil(n * 4 / 3)``: newer tokenizers count about 30 % more."""
    return -(-n * 4 // 3)

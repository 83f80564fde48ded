"""API keys as text: making them, and recognising them again without keeping them."""

import hashlib
import secrets
from dataclasses import dataclass, field

MARK = "obk_"
"""Begins every key, so that people and secret scanners see what they are looking at."""
RANDOM_BYTES = 32
PREFIX_CHARS = 8
"""What is kept to tell keys apart: the mark and four characters, too few to help anyone guess the rest."""


@dataclass(frozen=True)
class NewKey:
    """A key that was just made."""

    text: str = field(repr=False)
    """The secret itself: handed to the client once, never stored, and kept out of `repr` and so out of logs."""
    prefix: str
    key_hash: str


def mint_key() -> NewKey:
    """Make a key that nobody has seen before."""
    text = MARK + secrets.token_urlsafe(RANDOM_BYTES)
    return NewKey(text=text, prefix=text[:PREFIX_CHARS], key_hash=hash_key(text))


def hash_key(text: str) -> str:
    """Return what is stored instead of a key: its SHA-256, in hex."""
    # Slow password hashes protect secrets that can be guessed. 256 random bits cannot.
    return hashlib.sha256(text.encode()).hexdigest()

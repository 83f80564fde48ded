"""Thinking blocks that only work in the conversation they were produced in.

A signature carries the model, the prefix the block was produced behind, the tokens the thinking stands for and
a digest of the text that was shown. It is self-contained, so a server that was restarted still knows its own
blocks. The key is public: this imitates a check, it protects nothing.
"""

import base64
import hashlib
import hmac
import json
from dataclasses import asdict
from typing import Self

from relay.base.values import dataclass

_KEY = b"relay rehearsal"
_MAC_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a thinking block says about itself."""

    model: str
    prefix: str
    """Digest of tools, system and every message before the block, as the client sent them."""
    tokens: int
    """Thinking tokens the block stands for, whatever text is shown."""
    text: str
    """Digest of the text that was returned."""

    def encode(self) -> str:
        """Write the opaque string that goes over the wire."""
        payload = json.dumps(asdict(self), separators=(",", ":")).encode()
        return base64.b64encode(_mac(payload) + payload).decode()

    @classmethod
    def decode(cls, signature: str) -> Self | None:
        """Read a signature back; None when this server did not write it."""
        try:
            raw = base64.b64decode(signature, validate=True)
        except ValueError:
            return None
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(payload)):
            return None
        return cls(**json.loads(payload))


def digest_text(text: str) -> str:
    """Shorten a shown text to what `Signature.text` holds."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _mac(payload: bytes) -> bytes:
    return hmac.digest(_KEY, payload, "sha256")[:_MAC_BYTES]

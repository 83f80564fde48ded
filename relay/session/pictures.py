"""Pictures as a model is shown them: what their bytes say of themselves, and how many tokens they are. Pure.

Nothing is decoded: an endpoint refuses a picture that is broken further in, and the session goes on without it.
Sources: the Messages API takes 8,000 pixels a side, at 20 pictures a request and below; a picture has a token for each
28 × 28 pixels, and no more than 4,784 (platform.claude.com build-with-claude/vision).
"""

import base64
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from relay.base.values import dataclass

MAX_PICTURE_BYTES = 1_000_000
MAX_SIDE_PIXELS = 8_000
MAX_PICTURES = 20
"""Most pictures of one session."""
MAX_SESSION_BYTES = 10_000_000
"""Of all pictures of a session: Bedrock takes requests of 20 MB, and a picture grows by a third on the wire."""
MAX_PICTURE_TOKENS = 4_784
_PATCH_PIXELS = 28
_PIXELS_PER_TOKEN = 750
_PNG_END = b"IEND\xaeB`\x82"
_JPEG_END = b"\xff\xd9"
_NO_SIZE = frozenset({0xC4, 0xC8, 0xCC})
"""Markers among the frame headers of JPEG (C0 to CF) that are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture that a tool shows."""

    media_type: str
    data: str
    """Its bytes as Base64."""
    width: int
    """In pixels."""
    height: int

    @property
    def tokens(self) -> int:
        """The most that it takes in a prompt."""
        patches = -(-self.width // _PATCH_PIXELS) * -(-self.height // _PATCH_PIXELS)
        return min(MAX_PICTURE_TOKENS, max(patches, -(-self.width * self.height // _PIXELS_PER_TOKEN)))

    @property
    def block(self) -> dict[str, Any]:
        """The block of the Messages API."""
        return {"type": "image", "source": {"type": "base64", "media_type": self.media_type, "data": self.data}}


def read_picture(data: bytes) -> Picture | None:
    """Return a whole PNG, JPEG or WebP; None for anything else."""
    media_type = find_picture_type(data)
    size = _KINDS[media_type][1](data) if media_type else None
    if media_type is None or size is None or not all(size):
        return None
    return Picture(media_type=media_type, data=base64.b64encode(data).decode(), width=size[0], height=size[1])


def find_picture_type(start: bytes) -> str | None:
    """Return the media type of a picture by its first bytes; None for anything else."""
    return next((media_type for media_type, (magic, _) in _KINDS.items() if magic.match(start)), None)


def count_picture_tokens(block: Mapping[str, Any]) -> int:
    """Return the tokens of an ``image`` block that relay made."""
    found = read_picture(base64.b64decode(block["source"]["data"]))
    return found.tokens if found else MAX_PICTURE_TOKENS


def _measure_png(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or not data.endswith(_PNG_END):
        return None
    return struct.unpack(">II", data[16:24])


def _measure_jpeg(data: bytes) -> tuple[int, int] | None:
    if not data.rstrip(b"\0").endswith(_JPEG_END):
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:  # noqa: PLR2004  # a marker
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:  # noqa: PLR2004  # a frame header
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + max(length, 2)
    return None


def _measure_webp(data: bytes) -> tuple[int, int] | None:
    if int.from_bytes(data[4:8], "little") + 8 != len(data):
        return None
    head = data[20:30]
    match data[12:16]:
        case b"VP8 " if head[3:6] == b"\x9d\x01\x2a":
            width, height = struct.unpack("<HH", head[6:10].ljust(4, b"\0"))
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if head[:1] == b"\x2f":
            bits = int.from_bytes(head[1:5], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
        case _:
            return None


_Measure = Callable[[bytes], tuple[int, int] | None]
_KINDS: Mapping[str, tuple[re.Pattern[bytes], _Measure]] = {
    "image/png": (re.compile(rb"\x89PNG\r\n\x1a\n"), _measure_png),
    "image/jpeg": (re.compile(rb"\xff\xd8\xff"), _measure_jpeg),
    "image/webp": (re.compile(rb"(?s)RIFF....WEBP"), _measure_webp),
}
PICTURE_TYPES = frozenset(_KINDS)

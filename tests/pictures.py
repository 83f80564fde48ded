"""Pictures for tests: the smallest that an endpoint takes."""

import struct
import zlib


def make_png(width: int, height: int, *, body: bytes = b"", broken: bool = False) -> bytes:
    """Return a PNG; a `broken` one has a wrong checksum in its header, which only a decoder notices."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    check = struct.pack(">I", zlib.crc32(head) ^ broken)
    return b"\x89PNG\r\n\x1a\n\0\0\0\r" + head + check + body + b"\0\0\0\0IEND\xaeB`\x82"


def make_webp(chunk: bytes, head: bytes) -> bytes:
    """Return a WebP with one chunk."""
    body = b"WEBP" + chunk + struct.pack("<I", len(head)) + head
    return b"RIFF" + struct.pack("<I", len(body)) + body

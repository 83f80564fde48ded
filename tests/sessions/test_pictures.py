"""What the bytes of a picture say: its type, its size, its tokens."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.session.pictures import MAX_PICTURE_TOKENS, Picture, count_picture_tokens, read_picture
from tests.pictures import make_png, make_webp

JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF" + b"\0" * 10
FRAME = b"\xff\xc2\0\x11\x08" + struct.pack(">HH", 480, 640)
TABLE = b"\xff\xc4\0\x04xx"
END = b"........\xff\xd9"
VP8 = b"\0\0\0\x9d\x01\x2a"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (make_png(640, 480), "image/png"),
        (JPEG + TABLE + FRAME + END, "image/jpeg"),
        (JPEG + FRAME + END + b"\0\0", "image/jpeg"),
        (make_webp(b"VP8 ", VP8 + struct.pack("<HH", 640 | 0x4000, 480)), "image/webp"),
        (make_webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14)), "image/webp"),
        (make_webp(b"VP8X", b"\0\0\0\0" + b"\x7f\x02\0\xdf\x01\0"), "image/webp"),
    ],
)
def test_a_picture_says_its_type_and_its_size(data: bytes, kind: str) -> None:
    found = read_picture(data)
    assert found
    assert (found.media_type, found.width, found.height) == (kind, 640, 480)
    assert base64.b64decode(found.data) == data
    assert count_picture_tokens(found.block) == found.tokens == 414


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GIF89a",
        make_png(640, 480)[:-1],
        make_png(0, 480),
        make_png(640, 480).replace(b"IHDR", b"IHDX"),
        JPEG + FRAME,
        JPEG + END,
        JPEG + b"\xff\xc4\0\0" + END,
        make_webp(b"VP8 ", b"\0" * 10),
        make_webp(b"VP8 ", VP8),
        make_webp(b"VP8L", b"\0" * 10),
        make_webp(b"ALPH", b""),
        make_webp(b"VP8X", b"\0" * 10) + b"!",
        b"RIFF\x04\0\0\0WAVE",
    ],
)
def test_what_is_broken_or_something_else_is_no_picture(data: bytes) -> None:
    assert read_picture(data) is None


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF"]))
def test_no_bytes_end_the_reader(data: bytes, begin: bytes) -> None:
    read_picture(begin + data)
    read_picture(begin + data + b"IEND\xaeB`\x82")
    read_picture(begin + data + b"\xff\xd9")


@given(st.integers(1, 8_000), st.integers(1, 8_000))
def test_a_picture_costs_no_more_than_the_endpoint_counts_at_most(width: int, height: int) -> None:
    tokens = Picture(media_type="image/png", data="", width=width, height=height).tokens
    assert 1 <= tokens <= MAX_PICTURE_TOKENS
    assert tokens >= min(MAX_PICTURE_TOKENS, width * height / 784)


def test_a_block_that_cannot_be_read_counts_as_the_largest() -> None:
    assert count_picture_tokens({"source": {"data": ""}}) == MAX_PICTURE_TOKENS

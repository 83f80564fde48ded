"""`read` shows text as `edit` needs it, in windows."""

import base64
import os
import re

from relay.session.pictures import MAX_PICTURE_BYTES
from relay.tools.toolbox import READ
from tests.pictures import make_png


def test_what_read_shows_can_be_edited(bench):
    """Without carriage returns and the byte order mark, which stay."""
    (bench.root / "f.txt").write_bytes(b"\xef\xbb\xbfone\r\n\ttwo\r\nthree")
    assert bench.ok("read", path="f.txt") == "one\n\ttwo\nthree"
    bench.ok("edit", path="f.txt", old=bench.ok("read", path="f.txt"), new="1\n2")
    assert (bench.root / "f.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2"


def test_a_long_file_comes_in_windows_that_tile_it(bench):
    lines = [f"line {number}" for number in range(1, 5_001)]
    (bench.root / "f.txt").write_text("\n".join(lines) + "\n")
    shown: list[str] = []
    offset, reads = 1, 0
    while offset:
        text = bench.ok("read", path="f.txt", offset=offset)
        *body, last = text.split("\n")
        reads += 1
        more = last.startswith("[lines ")
        shown += body if more else [*body, last]
        offset = int(last.rpartition("offset=")[2].split()[0]) if more else 0
    assert shown == lines
    assert reads == 3


def test_a_call_shows_what_the_tool_says_that_it_does(bench):
    """The model plans its reads by it: a larger number is a read too few, a smaller one a read too many."""
    ((lines, kilobytes),) = re.findall(r"([\d,]+) lines or (\d+) KB of a text", READ.description)
    (bench.root / "f.txt").write_text(("y" * 99 + "\n") * 600)
    (bench.root / "g.txt").write_text("\n" * 9_000)
    shown = bench.ok("read", path="f.txt").rpartition("\n")[0]
    assert len(shown) + 1 == int(kilobytes) * 1_000
    assert bench.ok("read", path="g.txt").rpartition("\n")[0].count("\n") + 1 == int(lines.replace(",", ""))


def test_offset_and_limit(bench):
    (bench.root / "f.txt").write_text("1\n2\n3\n4\n")
    assert bench.ok("read", path="f.txt", offset=2, limit=2) == "2\n3\n[lines 2-3. Use offset=4 to continue]"
    assert bench.ok("read", path="f.txt", offset=3, limit=2) == "3\n4"
    assert bench.ok("read", path="f.txt", offset=0, limit=0) == "1\n[lines 1-1. Use offset=2 to continue]"
    assert "has 4 lines; offset 9 is past its end" in bench.refused("read", path="f.txt", offset=9)


def test_long_lines_are_cut_with_a_mark(bench):
    (bench.root / "f.txt").write_text("x" * 5_000_000 + "\nend\n")
    first, second = bench.ok("read", path="f.txt").split("\n")
    assert first == "x" * 2_000 + "… [+4,998,000 characters]"
    assert len(first) < 2_100
    assert second == "end"


def test_binary_files_are_said_to_be_binary(bench):
    for data, words in (
        (b"GIF89a\0\0\0\0", "10 bytes, unknown kind"),
        (b"RIFF\0\0\0\0WAVE", "12 bytes, unknown kind"),
        (b"\x89PNG\r\n\x1a\n\0\0", "no whole picture"),
        (b"\x7fELF\0", "5 bytes, unknown kind"),
        (b"\xff\xfeh\0i\0", "6 bytes, unknown kind"),
        (b"a\0b", "unknown kind"),
    ):
        (bench.root / "f").write_bytes(data)
        assert words in bench.refused("read", path="f"), data


def test_a_picture_is_shown_within_its_limits(bench):
    """By its bytes, whatever its name; not one that is hidden, too large, or an output that was kept."""
    (bench.root / "shot.txt").write_bytes(make_png(640, 480))
    result = bench.call("read", path="shot.txt")
    assert (result.text, result.is_error) == ("shot.txt: image/png, 640 x 480 pixels.", False)
    assert base64.b64decode(result.picture.data) == make_png(640, 480)
    (bench.root / "wide.png").write_bytes(make_png(8_001, 1))
    assert "A side may have 8,000." in bench.refused("read", path="wide.png")
    (bench.root / "large.png").write_bytes(make_png(1, 1, body=b"x" * MAX_PICTURE_BYTES))
    assert "a picture may have 1,000,000. Make a smaller copy." in bench.refused("read", path="large.png")
    (bench.root / ".env").write_bytes(make_png(1, 1))
    assert "may hold secrets" in bench.refused("read", path=".env")


def test_other_encodings_are_said(bench):
    (bench.root / "f.txt").write_bytes(b"caf\xe9\n")
    assert bench.ok("read", path="f.txt") == "caf�\n[not all of this is UTF-8: � stands for other bytes]"
    (bench.root / "g.txt").write_text("a real �\n")
    assert bench.ok("read", path="g.txt") == "a real �"


def test_empty_files_are_said(bench):
    (bench.root / "f.txt").write_bytes(b"")
    assert bench.ok("read", path="f.txt") == "(f.txt is empty)"


def test_huge_sparse_files_are_refused_at_once(bench):
    with (bench.root / "f").open("wb") as stream:
        os.truncate(stream.fileno(), 300 * 1024 * 1024)
    assert "sed -n" in bench.refused("read", path="f")

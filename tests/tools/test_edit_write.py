"""`edit` and `write` change what they were told to and not one byte more."""

import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from relay.base import walk
from relay.session.values import ToolCall
from relay.tools.edit import replace_target
from relay.tools.workspace import RefusedError
from tests.effort import take_each

text_parts = st.text(
    alphabet=st.sampled_from("abc \t\né\r") | st.characters(codec="utf-8", exclude_characters="\0"), max_size=30
)
byte_parts = st.binary(max_size=30).map(lambda data: data.replace(b"\0", b""))


def run(tools, name, **given_input):
    return tools.run(ToolCall(id="1", name=name, input=given_input))


@given(before=byte_parts, old=text_parts, new=text_parts, after=byte_parts, crlf=st.booleans(), bom=st.booleans())
def test_only_the_replaced_bytes_change(make_tools, before, old, new, after, crlf, bom):
    old, new = old.replace("\r", ""), new.replace("\r", "").removeprefix("\ufeff")
    assume(old and old != new and not old.startswith("\ufeff"))
    ending = b"\r\n" if crlf else b"\n"
    core = b"<<" + old.encode().replace(b"\n", ending) + b">>"
    head = (b"\xef\xbb\xbf" if bom else b"") + before + ending
    data = head + core + ending + after
    assume(data.replace(b"\r\n", b"\n").count(b"<<" + old.encode() + b">>") == 1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / "f.txt").write_bytes(data)
        result = run(make_tools(root), "edit", path="f.txt", old=f"<<{old}>>", new=f"[{new}]")
        if result.is_error and old.isascii() and not new.isascii():
            assert "is not UTF-8" in result.text
            assert data.decode("utf-8", "replace").encode() != data
            assert (root / "f.txt").read_bytes() == data
            return
        assert not result.is_error, result.text
        got = (root / "f.txt").read_bytes()
    assert got.startswith(head)
    assert got.endswith(ending + after)
    middle = got[len(head) : len(got) - len(ending + after)]
    assert middle.replace(b"\r\n", b"\n") == b"[" + new.encode() + b"]"


def test_edit_keeps_endings_bytes_and_byte_order_mark(bench):
    for before, old, new, after in (
        (b"\xef\xbb\xbfa\r\nb\r\nc\r\n", "b\nc", "2\n2.5\n3", b"\xef\xbb\xbfa\r\n2\r\n2.5\r\n3\r\n"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a", "1\n2", b"\xef\xbb\xbf1\r\n2\r\nb\r\n"),
        (b"a\nb\r\nc\nd\r\n", "b\nc", "B\nC", b"a\nB\r\nC\nd\r\n"),  # both endings
        (b"caf\xe9 one\ncaf\xe9 two\n", "two", "drei", b"caf\xe9 one\ncaf\xe9 drei\n"),
        (b"caf\xe9\nna\xc3\xafve\n", "naïve", "été", b"caf\xe9\n\xc3\xa9t\xc3\xa9\n"),
    ):
        (bench.root / "f.txt").write_bytes(before)
        bench.ok("edit", path="f.txt", old=old, new=new)
        assert (bench.root / "f.txt").read_bytes() == after


def test_letters_that_would_mix_two_encodings_are_refused_with_the_way_out(bench):
    for data in ("café = 1\nb = 2\n".encode("latin-1"), "名前 = 1\nb = 2\n".encode("shift-jis")):
        (bench.root / "old.txt").write_bytes(data)
        said = bench.refused("edit", path="old.txt", old="b = 2", new="b = 'é'")
        assert "old.txt is not UTF-8" in said
        assert "a command in bash that writes the file's encoding" in said
        assert (bench.root / "old.txt").read_bytes() == data


def test_write_keeps_line_endings_and_byte_order_mark(bench):
    for before, content, after in (
        (b"one\r\ntwo\r\n", "one\n2\n", b"one\r\n2\r\n"),
        (b"\xef\xbb\xbfone\n", "2\n", b"\xef\xbb\xbf2\n"),
        (b"\xef\xbb\xbfone\r\n", "\ufeff2\n", b"\xef\xbb\xbf2\r\n"),
        (b"one\r\ntwo\n", "1\n2\n", b"1\n2\n"),
        (b"one\n", "1\r\n2\n", b"1\r\n2\n"),
        (b"", "1\n", b"1\n"),
        (b"one\r\n", "2", b"2"),
    ):
        (bench.root / "f.txt").write_bytes(before)
        said = bench.ok("write", path="f.txt", content=content)
        assert (bench.root / "f.txt").read_bytes() == after
        assert ("CRLF line endings are kept" in said) == (b"\r\n" in before and b"\r\n" in after)
        assert "already has this content" in bench.ok("write", path="f.txt", content=content)
    (bench.root / "latin.txt").write_bytes(b"caf\xe9\n")
    assert "It was not UTF-8; now it is." in bench.ok("write", path="latin.txt", content="café\n")
    assert "UTF-8" not in bench.ok("write", path="latin.txt", content="thé\n")


def test_an_edit_that_has_not_one_place_says_where(bench):
    code = "def one():\n    return compute(1, 2)\n"
    for text, old, words in (
        ("x = 1\ny\nx = 1\nx = 1\n", "x = 1", "old occurs 3 times, at lines 1, 3, 4."),
        ("aaa\n", "aa", "2 times"),
        ("a" * 100_000, "a", "1,000 times or more"),
        (code, "return compute(1,2)", "Nearest is line 2: return compute(1, 2)"),
        (code, "  return compute(1, 2)\n  x", "stands at line 2"),
        (code, "zzzzqqq", "Nothing resembles it"),
    ):
        (bench.root / "f.txt").write_text(text)
        assert words in bench.refused("edit", path="f.txt", old=old, new="")


def test_hostile_old_is_answered_soon(bench):
    """Near misses over and over must not cost the square of the file."""
    (bench.root / "f.txt").write_text("a\n" * 500_000)
    bench.refused("edit", path="f.txt", old="a\n" * 200_000 + "b", new="")


def test_edits_that_make_no_sense_are_refused(bench):
    (bench.root / "binary").write_bytes(b"a\0b")
    (bench.root / "locked").write_text("a")
    (bench.root / "locked").chmod(0o444)
    for given_input, words in (
        ({"path": "src/a.py", "old": "", "new": "x"}, "use write"),
        ({"path": "src/a.py", "old": "return", "new": "return"}, "the same"),
        ({"path": "src/none.py", "old": "a", "new": "x"}, "No such file"),
        ({"path": "none/none.py", "old": "a", "new": "x"}, "No such file"),
        ({"path": "binary", "old": "a", "new": "x"}, "binary"),
        ({"path": "locked", "old": "a", "new": "x"}, "read-only"),
    ):
        assert words in bench.refused("edit", **given_input)


def test_mode_is_kept_without_setuid(bench):
    script = bench.root / "run.sh"
    script.write_text("echo 1\n")
    script.chmod(0o4755)
    bench.ok("edit", path="run.sh", old="1", new="2")
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    bench.ok("write", path="run.sh", content="echo 3\n")
    assert stat.S_IMODE(script.stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_is_kept(bench):
    os.chown(bench.root / "src/a.py", 1234, 1235)
    bench.ok("edit", path="src/a.py", old="1", new="2")
    status = (bench.root / "src/a.py").stat()
    assert (status.st_uid, status.st_gid) == (1234, 1235)


def test_results_name_the_changed_path_and_notes_keep_it(bench):
    assert bench.call("edit", path="./src//a.py", old="1", new="2").changed_paths == ("src/a.py",)
    assert bench.call("write", path="b.txt", content="x").changed_paths == ("b.txt",)
    assert bench.call("write", path="b.txt", content="x").changed_paths == ()
    assert bench.call("edit", path="src/a.py", old="nope", new="2").changed_paths == ()
    assert list(bench.notes.touched_paths) == ["src/a.py", "b.txt"]


def test_replacing_an_unread_file_is_said(bench):
    assert "had not read it" in bench.ok("write", path="src/a.py", content="x\n")
    assert bench.ok("write", path="src/a.py", content="y\n") == "Replaced 1 lines of src/a.py."
    (bench.root / "c.txt").write_text("1\n2\n3")
    bench.ok("read", path="c.txt")
    assert bench.ok("write", path="c.txt", content="") == "Replaced 3 lines of c.txt."


def test_a_full_or_closed_directory_is_a_result_and_leaves_nothing(bench):
    huge = bench.refused("write", path="big.txt", content="x" * (4 * 1024 * 1024 + 1))
    assert "more than" in huge
    (bench.root / "d").mkdir()
    (bench.root / "d" / "f").write_text("1")
    (bench.root / "d").chmod(0o555)
    if os.geteuid() != 0:
        assert "Permission denied" in bench.refused("write", path="d/f", content="2")
    assert [path.name for path in (bench.root / "d").iterdir()] == ["f"]


def test_a_kill_leaves_the_old_or_the_new_content_and_nothing_else(bench):
    """SIGKILL while a session writes: what git would commit is a whole file or no file."""
    script = (
        "import sys; from pathlib import Path; from relay.base.walk import locate\n"
        "from relay.tools.edit import replace_target\n"
        "root = Path(sys.argv[1]); n = 0\n"
        "while True:\n"
        "  n += 1\n"
        "  with locate(root, 'src/big.txt', follow=False) as place:\n"
        "    replace_target(root, place, b'%d\\n' % (n % 10) * 200_000)\n"
        "  if n == 1: print('go', flush=True)\n"
    )
    bench.ok("bash", command="true")
    for wait_s in take_each(2, (0.003, 0.0, 0.011, 0.007)):
        command = [sys.executable, "-c", script, str(bench.root)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(wait_s)
            process.kill()
        data = (bench.root / "src/big.txt").read_bytes()
        assert len(data) == 400_000
        assert len(set(data.split())) == 1
        assert sorted(path.name for path in (bench.root / "src").iterdir()) == ["a.py", "big.txt"]


def test_a_file_changed_by_something_else_meanwhile_is_not_overwritten(bench):
    """Also by text as long as its own."""
    own = (bench.root / "src/a.py").read_text()
    for text in ("changed meanwhile\n", own.replace("1", "2")):
        (bench.root / "src/a.py").write_text(own)
        os.utime(bench.root / "src/a.py", (1, 1))
        with walk.locate(bench.root, "src/a.py", follow=False) as place:
            (bench.root / "src/a.py").write_text(text)
            with pytest.raises(RefusedError, match="read it again"):
                replace_target(bench.root, place, b"new\n")
        assert (bench.root / "src/a.py").read_text() == text
    assert [path.name for path in (bench.root / "src").iterdir()] == ["a.py"]

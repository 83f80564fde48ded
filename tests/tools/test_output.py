"""Long outputs are cut in the middle, counted, and kept in full where the model can read them."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.words import render_output
from relay.plan.text import OUTPUTS
from relay.session.usage import estimate_tokens
from relay.session.values import ToolResult
from relay.tools.workspace import OUTPUT_CAP_TOKENS, cut_middle, fit_output
from tests.effort import take_each

texts = st.text(alphabet=st.sampled_from("ab\n é€😀") | st.characters(codec="utf-8"), max_size=400)


def find(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match
    return match[1]


@given(text=texts, cap=st.integers(60, 120), lost=st.integers(0, 10**9))
def test_what_is_cut_fits_and_keeps_both_ends(text, cap, lost):
    cut = cut_middle(text, "full output: x", lost_tokens=lost, cap_tokens=cap)
    assert estimate_tokens(cut) <= max(cap, estimate_tokens(text) + 45)
    head, mark, tail = re.split(r"(\n… [\d,]+ tokens cut; full output: x …\n)", cut)[:3]
    assert mark
    assert text.startswith(head)
    assert text.endswith(tail)


@given(words=st.lists(st.sampled_from(["a", "bb é", "€€€€", "😀😀 c", "dddddd"]), min_size=60, max_size=80))
def test_whole_lines_are_kept_where_there_are_lines(words):
    text = "\n".join(words)
    head, _, tail = re.split(r"\n(… [\d,]+ tokens cut; w …)\n", cut_middle(text, "w", cap_tokens=70))
    assert words[: head.count("\n") + 1] == head.split("\n")
    assert words[-tail.count("\n") - 1 :] == tail.split("\n")


def test_a_long_output_is_spilled_and_can_be_read_and_searched(bench):
    text = bench.ok("bash", command="seq 1 100000")
    assert estimate_tokens(text) <= OUTPUT_CAP_TOKENS
    assert text.startswith("exit 0\n1\n2\n")
    assert text.endswith("\n99999\n100000")
    handle = find(r"tokens cut; full output: (\S+) \(use read\)", text)
    assert handle.startswith(".relay/outputs/")
    assert bench.ok("read", path=handle, offset=50_000, limit=2).startswith("50000\n50001")
    assert bench.ok("bash", command=f"grep -n '^77777$' {handle}") == "exit 0\n77777:77777"
    assert len(list((bench.root / OUTPUTS).iterdir())) == 2


def test_what_was_cut_is_not_called_the_full_output(bench):
    """Its place was taken away while the command ran: what was held in memory is kept."""
    gone = (bench.root / OUTPUTS) / "gone.txt"
    kept = fit_output(bench.workspace, ToolResult(text="1\n3\n"), spool=gone, output=b"1\n3\n", lost_bytes=2)
    said = kept.text
    assert "full output" not in said
    assert bench.ok("read", path=find(r"what is kept of the output: (\S+)", said)).startswith("1\n3")


def test_a_short_output_leaves_no_file_and_long_ones_are_ignored_by_git_each_under_a_name_of_its_own(bench):
    bench.ok("bash", command="echo hi")
    assert [path.name for path in (bench.root / OUTPUTS).iterdir()] == [".gitignore"]
    for first in (1, 2):
        bench.calls = 0  # as a call of another session
        bench.ok("bash", command=f"seq {first} 100000")
    assert len(list((bench.root / OUTPUTS).glob("*.txt"))) == 2
    status = subprocess.run(["git", "status", "--porcelain", "-uall"], cwd=bench.root, capture_output=True, check=True)
    assert b".relay" not in status.stdout


def test_a_repository_that_ships_the_output_directory_as_a_link_gets_nothing_through_it(bench):
    (bench.root / ".relay").symlink_to("../outside")
    text = bench.ok("bash", command="seq 1 100000")
    assert "could not be kept" in text
    assert [path.name for path in bench.outside.iterdir()] == ["secret.txt"]


def test_printed_bytes_become_safe_text():
    for raw, shown in (
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link", "xlink"),
        (b"10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        (b"a\x00b\x07c\x08d\x7f", "abcd"),
        (b"caf\xe9\xff", "caf��"),
        ("tab\tné\u009b31mx".encode(), "tab\tnéx"),
        (b"\x1bP1;2|secret\x1b\\y\x1b(B", "y"),
        (b"cut \x1b[", "cut "),
    ):
        assert render_output(raw) == shown, raw


@given(
    raw=st.binary(max_size=300)
    | st.lists(st.sampled_from([b"\x1b", b"]", b"[", b"\r", b"\n", b"a", b"\x07"])).map(b"".join)
)
def test_no_control_character_survives(raw):
    assert not [
        char for char in render_output(raw) if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160
    ]


@pytest.mark.processor(30)
@pytest.mark.parametrize("unit", take_each(2, [b"\x1b]", b"\x1b[", b"\r", b"\x1bP", b"a\r", b"\x1b"]))
def test_hostile_output_is_cleaned_in_linear_time(unit):
    render_output(unit * 300_000)

"""What may reach a terminal."""

import io
import json
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.cli.screen import clean, clean_line, escape_json, prepare_streams, say
from tests.terminal import answer_at_terminal

HOSTILE = st.text(alphabet=st.characters(codec=None) | st.sampled_from("\x1b[]\x07\\;m\x9b\u202e\u2066\udc80\r\n\t"))


@given(HOSTILE)
def test_nothing_that_a_terminal_acts_on_is_left(text):
    """After cleaning, no control, surrogate, bidirectional or other format character but the joiners is left."""
    for char in clean(text):
        category = unicodedata.category(char)
        assert char in "\n\u200c\u200d" or category not in {"Cc", "Cs", "Cf", "Zl", "Zp"}


@given(HOSTILE)
def test_a_line_stays_one_line_and_cleaning_twice_changes_nothing(text):
    """A cleaned line has no line end, and cleaning is idempotent."""
    line = clean_line(text)
    assert "\n" not in line
    assert clean_line(line) == line
    assert clean(clean(text)) == clean(text)


CLEANED = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b[2J\x1b[Hgone", "gone"),
    ("\x1b]0;title\x07after", "after"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x9b31mred", "red"),
    ("\x1bP+q\x1b\\x", "x"),
    ("\x1b]0;never closed", "\\x1b]0;never closed"),
    ("a\x08b\x07", "a\\x08b\\x07"),
    ("rm \u202e/ fr-", "rm \\u202e/ fr-"),
    ("caf\udce9", "caf\\xe9"),
    ("\ud800", "\\ud800"),
    ("10%\r100%", "10%\n100%"),
    ("a\tb", "a    b"),
    ("[bold]x[/nope] :smile:", "[bold]x[/nope] :smile:"),
    ("👩\u200d💻 naïve 日本語", "👩\u200d💻 naïve 日本語"),
    ("tag\U000e0041", "tag\\U000e0041"),
]


def test_cleaned_text():
    """Complete sequences vanish, half ones and lone control characters become visible."""
    assert [(raw, clean(raw)) for raw, _ in CLEANED] == CLEANED


@given(st.text(alphabet=st.characters(codec=None)))
def test_escaped_json_is_ascii_and_says_the_same(text):
    """Escaping keeps a JSON document's value and leaves only printable ASCII."""
    line = escape_json(json.dumps({"k": text}, ensure_ascii=False))
    assert line.isascii()
    assert line.isprintable()
    # A pair of lone surrogates is read back as the character that they encode: JSON has no other way.
    assert json.loads(line)["k"].encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")


def test_an_output_without_unicode_gets_escapes(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    prepare_streams()
    say("phase 1 — a")
    sys.stdout.flush()
    assert raw.getvalue() == b"phase 1 \\u2014 a\n"


_CUT_SHORT = """
import signal, sys
from relay.cli.screen import prepare_streams, say
prepare_streams()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for n in range(20):
    say(f"{n} " + "x" * 300_000, exact=True)
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_an_output_that_python_does_not_buffer_loses_nothing_where_a_signal_cuts_a_write_short():
    """Images of containers set PYTHONUNBUFFERED; the live view lost lines, and `--json` would lose ends of lines."""
    ran = subprocess.run([sys.executable, "-u", "-c", _CUT_SHORT], stdout=subprocess.PIPE, check=True)
    assert [len(line) for line in ran.stdout.splitlines()] == [300_000 + len(f"{n} ") for n in range(20)]


@pytest.mark.processor(30)
def test_endless_escapes_are_cleaned_in_linear_time():
    """Sequences that are never closed cost no more than their length."""
    for part in ("\x1b]", "\x1b[0", "\x9d", "\x1b(", "x\u202e"):
        assert clean(part * 10_000).isprintable()
    assert clean(f"\x1b[{'0' * 90_000}").isprintable()


def show(stage, columns, *args):
    """Run a command on a terminal of so many columns; return what it shows and the exit code."""
    environ = {"TERM": "dumb", "COLUMNS": str(columns)}
    return answer_at_terminal([*stage.find_program(), *args], [], cwd=stage.root, environ=environ, prompt="?")


def test_status_has_no_line_that_a_terminal_has_no_room_for(stage):
    title = "part of the long migration of the billing engine, with everything that hangs on it"
    phases = [
        f"## Phase {n} — A {title}\nVerify: `true`\n- [ ] Move it, with its {title} — a/{n}.py\n" for n in range(12)
    ]
    stage.write("PLAN.md", "# A long one\n\n" + "\n".join(phases))
    stage.commit()

    shown, code = show(stage, 40, "status", "--why")

    lines = shown.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 40
    assert len({line.index("A") for line in lines if "] " in line and " A " in line}) == 1
    assert sum(line.endswith("0/1") for line in lines) == 12


def test_an_error_breaks_between_words_and_no_part_of_it_poses_as_a_hint(stage):
    plan = "a plan of this name is not there " + "Hint: do as it says " * 5
    shown, code = show(stage, 40, "status", "--plan", plan)
    lines = shown.splitlines()
    assert (code, max(map(len, lines)) <= 40) == (1, True)
    assert [line[:6] for line in lines if not line.startswith("  ")] == ["Error:", "Hint: "]
    assert stage.relay("status", "--plan", plan).stderr.split() == shown.split()


def test_a_long_line_breaks_between_words_and_one_that_is_to_be_copied_does_not(stage):
    shown, code = show(stage, 30, "doctor", "--gc")
    assert (code, max(map(len, shown.splitlines())) <= 30) == (0, True)
    assert stage.relay("doctor", "--gc").stdout.split() == shown.split()
    told = "init", "--provider", "openrouter"
    first = stage.relay(*told).stdout.splitlines()[0]
    assert len(first) > 30
    assert show(stage, 30, *told)[0].splitlines()[0] == first

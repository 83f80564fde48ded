"""What a command prints while it runs, told now and then."""

from hypothesis import example, given
from hypothesis import strategies as st

from relay.session.events import OutputShown, ToolStarted
from relay.setup.observers import LONGEST_CHARS, Progress, find_last_line


def play(steps, *, commands=1):
    """Return the lines told of ``(seconds since the start, end of the output)``, of each command the same."""
    now = [100.0]
    told: list[str] = []
    progress = Progress(
        lambda event: told.append(event.line if isinstance(event, OutputShown) else ""),
        lambda text: text.replace("handed", "[redacted]"),
        lambda: now[0],
    )
    for number in range(1, commands + 1):
        now[0] = start = 500.0 * number
        progress.note(ToolStarted(call_id="c", name="bash", summary="make"))
        for at, end in steps:
            now[0] = start + at
            progress.hear(end)
    return told


def test_a_line_is_told_once_and_not_before_a_second():
    """Not for what ends at once; the last of many; never the same twice; the next command begins anew."""
    assert play([(0.1, b"one\n"), (0.9, b"two\n"), (1.0, b"three\n"), (1.1, b"four\n"), (2.0, b"four\n")]) == [
        "three",
        "four",
    ]
    assert play([(1, b"one\n"), (2, b"one\n"), (3, b"")], commands=2) == ["one", "one"]


def test_an_hour_of_output_is_a_few_hundred_events():
    """Ten looks a second at a command that prints all the time."""
    told = play([(n / 10, b"line %d\n" % n) for n in range(36_000)])
    assert 60 < len(told) < 400


def test_a_value_that_a_gate_is_handed_is_in_no_line_that_is_told():
    """Also where the line is cut."""
    assert play([(1, b"a handed b\n"), (2, b"xhanded" + b"y" * (LONGEST_CHARS - 3))]) == [
        "a [redacted] b",
        "ed]" + "y" * (LONGEST_CHARS - 3),
    ]


@given(st.text(max_size=2_000))
@example("a\n 10%\r 20%")
def test_the_last_line_is_what_a_terminal_would_show(end):
    line = find_last_line(end)
    assert len(line) <= LONGEST_CHARS
    assert not set("\r\n") & set(line)
    lines = {"a\n 10%\r 20%": "20%", "a\r\nb\r\n\n  \n": "b", "\n\n": ""}
    assert {end: find_last_line(end) for end in lines} == lines

"""What a command prints while it runs, told now and then."""

from hypothesis import given
from hypothesis import strategies as st

from relay.session.events import Event, OutputShown, ToolStarted
from relay.setup.observers import LONGEST_CHARS, Progress, find_last_line


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def play(steps):
    """Return the lines told of ``(seconds since the start, end of the output)``."""
    clock = Clock()
    told: list[str] = []
    progress = Progress(lambda event: told.append(event.line if isinstance(event, OutputShown) else ""), clock)
    clock.now = 500.0
    progress.note(ToolStarted(call_id="c", name="bash", summary="make"))
    for at, end in steps:
        clock.now = 500.0 + at
        progress.hear(end)
    return told


def test_a_line_is_told_once_and_not_before_a_second():
    """Not for what ends at once; the last of many; never the same twice; the next command begins anew."""
    assert play([(0.1, b"one\n"), (0.9, b"two\n"), (1.0, b"three\n"), (1.1, b"four\n"), (2.0, b"four\n")]) == [
        "three",
        "four",
    ]
    assert play([(1, b"one\n"), (2, b"one\n"), (3, b"")]) == ["one"]


def test_an_hour_of_output_is_a_few_hundred_events():
    """Ten looks a second at a command that prints all the time."""
    told = play([(n / 10, b"line %d\n" % n) for n in range(36_000)])
    assert 60 < len(told) < 400


def test_a_command_that_is_told_of_begins_the_line_anew():
    clock = Clock()
    told: list[Event] = []
    progress = Progress(told.append, clock)
    for _ in range(2):
        progress.note(ToolStarted(call_id="c", name="bash", summary="make"))
        clock.now += 1
        progress.hear(b"same\n")
    assert told == [OutputShown(line="same")] * 2


def test_the_last_line_is_what_a_terminal_would_show():
    assert find_last_line(b"a\n 10%\r 20%") == "20%"
    assert find_last_line(b"a\r\nb\r\n\n  \n") == "b"
    assert find_last_line(b"\xff\xfe") == "\ufffd\ufffd"
    assert find_last_line(b"\n\n") == ""


@given(st.binary(max_size=2_000))
def test_any_bytes_are_one_short_line(end):
    line = find_last_line(end)
    assert len(line) <= LONGEST_CHARS
    assert not set("\r\n") & set(line)

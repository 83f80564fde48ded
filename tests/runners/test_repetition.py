"""Circles are recognised, work is not mistaken for one."""

from relay.runners.base import LoopDetector
from relay.session.values import ToolCall, ToolResult


def turn(command, output, changed=()):
    call = ToolCall(id="x", name="bash", input={"command": command})
    return [(call, ToolResult(text=output, changed_paths=changed))]


def feed(turns):
    detector = LoopDetector()
    return [detector.is_stuck(t) for t in turns]


def test_three_equal_turns_are_a_circle():
    """Same call, same result, nothing written."""
    assert feed([turn("ls", "a")] * 3) == [False, False, True]


def test_two_alternating_turns_are_a_circle():
    """A period of up to four is seen."""
    assert feed([turn("a", "1"), turn("b", "2")] * 3) == [False] * 5 + [True]


def test_polling_with_a_changing_answer_is_work():
    """A repeat counts only with the same result."""
    assert not any(feed([turn("status", str(n)) for n in range(20)]))


def test_a_test_run_again_after_an_edit_is_work():
    """A write in between starts the count afresh."""
    edit = [(ToolCall(id="e", name="edit", input={}), ToolResult(text="ok", changed_paths=("a.py",)))]
    assert not any(feed([turn("test", "red"), edit] * 10))


def test_shell_commands_that_may_have_changed_something_still_count_as_circles():
    """A shell command's changes are unknown; the same output three times is no progress."""
    assert feed([turn("make", "error 1", None)] * 3)[-1]

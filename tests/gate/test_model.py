"""What is kept of a gate: its baseline on one line, and the commands that passed last."""

from hypothesis import given
from hypothesis import strategies as st

from relay.gate.model import CommandCheck, GateMemory, GateResult, Outcome, parse_baseline, render_baseline


def make_check(command: str, *, exit_code: int = 0, output: str = "") -> CommandCheck:
    status = Outcome.FAILED if exit_code else Outcome.PASSED
    return CommandCheck(command=command, exit_code=exit_code, status=status, duration_s=0.0, output_tail=output)


CHECKS = st.builds(
    CommandCheck,
    command=st.text(),
    status=st.sampled_from(Outcome),
    exit_code=st.none() | st.integers(0, 255),
    duration_s=st.just(0.0),
    output_tail=st.just(""),
)


@given(st.lists(CHECKS, max_size=3))
def test_a_baseline_is_read_back(checks: list[CommandCheck]) -> None:
    """It is one line of an attempt's trailer."""
    result = GateResult(commands=tuple(checks))
    assert "\n" not in render_baseline(result)
    assert parse_baseline(render_baseline(result)) == result


def test_what_is_no_baseline_excuses_nothing() -> None:
    texts = ("", "{", "{}x", "1", "[1]", '[["a"]]', '[["a", "no status", 0]]', '[["a", "passed"]]')
    assert [text for text in texts if parse_baseline(text) is not None] == []


def test_only_what_passed_is_remembered_for_the_files_that_it_saw_until_what_git_ignores_changes() -> None:
    memory = GateMemory()
    memory.remember("t1", GateResult(commands=(make_check("a"), make_check("b", exit_code=1))))
    assert [*memory.recall("t1", ["a", "b"])] == ["a"]
    assert memory.recall("t2", ["a", "b"]) == {}
    memory.red_on["b"] = "t1"
    memory.forget()
    assert memory.recall("t1", ["a"]) == {}
    assert not memory.red_on  # a red on other ignored files makes no command flaky


def test_a_command_that_a_signal_or_a_full_disk_ended_says_nothing() -> None:
    full = "No space left on device"
    for code, output, expected in ((137, "", True), (1, full, True), (1, "no", False), (0, full, False)):
        assert make_check("a", exit_code=code, output=output).was_cut_off is expected, (code, output)

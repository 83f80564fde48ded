"""What is kept of a gate: its baseline on one line, and the commands that passed last."""

import pytest

from relay.gate.model import CommandCheck, GateMemory, GateResult, Outcome, parse_baseline, render_baseline


def make_check(command: str, *, exit_code: int = 0, output: str = "") -> CommandCheck:
    status = Outcome.FAILED if exit_code else Outcome.PASSED
    return CommandCheck(command=command, exit_code=exit_code, status=status, duration_s=0.0, output_tail=output)


def test_a_baseline_is_read_back() -> None:
    result = GateResult(commands=(make_check("a"), make_check("b  'c'", exit_code=1)))
    assert parse_baseline(render_baseline(result)) == result


@pytest.mark.parametrize("text", ["", "{", "1", "[1]", '[["a", "no status", 0]]', '[["a", "passed"]]'])
def test_what_is_no_baseline_is_none(text: str) -> None:
    assert parse_baseline(text) is None


def test_only_what_passed_is_remembered_for_the_files_that_it_saw_until_what_git_ignores_changes() -> None:
    memory = GateMemory()
    memory.remember("t1", GateResult(commands=(make_check("a"), make_check("b", exit_code=1))))
    assert [*memory.recall("t1", ["a", "b"])] == ["a"]
    assert memory.recall("t2", ["a", "b"]) == {}
    memory.forget()
    assert memory.recall("t1", ["a"]) == {}


@pytest.mark.parametrize(
    ("exit_code", "output", "expected"),
    [(137, "", True), (1, "No space left on device", True), (1, "no", False), (0, "No space left on device", False)],
)
def test_a_command_that_a_signal_or_a_full_disk_ended_says_nothing(
    exit_code: int, output: str, *, expected: bool
) -> None:
    assert make_check("a", exit_code=exit_code, output=output).was_cut_off is expected

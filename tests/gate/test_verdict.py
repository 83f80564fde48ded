"""Old reds are not blamed, new ones are, and nothing is green that nobody showed."""

import hashlib
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from relay.gate.model import (
    CommandCheck,
    GateResult,
    Outcome,
    compare_gate,
    find_flaky,
    find_unexplained,
    has_turned_green,
)


def check(command="lint", status=Outcome.PASSED, exit_code=None, failures=(), tail="", handle=""):
    code = exit_code if exit_code is not None else {Outcome.PASSED: 0, Outcome.FAILED: 1}.get(status)
    return CommandCheck(
        command=command,
        exit_code=code,
        status=status,
        duration_s=1.0,
        output_tail=tail,
        failures=failures,
        handle=handle,
    )


def gate(*checks):
    return GateResult(commands=checks)


GREEN = check("test", Outcome.PASSED)
RED = check("lint", Outcome.FAILED, failures=("a",))


def test_a_new_red_whose_output_names_nothing_that_changed_may_be_flaky():
    green = gate(check("test"), check("lint"))
    rows = [  # output, status, baseline, known red, expected
        ("test_other failed", Outcome.FAILED, green, (), ("test",)),
        ("src/keys.py:3: wrong", Outcome.FAILED, green, (), ()),
        ("test_keys failed", Outcome.FAILED, green, (), ()),
        ("test_other failed", Outcome.FAILED, gate(check("test", Outcome.FAILED)), (), ()),
        ("test_other failed", Outcome.FAILED, None, (), ()),
        ("src/keys.py:3: wrong", Outcome.FAILED, None, ("test",), ("test",)),
        ("", Outcome.TIMED_OUT, green, ("test",), ()),
        ("No space left on device", Outcome.FAILED, green, (), ()),
    ]
    wrong = [
        row
        for row in rows
        if find_unexplained(row[2], gate(check("test", row[1], tail=row[0])), ["src/keys.py", "a"], known_red=row[3])
        != row[4]
    ]
    assert wrong == []


def test_flaky_commands_are_named_with_their_tests_and_how_often():
    red = check("test", Outcome.FAILED, failures=("test_a", "test_b"))
    found = [red, replace(red, failures=("test_a",)), check("lint", Outcome.FAILED)]
    assert find_flaky(found) == (
        "`test` is flaky: red and green on the same files, 2 times (test_a, test_b)",
        "`lint` is flaky: red and green on the same files, 1 time",
    )
    assert find_flaky(found, least=2) == find_flaky(found)[:1]
    assert find_flaky([]) == ()


def test_all_green_is_green_and_no_command_is_said():
    verdict = compare_gate(None, gate(GREEN))
    assert (verdict.green, verdict.for_model) == (True, "")
    assert verdict.for_user == "1 of 1 verify commands passed."
    assert "nothing was checked" in compare_gate(None, gate()).for_user


def test_without_a_baseline_every_red_counts():
    assert not compare_gate(None, gate(GREEN, RED), own=frozenset()).green


def test_a_document_s_command_that_fails_as_before_is_excused_and_said():
    verdict = compare_gate(gate(RED), gate(GREEN, RED), own={"test"})
    assert verdict.green
    assert "`lint` was red before the work and still is" in verdict.for_user


def test_the_phase_s_own_command_must_become_green():
    assert not compare_gate(gate(RED), gate(GREEN, RED), own={"lint"}).green
    assert not compare_gate(gate(RED), gate(GREEN, RED)).green


OTHER_REDS = (
    check("lint", Outcome.FAILED, failures=("a", "b")),
    check("lint", Outcome.FAILED, failures=("a", "a")),
    check("lint", Outcome.FAILED, failures=("b",)),
    check("lint", Outcome.FAILED, exit_code=2, failures=("a",)),
    check("lint", Outcome.FAILED, failures=()),
    check("lint", Outcome.TIMED_OUT),
    check("lint", Outcome.INTERRUPTED),
    check("lint", Outcome.MISSING, exit_code=127),
    check("lint", Outcome.NO_TESTS, exit_code=0),
)


def test_another_red_than_before_is_blamed():
    """Fewer failures are not."""
    assert [now for now in OTHER_REDS if compare_gate(gate(RED), gate(GREEN, now), own={"test"}).green] == []
    before = check("lint", Outcome.FAILED, failures=("a", "b"))
    assert compare_gate(gate(before), gate(GREEN, RED), own=frozenset()).green


def test_only_a_command_that_ran_and_failed_before_and_now_may_stay_red():
    """The exit code may be the same: pytest ends with 5 where it finds no test, and so may any other check."""
    failed = check("lint", Outcome.FAILED, exit_code=5)
    for status in set(Outcome) - {Outcome.PASSED, Outcome.FAILED}:
        nothing = check("lint", status, exit_code=5)
        for before, now in ((nothing, failed), (failed, nothing), (nothing, nothing)):
            assert not compare_gate(gate(before), gate(GREEN, now), own=frozenset()).green, status
    assert compare_gate(gate(failed), gate(GREEN, failed), own=frozenset()).green


def test_a_gate_in_which_nothing_passes_is_not_green():
    verdict = compare_gate(gate(RED), gate(RED), own=frozenset())
    assert not verdict.green
    assert "nothing shows that" in verdict.for_user
    assert "nothing shows that" in verdict.for_model


TESTS = CommandCheck(
    command="pytest", exit_code=1, status=Outcome.FAILED, duration_s=1.0, output_tail="", ran_tests=True
)


def test_tests_that_stay_red_are_not_outweighed_by_what_was_green_before():
    """A linter that is green says nothing for the work; the user may type that it is ticked all the same."""
    linted = check("ruff check")
    verdict = compare_gate(gate(TESTS, linted), gate(TESTS, linted), own=frozenset())
    assert not verdict.green
    assert "No verify command that runs tests passes, and none went from red to green, so nothing" in verdict.for_user
    assert "`pytest` was red before the work and still is" in verdict.for_model
    unchecked = compare_gate(gate(TESTS, linted), gate(TESTS, linted), own=frozenset(), unchecked=True)
    assert (unchecked.green, unchecked.is_unproven) == (True, True)
    assert unchecked.excused == ("`pytest` was red before the work and still is (failed with exit 1)",)


def test_a_linter_that_stays_red_asks_for_no_proof_by_tests_but_tests_beside_it_do():
    linted = check("ruff check")
    assert compare_gate(gate(RED, linted), gate(RED, linted), own=frozenset()).green
    assert not compare_gate(gate(RED, TESTS, linted), gate(RED, TESTS, linted), own=frozenset()).green


def test_what_speaks_for_a_phase_beside_tests_that_stay_red():
    for before, now in (
        (check("grep -q x", Outcome.FAILED), check("grep -q x")),
        (replace(TESTS, command="node --test"), replace(GREEN, command="node --test", ran_tests=True)),
        (replace(GREEN, ran_tests=True), replace(GREEN, ran_tests=True)),
    ):
        assert compare_gate(gate(TESTS, before), gate(TESTS, now), own=frozenset()).green, now


def test_a_command_that_turned_green():
    """Of what is not known from before the phase, each that passes may have."""
    assert [has_turned_green(None, gate(now)) for now in (GREEN, RED)] == [True, False]
    assert [has_turned_green(gate(one), gate(one)) for one in (GREEN, RED)] == [False, False]
    assert has_turned_green(gate(check("test", Outcome.NO_TESTS)), gate(GREEN))


def test_the_model_gets_what_is_new_and_the_end_of_the_output():
    before = check("test", Outcome.FAILED, failures=("old",))
    now = check("test", Outcome.FAILED, failures=("new", "old"), tail="E assert 1 == 2", handle=".relay/outputs/g.txt")
    words = compare_gate(gate(before, RED), gate(GREEN, now, RED), own=frozenset()).for_model
    assert "`test` failed with exit 1." in words
    assert "New since the phase began: new." in words
    assert "Full output: .relay/outputs/g.txt" in words
    assert "E assert 1 == 2" in words
    assert "not yours to repair: `lint`" in words


def test_the_digest_is_what_its_documentation_says():
    result = gate(check("pytest -q"), check('a\n"é"', Outcome.TIMED_OUT))
    text = '[["pytest -q",0],["a\\n\\"é\\"",null]]'
    assert result.digest == hashlib.sha256(text.encode()).hexdigest()


checks = st.builds(
    check,
    command=st.sampled_from(["a", "b", "c"]),
    status=st.sampled_from(Outcome),
    failures=st.lists(st.sampled_from("xyz"), max_size=3).map(lambda names: tuple(sorted(names))),
)
gates = st.lists(checks, max_size=3, unique_by=lambda each: each.command).map(lambda some: gate(*some))


@given(before=st.none() | gates, now=gates, own=st.none() | st.frozensets(st.sampled_from("abc")))
def test_green_always_rests_on_something(before, now, own):
    verdict = compare_gate(before, now, own=own)
    assert verdict.green == (verdict.for_model == "")
    if verdict.green and now.commands:
        assert any(each.status is Outcome.PASSED for each in now.commands)
        for each in now.commands:
            if each.status is not Outcome.PASSED:
                assert own is not None
                assert each.command not in own
                assert each.status is Outcome.FAILED
    if now.passed:
        assert verdict.green


def test_a_session_is_told_what_only_the_user_can_change():
    check = CommandCheck(
        command="make", exit_code=1, status=Outcome.FAILED, duration_s=1, output_tail="x", causes=("no network", "b")
    )
    words = compare_gate(None, GateResult(commands=(check,))).for_model
    assert words.endswith("x\nOnly the user can change this: no network; b.")

"""A machine that lacks the mechanism: relay says so, refuses, and never pretends."""

import json
import re

import pytest

WORK = [
    {
        "turns": [
            {"tools": [{"name": "bash", "input": {"command": "echo world > world.txt; echo through > @OUT@/made"}}]},
            {"tools": [{"name": "tick", "input": {"item": "2.1", "evidence": "grep"}}]},
            {"text": "Commit: Say world"},
        ],
        "then": "next",
    },
    {"turns": [{"text": "Done."}], "repeat": True},
]  # fmt: skip


def examine(arena, before):
    played = arena.play(WORK, "doctor", "--json", before=before)
    report = json.loads(played.out)
    return played.code, report, [found for found in report["findings"] if found["name"] == "sandbox"]


@pytest.mark.as_each_user
def test_the_doctor_names_what_is_left_without_bubblewrap(arena, without_bwrap):
    """Landlock is tried and holds read-only; what runs need is missing, with the way out; exit 1."""
    code, report, found = examine(arena, without_bwrap)

    assert code == 1
    assert not report["ready"]
    assert [finding["state"] for finding in found] == ["missing", "ok"]
    assert "`relay run` refuses" in found[0]["words"]
    assert "`relay plan` works" in found[0]["words"]
    assert "bubblewrap" in found[0]["hint"]
    assert re.match(r"landlock, read-only: (\d+) of \1 acts", found[1]["words"])


@pytest.mark.as_each_user
def test_the_doctor_says_that_there_is_nothing(arena, without_any):
    """Without Landlock too, the failed try is shown and neither planning nor running is promised."""
    code, report, found = examine(arena, without_any)

    assert code == 1
    assert not report["ready"]
    assert [finding["state"] for finding in found] == ["missing", "info"]
    assert "`relay plan` refuses too" in found[0]["words"]
    assert found[1]["words"].startswith("landlock, read-only: 0 of ")


def test_control_the_doctor_where_nothing_is_missing(arena):
    """Here the machine has all that the tests above took away."""
    code, report, found = examine(arena, ())

    assert (code, report["ready"]) == (0, True)
    # An old bubblewrap is mentioned; it is no obstacle.
    assert {finding["state"] for finding in found if not finding["words"].startswith("bubblewrap ")} == {"ok"}


@pytest.mark.parametrize("words", [("run",), ("run", "--phase", "2"), ("plan", "feature", "--force")])
def test_no_mechanism_no_session(arena, without_any, words):
    """Nothing is asked and nothing is run; the words name what to install and what to type instead."""
    before = arena.state(whole=True)

    played = arena.play(WORK, *words, before=without_any)

    assert played.code == 1, played.tail
    assert played.systems == ()
    assert b"bubblewrap (bwrap) is not installed" in played.err
    assert b"--sandbox off" in played.err
    assert arena.state(whole=True) == before


def test_a_run_refuses_where_only_planning_could_be_held(arena, without_bwrap):
    """Landlock holds read-only and nothing more, so it is not taken for a sandbox that may write."""
    played = arena.play(WORK, "run", before=without_bwrap)

    assert played.code == 1, played.tail
    assert played.systems == ()
    assert not (arena.outside / "made").exists()


def test_switched_off_by_hand_it_runs_and_says_so(arena, without_any):
    """What was typed is done: a warning at the start, `off` in the head of the run and in the commit."""
    played = arena.play(WORK, "run", "--phase", "2", "--sandbox", "off", before=without_any)

    assert played.code == 0, played.tail
    assert b"sandbox off" in played.out
    assert b"commands run without protection, as the user asked" in played.out + played.err
    assert "Relay-Sandbox: off" in arena.git("log", "-1", "--format=%B")
    assert (arena.outside / "made").exists()

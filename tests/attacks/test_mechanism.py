"""A machine that lacks the mechanism: relay says so, refuses, and never pretends."""

import json

import pytest

from tests.effort import take_each

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


@pytest.mark.nightly
def test_the_doctor_says_that_there_is_nothing(arena, without_bwrap):
    """Neither planning nor running is promised; the way out is named; exit 1."""
    code, report, found = examine(arena, without_bwrap)

    assert code == 1
    assert not report["ready"]
    assert [finding["state"] for finding in found] == ["missing"]
    assert "`relay run` refuses" in found[0]["words"]
    assert "`relay plan` refuses too" in found[0]["words"]
    assert "bubblewrap" in found[0]["hint"]


@pytest.mark.parametrize("words", take_each(2, [("run",), ("plan", "feature", "--force")]))
def test_no_mechanism_no_session(arena, without_bwrap, words):
    """Nothing is asked and nothing is run; the words name what to install and what to type instead."""
    before = arena.state(whole=True)

    played = arena.play(WORK, *words, before=without_bwrap)

    assert played.code == 1, played.tail
    assert played.systems == ()
    assert b"bubblewrap (bwrap) is not installed" in played.err
    assert b"--sandbox " in played.err
    assert arena.state(whole=True) == before


@pytest.mark.nightly
@pytest.mark.parametrize("mechanism", ["container", "off"])
def test_what_the_user_typed_is_done_and_said(arena, without_bwrap, mechanism):
    """At the start what protects what, in the head of the run, and in the commit."""
    words = {
        "container": b"this container alone protects",
        "off": b"commands run without protection, as the user asked",
    }
    inside = (*without_bwrap, "/usr/bin/env", "container=podman")
    assert b"--sandbox container" in arena.play(WORK, "run", "--phase", "2", before=inside).err

    played = arena.play(WORK, "run", "--phase", "2", "--sandbox", mechanism, before=inside)

    assert played.code == 0, played.tail
    assert f"sandbox {mechanism}".encode() in played.out
    assert words[mechanism] in played.out + played.err
    assert f"Relay-Sandbox: {mechanism}" in arena.git("log", "-1", "--format=%B")
    assert (arena.outside / "made").exists()

"""A finished phase whose commit fails by nothing that a session did is committed later, without another session."""

import subprocess

import pytest

from relay.base.errors import ExitCode
from relay.session.events import SessionStarted
from relay.session.values import SessionEnd, SessionOutcome
from tests.scripted import ScriptedRunner

ONE = ("tick", {"item": "1.1", "evidence": "grep"})
SAID = SessionOutcome(end=SessionEnd.FINISHED, text="Commit: Say hello")


def write(path="hello.txt", content="hello\n"):
    return ("write", {"path": path, "content": content})


def commit_at_gate(stage, path, content):
    """Have the user commit a file when the session's work is checked, once."""

    def act():
        baselines = [event for event in stage.events if getattr(event, "baseline", None) is False]
        if len(baselines) == 1:
            stage.write(path, content)
            stage.git("add", path)
            stage.git("commit", "-qm", "by hand")

    stage.on_gate = act


def count_sessions(stage):
    return len(stage.seen(SessionStarted))


@pytest.mark.nightly
def test_an_unrelated_commit_meanwhile_costs_no_session(stage):
    """The work is put on the new tip, checked again and committed."""
    commit_at_gate(stage, "user.txt", "mine\n")

    ended = stage.play(ScriptedRunner([[[write(), ONE, SAID]]]), all_=False)

    assert ended.exit_code == ExitCode.DONE
    assert count_sessions(stage) == 1
    assert stage.git("log", "-2", "--format=%s").splitlines() == ["Say hello", "by hand"]
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["PLAN.md", "hello.txt"]
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
def test_where_paths_meet_a_session_looks_at_it(stage):
    """The user committed the same file with other words than are there now."""
    stage.on_gate = None
    runner = ScriptedRunner([[[write(), ONE, SAID]], [[write(content="hello again\n"), ONE, SAID]]])

    def act():
        if len(runner.specs) == 1 and not stage.git("log", "--format=%s", "--grep=by hand"):
            made = subprocess.run(
                ["git", "hash-object", "-w", "--stdin"],
                cwd=stage.root,
                input=b"mine\n",
                capture_output=True,
                check=True,
            )
            stage.git("update-index", "--add", "--cacheinfo", f"100644,{made.stdout.decode().strip()},hello.txt")
            stage.git("commit", "-qm", "by hand")

    stage.on_gate = act
    ended = stage.play(runner, all_=False)

    assert ended.exit_code == ExitCode.DONE
    assert count_sessions(stage) == 2


def test_what_git_does_not_take_is_told_to_the_session(stage):
    """`core.safecrlf` and a file with other line ends than git would give it."""
    stage.git("config", "core.autocrlf", "input")
    stage.git("config", "core.safecrlf", "true")
    mended = ("bash", {"command": "printf 'hello\\n' > hello.txt"})
    runner = ScriptedRunner([[[write(content="hello\r\n"), ONE, SAID], [mended, SAID]]])

    ended = stage.play(runner, all_=False)

    assert ended.exit_code == ExitCode.DONE
    assert "CRLF would be replaced by LF in hello.txt" in runner.told[1]
    assert count_sessions(stage) == 1


def fail_to_sign(stage):
    """Run a session whose work is finished and cannot be signed; then the user repairs that."""

    def lock():
        stage.git("config", "commit.gpgSign", "true")
        stage.git("config", "gpg.program", "false")

    ended = stage.play(ScriptedRunner([[[write(), ONE, lock, SAID]]]), all_=False)
    stage.git("config", "commit.gpgSign", "false")
    assert ended.exit_code == ExitCode.STOPPED
    assert "phase 1: not committed: " in ended.reason


def test_a_signature_that_cannot_be_made_is_paid_for_once(stage):
    """The work is committed as the session proposed it."""
    fail_to_sign(stage)

    again = stage.play(ScriptedRunner([]), all_=False)

    assert again.exit_code == ExitCode.DONE
    assert count_sessions(stage) == 0  # in the second run
    assert stage.git("log", "-1", "--format=%s").strip() == "Say hello"


@pytest.mark.nightly
def test_work_that_was_taken_out_since_is_not_committed(stage):
    """A session does it again."""
    fail_to_sign(stage)
    (stage.root / "hello.txt").unlink()

    again = stage.play(ScriptedRunner([[[write(), ONE, SAID]]]), all_=False)

    assert again.exit_code == ExitCode.DONE
    assert count_sessions(stage) == 1


def test_what_a_person_repaired_behind_a_red_gate_is_committed_without_a_session(stage):
    """The run says that it may be, and where to look; until then another run pays a session, as the gate is red."""
    runner = ScriptedRunner([[[write(content="hell\n"), ONE, SAID]], [[write(content="hello again\n")]]])
    ended = stage.play(runner, all_=False, max_repairs=0)
    assert (ended.exit_code, ended.next_command) == (ExitCode.STOPPED, "relay gate 1")
    assert "; repair it by hand, and relay run commits it without another session, or change its Ver" in ended.reason

    stage.write("hello.txt", "hello\n")
    ended = stage.play(runner, all_=False)

    assert ended.exit_code == ExitCode.DONE
    assert len(runner.specs) == 1
    assert stage.git("log", "-1", "--format=%s") == "Say hello\n"


@pytest.mark.nightly
def test_a_session_that_says_again_what_nothing_speaks_for_is_not_asked_a_third_time(stage):
    """Nor is one paid by the next run, which meets the same."""
    stage.write("hello.txt", "hello\n")
    stage.write("PLAN.md", (stage.root / "PLAN.md").read_text() + "\nAs planned.\n")
    stage.commit("planned where it was there already")
    runner = ScriptedRunner([[[ONE, SAID]]])
    for _ in range(2):
        ended = stage.play(runner, all_=False)
        assert ended.exit_code == ExitCode.STOPPED
        assert "phase 1: nothing supports its ticks: no file was changed" in ended.reason
        assert ended.next_command == "relay status --why"
    assert len(runner.told) == 2
    assert "call block and say so" in runner.told[1]

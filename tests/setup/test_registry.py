"""The setting `runner` chooses who runs the sessions, and only that runner asks for a key."""

import pytest

from relay.base.errors import ConfigError, ExitCode, RunnerError
from relay.config import Settings
from relay.run.planning.planner import PlanTask
from relay.runners.registry import get_kind, list_runners
from relay.session.events import PlanRestored, SessionEnded
from relay.session.values import SessionKind
from tests.scripted import ScriptedRunner

HELLO = ("write", {"path": "hello.txt", "content": "hello\n"})
TICK = ("tick", {"item": "1.1", "evidence": "written"})
NEW_PLAN = "# New\n\n## Phase 1 — One\nVerify: `test -e a.py`\n- [ ] Do it — a.py\n"


def test_an_unknown_runner_is_named_with_all_that_are_known():
    own = list_runners(Settings())["api"]
    with pytest.raises(ConfigError) as raised:
        get_kind("magic", origin="relay.toml:3", known={"api": own, "other": own})
    assert raised.value.message == "relay.toml:3: runner: found 'magic'; allowed: api, other"


def test_a_phase_runs_on_a_runner_that_needs_no_key(stage):
    """Tools, gate, tick and commit are the same, whoever says what is to be done."""
    runner = ScriptedRunner([[[HELLO, TICK]]])

    ended = stage.play(runner, phase="1")

    assert ended.exit_code == ExitCode.DONE, ended
    assert stage.git("show", "HEAD:hello.txt") == "hello\n"
    assert "- [x] Say hello" in stage.git("show", "HEAD:PLAN.md")
    assert [event.result for event in stage.seen(SessionEnded)] == ["done"]
    assert "Say hello" in runner.told[0]


@pytest.mark.nightly
def test_a_session_that_wrote_the_plan_itself_finds_it_put_back(stage):
    stage.play(ScriptedRunner([[[("bash", {"command": "echo done > PLAN.md"})], []]]), phase="1", sandbox="off")

    assert stage.seen(PlanRestored)
    assert (stage.root / "PLAN.md").read_text() == stage.git("show", "HEAD:PLAN.md")


def test_a_plan_is_written_on_a_runner_that_needs_no_key(stage):
    runner = ScriptedRunner([[[("submit_plan", {"markdown": "no plan"}), ("submit_plan", {"markdown": NEW_PLAN})]]])

    ended = stage.play_plan(runner, PlanTask(feature="one", force=True))

    assert ended.exit_code == ExitCode.DONE, ended
    assert (stage.root / "PLAN.md").read_text() == NEW_PLAN
    assert [result.is_error for result in runner.results] == [True, False]


def test_the_messages_api_asks_for_its_key_before_anything_else(stage):
    """Not even for a lock, nor for the state of the repository."""
    (stage.root / ".git/HEAD").write_text("0" * 40)

    with pytest.raises(RunnerError, match="no API key"), stage.enter(SessionKind.RUN):
        pass


def test_the_model_is_asked_for_through_the_contract_and_before_a_session(stage):
    """A runner that cannot start any session says so when it is asked for the model; nothing was begun."""

    class Refusing(ScriptedRunner):
        def get_model(self, model: str):
            raise RunnerError(f"{model} is not known here")

    with pytest.raises(RunnerError, match="is not known here"):
        stage.play(Refusing([]), phase="1")
    assert stage.git("for-each-ref", "refs/relay") == ""

"""What every kind of session has in common, on a runner of a few lines: no endpoint, no sandbox, no git."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from relay.runners.base import Callbacks, Session
from relay.session.events import Event, ResponseReceived, SessionEnded, SessionStarted
from relay.session.usage import Usage
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult, ToolSpec
from relay.setup.session import Sessions, SessionTask
from tests.scripted import ScriptedRunner, make_sessions

VERDICT = ToolSpec(name="verdict", description="Say what you think.", input_schema={"type": "object"})


@dataclass
class Review:
    """A third kind of session: it reads a diff and gives a verdict. All that it costs stands here."""

    findings: list[str] = field(default_factory=list)
    kind: str = "failed"
    end: SessionEnd = SessionEnd.FINISHED
    detail: str = ""

    def run(self, sessions: Sessions, diff: str) -> "Review":
        """Have it reviewed."""
        task = SessionTask(
            session_id="0badcafe",
            title="review",
            system="You review.",
            tools=(VERDICT,),
            callbacks=Callbacks(run_tool=self._take, render_soft_notice=lambda fill, soft: f"{fill} of {soft}"),
        )
        return sessions.run(task, lambda session: self._drive(session, diff))

    def _take(self, call: ToolCall) -> ToolResult:
        self.findings.append(call.input["text"])
        return ToolResult(text="Noted.", ends_session=True)

    def _drive(self, session: Session, diff: str) -> "Review":
        outcome = session.advance(diff)
        self.end, self.detail, self.kind = outcome.end, outcome.detail, "done" if self.findings else "failed"
        return self


@pytest.fixture
def events() -> list[Event]:
    return []


def test_a_third_kind_of_session_is_a_task_and_a_drive(events):
    """It is announced, driven, ended and told of like a session."""
    runner = ScriptedRunner([[[("verdict", {"text": "line 3 is wrong"})]]])

    review = Review().run(make_sessions(runner, events), "- a\n+ b\n")

    assert review.findings == ["line 3 is wrong"]
    assert runner.told == ["- a\n+ b\n"]
    started, ended = events
    assert isinstance(started, SessionStarted)
    assert (started.session_id, started.title, started.phase_id) == ("0badcafe", "review", "")
    assert isinstance(ended, SessionEnded)
    assert (ended.session_id, ended.result, ended.end) == ("0badcafe", "done", SessionEnd.ENDED_BY_TOOL)


def test_how_a_session_failed_is_told(events):
    refused = SessionOutcome(end=SessionEnd.REFUSED, detail="the model refused: no")

    Review().run(make_sessions(ScriptedRunner([[[refused]]]), events), "diff")

    assert [(event.result, event.end, event.detail) for event in events if isinstance(event, SessionEnded)] == [
        ("failed", SessionEnd.REFUSED, "the model refused: no")
    ]


def test_a_session_is_charged_with_its_own_use_and_the_run_with_all(events):
    """The second session starts at nothing; the cap counts both."""
    used = Usage(input_tokens=100, output_tokens=50)
    runner = ScriptedRunner([])
    sessions = make_sessions(runner, events)

    def answer() -> None:
        sizes: dict[str, Any] = {"fill_tokens": 150, "soft_tokens": 1, "hard_tokens": 2, "window_tokens": 3}
        told: dict[str, Any] = {"turn": 1, "model": "m", "stop_reason": "end_turn", "duration_s": 0.1}
        sessions.observe(ResponseReceived(usage=used, cost_usd=None, **sizes, **told))

    runner.sessions += [[[answer, answer]], [[answer]]]
    Review().run(sessions, "one")
    Review().run(sessions, "two")

    assert [event.usage for event in events if isinstance(event, SessionEnded)] == [used + used, used]
    assert sessions.meter.total.tokens == 450
    assert sessions.meter.check(500, 50) is None
    assert sessions.meter.check(500, 51) is not None


@pytest.mark.parametrize("pause_s", [0.0, 300.0])
@pytest.mark.parametrize(("ablate", "cached"), [((), True), (("cache",), False)])
def test_a_runner_is_told_all_that_chooses_the_cache(events, pause_s, ablate, cached):
    runner = ScriptedRunner([[[]]])
    sessions = make_sessions(runner, events, ablate=ablate)
    sessions.pace.pause_s = pause_s

    Review().run(sessions, "diff")

    spec = runner.specs[0]
    assert (spec.cached, spec.slowest_turn_s) == (cached, 60.0 + pause_s)

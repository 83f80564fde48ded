"""A finished plan held against the repository: byte for byte the same, or longer by a phase."""

import pytest

from relay.base.errors import ExitCode, PlanError
from relay.insight.telemetry.log import list_logs
from relay.plan.parse import parse_plan
from relay.run.planning.planner import PlanTask
from relay.run.planning.submission import RejectedPlan, judge_appended
from relay.session.events import SessionEnded

PLAN = "# Greetings\n\n## Phase 1 — Hello\nVerify: `test -f hello.txt`\n- [x] Say hello — hello.txt\n"
NEW = "## Phase 2 — Bye\\nVerify: `test -f bye.txt`\\n- [ ] Say bye — bye.txt"


@pytest.fixture
def finished(stage):
    stage.write("PLAN.md", PLAN)
    stage.write("hello.txt", "hello\n")
    stage.commit()
    return stage


def converge(stage, *turns):
    listed = "".join(f"      - {turn}\n" for turn in turns)
    return stage.plan(f"sessions:\n  - turns:\n{listed}", PlanTask(converge=True))


@pytest.mark.nightly
def test_where_nothing_is_missing_the_plan_is_the_same_to_the_byte(finished):
    ended = converge(finished, '{text: "All is there.", expect: {first_message_contains: "Say hello — hello.txt"}}')

    assert (ended.exit_code, ended.reason) == (
        ExitCode.DONE,
        "converged: the repository has everything that PLAN.md asks for",
    )
    assert finished.server.errors == []
    assert [session.result for session in finished.seen(SessionEnded)] == ["done"]
    assert (finished.root / "PLAN.md").read_text() == PLAN
    assert ended.spent_usd > 0


def test_what_is_missing_becomes_a_phase_behind_the_others(finished):
    ended = converge(finished, f'{{tools: [{{name: submit_plan, input: {{markdown: "{NEW}"}}}}]}}')

    assert (ended.exit_code, ended.next_command) == (ExitCode.DONE, "relay run")
    assert (finished.root / "PLAN.md").read_text() == PLAN + "\n" + NEW.replace("\\n", "\n") + "\n"


@pytest.mark.nightly
def test_an_unfinished_plan_is_not_held_against_anything(stage):
    with pytest.raises(PlanError, match="has open phases"):
        converge(stage, "{text: x}")
    (entry,) = list_logs(stage.root)
    assert entry.ended is not None, "told to have been killed"
    assert "has open phases" in entry.ended.reason


APPENDED = {
    "- [ ] Say more — hello.txt": "this is no new phase",
    "Some words.": "this is no new phase",
    "": "this is no new phase",
    "## Phase 2 — Bye\n- [ ] Say bye — bye.txt": "has no `Verify:` line",
    "## Phase 2 — Bye\nVerify: `test -f bye.txt`\n- [x] Say bye — bye.txt": "is ticked",
    "## Phase 1 — Hello\nVerify: `true`\n- [ ] Say bye — bye.txt": "",
}


def test_only_a_whole_phase_is_appended():
    for text, words in APPENDED.items():
        judged = judge_appended(text, None, before=parse_plan(PLAN))
        assert isinstance(judged, RejectedPlan), text
        assert words in " ".join(judged.faults)
    judged = judge_appended(NEW.replace("\\n", "\n"), None, before=parse_plan(PLAN))
    assert not isinstance(judged, RejectedPlan)
    assert [phase.done for phase in judged.phases] == [True, False]

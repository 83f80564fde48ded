"""What of a run is worth a call."""

from dataclasses import replace

from relay.news.notifier import DETAIL_CHARS, Watcher
from relay.session.events import (
    CapMoved,
    GateFinished,
    JobMoved,
    Noticed,
    QuestionAsked,
    ResponseReceived,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SessionEnded,
)
from relay.session.usage import Usage
from relay.session.values import SessionEnd


def start(cap=10.0, spent=0.0):
    return RunStarted(
        run_id="r", command="run", model="m", plan_path="PLAN.md", branch="main", sandbox="bwrap", cap_usd=cap,
        spent_usd=spent, rehearsed=False,
    )  # fmt: skip


def spend(usd):
    return ResponseReceived(
        turn=1, model="m", usage=Usage(), cost_usd=usd, fill_tokens=None, soft_tokens=1, hard_tokens=1,
        window_tokens=1, stop_reason="", duration_s=0,
    )  # fmt: skip


def end_session(end, result, phase="1"):
    return SessionEnded(session_id="s", phase_id=phase, end=end, result=result, detail="", usage=Usage(), cost_usd=None)


def end(code, reason="why", waits_for=""):
    return RunEnded(exit_code=code, reason=reason, next_command="", spent_usd=None, waits_for=waits_for)


def gate(*, passed=False, baseline=False, expected="", phase="2"):
    return GateFinished(
        phase_id=phase, baseline=baseline, passed=passed, summary="1 of 2 failed", duration_s=4, expected=expected
    )


def move(state, phase="1"):
    return JobMoved(phase_id=phase, state=state, detail="a key is missing")


def watch(*events):
    watcher = Watcher()
    return [(news.occasion, news.text) for event in events if (news := watcher.find_news(event))]


BLOCKED = end_session(SessionEnd.ENDED_BY_TOOL, "blocked")
ENDS = (
    ((end(0),), "done"),
    ((end_session(SessionEnd.FINISHED, "blocked"), end(0)), "done"),
    ((end(4),), "stopped"),
    ((end_session(SessionEnd.FINISHED, "done"), end(130)), "stopped"),
    ((BLOCKED, end(1)), "blocked"),
    ((end_session(SessionEnd.LIMIT, "failed"), end(4)), "limit"),
    ((BLOCKED, end_session(SessionEnd.FINISHED, "done", "2"), end(4)), "blocked"),
    ((BLOCKED, end_session(SessionEnd.FINISHED, "done"), end(4)), "stopped"),
)


def test_how_a_run_ends():
    assert [watch(start(), *events)[0][0] for events, _ in ENDS] == [occasion for _, occasion in ENDS]
    assert all(watch(start(), *events)[0][1].endswith(", unknown spent") for events, _ in ENDS)


def test_the_last_news_says_how_many_questions_wait_for_a_look():
    ended = replace(end(0), questions=("phase 1: Which port? (assumed: 8080)",))
    assert watch(start(), ended) == [
        ("done", "exit status 0, unknown spent; 1 question was answered by assumption"),
    ]


def test_a_phase_that_waits_for_a_yes_is_a_question_and_not_the_end():
    """Of `run --approve`, whose phases are a run each."""
    news = Watcher().find_news(end(0, waits_for="phase 2 — Secret"))
    assert news is not None
    assert (news.occasion, news.text) == ("question", "one phase is done, the next one waits for your yes")
    assert news.details == "phase 2 — Secret"


def test_each_share_of_the_cap_is_told_once():
    told = [("cost", f"{usd} of $10.00 are spent") for usd in ("$5.00", "$8.00", "$9.00")]
    assert watch(start(), spend(4), spend(1), spend(2), spend(1), spend(1), spend(0.5)) == told
    assert watch(start(spent=7.9), spend(0.2), spend(1)) == [("cost", "$9.10 of $10.00 are spent")]
    assert watch(start(), spend(4), CapMoved(cap_usd=5.0), spend(0.5)) == [("cost", "$4.50 of $5.00 are spent")]
    assert watch(start(), spend(4), CapMoved(cap_usd=None), spend(9)) == []
    assert watch(start(cap=None), spend(99)) == []
    assert watch(start(spent=None), spend(99)) == []
    assert watch(start(), spend(None), spend(99)) == []
    assert watch(spend(99)) == []


def test_a_gate_that_should_be_green_and_a_long_wait():
    assert watch(gate(passed=True), gate(baseline=True), gate(expected="not finished"), Noticed(text="x")) == []
    assert watch(gate(), gate(), gate(phase="3")) == [("red", "a gate is red after 4.0 s")] * 2
    retries = [RetryScheduled(attempt=1, wait_s=wait, reason="429") for wait in (299, 3600)]
    [(occasion, text)] = watch(*retries)
    assert (occasion, text.startswith("it waits for ")) == ("limit", True)
    assert [occasion for occasion, _ in watch(*retries, *retries, spend(0), *retries)] == ["limit"] * 2


def test_a_question_is_told_without_its_words():
    for waits, text in ((True, "it waits for your answer"), (False, "it goes on with what it assumes")):
        asked = QuestionAsked(question="Which?", assumed="this", waits=waits)
        assert watch(asked) == [("question", text)]
        news = Watcher().find_news(asked)
        assert news is not None
        assert news.details == "Which? (assumed: this)"


def test_details_are_one_line_of_a_bounded_length():
    watcher = Watcher()
    watcher.find_news(start())
    news = watcher.find_news(end(4, "a\nb" * 9_000))
    assert news is not None
    assert news.details.startswith("PLAN.md on main · a b")
    assert len(news.details) == DETAIL_CHARS
    assert Watcher().make("stopped", "", "x").details == "x"


STOPS = (
    ((BLOCKED, move("stopped"), end(4)), ["blocked"]),
    ((BLOCKED, move("stopped"), move("held", "2"), end(4)), ["blocked"]),
    ((BLOCKED, move("stopped"), spend(0.1), end(4)), ["blocked", "stopped"]),
    ((move("stopped"), move("landed", "2"), end(0)), ["stopped", "done"]),
    ((move("stopped"), move("stopped", "2"), end(1)), ["stopped", "stopped"]),
    ((end_session(SessionEnd.LIMIT, "failed"), move("stopped"), end(1)), ["limit"]),
    ((move("started"), move("waiting"), move("landed"), end(0)), ["done"]),
)


def test_one_of_several_phases_that_stops_is_told_at_once():
    """And the end of all not a second time, where nothing has come after it."""
    found = [[occasion for occasion, _ in watch(start(), *events)] for events, _ in STOPS]
    assert found == [occasions for _, occasions in STOPS]

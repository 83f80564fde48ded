"""Each phase on its own model and effort; another one before a run stops; a fallback where a model is out of reach."""

import re
from dataclasses import replace

import pytest

from relay.base.errors import ExitCode, RelayError
from relay.plan.parse import parse_plan
from relay.run.attempt.session import AttemptKind, AttemptResult
from relay.run.commit.candidate import Refused
from relay.run.rungs import find_rung
from relay.session.events import GateFinished, Noticed, ResponseReceived, SessionStarted
from relay.session.values import SessionEnd, SessionKind
from tests.scripted import ScriptedRunner

MODELS = "models: [claude-opus-5-5, claude-haiku-5-5, claude-sonnet-5-5]\n"
PLAN = """\
# Two models

## Phase 1 — Small
Verify: `grep -q hello hello.txt`
Model: claude-haiku-5-5
Effort: low
- [ ] Say hello — hello.txt

## Phase 2 — Large
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
"""


def say(word, item, **expect):
    turns = [
        {"expect": expect, "tools": [{"name": "write", "input": {"path": f"{word}.txt", "content": f"{word}\n"}}]},
        {"tools": [{"name": "tick", "input": {"item": item, "evidence": "seen"}}]},
        {"text": f"Commit: Say {word}", "repeat": 6},
    ]
    return {"turns": turns}


def make(*sessions):
    return f"{MODELS}sessions: {list(sessions)!r}"


def list_asked(stage):
    """Return model and effort of each conversation's first request."""
    bodies = [one.body for one in stage.server.requests if one.path == "/v1/messages"]
    first = [body for body in bodies if not any(message["role"] == "assistant" for message in body["messages"])]
    asked = [(body["model"], body.get("output_config", {}).get("effort")) for body in first]
    return list(dict.fromkeys(asked))


def list_rungs(stage, rev="HEAD"):
    return stage.git("log", "-1", "--format=%(trailers:key=Relay-Rung,valueonly)", rev).split()


@pytest.fixture
def begin(stage):
    def write(plan=PLAN):
        stage.write("PLAN.md", plan)
        stage.commit("plan")
        return stage

    return write


def test_each_phase_asks_its_own_model_at_its_price_until_it_is_out_of_quota(begin):
    """The effort is the phase's, too; a fallback that the user wants works for the rest of the phase alone."""
    stage = begin()
    script = make(SPENT, say("hello", "1.1"), say("world", "2.1"))
    ended = stage.run(script, escalate=["fallback=claude-sonnet-5-5"])
    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert list_asked(stage) == [("claude-haiku-5-5", "low"), ("claude-sonnet-5-5", "low"), ("claude-opus-5-5", None)]
    attempts = [(session.model, session.effort, session.rungs) for session in stage.seen(SessionStarted)]
    rungs = ("fallback=claude-sonnet-5-5",)
    assert attempts == [("claude-haiku-5-5", "low", ()), ("claude-sonnet-5-5", "low", rungs), ("", "", ())]
    assert (list_rungs(stage, "HEAD~1"), list_rungs(stage)) == ([*rungs], [])
    costs = {event.model: event.cost_usd / event.usage.prompt_tokens for event in stage.seen(ResponseReceived)}
    assert costs["claude-sonnet-5-5"] < costs["claude-opus-5-5"]
    models = stage.git("log", "-2", "--format=%(trailers:key=Relay-Model,valueonly)").split()
    assert models == ["claude-opus-5-5", "claude-sonnet-5-5"]


@pytest.mark.nightly
def test_what_is_typed_counts_for_all_phases(begin):
    stage = begin()
    ran = stage.run(make(say("hello", "1.1"), say("world", "2.1")), model="claude-sonnet-5-5")
    assert ran.exit_code == ExitCode.DONE
    assert list_asked(stage) == [("claude-sonnet-5-5", "low"), ("claude-sonnet-5-5", None)]


@pytest.mark.nightly
def test_a_cap_holds_at_the_price_of_the_phases_model(begin):
    """What one model may still send is too dear for the other."""
    stage = begin(PLAN.replace("claude-haiku-5-5", "dear-1"))
    prices = {"dear-1": {"price": {"input": 5_000.0, "output": 25_000.0}}}
    script = f"models: [claude-opus-5-5, {{id: dear-1}}]\nsessions: [{say('hello', '1.1')!r}]"
    ended = stage.run(script, models=prices)
    assert ended.exit_code == ExitCode.STOPPED
    assert "of the run's cap of 20.00 USD" in ended.reason
    assert not [one for one in stage.server.requests if one.path == "/v1/messages"]


BAD = {
    "turns": [
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "none"}}]},
        {"text": "Done", "repeat": 9},
    ]
}
ONE = PLAN[: PLAN.index("## Phase 2")].replace("Model: claude-haiku-5-5\nEffort: low\n", "")
LADDER = {"escalate": ["effort=high", "model=claude-opus-5-5", "model=claude-sonnet-5-5"], "max_repairs": 0}


@pytest.mark.nightly
def test_a_phase_that_its_sessions_do_not_finish_climbs_before_the_run_stops(begin):
    """Once each, without what is so already; said in the commit, and to the user."""
    stage = begin(ONE)
    ended = stage.run(make(BAD, BAD, say("hello", "1.1")), **LADDER)
    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert list_asked(stage) == [("claude-opus-5-5", None), ("claude-opus-5-5", "high"), ("claude-sonnet-5-5", "high")]
    assert list_rungs(stage) == ["effort=high", "model=claude-sonnet-5-5"]
    assert [session.rungs for session in stage.seen(SessionStarted)] == [
        (),
        ("effort=high",),
        ("effort=high", "model=claude-sonnet-5-5"),
    ]
    assert [gate.passed for gate in stage.seen(GateFinished)] == [False, False, False, True]
    told = [event.text for event in stage.seen(Noticed) if "a fresh session goes on with" in event.text]
    assert [words.rpartition("goes on with ")[2] for words in told] == ["effort high", "model claude-sonnet-5-5"]


@pytest.mark.nightly
def test_a_ladder_has_an_end_and_a_later_run_goes_on_at_its_top(begin):
    """Nothing is tried twice, whoever starts the run; the gate's refusal is what stops it."""
    stage = begin(ONE)
    ended = stage.run(make(BAD, BAD, BAD), **LADDER)
    assert ended.exit_code == ExitCode.STOPPED
    assert len(stage.seen(SessionStarted)) == 3
    assert stage.run(make(say("hello", "1.1")), **LADDER).exit_code == ExitCode.DONE
    assert list_asked(stage) == [("claude-sonnet-5-5", "high")]
    assert list_rungs(stage) == ["effort=high", "model=claude-sonnet-5-5"]


@pytest.mark.nightly
def test_a_hand_off_commit_keeps_the_place_on_the_ladder(begin):
    stage = begin(f"{ONE}- [ ] Say more — more.txt\n")
    idle = {"turns": [{"text": "I am done.", "repeat": 9}]}
    part = say("hello", "1.1")["turns"][:2]
    part.append({"tools": [{"name": "hand_off", "input": {"next_step": "more", "learned": [], "dead_ends": []}}]})
    ended = stage.run(make(idle, {"turns": part}, say("more", "1.2")), **LADDER)
    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert list_asked(stage)[1:] == [("claude-opus-5-5", "high")]
    assert "Relay-Status: handoff" in stage.git("log", "-1", "--format=%B", "HEAD~1")
    assert list_rungs(stage, "HEAD~1") == list_rungs(stage) == ["effort=high"]


HIGH, OPUS, SONNET, OTHER = (
    "effort=high",
    "model=claude-opus-5-5",
    "model=claude-sonnet-5-5",
    "fallback=claude-haiku-5-5",
)
RED = Refused(for_user="red", for_model="red")
FOR_A_PERSON = Refused(for_user="a hook wants a key")
STEPS: list[tuple[str, tuple[str, ...], AttemptKind, SessionEnd, Refused | None, str]] = [
    ("the first", (), AttemptKind.FAILED, SessionEnd.FINISHED, RED, HIGH),
    ("without what is so already", (HIGH,), AttemptKind.FAILED, SessionEnd.FINISHED, RED, SONNET),
    ("nothing twice", (HIGH, SONNET), AttemptKind.FAILED, SessionEnd.FINISHED, RED, ""),
    ("one that the settings have no more", ("effort=max",), AttemptKind.FAILED, SessionEnd.FINISHED, RED, HIGH),
    ("after a hand-off", (), AttemptKind.HANDOFF, SessionEnd.HARD_LINE, None, HIGH),
    ("stuck", (HIGH,), AttemptKind.FAILED, SessionEnd.STUCK, None, SONNET),
    ("out of quota", (HIGH,), AttemptKind.FAILED, SessionEnd.LIMIT, None, OTHER),
    ("out of reach", (), AttemptKind.FAILED, SessionEnd.API_FAILED, None, OTHER),
    ("out of quota again", (OTHER,), AttemptKind.FAILED, SessionEnd.LIMIT, None, ""),
    ("blocked", (), AttemptKind.BLOCKED, SessionEnd.ENDED_BY_TOOL, None, ""),
    ("refused by the endpoint", (), AttemptKind.FAILED, SessionEnd.DENIED, None, ""),
    ("for a person", (), AttemptKind.FAILED, SessionEnd.FINISHED, FOR_A_PERSON, ""),
    ("done", (), AttemptKind.DONE, SessionEnd.FINISHED, None, ""),
]


def test_which_change_of_the_ladder_comes_next(begin):
    stage, wrong = begin(ONE), []
    flags = {"escalate": [HIGH, OPUS, SONNET, OTHER]}
    with stage.enter(SessionKind.RUN, flags=flags, runner=ScriptedRunner([])) as ctx:
        (phase,) = parse_plan(ONE).phases
        for name, taken, kind, end, refused, expected in STEPS:
            here = replace(ctx, sessions=ctx.sessions.choose(phase, taken))
            here = replace(here, settings=here.sessions.settings)
            result = AttemptResult(kind=kind, end=end, detail="", refused=refused, new_claims=0)
            if (found := find_rung(here, result)) != expected:
                wrong.append((name, found))
    assert wrong == []


SPENT = {"turns": [{"fault": {"kind": "rate_limit", "retry_after": 99999, "times": "always"}, "text": "x"}]}


@pytest.mark.nightly
def test_without_a_fallback_a_model_that_is_out_of_quota_stops_the_run(begin):
    stage = begin()
    assert stage.run(make(SPENT)).exit_code == ExitCode.STOPPED
    assert list_asked(stage) == [("claude-haiku-5-5", "low")]


@pytest.mark.parametrize(
    ("plan", "flags", "words"),
    [
        (
            PLAN.replace("haiku-5-5", "haiku-55"),
            {},
            r"Model: found 'claude-haiku-55' \(did you mean .*; allowed: .*claude-haiku-5-5",
        ),
        (PLAN.replace("low", "extreme"), {}, "Effort: found 'extreme'; allowed: low, medium, high, xhigh, max"),
        (PLAN, {"escalate": ["model=claude-haku"]}, "escalate: found 'claude-haku'"),
        (PLAN, {"escalate": ["fallback=opus-9"]}, "escalate: found 'opus-9'"),
        (
            PLAN,
            {"escalate": ["effort=extreme"]},
            "allowed: a list of effort=low|medium|high|xhigh|max, model=ID and fallback=ID",
        ),
    ],
)
def test_an_unknown_model_or_effort_sends_nothing(begin, plan, flags, words):
    stage = begin(plan)
    with pytest.raises(RelayError) as raised:
        stage.run(make(), **flags)
    assert re.search(words, str(raised.value))
    assert stage.server is None or not [one for one in stage.server.requests if one.path == "/v1/messages"]

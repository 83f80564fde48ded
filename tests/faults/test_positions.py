"""Every fault of the rehearsal server at the positions of a run, and what it must lead to.

The play is the same each time: a session writes a line to a file with ``>>``, writes another, hands off; a second
session ticks the item and ends. One of these requests goes wrong (where that is before the hand-off, the first session
goes through without one). A command that ran twice would show as a third line.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from relay.base.errors import ExitCode
from relay.git.repository import open_repo
from relay.run.planning.planner import PlanTask
from relay.runners.messages.answers import parse_api_usage
from relay.session.events import Noticed, ResponseReceived, RetryScheduled, SessionEnded, ToolFinished
from relay.session.prices import cost_usd, list_prices
from relay.session.usage import Usage
from relay.session.values import SessionEnd
from relay.store.attempts import read_attempt
from relay.store.spend import read_plan_usage
from tests.conftest import Stage, keep_first
from tests.copied import FSCK, find_loose_head, refresh_index
from tests.effort import NIGHTLY
from tests.endpoint.faults import FaultName
from tests.message_rules import check_messages

PLAN = """\
# Log

## Phase 1 — Write
Verify: `grep -qx once log.txt`
- [ ] Write it once — log.txt
"""
NEW_PLAN = PLAN.replace("Log", "New log")
PRICE = list_prices()["claude-opus-5-5"]


class Position(StrEnum):
    """Which request goes wrong."""

    FIRST = "first"
    """The first request of a session."""
    MID = "mid-session"
    HAND_OFF = "hand-off"
    """The one in which the model hands off."""
    AFTER = "after the hand-off"
    """The first request of the second session."""
    PLANNING = "planning"


class Then(StrEnum):
    """What a fault must lead to."""

    AGAIN = "again"
    """The same request is sent again until it is answered; the run completes."""
    MORE_ROOM = "more room"
    """The same conversation is sent again with a larger output limit; the run completes."""
    GO_ON = "go on"
    """The model is told and goes on in the same session; the run completes."""
    NOTHING = "nothing"
    """The run goes on as if nothing had been."""
    FRESH = "fresh session"
    """The session hands over to a fresh one, which completes the run."""
    STOP = "stop"
    """The run stops with work left, exit 4."""
    USER = "user"
    """The run stops because only the user can change it, exit 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fault and what is expected of it."""

    fault: Mapping[str, Any]
    then: Then
    words: str
    """Part of what the user is told: of the retry's reason, of the notice, or of the stop."""
    end: SessionEnd | None = None
    """How the session ends where the run stops."""
    retries: int = 1
    """How many tries fail."""
    wait_s: tuple[float, float] = (0.0, 60.0)
    """Bounds of each wait."""
    counted: bool = False
    """Whether the answer had begun, so that tokens are to be paid for it."""
    idle_timeout_s: float | None = None
    in_planning: Then | None = None
    """What it leads to there, where that is something else."""
    at_first: Then | None = None
    """What it leads to at the first request of a session, where that is something else."""

    def at(self, position: Position) -> Then:
        """What the fault leads to at a position."""
        opens = position in {Position.FIRST, Position.AFTER, Position.PLANNING}
        if opens and self.at_first:
            return self.at_first
        return self.in_planning if position is Position.PLANNING and self.in_planning else self.then


IDLE_S = 0.6
"""Long enough for a healthy answer of the server in this process, on a busy machine too."""


CASES: Mapping[str, Case] = {
    # Nobody's fault: the same request again, with growing waits. Not counted against the phase.
    "overloaded": Case(fault={"kind": "overloaded"}, then=Then.AGAIN, words="HTTP 529 overloaded_error"),
    "status 500": Case(fault={"kind": "status", "status": 500}, then=Then.AGAIN, words="HTTP 500 api_error"),
    "drop": Case(fault={"kind": "drop", "how": "rst"}, then=Then.AGAIN, words="Error"),
    "cut, clean": Case(
        fault={"kind": "cut", "how": "end", "after_events": 5},
        then=Then.AGAIN,
        words="without message_stop",
        counted=True,
    ),
    "error event": Case(
        fault={"kind": "error_event"}, then=Then.AGAIN, words="overloaded_error in mid-stream", counted=True
    ),
    "stall": Case(
        fault={"kind": "stall"}, then=Then.AGAIN, words="Timeout", counted=True, idle_timeout_s=IDLE_S, retries=1
    ),
    "garbage": Case(fault={"kind": "garbage"}, then=Then.AGAIN, words="not a well-formed answer", counted=True),
    # A limit: wait as long as the endpoint says, but not for ever.
    "rate limit": Case(
        fault={"kind": "rate_limit", "retry_after": "7"}, then=Then.AGAIN, words="HTTP 429", wait_s=(7.0, 8.0)
    ),
    "rate limit, far away": Case(
        fault={"kind": "rate_limit", "retry_after": "36000", "times": "always"},
        then=Then.STOP,
        words="It resets at",
        end=SessionEnd.LIMIT,
        retries=0,
    ),
    # The account: nothing that relay does can help, so it asks once.
    "spend limit": Case(
        fault={"kind": "spend_limit", "times": "always"},
        then=Then.USER,
        words="monthly API usage threshold",
        end=SessionEnd.DENIED,
        retries=0,
    ),
    # The prompt does not fit: a fresh session has a short one, unless it is the first prompt that does not.
    # A planner has nobody to hand over to.
    "overflow": Case(
        fault={"kind": "overflow"},
        then=Then.FRESH,
        words="prompt is too long",
        end=SessionEnd.DENIED,
        at_first=Then.USER,
    ),
    "window exceeded": Case(
        fault={"kind": "window_exceeded"},
        then=Then.FRESH,
        words="window is full",
        end=SessionEnd.OVERFLOW,
        in_planning=Then.STOP,
    ),
    # What the model says is not what it meant: nothing of it is run.
    "max tokens": Case(fault={"kind": "max_tokens"}, then=Then.MORE_ROOM, words="asked again with 128,000 tokens"),
    "bad json": Case(fault={"kind": "bad_json"}, then=Then.GO_ON, words="not complete JSON"),
    "empty": Case(fault={"kind": "empty"}, then=Then.GO_ON, words="your answer was empty"),
    "pause turn": Case(fault={"kind": "pause_turn"}, then=Then.GO_ON, words="your turn was paused"),
    "refusal": Case(
        fault={"kind": "refusal", "category": "cyber", "explanation": "I will not"},
        then=Then.STOP,
        words="the model refused: I will not",
        end=SessionEnd.REFUSED,
    ),
    "unknown stop": Case(
        fault={"kind": "unknown_stop"},
        then=Then.USER,
        words="the endpoint ended its answer with 'moonrise', which is no stop reason of the Messages API",
        end=SessionEnd.DENIED,
    ),
    "unknown block": Case(fault={"kind": "unknown_block"}, then=Then.NOTHING, words=""),
    # Money that is not counted for us: the most that the answer can have cost is, and the run goes on.
    "usage missing": Case(fault={"kind": "usage", "report": "missing"}, then=Then.NOTHING, words=""),
    "usage zero": Case(fault={"kind": "usage", "report": "zero"}, then=Then.NOTHING, words=""),
    # An answer in another form, or from somebody else, is an answer.
    "no stream": Case(fault={"kind": "no_stream"}, then=Then.NOTHING, words=""),
    "other model": Case(fault={"kind": "other_model", "model": "claude-fable-5-2"}, then=Then.NOTHING, words=""),
}


def list_tries() -> list[Any]:
    """Return a fault of each outcome, at positions in turn; in the night all everywhere."""
    of_each = {case.then: name for name, case in reversed([*CASES.items()])}
    tries = [(name, list(Position)[turn % 5]) for turn, name in enumerate([*of_each.values(), "cut, clean"])]
    if NIGHTLY:
        tries = [(name, at) for name in CASES for at in Position]
    return [pytest.param(name, at, id=f"{name} — {at}") for name, at in tries]


def bash(command: str) -> dict[str, Any]:
    return {"tools": [{"name": "bash", "input": {"command": command}}]}


TURNS: Mapping[Position, dict[str, Any]] = {
    Position.FIRST: bash("echo once >> log.txt"),
    Position.MID: bash("echo twice >> log.txt"),
    Position.HAND_OFF: {
        "tools": [{"name": "hand_off", "input": {"next_step": "tick it", "learned": [], "dead_ends": []}}]
    },
    Position.AFTER: {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "one line"}}]},
    Position.PLANNING: {"tools": [{"name": "submit_plan", "input": {"markdown": NEW_PLAN}}]},
}
END = {"text": "Commit: Write it once"}
RECOVERY = [
    bash("grep -qx once log.txt || echo once >> log.txt; grep -qx twice log.txt || echo twice >> log.txt"),
    TURNS[Position.AFTER],
]
"""What a session does that finds the work half done: it looks first."""


def write_turns(position: Position, case: Case) -> list[dict[str, Any]]:
    """Write the turns of a position: its own answer, with the fault in front of it."""
    own = TURNS[position]
    broken = {"fault": case.fault} if case.fault["kind"] in {"empty", "pause_turn"} else {**own, "fault": case.fault}
    return [broken, own] if case.then is Then.GO_ON else [broken]


def list_places(position: Position) -> list[list[Position]]:
    """List the requests of each session up to the last, which only ends; the hand-off only where it matters."""
    if position is Position.PLANNING:
        return [[position]]
    if position in {Position.FIRST, Position.MID}:
        return [[Position.FIRST, Position.MID, Position.AFTER]]
    return [[Position.FIRST, Position.MID, Position.HAND_OFF], [Position.AFTER]]


def write_script(position: Position, case: Case) -> str:
    """Write the play with one request that goes wrong."""
    sessions: list[list[dict[str, Any]]] = []
    for places in list_places(position):
        turns = [write_turns(place, case) if place is position else [TURNS[place]] for place in places]
        sessions.append([turn for own in turns for turn in own])
        if position in places and case.at(position) is Then.FRESH:
            sessions.append(RECOVERY)
            break
    if position is not Position.PLANNING:
        sessions[-1] = [*sessions[-1], END]
    return json.dumps({"sessions": [{"turns": turns} for turns in sessions]})


@pytest.fixture(scope="session")
def stage_template(stage_template: Path, arranged: Path) -> Path:
    """The stage of every fault has this plan committed."""
    kept = arranged / "faults"
    if not kept.exists():
        with keep_first(kept) as root:
            shutil.copytree(stage_template, root, dirs_exist_ok=True)
            refresh_index(root)
            made = Stage(root=root)
            made.write("PLAN.md", PLAN)
            made.commit("plan")
    return kept


def list_requests(stage) -> list[dict[str, Any]]:
    return [r.body for r in stage.server.requests if r.path == "/v1/messages"]


def sum_usage(stage) -> Usage:
    total = Usage()
    for event in stage.seen(ResponseReceived):
        total += event.usage or Usage()
    return total


def list_words(stage) -> str:
    """Everything that a person, or the model, was told."""
    told = [e.reason for e in stage.seen(RetryScheduled)]
    told += [e.text for e in stage.seen(Noticed)]
    told += [e.detail for e in stage.seen(SessionEnded)]
    told += [json.dumps(body["messages"], ensure_ascii=False) for body in list_requests(stage)]
    return "\n".join(told)


def check_histories(stage) -> None:
    """Each request keeps the rules of a history, and begins with the request before it in its conversation."""
    before: dict[str, list[Any]] = {}
    for body in list_requests(stage):
        messages = [_strip(message) for message in body["messages"]]
        assert check_messages(messages) == ()
        opening = json.dumps(messages[0])
        earlier = before.get(opening, [])
        assert messages[: len(earlier)] == earlier
        before[opening] = messages


def _strip(message: Mapping[str, Any]) -> dict[str, Any]:
    """Leave cache markers out: they move."""
    content = [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]]
    return {**message, "content": content}


def require_repository(stage) -> None:
    """Objects are sound, and nothing of git's is locked or half done."""
    assert stage.git(*FSCK) == ""
    assert list((stage.root / ".git").rglob("*.lock")) == []
    assert stage.git("ls-files", "--unmerged") == ""


def check_retries(stage, case: Case) -> None:
    """What went wrong was tried again as often as it should, with waits that nobody slept through."""
    retries = stage.seen(RetryScheduled)
    assert stage.waits == [retry.wait_s for retry in retries]
    if case.then in {Then.AGAIN, Then.STOP, Then.USER}:
        expected = case.retries if case.then is Then.AGAIN or case.retries not in {0, 1} else 0
        if case.idle_timeout_s is None:
            assert len(retries) == expected
        else:
            assert len(retries) >= expected  # on a busy machine a healthy answer may be late too
    for retry in retries:
        low, high = case.wait_s
        assert low <= retry.wait_s <= high


def check_money(stage, case: Case, ended) -> None:
    """What the endpoint bills is never more than what is counted, and counted exactly where it says what it bills."""
    if case.fault["kind"] == FaultName.OTHER_MODEL:
        return  # of another price
    billed = sum(cost_usd(parse_api_usage(r.usage) or Usage(), PRICE) for r in stage.server.requests if r.usage)
    if ended.estimated:
        assert ended.spent_usd >= billed
    else:
        assert ended.spent_usd == pytest.approx(billed)


@pytest.mark.parametrize(("name", "position"), list_tries())
def test_each_fault_at_each_position(stage, name, position):
    """See the table: what happens, what is told, and that nothing ran twice, was lost or was not counted."""
    case = CASES[name]
    base = find_loose_head(stage.root / ".git")
    stage.idle_timeout_s = case.idle_timeout_s
    script = write_script(position, case)

    if position is Position.PLANNING:
        ended = stage.plan(script, PlanTask(feature="a new log", force=True))
    else:
        ended = stage.run(script)

    assert stage.server.errors == []
    check_money(stage, case, ended)
    check_retries(stage, case)
    check_histories(stage)
    require_repository(stage)
    if case.counted:
        assert [e for e in stage.seen(ResponseReceived) if e.stop_reason == "cut" and e.usage is not None]
    if case.at(position) in {Then.STOP, Then.USER}:
        check_stop(stage, case, position, ended, base)
    else:
        check_done(stage, case, position, ended)


def check_done(stage, case: Case, position: Position, ended) -> None:
    """The run completed: one commit, each command ran once, every token is in its trailers."""
    assert ended.exit_code == ExitCode.DONE, ended
    if case.at(position) is not Then.NOTHING:
        assert case.words in list_words(stage)
    if position is Position.PLANNING:
        assert (stage.root / "PLAN.md").read_text() == NEW_PLAN
        record = read_plan_usage(open_repo(stage.root))
        assert record is not None
        assert record.spend.usage == sum_usage(stage)
        return
    (commit,) = stage.commits()
    assert commit.items == ("1.1",)
    assert commit.usage == sum_usage(stage)
    assert commit.estimated == any(event.estimated for event in stage.seen(ResponseReceived))
    assert stage.git("show", "HEAD:log.txt") == "once\ntwice\n"
    assert stage.git("status", "--porcelain") == ""
    assert stage.git("for-each-ref", "refs/relay/leg") == ""
    places = [place for places in list_places(position) for place in places]
    if case.then is not Then.FRESH:
        ran = [event.name for event in stage.seen(ToolFinished) if not event.is_error]
        assert ran == [TURNS[place]["tools"][0]["name"] for place in places]
    if case.then is Then.AGAIN:
        bodies = [json.dumps(body) for body in list_requests(stage)]
        asked = len(places) + 1
        assert (len(set(bodies)), len(bodies)) == (asked, asked + len(stage.seen(RetryScheduled)))


def check_stop(stage, case: Case, position: Position, ended, base: str) -> None:
    """The run stopped: the words say why, the work is where it was, the next run can go on."""
    assert ended.exit_code == (ExitCode.USER if case.at(position) is Then.USER else ExitCode.STOPPED), ended
    assert (ended.next_command == "relay doctor") == (case.at(position) is Then.USER)  # the same would be refused again
    assert case.words in ended.reason
    assert [session.end for session in stage.seen(SessionEnded)][-1] == case.end
    assert find_loose_head(stage.root / ".git") == base
    assert (stage.root / "PLAN.md").read_text() == PLAN
    if position is Position.PLANNING:
        record = read_plan_usage(open_repo(stage.root))
        assert record is not None
        assert record.spend.usage == sum_usage(stage)
        return
    lines = (stage.root / "log.txt").read_text().split() if (stage.root / "log.txt").exists() else []
    done = {Position.FIRST: [], Position.MID: ["once"]}.get(position, ["once", "twice"])
    assert lines == done
    attempt = read_attempt(open_repo(stage.root))
    assert attempt is not None
    assert attempt.spend.usage == sum_usage(stage)
    assert attempt.handoff_note
    assert (attempt.ending.wait_until > 0) == (case.end is SessionEnd.LIMIT)


def test_every_kind_of_fault_is_in_the_table():
    """A new fault of the server cannot be forgotten here."""
    assert {case.fault["kind"] for case in CASES.values()} == set(FaultName)

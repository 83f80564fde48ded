"""Caps of money and tokens, checked before each request against the most it can cost; spend outlives the process."""

import json
import resource

import pytest

from relay.base.errors import ConfigError, ExitCode
from relay.git.repository import open_repo
from relay.runners.messages.answers import parse_api_usage
from relay.session.events import ResponseReceived, RunStarted, SessionEnded, SessionStarted
from relay.session.prices import Budget, cost_usd, list_prices
from relay.session.spend import Meter
from relay.session.usage import Spent
from relay.session.values import SessionEnd
from relay.setup.session import Book

PRICE = list_prices()["claude-opus-5-5"]


def write(name, text):
    return {"tools": [{"name": "write", "input": {"path": name, "content": text}}]}


def tick(item):
    return {"tools": [{"name": "tick", "input": {"item": item, "evidence": "it is there"}}]}


HAND_OFF = {"tools": [{"name": "hand_off", "input": {"next_step": "go on", "learned": [], "dead_ends": []}}]}
HELLO = [write("hello.txt", "hello\n"), tick("1.1"), {"text": "Commit: Say hello"}]
WORLD = [write("world.txt", "world\nworld\n"), tick("2.1"), tick("2.2"), {"text": "Commit: Say world"}]


def make_script(*sessions, **extra):
    return json.dumps({"sessions": [{"turns": turns} for turns in sessions], **extra})


def make_long(count=12):
    return make_script([write(f"file{n}.txt", f"{n}\n" * 400) for n in range(count)])


ROOM = 1_000
"""Output tokens allowed, at 20 USD a million."""
ROOM_ONLY = {"claude-opus-5-5": {"max_output_tokens": ROOM}}


def spent(stage):
    return sum(response.cost_usd for response in stage.seen(ResponseReceived))


def test_a_run_never_costs_more_than_its_cap_also_after_a_restart(stage):
    """The next request is judged by its whole prompt at the dearest class and its whole output allowance.

    What no commit records yet is in the open attempt; the next run counts on from there, to the cent.
    """
    cap = 0.08
    first = stage.run(make_long(), max_cost_usd=cap, models=ROOM_ONLY)

    assert first.exit_code == ExitCode.STOPPED
    assert "the next request may cost 0.0" in first.reason
    assert f"of the run's cap of {cap:.2f} USD are spent" in first.reason
    assert 0 < spent(stage) <= cap
    assert cap < spent(stage) + 0.05 + ROOM * 20e-6  # and it is not given up long before
    assert first.spent_usd == pytest.approx(spent(stage))
    assert [session.end for session in stage.seen(SessionEnded)] == [SessionEnd.BUDGET]
    assert first.next_command == f"relay run --max-cost {2 * cap:g}"
    assert stage.commits() == ()

    second = stage.run(make_script(HELLO), max_cost_usd=cap, models=ROOM_ONLY)

    assert stage.seen(RunStarted)[0].spent_usd == pytest.approx(first.spent_usd, abs=1e-6)
    assert (second.exit_code, stage.seen(ResponseReceived)) == (ExitCode.STOPPED, [])

    third = stage.run(make_script(HELLO), all_=False)
    assert stage.seen(RunStarted)[0].cap_usd == 20.0, "without a word from the user"
    assert third.exit_code == ExitCode.DONE
    assert third.spent_usd == pytest.approx(first.spent_usd + spent(stage), abs=1e-6)
    assert sum(commit.cost_usd for commit in stage.commits()) == pytest.approx(third.spent_usd, abs=1e-5)


def test_a_cap_below_one_answer_sends_nothing(stage):
    """Not one request fits; a smaller answer, which would fit, is the user's to choose."""
    ended = stage.run(make_long(), max_cost_usd=0.08)

    assert "the next request may cost 0.1" in ended.reason
    assert "--max-cost raises it" in ended.reason
    assert ended.next_command == "relay run --max-cost 0.16"
    assert stage.seen(ResponseReceived) == []


@pytest.mark.nightly
@pytest.mark.parametrize("report", ["missing", "zero"])
def test_what_one_answer_did_not_say_locks_nothing(stage, report):
    """It counts as the most that it can have cost, is marked as that, and the next run goes on under the same cap."""
    unsaid = {**HELLO[0], "fault": {"kind": "usage", "report": report}}
    first = stage.run(make_script([unsaid, *HELLO[1:]]), all_=False, max_cost_usd=2)
    assert (first.exit_code, first.estimated) == (ExitCode.DONE, True)
    assert 32_000 * 20e-6 < first.spent_usd < 1
    assert "Relay-Cost: ~0." in stage.git("log", "-1", "--format=%B")

    second = stage.run(make_script(WORLD), max_cost_usd=2)

    assert (second.exit_code, second.estimated) == (ExitCode.DONE, True)
    assert stage.seen(RunStarted)[0].estimated
    assert stage.seen(RunStarted)[0].spent_usd == pytest.approx(first.spent_usd, abs=1e-6)
    assert second.spent_usd < first.spent_usd + 0.1
    assert "~$0." in stage.relay("status").stdout


def test_a_request_is_not_sent_whose_cost_cannot_be_written_down(stage):
    """A full disk: a kill would lose what it cost."""
    book = Book(open_repo(stage.root), Meter(Budget(run_cap_usd=None), price=None, before=Spent()))
    book.observe(SessionStarted(session_id="s1", phase_id="1", title="", number=1, reason=""))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        words = book.check(10, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert words == "the cost of the next request cannot be noted on disk: File too large"
    assert book.check(10, 10) is None


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.nightly
def test_what_a_killed_session_spent_on_looking_around_is_counted(stage):
    """Reading changes no file, yet what it cost is noted with each answer; a kill loses none."""
    looks = [{"tools": [{"name": "read", "input": {"path": "AGENTS.md", "offset": n}}]} for n in range(1, 30)]
    seen = []

    def kill():
        seen.append(1)
        if len(seen) == 27:
            raise Killed

    stage.on_tool = kill
    with pytest.raises(Killed):
        stage.run(make_script(looks))
    before = spent(stage)
    stage.calm()

    stage.run(make_script(HELLO), all_=False)

    counted = stage.seen(RunStarted)[0].spent_usd
    assert counted == pytest.approx(before, abs=1e-6)


def test_the_cap_of_a_phase_counts_all_its_sessions(stage):
    """Also those whose work a hand-off commit recorded, also after a restart."""
    stage.edit("— World\n", "— World\nAfter: none\n")
    stage.commit("order")
    stage.run(make_script([write("world.txt", "world\n"), tick("2.1"), HAND_OFF], WORLD[:1]), phase="2")
    assert [c.status for c in stage.commits()] == ["handoff"]
    handed = stage.commits()[0].cost_usd
    open_attempt = stage.seen(SessionEnded)[-1].cost_usd

    ended = stage.run(make_script(HELLO), phase="2", max_phase_cost_usd=handed + open_attempt + 0.08)

    assert "of the phase's cap of" in ended.reason
    assert stage.seen(ResponseReceived) == []
    stage.run(make_script(WORLD[:1]), phase="2", max_phase_cost_usd=handed + open_attempt + 0.9)
    assert stage.seen(ResponseReceived)


ACME = {"model": {"id": "acme-1", "window": 200_000, "max_tokens": 8_000}}


def test_an_unknown_price_is_unknown_and_a_cap_of_tokens_serves(stage):
    """Money cannot be capped where no price is known: relay says what helps, and a cap of tokens does."""
    with pytest.raises(ConfigError, match=r"the model's price is unknown.*max_tokens_total"):
        stage.run(make_script(HELLO, **ACME), model="acme-1")
    assert (stage.seen(RunStarted), stage.git("for-each-ref", "refs/relay")) == ([], "")

    turns = [write(f"{n}.txt", "x") for n in range(30)]
    ended = stage.run(make_script(turns, **ACME), model="acme-1", max_tokens_total=25_000)
    used = sum(response.usage.context_tokens for response in stage.seen(ResponseReceived))
    assert "of the cap of 25,000 are used" in ended.reason
    assert 0 < used <= 25_000 < used + 8_000 + 8_000
    assert (ended.spent_usd, {r.cost_usd for r in stage.seen(ResponseReceived)}) == (None, {None})

    done = stage.run(make_script(HELLO, **ACME), all_=False, model="acme-1", max_cost_usd="none")
    assert (done.exit_code, done.spent_usd) == (ExitCode.DONE, None)


def test_tokens_that_nobody_reported_count_as_the_most_they_can_be(stage):
    """An endpoint that reports no usage cannot be used beyond a cap of tokens either."""
    turns = [{**write(f"{n}.txt", "x"), "fault": {"kind": "usage", "times": "always"}} for n in range(30)]

    ended = stage.run(make_script(turns, **ACME), model="acme-1", max_tokens_total=30_000)

    assert "of the cap of 30,000 are used" in ended.reason
    assert 2 <= len(stage.seen(ResponseReceived)) <= 30_000 // 8_000
    assert all(r.estimated and r.cost_usd is None for r in stage.seen(ResponseReceived))


EVENTS_OF_ANSWER = 12
"""Of what `turns` has a model say: start, ping, a block of thinking, one of a call, end."""


@pytest.mark.parametrize(("fault", "first"), [({"kind": "cut", "how": "rst"}, 0), ({"kind": "error_event"}, 1)])
def test_an_answer_that_breaks_off_behind_any_event_counts_as_the_most_that_it_can_be(talk, turns, fault, first):
    """Request by request, against what the endpoint bills: equal where all was said, else above and marked so."""
    broken = [turns(1, fault={**fault, "after_events": n})[0] for n in range(first, EVENTS_OF_ANSWER)]
    session = talk([{"turns": [*broken, {"text": "Done."}]}])

    assert session.advance().end is SessionEnd.FINISHED

    counted = session.seen(ResponseReceived)
    assert len(counted) == len(session.requests) == 2 * len(broken) + 1
    kinds = set()
    for event, request in zip(counted, session.requests, strict=True):
        bill = parse_api_usage(request.usage)
        assert bill is not None
        assert event.estimated or event.usage == bill
        if event.estimated:
            assert event.usage.prompt_tokens >= bill.prompt_tokens
            assert event.usage.output_tokens == request.body["max_tokens"]
            assert event.cost_usd >= cost_usd(bill, PRICE)
        kinds.add((event.stop_reason, event.estimated, event.usage.input_tokens == bill.input_tokens))
    assert kinds >= {("lost", True, False), ("cut", True, True), ("cut", False, True)} - (
        {("lost", True, False)} if first else set()
    )


def test_a_retry_is_a_request_too(stage):
    """An answer that breaks off costs the most that it can; the cap is looked at before it is asked for again."""
    cut = {"kind": "cut", "how": "rst", "after_events": 6, "times": "always"}
    rules = "# Rules\n" + "Be brief. " * 2_000
    stage.write("AGENTS.md", rules)
    stage.commit()

    ended = stage.run(make_script([{**HELLO[0], "fault": cut}, *HELLO[1:]]), max_cost_usd=0.16,
                      models=ROOM_ONLY)  # fmt: skip

    assert "of the run's cap of 0.16 USD are spent" in ended.reason
    assert 1 < len(stage.seen(ResponseReceived)) < 60
    bills = [parse_api_usage(request.usage) for request in stage.server.requests if request.usage]
    assert sum(cost_usd(bill, PRICE) for bill in bills if bill) < spent(stage)
    assert (spent(stage) <= 0.16, ended.estimated) == (True, True)

"""A prompt that is kept in the cache while the run waits, by the server's own cache and bill."""

import itertools
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pytest

from relay.base.interrupts import Interrupts, Urgency
from relay.config.model import Compat, ModelSettings
from relay.git.repository import open_repo
from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve
from relay.run.loop import run
from relay.run.selection import Selection
from relay.runners.base import RunnerKind
from relay.runners.messages.answers import Answer
from relay.runners.messages.conversation import ApiRunner
from relay.runners.messages.faults import Fault, FaultKind
from relay.runners.messages.runner import MESSAGES
from relay.session.events import CacheBroken, CacheRefreshed, ResponseReceived, ToolFinished
from relay.session.usage import Usage
from relay.session.values import SessionKind, ToolResult
from relay.session.warmth import Waits
from relay.store.inbox import ask_for_pause, end_pause

READ, WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
LONG = 60_000


@dataclass
class Clock:
    """The one clock of endpoint and relay."""

    at: float = 1_000.0

    def __call__(self) -> float:
        """Say what time it is."""
        return self.at


@pytest.fixture
def wait(talk, turns):
    """Run a session whose second tool takes that long; return it and the requests behind that."""

    def start(seconds, *, step=10.0, on_wait=lambda _: None, **spec):
        clock, waits, calls = Clock(), Waits(), itertools.count(1)
        spec = {"waits": waits, **spec}

        def run_tool(_):
            if next(calls) == 2:
                waits.chance = 1.0
                until = clock.at + seconds
                while clock.at < until:
                    clock.at = min(until, clock.at + step)
                    on_wait(session)
                    waits.look()
                    while session.session._context.warmer.pending_tokens:
                        waits.look()  # its answer is on its way
                waits.chance = 0.0
            return ToolResult(text="x" * LONG)

        session = talk([{"turns": turns(4)}], clock=clock, now=clock, run_tool=run_tool, **spec)
        session.runner = replace(session.runner, connection=replace(session.runner.connection, clock=clock))
        with ExitStack() as stack:
            session.session = stack.enter_context(session.runner.open_session(session.spec))
            session.advance()
        return session

    return start


def list_sent(session):
    """Each request's longest answer, with what was read and written."""
    return [(r.body["max_tokens"], r.usage[READ], r.usage[WRITTEN]) for r in session.requests]


@pytest.mark.parametrize(("seconds", "refreshes"), [(200, 0), (280, 1), (400, 1), (1_300, 4)])
def test_a_wait_that_outlasts_the_cache_costs_a_read_each_time_and_no_miss(wait, seconds, refreshes):
    session = wait(seconds)

    sent = list_sent(session)
    warm = [request for request in sent if not request[0]]
    assert len(warm) == refreshes == len(session.seen(CacheRefreshed))
    assert all(read > 20_000 and not written for _, read, written in warm)
    answered = [request for request in sent if request[0]]
    for before, now in itertools.pairwise(answered):
        assert now[1] >= before[1] + before[2]  # all that was in the cache is read again
    assert session.seen(CacheBroken) == []
    assert [event.failure for event in session.seen(CacheRefreshed)] == [""] * refreshes
    counted = (e for e in session.events if isinstance(e, ResponseReceived | CacheRefreshed))
    told = sum((event.usage or Usage() for event in counted), start=Usage())
    assert told.cache_read_tokens == sum(read for _, read, _ in sent)
    assert told.cache_write_tokens == sum(written for *_, written in sent)


def test_a_refresh_is_the_request_before_it_and_asks_for_nothing(wait):
    before, refresh = (request.body for request in wait(280).requests[1:3])
    assert refresh == {**{k: v for k, v in before.items() if k != "stream"}, "max_tokens": 0}


def test_an_hour_is_kept_by_the_hour(wait):
    sent = list_sent(wait(7_000, step=100.0, cache_ttl="1h"))
    assert [request[0] for request in sent].count(0) == 2


def stop(session):
    session.runner.connection.interrupts.request(Urgency.FINISH_TURN)


def sleep(session):
    """Shut the lid: nothing is asked for an hour."""
    if session.server.requests:
        session.runner.connection.now.at += 3_600


@pytest.mark.parametrize(
    "given",
    [
        {"waits": None},
        {"price": None},
        {"cached": False},
        {"model": "claude-sonnet-4-5", "own_thinking": "budget"},
        {"refuses_budget": True},
        {"on_wait": stop},
        {"on_wait": sleep},
        {"step": 300.0},
    ],
    ids=["switched off", "no price", "no cache", "a budget of thinking", "a cap", "Ctrl-C", "suspended", "too late"],
)
def test_nothing_is_sent_where_it_may_not_or_does_not_pay(wait, given):
    if given.pop("refuses_budget", False):
        given["waits"] = Waits(check_budget=lambda _prompt, _output: "the cap")
    if kind := given.pop("own_thinking", ""):
        given["own"] = ModelSettings(compat=Compat(thinking=kind))
    session = wait(600, **given)
    assert 0 not in [request[0] for request in list_sent(session)]
    assert session.seen(CacheRefreshed) == []


def test_an_endpoint_that_does_not_know_it_is_asked_once(wait):
    """No error, no second try in this process, and the session goes on as it would have."""
    session = wait(1_300, refuses=["refresh"])
    (event,) = session.seen(CacheRefreshed)
    assert "max_tokens" in event.failure
    assert (event.usage, event.cost_usd, event.estimated) == (Usage(), 0.0, False)
    assert len(session.requests) == 5
    assert session.session._context.warmer._held is None


class Slow:
    """An endpoint whose answers to refreshes are let through by hand."""

    def __init__(self, api, found):
        self.found, self.go, self.asked = found, threading.Event(), 0
        self.find_model, self.send = api.find_model, api.send

    def refresh(self, request):
        """Answer when it is time."""
        self.asked += 1
        assert request["messages"]
        assert self.go.wait(20)
        return self.found


def answer(**usage):
    """What an endpoint says to a refresh."""
    return Answer(
        model="claude-opus-5-5", content=(), calls=(), broken_calls={}, stop_reason="max_tokens", stop_details={},
        usage=Usage(**usage) if usage else None,
    )  # fmt: skip


@pytest.fixture
def slow(talk, turns):
    """Begin a refresh in a session and say how it goes on."""
    with ExitStack() as stack:

        def start(found):
            clock, waits = Clock(), Waits()
            session = talk(
                [{"turns": turns(1)}, {"turns": turns(1)}], clock=clock, now=clock, waits=waits,
                run_tool=lambda _: ToolResult(text="x" * LONG),
            )  # fmt: skip
            api = Slow(session.runner.connection.api, found)
            stack.callback(api.go.set)
            session.runner = replace(session.runner, connection=replace(session.runner.connection, api=api))
            session.session = stack.enter_context(session.runner.open_session(session.spec))
            session.advance()
            waits.chance, clock.at = 1.0, clock.at + 280
            waits.look()
            waits.look()
            assert api.asked == 1
            return session, api, waits, clock

        yield start


@pytest.mark.parametrize(
    ("found", "failure", "estimated", "again"),
    [
        (answer(cache_read_tokens=30_000), "", False, 2),
        (answer(cache_write_5m_tokens=30_000), "not in the cache any more", False, 1),
        (answer(cache_read_tokens=30_000, output_tokens=5), "does not take max_tokens", False, 1),
        (answer(), "does not take max_tokens", True, 1),
        (Fault(kind=FaultKind.INFRA, message="it fell"), "it fell", False, 1),
        (Fault(kind=FaultKind.INFRA, message="it fell", may_be_billed=True), "it fell", True, 1),
    ],
)
def test_what_comes_of_a_refresh_is_counted_when_it_is_there(slow, found, failure, estimated, again):
    session, api, waits, clock = slow(found)
    api.go.set()
    while not session.seen(CacheRefreshed):
        waits.look()
    (event,) = session.seen(CacheRefreshed)
    assert failure in event.failure
    assert bool(event.failure) == bool(failure)
    assert event.estimated == estimated
    last = session.seen(ResponseReceived)[-1]
    assert event.usage == (Usage(input_tokens=last.usage.prompt_tokens) if estimated else found.usage or Usage())
    clock.at += 280
    waits.look()
    session.session._context.warmer.settle(5)
    assert api.asked == again


def test_a_gate_that_ends_meanwhile_waits_for_nothing(slow):
    """The next request goes out at once, with both within the cap."""
    session, api, waits, _ = slow(answer(cache_read_tokens=30_000))
    asked = []
    waits.chance = 0.0
    session.session._context.spec = replace(session.spec, check_budget=lambda *given: asked.append(given[0]))
    held = session.session._context.warmer.pending_tokens

    session.advance("The gate is red.")

    assert asked[0] > 2 * held > 0
    assert session.seen(CacheRefreshed) == []
    newest = session.session._context.warmer._held
    api.go.set()
    waits.chance = 1.0
    while not session.seen(CacheRefreshed):
        waits.look()
    assert session.seen(CacheRefreshed)[0].usage.cache_read_tokens == 30_000
    assert session.session._context.warmer._held is newest  # what was sent since is younger


def test_a_stop_at_once_waits_for_no_refresh(slow):
    session, api, waits, _ = slow(answer(cache_read_tokens=30_000))
    session.runner.connection.interrupts.request(Urgency.NOW)
    late = threading.Timer(0.2, api.go.set)
    late.start()
    waits.settle()
    late.cancel()
    (event,) = session.seen(CacheRefreshed)
    assert event.estimated


def test_one_without_an_answer_counts_as_the_most_it_can_cost(slow):
    session, *_ = slow(answer())
    held = session.session._context.warmer.pending_tokens
    session.session._context.warmer.settle(0.0)
    (event,) = session.seen(CacheRefreshed)
    assert (event.estimated, event.usage) == (True, Usage(input_tokens=held))
    assert "no answer" in event.failure
    session.session._context.warmer.settle(0.0)
    assert session.session._context.warmer.pending_tokens == 0


PLAN = """\
# Slow
## Phase 1 — Hello
Verify: `sleep 0.3; grep -q hello hello.txt`
- [ ] Say hello — hello.txt
"""
SCRIPT = """
sessions:
  - turns:
    - tools: [{name: write, input: {path: hello.txt, content: "BODY"}}]
    - tools: [{name: tick, input: {item: "1.1", evidence: "there"}}]
    - text: "Commit: Say hello"
    - tools: [{name: write, input: {path: hello.txt, content: "hello"}}]
    - text: "Commit: Say hello"
""".replace("BODY", "no " * 30_000)


def play(stage, script, clock, **flags):
    """Run the plan on a rehearsed model whose time, like relay's own for its cache, is this clock's."""

    @contextmanager
    def open_at(given):
        with MESSAGES.open(given) as runner:
            assert isinstance(runner, ApiRunner)
            yield replace(runner, connection=replace(runner.connection, now=clock, clock=clock))

    with serve(parse_script(script), clock=clock) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        kind = RunnerKind(get_key=MESSAGES.get_key, open=open_at)
        with stage.enter(SessionKind.RUN, flags=flags, environ=environ, more={"api": kind}) as ctx:
            run(ctx, Selection(all=True))
        return [request for request in server.requests if request.path == "/v1/messages"]


def test_a_pause_is_a_wait(stage):
    """Of ten minutes: two refreshes, and the next request reads what was there before."""
    clock, begun = Clock(), list[float]()

    def look(_):
        for thread in threading.enumerate():
            if thread.name == "relay-refresh":
                thread.join(20)
        clock.at += 40
        if clock.at >= begun[0] + 600:
            end_pause(open_repo(stage.root))

    def pause():
        if len(stage.seen(ToolFinished)) == 2 and not begun:
            begun.append(clock.at)
            ask_for_pause(open_repo(stage.root))

    stage.write("PLAN.md", PLAN)
    stage.commit("plan")
    stage.interrupts.close()
    stage.interrupts, stage.on_tool = Interrupts(sleep=look), pause
    sent = play(stage, SCRIPT, clock)
    at = next(n for n, request in enumerate(sent) if not request.body["max_tokens"])
    assert [request.body["max_tokens"] for request in sent].count(0) == 2
    assert sent[at + 2].usage[READ] >= sent[at].usage[READ] > 0


@pytest.mark.parametrize("switch", [True, False])
def test_a_run_keeps_its_prompt_through_a_slow_gate(stage, switch):
    """A red gate of five minutes, then a green one: the bill of the server is what the commit says."""
    clock = Clock()

    def pass_time():
        clock.at += 280

    stage.write("PLAN.md", PLAN)
    stage.commit("plan")
    stage.on_gate = pass_time
    sent = play(stage, SCRIPT, clock, cache_refresh=switch)

    refreshes = [r for r in sent if not r.body["max_tokens"]]
    assert len(refreshes) == len(stage.seen(CacheRefreshed)) == (2 if switch else 0)
    (commit,) = [commit for commit in stage.commits() if commit.status == "done"]
    spent = commit.spent.usage
    assert spent.cache_read_tokens == sum(r.usage[READ] for r in sent if r.usage)
    assert spent.cache_write_tokens == sum(r.usage[WRITTEN] for r in sent if r.usage)
    assert not commit.spent.estimated

"""What a run has spent: what was reported, and the most that an unreported answer can have cost."""

from dataclasses import replace
from typing import Any

import pytest

from relay.session.events import GateStarted, ResponseReceived
from relay.session.prices import Budget, UserPrice
from relay.session.spend import Meter, Pace
from relay.session.usage import Spent, Usage, rank_spent
from tests.figures.streams import MODEL, call, gate, turn

PRICE = UserPrice(input=1, output=1, write_5m=1, write_1h=1).make_price("m")


def test_a_phase_that_goes_on_counts_what_no_commit_of_it_records() -> None:
    """Its cap holds for all of its sessions, those of a process that was killed too."""
    meter = Meter(Budget(run_cap_usd=None, phase_cap_usd=2.0), price=PRICE, before=Spent(cost_usd=5.0))
    meter.charge(Spent(cost_usd=0.75))

    meter.open_phase(Spent(cost_usd=1.0))

    assert meter.check(249_999, 0) is None
    assert "1.75 of the phase's cap of 2.00 USD are spent" in str(meter.check(251_000, 0))


def test_what_an_open_phase_used_before_is_in_no_commit_yet_and_is_counted_once() -> None:
    meter = Meter(Budget(run_cap_usd=10.0), price=PRICE, before=Spent(cost_usd=9.0))
    meter.take_up(Spent(cost_usd=2.0))
    assert meter.unrecorded == Spent(cost_usd=2.0)
    assert meter.check(900_000, 0) is None
    killed = Meter(Budget(run_cap_usd=1.0), price=None, before=Spent())
    killed.charge(Spent(usage=Usage(input_tokens=7), cost_usd=0.75))
    assert (killed.unrecorded, killed.session) == (Spent(usage=Usage(input_tokens=7), cost_usd=0.75), Spent())


def test_a_cap_that_a_person_moves_holds_from_the_next_request_on():
    """Lowered it stops what it allowed, raised it allows what it stopped."""
    meter = Meter(Budget(run_cap_usd=10.0), price=PRICE, before=Spent(cost_usd=5.0))
    assert meter.check(1_000, 1_000) is None
    meter.move_cap(5.0)
    assert "5.00 of the run's cap of 5.00 USD are spent" in str(meter.check(1_000, 1_000))
    meter.move_cap(6.0)
    assert (meter.check(1_000, 1_000), meter.cap_usd) == (None, 6.0)
    meter.move_cap(None)
    assert meter.check(10**8, 1_000) is None


def test_an_answer_counts_for_the_plan_for_the_session_and_for_the_next_commit() -> None:
    meter = Meter(Budget(run_cap_usd=None), price=PRICE, before=Spent(cost_usd=1.0))
    meter.open_session(PRICE)
    for event in (*turn(1, 100, 7, cost_usd=0.5), *turn(2, 200, 3, cost_usd=0.25)):
        meter.observe(event)

    meter.observe(turn(0, 0, cost_usd=0.0, model="explorer", query="explore")[1])
    told = Spent(usage=Usage(input_tokens=300, output_tokens=10), cost_usd=0.75)
    assert list(meter.models) == [MODEL]
    assert (meter.session, meter.unrecorded, meter.total) == (told, told, Spent(cost_usd=1.0) + told)
    meter.check(40, 2)
    assert meter.session_at_most.usage == Usage(input_tokens=340, output_tokens=12)
    assert meter.session_at_most.cost_usd == pytest.approx(0.75 + 42e-6)

    meter.record()
    assert not meter.models
    meter.observe(turn(3, 0, 0, usage=None, cost_usd=None)[1])
    assert meter.session.cost_usd is meter.unrecorded.cost_usd is meter.total.cost_usd is None
    assert (meter.unrecorded.usage, meter.session.usage) == (Usage(), told.usage)

    meter.open_session(None)
    assert meter.session == Spent()


def test_a_request_on_its_way_counts_with_the_most_that_it_can_use() -> None:
    """It is said to be an estimate; the session's own sum does not have it. A cap of tokens is for both."""
    meter = Meter(Budget(run_cap_usd=None, token_cap=200), price=None, before=Spent(usage=Usage(input_tokens=50)))
    assert meter.session_at_most == Spent()
    assert meter.check(100, 50) is None
    worst = Usage(input_tokens=100, output_tokens=50)
    assert (meter.session_at_most, meter.session) == (Spent(usage=worst, cost_usd=None, estimated=True), Spent())
    assert meter.check(100, 51)


MILLION = Usage(input_tokens=1_000_000)


UNSENT = (
    (Budget(run_cap_usd=0.5), PRICE, Spent(usage=MILLION, cost_usd=1.0, estimated=True)),
    (Budget(run_cap_usd=None, token_cap=9), None, Spent(usage=MILLION, cost_usd=None, estimated=True)),
    (Budget(run_cap_usd=None, token_cap=9), PRICE, Spent(usage=MILLION, cost_usd=1.0, estimated=True)),
    (Budget(run_cap_usd=2.0), PRICE, None),
    (Budget(run_cap_usd=None, phase_cap_usd=0.5), PRICE, None),
    (Budget(run_cap_usd=0.5), None, None),
)


def test_a_request_that_more_for_the_run_would_let_go_is_known() -> None:
    """Not one that went, that a phase's own cap stopped, or of which nobody knows what it costs."""
    for budget, price, unsent in UNSENT:
        meter = Meter(budget, price=price, before=Spent())
        meter.check(1_000_000, 0)
        assert meter.unsent == unsent, budget


def test_of_two_records_of_one_session_the_larger_counts_and_an_unknown_cost_is_larger() -> None:
    rows = ((1, 0.5), (2, 0.4), (2, 0.6), (2, None))
    ranked = [Spent(usage=Usage(input_tokens=tokens), cost_usd=usd) for tokens, usd in rows]
    assert sorted((ranked[at] for at in (3, 1, 2, 0)), key=rank_spent) == ranked


def test_requests_to_another_model_within_a_session_are_checked_at_its_price() -> None:
    """What they may cost together can be asked for first, and is no request on its way."""
    meter = Meter(Budget(run_cap_usd=1.0), price=PRICE, before=Spent())

    with meter.pricing(UserPrice(input=10, output=10, write_5m=10, write_1h=10).make_price("dear")):
        assert meter.check(200_000, 0) is not None
    assert meter.check(200_000, 0) is None

    worst = meter.session_at_most
    assert meter.budget.check(0.9, 0) is None
    assert "cap of 1.00 USD" in str(meter.budget.check(1.1, 0))
    assert meter.session_at_most == worst
    _, answered = turn(1, 100, model="dear")
    assert isinstance(answered, ResponseReceived)
    meter.observe(replace(answered, turn=0, query="explore"))
    assert (meter.models, meter.total.usage.input_tokens) == ({}, 100)


def test_a_turn_is_an_answer_and_the_pause_behind_it() -> None:
    """All calls of one turn are one pause; calls of different turns are not. Nothing else takes time."""
    answered, (_, called), ran = turn(1, 1)[1], call("bash", "ls", 1), gate(passed=True, baseline=True)
    rows: dict[float, list[tuple[Any, float]]] = {
        60: [],
        300: [(ran, 240)],
        301: [(answered, 200), (called, 101), (ran, 7), (answered, 10)],
        302: [(answered, 100), (called, 100), (called, 102)],
        201: [(answered, 100), (called, 100), (answered, 50), (called, 101)],
    }
    for turn_s, events in rows.items():
        pace = Pace()
        pace.observe(GateStarted(phase_id="1", baseline=True, commands=()))
        for event, duration_s in events:
            pace.observe(replace(event, duration_s=float(duration_s)))
        assert pace.turn_s == turn_s, events

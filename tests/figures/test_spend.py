"""What a run has spent: what was reported, and the most that an unreported answer can have cost."""

from relay.meters.prices import Budget, parse_price
from relay.meters.spend import Meter
from relay.session.usage import Spent, Usage

PRICE = parse_price("m", {"input": 1, "output": 1, "write_5m": 1, "write_1h": 1})


def test_what_an_earlier_process_used_counts_against_the_cap_and_is_in_no_commit_yet() -> None:
    meter = Meter(Budget(run_cap_usd=1.0), price=None, before=Spent())

    meter.restore(Spent(usage=Usage(input_tokens=7), cost_usd=0.75))

    assert meter.unrecorded == Spent(usage=Usage(input_tokens=7), cost_usd=0.75)
    assert meter.session == Spent()


def test_a_phase_that_goes_on_counts_what_no_commit_of_it_records() -> None:
    """Its cap holds for all of its sessions, those of a process that was killed too."""
    meter = Meter(Budget(run_cap_usd=None, phase_cap_usd=2.0), price=PRICE, before=Spent(cost_usd=5.0))
    meter.restore(Spent(cost_usd=0.75))

    meter.open_phase(Spent(cost_usd=1.0))

    assert meter.check(249_999, 0) is None
    assert "1.75 of the phase's cap of 2.00 USD are spent" in str(meter.check(251_000, 0))


def test_a_request_on_its_way_counts_with_the_most_that_it_can_use() -> None:
    """It is said to be an estimate; the session's own sum does not have it."""
    meter = Meter(Budget(run_cap_usd=None), price=None, before=Spent())
    assert meter.session_at_most == Spent()

    assert meter.check(100, 50) is None

    worst = Usage(input_tokens=100, output_tokens=50)
    assert meter.session_at_most == Spent(usage=worst, cost_usd=None, estimated=True)
    assert meter.session == Spent()

"""What a run has spent: what was reported, and the most that an unreported answer can have cost."""

from relay.meters.prices import Budget
from relay.meters.spend import Meter
from relay.session.usage import Spent, Usage


def test_what_an_earlier_process_used_counts_against_the_cap_and_is_in_no_commit_yet() -> None:
    meter = Meter(Budget(run_cap_usd=1.0), price=None, before=Spent())

    meter.restore(Spent(usage=Usage(input_tokens=7), cost_usd=0.75))

    assert meter.unrecorded == Spent(usage=Usage(input_tokens=7), cost_usd=0.75)
    assert meter.session == Spent()


def test_a_request_on_its_way_counts_with_the_most_that_it_can_use() -> None:
    """It is said to be an estimate; the session's own sum does not have it."""
    meter = Meter(Budget(run_cap_usd=None), price=None, before=Spent())
    assert meter.session_at_most == Spent()

    assert meter.check(100, 50) is None

    worst = Usage(input_tokens=100, output_tokens=50)
    assert meter.session_at_most == Spent(usage=worst, cost_usd=None, estimated=True)
    assert meter.session == Spent()

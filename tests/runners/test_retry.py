"""How long relay goes on trying, and what it says when it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.runners.messages.connection import Fault, FaultKind, RetryPolicy, Wait
from relay.session.values import SessionEnd, SessionOutcome

NOON = 1_795_262_400.0  # 2026-11-21 12:00 UTC


def fault(kind=FaultKind.INFRA, retry_after_s=None):
    return Fault(kind=kind, message="HTTP 529", retry_after_s=retry_after_s)


def judge(policy, found, *, duration_s=0.0):
    return policy.judge(found, duration_s=duration_s, jitter=0.5, now=NOON)


def test_what_passes_by_itself_is_tried_again():
    """With the time that the endpoint named, where it named one."""
    assert judge(RetryPolicy(max_wait_s=100), fault()) == Wait(attempt=1, wait_s=1.0, until=None)
    assert judge(RetryPolicy(max_wait_s=100), fault(retry_after_s=30.0)) == Wait(
        attempt=1, wait_s=30.5, until=NOON + 30
    )


def test_what_cannot_pass_is_not_tried_again():
    """Not even when the endpoint names a time."""
    for kind, end in (
        (FaultKind.OVERFLOW, SessionEnd.OVERFLOW),
        (FaultKind.REQUEST, SessionEnd.API_FAILED),
        (FaultKind.USER, SessionEnd.DENIED),
        (FaultKind.INTERRUPTED, SessionEnd.INTERRUPTED),
    ):
        assert judge(RetryPolicy(max_wait_s=1e6), fault(kind, 1.0)) == SessionOutcome(end=end, detail="HTTP 529"), kind


@pytest.mark.usefixtures("berlin")
def test_a_limit_that_resets_later_than_relay_waits_is_for_another_run():
    """The words name the time on the wall and what to do; the time is kept."""
    outcome = judge(RetryPolicy(max_wait_s=1_800), fault(FaultKind.LIMIT, 3 * 3_600 + 12 * 60))

    assert outcome == SessionOutcome(
        end=SessionEnd.LIMIT,
        detail=(
            "HTTP 529; tried 1 time. It resets at 16:12, in 3 h 12 min; relay waits 30 min at most (max_wait_s). "
            "Run it again then."
        ),
        retry_at=NOON + 11_520,
    )


def test_a_policy_counts_requests_and_waits():
    """An endpoint that takes its time to fail uses it up as well as one that fails at once."""
    policy = RetryPolicy(max_wait_s=10)

    assert isinstance(judge(policy, fault(), duration_s=4.0), Wait)
    assert judge(policy, fault(), duration_s=6.0) == SessionOutcome(
        end=SessionEnd.API_FAILED,
        detail="HTTP 529; tried 2 times, and that took as long as relay waits (10 s, max_wait_s)",
    )


def test_a_limit_stays_one_when_the_endpoint_names_no_time():
    outcome = judge(RetryPolicy(max_wait_s=0.5), fault(FaultKind.LIMIT))
    assert isinstance(outcome, SessionOutcome)
    assert (outcome.end, outcome.retry_at) == (SessionEnd.LIMIT, None)


def test_a_wait_that_ends_with_the_limit_is_waited():
    assert isinstance(judge(RetryPolicy(max_wait_s=1.0), fault()), Wait)


@given(st.floats(0, 1e5), st.lists(st.one_of(st.none(), st.floats(0, 1e4)), max_size=200))
def test_nothing_is_tried_for_ever(max_wait_s, asked):
    """Whatever an endpoint asks for, the waits together stay below the limit, and each is longer than nothing."""
    policy, waited = RetryPolicy(max_wait_s=max_wait_s), 0.0
    for retry_after_s in asked:
        wait = judge(policy, fault(retry_after_s=retry_after_s))
        if isinstance(wait, SessionOutcome):
            break
        assert wait.wait_s >= max(0.1, retry_after_s or 0)
        waited += wait.wait_s
    assert waited <= max_wait_s


def test_what_is_likely_to_be_the_same_again_is_sent_a_few_times_only():
    """Each try may be billed; something else in between begins the count anew."""
    lasting = Fault(kind=FaultKind.INFRA, message="not a well-formed answer", lasting=True)
    policy = RetryPolicy(max_wait_s=1_000)
    for found in (lasting, lasting, fault(), lasting, lasting):
        assert isinstance(judge(policy, found), Wait)

    ended = judge(policy, lasting)

    assert isinstance(ended, SessionOutcome)
    assert (ended.end, ended.retry_at) == (SessionEnd.API_FAILED, None)
    assert "not a well-formed answer; 3 times in a row" in ended.detail

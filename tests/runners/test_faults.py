"""Whose fault a fault is, and how long to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.runners.faults import MAX_BACKOFF_S, Fault, FaultKind, classify_error, find_wait_s

CASES = [
    (529, "overloaded_error", None, "Overloaded", FaultKind.INFRA),
    (500, "api_error", None, "Internal", FaultKind.INFRA),
    (500, None, None, "<html>", FaultKind.INFRA),
    (408, None, None, "", FaultKind.INFRA),
    (200, "overloaded_error", None, "Overloaded", FaultKind.INFRA),
    (429, "rate_limit_error", None, "slow down", FaultKind.LIMIT),
    (429, "rate_limit_error", "enforced_spend_limit_reached", "cap", FaultKind.USER),
    (400, "invalid_request_error", None, "You have reached your specified API usage limits.", FaultKind.USER),
    (401, "authentication_error", None, "bad key", FaultKind.USER),
    (403, "permission_error", None, "no", FaultKind.USER),
    (402, "billing_error", None, "pay", FaultKind.USER),
    (404, "not_found_error", None, "model: x", FaultKind.USER),
    (400, "invalid_request_error", None, "messages: text is empty", FaultKind.REQUEST),
    (400, "invalid_request_error", None, "invalid token in header", FaultKind.REQUEST),
    (400, "invalid_request_error", None, "prompt is too long: 210000 tokens > 200000 maximum", FaultKind.OVERFLOW),
    (413, "request_too_large", None, "Request too large (max 32MB)", FaultKind.OVERFLOW),
    (400, None, "context_length_exceeded", "", FaultKind.OVERFLOW),
    (400, None, None, "input length and `max_tokens` exceed context limit", FaultKind.OVERFLOW),
    (400, None, None, "This model's maximum context length is 8192 tokens", FaultKind.OVERFLOW),
    (400, None, None, "the request exceeds the available context size", FaultKind.OVERFLOW),
    (429, None, None, "token limit exceeded: too many requests", FaultKind.LIMIT),
    (400, None, None, "Throttling error: too many tokens per minute", FaultKind.REQUEST),
]


@pytest.mark.parametrize(("status", "kind", "code", "text", "expected"), CASES)
def test_classifies(status, kind, code, text, expected):
    """Types and codes decide; texts only tell overflows and spending caps."""
    assert expected is classify_error(status=status, error_type=kind, error_code=code, text=text)


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_bounded_and_positive(attempt, jitter):
    """Many tries never mean a wait beyond the cap, and never none at all."""
    fault = Fault(kind=FaultKind.INFRA, message="")

    assert 0 < find_wait_s(fault, attempt=attempt, jitter=jitter) <= MAX_BACKOFF_S


def test_what_the_endpoint_asks_for_is_obeyed():
    """retry-after is a floor, never shortened."""
    fault = Fault(kind=FaultKind.LIMIT, message="", retry_after_s=3600.0)

    assert 3600.0 <= find_wait_s(fault, attempt=1, jitter=0.5) < 3601.0

"""What can go wrong with a request, in four classes, and how long to wait. Pure.

Classes decide; texts are only looked at where an endpoint gives nothing else to tell an overflow by.
Source of the overflow texts and their vetoes: facts on provider errors, checked 2026-11-20.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from relay.session import Usage

MAX_BACKOFF_S = 60.0
"""Longest wait between two tries when the endpoint names none."""


class FaultKind(StrEnum):
    """Who has to do something about a fault."""

    INFRA = "infra"
    """Nobody: overload, a dropped connection, a stall. Tried again, not counted against the phase."""
    LIMIT = "limit"
    """Time: a usage limit that resets."""
    OVERFLOW = "overflow"
    """The leg: the prompt is too long for the model."""
    REQUEST = "request"
    """relay: the endpoint refuses the request as malformed. Sending it again cannot work."""
    USER = "user"
    """The user: key, permission, billing, spending cap, unknown model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A request that gave no usable answer."""

    kind: FaultKind
    message: str
    """One line, with the endpoint's own words and its request id."""
    retry_after_s: float | None = None
    """What the endpoint asked for; None when it named no time."""
    usage: Usage | None = None
    """What an answer that broke off had reported; it is billed all the same."""


_OVERFLOW = re.compile(
    r"""prompt.is.too.long | prompt_too_long | input.is.too.long | context_length_exceeded | request_too_large
    | input\ length\ and\ .?max_tokens.?\ exceed | exceeds?\ the\ (context\ window|maximum) | maximum\ context\ length
    | context\ length\ is\ only | input\ token\ count .* exceeds | maximum\ prompt\ length | reduce\ the\ length\ of
    | exceeds\ the\ limit\ of\ \d | available\ context\ size | greater\ than\ the\ context\ length
    | exceeded\ max\ context\ length | context\ window\ exceeds | exceeded\ model\ token\ limit
    | model_context_window_exceeded | range\ of\ input\ length | maximum\ allowed\ input\ length
    | longer\ than\ the\ model's\ context | requested\ input\ length | configured\ context\ size
    | too\ many\ tokens | token\ limit\ exceeded | maximum\ tokens .* exceeds | total\ number\ of\ tokens .* exceeds
    | too\ large\ for\ model\ with\ \d+\ maximum""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_NOT_OVERFLOW = re.compile(
    r"rate limit|too many requests|per minute|throttling error|service unavailable|usage limits",
    re.IGNORECASE,
)
_SPEND_LIMIT = re.compile(r"\AYou have reached your specified API usage limits")

_KIND_BY_TYPE = {
    "authentication_error": FaultKind.USER,
    "permission_error": FaultKind.USER,
    "billing_error": FaultKind.USER,
    "not_found_error": FaultKind.USER,
    "rate_limit_error": FaultKind.LIMIT,
    "overloaded_error": FaultKind.INFRA,
    "api_error": FaultKind.INFRA,
    "timeout_error": FaultKind.INFRA,
}
_KIND_BY_STATUS = {
    401: FaultKind.USER,
    402: FaultKind.USER,
    403: FaultKind.USER,
    404: FaultKind.USER,
    408: FaultKind.INFRA,
    409: FaultKind.INFRA,
    429: FaultKind.LIMIT,
}


def classify_error(*, status: int, error_type: str | None, error_code: str | None, text: str) -> FaultKind:
    """Say whose an error response is.

    Args:
        status: HTTP status; 200 for an ``error`` event in a stream.
        error_type: ``error.type`` of the body.
        error_code: ``error.error_code`` of the body.
        text: The body's message; only looked at to recognise an overflow or a spending cap.
    """
    if error_code == "enforced_spend_limit_reached" or _SPEND_LIMIT.match(text):
        return FaultKind.USER
    if is_overflow(status=status, text=f"{error_type} {error_code} {text}"):
        return FaultKind.OVERFLOW
    if error_type in _KIND_BY_TYPE and not (error_type == "api_error" and status in _KIND_BY_STATUS):
        return _KIND_BY_TYPE[error_type]
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[status]
    return FaultKind.INFRA if status >= 500 else FaultKind.REQUEST  # noqa: PLR2004  # HTTP's own boundary


def is_overflow(*, status: int, text: str) -> bool:
    """Say whether an error means that the prompt does not fit the model."""
    if status == 429 or status >= 500 or _NOT_OVERFLOW.search(text):  # noqa: PLR2004  # HTTP's own numbers
        return False
    return _OVERFLOW.search(text) is not None


def find_wait_s(fault: Fault, *, attempt: int, jitter: float) -> float:
    """Return how long to wait before the next try.

    Args:
        fault: What failed.
        attempt: 1 after the first failure.
        jitter: Uniform in [0, 1): full jitter keeps many clients from coming back at once.
    """
    if fault.retry_after_s is not None:
        return fault.retry_after_s + jitter
    return max(0.1, jitter * min(MAX_BACKOFF_S, 2.0 ** min(attempt, 10)))

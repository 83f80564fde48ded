"""When an endpoint says that a refused request may be tried again."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

_RESET = re.compile(r"(anthropic-ratelimit-[a-z0-9-]+)-reset")
_EXHAUSTED = frozenset({"0", "rejected"})
"""What ``-remaining`` and, of the limits of a subscription, ``-status`` say of a limit that is reached."""
_LONGEST_WAIT_S = 366 * 86_400.0


def find_retry_after(headers: Mapping[str, str], details: Any = None) -> float | None:
    """Seconds the endpoint asks to wait: retry-after, else the latest reset among exhausted limits; None if nothing.

    Where no limit is called exhausted, the first reset of those of which nothing is said.

    Args:
        headers: Of the error.
        details: Of its body, as Google has them: a list in which one names a ``retryDelay``.
    """
    if (wait_s := _find_delay(details)) is not None:
        return wait_s
    if (wait_ms := _parse_seconds(headers.get("retry-after-ms", ""))) is not None:
        return wait_ms / 1000
    if (wait_s := _parse_seconds(headers.get("retry-after", ""))) is not None:
        return wait_s
    exhausted, unsaid = list[float](), list[float]()
    for name, value in headers.items():
        kind = _RESET.fullmatch(name.lower())
        reset = _seconds_until(value) if kind else None
        if kind is None or reset is None:
            continue
        said = headers.get(f"{kind[1]}-remaining") or headers.get(f"{kind[1]}-status")
        if said in _EXHAUSTED:
            exhausted.append(reset)
        elif said is None:
            unsaid.append(reset)
    return max(exhausted) if exhausted else min(unsaid, default=None)


def _find_delay(details: Any) -> float | None:
    found = (
        [detail.get("retryDelay") for detail in details if isinstance(detail, dict)] if type(details) is list else []
    )
    return next((_parse_seconds(delay.removesuffix("s")) for delay in found if isinstance(delay, str)), None)


def _parse_seconds(value: str) -> float | None:
    """Read seconds or an HTTP date; None when it is neither, or no time that anybody can mean."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            return _seconds_from_now(parsedate_to_datetime(value))
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) and seconds <= _LONGEST_WAIT_S else None


def _seconds_until(moment: str) -> float | None:
    """Seconds until an RFC 3339 time, or one in seconds since the epoch; None when it is neither."""
    try:
        if moment.isdecimal():
            return _seconds_from_now(datetime.fromtimestamp(int(moment), UTC))
        return _seconds_from_now(datetime.fromisoformat(moment))
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def _seconds_from_now(moment: datetime) -> float:
    """Return how far away a moment is, 0 when it is past; a time without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(_LONGEST_WAIT_S, max(0.0, (aware - datetime.now(UTC)).total_seconds()))

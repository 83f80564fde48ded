"""When an endpoint says that a refused request may be tried again."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_LONGEST_WAIT_S = 366 * 86_400.0


def find_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the endpoint asks to wait: retry-after, else the latest reset among exhausted limits; None if nothing."""
    if (wait_ms := _parse_seconds(headers.get("retry-after-ms", ""))) is not None:
        return wait_ms / 1000
    if (wait_s := _parse_seconds(headers.get("retry-after", ""))) is not None:
        return wait_s
    resets = [
        _seconds_until(headers.get(f"anthropic-ratelimit-{kind}-reset", ""))
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
        if headers.get(f"anthropic-ratelimit-{kind}-remaining") == "0"
    ]
    return max((reset for reset in resets if reset is not None), default=None)


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
    """Seconds until an RFC 3339 time; None when it is not one."""
    try:
        return _seconds_from_now(datetime.fromisoformat(moment))
    except (ValueError, TypeError, OverflowError):
        return None


def _seconds_from_now(moment: datetime) -> float:
    """Return how far away a moment is, 0 when it is past; a time without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(_LONGEST_WAIT_S, max(0.0, (aware - datetime.now(UTC)).total_seconds()))

"""Figures as the words of a cell. What is not known says so, what does not apply is a dash."""

from datetime import UTC, datetime

from relay.base.words import UNKNOWN, render_duration, render_tokens, render_usd
from relay.insight.figures.values import Totals

NOTHING = "–"
"""Where a figure does not apply."""
ID_CHARS = 9
"""Of commits, digests and sessions, as git shortens them."""


def render_share(share: float | None) -> str:
    """Write a part of 1 in per cent."""
    return NOTHING if share is None else f"{share:.0%}"


def render_signed_usd(amount: float | None) -> str:
    """Write a gain or, below 0, a loss in dollars; None is unknown."""
    if amount is None:
        return UNKNOWN
    return f"{'−' if amount < 0 else '+'}{render_usd(abs(amount))}"


def render_per_decision(totals: Totals) -> str:
    """Write the cost of a decision; a dash where there was none."""
    return render_usd(totals.usd_per_decision, estimated=totals.spent.estimated) if totals.decisions else NOTHING


def render_signed_tokens(n: int | None) -> str:
    """Write tokens short; below 0 where less than nothing was saved."""
    return f"−{render_tokens(-n)}" if n is not None and n < 0 else render_tokens(n)


def render_turns(turns: float | None) -> str:
    """Write after how many turns; None is never."""
    return "never" if turns is None else f"{turns:.1f}"


def render_time(at: float) -> str:
    """Write when something happened: day and time in UTC, so that the page says the same wherever it is read."""
    return f"{datetime.fromtimestamp(at, tz=UTC):%Y-%m-%d %H:%M:%S}"


def render_length(began: float, ended: float | None) -> str:
    """Write how long something took."""
    return UNKNOWN if ended is None else render_duration(ended - began)


def render_number(n: int) -> str:
    """Write how many."""
    return f"{n:,}"


def cut_id(name: str) -> str:
    """Shorten an id."""
    return name[:ID_CHARS]

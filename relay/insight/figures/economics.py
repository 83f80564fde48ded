"""What a fresh start costs and saves, and what is still to come."""

from collections.abc import Iterable

from relay.insight.figures.evidence import READ_SHARE, WRITE_SHARE, FreshStart, find_break_even
from relay.insight.figures.phases import PhaseTally
from relay.insight.figures.values import Forecast, LegFigures
from relay.session.prices import Rates
from relay.session.usage import add_usd

_MILLION = 1_000_000


def make_hand_off(
    before: LegFigures, after: LegFigures, orientation_tokens: int, rates: Rates | None
) -> FreshStart | None:
    """Return what the step from one session to the next cost and saved; None where one of them never answered."""
    if before.last_tokens is None or after.first_tokens is None:
        return None
    context, prefix, turns = before.last_tokens, after.first_tokens, after.totals.turns
    read, write = (rates.read, rates.write_5m) if rates else (READ_SHARE, WRITE_SHARE)
    fresh = prefix + orientation_tokens
    saved = (context - fresh) * turns
    return FreshStart(
        phase_id=after.phase_id,
        from_session=before.session_id,
        to_session=after.session_id,
        within_phase=before.phase_id == after.phase_id,
        context_tokens=context,
        prefix_tokens=prefix,
        orientation_tokens=orientation_tokens,
        turns=turns,
        break_even_turns=find_break_even(context, fresh, read=read, write=write),
        saved_tokens=saved,
        saved_usd=None if rates is None else (saved * read - fresh * write) / _MILLION,
    )


def find_forecast(phases: Iterable[PhaseTally]) -> Forecast:
    """Forecast what the open items of a plan cost, from what ticked ones have cost in these events.

    The cost of an item is that of its phase by the number of its items; the range is that of finished phases.
    """
    to_go = items = ticked = 0
    cost: float | None = 0.0
    each: list[float] = []
    for phase in phases:
        spent, done = phase.sum.spent.cost_usd, len(phase.figures.work.ticked)
        if phase.open_items:
            to_go += 1
            items += len(phase.open_items)
        if done:
            ticked += done
            cost = add_usd(cost, spent)
            each += [spent / done] if spent is not None and not phase.open_items else []
    known = cost is not None and ticked
    return Forecast(
        phases=to_go,
        items=items,
        usd=cost / ticked * items if cost is not None and ticked else None,
        low_usd=min(each) * items if known and each else None,
        high_usd=max(each) * items if known and each else None,
    )

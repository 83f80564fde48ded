"""The meter that goes on from what the plan has cost, and the book that a kill leaves."""

import contextlib
from datetime import UTC, datetime

from relay.config import Settings
from relay.git.repository import Repo
from relay.session.events import CacheRefreshed, Event, LegEnded, LegStarted, ResponseReceived, RetryScheduled
from relay.session.prices import Budget, Price, find_price
from relay.session.spend import Meter
from relay.session.usage import Spent
from relay.store.facts import find_leg_commit, is_of_another_plan
from relay.store.legs import read_leg
from relay.store.session_spend import note_spent
from relay.store.spend import read_plan_cost


def find_price_now(settings: Settings, model: str) -> Price | None:
    """Return what a model costs today, as the user's settings have it or the table; None where neither says it."""
    return find_price(model, at=datetime.now(UTC).date(), overrides=settings.prices)


def make_meter(repo: Repo, plan_path: str, settings: Settings, price: Price | None) -> Meter:
    """Return a meter that knows what the plan has cost: its commits, and its open leg where no commit records that."""
    budget = Budget(
        run_cap_usd=settings.max_cost_usd,
        phase_cap_usd=settings.max_phase_cost_usd,
        token_cap=settings.max_tokens_total,
    )
    meter = Meter(budget, price=price, before=read_plan_cost(repo, plan_path).spent)
    leg = read_leg(repo)
    if leg is not None and find_leg_commit(repo, leg) is None and not is_of_another_plan(repo, leg, plan_path):
        meter.restore(leg.spend)
    return meter


class Book:
    """Writes down what the open session has cost, before each request and behind each answer. Mutable.

    Args:
        meter: Counts it; told of an event before the book is.
    """

    def __init__(self, repo: Repo, meter: Meter) -> None:
        self._repo = repo
        self._meter = meter
        self._session_id = ""

    def check(self, prompt_tokens: int, output_tokens: int) -> str | None:
        """Say why a request of at most this size must not be sent; where none is said, its worst case is noted.

        So a request whose answer never comes, because relay is killed or the machine stops, has cost that.
        """
        if words := self._meter.check(prompt_tokens, output_tokens):
            return words
        try:
            self._note(self._meter.session_at_most, synced=True)
        except OSError as error:
            return f"what the next request may cost cannot be written down: {error.strerror}"
        return None

    def observe(self, event: Event) -> None:
        """Note what is known now; where that cannot be written, more is noted already."""
        match event:
            case LegStarted():
                self._session_id = event.session_id
            case ResponseReceived() | CacheRefreshed() | RetryScheduled() | LegEnded():
                with contextlib.suppress(OSError):
                    self._note(self._meter.session, synced=False)
            case _:
                pass

    def _note(self, spent: Spent, *, synced: bool) -> None:
        if self._session_id:
            note_spent(self._repo, self._session_id, spent, synced=synced)

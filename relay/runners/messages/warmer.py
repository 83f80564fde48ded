"""Keeps a session's prompt in the endpoint's cache while the run waits; `relay.session.warmth` says when that pays.

The request is made in a thread, so nothing waits for it: what came of it is looked at, and told, on the run's thread
when that comes by again. A refresh that fails is not tried again and is no error. While an endpoint asks to be left
alone it is: behind a limit nothing is sent.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from relay.base.values import dataclass
from relay.runners.messages.answers import Answer
from relay.runners.messages.cache import KEPT_SHARE, LONG_TTL_S, SHORT_TTL_S
from relay.runners.messages.connection import ApiConnection, RequestPart
from relay.runners.messages.faults import Fault, FaultKind
from relay.session.events import CacheRefreshed
from relay.session.prices import Price, charge_request
from relay.session.usage import Spent, Usage
from relay.session.warmth import DUE_SHARE, LEAST_USD, Waits, find_saving_usd

LAST_S = 2.0
"""How long the end of a green gate, or of a session, waits for a refresh that is under way; it takes about one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPrompt:
    """A prompt that is in the cache."""

    request: Mapping[str, Any]
    turn: int
    tokens: int
    window_tokens: int
    """Of the model."""
    cached_tokens: int
    hour: bool
    """Whether its entries live for an hour."""
    at: float
    """When it was sent last, in seconds since the epoch: a machine that slept has missed it."""
    note: Callable[[float], None]
    """Told when it was sent again, on the connection's clock."""
    refreshes: int = 0
    """Since it was answered."""

    @property
    def lifetime_s(self) -> float:
        """How long its entries live from `at` on."""
        return LONG_TTL_S if self.hour else SHORT_TTL_S


@dataclass(slots=True, kw_only=True)
class _Going:
    """A refresh that is under way. Mutable: a thread leaves its result here."""

    held: WarmPrompt
    began: float
    """On the connection's clock."""
    thread: threading.Thread
    found: list[Answer | Fault] = field(default_factory=list)


class Warmer:
    """Sends the refreshes of one session, one after the other.

    Args:
        waits: The waits of the run; None: nothing is refreshed.
        find_price: Of the model that answers.
    """

    def __init__(
        self, connection: ApiConnection, waits: Waits | None, find_price: Callable[[str], Price | None]
    ) -> None:
        self._connection = connection
        self._waits = waits
        self._find_price = find_price
        self._held: WarmPrompt | None = None
        self._going: _Going | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Follow the waits of the run while the session is open."""
        if self._waits is None:
            yield
            return
        before = self._waits.attend, self._waits.settle
        self._waits.attend, self._waits.settle = self.attend, self._finish
        try:
            yield
        finally:
            self._waits.attend, self._waits.settle = before
            self._finish()

    def _finish(self) -> None:
        """Wait a moment for a refresh that is under way, unless a stop at once is asked for."""
        self.settle(0.0 if self._connection.interrupts.stop_now else LAST_S)

    @property
    def pending_tokens(self) -> int:
        """The most that is under way and was not counted yet."""
        return self._going.held.tokens if self._going else 0

    def hold(self, held: WarmPrompt) -> None:
        """Keep this prompt from here on, instead of another."""
        self._held = held

    def forget(self) -> None:
        """Keep nothing."""
        self._held = None

    def attend(self) -> None:
        """Begin a refresh where one is due and pays, or take in one that has ended."""
        if self._going is not None:
            if not self._going.thread.is_alive():
                self.settle(0.0)
            return
        held, now = self._held, self._connection.now()
        if held is None or now < held.at + DUE_SHARE * held.lifetime_s or self._connection.interrupts.finish_turn:
            return
        if now >= held.at + held.lifetime_s or not self._pays(held):
            self.forget()
            return
        self._begin(held, now)

    def _pays(self, held: WarmPrompt) -> bool:
        """Say whether a refresh is worth its price, and no cap stands against it."""
        price, waits = self._find_price(""), self._waits
        if price is None or waits is None or held.cached_tokens < KEPT_SHARE * held.tokens:
            return False
        rates, nth = price.find_rates(held.tokens), held.refreshes + 1
        saving = find_saving_usd(held.cached_tokens, rates, hour=held.hour, chance=waits.chance, nth=nth)
        return saving >= LEAST_USD and not waits.check_budget(held.tokens, 0)

    def _begin(self, held: WarmPrompt, now: float) -> None:
        found: list[Answer | Fault] = []
        thread = threading.Thread(
            target=lambda: found.append(self._connection.api.refresh(held.request)), name="relay-refresh", daemon=True
        )
        held = replace(held, at=now, refreshes=held.refreshes + 1)
        self._going = _Going(held=held, began=self._connection.clock(), thread=thread, found=found)
        thread.start()

    def look(self) -> None:
        """Account for a refresh that has ended; one that is under way stays in the book at the most it can cost."""
        if self._going is None:
            return
        if not self._going.thread.is_alive():
            self.settle(0.0)
        elif self._waits is not None:
            self._waits.check_budget(self._going.held.tokens, 0)

    def settle(self, wait_s: float) -> None:
        """Account for a refresh; one without an answer after so long counts as the most it can cost."""
        going, self._going = self._going, None
        if going is None:
            return
        going.thread.join(wait_s)
        silent = Fault(kind=FaultKind.INFRA, message="no answer before the wait was over", may_be_billed=True)
        found = going.found[0] if going.found else silent
        failure = self._judge(going.held, found)
        if self._held is not None and self._held.request is going.held.request:  # and no answer came meanwhile
            self._held = None if failure else going.held
            going.held.note(going.began)
        model = (found.model if isinstance(found, Answer) else "") or str(going.held.request["model"])
        spent = self._settle(going.held, model, found)
        self._connection.observe(
            CacheRefreshed(
                turn=going.held.turn,
                model=model,
                usage=spent.usage,
                cost_usd=spent.cost_usd,
                duration_s=self._connection.clock() - going.began,
                estimated=spent.estimated,
                failure=failure,
            )
        )

    def _settle(self, held: WarmPrompt, model: str, found: Answer | Fault) -> Spent:
        if isinstance(found, Fault) and found.usage is None and not found.may_be_billed:
            return Spent()
        worst = Usage(input_tokens=held.tokens)
        most = Usage(input_tokens=held.window_tokens, output_tokens=held.window_tokens)
        return charge_request(found.usage, self._find_price(model), worst=worst, least=Usage(), most=most)

    def _judge(self, held: WarmPrompt, found: Answer | Fault) -> str:
        """Say why the prompt is not worth keeping any longer; an endpoint that knows no refresh is asked for none."""
        if isinstance(found, Fault):
            if found.kind is FaultKind.REQUEST:
                self._connection.dialect.left_out |= {RequestPart.REFRESH}
            return found.message
        if found.usage is None or found.usage.output_tokens:
            self._connection.dialect.left_out |= {RequestPart.REFRESH}
            return "the endpoint does not take max_tokens: 0 for what it is"
        if found.usage.cache_read_tokens < KEPT_SHARE * held.cached_tokens:
            return "the prompt was not in the cache any more"
        return ""

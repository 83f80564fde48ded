"""An agent that asks its vendor itself, with the user's login: only what it tells is known, and marked as such.

Nothing is held, so there is no look at the caps before a request: they are looked at where the agent tells that its
tools have ended, as are the lines and a stop. A text is put in there by cancelling the turn; an answer that was begun
meanwhile may be lost.
"""

import time
from typing import Any

from relay.runners.agents.account import Account
from relay.runners.agents.acp import ToolUpdate, read_fill, read_update, read_usage
from relay.runners.agents.profile import Profile
from relay.runners.agents.session import AgentContext, AgentSession
from relay.runners.agents.wire import Answered, Notification
from relay.runners.base import ModelInfo, SessionSpec
from relay.session.events import Observe, RequestStarted
from relay.session.prices import cost_usd
from relay.session.usage import Spent, Usage
from relay.session.values import SessionEnd, SessionOutcome


class ToldAccount(Account):
    """Counts what an agent tells. Mutable."""

    def __init__(self, spec: SessionSpec, model: ModelInfo, observe: Observe) -> None:
        super().__init__(spec, model, observe, max_wait_s=0.0)
        self._fill = self._largest = self._before = 0
        """Of the turn that runs, in tokens: the fill that was told last, the largest, and the sum of those before."""
        self._begun = time.monotonic()

    def begin(self) -> None:
        """Note that a turn begins."""
        self.turn += 1
        self._begun = time.monotonic()
        self._observe(RequestStarted(turn=self.turn))

    def tell_fill(self, fill_tokens: int) -> bool:
        """Take in how full the agent says that its context is; say whether that is anything new."""
        if fill_tokens == self._fill:
            return False
        self._before += self._fill
        self._fill, self._largest = fill_tokens, max(self._largest, fill_tokens)
        self.gauge = self.gauge.measure(Usage(input_tokens=fill_tokens))
        return True

    def check_told(self) -> SessionOutcome | None:
        """Say that what was told by now is over a cap; None when it is not."""
        why = self._spec.check_budget(self._guess().prompt_tokens, 0)
        return SessionOutcome(end=SessionEnd.BUDGET, detail=why) if why else None

    def end(self, usage: Usage | None) -> None:
        """Account for a turn by what the agent tells; None: by how full its context was."""
        known = usage or self._guess()
        self._fill = self._largest = self._before = 0
        usd = None if self._spec.price is None else cost_usd(known, self._spec.price)
        spent = Spent(usage=known, cost_usd=usd, estimated=True)
        self._emit(self.turn, self._spec.model, spent, "told", time.monotonic() - self._begun)

    def close(self) -> None:
        """Account for a turn that did not come to its end."""
        if self._fill:
            self.end(None)

    def _guess(self) -> Usage:
        """Return what the prompts were together: each holds the one before it, which comes from the cache."""
        return Usage(input_tokens=self._largest, cache_read_tokens=self._before)


class TunnelSession(AgentSession):
    """One conversation with an agent that asks its vendor itself."""

    def __init__(self, profile: Profile, spec: SessionSpec, account: ToldAccount, context: AgentContext) -> None:
        super().__init__(profile, spec, account, context)
        self._told = account

    def _say(self, text: str) -> None:
        self._told.begin()
        super()._say(text)

    def _handle_update(self, said: Notification) -> None:
        super()._handle_update(said)
        if (fill := read_fill(said.params)) is not None and self._told.tell_fill(fill):
            self._note_life()
        update: Any = read_update(said.params)
        ended = isinstance(update, ToolUpdate) and update.ended and not self._activity.is_busy
        if ended and self._prompt and self._outcome is None and not self._words:
            self._cross_boundary()
            if over := self._told.check_told():
                self._follow(over)

    def _handle_turn_end(self, answered: Answered) -> None:
        self._told.end(read_usage(answered.result))
        super()._handle_turn_end(answered)

"""What takes place between two turns of an agent: the work is kept, and stops, lines and words for it are looked at.

The order of truth at a turn's end: the gateway's last main request, then the error, then the reason that is given.
"""

from dataclasses import replace

from relay.base.interrupts import Interrupts
from relay.runners.agents.account import Account
from relay.runners.agents.activity import AgentActivity
from relay.runners.agents.wire import Answered
from relay.runners.base import SessionSpec
from relay.runners.turns import LoopDetector, show_crossing
from relay.session.events import Observe
from relay.session.gauge import Zone
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult

_GO_ON = "relay: the endpoint failed and is asked again. Go on where you stopped."
_STOPS = {
    "refusal": SessionEnd.REFUSED,
    "max_tokens": SessionEnd.TRUNCATED,
    "max_turn_requests": SessionEnd.HARD_LINE,
    "model_context_window_exceeded": SessionEnd.OVERFLOW,
}
"""Reasons of the protocol, and of an answer, that are no good end."""

Decision = SessionOutcome | str
"""How a session ends, or what the agent is told; nothing is told with the empty text."""


class Boundary:
    """Judges between the turns of one session. Mutable: remembers what the agent was told.

    Args:
        activity: What the agent does.
        observe: Told of lines that are crossed.
    """

    def __init__(
        self, spec: SessionSpec, account: Account, activity: AgentActivity, observe: Observe, interrupts: Interrupts
    ) -> None:
        self.is_last = False
        """A tool of relay's has ended the session: there is no turn behind this one."""
        self._spec = spec
        self._account = account
        self._activity = activity
        self._observe = observe
        self._interrupts = interrupts
        self._stuck = LoopDetector()
        self._noticed = False

    def cross(self) -> Decision:
        """Look at what there is before the next request of a turn is let go."""
        calls = self._keep()
        if (stop := self._find_stop()) is not None:
            return stop
        if outcome := self._account.check_lines():
            if self._account.gauge.zone is Zone.HARD:
                show_crossing(self._observe, self._account.gauge, Zone.HARD)
            return outcome
        if calls and (found := self._stuck.judge(calls)):
            return found if isinstance(found, str) else replace(found, text=self._activity.last_text)
        return self._find_words() if self._account.turn else ""

    def end_turn(self, answered: Answered, title: str) -> Decision:
        """Say what follows on a turn that the agent calls ended; the empty text: it is finished."""
        self._keep()
        account = self._account
        if (stop := self._find_stop()) is not None:
            return stop
        if account.fault is not None:
            return self._wait_for_endpoint(account.fault.message)
        said = str(answered.result.get("stopReason", ""))
        reason = account.stop_reason if account.stop_reason in _STOPS else said
        if reason == "max_tokens" and (cut := account.check_cut()):
            return replace(cut, text=self._activity.last_text)
        if account.turn and reason in _STOPS:
            return self._end(_STOPS[reason], f"the turn ended with {reason}")
        words = answered.error or ("" if account.turn else "it ended its turn without asking a model")
        words = words or ("it cancelled its turn by itself" if reason == "cancelled" else "")
        return self._end(SessionEnd.AGENT_FAILED, f"{title} failed: {words}") if words else ""

    def _keep(self) -> tuple[tuple[ToolCall, ToolResult], ...] | None:
        calls = self._activity.begin_turn()
        if calls is not None:
            self._spec.callbacks.note_boundary()
        return calls

    def _find_stop(self) -> SessionOutcome | None:
        if self.is_last:
            return self._end(SessionEnd.ENDED_BY_TOOL, "")
        return self._end(SessionEnd.INTERRUPTED, "asked to stop") if self._interrupts.finish_turn else None

    def _find_words(self) -> str:
        """Return what the agent has to be told now; empty for nothing."""
        gauge = self._account.gauge
        if gauge.zone is not Zone.SOFT or self._noticed:
            return self._spec.callbacks.hear()
        self._noticed = True
        show_crossing(self._observe, gauge, Zone.SOFT)
        return self._spec.callbacks.render_soft_notice(gauge.least_tokens, gauge.hard_tokens - gauge.least_tokens)

    def _wait_for_endpoint(self, fault: str) -> Decision:
        """The agent gave up on its endpoint before relay would: wait as relay does, then have it go on."""
        wait = self._account.wait
        if wait is None:
            return self._end(SessionEnd.API_FAILED, fault)
        if wait.until is not None:
            self._spec.callbacks.note_wait(wait.until)
        if self._interrupts.wait(wait.wait_s):
            return self._end(SessionEnd.INTERRUPTED, "stopped while waiting for the API")
        return _GO_ON

    def _end(self, end: SessionEnd, detail: str) -> SessionOutcome:
        return SessionOutcome(end=end, detail=detail, text=self._activity.last_text)

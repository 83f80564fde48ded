"""What every loop does with a turn: its tools are shown, its lines looked at, and a circle is known for one.

A repeat counts only when calls *and* results are equal and nothing was written in between: re-running a test after an
edit, or waiting for a server with a changing answer, is work. Periods up to four, because A-B-A-B is a circle too;
three times, where OpenCode, Cline and OpenHands warn: twice happens in honest work.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import field

from relay.base.values import dataclass
from relay.session.events import GaugeCrossed, Observe, ToolFinished, ToolStarted
from relay.session.gauge import Gauge, Zone
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult

MAX_PERIOD = 4
REPEATS = 3
NUDGE = (
    "relay: you have made the same calls with the same results three times and nothing changed in between. "
    "Do something else, or call block with what stands in the way."
)
LEAST_OUTPUT_TOKENS = 4_000
"""A request whose answer may not be as long as this is not worth sending: where the caps leave less, it is not sent."""
_SUMMARY_CHARS = 200


def fit_answer(check: Callable[[int, int], str | None], prompt_tokens: int, wanted_tokens: int) -> int | str:
    """Return how long an answer may be, or why its request must not be sent.

    Args:
        check: As `relay.runners.base.SessionSpec.check_budget`.
        wanted_tokens: How long it is where the caps leave enough; where they do not it is halved until they do.
    """
    most = wanted_tokens
    while (why := check(prompt_tokens, most)) and most // 2 >= LEAST_OUTPUT_TOKENS:
        most //= 2
    return why or most


def show_tool_start(observe: Observe, call: ToolCall) -> None:
    """Tell that a tool begins, with one line that says what the call is about: its first text argument."""
    words = next((value for value in call.input.values() if isinstance(value, str)), "")
    observe(ToolStarted(call_id=call.id, name=call.name, summary=render_summary(words)))


def render_summary(text: str) -> str:
    """Write the one line that a person sees of a call."""
    return " ".join(text.split())[:_SUMMARY_CHARS]


def show_tool_end(observe: Observe, call: ToolCall, result: ToolResult, *, duration_s: float) -> None:
    """Tell that a tool has ended; the wait for a person is no part of how long it took."""
    data = result.text.encode("utf-8", "surrogatepass")
    observe(
        ToolFinished(
            call_id=call.id,
            name=call.name,
            is_error=result.is_error,
            result_bytes=len(data),
            result_sha256=hashlib.sha256(data).hexdigest(),
            duration_s=duration_s - result.waited_s,
            changed_paths=result.changed_paths,
            shown=result.shown,
            problem=render_summary(result.text.partition("\n")[0]) if result.is_error else "",
        )
    )


def show_crossing(observe: Observe, gauge: Gauge, line: Zone) -> None:
    """Tell that a session is over a line: the soft or the hard one."""
    line_tokens = gauge.hard_tokens if line is Zone.HARD else gauge.soft_tokens
    observe(GaugeCrossed(line=line.value, fill_tokens=gauge.least_tokens, line_tokens=line_tokens))


def end_at_hard_line(gauge: Gauge) -> SessionOutcome:
    """Return how a session ends that is over its hard line."""
    words = f"{gauge.least_tokens:,} tokens in context, the hard line is {gauge.hard_tokens:,}"
    return SessionOutcome(end=SessionEnd.HARD_LINE, detail=words)


def end_by_turns(turns: int) -> SessionOutcome:
    """Return how a session ends that has gone on for too long."""
    return SessionOutcome(end=SessionEnd.HARD_LINE, detail=f"{turns} turns in one session (max_turns)")


def refuse_first_prompt(gauge: Gauge, ways: str) -> SessionOutcome:
    """Return how a session ends whose first prompt is over the hard line; `ways` is what the user can do besides."""
    words = (
        f"the first prompt of a session has about {gauge.least_tokens:,} tokens, and sessions stop at "
        f"{gauge.hard_tokens:,} (reset_at) of a window of {gauge.window_tokens:,}: raise reset_at, {ways}"
    )
    return SessionOutcome(end=SessionEnd.DENIED, detail=words)


@dataclass(slots=True)
class LoopDetector:
    """Sees every turn's calls and results. Mutable: remembers the turns."""

    _turns: list[str] = field(default_factory=list)
    _is_told: bool = False

    def judge(self, turn: Sequence[tuple[ToolCall, ToolResult]]) -> str | SessionOutcome:
        """Take one turn; return what the model is told, empty for nothing, or how a session ends that was told."""
        if not self.is_stuck(turn):
            return ""
        if self._is_told:
            names = ", ".join(dict.fromkeys(call.name for call, _ in turn))
            return SessionOutcome(end=SessionEnd.STUCK, detail=f"the same calls with the same results again ({names})")
        self._is_told = True
        self._turns.clear()
        return NUDGE

    def is_stuck(self, turn: Sequence[tuple[ToolCall, ToolResult]]) -> bool:
        """Take one turn; say whether the last turns are the same `MAX_PERIOD` or fewer turns, three times over."""
        if any(result.changed_paths for _, result in turn):
            self._turns.clear()
            return False
        self._turns.append(_signature(turn))
        return any(self._repeats(period) for period in range(1, MAX_PERIOD + 1))

    def _repeats(self, period: int) -> bool:
        tail = self._turns[-period * REPEATS :]
        return len(tail) == period * REPEATS and tail == tail[:period] * REPEATS


def _signature(turn: Sequence[tuple[ToolCall, ToolResult]]) -> str:
    return json.dumps(
        [(call.name, call.input, result.text, result.is_error) for call, result in turn], sort_keys=True, default=str
    )

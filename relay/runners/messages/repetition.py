"""Recognise a session that goes in circles. Pure.

A repeat counts only when calls *and* results are equal and nothing was written in between: re-running a test after an
edit, or waiting for a server with a changing answer, is work. Periods up to four, because A-B-A-B is a circle too;
three times, where OpenCode, Cline and OpenHands warn: twice happens in honest work.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from relay.session.values import ToolCall, ToolResult

MAX_PERIOD = 4
REPEATS = 3


@dataclass(slots=True)
class LoopDetector:
    """Sees every turn's calls and results. Mutable: remembers the turns."""

    _turns: list[str] = field(default_factory=list)

    def is_stuck(self, turn: Sequence[tuple[ToolCall, ToolResult]]) -> bool:
        """Take one turn; say whether the last turns are the same `MAX_PERIOD` or fewer turns, three times over."""
        if any(result.changed_paths for _, result in turn):
            self._turns.clear()
            return False
        self._turns.append(_signature(turn))
        return any(self._repeats(period) for period in range(1, MAX_PERIOD + 1))

    def forget(self) -> None:
        """Start afresh, after the model was told."""
        self._turns.clear()

    def _repeats(self, period: int) -> bool:
        tail = self._turns[-period * REPEATS :]
        return len(tail) == period * REPEATS and tail == tail[:period] * REPEATS


def _signature(turn: Sequence[tuple[ToolCall, ToolResult]]) -> str:
    return json.dumps(
        [(call.name, call.input, result.text, result.is_error) for call, result in turn],
        sort_keys=True,
        default=str,
    )

"""How slow a run is, from its events."""

from dataclasses import replace

import pytest

from relay.session.events import GateFinished, GateStarted, ResponseReceived, ToolFinished
from relay.session.spend import Pace

TOOL_RAN = ToolFinished(
    call_id="c",
    name="bash",
    is_error=False,
    result_bytes=1,
    result_sha256="",
    call_sha256="",
    duration_s=0.0,
    changed_paths=None,
)
ANSWERED = ResponseReceived(
    turn=1, model="m", usage=None, cost_usd=None, fill_tokens=None, soft_tokens=1, hard_tokens=2, window_tokens=3,
    stop_reason="tool_use", duration_s=0.0,
)  # fmt: skip
GATE_RAN = GateFinished(phase_id="1", baseline=True, passed=True, summary="", duration_s=0.0)


@pytest.mark.parametrize(
    ("events", "turn_s"),
    [
        ([], 60),
        ([(GATE_RAN, 240)], 300),
        ([(ANSWERED, 100), (TOOL_RAN, 100), (TOOL_RAN, 101)], 301),
        ([(ANSWERED, 100), (TOOL_RAN, 100), (ANSWERED, 50), (TOOL_RAN, 101)], 201),
        ([(ANSWERED, 200), (TOOL_RAN, 101), (GATE_RAN, 7), (ANSWERED, 10)], 301),
    ],
)
def test_a_turn_is_an_answer_and_the_pause_behind_it(events, turn_s):
    """All calls of one turn are one pause; calls of different turns are not. Nothing else takes time."""
    pace = Pace()
    pace.observe(GateStarted(phase_id="1", baseline=True, commands=()))
    for event, duration_s in events:
        pace.observe(replace(event, duration_s=float(duration_s)))

    assert pace.turn_s == turn_s

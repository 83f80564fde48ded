"""Streams of events as a run would have written them, for figures."""

import hashlib
from collections.abc import Iterable
from typing import Any

from relay.session.events import (
    Committed,
    Event,
    GateFinished,
    PlanShown,
    RequestStarted,
    ResponseReceived,
    RunEnded,
    RunStarted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    ToolStarted,
)
from relay.session.records import LoggedEvent, Recorder
from relay.session.usage import Usage
from relay.session.values import SessionEnd, Shown

MODEL = "claude-opus-4-8"  # 5 / 25 USD, write 6.25, read 0.50


def log(events: Iterable[Event]) -> list[LoggedEvent]:
    """Record events one second apart, from second 1."""
    seconds = iter(range(1, 10**9))
    recorder = Recorder(lambda: float(next(seconds)))
    return [recorder.record(event) for event in events]


def start(run_id: str = "r", **given: Any) -> RunStarted:
    """Begin a run."""
    return RunStarted(**{
        "run_id": run_id, "command": "run", "model": MODEL, "plan_path": "PLAN.md", "branch": "main",
        "sandbox": "bwrap", "cap_usd": None, "spent_usd": 0.0, "rehearsed": True, **given,
    })  # fmt: skip


def end(**given: Any) -> RunEnded:
    """End it."""
    return RunEnded(**{"exit_code": 0, "reason": "done", "next_command": "", "spent_usd": 1.0, **given})


def plan(**phases: dict[str, str]) -> PlanShown:
    """Show a plan: ``p1={"1.1": "open a.py"}`` has the item's state and the path it names."""
    return PlanShown(
        phases=tuple(
            {
                "id": name.removeprefix("p"),
                "title": f"Phase {name}",
                "items": [
                    {
                        "id": item,
                        "text": f"Item {item}",
                        "state": next((state for state in ("open", "yours") if words.startswith(state)), "done"),
                        "paths": words.split()[1:],
                    }
                    for item, words in items.items()
                ],
            }
            for name, items in phases.items()
        )
    )


def session(session_id: str = "s1", phase_id: str = "1", **given: Any) -> SessionStarted:
    """Begin a session."""
    return SessionStarted(**{
        "session_id": session_id, "phase_id": phase_id, "title": f"Phase {phase_id}", "number": 1, "reason": "first",
        **given,
    })  # fmt: skip


def parts(**tokens: int) -> tuple[dict[str, object], ...]:
    """Say what a first prompt consists of."""
    return tuple({"source": name, "bytes": 4 * size, "tokens": size} for name, size in tokens.items())


def turn(
    number: int, prompt: int, output: int = 0, *, read: int = 0, write: int = 0, thinking: int = 0, **given: Any
) -> tuple[Event, Event]:
    """Ask and be answered; the prompt is the sum of all classes."""
    usage = Usage(
        input_tokens=prompt - read - write,
        cache_read_tokens=read,
        cache_write_5m_tokens=write,
        output_tokens=output,
        thinking_tokens=thinking,
    )
    answer = {
        "turn": number, "model": MODEL, "usage": usage, "cost_usd": 0.01, "fill_tokens": prompt + output,
        "soft_tokens": 80_000, "hard_tokens": 90_000, "window_tokens": 200_000, "stop_reason": "tool_use",
        "duration_s": 2.0, **given,
    }  # fmt: skip
    return RequestStarted(turn=number), ResponseReceived(**answer)


def call(
    name: str, about: str, tokens: int, *, content: str = "x", lines: tuple[int, int] | None = None, **given: Any
) -> tuple[Event, Event]:
    """Call a tool; `lines` makes it show that part of the file that it is about."""
    made = {
        "call_id": about, "name": name, "is_error": False, "duration_s": 1.0, "changed_paths": (),
        "result_sha256": hashlib.sha256(content.encode()).hexdigest(), "result_bytes": 4 * tokens,
        "shown": Shown(path=about, first_line=lines[0], last_line=lines[1]) if lines else None, "uses": (),
        "cut_bytes": 0, "call_sha256": f"{name} {about} {lines}", **given,
    }  # fmt: skip
    return ToolStarted(call_id=about, name=name, summary=about), ToolFinished(**made)


def gate(phase_id: str = "1", *, passed: bool, **given: Any) -> GateFinished:
    """Run a gate."""
    check = {
        "command": "make test", "status": "passed" if passed else "failed", "exit_code": 0 if passed else 1,
        "duration_s": 3.0, "output": "", "output_sha256": "ab", "causes": (),
    }  # fmt: skip
    return GateFinished(**{
        "phase_id": phase_id, "baseline": False, "passed": passed, "summary": "", "duration_s": 3.0,
        "checks": (check,), **given,
    })  # fmt: skip


def commit(phase_id: str = "1", items: tuple[str, ...] = ("1.1",), **given: Any) -> Committed:
    """Commit a phase's work."""
    return Committed(**{
        "commit": "c0ffee", "subject": "feat: x", "status": "done", "phase_id": phase_id, "items": items, **given,
    })  # fmt: skip


def over(session_id: str = "s1", phase_id: str = "1", result: str = "done") -> SessionEnded:
    """End a session."""
    return SessionEnded(
        session_id=session_id, phase_id=phase_id, end=SessionEnd.FINISHED, result=result, detail="", usage=Usage(),
        cost_usd=None,
    )  # fmt: skip

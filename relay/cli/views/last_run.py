"""How the last run ended, and what a gate said, as lines."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from relay.base.words import render_moment, shorten
from relay.cli.screen import say
from relay.cli.views.narrate import STYLES, Line, Tone
from relay.store.last_run import LastGate, LastRun

_SHOWN_LINES = 20
_SHOWN_IN_FULL = 60
_SHOWN_CHARS = 120


def tell_last_run(run: LastRun, *, now: float, why: bool) -> Iterator[Line]:
    """Yield how a run ended that did not do all that was asked for; with `why`, what failed in it."""
    began = render_moment(run.began, now=now)
    if run.ended is None:
        words = f"the {run.command} that began {began} said nothing of its end: killed, or the power went"
        yield Line(text=f"last   {words}", tone=Tone.WARNING)
        return
    if run.waits_for:
        yield Line(text=f"waits  {run.waits_for}, for a yes", tone=Tone.WARNING)
        return
    if not run.exit_code:
        return
    when = render_moment(run.ended, now=now)
    yield Line(text=f"last   stopped {when} (exit {run.exit_code}): {run.reason}", tone=Tone.WARNING)
    if not why:
        return
    if run.next_command:
        yield Line(text=f"       it said: {run.next_command}", tone=Tone.QUIET)
    if run.gate is not None:
        yield from tell_failures(run.gate, indent="       ")


def tell_failures(gate: LastGate, *, indent: str = "", shown: int = _SHOWN_LINES) -> Iterator[Line]:
    """Yield each command of a gate that is not green, with the end of its output and what the sandbox kept from it."""
    for check in gate.failed:
        yield Line(text=f"{indent}`{_name(check)}` {_say(check)}", tone=Tone.BAD)
        lines = str(check.get("output", "")).splitlines()
        if len(lines) > shown:
            yield Line(text=f"{indent}  | … ({len(lines) - shown} lines above)", tone=Tone.QUIET)
        for line in lines[-shown:]:
            yield Line(text=f"{indent}  | {line}", tone=Tone.QUIET)
        for cause in check.get("causes", ()):
            yield Line(text=f"{indent}  sandbox: {cause}", tone=Tone.WARNING)


def tell_gate(gate: LastGate) -> Iterator[Line]:
    """Yield every command of a gate, with what it said."""
    for check in gate.checks:
        if check.get("status") == "passed":
            yield Line(text=f"`{_name(check)}` passed ({float(check.get('duration_s') or 0):.1f} s)", tone=Tone.GOOD)
            for line in str(check.get("output", "")).splitlines()[-_SHOWN_IN_FULL:]:
                yield Line(text=f"  | {line}", tone=Tone.QUIET)
    yield from tell_failures(gate, shown=_SHOWN_IN_FULL)


def _name(check: Mapping[str, Any]) -> str:
    return shorten(" ".join(str(check.get("command", "")).split()), _SHOWN_CHARS)


def _say(check: Mapping[str, Any]) -> str:
    from relay.gate.model import WORDS

    code = check.get("exit_code")
    status = str(check.get("status", ""))
    return f"failed with exit {code}" if status == "failed" else WORDS.get(status, status)


def render_last_run(run: LastRun | None) -> dict[str, Any] | None:
    """Return the last run as JSON has it; times are seconds since the epoch."""
    if run is None:
        return None
    gate = run.gate
    return {
        "command": run.command,
        "began": run.began,
        "ended": run.ended,
        "exit_code": run.exit_code,
        "reason": run.reason,
        "next": run.next_command,
        "gate": None if gate is None else {"phase": gate.phase_id, "at": gate.at, "checks": list(gate.checks)},
    }


def say_lines(lines: Iterable[Line]) -> None:
    """Print lines, each in its tone."""
    for line in lines:
        say(line.text, style=STYLES[line.tone])

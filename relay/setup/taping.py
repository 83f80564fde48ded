"""A session on tape: what it is made of, and what relay's own parts tell it, is kept beside what goes over the wire."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import count
from typing import Any, Protocol

from relay.runners.base import ModelInfo, Session, SessionSpec
from relay.session.tape import VERSION, Keep
from relay.session.values import SessionOutcome, ToolCall, ToolResult


class Tape(Protocol):
    """Where notes go."""

    def keep(self, note: Any) -> None:
        """Take the next note."""

    def close(self) -> None:
        """Take no more."""


OpenTape = Callable[[str], Tape]
"""Given a session's id: its tape."""


def begin_tape(stack: ExitStack, open_tape: OpenTape, spec: SessionSpec, model: ModelInfo, agent: str) -> SessionSpec:
    """Open the tape of a session and return what makes a session that fills it; `agent` is empty for relay's own."""
    tape = open_tape(spec.session_id)
    stack.callback(tape.close)
    tape.keep({**_describe(spec, model), **({"runner": agent} if agent else {})})
    return tape_spec(spec, tape.keep)


def tape_spec(spec: SessionSpec, keep: Keep) -> SessionSpec:
    """Return the same session, with notes of what relay's own parts tell it."""

    def run_tool(call: ToolCall) -> ToolResult:
        result = spec.callbacks.run_tool(call)
        keep({"kind": "tool", "id": call.id, **asdict(result)})
        return result

    return replace(
        spec,
        keep=keep,
        callbacks=replace(
            spec.callbacks,
            run_tool=run_tool,
            render_soft_notice=_note("notice", spec.callbacks.render_soft_notice, keep),
            hear=_note("heard", spec.callbacks.hear, keep),
        ),
        check_budget=_note("budget", spec.check_budget, keep),
    )


def _note(kind: str, ask: Callable[..., Any], keep: Keep) -> Callable[..., Any]:
    """Return a question that is asked as before, and noted where there is an answer."""
    numbers = count(1)

    def asked(*given: Any) -> Any:
        n, text = next(numbers), ask(*given)
        if text:
            keep({"kind": kind, "n": n, "text": text})
        return text

    return asked


class TapedConversation:
    """A session whose advances are noted; a `relay.runners.base.Session`.

    Args:
        keep: Where notes go.
        hide: Takes out of a message what no model is told.
    """

    def __init__(self, session: Session, keep: Keep, hide: Callable[[str], str] = str) -> None:
        self._session = session
        self._keep = keep
        self._hide = hide

    def advance(self, message: str) -> SessionOutcome:
        """Say something to the model and work until it stops or must be stopped."""
        message = self._hide(message)
        self._keep({"kind": "say", "text": message})
        return self._session.advance(message)


def _describe(spec: SessionSpec, model: ModelInfo) -> dict[str, Any]:
    return {
        "kind": "session",
        "v": VERSION,
        "session_id": spec.session_id,
        "model_info": asdict(model),
        "model": spec.model,
        "system": spec.system,
        "tools": [asdict(tool) for tool in spec.tools],
        "reset_at": spec.reset_at.text,
        "max_output_tokens": spec.max_output_tokens,
        "max_turns": spec.max_turns,
        "effort": spec.effort,
        "cached": spec.cached,
        "cache_ttl": spec.cache_ttl,
        "slowest_turn_s": spec.slowest_turn_s,
    }

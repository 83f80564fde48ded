"""Keeps secrets out of what relay itself writes down for a session: ticks, records, amendments, batons, plans.

These texts end in a commit's message, the plan, the ledger or the next session's first message. They are refused
where they are said, because there the session can still say it differently.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from relay.base.redaction import find_secrets
from relay.session.values import ToolCall, ToolResult

_WRITTEN_DOWN = frozenset({"tick", "record", "amend", "hand_off", "defer", "block", "ask", "submit_plan"})


def refuse_secrets(run: Callable[[ToolCall], ToolResult], values: Sequence[str]) -> Callable[[ToolCall], ToolResult]:
    """Return `run` with calls refused whose text looks like a secret; `values` are those of the environment."""

    def run_discreetly(call: ToolCall) -> ToolResult:
        if call.name in _WRITTEN_DOWN:
            found = find_secrets("\n".join(_iter_texts(call.input)), environ_values=values)
            if found:
                words = f"Not kept: what you wrote holds what looks like {found[0].kind}. Say it without the secret."
                return ToolResult(text=words, is_error=True)
        return run(call)

    return run_discreetly


def _iter_texts(value: Any) -> Iterator[str]:
    """Yield every text in decoded JSON, however it is nested."""
    pending = [value]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case dict() as table:
                pending += [*table, *table.values()]
            case list() | tuple() as items:
                pending += items
            case _:
                continue

"""A switch-back trial of reset lines: which line a phase is given, by nobody's choice. Pure."""

import hashlib
from collections.abc import Sequence

from relay.session.gauge import RESET_AT_GRAMMAR, ResetAt, parse_reset_at

NO_RESET = "none"
"""The line that is as far up as the window allows."""
LEAST_LINES = 2


def parse_reset_line(text: str) -> ResetAt:
    """Read a line of a trial.

    Raises:
        ValueError: It is neither a reset line nor ``none``.
    """
    if text == NO_RESET:
        return ResetAt(text=NO_RESET, percents=(100.0,))
    try:
        return parse_reset_at(text)
    except ValueError:
        raise ValueError(f"{NO_RESET}, or {RESET_AT_GRAMMAR}") from None


def assign_line(lines: Sequence[str], phase_text: str, plan_commit: str) -> str:
    """Return the line of a phase: the same for all of its sessions, and open to nobody's choice.

    Args:
        phase_text: Title and items, without the state of their boxes.
        plan_commit: Where the plan's work began.
    """
    digest = hashlib.sha256(f"{plan_commit}\n{phase_text}".encode("utf-8", "surrogatepass")).digest()
    return lines[int.from_bytes(digest[:8], "big") % len(lines)]

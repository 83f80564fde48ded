"""A conversation of another agent, as turns that say the same for every format: what was said, called, changed, failed.

Pure. A transcript has any size and any content, so a conversation keeps a bounded number of turns, each cut and without
secrets, escape sequences and control characters.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from relay.base.values import dataclass
from relay.base.words import render_output

MOST_TURNS = 20_000
"""The newest are kept, and the first words of the user."""
MOST_STEPS = 200
"""Of the agent's own list."""
TURN_CHARS = 3_000
_READ_CHARS = 60_000
"""Of a turn; the middle of a longer one is not looked at."""


class Role(StrEnum):
    """Who said a turn."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"
    """A call of the agent's, with its result."""
    CUT = "cut"
    """The mark of a compaction: the agent knows nothing above it but the summary."""
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One turn."""

    role: Role
    text: str
    """What was said; of a call what it was asked for; of a compaction how it was made."""
    at: float = 0.0
    number: int = 0
    """1 for the first of the conversation."""
    tool: str = ""
    result: str = ""
    """Of a call."""
    changed: tuple[str, ...] = ()
    """Paths as the agent wrote them, those below its directory relative to it."""
    failed: bool = False
    answered: bool = True
    """False for a call without a result: it is under way, or the agent was ended."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The input of a call; not kept."""


def cut_middle(text: str, most_chars: int) -> str:
    """Return a text with its middle left out, if it is longer."""
    if len(text) <= most_chars:
        return text
    half = most_chars // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


class Conversation:
    """The turns of one conversation. Mutable: it hears one after the other.

    Args:
        redact: Takes secrets out of a text.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._turns: deque[Said] = deque(maxlen=MOST_TURNS)
        self._first: Said | None = None
        self.count = 0
        """Turns heard, with those that are no longer kept."""
        self.steps: dict[str, str] = {}
        """The agent's own list of steps, each with its state as the agent calls it."""

    @property
    def turns(self) -> tuple[Said, ...]:
        lost = self._first is not None and self._turns and self._turns[0].number > self._first.number
        return (self._first, *self._turns) if lost and self._first else tuple(self._turns)

    @property
    def numbers(self) -> range:
        """The turns that can be cited."""
        return range(1, self.count + 1)

    def hear(self, said: Said) -> None:
        """Keep a turn."""
        text, last = self._clean(said.text), self._turns[-1] if self._turns else None
        is_empty = not text and said.role is not Role.TOOL
        if is_empty or (said.role is Role.USER and last and (last.role, last.text) == (said.role, text)):
            return  # some versions write the user's words twice
        self._take_steps(said)
        self.count += 1
        kept = replace(
            said,
            number=self.count,
            text=text,
            tool=self._clean(said.tool)[:60],
            result=self._clean(said.result) if said.failed else "",
            changed=tuple(self._clean(path) for path in said.changed),
            given={},
        )
        self._turns.append(kept)
        if kept.role is Role.USER and self._first is None:
            self._first = kept

    def _clean(self, text: str) -> str:
        shown = render_output(cut_middle(text, _READ_CHARS).encode("utf-8", "replace"))
        return cut_middle(self._redact(_INVISIBLE.sub("", shown)).strip(), TURN_CHARS)

    def _take_steps(self, said: Said) -> None:
        """Follow the agent's list: written as a whole (`todos`, `plan`), or task by task."""
        given = said.given
        if said.failed:
            return
        listed = given.get("todos", given.get("plan"))
        if isinstance(listed, list):
            pairs = [(_find_text(step, "content", "step"), _find_text(step, "status")) for step in listed[:MOST_STEPS]]
            self.steps = {self._clean(name)[:200]: self._clean(state)[:20] for name, state in pairs if name}
        elif said.tool == "TaskCreate" and (name := _find_text(given, "subject")) and len(self.steps) < MOST_STEPS:
            self.steps[self._clean(name)[:200]] = "pending"
        elif said.tool == "TaskUpdate" and (state := _find_text(given, "status")):
            names, number = list(self.steps), _find_text(given, "taskId")
            if number.isdecimal() and 0 < int(number[:9]) <= len(names):
                self.steps[names[int(number[:9]) - 1]] = self._clean(state)[:20]


_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
"""Characters that hide text or turn it around on a screen."""


def _find_text(value: Any, *keys: str) -> str:
    found = (value.get(key) for key in keys) if isinstance(value, dict) else ()
    return next((text for text in found if isinstance(text, str)), "")

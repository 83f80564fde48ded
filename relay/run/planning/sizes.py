"""How much of a session a phase will take, before anything is asked of a model: stated numbers and the sizes of files.

A phase's context at its end is roughly

    fixed    1,700 tokens for tools and role, the rules files, the plan's text
  + reading  the files it and its items name, whole, once: bytes / 4 · 4/3, of each at most what one read shows:
             larger ones are searched, seldom read whole
  + work     `ITEM_TOKENS` for each open item

and what it costs follows from sending that context, growing evenly, `TURNS` + `ITEM_TURNS` · items times through the
prompt cache. It is a guess made of stated numbers, good for one decision: does the phase fit below the reset line?
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from relay.base.values import dataclass
from relay.plan.model import Phase, Plan
from relay.session.tokens import MAX_READ_BYTES, estimate_size_tokens, pad_tokens
from relay.session.usage import Usage

FIXED_TOKENS = 1_700
"""Tools and role: the most that `tests/test_overhead.py` allows them."""
ITEM_TOKENS = 4_000
"""For one item: an edit (about 800), a test run's output (1,500), looking around, words and thinking (1,700)."""
ITEM_TURNS = 4
TURNS = 3
"""Turns that do not depend on the number of items: finding one's way, the end."""
ITEM_OUTPUT_TOKENS = 1_200


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSize:
    """What a phase is expected to take."""

    phase_id: str
    fixed_tokens: int
    reading_tokens: int
    work_tokens: int
    turn: Usage
    """The average request."""
    turns: int
    line_tokens: int
    """The reset line that it was held against."""

    @property
    def context_tokens(self) -> int:
        """The context at the end of the phase if one session did all of it."""
        return self.fixed_tokens + self.reading_tokens + self.work_tokens

    @property
    def too_big(self) -> bool:
        """Whether one session is not expected to finish it."""
        return self.context_tokens > self.line_tokens


def size_phase(
    phase: Phase, *, file_bytes: Iterable[int], text_bytes: int, rules_bytes: int, line_tokens: int
) -> PhaseSize:
    """Estimate a phase's open items.

    Args:
        phase: The phase; ticked items cost nothing.
        file_bytes: Sizes of the files that its open items name, each file once.
        text_bytes: Of the plan's text that the session is given.
        rules_bytes: Of the rules files, as far as they are loaded.
        line_tokens: Where a session hands off.
    """
    items = len(phase.open_items)
    fixed = FIXED_TOKENS + _count_tokens(text_bytes) + _count_tokens(rules_bytes)
    reading = sum(_count_tokens(min(size, MAX_READ_BYTES)) for size in file_bytes)
    work = items * ITEM_TOKENS
    turns = TURNS + ITEM_TURNS * items if items else 0
    grown = reading + work
    turn = Usage(
        cache_read_tokens=fixed + grown // 2,
        cache_write_5m_tokens=(fixed + grown) // max(1, turns),
        output_tokens=items * ITEM_OUTPUT_TOKENS // max(1, turns),
    )
    return PhaseSize(
        phase_id=phase.id,
        fixed_tokens=fixed,
        reading_tokens=reading,
        work_tokens=work,
        turn=turn,
        turns=turns,
        line_tokens=line_tokens,
    )


def suggest_parts(size: PhaseSize) -> int:
    """Return into how many phases one that is too big should be split; 1 when it fits or nothing would help."""
    room = size.line_tokens - size.fixed_tokens
    grown = size.reading_tokens + size.work_tokens
    return max(1, -(-grown // room)) if room > 0 else 1


def _count_tokens(size_bytes: int) -> int:
    return pad_tokens(estimate_size_tokens(size_bytes))


def measure_phases(root: Path, plan: Plan, *, line_tokens: int, rules_bytes: int) -> tuple[PhaseSize, ...]:
    """Estimate what each phase will take.

    Args:
        line_tokens: The reset line of a session.
        rules_bytes: Of the rules files, as far as they are loaded.
    """
    shown = len(plan.preamble) + sum(len(phase.title) for phase in plan.phases)
    return tuple(
        size_phase(
            phase,
            file_bytes=tuple(iter_sizes(root, phase.open_paths if phase.open_items else ())),
            text_bytes=shown + phase.end - phase.start,
            rules_bytes=rules_bytes,
            line_tokens=line_tokens,
        )
        for phase in plan.phases
    )


def iter_sizes(root: Path, paths: Iterable[str]) -> Iterator[int]:
    """Yield the sizes in bytes of regular files inside the root; what does not exist yet costs nothing to read."""
    real_root = os.path.realpath(root)
    for path in paths:
        try:
            real = os.path.realpath(root / path)
            found = os.lstat(real)
        except (OSError, ValueError):
            continue  # a name that no file can have, or none that exists yet
        if stat.S_ISREG(found.st_mode) and Path(real).is_relative_to(real_root):
            yield found.st_size

"""How large a plan's phases are on this disk: the files they name, held against the reset line."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from relay.plan.model import Phase, Plan
from relay.planning.sizes import PhaseSize, size_phase


def measure_phases(root: Path, plan: Plan, *, line_tokens: int, rules_bytes: int) -> tuple[PhaseSize, ...]:
    """Estimate what each phase will take.

    Args:
        root: The work tree.
        plan: The plan.
        line_tokens: The reset line of a session.
        rules_bytes: Of the rules files, as far as they are loaded.
    """
    return tuple(_measure(root, plan, phase, line_tokens=line_tokens, rules_bytes=rules_bytes) for phase in plan.phases)


def _measure(root: Path, plan: Plan, phase: Phase, *, line_tokens: int, rules_bytes: int) -> PhaseSize:
    paths = dict.fromkeys(path for item in phase.open_items for path in item.paths)
    text = len(plan.preamble) + phase.end - phase.start + sum(len(other.title) for other in plan.phases)
    return size_phase(
        phase,
        file_bytes=tuple(iter_sizes(root, paths)),
        text_bytes=text,
        rules_bytes=rules_bytes,
        line_tokens=line_tokens,
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

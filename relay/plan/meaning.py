"""What a plan means to relay, without its form; two versions that mean the same may be taken for each other."""

import re

from relay.plan.model import Phase, Plan

_NO_WORD = re.compile(r"[\W_]+")

Meaning = tuple[object, ...]


def find_meaning(phase: Phase, *, items: bool = True) -> Meaning:
    """Return what a phase asks for: its id, gates, order, wishes, and its items by id, box, place and paths."""
    said = (phase.id, phase.verify, phase.own_verify, phase.files, phase.after, phase.folder)
    wishes = tuple((word, value) for word, value, _ in phase.wishes)
    boxes = ((i.id, i.done, i.optional, i.manual, i.depth, i.paths, i.targets) for i in phase.items)
    return (*said, wishes, phase.tools, tuple(boxes) if items else ())


def is_reformatted(before: Plan, after: Plan) -> bool:
    """Return whether two plans differ in blanks, marks and line ends only.

    Every letter and digit is in its place, and so is every box, command, path and setting to the last character: a
    formatter must not be able to change the meaning of a plan.
    """
    one, other = (
        (_NO_WORD.sub("", plan.text), plan.settings, [find_meaning(phase) for phase in plan.phases])
        for plan in (before, after)
    )
    return one == other

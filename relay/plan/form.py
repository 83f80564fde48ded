"""Whether two texts of a plan differ in form only: what a formatter may do to it, and nothing besides."""

import re

from relay.plan.model import Item, Phase, Plan

_NO_WORD = re.compile(r"[\W_]+")


def has_same_words(before: Plan, after: Plan) -> bool:
    """Say whether the second is the first with other blanks, marks and line ends.

    Every letter and digit is as it was and in its place, and so is every box, command, path and setting to the last
    character: who formats a plan must not be able to change what it asks for.
    """
    return _NO_WORD.sub("", before.text) == _NO_WORD.sub("", after.text) and _read(before) == _read(after)


def _read(plan: Plan) -> tuple[object, ...]:
    return (plan.settings, tuple(map(_read_phase, plan.phases)))


def _read_phase(phase: Phase) -> tuple[object, ...]:
    return (phase.id, phase.verify, phase.own_verify, phase.files, phase.after, tuple(map(_read_item, phase.items)))


def _read_item(item: Item) -> tuple[object, ...]:
    return (item.id, item.done, item.optional, item.depth, item.paths, item.targets)

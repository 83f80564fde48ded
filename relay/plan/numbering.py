"""What phases and items are called: the numbers that stand in the plan, where they tell things apart, else ordinals."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from relay.plan.spans import Numbered

_KEYWORDS = "phase|sub-?task|task|step|item|story|section|milestone|stage|part|feature|requirement"
_PRINTED = re.compile(
    r"[*_(\[{\#§]*+(?:"
    rf"(?:(?:{_KEYWORDS})\s+\#?)?(?P<dotted>\d{{1,9}}(?:\.\d{{1,9}})+[a-z]?)(?=[.):\]}}*_,;—–-]*+(?:\s|$))"
    r"|(?P<whole>\d{1,9}[a-z]?)(?=[.):][*_]*+(?:\s|$)))",
    re.IGNORECASE,
)


def fold_number(number: str) -> str:
    """Return a number as it is compared: ``01.2A`` is ``1.2a``."""
    return ".".join(part.lstrip("0") or "0" for part in number.casefold().split("."))


def find_printed_number(text: str) -> str:
    """Return the number that an item begins with, such as ``1.2`` of ``Task 1.2: Keys``; empty without one."""
    found = _PRINTED.match(text)
    return (found["dotted"] or found["whole"]) if found else ""


def number_phases(heads: Sequence[Numbered]) -> tuple[str, ...]:
    """Return the phases' ids: the numbers in the headings, or ordinals where those cannot tell phases and items apart.

    ``2`` and ``2.1`` as phases would give two things the id ``2.1``, so such numbers are not used; whether they collide
    today is not asked, because appending an item must never change an id.
    """
    numbers = [head.number for head in heads]
    folded = {number.casefold() for number in numbers}
    unique = len(folded) == len(numbers) and "" not in folded
    if unique and not any(number.rpartition(".")[0] in folded for number in folded):
        return tuple(numbers)
    return tuple(str(ordinal) for ordinal in range(1, len(heads) + 1))


def number_items(phase_ids: Sequence[str], texts: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Yield the ids of each phase's items; none stands twice, and none is a number that another item prints.

    A number that one item of the plan prints is its id: ``1.2``, and ``1`` where no such whole number repeats. Every
    other item is ``<phase>.<ordinal>``, or ``<phase>/<ordinal>`` where some item prints that.

    Args:
        texts: For each phase, its items' texts.
    """
    printed = [[find_printed_number(text) for text in items] for items in texts]
    counts = Counter(fold_number(number) for numbers in printed for number in numbers if number)
    wholes_differ = all("." in number or count == 1 for number, count in counts.items())
    for phase_id, numbers in zip(phase_ids, printed, strict=True):
        yield tuple(
            number
            if number and counts[fold_number(number)] == 1 and ("." in number or wholes_differ)
            else f"{phase_id}{'/' if fold_number(f'{phase_id}.{ordinal}') in counts else '.'}{ordinal}"
            for ordinal, number in enumerate(numbers, start=1)
        )

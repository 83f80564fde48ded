"""What a change of the whole plan must leave alone: the boxes that relay has ticked. Pure.

Narrower than the guard, for changes that a person made or asked for: goal, prose, gates and open phases may change;
what is ticked keeps its words, its phase and its order, and nothing else becomes ticked.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from relay.plan.lineage import find_lineage
from relay.plan.model import Item, Plan, Violation

_Key = tuple[str, str]
"""A phase as the plan after calls it, empty where that does not matter, and a ticked item's text."""


def check_ticks_kept(before: Plan, after: Plan) -> tuple[Violation, ...]:
    """Say which ticked items were lost, reworded, reordered or made up; empty means that the change is fine.

    A ticked item may go to another phase only where its text stands once in each plan: else it could not be told from
    an open one that was there already.

    Lines are those of `after`: of the item, else of what has its id now; 0 when there is neither.
    """
    lineage = find_lineage(before, after)
    once = _find_once(before) & _find_once(after)
    ways = lineage.phases, {phase_id: phase_id for phase_id in lineage.phases.values()}
    old, new = (
        [
            (("" if item.text in once else way.get(phase.id, ""), item.text), item)
            for phase in plan.phases
            for item in phase.items
            if item.done
        ]
        for plan, way in zip((before, after), ways, strict=True)
    )
    lines = {item.id: item.line for item in after.items}
    violations = [
        Violation(
            line=lines.get(lineage.items.get(item.id, item.id), 0),
            message=f"item {item.id} `{item.text}` was ticked by relay and is ticked no more",
        )
        for item in _find_rest(old, new)
    ]
    violations += [
        Violation(line=item.line, message=f"item {item.id} is ticked by hand; only relay ticks, after the gate")
        for item in _find_rest(new, old)
    ]
    if not violations and [item.text for _, item in old] != [item.text for _, item in new]:
        return (Violation(line=0, message="ticked items stand in another order than before"),)
    return tuple(violations)


def _find_once(plan: Plan) -> set[str]:
    return {text for text, count in Counter(item.text for item in plan.items).items() if count == 1}


def _find_rest(some: Sequence[tuple[_Key, Item]], others: Sequence[tuple[_Key, Item]]) -> Iterator[Item]:
    """Return the items of `some` that have no partner of their own among `others`."""
    left = Counter(key for key, _ in others)
    for key, item in some:
        left[key] -= 1
        if left[key] < 0:
            yield item

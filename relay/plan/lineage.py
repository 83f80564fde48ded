"""Map phases and items of a plan to those of its changed version, by their words. Pure.

An id is a place: it moves when a phase is inserted above. People know a phase by its words, so commits, claims and an
open attempt follow the heading and the items.

An item is the one with its words. Where that is gone from its phase, it is the one that stands in its place and says
more or less of the same; where two could be it, none is.

`check_ticks_kept` judges changes that a person made or asked for: goal, prose, gates, open phases and words may change;
a ticked item keeps its box, its phase and its order, and no other item becomes ticked.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping

from relay.base.values import dataclass
from relay.plan.model import Item, Phase, Plan, Violation
from relay.plan.parse import find_plan_in
from relay.plan.text import parse_number

_ITEM = re.compile(r"^[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[.\][ \t]+(\S.*)", re.MULTILINE)
"""An item's text; most versions of a plan have some in common."""
_WORD = re.compile(r"\w+")
_MOST_REWORDED = 20
"""Most items in one place that are compared, on each side: whoever rewrites more has written another phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The ids of phases and items after a change; a part that is gone is missing."""

    phases: Mapping[str, str]
    """Id before → id after. Joined phases have the same id after; a split phase has that of its larger part."""
    items: Mapping[str, str]
    """The same for items that have the same words."""
    reworded: Mapping[str, str]
    """The same for items that somebody reworded in their place."""


def find_lineage(before: Plan, after: Plan) -> Lineage:
    """Find the parts of `before` in `after`."""
    pairs = dict(_Matching(before.phases, after.phases).run())
    phases = {before.phases[old].id: after.phases[new].id for old, new in pairs.items()}
    items: dict[str, str] = {}
    homes: dict[int, list[Item]] = {}
    for old, new in sorted(pairs.items()):  # of joined phases all at once
        homes.setdefault(new, []).extend(before.phases[old].items)
    for new, some in homes.items():
        items |= _pair_items(some, after.phases[new].items)
    once = _find_once(before.items), _find_once(after.items)
    moved = (text for text in once[0].keys() & once[1].keys() if once[0][text] not in items)
    items |= {once[0][text]: once[1][text] for text in moved}
    taken = set(items.values())
    reworded = (
        pair
        for at, new in pairs.items()
        for pair in _pair_reworded(before.phases[at].items, after.phases[new].items, items, taken)
    )
    return Lineage(phases=phases, items=items, reworded=dict(reworded))


def has_heirs(before: str | None, after: str) -> bool:
    """Return whether a phase or an item of a plan is left in the plan that followed in its file.

    Args:
        before: Its text; None or a text that is no plan counts as the same plan.
    """
    if before is None or not _find_words(before).isdisjoint(_find_words(after)):
        return True
    old, new = find_plan_in(before), find_plan_in(after)
    lineage = find_lineage(old, new) if old and new else None
    return lineage is None or bool(lineage.phases or lineage.items)


def _find_words(text: str) -> set[str]:
    return set(map(str.strip, _ITEM.findall(text)))


def _pair_items(old: Iterable[Item], new: Iterable[Item]) -> dict[str, str]:
    """Pair items of the same text: those below the same items first, then those of which both sides have as many left.

    Of equal texts one may be gone; the tick of its work must not go to another.
    """
    places: dict[tuple[str, ...], deque[str]] = {}
    for chain, item in _list_chains(new):
        places.setdefault(chain, deque()).append(item.id)
    pairs, left = dict[str, str](), dict[str, list[str]]()
    for chain, item in _list_chains(old):
        if places.get(chain):
            pairs[item.id] = places[chain].popleft()
        else:
            left.setdefault(item.text, []).append(item.id)
    others: dict[str, list[str]] = {}
    for chain, free in places.items():
        others.setdefault(chain[-1], []).extend(free)
    for text, ids in left.items():
        if len(ids) == len(others.get(text, ())):
            pairs |= zip(ids, others[text], strict=True)
    return pairs


def _list_chains(items: Iterable[Item]) -> Iterator[tuple[tuple[str, ...], Item]]:
    """Yield each item behind its text and the texts of the items that it stands below."""
    above: list[str] = []
    for item in items:
        del above[item.depth :]
        above += [item.text] * (item.depth + 1 - len(above))  # a level without a box of its own
        yield tuple(above), item


def _pair_reworded(
    old: tuple[Item, ...], new: tuple[Item, ...], items: Mapping[str, str], taken: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Pair the other items of two phases that stand behind the same one, where each is like that one alone."""
    before = _find_places((item, items.get(item.id)) for item in old)
    after = _find_places((item, item.id if item.id in taken else None) for item in new)
    for place, some in before.items():
        others = after.get(place, [])
        if max(len(some), len(others)) <= _MOST_REWORDED:
            alike = [(one.id, other.id) for one in some for other in others if _is_alike(one, other)]
            counts = Counter(name for pair in alike for name in (("old", pair[0]), ("new", pair[1])))
            yield from (pair for pair in alike if counts["old", pair[0]] == counts["new", pair[1]] == 1)


def _find_places(items: Iterable[tuple[Item, str | None]]) -> dict[str, list[Item]]:
    """Return the items without an heir by the heir of the one that they stand behind; empty at the phase's start."""
    place, found = "", dict[str, list[Item]]()
    for item, heir in items:
        place = place if heir is None else heir
        if heir is None:
            found.setdefault(place, []).append(item)
    return found


def _is_alike(one: Item, other: Item) -> bool:
    """Return whether two texts may be one item: the one only adds words to the other, and they share a path if any.

    Words that were exchanged make another item: "for Python" and "for Ruby" are two pieces of work.
    """
    if one.paths and other.paths and {*one.paths}.isdisjoint(other.paths):
        return False
    few, many = sorted(map(_count_words, (one, other)), key=Counter.total)
    return few <= many and bool(few or one.paths == other.paths)


def _count_words(item: Item) -> Counter[str]:
    """Count the words of an item's text beside its paths."""
    return Counter(_WORD.findall(item.text.casefold())) - Counter(_WORD.findall(" ".join(item.paths).casefold()))


def _find_once(items: tuple[Item, ...]) -> dict[str, str]:
    """Map the texts that occur once to their ids."""
    counts = Counter(item.text for item in items)
    return {item.text: item.id for item in items if counts[item.text] == 1}


def _find_name(phase: Phase) -> str:
    """Return a phase's title; empty for one that is called by its number alone."""
    return "" if parse_number(phase.title).number else phase.title


def _find_texts(phase: Phase) -> tuple[str, ...]:
    return tuple(item.text for item in phase.items)


def _find_whole(phase: Phase) -> Hashable:
    return _find_name(phase), _find_texts(phase)


def _find_state(phase: Phase) -> Hashable:
    return _find_whole(phase), tuple(item.done for item in phase.items)


class _Matching:
    """Pairs phases, the surest way first, as indexes into the two sequences. Linear in the number of items."""

    def __init__(self, old: tuple[Phase, ...], new: tuple[Phase, ...]) -> None:
        self._old, self._new = old, new
        self._left = dict.fromkeys(range(len(old)))
        self._free = dict.fromkeys(range(len(new)))

    def run(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs, each phase of the old sequence at most once."""
        yield from self._pair_ends()
        yield from self._pair_equal(_find_state)
        yield from self._pair_equal(_find_whole)
        yield from self._pair_by_items()
        yield from self._pair_equal(_find_name, unique=True)
        yield from self._pair_in_place()

    def _take(self, old: int, new: int) -> tuple[int, int]:
        del self._left[old]
        self._free.pop(new, None)
        return old, new

    def _pair_ends(self) -> Iterator[tuple[int, int]]:
        """Pair equal phases from the top down and from the bottom up, so that repeated phases keep their order."""
        old, new = (list(map(_find_state, phases)) for phases in (self._old, self._new))
        most = min(len(old), len(new))
        head = next((at for at in range(most) if old[at] != new[at]), most)
        yield from (self._take(at, at) for at in range(head))
        foot = next((at for at in range(most - head) if old[-1 - at] != new[-1 - at]), most - head)
        yield from (self._take(len(old) - at, len(new) - at) for at in range(foot, 0, -1))

    def _pair_equal(self, find_key: Callable[[Phase], Hashable], *, unique: bool = False) -> Iterator[tuple[int, int]]:
        """Pair phases of the same key, the first with the first; only of a key that is unique among the rest."""
        places: dict[Hashable, deque[int]] = {}
        for at in self._free:
            places.setdefault(find_key(self._new[at]), deque()).append(at)
        counts = Counter(find_key(self._old[at]) for at in self._left)
        for at in tuple(self._left):
            key = find_key(self._old[at])
            found = places.get(key)
            if key != "" and found and not (unique and (len(found) > 1 or counts[key] > 1)):
                yield self._take(at, found.popleft())

    def _pair_in_place(self) -> Iterator[tuple[int, int]]:
        """Pair phases of the same id that name a common file, or of which one has only more items at its end."""
        places = {self._new[at].id: at for at in self._free}
        for at in tuple(self._left):
            new = places.get(self._old[at].id)
            if new is not None and _is_rewritten(self._old[at], self._new[new]):
                yield self._take(at, new)

    def _pair_by_items(self) -> Iterator[tuple[int, int]]:
        """Pair phases by items that stand in one phase only, before and after.

        With the same title one such item is enough. Else it takes half of the phase's items, and more than half where
        another phase has its title.
        """
        homes = self._find_homes()
        free = {_find_name(self._new[at]) for at in self._free}
        for at in tuple(self._left):
            texts = set(_find_texts(self._old[at]))
            votes = Counter(homes[text] for text in texts if text in homes)
            if not votes:
                continue
            name = _find_name(self._old[at])
            named = {place: bool(name) and name == _find_name(self._new[place]) for place in votes}
            best = max(votes, key=lambda place: (named[place], place in self._free, votes[place], -place))
            if named[best] or votes[best] * 2 >= len(texts) + (bool(name) and name in free):
                yield self._take(at, best)

    def _find_homes(self) -> dict[str, int]:
        """Map each text that only one phase has, before and after, to that phase's place after."""
        counts = [
            Counter(text for phase in side for text in set(_find_texts(phase))) for side in (self._old, self._new)
        ]
        return {
            text: at
            for at, phase in enumerate(self._new)
            for text in _find_texts(phase)
            if counts[0][text] == counts[1][text] == 1
        }


def _is_rewritten(old: Phase, new: Phase) -> bool:
    paths, others = ({path for item in phase.items for path in item.paths} for phase in (old, new))
    short, long = sorted((_find_texts(old), _find_texts(new)), key=len)
    return not paths.isdisjoint(others) or (old.heading == new.heading and long[: len(short)] == short)


def check_ticks_kept(before: Plan, after: Plan) -> tuple[Violation, ...]:
    """Return the ticked items that were lost, reordered or made up; empty if the change is fine.

    Lines are those of `after`: of the item, else of the item with its id now; 0 when there is neither.
    """
    lineage, lines = find_lineage(before, after), {item.id: item.line for item in after.items}
    heirs, done = {**lineage.reworded, **lineage.items}, [item for item in after.items if item.done]
    ticked = {item.id: heirs.get(item.id, "") for item in before.items if item.done}
    there = after.done_ids
    kept = dict.fromkeys(heir for heir in ticked.values() if heir in there)
    violations = [
        Violation(
            line=lines.get(ticked[item.id] or item.id, 0),
            message=f"item {item.id} `{item.text}` was ticked by relay and is ticked no more",
        )
        for item in before.items
        if item.done and ticked[item.id] not in kept
    ]
    violations += [
        Violation(line=item.line, message=f"item {item.id} is ticked by hand; only relay ticks, after the gate")
        for item in done
        if item.id not in kept
    ]
    if not violations and [*kept] != [item.id for item in done]:
        return (Violation(line=0, message="ticked items stand in another order than before"),)
    return tuple(violations)

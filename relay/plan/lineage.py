"""Map phases and items of a plan to those of its changed version, by their words; and merge two versions. Pure.

An id is a place: it moves when a phase is inserted above. People know a phase by its words, so commits, claims and an
open attempt follow the heading and the items.

`check_ticks_kept` is less strict than the guard, for changes that a person made or asked for: goal, prose, gates and
open phases may change; a ticked item keeps its words, its phase and its order, and no other item becomes ticked.

A merge takes the ticks, notes and amendments of both versions, by meaning and not by lines. Changes of two phases that
were done side by side may be far apart or adjacent, and nobody reads git's conflict marks in a plan.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.plan.edit import append_items, append_note, list_all_notes, list_notes
from relay.plan.model import Item, Phase, Plan, Violation
from relay.plan.parse import find_plan_in
from relay.plan.text import parse_number
from relay.plan.transitions import Run, Side, check_transition, find_key, make_side

_ITEM = re.compile(r"^[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[.\][ \t]+(\S.*)", re.MULTILINE)
"""An item's text; most versions of a plan have some in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The ids of phases and items after a change; a part that is gone is missing."""

    phases: Mapping[str, str]
    """Id before → id after. Joined phases have the same id after; a split phase has that of its larger part."""
    items: Mapping[str, str]
    """The same for items; a reworded item is a new one."""


def find_lineage(before: Plan, after: Plan) -> Lineage:
    """Find the parts of `before` in `after`."""
    pairs = dict(_Matching(before.phases, after.phases).run())
    phases = {before.phases[old].id: after.phases[new].id for old, new in pairs.items()}
    items: dict[str, str] = {}
    for old, new in pairs.items():
        items |= _pair_items(before.phases[old].items, after.phases[new].items)
    once = _find_once(before.items), _find_once(after.items)
    moved = (text for text in once[0].keys() & once[1].keys() if once[0][text] not in items)
    items |= {once[0][text]: once[1][text] for text in moved}
    return Lineage(phases=phases, items=items)


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


def _pair_items(old: tuple[Item, ...], new: tuple[Item, ...]) -> dict[str, str]:
    """Pair items of the same text, the first with the first."""
    places: dict[str, deque[str]] = {}
    for item in new:
        places.setdefault(item.text, deque()).append(item.id)
    return {item.id: places[item.text].popleft() for item in old if places.get(item.text)}


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
        yield from self._pair_by_number()

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

    def _pair_by_number(self) -> Iterator[tuple[int, int]]:
        """Pair phases of the same number that name a common file: they were rewritten in place."""
        places = {self._new[at].id: at for at in self._free}
        for at in tuple(self._left):
            new = places.get(self._old[at].id)
            if new is not None and _find_paths(self._old[at]) & _find_paths(self._new[new]):
                yield self._take(at, new)


def _find_paths(phase: Phase) -> set[str]:
    return {path for item in phase.items for path in item.paths}


_Key = tuple[str, str]
"""The phase's id after the change, empty where that does not matter, and a ticked item's text."""


def check_ticks_kept(before: Plan, after: Plan) -> tuple[Violation, ...]:
    """Return the ticked items that were lost, reworded, reordered or made up; empty if the change is fine.

    A ticked item may move to another phase only if its text stands once in each plan: else it could not be told from an
    open item that was there already.

    Lines are those of `after`: of the item, else of the item with its id now; 0 when there is neither.
    """
    lineage = find_lineage(before, after)
    once = _find_once(before.items).keys() & _find_once(after.items).keys()
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


def _find_rest(some: Sequence[tuple[_Key, Item]], others: Sequence[tuple[_Key, Item]]) -> Iterator[Item]:
    """Yield the items of `some` that have no partner of their own among `others`."""
    left = Counter(key for key, _ in others)
    for key, item in some:
        left[key] -= 1
        if left[key] < 0:
            yield item


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMerge:
    """The result of a merge."""

    plan: Plan
    left: tuple[str, ...] = ()
    """One message per change that conflicts; the tip's version was kept."""


def merge_plans(base: Plan, tip: Plan, own: Plan) -> PlanMerge:
    """Apply the changes from `base` to `own` on top of `tip`; the result is a legal change of `tip`.

    Args:
        base: The common base.
        tip: The version of others; it wins where the two conflict.
        own: The version of one phase.
    """
    sides = make_side(base), make_side(tip), make_side(own)
    changes = _find_changes(sides[0], sides[2])
    kept = _find_kept(sides[0], sides[1])
    taken = {change: place for change in changes if (place := _find_place(change, kept)) is not None}
    spliced = _splice(sides[1], sides[2], taken)
    merged = _add_rest(base, tip, own, onto=spliced or tip)
    if spliced is None or not _is_legal(tip, merged.plan):
        taken, merged = {}, _add_rest(base, tip, own, onto=tip)
    left = [change for change in changes if change not in taken]
    return PlanMerge(plan=merged.plan, left=(*(_describe(sides, change) for change in left), *merged.left))


def strip_rewrites(base: Plan, own: Plan) -> PlanMerge:
    """Return `base` with only those changes of `own` that sessions may make: added items, notes and ticks."""
    onto, heirs, left = base, find_lineage(own, base), list[str]()
    for phase in own.phases:
        added = [item.text for item in phase.items if item.id not in heirs.items]
        if added and (home := heirs.phases.get(phase.id)):
            try:
                onto = append_items(onto, home, added)
            except PlanError as error:
                left.append(f"items of phase {phase.id} were left out: {error}")
    kept = _add_rest(base, base, own, onto=onto)
    if kept.plan.text != own.text:
        left.append("of the plan as it was changed elsewhere only added items, notes and ticks are taken")
    return PlanMerge(plan=kept.plan, left=(*left, *kept.left))


def _find_keys(side: Side) -> list[tuple[str, ...]]:
    return [find_key(side, part) for part in side.parts]


def _match(one: Side, other: Side) -> Iterator[tuple[str, int, int, int, int]]:
    from difflib import SequenceMatcher  # costs start-up time and is needed only here

    yield from SequenceMatcher(None, _find_keys(one), _find_keys(other), autojunk=False).get_opcodes()


def _find_changes(base: Side, own: Side) -> tuple[Run, ...]:
    """Return the parts that a side rewrote, added or removed; ticks and notes do not count."""
    return tuple(
        Run(before=range(start, stop), after=range(first, last))
        for tag, start, stop, first, last in _match(base, own)
        if tag != "equal"
    )


def _find_kept(base: Side, tip: Side) -> dict[int, int]:
    """Map each part that a side left unchanged from its old to its new index."""
    return {
        start + at: first + at
        for tag, start, stop, first, _ in _match(base, tip)
        if tag == "equal"
        for at in range(stop - start)
    }


def _find_place(change: Run, kept: Mapping[int, int]) -> range | None:
    """Return the places of the changed parts in the tip; None if the tip changed one of them."""
    before = change.before
    if not before:
        at = kept.get(before.start - 1, kept.get(before.start, 0) - 1) + 1
        return range(at, at)
    places = [kept.get(at, -1) for at in before]
    if min(places) < 0 or places != list(range(places[0], places[0] + len(places))):
        return None
    return range(places[0], places[-1] + 1)


def _splice(tip: Side, own: Side, taken: Mapping[Run, range]) -> Plan | None:
    """Replace parts of the tip by the own side's; None if the result is no plan."""
    pieces, given = ([side.plan.text[part.start : part.end] for part in side.parts] for side in (tip, own))
    for change, place in sorted(taken.items(), key=lambda pair: pair[1].start, reverse=True):
        pieces[place.start : place.stop] = given[change.after.start : change.after.stop]
    ending = tip.outline.lines.ending(0) or "\n"
    whole = [piece if piece.endswith(("\n", "\r")) else f"{piece}{ending}" for piece in pieces[:-1]]
    return find_plan_in("".join((*whole, *pieces[-1:])))


def _add_rest(base: Plan, tip: Plan, own: Plan, *, onto: Plan) -> PlanMerge:
    """Return a plan with both sides' notes and the own side's new ticks."""
    left: list[str] = []
    for side in (tip, own):
        for phase_id, home, note in _find_new_notes(base, side, onto):
            if not home:
                left.append(f"a note on phase {phase_id} was left out, since the phase is gone: {note}")
                continue
            try:
                onto = append_note(onto, home, note)
            except PlanError as error:
                left.append(f"a note on phase {phase_id} was left out, {error}: {note}")
    was_done = find_lineage(base, own).items
    heirs = find_lineage(own, onto).items
    new = own.done_ids - {was_done[item] for item in base.done_ids if item in was_done}
    gone = [item for item in own.items if item.id in new and item.id not in heirs]
    left += [f"the tick of item {item.id} was left out, since it is gone: {item.text}" for item in gone]
    return PlanMerge(plan=onto.tick([heirs[item] for item in new if item in heirs]), left=tuple(left))


def _find_new_notes(base: Plan, side: Plan, merged: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield each note of a side that the merged plan lacks: phase id, phase id in the merged plan (empty: gone), note.

    A note is yielded as often as the side has added it.
    """
    before, now = find_lineage(side, base).phases, find_lineage(side, merged).phases
    for phase in side.phases:
        home = now.get(phase.id, "")
        known = Counter(list_notes(base, before[phase.id])) if phase.id in before else Counter[str]()
        have = Counter(list_notes(merged, home)) if home else Counter[str]()
        missing = Counter(list_notes(side, phase.id)) - known - (have - known)
        for note in missing.elements():
            yield phase.id, home, note


def _count_notes(plan: Plan) -> Counter[str]:
    return Counter(note for notes in list_all_notes(plan).values() for note in notes)


def _find_unknown(plan: Plan) -> set[str]:
    """Return the ids in `after` that are no phase of the plan."""
    return {name for phase in plan.phases for name in phase.after} - {phase.id for phase in plan.phases}


def _is_legal(tip: Plan, merged: Plan) -> bool:
    """Whether sessions may make this change to the tip, and it loses no note."""
    if _count_notes(tip) - _count_notes(merged) or _find_unknown(merged) - _find_unknown(tip):
        return False
    still_open = [phase.id for phase in tip.phases if not phase.done]
    opened = merged.untick(merged.done_ids - tip.done_ids)
    if check_transition(tip, opened, may_tick=(), amendable=still_open):
        return False
    return not check_transition(opened, merged, may_tick=merged.done_ids)


def _describe(sides: Sequence[Side], change: Run) -> str:
    base, _, own = sides
    named = _list_phases(base, change.before) or _list_phases(own, change.after)
    names = ", ".join(phase.id for phase in named)
    what = f"phase{'s' if named[1:] else ''} {names}" if named else "the text around the phases"
    return f"what was changed of {what} was left out, since others have changed the plan there too"


def _list_phases(side: Side, parts: range) -> list[Phase]:
    return [phase for at in parts if (phase := side.parts[at].phase)]

"""Merge two versions of a plan with a common base: ticks, notes and amendments of both. Pure.

The merge is by meaning and not by lines. Changes of two phases that were done side by side may be far apart or
adjacent, and nobody reads git's conflict marks in a plan.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.plan.edit import append_items, append_note, list_notes
from relay.plan.lineage import find_lineage
from relay.plan.model import Phase, Plan
from relay.plan.parse import find_plan_in
from relay.plan.transitions import Run, Side, check_transition, find_key, make_side


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
    """Return where the changed parts stand in the tip; None if the tip changed one of them."""
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
    return Counter(note for phase in plan.phases for note in list_notes(plan, phase.id))


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

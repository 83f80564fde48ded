"""What relay does to a plan, as values.

relay is the only writer of a plan while it works. So the plan of a checkpoint or a commit is an earlier one with
operations done on it: they are read off the two, and done again on a third version, the tip that others have landed on
or a plan that a person edited meanwhile. A change that no operations make is none of relay's.

Each operation checks what it does: nothing else in the plan means something else afterwards. One that finds its phase
or item no more is left out, and told with its text.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import zip_longest

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.base.words import list_some, shorten
from relay.plan.edit import append_items, append_note, list_notes
from relay.plan.lineage import find_lineage
from relay.plan.model import Plan, Violation

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """An open item becomes a done one."""

    item_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddItems:
    """A phase that is not done gets open items behind its own."""

    phase_id: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNote:
    """A phase gets a note, which may be a question (`relay.plan.edit.render_question`)."""

    phase_id: str
    text: str


Operation = Tick | AddItems | AddNote


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A plan on which operations of another version were done."""

    plan: Plan
    reworded: Mapping[str, str] = field(default_factory=dict)
    """Items that were ticked although somebody had reworded them meanwhile: present id → the text that was done."""
    left: tuple[str, ...] = ()
    """A sentence for each operation that could not be done, with its text."""


def run_operation(plan: Plan, operation: Operation) -> Plan:
    """Do an operation. What is there already stays as it is, so an operation may be done again.

    Raises:
        PlanError: There is no such phase, or what is added would not be read as what it is.
        LookupError: There is no such item.
    """
    match operation:
        case Tick():
            return plan.tick((operation.item_id,))
        case AddItems():
            return append_items(plan, operation.phase_id, operation.texts)
        case AddNote():
            return append_note(plan, operation.phase_id, operation.text)


def read_operations(before: Plan, after: Plan) -> tuple[Operation, ...]:
    """Return the operations that relay did on `before`, in the ids of `after`; other changes are not among them."""
    lineage = find_lineage(after, before)
    origins = {**lineage.reworded, **lineage.items}
    notes, were_done = list_notes(after), before.done_ids
    noted = {phase: frozenset(texts) for phase, texts in list_notes(before).items()}
    added, ticks = list[Operation](), list[Operation]()
    for phase in after.phases:
        if home := lineage.phases.get(phase.id):  # a phase without one was made by a person
            if texts := tuple(item.text for item in phase.items if item.id not in origins):
                added.append(AddItems(phase_id=phase.id, texts=texts))
            new = (text for text in notes[phase.id] if text not in noted[home])
            added += [AddNote(phase_id=phase.id, text=text) for text in new]
        done = (item for item in phase.items if item.done and origins.get(item.id) not in were_done)
        ticks += [Tick(item_id=item.id, text=item.text) for item in done]
    return (*added, *ticks)


def replay(operations: Sequence[Operation], own: Plan, tip: Plan) -> Replayed:
    """Do operations again on another version of a plan; items and phases are found there by their words.

    Args:
        operations: In the ids of `own`.
        own: The version on which they were done.
        tip: The other version; whatever else it says stays.
    """
    plan, left = tip, list[str]()
    homes = find_lineage(own, tip).phases
    for one in operations:
        if isinstance(one, Tick):
            continue
        what, text = ("items", "; ".join(one.texts)) if isinstance(one, AddItems) else ("a note", one.text)
        try:
            home, why = homes.get(one.phase_id), "the phase is gone"
            plan = run_operation(plan, replace(one, phase_id=home)) if home else plan
        except PlanError as error:
            home, why = None, error.message
        if home is None:
            left.append(f"{what} for phase {one.phase_id} left out, since {why}: {text}")
    lineage, ticked, reworded = find_lineage(own, plan), list[str](), dict[str, str]()
    for tick in (one for one in operations if isinstance(one, Tick)):
        heir = lineage.items.get(tick.item_id, lineage.reworded.get(tick.item_id))
        if heir is None:
            left.append(f"the tick of item {tick.item_id} left out, since it is gone: {tick.text}")
            continue
        ticked.append(heir)
        if tick.item_id in lineage.reworded:
            reworded[heir] = tick.text
    return Replayed(plan=plan.tick(ticked), reworded=reworded, left=tuple(left))


def describe_reworded(before: Plan, after: Plan, items: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each of these items, by their ids in `after`, that was done and has other words now."""
    heirs, texts = find_lineage(before, after).reworded, {item.id: item.text for item in after.items}
    done = [item for item in before.items if item.done and heirs.get(item.id) in items]
    return tuple(
        f"item {heirs[item.id]} was done as `{item.text}`, and was reworded meanwhile: `{texts[heirs[item.id]]}`"
        for item in done
    )


def check_change(before: Plan, after: Plan, *, may_tick: Collection[str]) -> tuple[Violation, ...]:
    """Return what is in a change besides operations of relay; empty if there is nothing.

    Args:
        after: The changed plan; violations name lines of its text.
        may_tick: Ids, in `after`, of the items that may be ticked.
    """
    did = read_operations(before, after)
    lines = {item.id: item.line for item in after.items}
    allowed = f"only {list_some(sorted(may_tick))} may be ticked" if may_tick else "nothing may be ticked"
    wrong = [one for one in did if isinstance(one, Tick) and one.item_id not in may_tick]
    if wrong:
        return tuple(
            Violation(line=lines[one.item_id], message=f"item {one.item_id} was ticked; {allowed}") for one in wrong
        )
    wanted = replay(did, after, before).plan.text
    if wanted == after.text:
        return ()
    pairs = zip_longest(*(_LINE.findall(text) for text in (wanted, after.text)), fillvalue="")
    line, was, now = next((at, one, other) for at, (one, other) in enumerate(pairs, start=1) if one != other)
    shown = [f"`{shorten(text.strip(), _SHOWN_CHARS)}`" if text.strip() else "an empty line" for text in (now, was)]
    words = f"found {shown[0]} where {shown[1]} belongs; only ticks, items and notes that relay writes change a plan"
    return (Violation(line=line, message=words),)

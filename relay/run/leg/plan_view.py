"""A plan as the view shows it: boxes in their four states. Pure."""

from relay.plan.model import Item, Plan
from relay.session.events import PlanShown
from relay.session.shapes import BoxState, ShownItem, ShownPhase


def render_plan(plan: Plan, *, committed: Plan) -> PlanShown:
    """Return the event that shows a plan.

    Args:
        plan: As drafted; boxes that sessions have claimed are ticked in it.
        committed: As HEAD has it; what is ticked here is done.
    """
    done = committed.done_ids
    phases = tuple(
        ShownPhase(id=phase.id, title=phase.title, items=[_render_item(item, done) for item in phase.items])
        for phase in plan.phases
    )
    return PlanShown(phases=phases)


def _render_item(item: Item, done: frozenset[str]) -> ShownItem:
    return ShownItem(id=item.id, text=item.text, state=_find_state(item, done), paths=list(item.paths))


def _find_state(item: Item, done: frozenset[str]) -> BoxState:
    if item.id in done:
        return "done"
    return "claimed" if item.done else "optional" if item.optional else "open"

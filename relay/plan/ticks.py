"""What a change of the whole plan must leave alone: the boxes that relay has ticked. Pure.

Narrower than the guard, for changes that a person made or asked for: goal, prose, gates and open phases may change;
what is ticked keeps its words and its order, and nothing else becomes ticked.
"""

from relay.plan.model import Plan, Violation


def check_ticks_kept(before: Plan, after: Plan) -> tuple[Violation, ...]:
    """Say which ticked items were lost, reworded, reordered or made up; empty means that the change is fine.

    Lines are those of `after`: of the item, else of what has its id now; 0 when there is neither.
    """
    old = [item for phase in before.phases for item in phase.items if item.done]
    new = [item for phase in after.phases for item in phase.items if item.done]
    if [item.text for item in old] == [item.text for item in new]:
        return ()
    texts = {item.text for item in new}
    lost = [item for item in old if item.text not in texts]
    known = {item.text for item in old}
    made_up = [item for item in new if item.text not in known]
    there = {key: item.line for phase in after.phases for item in phase.items for key in (item.id, item.text)}
    violations = [
        Violation(
            line=there.get(item.text) or there.get(item.id, 0),
            message=f"item {item.id} `{item.text}` was ticked by relay and is ticked no more",
        )
        for item in lost
    ]
    violations += [
        Violation(line=item.line, message=f"item {item.id} is ticked by hand; only relay ticks, after the gate")
        for item in made_up
    ]
    return tuple(violations) or (Violation(line=0, message="ticked items stand in another order than before"),)

"""What each phase at which nobody is waits for, while a run with jobs goes on. Pure."""

from collections.abc import Iterator

from relay.base.words import list_some
from relay.fleet.job_table import JobTable
from relay.plan.model import Plan
from relay.plan.waves import find_ready
from relay.store.resume import find_blocked_by

_SHOWN = 5


def tell_waits(plan: Plan, state: JobTable, *, jobs: int) -> Iterator[tuple[str, str]]:
    """Yield open phases that wait for their turn, each with what for; those that stopped do not.

    Args:
        plan: As the branch has it.
        state: Who is at work and who is not.
        jobs: How many may be at work at once.
    """
    held = {*state.working, *state.pending, *state.stopped, *state.foreign}
    ready = {phase.id for phase in find_ready(plan, held)}
    merging = tuple(phase_id for phase_id, one in state.working.items() if one.merges)
    for phase in plan.phases:
        if phase.done or phase.id in {*state.working, *state.stopped}:
            continue
        before = find_blocked_by(plan, phase)
        if phase.id in state.foreign:
            yield phase.id, "another relay is at work on it"
        elif phase.id in state.pending:
            yield phase.id, f"done; lands after {list_some(before or merging or ('the others',), _SHOWN)}"
        elif before:
            yield phase.id, f"comes after {list_some(before, _SHOWN)}"
        elif phase.id not in ready:
            yield phase.id, "waits for a path that a phase at work names too"
        else:
            yield phase.id, _tell_turn(state, jobs)


def _tell_turn(state: JobTable, jobs: int) -> str:
    """Say why a phase that could begin has not."""
    if not state.is_warm:
        return f"waits for the first answer of {list_some(tuple(state.working), _SHOWN)}"
    if state.busy >= jobs:
        return f"waits for one of the {jobs} places"
    return "waits for money: what is left is set aside for those at work"

"""Which reset line a phase is tried with."""

from relay.meters.reset_trial import assign_line
from relay.plan.model import Phase
from relay.setup.context import RunContext
from relay.store.history import find_beginning


def find_line(ctx: RunContext, phase: Phase, before: str) -> str:
    """Return the line of a phase that begins, or goes on behind a commit; empty where there is no trial.

    Args:
        ctx: The collaborators.
        phase: As the plan has it now.
        before: The line of the phase's earlier sessions, which it keeps; empty where there were none.
    """
    lines = ctx.settings.trial
    if not lines or before in lines:
        return before if lines else ""
    text = "\n".join((phase.title, *(item.text for item in phase.items)))
    return assign_line(lines, text, find_beginning(ctx.repo, ctx.plan_path))

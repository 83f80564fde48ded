"""Which reset line a phase is tried with."""

from relay.meters.reset_trial import assign_line
from relay.plan.model import Phase
from relay.setup.context import RunContext
from relay.store.history import read_plan_commits


def find_line(ctx: RunContext, phase: Phase) -> str:
    """Return the line of a phase that begins; empty where there is no trial.

    The plan's commit is the one on which relay made its first commit of the plan, or is about to.
    """
    lines = ctx.settings.trial
    if not lines:
        return ""
    commits = read_plan_commits(ctx.files.repo, ctx.files.plan_path)
    began = next(iter(commits[-1].parents), "") if commits else ctx.repo.head() or ""
    text = "\n".join((phase.title, *(item.text for item in phase.items)))
    return assign_line(lines, text, began)

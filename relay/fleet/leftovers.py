"""What a run with jobs says in the end of the phases that it leaves open. Pure."""

from collections.abc import Collection, Mapping

from relay.base.errors import ExitCode
from relay.base.words import count
from relay.fleet.runs import JobEnd
from relay.plan.model import Plan


def tell_rest(plan: Plan, stopped: Mapping[str, JobEnd], pending: Collection[str], *, jobs: int) -> str:
    """Say of each open phase why it is.

    Args:
        plan: As the branch has it.
        stopped: Phases that no run goes on with, and how the last one ended.
        pending: Phases that are done on their own branches.
        jobs: How many were to be side by side.
    """
    done = {phase.id for phase in plan.phases if phase.done}
    parts, waiting = [], []
    for phase in plan.phases:
        if phase.done:
            continue
        if phase.id in stopped:
            again = _find_way(stopped[phase.id].next_command, phase.id, jobs)
            parts.append(f"phase {phase.id} stopped: {stopped[phase.id].reason}{f' ({again})' if again else ''}")
        elif phase.id in pending:
            ahead = " and ".join(name for name in phase.after if name not in done)
            parts.append(
                f"phase {phase.id} is done and waits {f'for phase {ahead} to land' if ahead else 'to be landed'}"
            )
        else:
            waiting.append(phase.id)
    rest = [f"{count(len(waiting), 'phase')} not begun: {', '.join(waiting)}"] if waiting else []
    return "; ".join((*parts, *rest))


def _find_way(typed: str, phase_id: str, jobs: int) -> str:
    """Return what to type, from what a run in the phase's own work tree said: here it would begin the phase again."""
    alone = f" --phase {phase_id}"
    if typed.endswith(alone) or f"{alone} --max-cost " in typed:  # that is one number for all, and said in the end
        return ""
    return typed.replace(alone, f" --jobs {jobs}")


def find_code(stopped: Mapping[str, JobEnd]) -> ExitCode:
    """Return how a run ends that leaves phases open."""
    are_users = stopped and all(end.exit_code == ExitCode.USER for end in stopped.values())
    return ExitCode.USER if are_users else ExitCode.STOPPED

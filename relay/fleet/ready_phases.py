"""Which phases can begin, and at which commit: the plan's tip, or that of the one phase whose landing they wait for."""

from collections.abc import Collection, Mapping

from relay.base.values import dataclass
from relay.git.repository import Repo
from relay.plan.model import Phase, Plan
from relay.plan.waves import find_ready
from relay.store.plan_edit import parse_at
from relay.store.texts import find_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPhase:
    """A phase that can begin."""

    phase_id: str
    commit: str = ""
    """Where; empty for the tip of the plan's branch."""


def find_ready_phases(
    main: Repo, plan_path: str, plan: Plan, held: Collection[str], done: Mapping[str, str]
) -> tuple[ReadyPhase, ...]:
    """Return the phases that can begin, in plan order.

    A phase that waits for nothing but the landing of another one begins on that one's own commit, which its own gate
    has passed: it need not wait until that is merged with what others landed. It lands behind it.

    Args:
        main: The work tree whose branch is the plan's.
        plan: As that branch has it.
        held: Ids of phases that do not begin.
        done: Of those, ids of the ones that are done and have not landed, and the commits in which they are.
    """
    found = {phase.id: ReadyPhase(phase_id=phase.id) for phase in find_ready(plan, held)}
    left = [phase for phase in plan.phases if not (phase.done or phase.id in held or phase.id in found)]
    for phase_id, commit in done.items():
        waiting = [phase for phase in left if phase_id in phase.after]
        text = find_text(main, commit, plan_path) if waiting else None
        if text is None:
            continue
        own = parse_at(text, plan_path)
        # What has landed since is not in that commit: it is at work, as far as that is concerned.
        others = {*held, *(phase.id for phase in plan.phases if phase.done)} - {phase_id}
        ready = {phase.id: phase for phase in find_ready(own, others)}
        found |= {
            phase.id: ReadyPhase(phase_id=phase.id, commit=commit)
            for phase in waiting
            if phase.id in ready and _is_same(plan, phase, own, ready[phase.id])
        }
    return tuple(found[phase.id] for phase in plan.phases if phase.id in found)


def _is_same(plan: Plan, phase: Phase, other_plan: Plan, other: Phase) -> bool:
    """Return whether nobody has changed a phase, or what it comes after."""
    texts = plan.text[phase.start : phase.end], other_plan.text[other.start : other.end]
    names = [[found.heading for found in one.phases if found.id in phase.after] for one in (plan, other_plan)]
    return texts[0] == texts[1] and (phase.verify, phase.after) == (other.verify, other.after) and names[0] == names[1]

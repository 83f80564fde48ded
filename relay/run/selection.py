"""Which phase a run works on next, of those that the user asked for. Pure."""

from relay.base.errors import PlanError
from relay.base.hints import RUN, WHY, Command
from relay.base.values import dataclass
from relay.base.words import list_some, shorten
from relay.plan.model import Phase, Plan
from relay.store.plan_state import Situation, find_disorder
from relay.store.resume import ResumeCase, find_blocked_by

_SHOWN_CHARS = 60
_SHOWN_HEADINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user asked to have run."""

    phase_id: str = ""
    """One phase; empty for the next one in turn."""
    all: bool = True
    """Whether to go on after a phase is done."""
    unchecked: bool = False
    """Whether phases may be ticked that nothing checks: no verify command, or tests that the sandbox makes red."""

    def list_phases(self, plan: Plan) -> tuple[Phase, ...]:
        """Return the open phases that may be worked on."""
        if self.phase_id:
            return tuple(phase for phase in plan.phases if phase.id == self.phase_id and not phase.done)
        if self.all:
            return tuple(phase for phase in plan.phases if not phase.done)
        phase = plan.next_phase()
        return (phase,) if phase else ()


def choose_phase(situation: Situation, selection: Selection, plan_path: str) -> Phase | None:
    """Return the phase to work on; None when nothing that was asked for is left.

    Args:
        situation: Where the plan stands; a run can go on from there.
        plan_path: As errors name it.

    Raises:
        PlanError: The phase that was asked for does not exist, waits for others, or another one is open; or no phase
            can have its turn.
    """
    plan, point = situation.plan, situation.get_point()
    if not selection.phase_id:
        # What is left of a leg is settled first.
        is_stuck = not (point.phase_id or plan.done) and point.case is ResumeCase.NOTHING_OPEN
        if is_stuck and (error := find_disorder(plan, plan_path)):
            raise error
        return plan.find_phase(point.phase_id)
    phase = get_phase(plan, selection.phase_id)
    if phase.done:
        return None
    if waits := find_blocked_by(plan, phase):
        if error := find_disorder(plan, plan_path, phase):
            raise error
        raise PlanError(f"phase {phase.id} comes after {', '.join(waits)}, which is not done", hint=RUN)
    if situation.goes_on and point.phase_id != phase.id:
        words = f"phase {point.phase_id} is open and has uncommitted work"
        raise PlanError(words, hint=(Command(words=("run", "--phase", point.phase_id)), ", or ", WHY))
    return phase


def get_phase(plan: Plan, phase_id: str) -> Phase:
    """Return a phase of the plan.

    Raises:
        PlanError: There is none with this id.
    """
    phase = plan.find_phase(phase_id)
    if phase is None:
        known = ", ".join(phase.id for phase in plan.phases)
        said = describe_headings(plan, phase_id)
        hint = f"{said}; phases: {known}" if said else f"phases: {known}"
        raise PlanError(f"there is no phase {phase_id!r} in the plan", hint=hint)
    return phase


def describe_headings(plan: Plan, phase_id: str) -> str:
    """Say which phases the headings are that say an id, where relay counts them otherwise; empty where none does."""
    said = (
        f"the heading `{shorten(phase.heading, _SHOWN_CHARS)}` is phase {phase.id}"
        for phase in plan.list_saying(phase_id)
    )
    return list_some(list(said), _SHOWN_HEADINGS, joint="; ")


def describe_choice(plan: Plan, phase_id: str) -> str:
    """Say what was asked for, where a heading says that number too and is another phase; else empty."""
    phase, said = plan.find_phase(phase_id), describe_headings(plan, phase_id)
    return f"phase {phase_id} is `{shorten(phase.title, _SHOWN_CHARS)}`; {said}" if phase and said else ""

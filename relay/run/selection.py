"""Selects the next phase of those that the user requested. Pure."""

from relay.base.errors import PlanError
from relay.base.hints import RUN, WHY, Command
from relay.base.values import dataclass
from relay.base.words import list_some, shorten
from relay.plan.model import Phase, Plan
from relay.store.plan_state import PlanState, find_disorder
from relay.store.resume import ResumeCase, find_blocked_by

_SHOWN_CHARS = 60
_SHOWN_HEADINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The phases that the user requested."""

    phase_id: str = ""
    """The id of one phase; empty for the next one."""
    all: bool = True
    """Whether to go on after a phase is done."""
    unchecked: bool = False
    """Whether to tick phases that nothing checks: without a verify command, or with tests that the sandbox breaks."""

    def list_phases(self, plan: Plan) -> tuple[Phase, ...]:
        """Return the open phases of the request."""
        if self.phase_id:
            return tuple(phase for phase in plan.phases if phase.id == self.phase_id and not phase.done)
        if self.all:
            return tuple(phase for phase in plan.phases if not phase.done)
        phase = plan.next_phase()
        return (phase,) if phase else ()


def choose_phase(plan_state: PlanState, selection: Selection, plan_path: str) -> Phase | None:
    """Return the phase to work on; None if nothing of the request is left.

    Args:
        plan_state: The state of the plan; a run can go on from it.
        plan_path: The plan's path in error messages.

    Raises:
        PlanError: The requested phase does not exist, waits for others, or another phase is open; or no phase can
            begin.
    """
    plan, point = plan_state.plan, plan_state.get_point()
    if not selection.phase_id:
        # An open leg is settled first.
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
    if plan_state.goes_on and point.phase_id != phase.id:
        words = f"phase {point.phase_id} is open and has uncommitted work"
        raise PlanError(words, hint=(Command(words=("run", "--phase", point.phase_id)), ", or ", WHY))
    return phase


def get_phase(plan: Plan, phase_id: str) -> Phase:
    """Return a phase of the plan.

    Raises:
        PlanError: There is no phase with this id.
    """
    phase = plan.find_phase(phase_id)
    if phase is None:
        known = ", ".join(phase.id for phase in plan.phases)
        said = describe_headings(plan, phase_id)
        hint = f"{said}; phases: {known}" if said else f"phases: {known}"
        raise PlanError(f"there is no phase {phase_id!r} in the plan", hint=hint)
    return phase


def describe_headings(plan: Plan, phase_id: str) -> str:
    """Return which phases have headings that say `phase_id`, where relay counts differently; empty without one."""
    said = (
        f"the heading `{shorten(phase.heading, _SHOWN_CHARS)}` is phase {phase.id}"
        for phase in plan.list_saying(phase_id)
    )
    return list_some(list(said), _SHOWN_HEADINGS, joint="; ")


def describe_choice(plan: Plan, phase_id: str) -> str:
    """Return which phase was requested if another phase's heading says the same number; else empty."""
    phase, said = plan.find_phase(phase_id), describe_headings(plan, phase_id)
    return f"phase {phase_id} is `{shorten(phase.title, _SHOWN_CHARS)}`; {said}" if phase and said else ""

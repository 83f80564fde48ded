"""What keeps a run from going on, in the words of every command that meets it. Pure."""

from relay.base.errors import PlanError, RelayError, RepoError
from relay.base.hints import Command, TypedPath
from relay.plan.model import Phase, Plan, Violation
from relay.prompts.package_data import EXAMPLE, INSTEAD, is_example
from relay.store.situation import Situation


def find_obstacle(situation: Situation, plan_name: str) -> RelayError | None:
    """Return what has to be ended, undone or written before a run can go on; None where nothing has.

    Another relay at work is none: it is waited for.
    """
    if situation.obstacle:
        return RepoError(situation.obstacle)
    if is_example(situation.plan):
        return PlanError(EXAMPLE, path=plan_name, hint=INSTEAD)
    if (point := situation.point) is not None:
        stands = point.phase_id or situation.plan.done
        return None if stands else find_disorder(situation.plan, plan_name)
    if situation.edit.violations:
        return make_refusal(plan_name, situation.edit.violations)
    if (leg := situation.kept.foreign) is None:
        return None
    return RepoError(
        f"phase {leg.phase_id} of {leg.plan_path} is open and has uncommitted work",
        hint=("`", Command(words=("run",), plan_path=leg.plan_path), "` goes on with it"),
    )


def find_disorder(plan: Plan, plan_name: str, phase: Phase | None = None) -> PlanError | None:
    """Return why phases can never have their turn, as `relay check` says it; None where all can have it.

    Args:
        phase: The one that is asked about; None for the first that cannot.
    """
    from relay.plan.check import check_order

    found = next((one for one in check_order(plan) if phase is None or one.line == phase.line), None)
    return PlanError(found.message, path=plan_name, line=found.line) if found else None


def make_refusal(plan_name: str, violations: tuple[Violation, ...]) -> PlanError:
    """Return that the plan was edited in a way that relay does not commit."""
    places = (f"{plan_name}:{violation.line}" if violation.line else plan_name for violation in violations)
    words = "\n  ".join(f"{place}: {violation.message}" for place, violation in zip(places, violations, strict=True))
    return PlanError(
        f"{plan_name} was edited in a way that relay does not commit by itself:\n  {words}",
        hint=("undo that part, or, if you mean it, commit it yourself: git commit ", TypedPath(path=plan_name)),
    )

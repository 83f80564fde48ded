"""The plan that `relay init` puts into a repository: an example, and no plan of anybody's."""

from relay.hints import Command, Hint
from relay.plan.model import Plan
from relay.prompts.shipped import get_shipped

EXAMPLE = "this is the example that relay init put here: nothing of yours is in it"
INSTEAD: Hint = (Command(words=("plan", "what you want")), " writes your plan over it")


def is_example(plan: Plan) -> bool:
    """Say whether every item of a plan is one of the example's, and none is done: nobody has written one."""
    if plan.done_ids:
        return False
    shipped = get_shipped("templates/PLAN.md").read_text(encoding="utf-8")
    return all(f"- [ ] {item.text}\n" in shipped for item in plan.items)

"""Where templates and examples are: inside the installed package, or next to it in a checkout."""

from pathlib import Path

from relay.base.errors import RelayError
from relay.base.hints import Command, Hint
from relay.plan.model import Plan

_PACKAGE = Path(__file__).resolve().parent.parent
EXAMPLE = "this is still the example from relay init"
INSTEAD: Hint = (Command(words=("plan", "what you want")), " replaces it by your plan")


def get_shipped(name: str, *, package: Path = _PACKAGE) -> Path:
    """Return a shipped file or folder, such as ``templates`` or ``examples/PLAN.md``.

    Args:
        name: Relative path with forward slashes; never from outside relay.
        package: The package's own directory.

    Raises:
        RelayError: The installation is incomplete.
    """
    installed = package / "_shipped" / name
    if installed.exists():
        return installed
    # Beside an installed package, other distributions may have put folders of these names.
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).exists():
        return checkout / name
    raise RelayError(f"this installation of relay lacks {name}", hint="install relay again")


def is_example(plan: Plan) -> bool:
    """Return whether a plan is the shipped example: all items are the example's, and none is done."""
    if plan.done_ids:
        return False
    shipped = get_shipped("templates/PLAN.md").read_text(encoding="utf-8")
    return all(f"- [ ] {item.text}\n" in shipped for item in plan.items)

"""What the verify commands of a plan would prove, told before any money is spent. Pure."""

from collections.abc import Iterator, Mapping

from relay.base.words import shorten
from relay.gate.shell_line import check_command, proves_nothing
from relay.plan.model import Plan, Violation
from relay.plan.statements import read_validation_commands, read_verify_lines

_SHOWN_CHARS = 60


def check_gates(plan: Plan) -> Iterator[Violation]:
    """Yield what makes a gate prove less than it seems to, each command of the open phases once, in their order.

    What can show nothing is an error, and a run refuses it; what only weakens the gate is a warning.
    """
    lines = find_lines(plan)
    gates = (command for phase in plan.phases if not phase.done for command in phase.verify)
    for command in dict.fromkeys(gates):
        if words := check_command(command):
            message = f"the verify command `{shorten(command, _SHOWN_CHARS)}` {words}"
            yield Violation(line=lines.get(command, 1), message=message, warning=not proves_nothing(command))


def find_lines(plan: Plan) -> Mapping[str, int]:
    """Return where each command stands first; those of the front matter are left out."""
    found: dict[str, int] = {}
    for section in plan.outline.sections:
        for line in read_verify_lines(section):
            found |= {command: line.line for command in line.commands if command not in found}
        found |= {command: section.line for command in read_validation_commands(section) if command not in found}
    return found

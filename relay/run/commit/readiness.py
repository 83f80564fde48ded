"""Whether the gates of the phases that are to be run can show anything: asked before a session is paid for."""

from collections.abc import Sequence

from relay.config import Settings
from relay.config.network import CLOSED
from relay.errors import PlanError
from relay.gate.lint import find_lines
from relay.gate.missing_program import find_missing_program, may_be_made
from relay.gate.model import CommandCheck, GateResult
from relay.gate.shell_line import check_command, proves_nothing
from relay.hints import Command, Hint
from relay.plan.check import find_obscurity
from relay.plan.model import Phase, Plan
from relay.prompts.shipped import EXAMPLE, INSTEAD, is_example
from relay.sandbox.policy import Mechanism
from relay.setup.context import RunContext
from relay.words import list_some, shorten

_SHOWN_CHARS = 120
CHECK = Command(words=("check",))


def get_commands(settings: Settings, phase: Phase) -> tuple[str, ...]:
    """Return the gate of a phase: the settings' commands, then the document's, then its own.

    Raises:
        PlanError: One of them does more than a person sees who reads it; none is run then.
    """
    commands = tuple(dict.fromkeys((*settings.verify, *phase.verify)))
    for command in commands:
        if words := find_obscurity(command):
            raise PlanError(f"a verify command of phase {phase.id} {words}", hint=(CHECK, " names the line"))
    return commands


def require_gates(plan: Plan, settings: Settings, phases: Sequence[Phase], *, unchecked: bool) -> None:
    """Refuse to work on phases whose boxes would say nothing.

    Args:
        plan: The plan.
        settings: With the commands of every phase.
        phases: Those that are going to be worked on.
        unchecked: The user typed that a phase without a gate may be ticked.

    Raises:
        PlanError: The plan is the example, a phase has no gate, or a command can show nothing.
    """
    if is_example(plan):
        raise PlanError(EXAMPLE, hint=INSTEAD)
    lines = find_lines(plan)
    for phase in phases:
        for command in get_commands(settings, phase):
            if proves_nothing(command):
                words = f"the verify command `{_show(command)}` {check_command(command) or 'checks nothing'}"
                raise PlanError(
                    f"{words}; nothing was started, because no session could make it show anything",
                    line=lines.get(command, 0),
                    hint="write one that fails while the work is not done, such as `pytest -q`",
                )
    bare = [phase for phase in phases if not get_commands(settings, phase)]
    if bare and not unchecked:
        names = list_some([phase.id for phase in bare])
        raise PlanError(
            f"phase{'s' if bare[1:] else ''} {names} {'have' if bare[1:] else 'has'} no verify command, so nothing "
            "would check what is ticked",
            line=bare[0].line,
            hint=("put a line Verify: `command` below the heading (", CHECK, " proposes one), or type --unchecked"),
        )


def require_programs(ctx: RunContext, phase: Phase, baseline: GateResult) -> None:
    """Refuse to start a session whose gate needs a program that is not there, and that the phase does not make.

    With the network, or without a sandbox, a session may install it.

    Args:
        ctx: The collaborators.
        phase: The one that begins.
        baseline: Its gate, just now.

    Raises:
        PlanError: There is such a command.
    """
    if ctx.settings.network != CLOSED or ctx.workspace.sandbox.mechanism is Mechanism.OFF:
        return
    texts = [*(item.text for item in phase.open_items), *phase.open_paths]
    for check in baseline.commands:
        program = find_missing_program(check)
        if program and not may_be_made(program, texts):
            raise PlanError(
                f"phase {phase.id} was not begun: its gate can never be green, because `{_show(check.command)}` needs "
                f"`{program}`, which its commands do not find and no item of the phase makes",
                path=ctx.plan_path,
                line=phase.line,
                hint=_advise(check),
            )


def _advise(check: CommandCheck) -> Hint:
    return "; ".join(check.causes) or "install it, activate the environment that has it, or correct the Verify: line"


def _show(command: str) -> str:
    return shorten(" ".join(command.split()), _SHOWN_CHARS)

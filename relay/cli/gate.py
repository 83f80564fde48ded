"""`relay gate`: run a phase's verify commands in the sandbox, without a key."""

import sys
import time
from dataclasses import replace
from typing import Any

import click

from relay.base.errors import ExitCode, PlanError, RelayError, within
from relay.base.words import count, render_moment
from relay.cli.options import events_option, network_option, plan_option, sandbox_option
from relay.cli.screen import say
from relay.cli.sessions import make_request, take_open_tree
from relay.cli.views.last_run import say_lines, tell_failures, tell_gate
from relay.cli.views.shapes import make_view
from relay.gate.model import Outcome
from relay.gate.needs import KnownCommand, find_test_command
from relay.git.names import list_paths
from relay.git.notes import lock_worktree
from relay.plan.model import Phase
from relay.run.commit.hooks import find_uncommitted, try_gate, try_hooks
from relay.run.commit.readiness import get_commands, require_gates, settle_in
from relay.run.commit.step import make_sample
from relay.run.selection import get_phase
from relay.sandbox.process import prepare_process
from relay.session.values import SessionKind
from relay.setup.context import RunRequest
from relay.setup.ignored import find_unseen
from relay.setup.observers import make_last_gate
from relay.setup.place import Place, load_plan
from relay.setup.workspace import find_all_secrets, open_own_workspace
from relay.store.worktree_notes import LastGate, read_last_gate, save_last_gate

_SHOWN_LINES = 8
"""Of each command of a proposed gate that fails."""


@click.command("gate")
@click.argument("phase", required=False, help="Phase to check; default: the next open one.")
@click.option("--hooks", is_flag=True, help="Also run the commit hooks, on the staged files.")
@click.option("--last", is_flag=True, help="Run nothing; show the last result of a run's gate or of this command.")
@events_option
@plan_option
@network_option
@sandbox_option
def command(phase: str | None, *, hooks: bool, last: bool, as_json: bool, **options: Any) -> int:
    """Run the verify commands of PHASE as a run does: same sandbox, variables and limits.

    They run on the work of the phase if it is open, else on your files.

    If a command fails because of the sandbox, relay names what was blocked and the setting that allows it. If the phase
    has no verify command, relay tries the repository's own test command. Exit status: 0 green, 4 red.
    """
    request, place = make_request(SessionKind.RUN, options)
    if last and as_json:
        raise click.UsageError("--last prints no events; relay status --json has the last red gate")
    is_green = _show_last(request) if last else _run(request, place, phase, hooks=hooks, as_json=as_json)
    return ExitCode.DONE if is_green else ExitCode.STOPPED


def _show_last(request: RunRequest) -> bool:
    """Show the result of the last gate; return whether it was green.

    Raises:
        PlanError: No gate has run in this work tree.
    """
    gate = read_last_gate(request.repo)
    if gate is None:
        raise PlanError("no gate has run in this work tree", hint="relay gate runs one")
    kind = "baseline gate" if gate.baseline else "gate"
    of = f" of phase {gate.phase_id}" if gate.phase_id else ""
    verdict = "passed" if gate.passed else f"was red{f', {gate.expected}' if gate.expected else ''}"
    if gate.passed and gate.failed:
        verdict += f", but for what was red before the work too: {count(len(gate.failed), 'command')}"
    say(f"{kind}{of}, {render_moment(gate.at, now=time.time())}: {verdict}", style="bold")
    say_lines(tell_gate(gate))
    return gate.passed


def _run(request: RunRequest, place: Place, phase_id: str | None, *, hooks: bool, as_json: bool) -> bool:
    """Run the gate and, with `hooks`, the commit hooks; return whether all is green."""
    phase, commands = _choose_commands(request, place, phase_id, as_json=as_json)
    typed_in, request = request, take_open_tree(request, phase.id)
    prepare_process()
    with lock_worktree(request.repo), open_own_workspace(request) as workspace:
        seen = find_uncommitted(request)
        unseen = find_unseen(request.repo, typed_in.repo) if request is not typed_in else ()
        observe = make_view(json=True, stream=sys.stdout).observe if as_json else lambda _: None
        if not as_json:
            if request is not typed_in:
                say(f"phase {phase.id} is open in {request.repo.root}: there")
            say(f"gate of phase {phase.id}, {workspace.sandbox.mechanism}: {'; '.join(commands)}", style="bold")
        ended = [try_gate(request, workspace, phase.id, commands, observe)] if commands else []
        sample = make_sample(request.files, request.settings, phase, workspace.sandbox.mechanism)
        if hooks and (ran := try_hooks(request, workspace, sample, observe)):
            ended.append(ran)
        for event in ended:
            gate = make_last_gate(event, at=time.time())
            save_last_gate(typed_in.repo, gate, find_all_secrets(typed_in))
            if not as_json:
                say_lines(tell_gate(gate))
                say(event.summary.splitlines()[0], style="green" if event.passed else "red")
    apart = "the gate of a run would not see files that no commit holds and that sessions made or changed"
    for words, paths in () if as_json else (("the gate saw uncommitted files", seen), (apart, unseen)):
        if paths:
            say(f"{words}: {list_paths(paths)}")
    return all(gate.passed for gate in ended)


def try_proposal(found: KnownCommand, *, timeout_s: float) -> LastGate | None:
    """Try a project's own test command as a gate, and print what came of it; None if the gate cannot run here."""
    say(f"{found.source} names a test command: {found.command}; trying it in the sandbox …", exact=True)
    try:
        request, _ = make_request(SessionKind.RUN, {"plan": None}, needs_plan=False)
        settings = replace(request.settings, gate_timeout_s=min(timeout_s, request.settings.gate_timeout_s))
        prepare_process()
        with open_own_workspace(request) as workspace:
            event = try_gate(replace(request, settings=settings), workspace, "", (found.command,), lambda _: None)
    except RelayError as error:
        say(f"not tried: {error}", style="yellow")
        return None
    gate = make_last_gate(event, at=time.time())
    if gate.passed:
        say("it passes", style="green")
    elif not any(check["status"] == Outcome.TIMED_OUT for check in gate.failed):
        say_lines(tell_failures(gate, indent="  ", shown=_SHOWN_LINES))
        say("it does not pass yet", style="yellow")
    else:
        say(f"it takes longer than {settings.gate_timeout_s:g} s, which says nothing against it", style="yellow")
    return gate


def _choose_commands(
    request: RunRequest, place: Place, phase_id: str | None, *, as_json: bool
) -> "tuple[Phase, tuple[str, ...]]":
    """Return a phase and its verify commands or, if it has none, the repository's own test command.

    Raises:
        PlanError: There is no such phase, or no command to run.
    """
    with within(place.plan_name):
        plan = settle_in(request.repo, request.plan_path, load_plan(place), request.repo.head())
        phase = get_phase(plan, phase_id) if phase_id else plan.next_phase() or plan.phases[-1]
        require_gates(plan, request.settings, (phase,), unchecked=True)
        commands = get_commands(request.settings, phase)
    if commands:
        return phase, commands
    found = find_test_command(place.root, request.plan_path)
    if found is None:
        words = f"phase {phase.id} has no verify command, and relay finds no test command in this repository"
        raise PlanError(
            words, path=place.plan_name, line=phase.line, hint="add a line Verify: `command` below its heading"
        )
    if not as_json:
        words = f"phase {phase.id} has no verify command; trying `{found.command}` from {found.source}"
        say(f"{words}. A line Verify: `{found.command}` below the heading makes it the gate")
    return phase, (found.command,)

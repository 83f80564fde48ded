"""A set of tools: what the model sees, and one function that runs a call.

Every call gets exactly one result. What a tool refuses and what the system refuses (no such file, disk full) are
results; anything else that is raised is a bug of relay.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from relay.base.values import dataclass
from relay.sandbox.policy import Level
from relay.session.values import ToolCall, ToolResult, ToolSpec
from relay.tools import claims, specs
from relay.tools.background import Background
from relay.tools.edit import run_edit, run_write
from relay.tools.listing import run_list
from relay.tools.notes import Keep, LegNotes, LookFirst
from relay.tools.output import ToolAnswer, finish
from relay.tools.read import run_read
from relay.tools.search import run_search
from relay.tools.shell import DEFAULT_TIMEOUT_S, run_bash
from relay.tools.validate import check_input
from relay.tools.workspace import RefusedError, Workspace

_Handler = Callable[[ToolCall], ToolAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The tools of one session."""

    specs: tuple[ToolSpec, ...]
    """In the fixed order in which the model gets them."""
    run: Callable[[ToolCall], ToolResult]
    """Validates the input, runs the tool and caps its output. Never raises for what a model or a command does."""
    stop: Callable[[], None]
    """Ends what runs in the background; call it whenever the session's turn ends."""
    is_busy: Callable[[], bool]
    """Whether something runs in the background, and files may change that no call has changed."""


def build_runner_tools(
    workspace: Workspace, notes: LegNotes, keep: Keep = lambda _: False, look: LookFirst = lambda: lambda: None
) -> Toolbox:
    """Return the tools of a session that works on a phase; what they learn goes into `notes`."""
    background = Background(workspace)
    workspace.sandbox.expect_command(limits=workspace.limits)
    handlers = {
        **_build_lookups(workspace, notes),
        "bash": lambda call: run_bash(workspace, background, call.input, call.id, look),
        "edit": _take_input(partial(run_edit, workspace, notes, keep)),
        "write": _take_input(partial(run_write, workspace, notes, keep)),
        "tick": _take_input(partial(claims.run_tick, notes)),
        "record": _take_input(partial(claims.run_record, workspace, notes)),
        "amend": _take_input(partial(claims.run_amend, notes)),
        "hand_off": _take_input(partial(claims.run_hand_off, notes)),
        "defer": _take_input(partial(claims.run_defer, notes)),
        "block": _take_input(partial(claims.run_block, notes)),
    }
    known = _say_timeouts(workspace, specs.RUNNER_SPECS)
    run = partial(_run, workspace, known, handlers, notes)
    return Toolbox(specs=known, run=run, stop=background.stop, is_busy=lambda: background.is_running)


def build_reader_tools(
    workspace: Workspace, *own: tuple[ToolSpec, Callable[[Mapping[str, Any]], ToolAnswer]]
) -> Toolbox:
    """Return the tools of a session that only looks and hands something in.

    Args:
        own: What it asks and hands in by, each with what takes its input, whose form has been checked; that says what
            is wrong with it, answers, or ends the session.

    Raises:
        ValueError: The sandbox of the workspace lets commands write.
    """
    if workspace.sandbox.level is not Level.READ_ONLY:
        raise ValueError("a session that only looks needs a sandbox in which commands only read")
    handlers = {
        **_build_lookups(workspace, None),
        "bash": lambda call: run_bash(workspace, None, call.input, call.id),
        **{spec.name: _take_input(take) for spec, take in own},
    }
    known = _say_timeouts(workspace, (*specs.READER_SPECS, *(spec for spec, _ in own)))
    run = partial(_run, workspace, known, handlers, None)
    return Toolbox(specs=known, run=run, stop=lambda: None, is_busy=lambda: False)


def _say_timeouts(workspace: Workspace, known: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    most_s = workspace.limits.timeout_s
    return specs.say_timeouts(known, default_s=min(DEFAULT_TIMEOUT_S, most_s), most_s=most_s)


def _build_lookups(workspace: Workspace, notes: LegNotes | None) -> dict[str, _Handler]:
    return {
        "read": _take_input(partial(run_read, workspace, notes)),
        "search": _take_input(partial(run_search, workspace)),
        "list": _take_input(partial(run_list, workspace)),
    }


def _take_input(handle: Callable[[Mapping[str, Any]], ToolAnswer]) -> _Handler:
    return lambda call: handle(call.input)


def _run(
    workspace: Workspace,
    known: tuple[ToolSpec, ...],
    handlers: Mapping[str, _Handler],
    notes: LegNotes | None,
    call: ToolCall,
) -> ToolResult:
    call = replace(call, name=_find_name(known, call.name))
    result = finish(workspace, _answer(known, handlers, call), call.id)
    if notes is not None:
        notes.counts[call.name] += 1
        notes.last_errors.pop(call.name, None)
        if result.is_error:
            notes.last_errors[call.name] = result.text
    return result


def _find_name(known: tuple[ToolSpec, ...], name: str) -> str:
    """Return the name of the tool that is meant: some models were taught `Bash` and `Read`."""
    names = [spec.name for spec in known]
    return name if name in names else next((own for own in names if own.lower() == name.lower()), name)


def _answer(known: tuple[ToolSpec, ...], handlers: Mapping[str, _Handler], call: ToolCall) -> ToolAnswer:
    spec = next((spec for spec in known if spec.name == call.name), None)
    if spec is None:
        names = ", ".join(spec.name for spec in known)
        return ToolAnswer(text=f"There is no tool {call.name!r}. Tools: {names}.", is_error=True)
    if fault := check_input(spec, call.input):
        return ToolAnswer(text=fault, is_error=True)
    try:
        return handlers[call.name](call)
    except RefusedError as refusal:
        return ToolAnswer(text=str(refusal), is_error=True)
    except OSError as error:
        return ToolAnswer(text=f"{call.name} failed: {error.strerror or error}.", is_error=True)

"""A set of tools: their specs for the model, and one function that checks, runs and answers a call.

Every call gets exactly one result. What a tool refuses and what the system refuses (no such file, disk full) are
results; anything else that is raised is a bug of relay.

A call's input is checked against the part of JSON Schema that relay's own specs use: objects with string, integer,
boolean and list properties, ``minimum``, ``enum``, ``required`` and no others. A library for the whole standard would
cost start-up time.

A text that relay itself writes down (ticks, records, amendments, batons, plans) ends in a commit message, the plan, the
ledger or the next session's first message. If it holds a secret the call is refused, so that the session can say it
differently.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from relay.base.redaction import find_secrets
from relay.base.values import dataclass
from relay.sandbox.policy import Level
from relay.session.values import ToolCall, ToolResult, ToolSpec
from relay.tools import claims, specs
from relay.tools.edit import run_edit, run_write
from relay.tools.notes import Keep, LegNotes, LookFirst
from relay.tools.output import ToolAnswer, finish
from relay.tools.read import run_read
from relay.tools.search import run_list, run_search
from relay.tools.shell import DEFAULT_TIMEOUT_S, Background, run_bash
from relay.tools.workspace import RefusedError, Workspace

_WRITTEN_DOWN = frozenset({"tick", "record", "amend", "hand_off", "defer", "block", "ask", "submit_plan"})


def refuse_secrets(run: Callable[[ToolCall], ToolResult], values: Sequence[str]) -> Callable[[ToolCall], ToolResult]:
    """Return `run` with calls refused whose text looks like a secret; `values` are those of the environment."""

    def run_discreetly(call: ToolCall) -> ToolResult:
        if call.name in _WRITTEN_DOWN:
            found = find_secrets("\n".join(_iter_texts(call.input)), environ_values=values)
            if found:
                words = f"Not kept: what you wrote holds what looks like {found[0].kind}. Say it without the secret."
                return ToolResult(text=words, is_error=True)
        return run(call)

    return run_discreetly


def _iter_texts(value: Any) -> Iterator[str]:
    """Yield every text in decoded JSON, however it is nested."""
    pending = [value]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case dict() as table:
                pending += [*table, *table.values()]
            case list() | tuple() as items:
                pending += items
            case _:
                continue


_ENTRIES = {"string": str, "object": dict}


def check_input(spec: ToolSpec, given: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the input and what is allowed; None when nothing is."""
    faults = _check_object(spec.input_schema, given)
    if not faults:
        return None
    return f"{spec.name}: {'; '.join(faults)}. Nothing was done. Allowed: {_list_allowed(spec.input_schema)}."


def _list_allowed(schema: Mapping[str, Any]) -> str:
    required, properties = schema["required"], schema["properties"]
    return ", ".join(f"{name}{'' if name in required else '?'}: {_words(properties[name])}" for name in properties)


def _check_object(schema: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    properties: Mapping[str, Any] = schema["properties"]
    faults = [f'"{name}" is missing' for name in schema["required"] if name not in given]
    faults += [f'"{name}" is not known' for name in given if name not in properties]
    return faults + [
        f'"{name}" {fault}'
        for name, value in given.items()
        if name in properties and (fault := _check_value(properties[name], value))
    ]


def _check_value(schema: Mapping[str, Any], value: Any) -> str | None:
    match schema["type"]:
        case "string" if isinstance(value, str):
            if value not in schema.get("enum", (value,)):
                return f"must be one of {', '.join(schema['enum'])}"
            return None if _is_text(value) else "holds half of a surrogate pair"
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            least = schema.get("minimum")
            return f"must be at least {least}" if least is not None and value < least else None
        case "boolean" if isinstance(value, bool):
            return None
        case "array" if isinstance(value, list) and all(
            isinstance(e, _ENTRIES[schema["items"]["type"]]) for e in value
        ):
            return next((fault for entry in value if (fault := _check_value(schema["items"], entry))), None)
        case "object" if isinstance(value, dict):
            return "; ".join(_check_object(schema, value)) or None
        case _:
            return f"must be {_words(schema)}"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _words(schema: Mapping[str, Any]) -> str:
    kinds = {"string": "a string", "integer": "an integer", "boolean": "true or false"}
    match schema["type"]:
        case "array" if schema["items"]["type"] == "object":
            return f"a list of {{{_list_allowed(schema['items'])}}}"
        case "array":
            return "a list of strings"
        case "object":
            return f"{{{_list_allowed(schema)}}}"
        case kind:
            return kinds[kind]


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

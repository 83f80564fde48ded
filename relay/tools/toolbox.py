"""The tools of a session: their specs for the model, and the function that checks, runs and answers a call.

The model pays for every byte of the specs on every request (`tests/test_overhead.py`), and a change of one breaks the
prompt cache. There is no tool to search or list: `bash` finds as well. Nothing says that a schema is closed, though
each is.

Every call gets exactly one result. A refusal by a tool or by the system (no such file, disk full) is a result; any
other exception is a bug of relay.

relay checks a call's input against the part of JSON Schema that its specs use: objects with string, integer, boolean
and list properties, ``enum``, ``required`` and no others; no integer is negative. A library for the whole standard
would cost start-up time.

relay writes some texts of the model (ticks, records, amendments, notes, plans) into a commit message, the plan, the
ledger or the next session's first message. A call with a secret in such a text is refused, so that the session can word
it differently.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from relay.base.redaction import find_secrets
from relay.base.values import dataclass
from relay.ledger.model import Kind
from relay.sandbox.policy import Level
from relay.session.usage import MAX_READ_BYTES
from relay.session.values import ToolCall, ToolResult, ToolSpec
from relay.tools import claims
from relay.tools.claims import AttemptNotes
from relay.tools.edit import run_edit, run_write
from relay.tools.read import MAX_READ_LINES, run_read
from relay.tools.shell import DEFAULT_TIMEOUT_S, run_bash
from relay.tools.workspace import RefusedError, Workspace, fit_output

_TEXT: dict[str, Any] = {"type": "string"}
_LIST: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_NUMBER: dict[str, Any] = {"type": "integer"}


def _spec(name: str, description: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> ToolSpec:
    return ToolSpec(name=name, description=description, input_schema=_object(required, optional))


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required)}


def _text(description: str) -> dict[str, Any]:
    return {**_TEXT, "description": description}


READ = _spec(
    "read",
    f"Show a picture, or {MAX_READ_LINES:,} lines or {MAX_READ_BYTES // 1000} KB of a text from line offset on. "
    "Paths are relative to the repository root.",
    {"path": _TEXT},
    {"offset": _NUMBER, "limit": _NUMBER},
)
EDIT = _spec(
    "edit",
    "Replace old, which must occur exactly once in the file, whitespace included.",
    {"path": _TEXT, "old": _TEXT, "new": _TEXT},
)
WRITE = _spec("write", "Write a whole file, and make its folders.", {"path": _TEXT, "content": _TEXT})
BASH = _spec(
    "bash",
    "Run a command in a fresh shell, without input; what it leaves running is killed. Search with git grep.",
    {"command": _TEXT},
    {"timeout_s": _NUMBER},
)
TICK = _spec(
    "tick",
    "Claim that an item is really done, not skipped or half done. The last one has commit and ends your work.",
    {"item": _TEXT, "evidence": _text("what you ran and saw")},
    {"commit": _text("subject, imperative, at most 72 characters")},
)
RECORD = _spec(
    "record",
    "Keep a decision or finding. The last four are claim ids; confirms: stale, true with these sources.",
    {
        "claim": _TEXT,
        "because": _TEXT,
        "sources": {**_LIST, "description": "path or path:10-20"},
    },
    {
        "kind": {**_TEXT, "enum": [str(kind) for kind in Kind]},
        "rests_on": _TEXT,
        "replaces": _TEXT,
        "contradicts": _TEXT,
        "confirms": _TEXT,
    },
)
RECORD_TURNS = _spec(
    "record",
    "Keep a decision, constraint or dead end of the session for the plan's sessions.",
    {"claim": _TEXT, "because": _TEXT, "turns": {"type": "array", "items": {"type": "string"}}},
    {
        "sources": {**_LIST, "description": "path or path:10-20, where it stands in the repository"},
        "kind": {**_TEXT, "enum": [str(kind) for kind in Kind]},
    },
)
AMEND = _spec(
    "amend",
    "Add what the plan forgot to an open phase: '- [ ] text — path' is an item, any other line a note.",
    {"phase": _TEXT, "change": _TEXT, "why": _TEXT},
)
HAND_OFF = _spec(
    "hand_off",
    "End this session; a fresh one goes on with the phase.",
    {"next_step": _TEXT, "learned": _LIST, "dead_ends": _LIST},
)
BLOCK = _spec(
    "block",
    "End the run: an item cannot be done as written, or only the user can go on.",
    {"reason": _text("what is needed, what you tried")},
)
DEFER = _spec(
    "defer",
    "Leave the user a question that need not stop you; go on as you assume.",
    {"question": _TEXT, "assumed": _TEXT},
)
BASH_READ_ONLY = _spec(
    "bash",
    "Run a command in a fresh shell, without input; it can write nothing. Search with git grep.",
    {"command": _TEXT},
    {"timeout_s": _NUMBER},
)
_QUESTION = _object({"question": _TEXT, "options": _LIST, "default": _text("one of options")})
ASK = _spec(
    "ask",
    "Ask the user 1 to 4 things, each with 2 to 4 options; where nobody answers, the default holds.",
    {"questions": {"type": "array", "items": _QUESTION}},
)
SUBMIT_PLAN = _spec(
    "submit_plan",
    "Hand in the whole plan; you are told what is wrong with it.",
    {"markdown": _TEXT},
)
EXPLORE = _spec(
    "explore",
    "Have a fresh session read many files for a question; claims with their places come back, and stay in the ledger.",
    {"question": _TEXT},
    {"paths": {**_LIST, "description": "where to begin"}},
)

_FINDING = _object({
    "file": _TEXT,
    "line": _NUMBER,
    "summary": _text("one sentence"),
    "failure_scenario": _text("what somebody does, and what goes wrong then"),
    "category": {**_TEXT, "enum": ["correctness", "security", "tests", "missing", "other"]},
    "severity": {**_TEXT, "enum": ["important", "nit"]},
})  # fmt: skip
_VERDICT = _object({"number": _NUMBER, "confirmed": {"type": "boolean"}, "reason": _TEXT})
REPORT_FINDINGS = _spec(
    "report_findings",
    "Say what is wrong with the change; ends the session.",
    {"findings": {"type": "array", "items": _FINDING}},
)
_CLAIM = _object({"claim": _TEXT, "places": {**_LIST, "description": "path or path:10-20"}})
ANSWER = _spec(
    "answer", "Hand in what you have found out; ends the session.", {"claims": {"type": "array", "items": _CLAIM}}
)
JUDGE_FINDINGS = _spec(
    "judge_findings",
    "Say which faults you could confirm; ends the session.",
    {"verdicts": {"type": "array", "items": _VERDICT}},
)

RUNNER_SPECS = (READ, EDIT, WRITE, BASH, TICK, RECORD, AMEND, HAND_OFF, DEFER, BLOCK)
READER_SPECS = (READ, BASH_READ_ONLY)
PLANNER_SPECS = (*READER_SPECS, ASK, SUBMIT_PLAN)

_WRITTEN_DOWN = frozenset(
    {"tick", "record", "amend", "hand_off", "defer", "block", "ask", "submit_plan", "explore", "answer"}
)


def refuse_secrets(run: Callable[[ToolCall], ToolResult], values: Sequence[str]) -> Callable[[ToolCall], ToolResult]:
    """Return `run` with a check that refuses calls with a secret; `values` are secret values of the environment."""

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


_SURROGATE = re.compile("[\ud800-\udfff]")
_ENTRIES = {"string": str, "object": dict}


def check_input(spec: ToolSpec, given: Mapping[str, Any]) -> str | None:
    """Return the faults of an input and the allowed form; None if there are none."""
    faults = find_faults(spec.input_schema, given)
    if not faults:
        return None
    return f"{spec.name}: {'; '.join(faults)}. Nothing was done. Allowed: {list_allowed(spec.input_schema)}."


def list_allowed(schema: Mapping[str, Any]) -> str:
    """Return the keys of an input with their types; a ``?`` marks those that may be left out."""
    required, properties = schema["required"], schema["properties"]
    return ", ".join(f"{name}{'' if name in required else '?'}: {_words(properties[name])}" for name in properties)


def find_faults(schema: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an input."""
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
            return "holds half of a surrogate pair" if _SURROGATE.search(value) else None
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            return "must not be negative" if value < 0 else None
        case "boolean" if isinstance(value, bool):
            return None
        case "array" if isinstance(value, list) and all(
            isinstance(e, _ENTRIES[schema["items"]["type"]]) for e in value
        ):
            return next((fault for entry in value if (fault := _check_value(schema["items"], entry))), None)
        case "object" if isinstance(value, dict):
            return "; ".join(find_faults(schema, value)) or None
        case _:
            return f"must be {_words(schema)}"


def _words(schema: Mapping[str, Any]) -> str:
    kinds = {"string": "a string", "integer": "an integer", "boolean": "true or false"}
    match schema["type"]:
        case "array" if schema["items"]["type"] == "object":
            return f"a list of {{{list_allowed(schema['items'])}}}"
        case "array":
            return "a list of strings"
        case "object":
            return f"{{{list_allowed(schema)}}}"
        case kind:
            return kinds[kind]


_Handler = Callable[[Mapping[str, Any]], ToolResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The tools of one session."""

    specs: tuple[ToolSpec, ...]
    """The specs in the fixed order in which the model gets them."""
    run: Callable[[ToolCall], ToolResult]
    """Checks the input, runs the tool and limits its output. A model or a command never causes an exception."""
    stop: Callable[[], None] = lambda: None
    """Ends the user's tool servers; call it whenever the session's turn ends."""
    is_busy: Callable[[], bool] = lambda: False
    """Whether such a server runs, so that files may change between calls."""


OwnTool = tuple[ToolSpec, _Handler]
"""A tool that only some sessions have, and a function that takes a checked input and answers or ends the session."""


def build_runner_tools(workspace: Workspace, notes: AttemptNotes, *own: OwnTool) -> Toolbox:
    """Return the tools of a session that works on a phase; they fill `notes`."""
    handlers: dict[str, _Handler] = {
        "read": partial(run_read, workspace, notes),
        "bash": partial(run_bash, workspace),
        "edit": partial(run_edit, workspace, notes),
        "write": partial(run_write, workspace, notes),
        "tick": partial(claims.run_tick, notes),
        "record": partial(claims.run_record, workspace, notes),
        "amend": partial(claims.run_amend, notes),
        "hand_off": partial(claims.run_hand_off, notes),
        "defer": partial(claims.run_defer, notes),
        "block": partial(claims.run_block, notes),
        **{spec.name: take for spec, take in own},
    }
    return _build(workspace, (*RUNNER_SPECS, *(spec for spec, _ in own)), handlers, notes)


def build_reader_tools(workspace: Workspace, *own: OwnTool) -> Toolbox:
    """Return the tools of a session that only reads and hands in a result.

    Raises:
        ValueError: The sandbox of the workspace lets commands write.
    """
    if workspace.sandbox.level is not Level.READ_ONLY:
        raise ValueError("a session that only looks needs a sandbox in which commands only read")
    handlers: dict[str, _Handler] = {
        "read": partial(run_read, workspace, None),
        "bash": partial(run_bash, workspace),
        **{spec.name: take for spec, take in own},
    }
    return _build(workspace, (*READER_SPECS, *(spec for spec, _ in own)), handlers, None)


def _build(
    workspace: Workspace, specs: Iterable[ToolSpec], handlers: Mapping[str, _Handler], notes: AttemptNotes | None
) -> Toolbox:
    """Return a toolbox whose `bash` says the default and the largest time limit of a command."""
    most_s = workspace.limits.timeout_s
    limits = f"default {DEFAULT_TIMEOUT_S}, most" if most_s > DEFAULT_TIMEOUT_S else "default and most"
    timeout = {**_NUMBER, "description": f"{limits} {most_s:.0f}"}
    known = tuple(
        replace(spec, input_schema=_object({"command": _TEXT}, {"timeout_s": timeout})) if spec.name == "bash" else spec
        for spec in specs
    )
    by_name = {spec.name.lower(): spec for spec in known}  # some models were taught `Bash` and `Read`

    def answer(spec: ToolSpec | None, call: ToolCall) -> ToolResult:
        if spec is None:
            names = ", ".join(spec.name for spec in known)
            return ToolResult(text=f"There is no tool {call.name!r}. Tools: {names}.", is_error=True)
        if fault := check_input(spec, call.input):
            return ToolResult(text=fault, is_error=True)
        try:
            return handlers[spec.name](call.input)
        except RefusedError as refusal:
            return ToolResult(text=str(refusal), is_error=True)
        except OSError as error:
            return ToolResult(text=f"{spec.name} failed: {error.strerror or error}.", is_error=True)

    def run(call: ToolCall) -> ToolResult:
        spec = by_name.get(call.name.lower())
        name, result = spec.name if spec else call.name, fit_output(workspace, answer(spec, call))
        if notes is not None:
            notes.counts[name] += 1
            notes.last_errors.pop(name, None)
            if result.is_error:
                notes.last_errors[name] = result.text
        return result

    return Toolbox(specs=known, run=run)

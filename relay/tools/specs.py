"""The tools as the model sees them, in one fixed order.

Every byte here is paid for on every request (and breaks the prompt cache when it changes): all twelve stay under
1,250 tokens, which `tests/tools/test_specs.py` measures.
"""

from dataclasses import replace
from typing import Any

from relay.ledger.model import Kind
from relay.session.tokens import MAX_READ_BYTES
from relay.session.values import ToolSpec

MAX_READ_LINES = 2_000
_TEXT: dict[str, Any] = {"type": "string"}
_LIST: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}


def _spec(name: str, description: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> ToolSpec:
    return ToolSpec(name=name, description=description, input_schema=_object(required, optional))


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def say_timeouts(specs: tuple[ToolSpec, ...], *, default_s: float, most_s: float) -> tuple[ToolSpec, ...]:
    """Return the tools with the times that a command gets; asking for more than the most is in vain."""
    words = f"default {default_s:.0f}, most {most_s:.0f}" if default_s < most_s else f"default and most {most_s:.0f}"
    return tuple(_describe_timeout(spec, words) if spec.name == "bash" else spec for spec in specs)


def _describe_timeout(spec: ToolSpec, words: str) -> ToolSpec:
    fields = {**spec.input_schema["properties"], "timeout_s": {**_COUNT, "description": words}}
    return replace(spec, input_schema={**spec.input_schema, "properties": fields})


def _text(description: str) -> dict[str, Any]:
    return {**_TEXT, "description": description}


READ = _spec(
    "read",
    f"Read a text file, {MAX_READ_LINES:,} lines or {MAX_READ_BYTES // 1000} KB a call; no line numbers. "
    "Paths are relative to the repository root.",
    {"path": _TEXT},
    {"offset": {**_COUNT, "description": "first line"}, "limit": {**_COUNT, "description": "lines"}},
)
SEARCH = _spec(
    "search",
    "Find lines that match a regular expression (PCRE), newest files first. "
    "Files ignored by git are left out unless path names them.",
    {"pattern": _TEXT},
    {"path": _text("file or directory"), "glob": _text("such as *.py or src/**/*.ts")},
)
LIST = _spec(
    "list", "List a directory, or all files below it that match glob; newest first.", {}, {"path": _TEXT, "glob": _TEXT}
)
EDIT = _spec(
    "edit",
    "Replace old by new in a file. old must occur exactly once, whitespace included; take in lines around it if not.",
    {"path": _TEXT, "old": _TEXT, "new": _TEXT},
)
WRITE = _spec(
    "write",
    "Create a file, or replace all of it; parent directories are made. Use edit for changes.",
    {"path": _TEXT, "content": _TEXT},
)
BASH = _spec(
    "bash",
    "Run a command in bash at the repository root, in a sandbox. Each call is a fresh shell without input; "
    "what it leaves running is killed.",
    {"command": _TEXT},
    {
        "timeout_s": _COUNT,
        "background": {"type": "boolean", "description": "return at once; it runs until your turn ends"},
    },
)
TICK = _spec(
    "tick",
    "Claim that an item of your phase is finished. relay runs its checks before the box is ticked.",
    {"item": _text("its id"), "evidence": _text("what you ran and saw")},
)
RECORD = _spec(
    "record",
    "Keep a finding or decision that later sessions need.",
    {
        "claim": _TEXT,
        "because": _TEXT,
        "sources": {**_LIST, "description": "path, path:10-20 or path.py::Class.method; may be empty"},
    },
    {
        "kind": {**_TEXT, "enum": [str(kind) for kind in Kind]},
        "replaces": {**_LIST, "description": "ids of claims that hold no longer"},
    },
)
AMEND = _spec(
    "amend",
    "Add to an open phase of the plan: lines such as '- [ ] text — path' become items, anything else a note.",
    {"phase": _text("its id"), "change": _TEXT, "why": _TEXT},
)
HAND_OFF = _spec(
    "hand_off",
    "End this session; a fresh one goes on with the phase, knowing only the plan, the ledger and what you say here.",
    {"next_step": _TEXT, "learned": _LIST, "dead_ends": _LIST},
)
BLOCK = _spec(
    "block", "End the run because only the user can go on: say what is needed and what you tried.", {"reason": _TEXT}
)
DEFER = _spec(
    "defer",
    "Leave the user a question and go on with what you assume; both go into the plan's notes.",
    {"question": _TEXT, "assumed": _TEXT},
)
BASH_READ_ONLY = _spec(
    "bash",
    "Run a command in bash at the repository root, in a sandbox where nothing can be written. "
    "Each call is a fresh shell without input.",
    {"command": _TEXT},
    {"timeout_s": _COUNT},
)
_QUESTION = _object({"question": _TEXT, "options": _LIST, "default": _text("one of options")})
ASK = _spec(
    "ask",
    "Ask the user 1 to 4 things, each with 2 to 4 options; where nobody answers, the default holds.",
    {"questions": {"type": "array", "items": _QUESTION}},
)
SUBMIT_PLAN = _spec(
    "submit_plan",
    "Hand in the plan. If something is wrong with it you are told; correct it and hand it in again.",
    {"markdown": _TEXT},
)

_FINDING = _object({
    "file": _TEXT,
    "line": {"type": "integer", "minimum": 0},
    "summary": _text("one sentence"),
    "failure_scenario": _text("what somebody does, and what goes wrong then"),
    "category": {**_TEXT, "enum": ["correctness", "security", "tests", "missing", "other"]},
    "severity": {**_TEXT, "enum": ["important", "nit"]},
})  # fmt: skip
_VERDICT = _object({"number": _COUNT, "confirmed": {"type": "boolean"}, "reason": _TEXT})
REPORT_FINDINGS = _spec(
    "report_findings",
    "Say what is wrong with the change; ends the session.",
    {"findings": {"type": "array", "items": _FINDING}},
)
JUDGE_FINDINGS = _spec(
    "judge_findings",
    "Say which faults you could confirm; ends the session.",
    {"verdicts": {"type": "array", "items": _VERDICT}},
)

RUNNER_SPECS = (READ, SEARCH, LIST, EDIT, WRITE, BASH, TICK, RECORD, AMEND, HAND_OFF, DEFER, BLOCK)
READER_SPECS = (READ, SEARCH, LIST, BASH_READ_ONLY)
PLANNER_SPECS = (*READER_SPECS, ASK, SUBMIT_PLAN)

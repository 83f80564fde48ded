"""The tools as the model sees them, in one fixed order.

Every byte here is paid for on every request (and breaks the prompt cache when it changes): all eleven stay under
1,250 tokens, which `tests/tools/test_specs.py` measures.
"""

from typing import Any

from relay.session.values import ToolSpec

_TEXT: dict[str, Any] = {"type": "string"}
_LIST: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}


def _spec(name: str, description: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, input_schema=schema)


def _text(description: str) -> dict[str, Any]:
    return {**_TEXT, "description": description}


READ = _spec(
    "read",
    "Read a text file. Paths are relative to the repository root.",
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
        "timeout_s": {**_COUNT, "description": "default 120"},
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
    {"claim": _TEXT, "because": _TEXT, "sources": {**_LIST, "description": "path or path:10-20"}},
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
    "block",
    "End the run because only the user can go on: say what is needed and what you tried.",
    {"reason": _TEXT},
)
BASH_READ_ONLY = _spec(
    "bash",
    "Run a command in bash at the repository root, in a sandbox where nothing can be written. "
    "Each call is a fresh shell without input.",
    {"command": _TEXT},
    {"timeout_s": {**_COUNT, "description": "default 120"}},
)
SUBMIT_PLAN = _spec(
    "submit_plan",
    "Hand in the whole PLAN.md. If something is wrong with it you are told; correct it and hand it in again.",
    {"markdown": _TEXT},
)

RUNNER_SPECS = (READ, SEARCH, LIST, EDIT, WRITE, BASH, TICK, RECORD, AMEND, HAND_OFF, BLOCK)
PLANNER_SPECS = (READ, SEARCH, LIST, BASH_READ_ONLY, SUBMIT_PLAN)

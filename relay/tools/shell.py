"""`bash`: one command in the sandbox, with its exit code first and its output made printable."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relay.sandbox.process import CommandResult
from relay.sandbox.text import render_output
from relay.tools.background import Background
from relay.tools.output import ToolAnswer, reserve_output
from relay.tools.workspace import RefusedError, Workspace

DEFAULT_TIMEOUT_S = 120
"""Source: the bash tools of Claude Code and of the SDK's agent toolset."""

_WORD = re.compile(r"[\w./@+-]{3,200}")
_WANTS_VARIABLE = re.compile(
    r"\benviron\b|KeyError: '[A-Z]|process\.env|\b[A-Z]+_[A-Z_]+\b.{0,20}(?:not set|missing|required|undefined)"
)
_USUAL = ".env"
_LOOKED_AT = 20_000
"""Characters of an output."""
MAX_COMMAND_BYTES = 100_000
"""Linux takes 128 KiB in one argument."""


def run_bash(workspace: Workspace, background: Background | None, given: Mapping[str, Any], call_id: str) -> ToolAnswer:
    """Run a command to its end or its time limit, or start it in the background; what it changed is not known here."""
    command: str = given["command"]
    if "\0" in command or not command.strip() or len(command.encode()) > MAX_COMMAND_BYTES:
        raise RefusedError(f"command must be text of 1 to {MAX_COMMAND_BYTES:,} bytes; write longer scripts to a file.")
    timeout_s = min(float(given.get("timeout_s", DEFAULT_TIMEOUT_S)), workspace.limits.timeout_s)
    spool = reserve_output(workspace, call_id)
    if background is not None and given.get("background"):
        return background.start(command, spool)
    result = workspace.sandbox.run(
        ["bash", "-c", command],
        limits=replace(workspace.limits, timeout_s=timeout_s),
        cwd=workspace.root,
        should_stop=workspace.should_stop,
        spool=spool,
    )
    output = render_output(result.output).strip("\n")
    notes = [*_name_hidden(workspace, command, output, failed=result.exit_code != 0)]
    notes += [*(f"[{note}]" for note in result.notes), *(background.take_news() if background else ())]
    return ToolAnswer(
        text="\n".join([_say_end(result, timeout_s), output or "(no output)", *notes]),
        is_error=result.exit_code != 0,
        changed_paths=None,
        spool=spool,
        lost_bytes=max(result.total_bytes - workspace.limits.keep_bytes, 0),
    )


def _name_hidden(workspace: Workspace, command: str, output: str, *, failed: bool) -> list[str]:
    """Say in a line what a command asked for and was not shown: to it an empty file, or one that it may not read."""
    words = dict.fromkeys(_WORD.findall(f"{command} {output[:_LOOKED_AT]}"))
    if failed and _WANTS_VARIABLE.search(output[:_LOOKED_AT]):
        words[_USUAL] = None
    named = (word.removeprefix(f"{workspace.root}/").removeprefix("./") for word in words)
    hidden = sorted({n for n in named if workspace.hidden.covers(n) and (workspace.root / n).is_file()})
    return [f"[{', '.join(hidden[:3])}: hidden from commands and tools; a gate may be shown one]"] if hidden else []


def _say_end(result: CommandResult, timeout_s: float) -> str:
    """Whole seconds only: a result that differs in milliseconds would hide that a session goes in circles."""
    if result.timed_out:
        return f"killed after {timeout_s:.0f} s (timeout_s); output so far:"
    if result.interrupted:
        return "killed: the run is being stopped; output so far:"
    if result.exit_code is None:
        return "killed; output so far:"
    took = f", {result.duration_s:.0f} s" if result.duration_s >= 1 else ""
    return f"exit {result.exit_code}{took}"

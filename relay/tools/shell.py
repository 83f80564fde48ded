"""`bash`: one command in the sandbox, with its exit code first and its output made printable."""

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
    notes = [*(f"[{note}]" for note in result.notes), *(background.take_news() if background else ())]
    return ToolAnswer(
        text="\n".join([_say_end(result, timeout_s), output or "(no output)", *notes]),
        is_error=result.exit_code != 0,
        changed_paths=None,
        spool=spool,
        lost_bytes=max(result.total_bytes - workspace.limits.keep_bytes, 0),
    )


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

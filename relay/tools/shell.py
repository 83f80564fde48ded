"""`bash`: runs one command in the sandbox, and answers with its exit code and its output as printable text."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relay.base.secrecy import is_covered
from relay.base.words import list_some, render_output
from relay.sandbox.command import CommandResult
from relay.sandbox.policy import Level
from relay.session.values import ToolResult
from relay.tools.workspace import ALWAYS_PROTECTED, RefusedError, Workspace, fit_output, reserve_output

DEFAULT_TIMEOUT_S = 120
"""Source: the bash tools of Claude Code and of the SDK's agent toolset."""

_WORD = re.compile(r"[\w./@+-]{3,200}")
_WANTS_VARIABLE = re.compile(
    r"\benviron\b|KeyError: '[A-Z]|process\.env|\b[A-Z]+_[A-Z_]+\b.{0,20}(?:not set|missing|required|undefined)"
)
_READ_ONLY = re.compile(r"[^\n]*(?:[Rr]ead-only file system|EROFS)[^\n]*")
_USUAL = ".env"
_LOOKED_AT = 20_000
"""Characters of an output that are examined."""
MAX_COMMAND_BYTES = 100_000
"""Linux takes 128 KiB in one argument."""


def run_bash(workspace: Workspace, given: Mapping[str, Any]) -> ToolResult:
    """Run a command to its end or its time limit; its changes are not known here."""
    command: str = given["command"]
    if "\0" in command or not command.strip() or len(command.encode()) > MAX_COMMAND_BYTES:
        raise RefusedError(f"command must be text of 1 to {MAX_COMMAND_BYTES:,} bytes; write longer scripts to a file.")
    timeout_s = min(float(max(given.get("timeout_s", DEFAULT_TIMEOUT_S), 1)), workspace.limits.timeout_s)
    spool = reserve_output(workspace)
    limits = replace(workspace.limits, timeout_s=timeout_s)
    result = workspace.sandbox.run(
        ["bash", "-c", command], limits=limits, cwd=workspace.root, should_stop=workspace.should_stop, spool=spool
    )
    output = render_output(result.output).strip("\n")
    notes = _name_kept(workspace, command, output, failed=result.exit_code != 0)
    notes += [f"[{note}]" for note in result.notes]
    most_s = workspace.limits.timeout_s
    text = "\n".join([_say_end(result, timeout_s, most_s), output or "(no output)", *notes])
    return fit_output(
        workspace,
        ToolResult(text=text, is_error=result.exit_code != 0, changed_paths=None),
        spool=spool,
        output=result.output,
        lost_bytes=max(result.total_bytes - workspace.limits.keep_bytes, 0),
    )


def _name_kept(workspace: Workspace, command: str, output: str, *, failed: bool) -> list[str]:
    """Return a line about hidden files that a command named, and one about read-only files that it tried to write.

    To the command a hidden file is empty or unreadable. A read-only file stops a formatter in the middle of its work.
    """
    told = output[:_LOOKED_AT]
    words = dict.fromkeys(_WORD.findall(f"{command} {told}"))
    if failed and _WANTS_VARIABLE.search(told):
        words[_USUAL] = None
    named = [word.removeprefix(f"{workspace.sandbox.policy.shown_root}/").removeprefix("./") for word in words]
    tops = (workspace.root, workspace.sandbox.policy.shown_root)  # no hidden file comes into a tree of relay's
    there = sorted({name for name in named if any(os.path.isfile(top / name) for top in tops)})  # noqa: PTH113
    notes = []
    if hidden := [name for name in there if workspace.hidden.covers(name)]:
        notes.append(f"[{list_some(hidden, 3)}: hidden from commands and tools; a gate may be shown one]")
    refused = " ".join(_READ_ONLY.findall(told)) if failed and workspace.sandbox.level is Level.WORKSPACE_WRITE else ""
    kept = (*workspace.protected, *ALWAYS_PROTECTED)
    if held := [name for name in there if name in refused and is_covered(name, kept)]:
        why = "a session's commands only read it, gates and commit hooks have copies: name other files"
        notes.append(f"[{list_some(held, 3)}: {why}]")
    return notes


def _say_end(result: CommandResult, timeout_s: float, most_s: float) -> str:
    """Return the first line of a result, in whole seconds: milliseconds would hide that a session goes in circles."""
    if result.timed_out:
        more = f"timeout_s may be {most_s:.0f}" if timeout_s < most_s else "the user's command_timeout_s allows no more"
        return f"killed after {timeout_s:.0f} s ({more}); output so far:"
    if result.interrupted:
        return "killed: the run is being stopped; output so far:"
    if result.exit_code is None:
        return "killed; output so far:"
    took = f", {result.duration_s:.0f} s" if result.duration_s >= 1 else ""
    return f"exit {result.exit_code}{took}"

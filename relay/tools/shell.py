"""`bash`: runs one command in the sandbox, and answers with its exit code and its output as printable text.

A command can run in the background: servers, watchers, long builds. Each has a sandbox of its own, a thread that
watches it, the limits of every other command, and an output file of bounded size. relay kills it when the session's
turn ends, because nothing may write while relay checks and commits the session's work.
"""

import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.base.errors import SandboxError
from relay.base.secrecy import is_covered
from relay.base.values import dataclass
from relay.base.words import list_some, render_output
from relay.sandbox.command import CommandResult
from relay.sandbox.policy import Level
from relay.tools.claims import LookFirst
from relay.tools.workspace import ALWAYS_PROTECTED, RefusedError, ToolAnswer, Workspace, reserve_output

if TYPE_CHECKING:
    from concurrent.futures import Future


MOST = 4
"""Background commands at one time."""
FIRST_LOOK_S = 1.0
"""How long a call waits for an early end, such as that of a server whose port is taken."""
_SHOWN_BYTES = 4_000


@dataclass(slots=True, kw_only=True)
class _Job:
    """A background command. Mutable: its thread alone sets `ended`."""

    command: str
    output: Path
    stop: threading.Event = field(default_factory=threading.Event)
    ended: "Future[CommandResult]"

    def run(self, workspace: Workspace) -> None:
        try:
            self.ended.set_result(self._run(workspace))
        except BaseException as error:  # noqa: BLE001  # raised again by the session's thread, which asks for the result
            self.ended.set_exception(error)

    def _run(self, workspace: Workspace) -> CommandResult:
        # Only the session's thread may report output.
        return replace(workspace.sandbox, hear=lambda _: None).run(
            ["bash", "-c", self.command],
            # The model reads the output file while the command writes it: nothing waits in memory.
            limits=replace(workspace.limits, timeout_s=math.inf, keep_bytes=0),
            cwd=workspace.root,
            should_stop=lambda: self.stop.is_set() or workspace.should_stop(),
            spool=self.output,
        )

    def describe(self) -> tuple[str, bool]:
        """Return words for the end of a command, and whether it succeeded; call this after its thread has ended."""
        try:
            result = self.ended.result()
        except SandboxError as error:
            return str(error), False
        notes = "; ".join(result.notes)
        code = result.exit_code
        return notes or (f"exit {code}" if code is not None else "stopped by relay when your turn ended"), code == 0


class Background:
    """The background commands of a session. Mutable; `stop` ends them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._running: list[tuple[_Job, threading.Thread]] = []
        self._ended: list[_Job] = []

    def start(self, command: str, output: Path | None) -> ToolAnswer:
        """Start a command and report its first second; the same command again replaces the first.

        Raises:
            RefusedError: Enough commands are running, its output cannot be kept, or it may change git's configuration.
        """
        if output is None:
            raise RefusedError("Nothing can be kept running here: there is no place for its output.")
        self._require_fixed_configuration()
        self._collect()
        same = [pair for pair in self._running if pair[0].command == command]
        if len(self._running) - len(same) >= MOST:
            running = "\n".join(f"- {job.command}" for job, _ in self._running)
            raise RefusedError(f"{MOST} commands are running already; nothing was started. They are:\n{running}")
        self._end(same)
        self._running = [pair for pair in self._running if pair not in same]  # the model asked for it: no news
        from concurrent.futures import Future

        job = _Job(command=command, output=output, ended=Future())
        thread = threading.Thread(target=job.run, args=(self._workspace,), name="background", daemon=True)
        thread.start()
        thread.join(FIRST_LOOK_S)
        where = self._workspace.render_handle(output)
        if not thread.is_alive():
            words, succeeded = job.describe()
            text = f"ended at once: {words}; output: {where} (use read).\n{_read_end(output)}"
            return ToolAnswer(text=text, is_error=not succeeded, changed_paths=None)
        self._running.append((job, thread))
        way = "a Unix socket below $TMPDIR; each call has ports of its own"
        way = "its port" if self._workspace.sandbox.policy.network else way
        text = (
            f"running until your turn ends; output: {where} (use read). Other calls reach it through {way}. "
            f"The same command again restarts it.\n{_read_end(output)}"
        )
        return ToolAnswer(text=text, changed_paths=None)

    def _require_fixed_configuration(self) -> None:
        """Refuse if the sandbox cannot protect a file that git's configuration includes.

        relay reads the configuration before it lets git read the files of a session; nothing may change it in between.
        Between two calls only background commands run.
        """
        root = self._workspace.root
        for name in self._workspace.configuration:
            if os.path.realpath(root / name) != str(root / name) or not (root / name).is_file():
                raise RefusedError(
                    f"Nothing can be kept running here: git's configuration includes {name}, which is no plain file."
                )

    @property
    def is_running(self) -> bool:
        """Whether files may change between two calls."""
        return any(thread.is_alive() for _, thread in self._running)

    def take_news(self) -> tuple[str, ...]:
        """Return a line for each command that ended since the last call."""
        self._collect()
        news = tuple(
            f"[background `{job.command}`: {job.describe()[0]}; output: {self._workspace.render_handle(job.output)}]"
            for job in self._ended
        )
        self._ended.clear()
        return news

    def stop(self) -> None:
        """End all commands; a second call does nothing. Raise the exception of a thread that a bug ended."""
        self._end(self._running)
        self._collect()
        for job in self._ended:
            job.describe()

    def _end(self, pairs: Sequence[tuple[_Job, threading.Thread]]) -> None:
        # Tell all before waiting for one, so that they end at the same time.
        for job, _ in pairs:
            job.stop.set()
        for _, thread in pairs:
            thread.join()

    def _collect(self) -> None:
        self._ended += [job for job, thread in self._running if not thread.is_alive()]
        self._running = [pair for pair in self._running if pair[1].is_alive()]


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _SHOWN_BYTES))
            data = stream.read(_SHOWN_BYTES)
    except OSError:
        return "(no output)"
    return render_output(data).strip("\n") or "(no output yet)"


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


def run_bash(
    workspace: Workspace,
    background: Background | None,
    given: Mapping[str, Any],
    call_id: str,
    look: LookFirst = lambda: lambda: None,
) -> ToolAnswer:
    """Run a command to its end or its time limit, or start it in the background; its changes are not known here.

    The function that `look` returns is called before the command begins.
    """
    command: str = given["command"]
    if "\0" in command or not command.strip() or len(command.encode()) > MAX_COMMAND_BYTES:
        raise RefusedError(f"command must be text of 1 to {MAX_COMMAND_BYTES:,} bytes; write longer scripts to a file.")
    timeout_s = min(float(given.get("timeout_s", DEFAULT_TIMEOUT_S)), workspace.limits.timeout_s)
    keep = cache(look())  # git looks while the sandbox is set up; only once, though that may be tried again
    spool = reserve_output(workspace, call_id)
    if background is not None and given.get("background"):
        keep()
        return background.start(command, spool)
    limits = replace(workspace.limits, timeout_s=timeout_s)
    result = replace(workspace.sandbox, prepare=keep).run(
        ["bash", "-c", command], limits=limits, cwd=workspace.root, should_stop=workspace.should_stop, spool=spool
    )
    keep()  # for a command that was not started
    output = render_output(result.output).strip("\n")
    notes = [*_name_kept(workspace, command, output, failed=result.exit_code != 0)]
    notes += [*(f"[{note}]" for note in result.notes), *(background.take_news() if background else ())]
    return ToolAnswer(
        text="\n".join([_say_end(result, timeout_s), output or "(no output)", *notes]),
        is_error=result.exit_code != 0,
        changed_paths=None,
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
    named = [word.removeprefix(f"{workspace.root}/").removeprefix("./") for word in words]
    there = sorted({name for name in named if os.path.isfile(workspace.root / name)})  # noqa: PTH113  # any may be named
    notes = []
    if hidden := [name for name in there if workspace.hidden.covers(name)]:
        notes.append(f"[{list_some(hidden, 3)}: hidden from commands and tools; a gate may be shown one]")
    refused = " ".join(_READ_ONLY.findall(told)) if failed and workspace.sandbox.level is Level.WORKSPACE_WRITE else ""
    kept = (*workspace.protected, *ALWAYS_PROTECTED)
    if held := [name for name in there if name in refused and is_covered(name, kept)]:
        why = "a session's commands only read it, gates and commit hooks have copies: name other files"
        notes.append(f"[{list_some(held, 3)}: {why}]")
    return notes


def _say_end(result: CommandResult, timeout_s: float) -> str:
    """Return the first line of a result, in whole seconds: milliseconds would hide that a session goes in circles."""
    if result.timed_out:
        return f"killed after {timeout_s:.0f} s (timeout_s); output so far:"
    if result.interrupted:
        return "killed: the run is being stopped; output so far:"
    if result.exit_code is None:
        return "killed; output so far:"
    took = f", {result.duration_s:.0f} s" if result.duration_s >= 1 else ""
    return f"exit {result.exit_code}{took}"

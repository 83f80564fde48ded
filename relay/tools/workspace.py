"""The workspace that a session's tools share: the paths they may open, show or change, and the limit on their output.

A tool's output is limited by the tool itself, then by the buffer of a command, then by the token cap here. relay cuts
it in the middle, keeps the full text in a file, and never summarises.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from relay.base import walk
from relay.base.secrecy import NOTHING_NAMED, Hidden, is_covered
from relay.base.values import dataclass
from relay.base.walk import Location, NotAFileError, WalkError
from relay.plan.text import OUTPUTS
from relay.sandbox import command
from relay.sandbox.policy import PROTECTED_NAMES, Limits
from relay.sandbox.run import Sandbox
from relay.session.usage import estimate_size_tokens, estimate_tokens
from relay.session.values import ToolResult

ALWAYS_PROTECTED = ("**/.git", ".relay", "relay.toml", *(f"**/{name}" for name in PROTECTED_NAMES))
"""Paths that no tool writes: git's data, relay's own files, files that steer coding agents."""

OUTPUT_CAP_TOKENS = 10_000
"""A tool result longer than this is cut in the middle and spilled, as Codex does."""


class RefusedError(Exception):
    """A tool refuses a call; the message tells the model why, and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A repository, and the rules for a session's tools in it."""

    root: Path
    """The work tree; absolute and resolved (no symbolic link in it)."""
    sandbox: Sandbox
    """Runs every command, at the level of the session: read-only for a planner."""
    protected: tuple[str, ...]
    """Paths that tools do not write besides `ALWAYS_PROTECTED`, relative to the root, each with everything below it; a
    leading ``**/`` means any depth. Case and Unicode form do not matter."""
    should_stop: Callable[[], bool]
    """Polled while a command runs; True kills it."""
    limits: Limits
    """Limits for `bash`; a call may ask for at most `timeout_s`."""
    spills: bool = True
    """Whether long outputs are kept, in the directory of outputs."""
    hidden: Hidden = NOTHING_NAMED
    """Files that no tool shows or replaces; the sandbox masks the same files for commands."""


@contextmanager
def locate(workspace: Workspace, raw: str, *, follow: bool) -> Iterator[Location]:
    """Find a path that the model gave, as `walk.locate` does.

    Raises:
        RefusedError: The path leaves the repository, goes through a file, or through a link that is not followed.
    """
    shown = workspace.sandbox.policy.seen_at
    with ExitStack() as stack:
        try:
            place = stack.enter_context(walk.locate(workspace.root, raw, follow=follow, shown=shown))
        except WalkError as error:
            raise RefusedError(str(error)) from error
        yield place


def open_regular(place: Location) -> int:
    """Open an existing regular file for reading; devices, pipes and sockets are never opened.

    Raises:
        RefusedError: It is no regular file.
    """
    if place.status is None:
        raise RefusedError(f"No such file: {place.path}.{_suggest(place)}")
    if stat.S_ISDIR(place.status.st_mode):
        raise RefusedError(f"{place.path or 'The root'} is a directory; ls in bash shows it.")
    if not stat.S_ISREG(place.status.st_mode):
        raise RefusedError(f"{place.path} is a device, pipe or socket, not a file.")
    try:
        return walk.open_regular(place.name, place.parent_fd)
    except NotAFileError:
        raise RefusedError(f"{place.path} became something else than a file just now.") from None


def _suggest(place: Location) -> str:
    """Name existing files with a similar name."""
    import difflib  # costs start-up time and is needed only here

    if place.missing:
        return ""
    with os.scandir(place.parent_fd) as entries:
        names = [entry.name for entry in islice(entries, 2_000)]
    near = difflib.get_close_matches(place.name, names, n=3)
    folder = place.path.removesuffix(place.name)
    return f" Near it: {', '.join(folder + name for name in near)}." if near else ""


def require_writable(workspace: Workspace, path: str) -> None:
    """Refuse a path that only relay or a person writes.

    Raises:
        RefusedError: The path is protected.
    """
    if is_covered(path, ("**/.git",)):
        raise RefusedError(f"{path}: git's files are read-only here; relay makes the commits.")
    if is_covered(path, (*ALWAYS_PROTECTED, *workspace.protected)):
        raise RefusedError(
            f"{path} is not a session's to write. Use tick for a finished item, amend for a change to an open phase, "
            "record for a finding, such as what a person should write there."
        )
    _refuse_secret(workspace, path)


def require_readable(workspace: Workspace, path: str) -> None:
    """Refuse git's and relay's own files, but for spilled outputs, and secrets.

    Raises:
        RefusedError: The path is hidden.
    """
    if is_covered(path, ("**/.git",)):
        raise RefusedError(f"{path}: look at git's data with git in bash.")
    if is_covered(path, (".relay",)) and not is_covered(path, (OUTPUTS,)):
        raise RefusedError(f"{path} is relay's own; of .relay only {OUTPUTS} can be read.")
    _refuse_secret(workspace, path)


def _refuse_secret(workspace: Workspace, path: str) -> None:
    if workspace.hidden.covers(path):
        raise RefusedError(f"{path} may hold secrets; it is neither shown nor changed.")


_MARK_TOKENS = 40
"""Room for the line that says what was cut."""


def fit_output(
    workspace: Workspace,
    result: ToolResult,
    *,
    spool: Path | None = None,
    output: bytes = b"",
    lost_bytes: int = 0,
) -> ToolResult:
    """Cut a result to `OUTPUT_CAP_TOKENS` tokens, once, and keep the whole in a file.

    Args:
        spool: File with the full output, if that was too long for memory; removed if the model gets all of it.
        output: The full output if `spool` does not have it; empty if the result's text is the full output.
        lost_bytes: Number of bytes that only the spool has.
    """
    text = result.text.encode("utf-8", "replace").decode("utf-8")
    if lost_bytes == 0 and (result.cut_bytes or estimate_tokens(text) <= OUTPUT_CAP_TOKENS):
        if spool is not None:
            spool.unlink(missing_ok=True)
        return replace(result, text=text)
    name = "full output"
    if spool is None or not spool.exists():
        name = "what is kept of the output" if lost_bytes else name
        path = reserve_output(workspace)
        spool = path if path is not None and command.keep_output(path, output or text.encode()) else None
    where = f"{name}: {OUTPUTS}/{spool.name} (use read)" if spool else "the rest could not be kept"
    cut = cut_middle(text, where, lost_tokens=estimate_size_tokens(lost_bytes))
    return replace(result, text=cut, cut_bytes=max(0, len(text.encode()) + lost_bytes - len(cut.encode())))


def cut_middle(text: str, where: str, *, lost_tokens: int = 0, cap_tokens: int = OUTPUT_CAP_TOKENS) -> str:
    """Return the first and the last part of a long text, cut at line ends if possible, with a remark between them."""
    data = text.encode("utf-8")
    half = max(cap_tokens - _MARK_TOKENS - estimate_tokens(where), 2) * 2
    if len(data) <= 2 * half:
        at = data.find(b"\n", len(data) // 2)
        head, tail = (data, b"") if at < 0 else (data[:at], data[at + 1 :])
    else:
        end, start = data.rfind(b"\n", half // 2, half), data.find(b"\n", len(data) - half, len(data) - half // 2)
        head, tail = data[: end if end >= 0 else half], data[start + 1 if start >= 0 else -half :]
    cut = estimate_size_tokens(len(data) - len(head) - len(tail)) + lost_tokens
    mark = f"\n… {cut:,} tokens cut; {where} …\n"
    return head.decode("utf-8", "ignore") + mark + tail.decode("utf-8", "ignore")


def reserve_output(workspace: Workspace) -> Path | None:
    """Return a new path in the directory of outputs; None if the directory cannot be trusted or made."""
    name = f"{os.urandom(8).hex()}.txt"
    return command.reserve_output(workspace.root, name) if workspace.spills else None

"""The workspace that the tools of a session share, and the paths that they may open, show or change."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from relay.base import walk
from relay.base.secrecy import NOTHING_NAMED, Hidden, is_covered
from relay.base.values import dataclass
from relay.base.walk import Location, NotAFileError, WalkError
from relay.sandbox.policy import PROTECTED_NAMES, Limits
from relay.sandbox.run import Sandbox

ALWAYS_PROTECTED = ("**/.git", ".relay", "relay.toml", *(f"**/{name}" for name in PROTECTED_NAMES))
"""Never written by a tool, whatever the caller adds: git's data, relay's own, what steers coding agents."""

OUTPUT_CAP_TOKENS = 10_000
"""A tool result longer than this is cut in the middle and spilled, as Codex does."""


class RefusedError(Exception):
    """A tool does not do what was asked; the message tells the model why and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A repository as a session's tools may use it."""

    root: Path
    """The work tree; absolute and resolved (no symbolic link in it)."""
    sandbox: Sandbox
    """Runs every command, already at the level of the session: read-only for a planner."""
    protected: tuple[str, ...]
    """What tools do not write, beyond `ALWAYS_PROTECTED`: paths relative to the root, each with all that is below it;
    with a leading ``**/`` at any depth. Compared without regard to case and Unicode form."""
    outputs_dir: Path
    """Where long outputs are kept in full; below the root so that the model can read them."""
    should_stop: Callable[[], bool]
    """Polled while a command runs; true kills it."""
    limits: Limits
    """For `bash`; `timeout_s` is the longest that a call may ask for."""
    spills: bool = True
    """Whether what is cut out of a long output is kept in `outputs_dir`."""
    configuration: tuple[str, ...] = ()
    """Files of the work tree that git's configuration includes, present or not; protected too."""
    hidden: Hidden = NOTHING_NAMED
    """What file tools neither show nor replace; the same that the sandbox masks for commands."""

    def render_handle(self, path: Path) -> str:
        """Return what the model passes to `read` to see a file of `outputs_dir`."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)


@contextmanager
def locate(root: Path, raw: str, *, follow: bool) -> Iterator[Location]:
    """Walk to a path of the model, as `walk.locate` does.

    Raises:
        RefusedError: The path leaves the repository, goes through a file, or through a link that is not followed.
    """
    with ExitStack() as stack:
        try:
            place = stack.enter_context(walk.locate(root, raw, follow=follow))
        except WalkError as error:
            raise RefusedError(str(error)) from error
        yield place


def open_regular(place: Location) -> int:
    """Open an existing regular file for reading; devices, pipes and sockets are never opened.

    Raises:
        RefusedError: Something else than a regular file stands there.
    """
    if place.status is None:
        raise RefusedError(f"No such file: {place.path}.{_suggest(place)}")
    _require_regular(place.path, place.status)
    try:
        return walk.open_regular(place.name, place.parent_fd)
    except NotAFileError:
        raise RefusedError(f"{place.path} became something else than a file just now.") from None


def _require_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise RefusedError(f"{path or 'The root'} is a directory; use list.")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{path} is a device, pipe or socket, not a file.")


def _suggest(place: Location) -> str:
    """Name what the missing file may have been."""
    import difflib  # costs start-up time and is needed only here

    if place.missing:
        return ""
    with os.scandir(place.parent_fd) as entries:
        names = [entry.name for entry in islice(entries, 2_000)]
    near = difflib.get_close_matches(place.name, names, n=3)
    folder = place.path.removesuffix(place.name)
    return f" Near it: {', '.join(folder + name for name in near)}." if near else ""


def require_writable(workspace: Workspace, path: str) -> None:
    """Refuse what only relay, or only a person, writes.

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
    if is_covered(path, workspace.sandbox.guarded):
        raise RefusedError(f"{path} is not kept: other projects share what is installed there (hard links).")
    _refuse_secret(workspace, path)


def require_readable(workspace: Workspace, path: str) -> None:
    """Refuse git's and relay's own files, but for spilled outputs, and secrets.

    Raises:
        RefusedError: The path is not shown.
    """
    if is_covered(path, ("**/.git",)):
        raise RefusedError(f"{path}: look at git's data with git in bash.")
    if is_covered(path, (".relay",)):
        outputs = workspace.render_handle(workspace.outputs_dir)
        if not is_covered(path, (outputs,)):
            raise RefusedError(f"{path} is relay's own; of .relay only {outputs} can be read.")
    _refuse_secret(workspace, path)


def is_readable(workspace: Workspace, path: str) -> bool:
    """Say whether `require_readable` lets a path pass."""
    try:
        require_readable(workspace, path)
    except RefusedError:
        return False
    return True


def _refuse_secret(workspace: Workspace, path: str) -> None:
    if workspace.hidden.covers(path):
        raise RefusedError(f"{path} may hold secrets; it is neither shown nor changed.")

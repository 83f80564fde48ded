"""Which paths a tool may open, and which it may show or change."""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from relay.base import walk
from relay.base.secrecy import is_covered
from relay.base.walk import Location, NotAFileError, WalkError
from relay.tools.workspace import ALWAYS_PROTECTED, RefusedError, Workspace


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

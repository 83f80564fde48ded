"""Git's configuration as ``git config --list`` shows it, asked for again only when a file that it comes from changed.

Relay needs the configuration before every command that could run a filter or a hook: 57 times in a phase of four
tools, which would be 56 more processes (110 ms at 2 ms a process). An answer is used again while every file that it
came from, or could have come from, holds the very bytes that it held then: bytes and not times, since a file may change
twice within one tick of the clock. An include of a file of the work tree, which a session can write, is among these
files, present or not.
"""

import contextlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping

from relay.base.walk import read_bytes
from relay.git.command import GitError
from relay.git.repository import Repo
from relay.git.version import get_version, probe_traced

_LARGEST_BYTES = 1_000_000
"""A larger file is not compared, and git is asked each time."""
_CONDITIONS = ("gitdir:", "gitdir/i:", "hasconfig:remote.*.url:")
"""Depend on the place and on the configuration itself. Source: git-config(1), conditional includes. That of a branch
depends on each ref from HEAD on, wherever they are kept."""

_Contents = Mapping[str, bytes | None]
"""By absolute path; None where nothing is."""

_known: dict[tuple[object, ...], tuple[_Contents, bytes | None]] = {}
"""By work tree and environment: the files, and what git said of them; None when they changed while it did."""


def read_listing(repo: Repo) -> bytes:
    """Return scope, origin and setting of each entry, NUL behind each, as the configuration stands now."""
    env = repo.git.env
    key = (repo.root, repo.git_dir, *env.items())
    contents, out = _known.pop(key, None) or (dict.fromkeys(_find_standard_files(repo)), None)
    now = _read_all(contents)
    if out is None or now != contents:
        asked = _ask(repo)
        contents = _read_all(_find_files(repo, asked)) or {}
        # The files are known by the answer only: it is kept when they were the same before it as after it.
        out = asked if contents == now else None
    else:
        asked = out
    if contents:
        _known[key] = (contents, out)
    return asked


def _ask(repo: Repo) -> bytes:
    """Ask git, which says its version as well.

    Raises:
        GitError: There is no listing.
    """
    result = probe_traced(repo.git, "config", "--list", "-z", "--show-scope", "--show-origin")
    if result.code:
        raise GitError(f"git config failed: {result.words}")
    return result.out


def read_version(repo: Repo) -> tuple[int, ...]:
    """Return git's version; where it is not known yet, by a listing, which everything else needs too.

    Raises:
        RepoError: It is too old.
    """
    with contextlib.suppress(GitError):  # an old git does not know how to list
        read_listing(repo)
    return get_version(repo.git)


def _read_all(paths: Collection[str]) -> _Contents | None:
    """Return what is in files; None when that cannot be told."""
    try:
        return {path: _read(path) for path in paths}
    except (OSError, ValueError):
        return None


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_BYTES:
            raise ValueError(path)
        return read_bytes(fd, _LARGEST_BYTES + 1)
    finally:
        os.close(fd)


def _find_standard_files(repo: Repo) -> tuple[str, ...]:
    """Return where git looks without being told; a system-wide file elsewhere counts once it is there."""
    env = repo.git.env
    home = env.get("HOME", "")
    system = env.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig")
    user = (f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config", f"{home}/.gitconfig")
    own = (str(repo.common_dir / "config"), str(repo.git_dir / "config.worktree"))
    return (system, *((env["GIT_CONFIG_GLOBAL"],) if "GIT_CONFIG_GLOBAL" in env else user), *own)


def _find_files(repo: Repo, out: bytes) -> tuple[str, ...]:
    """Return every file that decides about the configuration; nothing when that is more than files."""
    parts = out.split(b"\0")
    files = dict.fromkeys(_find_standard_files(repo))
    for raw_origin, entry in zip(parts[1::3], parts[2::3], strict=False):
        origin = os.fsdecode(raw_origin)
        if not origin.startswith("file:"):
            continue  # relay's own
        file = os.path.join(repo.root, origin.removeprefix("file:"))  # noqa: PTH118  # as git does, no link followed
        files[file] = None
        try:
            files |= dict.fromkeys(_get_included(repo, file, os.fsdecode(entry)))
        except ValueError:
            return ()
    return tuple(files)


def find_tree_files(repo: Repo) -> tuple[str, ...]:
    """Return what git's configuration comes from, or could come from, in the work tree, present or not, in its order.

    Whoever changes one of them decides what git runs, the user's own git included. Relative to the root.
    """
    parts = read_listing(repo).split(b"\0")
    files = []
    for raw_origin, entry in zip(parts[1::3], parts[2::3], strict=False):
        origin = os.fsdecode(raw_origin)
        if origin.startswith("file:"):
            file = os.path.join(repo.root, origin.removeprefix("file:"))  # noqa: PTH118  # as git does
            files += [file, *_get_included(repo, file, os.fsdecode(entry), any_condition=True)]
    own = (os.path.relpath(os.path.abspath(file), repo.root) for file in files)  # noqa: PTH100
    return tuple(dict.fromkeys(name for name in own if name.split("/")[0] not in {"..", ".git"}))


def _get_included(repo: Repo, file: str, entry: str, *, any_condition: bool = False) -> Iterator[str]:
    """Yield what an entry of `file` brings in.

    Raises:
        ValueError: It depends on something that is not known here; not when `any_condition` counts as met.
    """
    key, _, value = entry.partition("\n")
    if not (key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))):
        return
    condition = key.removeprefix("includeif.") if key != "include.path" and not any_condition else ""
    if value.startswith("%") or (value.startswith("~") and not value.startswith("~/")):
        if any_condition:
            return  # git's own directory, or the home of another user
        raise ValueError(value)
    if condition and not condition.startswith(_CONDITIONS):
        raise ValueError(condition)
    place = value.replace("~", repo.git.env.get("HOME", ""), 1) if value.startswith("~/") else value
    yield os.path.join(os.path.dirname(file), place)  # noqa: PTH118, PTH120  # as git does, no link followed

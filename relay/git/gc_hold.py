"""Keeping ``git gc`` out while objects are stored that nothing points to yet.

`git gc --prune=now` asks what is reachable, then deletes every loose object that was not; what is stored meanwhile is
gone, whatever ref holds it by then, and its time does not matter. So relay takes the file by which git keeps two
collections apart: ``gc.pid``, the number of a process and the name of its machine. It counts while that process lives,
and twelve hours at most. ``git prune`` itself looks at no file; what it took, `relay.store.repair` finds out.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from relay.base.replacement import replace_unsynced
from relay.base.tree import read_start
from relay.base.walk import open_folder
from relay.git.repository import Repo

_COUNTS_S = 12 * 3600
"""Source: git's builtin/gc.c, lock_repo_for_gc()."""
_RENEWED_S = 3600
_MOST_BYTES = 512


@contextlib.contextmanager
def hold_collections(repo: Repo) -> Iterator[None]:
    """Keep collections out until the block is left."""
    claim_collections(repo)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if _read(repo) == _render():
                _find_file(repo).unlink()


def claim_collections(repo: Repo) -> bool:
    """Keep collections out, if none is under way and no other relay keeps them out; cheap when that is so already.

    Returns:
        Whether this process keeps them out.
    """
    file, own = _find_file(repo), _render()
    found = _read(repo)
    with contextlib.suppress(OSError):
        if found == own and time.time() - file.stat().st_mtime < _RENEWED_S:
            return True
        if found != own and _is_held(file, found):
            return False
        repo.make_relay_dir()
        # No process outlives a power cut, and git takes an empty file for none.
        with open_folder(repo.git_dir, (repo.relay_dir.name,)) as scratch, open_folder(repo.common_dir, ()) as here:
            replace_unsynced(here, file.name, own, scratch_fd=scratch)
        return True
    return False


def _find_file(repo: Repo) -> Path:
    return repo.common_dir / "gc.pid"


def _read(repo: Repo) -> bytes:
    with contextlib.suppress(OSError):
        return read_start(_find_file(repo), _MOST_BYTES) or b""
    return b""


def _render() -> bytes:
    return f"{os.getpid()} {socket.gethostname()}".encode()


def _is_held(file: Path, found: bytes) -> bool:
    """Return whether a process that the file names keeps others out, by git's own rule."""
    number, _, host = found.partition(b" ")
    if not number.isdigit() or not int(number) or time.time() - file.stat().st_mtime > _COUNTS_S:
        return False
    if host.strip() != socket.gethostname().encode():
        return True
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True

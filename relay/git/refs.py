"""Move and drop refs durably, by compare-and-swap."""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from relay.base.tree import sync_directory
from relay.git.command import GitError, GitResult
from relay.git.config_guard import guard
from relay.git.lock_journal import declare_locks, find_ref_locks
from relay.git.objects import RELAY_IDENTITY
from relay.git.repository import Repo, find_id

_WHOLE = re.compile(rb"ref:|[0-9a-fA-F]{40,64}\s*\Z")


def move_ref(
    repo: Repo,
    ref: str,
    new: str,
    old: str | None,
    *,
    identity: Mapping[str, str] = RELAY_IDENTITY,
    reason: str = "relay",
) -> bool:
    """Move `ref` to `new` if it still is at `old` (None: it does not exist), durably.

    Args:
        ref: The full name.
        old: The commit it must hold now.

    Returns:
        False when the ref was at another commit; nothing has changed then. True also when it was at `new` already,
        unless it had to be created.

    Raises:
        GitError: The ref is where it should be, but git could not write it.
    """

    def change() -> GitResult:
        git = guard(repo).git
        return git.probe("update-ref", "-m", reason, "--no-deref", ref, new, old or repo.zero_id, env=identity)

    return _change_ref(repo, ref, old, new, change)


def _change_ref(repo: Repo, ref: str, old: str | None, new: str | None, change: Callable[[], GitResult]) -> bool:
    """Run `change`, which moves a ref from `old` to `new` (None: no ref), and judge by the ref's value afterwards.

    Git moves a branch before it writes HEAD's reflog: on a full disk it fails, and the branch has moved.
    """
    # A reftable has one lock for all refs.
    own = new is not None and ref.startswith("refs/relay/") and not (repo.common_dir / "reftable").is_dir()
    is_new_place = old is None or not (repo.common_dir / ref).parent.is_dir()
    with contextlib.nullcontext() if own else declare_locks(repo, *find_ref_locks(repo, ref)):
        result = change()
        found = find_ref(repo, ref) if result.code else new
    if result.code and found == old:
        raise GitError(f"git update-ref failed: {result.words}")
    # A ref to create that exists, or a ref to drop that is gone: another process did it.
    if result.code and (found != new or old is None or new is None):
        return False
    sync_ref(repo, ref, is_new_place=is_new_place)
    return True


def drop_ref(repo: Repo, ref: str, old: str) -> bool:
    """Remove `ref` if it still is at `old`.

    Returns:
        False when the ref was somewhere else or gone; nothing has changed then.

    Raises:
        GitError: The ref is where it should be, but git could not remove it.
    """
    guarded = guard(repo)

    def change() -> GitResult:
        return guarded.git.probe("update-ref", "--no-deref", "-d", ref, old, env=RELAY_IDENTITY)

    # Git also looks into packed-refs, under that file's lock, which is not relay's alone.
    return _change_ref(repo, ref, old, None, change)


def set_refs(repo: Repo, wanted: Mapping[str, str]) -> None:
    """Set refs to commits, wherever they are, by one git; not durable: whoever sets so many has them from elsewhere.

    Raises:
        GitError: Git could not; some may be set.
    """
    if wanted:
        lines = "".join(f"update {ref} {commit}\n" for ref, commit in wanted.items())
        with declare_locks(repo, *(lock for ref in wanted for lock in find_ref_locks(repo, ref))):
            guard(repo).git.run("update-ref", "--no-deref", "--stdin", stdin=os.fsencode(lines), env=RELAY_IDENTITY)


def find_ref(repo: Repo, ref: str) -> str | None:
    """Return the object id that `ref` (a full name) holds; None when it does not exist.

    Raises:
        GitError: Git cannot say, or the ref is broken.
    """
    found = find_id(repo.common_dir, ref)
    if found is not None:
        return found or None
    said = repo.git.ask("rev-parse", "-q", "--verify", "--end-of-options", ref)
    return None if said is None else said.decode()


def put_aside_broken(repo: Repo, prefix: str) -> Mapping[str, Path]:
    """Move the files of refs below `prefix` that hold no id, as after a power cut, into relay's directory.

    Git refuses to read, to move and to drop such a ref. A packed value of the ref counts again.

    Returns:
        The new place of each file, by ref.
    """
    moved: dict[str, Path] = {}
    for folder, _, names in os.walk(repo.common_dir / prefix):
        for file in (Path(folder, name) for name in names if not name.endswith(".lock")):
            ref = file.relative_to(repo.common_dir).as_posix()
            if find_id(repo.common_dir, ref) is not None or not stat.S_ISREG(file.lstat().st_mode):
                continue
            if not _WHOLE.match(file.read_bytes()):
                moved[ref] = repo.make_relay_dir() / f"broken-{ref.replace('/', '+')}"
                file.replace(moved[ref])
                sync_ref(repo, ref, is_new_place=False)
    return moved


def sync_ref(repo: Repo, ref: str, *, is_new_place: bool = True) -> None:
    """Make a ref's new value survive a power cut: git syncs the file but not its directory.

    Args:
        ref: The full name.
        is_new_place: Whether the directory, or one above it, may be new.
    """
    place = (repo.common_dir / ref).parent
    while place != repo.common_dir and place.is_relative_to(repo.common_dir):
        sync_directory(place)
        if not is_new_place:
            break
        place = place.parent
    sync_directory(repo.common_dir / "reftable")

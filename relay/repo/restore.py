"""Putting files back as a snapshot holds them, after what is there has been saved to another snapshot."""

from collections.abc import Callable

from relay.repo import objects
from relay.repo.files import remove_file, replace_file
from relay.repo.guard import Guarded, guard
from relay.repo.open import Repo
from relay.repo.snapshot import TreeSnapshot, make_filter
from relay.repo.status import ChangeKind, PathChange


def restore_snapshot(
    repo: Repo,
    *,
    found: TreeSnapshot,
    wanted: TreeSnapshot,
    head: str | None,
    keep: Callable[[str], bool] = lambda _: False,
) -> tuple[str, ...]:
    """Make the work tree equal to `wanted` where it differs.

    Args:
        repo: The repository.
        found: A snapshot of the work tree as it is now, already kept under a ref by the caller.
        wanted: What to restore.
        head: The commit that both were taken over; None on an unborn branch.
        keep: Paths to leave alone.

    Returns:
        The paths that were written or removed. Submodules, paths that either snapshot left out, and paths whose
        bytes in a snapshot were not the work tree's are never touched.
    """
    is_left_out = make_filter(found.skipped, wanted.skipped)
    given = {*found.replaced, *wanted.replaced}
    changes = [
        change
        for change in objects.diff_trees(repo, found.tree, wanted.tree)
        if not (change.is_submodule or change.path in given or is_left_out(change.path) or keep(change.path))
    ]
    guarded = guard(repo)
    at_head = objects.read_entries(repo, head, [change.path for change in changes]) if head else {}
    # Removals first: a directory may have to make room for a file.
    for change in sorted(changes, key=lambda change: change.kind != ChangeKind.DELETED):
        if change.kind == ChangeKind.DELETED:
            remove_file(repo.root, change.path)
        else:
            _write(repo, guarded, change, as_in_head=at_head.get(change.path) == (change.mode, change.object_id))
    return tuple(change.path for change in changes)


def _write(repo: Repo, guarded: Guarded, change: PathChange, *, as_in_head: bool) -> None:
    """Write raw bytes; a blob that is HEAD's was cleaned, so it goes through git's own conversion back."""
    if as_in_head and change.mode != "120000":
        data = guarded.git.run("cat-file", "--filters", f"--path={change.path}", change.object_id)
    else:
        data = guarded.git.run("cat-file", "blob", change.object_id)
    replace_file(repo.root, change.path, data, change.mode)

"""Files that were there before a leg although no snapshot had them: the user's, which git ignored then.

A session that takes a line out of ``.gitignore`` makes them look new. Their change times tell, which no program can
set back: what is older than the leg was not written in it.
"""

from collections.abc import Sequence

from relay.files.tree import find_stat
from relay.git import objects
from relay.git.config_guard import guard
from relay.git.modes import SYMLINK
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.store.legs import OpenLeg, find_place_id


def find_earlier_paths(repo: Repo, leg: OpenLeg, changes: Sequence[PathChange]) -> frozenset[str]:
    """Return those of a leg's added paths that are older than the leg: never to be committed by relay.

    A directory that is renamed takes its files along as old as they are; what is in the leg's start under another name
    is therefore not among them.

    Args:
        repo: The repository.
        leg: The leg; one that was opened elsewhere, or by an older relay, has no such paths.
        changes: What differs from its start, as the work tree has it now.
    """
    if not leg.opened_ns or leg.place != find_place_id(repo):
        return frozenset()
    added = [change for change in changes if change.kind is ChangeKind.ADDED]
    old = [change for change in added if _is_older(repo, change.path, leg.opened_ns)]
    if not old:
        return frozenset()
    held = objects.read_blob_ids(repo, leg.base_tree)
    old = [change for change in old if change.object_id not in held]
    # What was as in HEAD at the start is there as HEAD has it: cleaned.
    files = [change.path for change in old if change.mode != SYMLINK]
    cleaned = dict(zip(files, objects.hash_files(guard(repo).git, files, write=False, clean=True), strict=True))
    return frozenset(change.path for change in old if cleaned.get(change.path) not in held)


def _is_older(repo: Repo, path: str, moment_ns: int) -> bool:
    found = find_stat(repo.root, path)
    return found is not None and found.st_ctime_ns < moment_ns

"""Merge two commits into a tree, without a work tree and without any program that a configuration names.

Git asks a repository's merge drivers even for a merge that writes no file (measured with 2.39.5: a ``.gitattributes``
in the work tree and ``merge.<name>.driver`` in the configuration). Here git gets a directory without configuration,
refs or attributes of its own: an attribute can then choose only built-in drivers (text, binary, union).
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from relay.base.values import dataclass
from relay.git.command import GitError
from relay.git.objects import write_commit
from relay.git.repository import Repo
from relay.git.trees import find_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """The result of a merge."""

    tree: str
    """With git's marks in the files that both sides changed in the same place."""
    conflicts: tuple[str, ...] = ()
    """Paths that git could not merge, by name."""
    words: str = ""
    """Git's sentences about the conflicts; empty without any."""


def merge_commits(repo: Repo, ours: str, theirs: str, *, base: str = "") -> Merge:
    """Merge two commits; nothing but objects is written.

    Args:
        ours: The commit whose side comes first in what conflicts.
        base: A commit below `theirs` that both are to be compared with; empty for the newest that they have in common.

    Raises:
        GitError: They have nothing in common, or git could not merge them at all.
    """
    with tempfile.TemporaryDirectory(prefix="relay-merge-") as place:
        bare = _make_bare(repo, Path(place))
        if base and base != find_base(repo, ours, theirs):  # git's own option for it is of 2.40
            instead = write_commit(repo, find_tree(repo, ours), (base,), b"relay: what is merged")
            (bare / "refs/replace").mkdir()
            (bare / "refs/replace" / ours).write_text(f"{instead}\n")
        git = replace(repo.git, place=(f"--git-dir={bare}", f"--work-tree={repo.root}"), settings=())
        result = git.probe("merge-tree", "--write-tree", "-z", "--name-only", ours, theirs, env=_make_environ(repo))
    tree, _, rest = result.out.partition(b"\0")
    if result.code not in {0, 1} or not tree:
        raise GitError(f"git merge-tree failed: {result.words}")
    if not result.code:
        return Merge(tree=tree.decode())
    listed, _, told = rest.partition(b"\0\0")
    paths = dict.fromkeys(os.fsdecode(path) for path in listed.split(b"\0") if path)
    return Merge(tree=tree.decode(), conflicts=tuple(sorted(paths)), words=_read_words(told))


def find_base(repo: Repo, one: str, other: str) -> str | None:
    """Return the newest common ancestor of two commits, any one where there are several; None without one.

    Both are named by their ids.
    """
    found = repo.git.ask("merge-base", one, other)
    return None if found is None else found.decode()


def find_fork(repo: Repo, branch: str, commit: str) -> str | None:
    """Return the newest ancestor of `commit` that a branch was at, by its reflog; None where the log does not say.

    Where somebody rewrote the branch, this is newer than the common ancestor.
    """
    ref = f"refs/heads/{branch}"
    found = repo.git.ask("merge-base", "--fork-point", ref, commit) if repo.find_commit(ref) else None
    return found.decode() if found else None


def is_ancestor(repo: Repo, old: str, new: str) -> bool:
    """Return whether `new` is `old`, or has it in its history."""
    return old == new or find_base(repo, old, new) == old


def list_marks(repo: Repo, tree: str, ours: str, theirs: str) -> tuple[str, ...]:
    """Return the files of a tree that still have conflict marks of `merge_commits`."""
    lines = (f"^<<<<<<< {ours}", f"^>>>>>>> {theirs}")
    args = (part for line in lines for part in ("-e", line))
    result = repo.git.probe("grep", "-l", "-z", "-a", "--no-textconv", *args, tree, "--")
    if result.code not in {0, 1}:
        raise GitError(f"git grep failed: {result.words}")
    return tuple(os.fsdecode(name).removeprefix(f"{tree}:") for name in result.out.split(b"\0") if name)


def _make_bare(repo: Repo, place: Path) -> Path:
    for name in ("objects", "refs"):
        (place / name).mkdir()
    (place / "HEAD").write_text("ref: refs/heads/none\n")
    version = 1 if repo.object_format == "sha256" else 0
    extension = "[extensions]\n\tobjectFormat = sha256\n" if version else ""
    (place / "config").write_text(f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n{extension}")
    return place


def _make_environ(repo: Repo) -> dict[str, str]:
    return {
        "GIT_OBJECT_DIRECTORY": str(repo.objects_dir),
        "GIT_SHALLOW_FILE": str(repo.common_dir / "shallow"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "XDG_CONFIG_HOME": os.devnull,
        "HOME": os.devnull,
    }


def _read_words(told: bytes) -> str:
    """Return git's sentences about conflicts: ``<n> <paths…> <kind> <sentence>``, each ended by a NUL."""
    parts = [os.fsdecode(part) for part in told.split(b"\0")]
    found, at = [], 0
    while at < len(parts) and parts[at].isdecimal():
        end = at + int(parts[at]) + 2
        found += [parts[end].strip()] if end < len(parts) and parts[end - 1].startswith("CONFLICT") else []
        at = end + 1
    return "\n".join(found)

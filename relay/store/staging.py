"""The index that a phase commit is made from: HEAD plus the leg's paths, cleaned as git itself would."""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.tree import find_stat
from relay.git import objects
from relay.git.command import Git, GitError
from relay.git.config_guard import Guarded, find_filters, find_own_filters, find_value, is_plain
from relay.git.index import find_hidden, show_hidden
from relay.git.repository import Repo
from relay.git.trees import ABSENT, FILE, GITLINK, SYMLINK, find_tree, is_plain_entry, write_changed_tree

INDEX = "commit-index"
_LINE_ENDS, _OTHERS = ("text", "eol"), ("crlf", "filter", "ident", "working-tree-encoding")
"""Attributes that have a file stored in another form than it has. Source: gitattributes(5)."""
_MOST_PLAIN = 200
"""Paths; in a packed repository git may have to be asked for each directory, and has one index for all."""
_NONE = frozenset({"unspecified", "unset"})
_NO_FILES: Mapping[str, bytes] = {}


class NotStagedError(GitError):
    """Git does not take a file's content, by its own rules: ``core.safecrlf``, a filter that fails."""


def require_filters(guarded: Guarded, paths: Sequence[str]) -> None:
    """Refuse paths whose content only the repository's own filter driver could clean.

    Raises:
        RepoError: Such a driver is needed; committing without it would store other bytes than git would.
    """
    own = find_own_filters(guarded.config)
    if not own:
        return
    needed = find_filters(guarded, tuple(paths))
    path = next((path for path, driver in needed.items() if driver in own), None)
    if path is not None:
        raise RepoError(
            f"{path} needs the filter {needed[path]!r}, which this repository's own configuration defines or whose "
            "program may be in it; relay runs only filters from your global configuration",
            hint="git lfs install"
            if needed[path] == "lfs"
            else f"git config --global filter.{needed[path]}.clean …, with a program's absolute path",
        )


def stage_paths(repo: Repo, guarded: Guarded, head: str | None, paths: Sequence[str]) -> str:
    """Make a private index of `head` with the work tree's content at `paths` and return its file.

    It starts as a copy of the user's index, since that knows which files are unchanged; then everything but HEAD's
    content is taken out of it, what the user has staged included.
    """
    git = objects.private_git(guarded.git)
    index = objects.copy_index(repo, INDEX)
    own = frozenset(paths)
    show_hidden(guarded.git, index, [entry for entry in find_hidden(repo, guarded) if entry.path in own])
    if head:
        # Index only: the files are allowed to be anything.
        git.run("read-tree", "--reset", "-i", head, env={"GIT_INDEX_FILE": index})
    else:
        objects.remove_private(Path(index))
    present = [path for path in paths if _is_file(repo, path)]
    gone = set(paths).difference(present)
    objects.fill_index(git, index, ((path, ABSENT, repo.zero_id) for path in sorted(gone)))
    if present:
        stdin = b"".join(os.fsencode(path) + b"\0" for path in present)
        # Without the first option git would take a path outside a sparse checkout out of the index.
        result = git.probe(
            "update-index", "--ignore-skip-worktree-entries", "--add", "--replace", "-z", "--stdin",
            stdin=stdin, env={"GIT_INDEX_FILE": index},
        )  # fmt: skip
        if result.was_cut_off:
            raise GitError(f"git update-index failed: {result.words}")
        if result.code:
            raise NotStagedError(result.words)
    return index


def _is_file(repo: Repo, path: str) -> bool:
    """Return whether there is a file or symlink; a directory in a file's place means that the file is gone."""
    found = find_stat(repo.root, path)
    return found is not None and not stat.S_ISDIR(found.st_mode)


def find_staged_otherwise(repo: Repo, guarded: Guarded, index: str, paths: Sequence[str], tree: str) -> tuple[str, ...]:
    """Return those of `paths` that are not staged as the snapshot `tree` holds them.

    A snapshot holds raw bytes, or HEAD's cleaned ones where the file was as in HEAD; either will do.
    """
    wanted = objects.read_entries(repo, tree, paths)
    staged = objects.read_index(guarded.git, paths, index=index)
    moved = [path for path in paths if (path in wanted) != (path in staged)]
    unequal = [path for path in paths if path in wanted and path in staged and wanted[path] != staged[path]]
    files = [path for path in unequal if wanted[path][0] == staged[path][0] != SYMLINK]
    raw = dict(zip(files, objects.hash_files(repo.git, files), strict=True))
    moved += [path for path in unequal if raw.get(path) != wanted[path][1]]
    return tuple(sorted(moved))


def put_files(repo: Repo, guarded: Guarded, index: str, head: str | None, files: Mapping[str, bytes]) -> None:
    """Put given bytes into a private index, cleaned as the files at these paths would be; modes as in `head`."""
    at_head = objects.read_entries(repo, head, tuple(files)) if head else {}
    entries = []
    for path, data in files.items():
        mode, old = at_head.get(path, (FILE, ""))
        entries.append((path, mode, hash_cleaned(guarded.git, path, data, old)))
    objects.fill_index(objects.private_git(guarded.git), index, entries)


def hash_cleaned(git: Git, path: str, data: bytes, old: str) -> str:
    """Store bytes as `git add` would store them in a file at `path` whose blob is `old`, and return the blob's id.

    Where line ends are converted without an attribute that asks for it, git leaves a file alone that was committed
    with CRLF before; ``hash-object`` does not know what was committed. Source: gitattributes(5), `text`.

    Args:
        git: Guarded.
        old: The blob that the commit before has there; empty for none.
    """
    if b"\r\n" in data and old and b"\r\n" in git.run("cat-file", "blob", old) and _is_left_alone(git, path):
        return objects.hash_bytes(git, data)
    return objects.hash_bytes(git, data, filter_as=path)


def _is_left_alone(git: Git, path: str) -> bool:
    """Return whether nothing but the guess at line ends would change a file's bytes."""
    found = _find_attributes(git, (path,))[path]
    guessed = found["text"] == "auto" or found["text"] == found["eol"] == "unspecified"
    return guessed and all(found[name] == "unspecified" for name in _OTHERS)


def _find_attributes(git: Git, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return for each path what its attributes are that change what is stored of it."""
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    parts = git.run("check-attr", "-z", "--stdin", *_LINE_ENDS, *_OTHERS, stdin=stdin).split(b"\0")
    found: dict[str, dict[str, str]] = {path: {} for path in paths}
    for path, name, value in zip(parts[0::3], parts[1::3], parts[2::3], strict=False):
        found[os.fsdecode(path)][name.decode()] = value.decode("utf-8", "replace")
    return found


def write_plain_tree(
    repo: Repo, guarded: Guarded, head: str | None, entries: Mapping[str, tuple[str, str]], files: Mapping[str, bytes]
) -> str | None:
    """Store the tree of a commit without an index, where git would store the files' very bytes.

    Args:
        head: The commit that it is made on; None for an empty tree.
        entries: ``path: (mode, object id)`` to put in, ids of raw bytes; mode ``000000`` takes a path out.
        files: Bytes to put in, with the modes that they have in `head`.

    Returns:
        The tree's id; None where only git knows what is to be stored.
    """
    start = find_tree(repo, head) if head else repo.empty_tree
    modes = objects.read_entries(repo, start, tuple(files))
    given = {path: (modes.get(path, (FILE, ""))[0], data) for path, data in files.items()}
    kinds = {path: mode for path, (mode, _) in (*entries.items(), *given.items())}
    is_odd = GITLINK in kinds.values() or len(kinds) > _MOST_PLAIN
    if is_odd or not is_plain(repo) or not guarded.flag("core.symlinks", default=True):
        return None
    if not all(is_plain_entry(path, mode) for path, mode in kinds.items()):
        return None
    blobs = {path: object_id for path, (mode, object_id) in entries.items() if mode not in {ABSENT, SYMLINK}}
    if find_stored_as_is(repo, guarded, blobs, files) < {*blobs, *files}:
        return None
    stored = objects.store_blobs(repo, [data for _, data in given.values()])
    whole = [(path, mode, blob) for path, (mode, blob) in entries.items()]
    whole += [(path, mode, blob) for (path, (mode, _)), blob in zip(given.items(), stored, strict=True)]
    # Removals first: where a file became a directory, one tree cannot hold both.
    return write_changed_tree(repo, start, sorted(whole, key=lambda entry: entry[1] != ABSENT))


def find_stored_as_is(
    repo: Repo, guarded: Guarded, blobs: Mapping[str, str], files: Mapping[str, bytes] = _NO_FILES
) -> frozenset[str]:
    """Return the paths whose files git stores as they are, and writes so: no attribute asks for more than is done.

    Args:
        blobs: Path → the id of the bytes there.
        files: Path → the bytes.
    """
    if (find_value(guarded.config, "core.autocrlf") or "false").lower() != "false":
        return frozenset()
    has_eol = find_value(guarded.config, "core.eol") is not None
    as_is = set()
    for path, found in _find_attributes(guarded.git, (*blobs, *files)).items():
        if not all(found[name] in _NONE for name in _OTHERS):
            continue
        if found["text"] not in _NONE or found["eol"] not in _NONE:
            if has_eol or found["text"] not in {"auto", "set"} or found["eol"] not in _NONE:
                continue
            if b"\r" in (files[path] if path in files else objects.load_blob(repo, blobs[path])):
                continue
        as_is.add(path)
    return frozenset(as_is)

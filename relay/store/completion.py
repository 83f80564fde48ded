"""Staging before the commit point, and updates after it: the user's index, the files relay ticked, the disk.

Everything after the commit point is safe to repeat at any time.
"""

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.errors import LockedError, RepoError
from relay.base.tree import find_stat, fsync_paths, read_file, remove_file, replace_file
from relay.base.values import dataclass
from relay.base.walk import open_folder
from relay.git import objects
from relay.git.command import Git, GitError, GitResult
from relay.git.config_guard import Guarded, find_filters, find_own_filters, guard
from relay.git.lock_journal import declare_locks
from relay.git.message import CommitText, read_text
from relay.git.names import parse_path
from relay.git.notes import drop_note, read_note, write_note
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange, find_hidden, read_flagged, render_flagged, show_hidden
from relay.git.trees import ABSENT, FILE, SYMLINK, find_mode, find_tree
from relay.plan.text import find_ledger_path
from relay.store.trailers import PLAN
from relay.store.worktree_notes import is_own_tree

INDEX, HELD = "commit-index", "held-index"
_OTHERS = ("crlf", "filter", "ident", "working-tree-encoding")
"""Attributes, besides ``text`` and ``eol``, that make git store a file in another form than the work tree's.

Source: gitattributes(5).
"""


class NotStagedError(GitError):
    """Git does not accept a file's content, by its own rules: ``core.safecrlf``, a filter that fails."""


def require_filters(guarded: Guarded, paths: Sequence[str]) -> None:
    """Refuse paths whose content only the repository's own filter driver could clean.

    Raises:
        RepoError: Such a driver is needed; without it the commit would store other bytes than git would.
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


def store_files(repo: Repo, guarded: Guarded, head: str | None, paths: Sequence[str]) -> str:
    """Store the tree of `head` with the work tree's content at `paths`, as git would commit it; return its id.

    A private index starts as a copy of the user's, since that knows which files are unchanged. Then it is reset to
    HEAD, so the user's staged content is not in it.

    Raises:
        NotStagedError: Git does not take a file's content.
        RepoError: A file needs a filter that relay does not run.
    """
    if not paths:
        return find_tree(repo, head) if head else repo.empty_tree
    require_filters(guarded, paths)
    git = objects.private_git(guarded.git)
    index = objects.copy_index(repo, INDEX)
    own = frozenset(paths)
    show_hidden(guarded.git, index, [entry for entry in find_hidden(repo, guarded) if entry.path in own])
    if head:
        # Reset the index only (-i): the work tree's files may be in any state.
        git.run("read-tree", "--reset", "-i", head, env={"GIT_INDEX_FILE": index})
    else:
        objects.remove_private(Path(index))
    present = [path for path in paths if _is_file(repo, path)]
    gone = set(paths).difference(present)
    objects.fill_index(git, index, ((path, ABSENT, repo.zero_id) for path in sorted(gone)))
    if present:
        stdin = b"".join(os.fsencode(path) + b"\0" for path in present)
        # Without --ignore-skip-worktree-entries git removes paths outside a sparse checkout from the index.
        result = git.probe(
            "update-index", "--ignore-skip-worktree-entries", "--add", "--replace", "-z", "--stdin",
            stdin=stdin, env={"GIT_INDEX_FILE": index},
        )  # fmt: skip
        if result.was_cut_off:
            raise GitError(f"git update-index failed: {result.words}")
        if result.code:
            raise NotStagedError(result.words)
    return objects.write_tree(git, index)


def _is_file(repo: Repo, path: str) -> bool:
    """Return whether there is a file or symlink; a directory in a file's place means that the file is gone."""
    found = find_stat(repo.root, path)
    return found is not None and not stat.S_ISDIR(found.st_mode)


def clean_files(
    repo: Repo, guarded: Guarded, head: str | None, files: Mapping[str, bytes]
) -> tuple[tuple[str, str, str], ...]:
    """Store given bytes, cleaned as the files at these paths would be; return tree entries with modes as in `head`."""
    at_head = objects.read_entries(repo, head, tuple(files)) if head else {}
    modes = {path: at_head.get(path, (FILE, "")) for path in files}
    return tuple(
        (path, modes[path][0], hash_cleaned(repo, guarded.git, path, data, modes[path][1]))
        for path, data in files.items()
    )


def hash_cleaned(repo: Repo, git: Git, path: str, data: bytes, old: str) -> str:
    """Store bytes as `git add` would store them in a file at `path` whose blob is `old`, and return the blob's id.

    Where line ends are converted without an attribute that asks for it, git leaves a file alone that was committed with
    CRLF before; ``hash-object`` does not know what was committed. Source: gitattributes(5), `text`.

    Args:
        git: Guarded.
        old: The blob at that path in the commit before; empty for none.
    """
    if b"\r\n" in data and old and b"\r\n" in objects.load_blob(repo, old) and _is_left_alone(git, path):
        return repo.store_object("blob", data)
    return objects.hash_bytes(git, data, filter_as=path)


def _is_left_alone(git: Git, path: str) -> bool:
    """Return whether nothing but git's guess at line ends would change a file's bytes."""
    said = git.run("check-attr", "-z", "text", "eol", *_OTHERS, "--", path).decode("utf-8", "replace").split("\0")
    found = dict(zip(said[1::3], said[2::3], strict=False))
    guessed = found["text"] == "auto" or found["text"] == found["eol"] == "unspecified"
    return guessed and all(found[name] == "unspecified" for name in _OTHERS)


LOCK_ATTEMPTS = 20
LOCK_PAUSE_S = 0.05
"""An editor that asks git for its status holds the index for a moment."""
_AT_ONCE = 100
"""Paths on one command line."""
_REFRESHED = frozenset({0, 1})
"""Exit codes of a refresh; 1: some file differs from the index, as the user may have it."""
_PENDING = "pending"
_ENTRY = re.compile(r"([0-9a-f]{40,64})(?::([0-9a-f]{40,64}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """An unfinished commit: the branch has it, but index and files may not."""

    commit: str
    old: str = ""
    """For a move of the whole work tree, the commit before it. Empty for a commit made from the work tree: its parent
    counts."""


def note_pending(repo: Repo, commit: str, parent: str | None, *, is_whole: bool = False) -> None:
    """Note an unfinished commit before the branch moves to it, since there may be no open attempt that says so.

    Commits noted earlier stay noted when `commit` is on top of them: the index may still be behind them.

    Args:
        commit: Where the branch goes.
        parent: Where it is; None on an unborn branch.
        is_whole: All files that differ between the two must be updated, not only those that relay writes.
    """
    entry = _Pending(commit=commit, old=parent if is_whole and parent else "")
    _write_pending(repo, [entry, *_find_earlier(_read_pending(repo), parent, inclusive=True)])


def withdraw_pending(repo: Repo, commit: str) -> None:
    """Remove a commit from the note: the branch was not moved to it."""
    earlier = _find_earlier(_read_pending(repo), commit)
    if earlier:
        _write_pending(repo, earlier)
    else:
        drop_pending(repo)


def drop_pending(repo: Repo) -> None:
    """Remove the note: index and files are up to date."""
    drop_note(repo, _PENDING)


def _write_pending(repo: Repo, pending: list[_Pending]) -> None:
    write_note(repo, _PENDING, "\n".join(f"{one.commit}:{one.old}" if one.old else one.commit for one in pending))


def _read_pending(repo: Repo) -> list[_Pending]:
    """Return the unfinished commits, newest first."""
    found = (_ENTRY.fullmatch(part) for part in read_note(repo, _PENDING).split())
    return [_Pending(commit=match[1], old=match[2] or "") for match in found if match]


def _find_earlier(pending: list[_Pending], commit: str | None, *, inclusive: bool = False) -> list[_Pending]:
    """Return the noted commits that are older than `commit`; empty if `commit` is not noted."""
    at = next((at for at, one in enumerate(pending) if one.commit == commit), None)
    return [] if at is None else pending[at + (not inclusive) :]


@contextlib.contextmanager
def hold_index(repo: Repo) -> Iterator[Repo]:
    """Keep every git of the user's from the index until the end of the block, in git's own way.

    A commit of the user's that has begun, and waits for its editor with the index in hand, would otherwise end as one
    that takes back what the branch has gained meanwhile.

    Yields:
        The repository, whose git has a copy of the index, which takes its place when the block ends. In a work tree of
        relay's own nothing is held.

    Raises:
        LockedError: Somebody else holds the index; nothing was changed.
    """
    index, lock = repo.git_dir / "index", repo.git_dir / "index.lock"
    if is_own_tree(repo) or not index.exists():
        yield repo
        return
    with declare_locks(repo, lock):
        _take_lock(lock)
        try:
            copy = objects.copy_index(repo, HELD)
            yield replace(repo, git=replace(repo.git, env={**repo.git.env, "GIT_INDEX_FILE": copy}))
            Path(copy).replace(index)
        finally:
            lock.unlink(missing_ok=True)


def _take_lock(lock: Path) -> None:
    for is_last in (*[False] * LOCK_ATTEMPTS, True):
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            if is_last:
                words = f"a git of yours holds {lock}: a commit with an open editor, say; if none runs, remove the file"
                raise LockedError(words) from None
            time.sleep(LOCK_PAUSE_S)
        else:
            return


def finish_pending(repo: Repo) -> tuple[str, ...]:
    """Finish commits whose relay was killed, or met a full disk or a held lock, after the commit point.

    Only while HEAD still is such a commit: once the user has moved HEAD, the index is the user's own.

    Args:
        repo: The repository; the caller holds the work tree's lock.

    Returns:
        One sentence per file, or for the index, that could not be updated; the next run tries again.
    """
    if not _read_pending(repo):
        return ()
    left = follow_pending(repo)
    if not left:
        drop_pending(repo)
    return left


def follow_pending(repo: Repo) -> tuple[str, ...]:
    """Do the same, and leave the note: the index may not be in its place yet (`hold_index`)."""
    if (text := _find_pending(repo)) is None:
        return ()
    if (moved := find_pending_move(repo)) is not None:
        return _finish_move(repo, moved)
    # Only the plan and its ledger are committed without having been in the work tree.
    plan = parse_path(text.get(PLAN))
    return finish_commit(repo, text.commit, dict.fromkeys((plan, find_ledger_path(plan)) if plan else ()))


def find_pending_move(repo: Repo) -> CommitText | None:
    """Return the commit at HEAD that files and index do not follow yet: commits of others.

    Its first parent is the commit that files and index are at, whatever it was made from. None without such a commit.
    """
    text = _find_pending(repo)
    if text is None:
        return None
    old = next(one.old for one in _read_pending(repo) if one.commit == text.commit)
    return replace(text, parents=(old,)) if old else None


def _find_pending(repo: Repo) -> CommitText | None:
    """Return the commit at HEAD if it is noted as unfinished."""
    commit = repo.head()
    return read_text(repo, commit) if commit and any(one.commit == commit for one in _read_pending(repo)) else None


def _finish_move(repo: Repo, moved: CommitText) -> tuple[str, ...]:
    """Update files and index from a commit's first parent to it.

    A file is written or removed only if it is exactly as before the move; that version is in the history.
    """
    found = _find_changes(repo, moved.commit, moved.parents)
    changes = [change for change in found if not change.is_submodule]
    removed = [change for change in changes if change.kind is ChangeKind.DELETED]
    # Remove files first: where a directory replaces a file, the name must be free.
    left = _remove_files(repo, removed)
    written = {change.path: None for change in changes if change.kind is not ChangeKind.DELETED}
    left += finish_commit(repo, moved.commit, written, since=moved.parents)
    for change in found:
        if change.is_submodule and change.kind is ChangeKind.ADDED:
            with contextlib.suppress(OSError), open_folder(repo.root, change.path.split("/"), create=True):
                pass  # as git does: without its directory a submodule counts as removed
    fsync_paths(repo.root, (change.path for change in removed))
    return left


def _remove_files(repo: Repo, changes: list[PathChange]) -> tuple[str, ...]:
    git = guard(repo).git
    left = []
    for change in changes:
        data = read_file(repo.root, change.path)
        if data is None:
            continue
        now = objects.find_blob_id(repo, data)
        if now != change.old_object_id and change.old_mode != SYMLINK:
            now = git.run("hash-object", f"--path={change.path}", "--stdin", stdin=data).decode().strip()
        if now == change.old_object_id:
            remove_file(repo.root, change.path)
        else:
            left.append(f"{change.path} was changed by somebody else and was left as it is")
    return tuple(left)


def finish_commit(
    repo: Repo,
    commit: str,
    replaced: Mapping[str, bytes | None],
    *,
    based_on: Mapping[str, bytes] | None = None,
    since: tuple[str, ...] | None = None,
) -> tuple[str, ...]:
    """Update the user's index and files to a commit that the branch already has.

    Idempotent; a resumed run calls it too if the run before died after the commit point. The index is first updated to
    earlier commits that are noted as unfinished, since it may still be at the state before them.

    Args:
        replaced: Paths whose bytes were committed without having been in the work tree (plan, ledger), with these
            bytes.
            None if they are no longer known: git's checked-out form is written then.
        based_on: The work tree's bytes at some of these paths when the new bytes were made, where they differ from the
            parent commit: a plan that the user had edited. The new bytes contain that edit, so it is written over.
        since: The commit that files and index are at, first of these; None for the parents of `commit`.

    Returns:
        One sentence per file, or for the index, that could not be updated, and why; empty when all is done.
    """
    parents = read_text(repo, commit).parents if since is None else since
    guarded = guard(repo)
    git = guarded.git
    # Write the files before the index: its refresh records how they look now.
    left: list[str] = []
    for is_first in (True, False):  # attributes say how the other files are checked out
        part = {path: data for path, data in replaced.items() if path.endswith(".gitattributes") is is_first}
        left += _project(repo, guarded, commit, parents, part, based_on or {})
    for earlier in reversed(_find_earlier(_read_pending(repo), commit)):
        parents_then = (earlier.old,) if earlier.old else read_text(repo, earlier.commit).parents
        behind = _find_changes(repo, earlier.commit, parents_then)
        if words := _refresh_index(repo, git, behind):
            return (*left, *words)  # each starts from the one before
    changes = _find_changes(repo, commit, parents)
    left += _refresh_index(repo, git, changes, known=based_on or {})
    fsync_paths(repo.root, (change.path for change in changes))
    return tuple(left)


def _find_changes(repo: Repo, commit: str, parents: tuple[str, ...]) -> tuple[PathChange, ...]:
    return objects.diff_trees(repo, parents[0] if parents else repo.empty_tree, commit)


def _project(
    repo: Repo,
    guarded: Guarded,
    commit: str,
    parents: tuple[str, ...],
    replaced: Mapping[str, bytes | None],
    based_on: Mapping[str, bytes],
) -> list[str]:
    """Write committed files to the work tree, unless a file has changed since the commit was prepared."""
    after = objects.read_entries(repo, commit, tuple(replaced))
    before = objects.read_entries(repo, parents[0], tuple(replaced)) if parents else {}
    unknown = {path: new for path, (mode, new) in after.items() if replaced[path] is None and mode != SYMLINK}
    checked_out = objects.check_out_all(guarded.git, unknown)
    left = []
    for path, (mode, new) in after.items():
        found = read_file(repo.root, path)
        raw = "" if found is None else objects.find_blob_id(repo, found)
        old_mode, old = before.get(path, (mode, ""))
        as_before = found is not None and raw == old
        given = replaced[path]
        if found is None or raw in {old, new}:  # what git stores of a blob's own bytes is that blob
            now = raw
        else:
            now = new if found == given else hash_cleaned(repo, guarded.git, path, found, old)
        if now == new and (mode == old_mode or find_mode(find_stat(repo.root, path)) != old_mode):
            continue
        # The file equals the commit before, cleaned or byte for byte, so overwriting it loses nothing.
        known = as_before or (found is not None and found == based_on.get(path))
        if now in {old, new} or known:
            # Where only the mode changed, a file that cleans to the same bytes keeps its own bytes.
            data = found if now == new and SYMLINK not in {mode, old_mode} else given
            if data is None:
                data = checked_out[path] if path in checked_out else objects.load_blob(repo, new)
            known = _put_file(repo, path, data, mode)
        if not known:
            left.append(f"{path} was changed by somebody else and was left as it is")
    return left


def bring_back(repo: Repo, tree: str, files: Mapping[str, tuple[str, bytes] | None]) -> None:
    """Bring files that a gate or a hook rewrote to the work tree; what somebody saved there meanwhile stays.

    Args:
        tree: The files as git has them, before.
        files: Path → mode and bytes; None for one that is gone.
    """
    git, before = guard(repo).git, objects.read_entries(repo, tree, tuple(files))
    for path, new in files.items():
        mode, old = before.get(path, (ABSENT, ""))
        there = read_file(repo.root, path)
        if mode == SYMLINK:
            now = objects.find_blob_id(repo, there or b"")
        else:
            now = "" if there is None else hash_cleaned(repo, git, path, there, old)
        if now != old:
            continue
        if new is None:
            remove_file(repo.root, path)
        else:
            _put_file(repo, path, new[1], new[0])


def _put_file(repo: Repo, path: str, data: bytes, mode: str) -> bool:
    """Write a file; return False if a directory is in its place, or something else in its directory's place."""
    try:
        replace_file(repo.root, path, data, mode)
    except OSError as error:
        if error.errno not in {errno.EISDIR, errno.ENOTDIR, errno.ELOOP}:
            raise
        return False
    return True


def _refresh_index(
    repo: Repo, git: Git, changes: tuple[PathChange, ...], known: Collection[str] = ()
) -> tuple[str, ...]:
    """Update the committed paths in the user's index; what the user staged of them stays staged.

    Args:
        known: Paths whose file is committed as the user left it: an earlier state of it in the index would take that
            back with the user's next commit.
    """
    # Sync the index too: if a power cut tears it, every git command in this work tree fails.
    durable = git.overruled((("core.fsync", "committed,index"),))
    staged = objects.read_index(git, [change.path for change in changes])
    behind = [
        change
        for change in changes
        if change.path in known
        or staged.get(change.path) == ((change.old_mode, change.old_object_id) if change.old_object_id else None)
    ]
    with declare_locks(repo, repo.git_dir / "index.lock"):
        result = _move_entries(repo, durable, behind)
    return (f"the index was not brought up to date: {result.words}",) if result.code else ()


def _move_entries(repo: Repo, git: Git, changes: list[PathChange]) -> GitResult:
    """Put the committed state of paths into the user's index; flags that hide a file from git's status stay."""
    new = {change.path: change for change in changes if change.mode != ABSENT}
    flagged = [entry for entry in read_flagged(repo) if entry.path in new]
    flagged = [replace(e, mode=new[e.path].mode, object_id=new[e.path].object_id) for e in flagged]
    kept = {entry.path for entry in flagged}
    entries = [(c.path, c.mode, c.object_id or repo.zero_id) for c in changes if c.path not in kept]
    # Remove entries first: where a directory replaces a file, the index cannot hold both.
    entries.sort(key=lambda entry: entry[1] != ABSENT)
    lines = b"".join(objects.render_entry(*entry) + b"\0" for entry in entries)
    result = _update_index(repo, git, "-z", "--index-info", stdin=lines)
    # Then record how the files look now: without that, git's plumbing takes the entry for a changed file.
    parts = [render_flagged(flagged[start : start + _AT_ONCE]) for start in range(0, len(flagged), _AT_ONCE)]
    for args in (*parts, ("-q", "--refresh")):
        result = result if result.code else _update_index(repo, git, *args)
    return result


def _update_index(repo: Repo, git: Git, *args: str, stdin: bytes = b"") -> GitResult:
    """Write the user's index, waiting a moment if another process holds its lock."""
    lock = repo.git_dir / "index.lock"
    result = git.probe("update-index", *args, stdin=stdin)
    # Git was killed, for example. It changed nothing, since renaming the lock is its last step.
    if result.code not in _REFRESHED and not lock.exists():
        result = git.probe("update-index", *args, stdin=stdin)
    # Git waits for a ref's lock by itself, but fails at once if the index's lock is held.
    for _ in range(LOCK_ATTEMPTS):
        if result.code in _REFRESHED or not lock.exists():
            break
        time.sleep(LOCK_PAUSE_S)
        result = git.probe("update-index", *args, stdin=stdin)
    return replace(result, code=0) if result.code in _REFRESHED else result

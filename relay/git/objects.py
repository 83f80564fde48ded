"""Read, write, compare and merge git objects with plumbing; show the difference of two trees as a patch and in lines.

Git asks a repository's merge drivers even for a merge that writes no file (measured with 2.39.5: a ``.gitattributes``
in the work tree and ``merge.<name>.driver`` in the configuration). `merge_commits` gives git a directory without
configuration, refs or attributes of its own: an attribute can then choose only built-in drivers (text, binary, union).
"""

import contextlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.tree import open_file, sync_directory
from relay.base.values import dataclass
from relay.git.command import Git, GitError
from relay.git.config_guard import guard
from relay.git.message import Message, render_message
from relay.git.names import quote_path, render_path
from relay.git.object_database import ask_about, compute_id, store_object
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.git.trees import (
    ABSENT,
    EXECUTABLE,
    FILE,
    GITLINK,
    TREE,
    find_entries,
    find_tree,
    is_plain_entry,
    write_changed_tree,
)
from relay.session.events import ChangedFile

RELAY_IDENTITY: Mapping[str, str] = {
    "GIT_AUTHOR_NAME": "relay",
    "GIT_AUTHOR_EMAIL": "relay@localhost",
    "GIT_COMMITTER_NAME": "relay",
    "GIT_COMMITTER_EMAIL": "relay@localhost",
}
"""Author of everything under ``refs/relay/``; never of a commit on a branch."""

_MOST_WORDS_BYTES = 100_000
"""Of paths, on one command line."""
_PART_BYTES = 1 << 20
_NO_TEXT = re.compile("[\udc80-\udcff]")

_GREP_S = 20.0
"""In a tree of 100,000 files the search takes 4 s on two cores."""
_KINDS = {"A": ChangeKind.ADDED, "M": ChangeKind.MODIFIED, "D": ChangeKind.DELETED, "T": ChangeKind.TYPE_CHANGED}


def read_blob(repo: Repo, rev: str, path: str) -> bytes | None:
    """Return the bytes of a file in the tree of `rev`; None when there is no such file."""
    entry = read_entries(repo, rev, (path,)).get(path)
    return load_blob(repo, entry[1]) if entry and entry[0] != GITLINK else None


def load_blob(repo: Repo, blob: str) -> bytes:
    """Return the bytes of a blob.

    Raises:
        GitError: There is no such blob.
    """
    found = repo.read_object(blob)
    return found[1] if found and found[0] == "blob" else repo.git.run("cat-file", "blob", blob)


def read_entries(repo: Repo, rev: str, paths: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return ``path: (mode, object id)`` for those of `paths` that are files in the tree of `rev`."""
    return {path: entry for path, entry in find_entries(repo, rev, paths).items() if entry[0].encode() != TREE}


def diff_trees(repo: Repo, a: str, b: str) -> tuple[PathChange, ...]:
    """Return the paths in which the trees (or commits) with the full ids `a` and `b` differ, sorted by name."""
    if a == b:
        return ()
    flags = ("-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-textconv")
    trees = f"{find_tree(repo, a)} {find_tree(repo, b)}"
    said, found, records = ask_about(repo.git, repo.common_dir, flags, trees).partition(f"{trees}\n".encode())
    if said or not found:
        records = repo.git.run("diff-tree", *flags, a, b, "--")  # says why
    fields = records.split(b"\0")
    pairs = zip(fields[0::2], fields[1::2], strict=False)
    return tuple(_parse_change(head.decode(), os.fsdecode(path)) for head, path in pairs)


def find_renames(repo: Repo, *revs: str) -> dict[str, str]:
    """Return ``old name: new name`` of files that a commit renamed, or that two trees or commits have renamed."""
    options = ("--raw", "-M", "--diff-filter=R", "--no-commit-id", "--no-ext-diff", "--no-textconv")
    fields = repo.git.run("diff-tree", "-r", "-z", *options, *revs, "--").split(b"\0")
    return dict(zip(map(os.fsdecode, fields[1::3]), map(os.fsdecode, fields[2::3]), strict=False))


def _parse_change(head: str, path: str) -> PathChange:
    # ``:old_mode new_mode old_id new_id letter``
    old_mode, mode, old_id, new_id, letter = head.removeprefix(":").split(" ")
    return PathChange(
        path=path,
        kind=_KINDS[letter[0]],
        mode=mode,
        old_mode=old_mode,
        object_id="" if letter == "D" else new_id,
        old_object_id="" if letter == "A" else old_id,
    )


def hash_files(git: Git, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the blob ids of regular files, as `git add` would store them, in order; nothing is stored.

    Raises:
        GitError: A file is gone or cannot be read.
    """
    if not paths:
        return ()
    # Quoted, since an unquoted newline ends a name and a carriage return at its end is dropped.
    stdin = "".join(f"{quote_path(path)}\n" for path in paths).encode()
    return tuple(git.run("hash-object", "--stdin-paths", stdin=stdin).decode().split())


def store_files(repo: Repo, paths: Iterable[str]) -> dict[str, str]:
    """Store the raw bytes of regular files; return ``path: blob id`` of those that are still there.

    The bytes come from open descriptors, not from names. Git follows links, and another program may put a
    link to the user's keys in a file's place at any moment: any command could then read the keys from the repository.

    Raises:
        GitError: A file cannot be stored.
        RepoError: A file cannot be read.
    """
    found: dict[str, str] = {}
    for path in paths:
        if (fd := open_file(repo.root, path)) is not None:
            with open(fd, "rb") as file:  # noqa: PTH123  # a descriptor
                # As large as it is now: a command may make it longer all the time.
                parts = (file.read(min(_PART_BYTES, left)) for left in range(os.fstat(fd).st_size, 0, -_PART_BYTES))
                found[path] = store_object(repo.git, repo.common_dir, "blob", parts)
    return found


def hash_bytes(git: Git, data: bytes, *, filter_as: str) -> str:
    """Store `data`, cleaned as the file at `filter_as` would be, and return the blob's id."""
    return git.run("hash-object", "-w", f"--path={filter_as}", "--stdin", stdin=data).decode().strip()


def check_out(git: Git, path: str, blob: str) -> bytes:
    """Return the bytes that a checkout writes for a blob at `path`: line ends and the user's filters are applied.

    Args:
        git: Guarded.
    """
    return git.run("cat-file", "--filters", f"--path={path}", blob)


def check_out_all(git: Git, blobs: Mapping[str, str]) -> dict[str, bytes]:
    """Do the same for the blobs at several paths, by one git."""
    if not blobs:
        return {}
    mark = secrets.token_hex(16)  # the size that git tells is that before the filters
    asked = b"".join(os.fsencode(f"{blob} {path}") + b"\0" for path, blob in blobs.items())
    said = git.run("cat-file", f"--batch={mark}", "--filters", "-z", stdin=asked).split(f"{mark}\n".encode())
    return {path: data[:-1] for path, data in zip(blobs, said[1:], strict=True)}


def find_blob_id(repo: Repo, data: bytes) -> str:
    """Return the blob id of `data`; nothing is stored."""
    return compute_id(repo.object_format, "blob", data)


def store_blobs(repo: Repo, contents: Iterable[bytes]) -> tuple[str, ...]:
    """Store blobs as they are and return their ids in order."""
    return tuple(repo.store_object("blob", data) for data in contents)


def check_out_entries(repo: Repo, git: Git, entries: Collection[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return entries of a commit's tree as a snapshot of its work tree has them, and store their blobs.

    Args:
        git: Guarded.
        entries: ``(path, mode, object id)``.
    """
    found = check_out_all(git, {path: blob for path, mode, blob in entries if mode in {FILE, EXECUTABLE}})
    blobs = dict(zip(found, store_blobs(repo, found.values()), strict=True))
    return [(path, mode, blobs.get(path, blob)) for path, mode, blob in entries]


def write_commit(repo: Repo, tree: str, parents: Iterable[str], message: Message | bytes) -> str:
    """Store an unsigned commit object of relay's own; nothing points to it yet."""
    text = render_message(message) if isinstance(message, Message) else message
    return write_unsigned(repo, tree, parents, text, RELAY_IDENTITY)


def write_unsigned(repo: Repo, tree: str, parents: Iterable[str], text: bytes, identity: Mapping[str, str]) -> str:
    """Store the commit that ``git commit-tree`` makes, with the local time; `identity` is cleaned by git already.

    Raises:
        GitError: It cannot be stored, or the text holds a NUL.
    """
    who, now = f"{identity['GIT_AUTHOR_NAME']} <{identity['GIT_AUTHOR_EMAIL']}>", render_now()
    written = f"author {who} {identity.get('GIT_AUTHOR_DATE', now)}", f"committer {who} {now}"
    lines = (f"tree {tree}", *(f"parent {parent}" for parent in parents), *written, "", "")
    data = (os.fsencode("\n".join(lines)) + text).decode(errors="surrogateescape")
    if "\0" in data:
        raise GitError("a commit's message holds a NUL byte, which git does not store")
    # As git does: a byte that is no UTF-8 is Latin-1.
    return repo.store_object("commit", _NO_TEXT.sub(lambda found: chr(ord(found[0]) - 0xDC00), data).encode())


def render_now() -> str:
    """Return the seconds since the epoch and the local time zone, as in a commit."""
    now = time.time()
    offset = time.localtime(now).tm_gmtoff // 60
    return f"{int(now)} {'-' if offset < 0 else '+'}{abs(offset) // 60:02d}{abs(offset) % 60:02d}"


def sync_objects(repo: Repo, commit: str, old: str | None) -> None:
    """Make the names of a commit's new objects survive a power cut.

    Git syncs an object's file but not its directory. ext4 writes the directory with the ref; other file systems promise
    nothing.
    """
    out = repo.git.run("rev-list", "--objects", "--no-object-names", commit, *((f"^{old}",) if old else ()))
    places = {name[:2] for name in (commit, *out.decode().split())}
    for place in (*sorted(places), "pack", "."):  # git makes a pack of one very large file
        if (folder := repo.common_dir / "objects" / place).is_dir():
            sync_directory(folder)


def fill_index(git: Git, index: str, entries: Iterable[tuple[str, str, str]]) -> None:
    """Put ``(path, mode, object id)`` into an index file; mode ``000000`` takes the path out."""
    lines = [render_entry(*entry) + b"\0" for entry in entries]
    if lines:
        stdin = b"".join(lines)
        git.run("update-index", "-z", "--index-info", stdin=stdin, env={"GIT_INDEX_FILE": index})


def render_entry(path: str, mode: str, object_id: str) -> bytes:
    """Return one line for ``update-index --index-info``, without its end."""
    return os.fsencode(f"{mode} {object_id}\t{path}")


def write_tree(git: Git, index: str) -> str:
    """Store the trees of an index file and return the root's id."""
    return git.run("write-tree", env={"GIT_INDEX_FILE": index}).decode().strip()


def write_files_tree(repo: Repo, files: Mapping[str, bytes], *, start: str | None = None) -> str:
    """Store regular files of these bytes, and a tree of them on top of a tree (or commit) `start`; return its id."""
    blobs = zip(files, store_blobs(repo, files.values()), strict=True)
    return write_paths_tree(repo, [(path, FILE, blob) for path, blob in blobs], start=start)


def write_paths_tree(repo: Repo, entries: Iterable[tuple[str, str, str]], *, start: str | None = None) -> str:
    """Store a tree of ``(path, mode, object id)``, on top of a tree (or commit) `start` or alone, and return its id.

    A path that git takes into no index, such as ``.git/config``, is left out.

    Raises:
        GitError: It cannot be stored.
    """
    entries = tuple(entries)
    odd = [entry for entry in entries if entry[1] != ABSENT and not is_plain_entry(*entry[:2])]
    if odd:  # git leaves names out that it never checks out
        index, git = repo.make_relay_dir() / "paths-index", private_git(guard(repo).git)
        remove_private(index)
        fill_index(git, str(index), odd)
        taken = git.run("ls-files", "-z", env={"GIT_INDEX_FILE": str(index)}).split(b"\0")
        remove_private(index)
        entries = tuple(entry for entry in entries if entry not in odd or os.fsencode(entry[0]) in taken)
    return write_changed_tree(repo, find_tree(repo, start) if start else repo.empty_tree, entries)


def read_index(git: Git, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return ``path: (mode, object id)`` of those of `paths` that the work tree's index holds, merged."""
    found: dict[str, tuple[str, str]] = {}
    fits = sum(len(os.fsencode(path)) + 1 for path in paths) <= _MOST_WORDS_BYTES
    for record in git.run("ls-files", "-z", "--stage", "--", *(paths if fits else ())).split(b"\0")[:-1]:
        head, _, name = record.partition(b"\t")
        mode, object_id, stage = head.decode().split(" ")
        if stage == "0":
            found[os.fsdecode(name)] = (mode, object_id)
    return {path: found[path] for path in paths if path in found}


def copy_index(repo: Repo, name: str) -> str:
    """Copy the user's index to a private one under relay's directory and return its path.

    The copy keeps the modification time: git compares it with the files' times to tell which entries it must not
    trust, and a newer index would hide a change made in the same instant as the last `git add`.
    """
    target = repo.make_relay_dir() / name
    remove_private(target)
    with contextlib.suppress(FileNotFoundError):
        source = os.open(repo.git_dir / "index", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(source, "rb") as own, target.open("wb") as copy:
            shutil.copyfileobj(own, copy, 1 << 20)
            found = os.fstat(source)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
    return str(target)


def remove_private(index: Path) -> None:
    """Remove a private index, and the lock that a killed git left next to it."""
    for file in (index, index.with_name(f"{index.name}.lock")):
        file.unlink(missing_ok=True)


def private_git(git: Git) -> Git:
    """Return git for writing private indexes: whole ones, since a shared part would land in the git directory."""
    return git.overruled((("core.splitIndex", "false"), ("core.untrackedCache", "keep")))


_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|\r(?!\n)"
)
"""Characters that end a line for a reader but not for git, or that hide or reorder text in a patch."""
MOST_FILES = 500
"""The most files to count; a larger commit is a move or a generated tree, whose lines nobody reads."""


def read_patch(
    repo: Repo, a: str, b: str, *, most_bytes: int, only: Collection[str] | None = None, turned: bool = False
) -> str:
    """Return the patch from the tree (or commit) `a` to `b`, file by file; no filter or program of a repository runs.

    Beyond `most_bytes` the remaining files are named instead, with the command that shows them. `only` limits the
    patch to some paths; `turned` turns the order of the files round.
    """
    shown: list[str] = []
    left: list[str] = []
    room = most_bytes
    changes = diff_trees(repo, a, b)
    for change in reversed(changes) if turned else changes:
        if only is not None and change.path not in only:
            continue
        data = guard(repo).git.run(
            "diff-tree", "-r", "-p", "--no-color", "--no-renames", "--no-ext-diff", "--no-textconv", "--full-index",
            a, b, "--", change.path,
        )  # fmt: skip
        if len(data) > room:
            left.append(f"{render_path(change.path)} ({change.kind}, {len(data):,} bytes)")
            continue
        room -= len(data)
        shown.append(_HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", data.decode(errors="replace")))
    if left:
        shown.append("Not shown, look at them in the work tree (git diff HEAD -- <file>):\n" + "\n".join(left))
    return "\n".join(shown)


def find_lines(repo: Repo, tree: str, words: Collection[str], *, most_per_file: int) -> str | None:
    """Return the lines of a tree's text files that hold one of these words; None if that takes too long or fails."""
    asked = [arg for word in words for arg in ("-e", word)]
    flags = ("-h", "-I", "-w", "-F", "--no-color", f"--max-count={most_per_file}")
    found = repo.git.probe("grep", *flags, *asked, tree, "--", timeout_s=_GREP_S)
    return found.out.decode(errors="replace") if found.code in {0, 1} else None


def count_lines(repo: Repo, commit: str) -> tuple[ChangedFile, ...]:
    """Return the line counts of a commit (by its id) against its first parent, by name; at most `MOST_FILES` files.

    Empty where git fails: the commit exists even if an old object is missing.
    """
    flags = (
        "--root", "--no-commit-id", "-r", "--diff-merges=first-parent", "-z", "--numstat", "--no-renames",
        "--no-ext-diff", "--no-textconv",
    )  # fmt: skip
    parts = ask_about(repo.git, repo.common_dir, flags, commit)
    rows = (row.split(b"\t", 2) for row in parts.split(b"\0")[:MOST_FILES] if row)
    return tuple(
        ChangedFile(path=os.fsdecode(path), added=_read_count(added), deleted=_read_count(deleted))
        for added, deleted, path in rows
    )


def _read_count(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


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
            ours = write_commit(repo, find_tree(repo, ours), (base,), b"relay: what is merged")
        git = replace(repo.git, place=(f"--git-dir={bare}", f"--work-tree={repo.root}"), settings=())
        args = ("merge-tree", "--write-tree", "-z", "--name-only", ours, theirs)
        result = git.probe(*args, env=_make_environ(repo))
        if result.was_cut_off:  # it takes more memory than any other, and nothing has come of it
            result = git.probe(*args, env=_make_environ(repo))
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

    Both are named by their ids. Git is asked once about two commits: they cannot change.
    """
    pair = repo.common_dir, min(one, other), max(one, other)
    if pair not in _bases:
        found = repo.git.ask("merge-base", one, other)
        if found is None:  # a clone without all of the history may get more of it
            return None
        _bases[pair] = found.decode()
    return _bases[pair]


_bases: dict[tuple[Path, str, str], str] = {}
"""By repository and pair of commits."""


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


def list_marks(repo: Repo, tree: str) -> frozenset[str]:
    """Return the files of a tree, or of a commit, that have conflict marks of `merge_commits`."""
    result = repo.git.probe("grep", "-l", "-z", "-a", "-E", "--no-textconv", "-e", _MARK, tree, "--")
    if result.code not in {0, 1}:
        raise GitError(f"git grep failed: {result.words}")
    return frozenset(os.fsdecode(name).removeprefix(f"{tree}:") for name in result.out.split(b"\0") if name)


_MARK = "^(<<<<<<<|>>>>>>>) [0-9a-f]{40,64}(:|$)"
"""git names the commits, and a file's former name behind them."""


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

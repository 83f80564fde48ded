"""Refs as git's plain files: what can be told without asking git. Whatever looks unusual is left to git.

One file holds one ref, ``packed-refs`` holds those that have none, HEAD names a branch after ``ref:``. Source:
gitrepository-layout(5). Refs in a reftable, symbolic ones and links are git's to read.
"""

import contextlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from relay.base.walk import read_bytes, sync_fd

_ID = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\n")
_HEAD = re.compile(rb"ref: (refs/heads/[^\x00-\x20\x7f]+)\n")
_SOUND = re.compile(r"(?!.*(\.\.|@\{|//|\./|\.lock(/|\Z)|[./]\Z))[^\x00-\x20\x7f~^:?*\[\\]+", re.DOTALL)
"""Source: git-check-ref-format(1)."""
_packed: dict[str, tuple[tuple[int, ...], bool]] = {}
"""Of files of packed refs: what each looked like, and whether it held a replacement then."""


def find_head_ref(git_dir: Path) -> str | None:
    """Return the full name of the branch that HEAD names; None when it names none, or only git can tell."""
    try:
        found = _HEAD.fullmatch(_read(git_dir / "HEAD") or b"")
    except OSError:
        return None
    name = os.fsdecode(found[1]) if found else ""
    return name if _is_ordinary(name) else None


def find_id(common_dir: Path, ref: str) -> str | None:
    """Return the object id that a ref (a full name, not HEAD) holds; empty without one, None when only git can tell."""
    if not _is_ordinary(ref) or (common_dir / "reftable").is_dir():
        return None
    try:
        data = _read(common_dir / ref)
        packed = _read(common_dir / "packed-refs") if data is None else None
    except OSError:
        return None
    if data is not None:
        found = _ID.fullmatch(data)
        return found[1].decode() if found else None
    if packed and not packed.endswith(b"\n"):
        return None
    before, there, _ = (packed or b"").partition(b" " + os.fsencode(ref) + b"\n")
    object_id = before.rpartition(b"\n")[2]
    return object_id.decode() if there and _ID.fullmatch(object_id + b"\n") else ""


def list_ids(common_dir: Path, *prefixes: str) -> dict[str, str] | None:
    """Return ``ref: object id`` for what is below each of `prefixes` (``refs/…/``), by name; None: only git can tell.

    Of a ref that is moved meanwhile it is what it was or what it is, as git has it too: files are read first.
    """
    if (common_dir / "reftable").is_dir():
        return None
    found: dict[str, str] = {}
    try:
        for ref in (ref for prefix in prefixes for ref in _walk(common_dir, prefix)):
            match = _ID.fullmatch(_read(common_dir / ref) or b"")
            if match is None:
                return None
            found[ref] = match[1].decode()
        packed = _read(common_dir / "packed-refs") or b""
    except OSError:
        return None
    if packed:  # each set of prefixes is a pattern to compile
        below = b"|".join(re.escape(os.fsencode(prefix)) for prefix in prefixes)
        for line in re.finditer(rb"^([0-9a-f]{40,64}) ((?:%s)[^\n]+)$" % below, packed, re.MULTILINE):
            found.setdefault(os.fsdecode(line[2]), line[1].decode())
    # Names and ids that git finds broken it says nothing of, or complains.
    if not all(_SOUND.fullmatch(ref) and _is_ordinary(ref) and found[ref].strip("0") for ref in found):
        return None
    return {ref: found[ref] for ref in sorted(found, key=os.fsencode)}


def _walk(common_dir: Path, prefix: str) -> Iterator[str]:
    """Yield the names of all files below a directory of refs but git's locks; a link is a file here.

    Raises:
        OSError: A directory cannot be read.
    """
    pending = [prefix.rstrip("/")]
    while pending:
        place = pending.pop()
        try:
            entries = list(os.scandir(common_dir / place))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{place}/{entry.name}")
            elif not entry.name.endswith(".lock"):
                yield f"{place}/{entry.name}"


def replace_id(common_dir: Path, ref: str, new: str, old: str, sync: Callable[[int], None] = sync_fd) -> bool:
    """Point a ref at `new` if it is at `old`, by git's own lock file, which is synced and becomes the ref's file.

    Args:
        common_dir: The git directory that all work trees share.
        ref: The full name.
        new: The id that it shall hold.
        old: The id that it must hold now; empty where there must be none, nor a ref above or below its name.
        sync: Waits until an open file is on the disk, and whatever `new` needs with it.

    Returns:
        False when the ref is not at `old`, another process holds the lock, or the file cannot be written; nothing
        has changed then.
    """
    file = common_dir / ref
    lock = file.with_name(f"{file.name}.lock")
    try:
        if not old:
            file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError:
        return False
    try:
        with os.fdopen(fd, "wb") as stream:
            # Compared under the lock: until it is held another git may move the ref.
            is_there = find_id(common_dir, ref) == old and (bool(old) or _is_free(common_dir, ref))
            if is_there:
                stream.write(f"{new}\n".encode())
                stream.flush()
                # Before the rename: after a power cut the ref could have its name and no content.
                sync(fd)
        if is_there:
            lock.replace(file)
            return True
    except OSError:
        pass
    except BaseException:
        lock.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):
        lock.unlink()
    return False


def remove_id(common_dir: Path, ref: str, old: str) -> bool:
    """Remove a ref if it is at `old`, as git does: nobody packs refs meanwhile, or it would be there again.

    Returns:
        False when the ref is not at `old`, or is packed, another process holds a lock, or the file cannot be removed;
        nothing has changed then.
    """
    file, packed = common_dir / ref, common_dir / "packed-refs"
    with contextlib.ExitStack() as locks:
        try:
            for one in (packed, file):
                lock = one.with_name(f"{one.name}.lock")
                os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
                locks.callback(lock.unlink, missing_ok=True)
            if os.fsencode(ref) in (_read(packed) or b"") or find_id(common_dir, ref) != old:
                return False
            file.unlink()
        except OSError:
            return False
    return True


def _is_free(common_dir: Path, ref: str) -> bool:
    """Return whether no packed ref's name is above or below this one; of a file, or of a directory, it is in the way.

    Raises:
        OSError: What is packed cannot be read.
    """
    parts = ref.split("/")
    above = b"|".join(re.escape(os.fsencode("/".join(parts[:end]))) for end in range(1, len(parts)))
    taken = rb"^[0-9a-f]{40,64} (?:(?:%s)$|%s/)" % (above, re.escape(os.fsencode(ref)))
    return not re.search(taken, _read(common_dir / "packed-refs") or b"", re.MULTILINE)


def has_replacements(common_dir: Path) -> bool:
    """Return whether git may show another object than the one that an id names: git-replace(1), and grafts."""
    if any(os.path.lexists(f"{common_dir}/{name}") for name in ("refs/replace", "info/grafts", "reftable")):
        return True
    packed = f"{common_dir}/packed-refs"
    try:
        found = os.stat(packed)  # noqa: PTH116  # for speed
        mark = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if _packed.get(packed, ((), False))[0] != mark:
            _packed[packed] = (mark, b" refs/replace/" in (_read(packed) or b""))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return _packed[packed][1]


def _is_ordinary(ref: str) -> bool:
    parts = ref.split("/")
    return parts[0] == "refs" and not any(part.startswith(".") or not part or "\n" in part for part in parts)


def _read(file: str | Path) -> bytes | None:
    """Return what is in a file; None when there is none, or a directory.

    Raises:
        OSError: It cannot be read, or is a link.
    """
    try:
        # A FIFO in a ref's place must not make relay wait, nor a link lead it elsewhere.
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            return None
        return read_bytes(fd, sys.maxsize) if stat.S_ISREG(mode) else b""
    finally:
        os.close(fd)

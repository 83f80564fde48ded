"""What a copied repository needs to be as git leaves one, and what is asked of one often, without a git for each."""

import hashlib
import struct
from pathlib import Path

FSCK = (
    "-c", "core.commitGraph=false", "-c", "core.multiPackIndex=false",
    "fsck", "--strict", "--no-dangling", "--no-progress",
)  # fmt: skip
"""What has git look through all objects, but for two kinds of files that are not there: a process less for each."""
_ENTRIES_AT, _STAT_BYTES, _NAME_AT, _ID_BYTES = 12, 40, 62, 20


def refresh_index(root: Path) -> None:
    """Do what ``git update-index --refresh`` does where no file has changed; the index is of version 2, with SHA-1."""
    index = root / ".git/index"
    data = bytearray(index.read_bytes()[:-_ID_BYTES])
    magic, version, count = struct.unpack_from(">4sII", data)
    assert (magic, version) == (b"DIRC", 2)
    at = _ENTRIES_AT
    for _ in range(count):
        end = data.index(0, at + _NAME_AT)
        of = (root / data[at + _NAME_AT : end].decode()).lstat()
        times = (part for ns in (of.st_ctime_ns, of.st_mtime_ns) for part in divmod(ns, 1_000_000_000))
        found = (*times, of.st_dev, of.st_ino, of.st_mode, of.st_uid, of.st_gid, of.st_size)
        struct.pack_into(">10I", data, at, *(number & 0xFFFFFFFF for number in found))
        at += (end - at + 8) & ~7
    index.write_bytes(data + hashlib.sha1(data, usedforsecurity=False).digest())


def find_loose_head(git_dir: Path) -> str:
    """Return the commit of a branch that git has just written; empty where HEAD is no branch or lies elsewhere."""
    head = git_dir / "HEAD"
    branch = git_dir / head.read_text().removeprefix("ref: ").strip() if head.is_file() else head
    return branch.read_text().strip() if branch != head and branch.is_file() else ""

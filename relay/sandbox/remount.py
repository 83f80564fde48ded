"""Mounts paths in the namespaces of a sandbox that runs, and ends.

relay runs this file as a program, `python -I -S remount.py INIT WORD…`, with the sandbox's init process. It imports
little of the standard library and nothing else: the sandbox is frozen meanwhile. The words:

read=PATH    make a path read-only
write=PATH   make a path a mount point, so that nobody inside renames it
hide=PATH    put the null device over a file
empty=PATH   put an empty directory over a directory

What a sandbox sees at a path is mounted over the path itself: bind mounts of relay's own view would need rights in
relay's namespaces, which an ordinary user lacks. The paths are opened without following a link, and used by their
descriptors. bubblewrap and mount(8) can do none of this in a namespace that exists; nsenter(1) resolves paths, and a
command in another sandbox could change them meanwhile.

The numbers are those of `linux/nsfs.h`, `linux/mount.h` and `linux/openat2.h` (Linux 5.12); calls from 424 on have one
number on every architecture.
"""

import ctypes
import fcntl
import os
import struct
import sys

FAILED = 125
"""Exit code if something could not be mounted."""

_GET_OWNER = 0xB701  # NS_GET_USERNS
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 437, 442
_AT_CWD, _EMPTY_PATH = -100, 0x1000
_NO_SYMLINKS = 0x04  # RESOLVE_NO_SYMLINKS
_CLONE_TREE, _CREATE_FS, _BY_DESCRIPTORS = 1, 6, 0x04 | 0x40
_READ_ONLY, _NO_SETUID, _NO_DEVICES = 1, 2, 4

_LIBRARY = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: int | bytes | None) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return _check(_LIBRARY.syscall(ctypes.c_long(number), *words))


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _enter(init: int) -> None:
    """Enter the mount namespace of a process, with the rights of whoever made it."""
    mounts = os.open(f"/proc/{init}/ns/mnt", os.O_RDONLY)
    _check(_LIBRARY.setns(fcntl.ioctl(mounts, _GET_OWNER), _NEW_USER))
    _check(_LIBRARY.setns(mounts, _NEW_MOUNTS))


def _open(path: str) -> int:
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _NO_SYMLINKS)
    return _call(_OPENAT2, _AT_CWD, os.fsencode(path), how, len(how))


def _make_empty() -> int:
    memory = _call(_FSOPEN, b"tmpfs", 1)
    _call(_FSCONFIG, memory, _CREATE_FS, None, None, 0)
    return _call(_FSMOUNT, memory, 1, _READ_ONLY | _NO_SETUID | _NO_DEVICES)


def _mount(kind: str, path: str) -> None:
    place = _open(path)
    if kind == "empty":
        tree = _make_empty()
    else:
        source = _open(os.devnull) if kind == "hide" else place
        tree = _call(_OPEN_TREE, source, b"", _CLONE_TREE | _EMPTY_PATH | os.O_CLOEXEC)
    if kind in ("read", "hide"):
        wanted = struct.pack("=QQQQ", _READ_ONLY, 0, 0, 0)
        _call(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, wanted, len(wanted))
    _call(_MOVE_MOUNT, tree, b"", place, b"", _BY_DESCRIPTORS)


def main(arguments: list[str]) -> None:
    """Mount what the words say, in their order.

    Raises:
        OSError: Something could not be mounted.
    """
    init, *words = arguments
    _enter(int(init))
    for word in words:
        kind, _, path = word.partition("=")
        try:
            _mount(kind, path)
        except FileNotFoundError:
            continue  # removed meanwhile; whoever makes it again is seen


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        os.write(2, f"{error}\n".encode())
        sys.exit(FAILED)

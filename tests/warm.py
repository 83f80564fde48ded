"""A relay forked by `starter.py` for a test that waits for it: `caller.py` without its process."""

import array
import contextlib
import marshal
import os
import selectors
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.caller import read_number


def run_relay(
    place: str, args: Sequence[str], *, cwd: Path, environ: Mapping[str, str], answer: str
) -> subprocess.CompletedProcess[str]:
    """Run the whole program at a directory, asked for at a socket, with `answer` on its standard input."""
    done = run_bytes(place, args, cwd=cwd, environ=environ, answer=answer.encode())
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_bytes(
    place: str, args: Sequence[str], *, cwd: Path, environ: Mapping[str, str], answer: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Do the same for what prints whatever bytes."""
    request = {
        "args": list(args),
        "cwd": str(cwd),
        "environ": dict(environ),
        "parent": os.getpid(),
        "errors": "surrogateescape",  # as it is where the locale is C.UTF-8
        "umask": _read_umask(),
        "ignored": [],
    }
    data = marshal.dumps(request)
    stdin, writing = os.pipe()
    out, stdout = os.pipe()
    err, stderr = os.pipe()
    with os.fdopen(writing, "wb") as writer:
        writer.write(answer)  # less than a pipe holds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(place)
        streams = array.array("i", [stdin, stdout, stderr])
        connection.sendmsg([len(data).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        connection.sendall(data)
        for fd in streams:
            os.close(fd)
        read_number(connection)
        printed = _read_all(out, err)
        code = read_number(connection)
    return subprocess.CompletedProcess(("relay", *args), code, *printed)


def find_relay(root: Path) -> int:
    """Return the process of a warm relay that is at work in a directory; who asked for it ends before it does."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(root) == str((folder / "cwd").readlink()) and "starter.py" in (folder / "cmdline").read_text():
                return int(folder.name)
    raise AssertionError(f"no relay is at work in {root}")


def _read_all(*places: int) -> tuple[bytes, ...]:
    """Read pipes until nobody holds their other ends, and close them."""
    found = dict.fromkeys(places, b"")
    with selectors.DefaultSelector() as watched:
        for fd in places:
            watched.register(fd, selectors.EVENT_READ)
        while watched.get_map():
            for key, _ in watched.select():
                part = os.read(key.fd, 1 << 16)
                found[key.fd] += part
                if not part:
                    watched.unregister(key.fd)
                    os.close(key.fd)
    return tuple(found.values())


def _read_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask

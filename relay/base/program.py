"""Run a program of the user's, outside of the sandbox, with a limit on its time and on what is kept of its output."""

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from relay.base.values import dataclass

_LOOK_S = 0.1
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    code: int | None
    """-N if signal N killed it; None if it did not end in time and was killed with all that it had started."""
    out: bytes
    """The beginning of its output, at most `most_bytes`."""
    err: bytes


def run_program(
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | Path | None,
    limit_s: float,
    stdin: bytes = b"",
    most_bytes: int,
) -> Ended:
    """Run a program in a process group of its own until it ends.

    Nobody waits for a process that it leaves behind, even if that holds its output open, and nobody kills it.

    Args:
        cwd: None: relay's own.
        most_bytes: What is kept of each output; 0: they go nowhere.

    Raises:
        OSError: It cannot be started.
        ValueError: A word cannot be an argument.
    """
    pipe = subprocess.PIPE if most_bytes else subprocess.DEVNULL
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        with subprocess.Popen(
            words, stdin=given, stdout=pipe, stderr=pipe, cwd=cwd, env=env, start_new_session=True
        ) as child:
            heard = [(stream.fileno(), bytearray()) for stream in (child.stdout, child.stderr) if stream]
            has_ended = False
            try:
                has_ended = _hear(child, dict(heard), time.monotonic() + limit_s, most_bytes)
            finally:
                if not has_ended:  # also where a signal ends the wait
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
    out, err = (bytes(text) for _, text in heard or ((0, b""), (0, b"")))
    return Ended(code=child.returncode if has_ended else None, out=out, err=err)


def _hear(child: "subprocess.Popen[bytes]", heard: Mapping[int, bytearray], until: float, most_bytes: int) -> bool:
    """Collect the outputs of a program; return whether it ended in time."""
    with selectors.DefaultSelector() as selector:
        for number in heard:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map():
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            has_ended = child.poll() is not None
            ready = selector.select(0 if has_ended else min(left_s, _LOOK_S))
            if has_ended and not ready:
                return True
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                heard[key.fd] += chunk[: most_bytes - len(heard[key.fd])]
                if not chunk:
                    selector.unregister(key.fd)
    try:
        child.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:  # it has closed its outputs, and goes on
        return False
    return True

"""A command at the user's terminal, which it does not get: it has its own, and relay carries what is typed and shown.

With the user's own a command could put words into it that the user's shell would run.
"""

import contextlib
import fcntl
import os
import pty
import select
import signal
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK_BYTES = 64 * 1024
_END_OF_FILE = b"\x04"


@contextmanager
def lend_terminal(user_fd: int, shown_fd: int) -> Iterator[int]:
    """Make a terminal of the same size and modes, carry its traffic, and put the user's back in order.

    Args:
        user_fd: Where is typed.
        shown_fd: Where is shown.

    Yields:
        The end for the command.
    """
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(user_fd)
    termios.tcsetattr(theirs, termios.TCSANOW, before)
    _copy_size(user_fd, ours)
    told = signal.signal(signal.SIGWINCH, lambda *_: _copy_size(user_fd, ours))
    over, done = os.pipe()
    carrier = threading.Thread(target=_carry, args=(user_fd, shown_fd, ours, over), name="terminal", daemon=True)
    tty.setraw(user_fd, termios.TCSANOW)
    carrier.start()
    try:
        yield theirs
    finally:
        os.close(theirs)  # the last one: what is left to show comes, then the end
        os.close(done)
        carrier.join()
        termios.tcsetattr(user_fd, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, told)
        for fd in (ours, over):
            os.close(fd)


def _copy_size(source: int, target: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8))


def _carry(typed: int, shown: int, ours: int, over: int) -> None:
    """Carry both ways until the command's side is closed; what is typed only until the command is `over`."""
    sources = {typed, ours, over}
    while True:
        ready, _, _ = select.select(sources, (), ())
        try:
            if ours in ready:
                if not (chunk := os.read(ours, _CHUNK_BYTES)):
                    return
                _write_all(shown, chunk)
        except OSError:  # EIO: nobody has the other end open any more
            return
        if over in ready:
            sources -= {typed, over}
        elif typed in ready:
            chunk = os.read(typed, _CHUNK_BYTES)
            if not chunk:
                sources.discard(typed)
            _write_all(ours, chunk or _END_OF_FILE)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]

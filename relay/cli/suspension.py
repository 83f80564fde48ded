"""Ctrl-Z: whoever stops relay gets the terminal's cursor back until it goes on."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

_SHOW, _HIDE = b"\x1b[?25h", b"\x1b[?25l"


@contextmanager
def showing_cursor(stream: TextIO) -> Iterator[None]:
    """Show the cursor of a terminal, which the body hides, while the program is stopped."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTSTP) != signal.SIG_DFL:
        yield
        return

    def write(data: bytes) -> None:
        with suppress(OSError, ValueError):
            os.write(stream.fileno(), data)

    def stop(number: int, _frame: FrameType | None) -> None:
        write(_SHOW)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # stopped here
        signal.signal(number, stop)
        write(_HIDE)

    signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)

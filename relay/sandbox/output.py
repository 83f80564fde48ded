"""A command's output: a bounded part of the stream (head, tail and a capped copy on disk), and as printable text."""

import os
import re
from pathlib import Path

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render_output(data: bytes) -> str:
    """Decode UTF-8 (other bytes become U+FFFD), without escape sequences and control characters.

    Of a line that was overwritten with carriage returns (progress bars) only the last state is kept. Tabs and line
    feeds stay.
    """
    text = _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", text)


END_BYTES = 1024


def _make(file: Path) -> int:
    """Open a new file for an output, or an old one anew; a link in its place is not followed."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def keep_output(file: Path, output: bytes) -> bool:
    """Write an output that was whole in memory; say whether it is kept."""
    try:
        with os.fdopen(_make(file), "wb") as stream:
            stream.write(output)
    except OSError:
        return False
    return True


class Capture:
    """Takes a stream chunk by chunk; memory stays below twice `keep_bytes`, and a little for the end.

    Args:
        keep_bytes: Size of head and tail together.
        spool: File that gets the stream from its start, once that is not whole in memory; None for no copy. Where
            nothing is kept in memory it is there at once.
        spool_bytes: Most that is written to `spool`.
    """

    def __init__(self, *, keep_bytes: int, spool: Path | None, spool_bytes: int) -> None:
        self._head_bytes = keep_bytes // 2
        self._tail_bytes = keep_bytes - self._head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._spool_left = spool_bytes
        self._spool_fd: int | None = None
        self.total_bytes = 0
        self.notes: tuple[str, ...] = ()
        """A sentence for each thing that went wrong with the copy on disk; empty when nothing did."""
        self._spool = spool
        if not self._head_bytes:
            self._open()

    def _open(self) -> None:
        spool, self._spool = self._spool, None
        if spool is None:
            return
        try:
            self._spool_fd = _make(spool)
        except OSError as error:
            self.notes += (f"the full output was not kept: {error}",)

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total_bytes += len(chunk)
        if self._spool is not None and self.total_bytes > self._head_bytes:
            self._open()
            self._copy(self._head)  # all that came so far
        self._copy(chunk)
        room = self._head_bytes - len(self._head)
        self._head += chunk[:room] if room > 0 else b""
        self._tail += chunk[room:] if room > 0 else chunk
        # Cut at twice the size: cutting at every chunk would copy the tail every time.
        kept = max(self._tail_bytes, END_BYTES)
        if len(self._tail) > 2 * kept:
            del self._tail[:-kept]

    def _copy(self, chunk: bytes | bytearray) -> None:
        if self._spool_fd is None or self._spool_left <= 0:
            return
        part = memoryview(chunk)[: self._spool_left]
        try:
            while part:
                written = os.write(self._spool_fd, part)
                self._spool_left -= written
                part = part[written:]
        except OSError as error:
            self.notes += (f"the full output was kept only in part: {error}",)
            self.close()

    def close(self) -> None:
        """Close the copy on disk; harmless when repeated."""
        if self._spool_fd is not None:
            os.close(self._spool_fd)
            self._spool_fd = None

    def get_end(self) -> bytes:
        """Return the last bytes that came, `END_BYTES` at most."""
        return bytes((self._head[-END_BYTES:] + self._tail[-END_BYTES:])[-END_BYTES:])

    def render(self) -> bytes:
        """Return head and tail, with a line between them that says how much is missing."""
        tail = bytes(self._tail[-self._tail_bytes :]) if self._tail_bytes else b""
        cut = self.total_bytes - len(self._head) - len(tail)
        if not cut:
            return bytes(self._head) + tail
        return bytes(self._head) + b"\n[relay: %d bytes of output cut here]\n" % cut + tail

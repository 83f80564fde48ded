"""relay's own Unix sockets outside a sandbox, and the record of the hosts that commands asked for.

A thread serves each connection. A `Door` of the sandbox leads to each socket.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from relay.base.values import dataclass

NETWORK = "`network = { hosts = [...] }`"
"""The setting that names hosts for commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """A host that a command asked for."""

    host: str
    """As it was asked for, with its port where that is not 443; what cannot be a name is cut and made printable."""
    refused: str = ""
    """Why it was not let through; empty when it was."""

    @property
    def words(self) -> str:
        """A sentence for whoever ran the command."""
        return f"{self.host} was refused: {self.refused}" if self.refused else f"{self.host} was reached"


MOST_INQUIRIES = 10_000
"""Of one run; a command that asks for more is not told about the rest."""


class Inquiries:
    """All that was asked for, in order. Mutable: threads write it, the run reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: list[Inquiry] = []
        self._told = 0
        self._taken = 0

    def note(self, asked: Inquiry) -> None:
        """Take one down."""
        with self._lock:
            if len(self._asked) < MOST_INQUIRIES:
                self._asked.append(asked)

    def take_refusals(self) -> tuple[str, ...]:
        """Return a sentence for each host that was refused since this was called last, for who runs commands."""
        with self._lock:
            new = self._asked[self._told :]
            self._told = len(self._asked)
        return tuple(dict.fromkeys(asked.words for asked in new if asked.refused))

    def take(self) -> tuple[Inquiry, ...]:
        """Return all that was asked for since this was called last, for who keeps the log."""
        with self._lock:
            new = tuple(self._asked[self._taken :])
            self._taken = len(self._asked)
        return new


MOST = 128
"""Connections at once, where nothing else is said."""
IDLE_S = 3600.0
"""A connection that says nothing in one direction for so long is closed."""
_CHUNK_BYTES = 64 * 1024
_WAITING = 64

Serve = Callable[[socket.socket], object]
"""Serves one connection to its end, on a thread of its own; whoever calls closes it."""


@contextmanager
def listen(place: Path, serve: Serve, most: int = MOST) -> Iterator[None]:
    """Serve every connection to a new socket until the block ends. Nothing of it keeps relay from ending.

    Args:
        most: Connections at once; further ones wait.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place))
        listener.listen(_WAITING)
        _start_serving(listener, serve, most)
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # else whoever waits at it would never know


def _start_serving(listener: socket.socket, serve: Serve, most: int) -> None:
    free = threading.BoundedSemaphore(most)

    def attend(peer: socket.socket) -> None:
        try:
            with peer, contextlib.suppress(OSError):  # the other side has gone
                serve(peer)
        finally:
            free.release()

    def accept() -> None:
        while True:
            free.acquire()
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=attend, args=(peer,), name="door", daemon=True).start()

    threading.Thread(target=accept, name="doors", daemon=True).start()


def carry(one: socket.socket, other: socket.socket) -> None:
    """Carry both directions, each to its own end."""
    for end in (one, other):
        end.settimeout(IDLE_S)
        if end.family != socket.AF_UNIX:  # or what is said last waits 40 ms for the receipt of what was said before it
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_pump, args=(other, one), name="door back", daemon=True)
    back.start()
    _pump(one, other)
    back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(_CHUNK_BYTES):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            with contextlib.suppress(OSError):  # it has ended
                end.shutdown(socket.SHUT_RDWR)


def dial_loopback(port: int) -> Serve:
    """Return what carries connections to a port of this machine's loopback, in either family."""

    def serve(peer: socket.socket) -> None:
        for host in ("127.0.0.1", "::1"):
            try:
                server = socket.create_connection((host, port), timeout=IDLE_S)
            except OSError:
                continue  # nobody listens there
            with server:
                carry(peer, server)
            return

    return serve

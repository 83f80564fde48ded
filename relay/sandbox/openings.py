"""Ways out of a sandbox: ports of this machine, and an HTTPS proxy to the hosts that the user allowed.

Otherwise a command has an empty network of its own. relay serves a Unix socket outside the sandbox for each opening, a
thread for each connection; `inside.py` forwards a port inside to it.

The proxy connects commands to allowed hosts only. It resolves names itself and dials the address that it checked, so
that no answer of a name server leads into a private network. It opens port 443 only. The first bytes must be a TLS
greeting for the requested host, because one address of a large provider serves many hosts. The proxy does not read the
rest. h11 reads the request, which is hostile input. proxy.py, the one maintained library for this, resolves names where
a plug-in cannot check them, and is ten times the code that is needed here.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from relay.base.values import dataclass
from relay.config.network import EVERY, is_name
from relay.sandbox.policy import Opening
from relay.sandbox.private_folder import PrivateDir
from relay.session.events import HostAsked

if TYPE_CHECKING:
    import ssl

    import h11


NETWORK = "`network = { hosts = [...] }`"
"""The setting that names hosts for commands."""


MOST_INQUIRIES = 10_000
"""Kept in one run; a command that asks for more is not told about the rest."""


class Inquiries:
    """The hosts that were asked for, in order. Mutable: threads add to it, and the run alone reads it."""

    def __init__(self) -> None:
        self._asked: list[HostAsked] = []
        self._told = 0
        self._taken = 0

    def note(self, asked: HostAsked) -> None:
        """Add a host."""
        if len(self._asked) < MOST_INQUIRIES:
            self._asked.append(asked)

    def take_refusals(self) -> tuple[str, ...]:
        """Return a sentence for each host refused since the last call, for the command's result."""
        new = self._asked[self._told :]
        self._told += len(new)
        return tuple(dict.fromkeys(f"{one.host} was refused: {one.refused}" for one in new if one.refused))

    def take(self) -> tuple[HostAsked, ...]:
        """Return the hosts asked for since the last call, for the log."""
        new = tuple(self._asked[self._taken :])
        self._taken += len(new)
        return new


MOST = 128
"""Default limit of simultaneous connections."""
IDLE_S = 3600.0
"""A connection that is silent in one direction for so long is closed."""
_CHUNK_BYTES = 64 * 1024
_WAITING = 64

Serve = Callable[[socket.socket], object]
"""Serves one connection to its end, on a thread of its own; the caller closes it."""


@contextmanager
def listen(place: Path, serve: Serve, most: int = MOST) -> Iterator[None]:
    """Serve every connection to a new socket until the block ends; its threads do not keep relay from exiting.

    Args:
        most: Simultaneous connections; further ones wait.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place))
        serve_connections(listener, serve, most)
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # else the accepting thread would wait for ever


def serve_connections(listener: socket.socket, serve: Serve, most: int = MOST) -> None:
    """Serve every connection to a socket that has its address, until the socket is shut down; as `listen`."""
    listener.listen(_WAITING)
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
            threading.Thread(target=attend, args=(peer,), name="opening", daemon=True).start()

    threading.Thread(target=accept, name="openings", daemon=True).start()


def carry(one: socket.socket, other: socket.socket) -> None:
    """Forward both directions of a connection, each to its own end."""
    for end in (one, other):
        end.settimeout(IDLE_S)
        if end.family != socket.AF_UNIX:  # else the last bytes wait 40 ms for the receipt of the bytes before them
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_pump, args=(other, one), name="opening back", daemon=True)
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
    """Return a function that forwards a connection to a port of this machine's loopback, by IPv4 or IPv6."""

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


PROXY_PORT = 30128
"""Port of the proxy on the sandbox's loopback, below the ports that the kernel hands out by itself."""
_AROUND = "localhost,127.0.0.1,::1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Openings that relay serves, and the hosts that were asked for through them."""

    openings: tuple[Opening, ...] = ()
    inquiries: Inquiries = field(default_factory=Inquiries)


@contextmanager
def serve_openings(hosts: Sequence[str], ports: Sequence[int], setting: str = NETWORK) -> Iterator[Opened]:
    """Serve a proxy to hosts, and ports of this machine's loopback, until the block ends.

    Args:
        hosts: Patterns, see `relay.config.network`; without any there is no proxy.
        ports: Ports of this machine; commands use the same numbers on the sandbox's loopback.
        setting: The setting that names the hosts, for refusals.
    """
    inquiries = Inquiries()
    if not hosts and not ports:
        yield Opened(inquiries=inquiries)
        return
    with closing(PrivateDir()) as private, ExitStack() as stack:
        openings = []
        for port in ports:
            words = f"commands reach port {port} of this machine's loopback, and whatever listens there (network)"
            place = private.path / str(port)
            openings.append(Opening(name=f"localhost-{port}", socket=place, port=port, description=words))
            stack.enter_context(listen(place, dial_loopback(port)))
        if hosts:
            named, place = "every public host" if EVERY in hosts else ", ".join(hosts), private.path / "proxy"
            words = (
                f"commands reach {named} by HTTPS, through relay's proxy: what they read they can send there (network)"
            )
            env = render_proxy_env(PROXY_PORT)
            openings.append(
                Opening(name="proxy", socket=place, port=PROXY_PORT, env=env, hosts=True, description=words)
            )
            proxy = Proxy(hosts=frozenset(hosts), note=inquiries.note, setting=setting)
            stack.enter_context(listen(place, proxy.serve))
        yield Opened(openings=tuple(openings), inquiries=inquiries)


def render_proxy_env(port: int) -> tuple[tuple[str, str], ...]:
    """Return the variables by which programs find a proxy on the loopback.

    curl, git, pip, uv, poetry, cargo, go, npm, pnpm, bun and most HTTP libraries read them. Node's own `fetch` needs
    NODE_USE_ENV_PROXY. Java programs read none.
    """
    address = f"http://127.0.0.1:{port}"
    named = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "YARN_HTTPS_PROXY"), address)
    return tuple({**named, "NO_PROXY": _AROUND, "no_proxy": _AROUND, "NODE_USE_ENV_PROXY": "1"}.items())


_EXAMPLES = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
"""Networks for documentation (RFC 5737): not routed, and nobody's private network either."""
_UNICAST = "2000::/3"
"""The IPv6 addresses that are handed out for the internet (RFC 4291); NAT64 and its like lie outside."""
_TUNNELS = ("2002::/16", "2001::/32")
"""IPv6 addresses that hold an IPv4 address, to which a gateway forwards: 6to4, Teredo."""


def is_named(host: str, patterns: Collection[str]) -> bool:
    """Return whether patterns allow a host. `*.example.org` does not allow example.org itself."""
    above = (f"*.{host[at + 1 :]}" for at, letter in enumerate(host) if letter == ".")
    return EVERY in patterns or host in patterns or any(pattern in patterns for pattern in above)


def is_public(address: str) -> bool:
    """Return whether an address is of the public internet: no loopback, private, link-local or special net."""
    import ipaddress  # this module is imported where no proxy is opened, and parsing HTTP and TLS takes 30 ms

    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        inside = [net for net in (_UNICAST, *_TUNNELS) if found in ipaddress.IPv6Network(net)]
        if found.scope_id is not None or inside != [_UNICAST]:
            return False
    elif any(found in ipaddress.IPv4Network(net) for net in _EXAMPLES):
        return True
    return found.is_global and not found.is_multicast


PORT = 443
DIAL_S = 20.0
REQUEST_S = 20.0
"""Time for a request, and then for the TLS greeting."""
_MOST_REQUEST_BYTES = 8 * 1024
_MOST_HELLO_BYTES = 32 * 1024


Resolve = Callable[[str], Sequence[str]]
"""The addresses of a host, in order of preference. Raises OSError where there are none."""
Dial = Callable[[str, int], socket.socket]
"""A connection to an address and a port. Raises OSError."""


def resolve(host: str) -> Sequence[str]:
    """Resolve a name by the machine's resolver."""
    found = socket.getaddrinfo(host, PORT, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def dial(address: str, port: int) -> socket.socket:
    """Connect to a numeric address, which is not resolved again."""
    return socket.create_connection((address, port), timeout=DIAL_S)


class _RefusedError(Exception):
    """The proxy refuses a request; the message says why."""

    def __init__(self, words: str, *, host: str = "", status: int = 403) -> None:
        super().__init__(words)
        self.host = host
        self.status = status
        """0: the tunnel is open, so the proxy cannot answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """Serves CONNECT requests."""

    hosts: Collection[str]
    """Patterns, see `is_named`."""
    note: Callable[[HostAsked], None]
    """Called with every request, on the thread that serves it."""
    setting: str = NETWORK
    """The setting in which the user names hosts, for refusals."""
    resolve: Resolve = resolve
    dial: Dial = dial

    def serve(self, peer: socket.socket) -> None:
        """Serve one connection to its end."""
        try:
            host, early = self._read(peer)
            with self._reach(host) as server:
                peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                hello = _read_hello(peer, early, host)
                self.note(HostAsked(host=host, refused=""))
                if hello:
                    server.sendall(hello)
                    carry(peer, server)
        except _RefusedError as refusal:
            if refusal.host:
                self.note(HostAsked(host=refusal.host, refused=str(refusal)))
            if refusal.status:
                body = f"relay: {refusal.host}: {refusal}\n".encode()
                head = f"HTTP/1.1 {refusal.status} Refused by relay\r\nContent-Type: text/plain\r\n"
                head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                with contextlib.suppress(OSError):
                    peer.sendall(head.encode() + body)

    def _read(self, peer: socket.socket) -> tuple[str, bytes]:
        """Return the requested host, which is allowed, and the bytes behind the request."""
        request, early = _read_request(peer)
        target = request.target.decode("ascii", "replace")
        if request.method != b"CONNECT":
            raise _RefusedError("only HTTPS is let through (CONNECT)", host=_shorten(target), status=405)
        host, _, port = target.rpartition(":")
        host = host.lower()
        if not is_name(host):
            raise _RefusedError("that is no name of a host; addresses are not let through", host=_shorten(target))
        if not is_named(host, self.hosts):
            raise _RefusedError(f"{self.setting} does not name it", host=host)
        if port != str(PORT):
            raise _RefusedError(f"only port {PORT} is let through", host=_shorten(target))
        return host, early

    def _reach(self, host: str) -> socket.socket:
        try:
            addresses = self.resolve(host)
        except OSError as error:
            raise _RefusedError(f"there is no such host: {error.strerror}", host=host, status=502) from None
        public = [address for address in addresses if is_public(address)]
        if not public:
            words = f"it leads to {addresses[0] if addresses else 'nowhere'}, which is not of the public internet"
            raise _RefusedError(words, host=host)
        for address in public:
            with contextlib.suppress(OSError):
                return self.dial(address, PORT)
        raise _RefusedError("it does not answer", host=host, status=502)


def _read_request(peer: socket.socket) -> "tuple[h11.Request, bytes]":
    import h11

    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_REQUEST_BYTES)
    until = time.monotonic() + REQUEST_S
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(_receive(peer, until))
    except h11.RemoteProtocolError as error:
        raise _RefusedError(f"this is no request: {error}", status=400) from None
    if not isinstance(event, h11.Request):
        raise _RefusedError("this is no request", status=400)
    return event, bytes(connection.trailing_data[0])


def _receive(peer: socket.socket, until: float) -> bytes:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    peer.settimeout(left)
    return peer.recv(4096)


def _read_hello(peer: socket.socket, early: bytes, host: str) -> bytes:
    """Return the first bytes, which are a TLS greeting for this host; none of a peer that only tried to connect."""
    said, until = early, time.monotonic() + REQUEST_S
    while (name := find_server_name(said)) is None:
        if len(said) > _MOST_HELLO_BYTES or not (more := _receive(peer, until)):
            if not said:
                return b""
            raise _RefusedError("what was said to it is not TLS", host=host, status=0)
        said += more
    if name.lower() != host:
        raise _RefusedError(f"TLS was opened for {_shorten(name) or 'no host'} in its place", host=host, status=0)
    return said


def find_server_name(said: bytes) -> str | None:
    """Return the host in a TLS greeting; empty if it names none or is no TLS, None if it is not complete."""
    import ssl

    named: list[str] = []

    def note(_: "ssl.SSLObject", name: str | None, __: "ssl.SSLContext") -> int:
        named.append(name or "")
        return int(ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = note
    incoming = ssl.MemoryBIO()
    incoming.write(said)
    try:
        context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
    except ssl.SSLWantReadError:
        return None
    except (ssl.SSLError, ValueError):  # `note` ends the handshake so; or it is no TLS
        pass
    return named[0] if named else ""


def _shorten(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:100])

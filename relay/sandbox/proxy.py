"""A proxy for HTTPS that connects commands to the hosts that the user allowed, and to no others.

It resolves names itself and dials the address that it checked, so that no answer of a name server leads into a private
network. It opens port 443 only. The first bytes must be a TLS greeting for the host that was asked for, because one
address of a large provider serves many hosts. The proxy does not read what follows.

h11 reads the request, which is hostile input. proxy.py, the one maintained library for this, resolves names where a
plug-in cannot check them, and is ten times the code that is needed here.
"""

import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Collection, Sequence

import h11

from relay.base.values import dataclass
from relay.config.network import EVERY, is_name
from relay.sandbox.sockets import NETWORK, Inquiry, carry

_EXAMPLES = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
"""For documentation (RFC 5737): not routed, and nobody's private network either."""
_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is handed out for the internet (RFC 4291); NAT64 and its like lie outside."""
_CARRIERS = (ipaddress.ip_network("2002::/16"), ipaddress.ip_network("2001::/32"))
"""In it addresses that hold one of IPv4, to which a gateway goes on: 6to4, Teredo."""


def is_named(host: str, patterns: Collection[str]) -> bool:
    """Say whether a host is in the list. `*.example.org` is not example.org itself."""
    above = (f"*.{host[at + 1 :]}" for at, letter in enumerate(host) if letter == ".")
    return EVERY in patterns or host in patterns or any(pattern in patterns for pattern in above)


def is_public(address: str) -> bool:
    """Say whether an address is of the public internet: no loopback, private, link-local or special net."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        if found.scope_id is not None or found not in _UNICAST or any(found in net for net in _CARRIERS):
            return False
    elif any(found in net for net in _EXAMPLES):
        return True
    return found.is_global and not found.is_multicast


PORT = 443
DIAL_S = 20.0
REQUEST_S = 20.0
"""For a request, and then for the first words of TLS."""
_MOST_REQUEST_BYTES = 8 * 1024
_MOST_HELLO_BYTES = 32 * 1024


Resolve = Callable[[str], Sequence[str]]
"""The addresses of a host, in order of preference. Raises OSError where there are none."""
Dial = Callable[[str, int], socket.socket]
"""A connection to an address and a port. Raises OSError."""


def resolve(host: str) -> Sequence[str]:
    """Ask the machine's own resolver."""
    found = socket.getaddrinfo(host, PORT, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def dial(address: str, port: int) -> socket.socket:
    """Connect; the address is a number, so nothing is resolved again."""
    return socket.create_connection((address, port), timeout=DIAL_S)


class _RefusedError(Exception):
    """The request is not granted; the message says why."""

    def __init__(self, words: str, *, host: str = "", status: int = 403) -> None:
        super().__init__(words)
        self.host = host
        self.status = status
        """0: nothing can be said any more, the tunnel is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """Serves CONNECT requests."""

    hosts: Collection[str]
    """Patterns, see `relay.sandbox.proxy`."""
    note: Callable[[Inquiry], None]
    """Told of every request, on the thread that serves it."""
    setting: str = NETWORK
    """Where the user names hosts, for the words of a refusal."""
    resolve: Resolve = resolve
    dial: Dial = dial

    def serve(self, peer: socket.socket) -> None:
        """Serve one connection to its end."""
        try:
            host, early = self._read(peer)
            with self._reach(host) as server:
                peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                hello = _read_hello(peer, early, host)
                self.note(Inquiry(host=host))
                server.sendall(hello)
                carry(peer, server)
        except _RefusedError as refusal:
            if refusal.host:
                self.note(Inquiry(host=refusal.host, refused=str(refusal)))
            if refusal.status:
                with contextlib.suppress(OSError):
                    peer.sendall(_render_refusal(refusal))

    def _read(self, peer: socket.socket) -> tuple[str, bytes]:
        """Return the host that is asked for, which is allowed, and what was said behind the request."""
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


def _read_request(peer: socket.socket) -> tuple[h11.Request, bytes]:
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
    """Return what was said first, which opens TLS for this host."""
    said, until = early, time.monotonic() + REQUEST_S
    while (name := find_server_name(said)) is None:
        if len(said) > _MOST_HELLO_BYTES or not (more := _receive(peer, until)):
            raise _RefusedError("what was said to it is not TLS", host=host, status=0)
        said += more
    if name.lower() != host:
        raise _RefusedError(f"TLS was opened for {_shorten(name) or 'no host'} in its place", host=host, status=0)
    return said


def find_server_name(said: bytes) -> str | None:
    """Return the host that a first message of TLS names, empty for none or what is no TLS; None: more has to come."""
    named: list[str] = []

    def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int:
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
    except (ssl.SSLError, ValueError):  # by the answer above; or it is no TLS
        pass
    return named[0] if named else ""


def _shorten(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:100])


def _render_refusal(refusal: _RefusedError) -> bytes:
    body = f"relay: {refusal.host}: {refusal}\n".encode()
    head = f"HTTP/1.1 {refusal.status} Refused by relay\r\nContent-Type: text/plain\r\n"
    return head.encode() + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body

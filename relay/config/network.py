"""The setting `network`: nothing, everything, or hosts, ports and sockets by name."""

import re
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from relay.config.decoding import matching, told

EVERY = "*"
"""In the place of a name: every host of the public internet."""
GRAMMAR = (
    "true, false, or { hosts = [...], localhost = [...], sockets = [...] } with names of hosts (registry.npmjs.org, "
    "*.example.org for those below it, * for all that are public; RELAY_NETWORK may be these alone) or true, "
    "ports from 1024 on, and docker, podman or absolute paths"
)

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# The last label begins with a letter: otherwise a number could be read as an address.
_NAME = re.compile(rf"(?:{_LABEL}\.)+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?")
_MOST_CHARS = 253
HostName = Annotated[str, matching("names of hosts, in lower case", rf"(?:\*\.)?{_NAME.pattern}")]


_Hosts = Annotated[
    tuple[Annotated[str, matching(GRAMMAR, rf"(?i:\*|(?:\*\.)?{_NAME.pattern})")], ...],
    told("a list of names of hosts"),
]
_Ports = Annotated[tuple[Annotated[int, Meta(ge=1024, le=65535)], ...], told("a list of ports from 1024 to 65535")]
_Sockets = Annotated[
    tuple[Annotated[str, matching("a socket", r"docker|podman|/[^\0\n]*[^\0\n/]")], ...],
    told("docker, podman or absolute paths"),
]


class Network(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What commands reach outside of their sandbox."""

    hosts: bool | _Hosts = False
    """Hosts that they reach by HTTPS, and nothing else; ``true`` is this machine's whole network, its own services
    included."""
    localhost: _Ports = ()
    """Loopback ports of this machine."""
    sockets: _Sockets = ()
    """Unix sockets of this machine: ``docker``, ``podman``, or absolute paths."""

    @property
    def whole(self) -> bool:
        return self.hosts is True

    @property
    def names(self) -> tuple[str, ...]:
        """Patterns of hosts; empty where no host is named."""
        return self.hosts if isinstance(self.hosts, tuple) else ()

    @property
    def text(self) -> str:
        hosts = ", ".join(self.names) or str(self.whole).lower()
        lists = (("localhost", map(str, self.localhost)), ("sockets", self.sockets))
        return "; ".join((hosts, *(f"{name} {listed}" for name, some in lists if (listed := ", ".join(some)))))


CLOSED = Network()


def is_name(text: str) -> bool:
    """Return whether a text is the full name of a host, in lower case; an address is none."""
    return len(text) <= _MOST_CHARS and _NAME.fullmatch(text) is not None


NetworkSetting = Annotated[bool | Network, told(GRAMMAR)]


def make_network(setting: bool | Network) -> Network:  # noqa: FBT001  # as it is written
    """Return the setting's meaning.

    Raises:
        ValueError: A name is too long.
    """
    if isinstance(setting, bool):
        return Network(hosts=setting)
    names = tuple(dict.fromkeys(host.lower() for host in setting.names))
    if not all(host == EVERY or is_name(host.removeprefix("*.")) for host in names):
        raise ValueError(GRAMMAR)
    return replace(setting, hosts=names or setting.whole, localhost=tuple(dict.fromkeys(setting.localhost)))


def join_network(weak: Network, strong: Network) -> Network:
    """Return what two sources open together: ``false`` closes everything, else each key is the stronger one's."""
    if strong == CLOSED:
        return CLOSED
    return Network(
        hosts=strong.hosts or weak.hosts,
        localhost=strong.localhost or weak.localhost,
        sockets=strong.sockets or weak.sockets,
    )

"""The setting `network`: nothing, everything, or hosts by name."""

import re
from typing import Annotated

from msgspec import Struct

from relay.base.values import dataclass
from relay.config.decoding import matching, told

EVERY = "*"
"""In the place of a name: every host of the public internet."""
GRAMMAR = (
    "true, false, or { hosts = [...] } with names of hosts: registry.npmjs.org, *.example.org for those below it, "
    "* for all that are public; RELAY_NETWORK takes the names alone, with commas"
)

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# The last label begins with a letter: otherwise a number could be read as an address.
_NAME = re.compile(rf"(?:{_LABEL}\.)+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?")
_MOST_CHARS = 253
HostName = Annotated[str, matching("names of hosts, in lower case", rf"(?:\*\.)?{_NAME.pattern}")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The hosts that commands reach."""

    whole: bool = False
    """The machine's own network, with everything that it reaches."""
    hosts: tuple[str, ...] = ()
    """Patterns of hosts that commands reach by HTTPS, and nothing else."""

    @property
    def text(self) -> str:
        return ", ".join(self.hosts) or str(self.whole).lower()


CLOSED = Network()


def is_name(text: str) -> bool:
    """Return whether a text is the full name of a host, in lower case; an address is none."""
    return len(text) <= _MOST_CHARS and _NAME.fullmatch(text) is not None


class Hosts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The setting with hosts."""

    hosts: tuple[Annotated[str, matching(GRAMMAR, rf"(?i:\*|(?:\*\.)?{_NAME.pattern})")], ...]


NetworkSetting = Annotated[bool | Hosts, told(GRAMMAR)]


def make_network(setting: bool | Hosts) -> Network:  # noqa: FBT001  # as it is written
    """Return the setting's meaning.

    Raises:
        ValueError: A name is too long.
    """
    if isinstance(setting, bool):
        return Network(whole=setting)
    hosts = tuple(dict.fromkeys(host.lower() for host in setting.hosts))
    if not all(host == EVERY or is_name(host.removeprefix("*.")) for host in hosts):
        raise ValueError(GRAMMAR)
    return Network(hosts=hosts)

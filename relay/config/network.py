"""The setting `network`: nothing, everything, or hosts by name."""

import re
from collections.abc import Mapping
from typing import Any

from relay.base.values import dataclass

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
PATTERN = rf"^(?:\*|(?:\*\.)?{_NAME.pattern})$".replace("a-z", "A-Za-z")
"""Regex of a list entry for a schema, in upper or lower case and of any length."""


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


def read_network(value: Any) -> Network:
    """Read the setting.

    Raises:
        ValueError: It is invalid; the message says what is allowed.
    """
    if isinstance(value, bool):
        return Network(whole=value)
    hosts = value.get("hosts") if isinstance(value, Mapping) and value.keys() == {"hosts"} else None
    if not isinstance(hosts, list | tuple) or not all(isinstance(host, str) for host in hosts):
        raise ValueError(GRAMMAR)
    lowered = tuple(dict.fromkeys(host.lower() for host in hosts))
    if not all(host == EVERY or is_name(host.removeprefix("*.")) for host in lowered):
        raise ValueError(GRAMMAR)
    return Network(hosts=lowered)

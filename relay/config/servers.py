"""The setting `mcp_servers`: the user's tool servers (Model Context Protocol)."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Struct

from relay.config.decoding import Line, Text, Variable, matching, told

REPOSITORY = "{repository}"
"""Replaced by the repository's root in a server's command."""
_Header = Annotated[str, matching("a header's name", r"[A-Za-z][A-Za-z0-9-]{0,63}")]


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server: a program, or an address."""

    command: Annotated[tuple[Text, ...], told("a list of texts")] = ()
    """The program with its arguments. It runs in a sandbox like commands, and starts outside of the repository;
    ``{repository}`` is replaced by its root."""
    env: Annotated[tuple[Variable, ...], told("names of variables")] = ()
    """Names of your variables that it gets."""
    url: Annotated[str, told("https://…, or http:// of this machine")] = ""
    """Its HTTP address; relay sends requests there only."""
    headers: Annotated[Mapping[_Header, Line], told("a table of texts")] = {}
    """Headers for that address; ``${NAME}`` is replaced by a variable."""
    tools: Annotated[tuple[Text, ...], told("a list of texts")] = ()
    """The tools that sessions get; empty for all."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if self.url and not _is_address(self.url):
            raise ValueError("url: https://…, or http:// of this machine")
        if bool(self.url) == bool(self.command):
            raise ValueError("command, a list of words, or url")

    @property
    def text(self) -> str:
        """The server in one line, without values that may be secret."""
        return self.url or " ".join(self.command[:1])


def _is_address(url: str) -> bool:
    try:
        found = urlsplit(url)
    except ValueError:
        return False
    own = found.hostname in {"localhost", "127.0.0.1", "::1"}
    return bool(found.hostname) and url.isprintable() and " " not in url and found.scheme in {"https", own and "http"}


ServerName = Annotated[
    str, matching("names of servers in lower case: letters, digits and -", r"[a-z0-9][a-z0-9-]{0,30}")
]
Servers = Annotated[Mapping[ServerName, ServerSettings], told("a table of tables, one for each server")]

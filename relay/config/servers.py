"""The setting `mcp_servers`: the user's tool servers (Model Context Protocol)."""

from collections.abc import Mapping
from typing import Any

from relay.base.values import dataclass
from relay.config.forms import HEADERS, TEXTS, VARIABLE, Form, find_address, make_record, make_rows, make_texts

REPOSITORY = "{repository}"
"""Replaced by the repository's root in a server's command."""
SERVER_NAME = r"[a-z0-9][a-z0-9-]{0,30}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """A server: a program, or an address."""

    command: tuple[str, ...] = ()
    """The program with its arguments. It runs in a sandbox like commands, and starts outside of the repository;
    ``{repository}`` is replaced by its root."""
    env: tuple[str, ...] = ()
    """Names of your variables that it gets."""
    url: str = ""
    """Its HTTP address; relay sends requests there only."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers for that address; ``${NAME}`` is replaced by a variable."""
    tools: tuple[str, ...] = ()
    """The tools that sessions get; empty for all."""

    @property
    def text(self) -> str:
        """The server in one line, without values that may be secret."""
        return self.url or " ".join(self.command[:1])


def _make_server(**found: Any) -> ServerSettings:
    server = ServerSettings(**found)
    if bool(server.url) == bool(server.command):
        raise ValueError("command, a list of words, or url")
    return server


def _read_url(value: Any) -> str:
    if not isinstance(value, str) or (value and not _is_address(value)):
        raise ValueError("https://…, or http:// of this machine")
    return value


def _is_address(url: str) -> bool:
    found = find_address(url)
    own = found is not None and found.hostname in {"localhost", "127.0.0.1", "::1"}
    return found is not None and found.scheme in {"https", own and "http"}


_SERVER: Mapping[str, Form] = {
    "command": TEXTS,
    "env": make_texts("names of variables", VARIABLE, bare=False),
    "url": Form(read=_read_url, schema={"type": "string"}),
    "headers": HEADERS,
    "tools": TEXTS,
}
SERVERS = make_rows(
    "server",
    lambda _: make_record(_SERVER, _make_server, "for each server"),
    names=SERVER_NAME,
    allowed="names of servers in lower case: letters, digits and -",
)

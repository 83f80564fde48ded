"""The setting `mcp_servers`: tool servers of the user's own, by the Model Context Protocol."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from relay.values import dataclass

SERVER_NAME = r"[a-z0-9][a-z0-9-]{0,30}"
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_KEYS = frozenset({"command", "env", "url", "headers", "tools"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One server: a program, or an address."""

    command: tuple[str, ...] = ()
    """The program with its arguments; it runs in the sandbox of commands, and reaches what they reach."""
    env: tuple[str, ...] = ()
    """Names of your variables that it gets."""
    url: str = ""
    """Where it answers by HTTP; nothing else is asked there or anywhere."""
    headers: tuple[tuple[str, str], ...] = ()
    """For that; ``${NAME}`` stands for a variable."""
    tools: tuple[str, ...] = ()
    """Which of its tools sessions get; empty for all."""

    @property
    def text(self) -> str:
        """In one line, without values that may be secret."""
        return self.url or " ".join(self.command[:1])


def read_servers(value: Any) -> dict[str, ServerSettings]:
    """Read the table of servers.

    Raises:
        ValueError: It is none; says what is allowed.
    """
    if not isinstance(value, Mapping) or not all(isinstance(row, Mapping) for row in value.values()):
        raise ValueError("a table of tables, one for each server")
    if not all(re.fullmatch(SERVER_NAME, str(name)) for name in value):
        raise ValueError("names of servers in lower case: letters, digits and -")
    return {str(name): _read_server(row) for name, row in value.items()}


def _read_server(row: Mapping[str, Any]) -> ServerSettings:
    if not row.keys() <= _KEYS:
        raise ValueError(f"for each server some of {', '.join(sorted(_KEYS))}")
    command, env, tools = (_read_texts(name, row.get(name, ())) for name in ("command", "env", "tools"))
    url, headers = row.get("url", ""), row.get("headers", {})
    if not isinstance(url, str) or bool(url) == bool(command):
        raise ValueError("command, a list of words, or url")
    if url and not _is_address(url):
        raise ValueError("url: https://…, or http:// of this machine")
    if not all(map(_VARIABLE.fullmatch, env)):
        raise ValueError("env: names of variables")
    good = isinstance(headers, Mapping) and all(
        _HEADER.fullmatch(str(name)) and isinstance(text, str) and text.isprintable() for name, text in headers.items()
    )
    if not good:
        raise ValueError("headers: a table of texts")
    return ServerSettings(
        command=command, env=env, url=url, headers=tuple((str(n), t) for n, t in headers.items()), tools=tools
    )


def _read_texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) and "\0" not in word for word in value):
        raise ValueError(f"{name}: a list of texts")
    return tuple(value)


def _is_address(url: str) -> bool:
    try:
        found = urlsplit(url)
    except ValueError:
        return False
    own = found.hostname in {"localhost", "127.0.0.1", "::1"}
    return bool(found.hostname) and url.isprintable() and " " not in url and found.scheme in {"https", own and "http"}


_TEXTS = {"type": "array", "items": {"type": "string"}}
SERVERS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "propertyNames": {"pattern": f"^{SERVER_NAME}$"},
    "additionalProperties": {
        "type": "object",
        "properties": {
            "command": _TEXTS,
            "env": _TEXTS,
            "url": {"type": "string"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "tools": _TEXTS,
        },
        "additionalProperties": False,
    },
}
"""The same as JSON Schema."""

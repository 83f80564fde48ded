"""The setting `agents`: agents of the user's own, and what is different here about those that relay knows."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from relay.config.network import PATTERN, read_network
from relay.plan.statements import RUNNER_NAME
from relay.values import dataclass

LOGINS = ("key", "tunnel", "gateway")
"""How an agent asks its model:

key      with the key that relay's gateway holds
tunnel   with your login, which lies in its sandbox then, at its vendor's hosts and no others; usage as it tells it
gateway  with your login, through relay's gateway, which counts every token; a vendor's terms may not allow that
"""
ENDPOINTS = ("anthropic", "openai", "gemini")
_RESERVED = "api"
_INSIDE = r"(?!/)(?!(?:.*/)?\.\.?(?:/|$))[^\0\n]+"
_VARIABLE = r"[A-Za-z_]\w*"
_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What a user says of one agent; empty is what the profile says that it is like."""

    like: str = ""
    """Another agent, whose profile this one begins with."""
    program: str = ""
    """Its name on PATH, or an absolute path."""
    arguments: tuple[str, ...] | None = None
    """With which it speaks the Agent Client Protocol on its standard streams."""
    needs: tuple[str, ...] = ()
    """Other programs that it starts."""
    install: str = ""
    """What a person types to have it."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables, on top of the profile's. In values and files ``{base}`` stands for the gateway's address, ``{model}``
    for the model, ``{home}`` for the agent's private home directory."""
    files: tuple[tuple[str, str], ...] = ()
    """Of that home directory, by path."""
    mode: str = ""
    """Of the session."""
    endpoints: tuple[str, ...] = ()
    """Families of endpoints that it speaks to."""
    login: str = ""
    """One of `LOGINS`; empty is ``key``."""
    credentials: tuple[str, ...] = ()
    """Files below your home directory that hold the login, copied into its private one; variables in capitals."""
    hosts: tuple[str, ...] = ()
    """What ``tunnel`` lets through, by HTTPS."""

    @property
    def text(self) -> str:
        """In one line, without values that may be secret."""
        parts = (
            ("like", self.like),
            ("program", self.program),
            ("login", self.login),
            ("hosts", ", ".join(self.hosts)),
        )
        return "; ".join(f"{name} {value}" for name, value in parts if value) or "as it is known"


def read_agents(value: Any) -> dict[str, AgentSettings]:
    """Read the table of agents.

    Raises:
        ValueError: It is none; says what is allowed.
    """
    if not isinstance(value, Mapping) or not all(isinstance(row, Mapping) for row in value.values()):
        raise ValueError("a table of tables, one for each agent")
    for name in value:
        if not re.fullmatch(RUNNER_NAME, str(name)) or name == _RESERVED:
            raise ValueError(f"names of agents in lower case, not {_RESERVED}")
    return {str(name): _read_agent(row) for name, row in value.items()}


def _read_agent(row: Mapping[str, Any]) -> AgentSettings:
    if not row.keys() <= _READERS.keys():
        raise ValueError(f"for each agent some of {', '.join(_READERS)}")
    read: dict[str, Any] = {}
    for key, item in row.items():
        try:
            read[key] = _READERS[key](item)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return AgentSettings(**read)


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("one line of text")
    return value


def _read_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise ValueError("a list of texts")
    return tuple(value)


def _read_choice(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(", ".join(words))
        return str(value)

    return read


def _read_endpoints(value: Any) -> tuple[str, ...]:
    return tuple(map(_read_choice(*ENDPOINTS), _read_texts(value)))


def _read_pairs(pattern: str, allowed: str) -> Callable[[Any], tuple[tuple[str, str], ...]]:
    def read(value: Any) -> tuple[tuple[str, str], ...]:
        texts = _read_texts(list(value.values())) if isinstance(value, Mapping) else ()
        if not isinstance(value, Mapping) or not all(re.fullmatch(pattern, str(name)) for name in value):
            raise ValueError(allowed)
        return tuple(zip(map(str, value), texts, strict=True))

    return read


def _read_credentials(value: Any) -> tuple[str, ...]:
    names = _read_texts(value)
    if not all(re.fullmatch(_INSIDE, name) for name in names):
        raise ValueError("paths below your home directory, and names of variables")
    return names


def _read_hosts(value: Any) -> tuple[str, ...]:
    hosts = read_network({"hosts": value}).hosts
    if "*" in hosts:
        raise ValueError("names of hosts; every host is none of an agent's vendor")
    return hosts


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "like": _read_text,
    "program": _read_text,
    "arguments": _read_texts,
    "needs": _read_texts,
    "install": _read_text,
    "env": _read_pairs(_VARIABLE, "a table of variables"),
    "files": _read_pairs(_INSIDE, "a table of texts, by their paths below the home directory"),
    "mode": _read_text,
    "endpoints": _read_endpoints,
    "login": _read_choice(*LOGINS),
    "credentials": _read_credentials,
    "hosts": _read_hosts,
}
_TABLE = {"type": "object", "additionalProperties": {"type": "string"}}
AGENTS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "propertyNames": {"pattern": f"^{RUNNER_NAME}$"},
    "additionalProperties": {
        "type": "object",
        "properties": {
            **dict.fromkeys(("like", "program", "install", "mode"), _TEXT),
            **dict.fromkeys(("arguments", "needs", "credentials"), _TEXTS),
            **dict.fromkeys(("env", "files"), _TABLE),
            "endpoints": {"type": "array", "items": {"enum": list(ENDPOINTS)}},
            "login": {"enum": list(LOGINS)},
            "hosts": {
                "type": "array",
                "items": {
                    "type": "string",
                    "pattern": PATTERN,
                },
            },
        },
        "additionalProperties": False,
    },
}
"""The same as JSON Schema."""

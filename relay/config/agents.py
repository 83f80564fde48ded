"""The setting `agents`: the user's own agents, and changes of agents that relay knows."""

from collections.abc import Mapping
from typing import Any

from relay.base.values import dataclass
from relay.config.forms import LINE, TEXTS, VARIABLE, Form, make_choice, make_pairs, make_record, make_rows, make_texts
from relay.config.network import PATTERN, read_network
from relay.plan.statements import RUNNER_NAME

LOGINS = ("key", "tunnel", "gateway")
"""How an agent asks its model:

key      with the key that relay's gateway holds
tunnel   with your login, which its sandbox holds then, at its vendor's hosts only; relay counts usage as the agent
tells it
gateway  with your login, through relay's gateway, which counts every token; a vendor's terms may forbid that
"""
BROUGHT = ("skills", "agents", "commands")
ENDPOINTS = ("anthropic", "openai", "gemini")
_INSIDE = r"(?!/)(?!(?:.*/)?\.\.?(?:/|$))[^\0\n]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """A user's settings of one agent; an empty field is the profile's."""

    like: str = ""
    """Another agent, whose profile is the base of this one."""
    program: str = ""
    """A name on PATH, or an absolute path."""
    arguments: tuple[str, ...] | None = None
    """Make it speak the Agent Client Protocol on its standard streams."""
    needs: tuple[str, ...] = ()
    """Other programs that it starts."""
    install: str = ""
    """The command that installs it, for a person."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables, in addition to the profile's. In values and files ``{base}`` is replaced by the gateway's address,
    ``{model}`` by the model, ``{home}`` by the agent's private home directory."""
    files: tuple[tuple[str, str], ...] = ()
    """Files of that home directory, by path."""
    mode: str = ""
    """The session's mode."""
    endpoints: tuple[str, ...] = ()
    """Families of endpoints that it can use."""
    login: str = ""
    """One of `LOGINS`; empty is ``key``."""
    credentials: tuple[str, ...] = ()
    """Files below your home directory that hold the login, copied into its private one; variables in capitals."""
    hosts: tuple[str, ...] = ()
    """Hosts that ``tunnel`` lets through, by HTTPS."""
    bring: tuple[str, ...] = ()
    """Folders of your own that it gets a copy of: ``skills``, ``agents``, ``commands``, where its profile has them."""

    @property
    def text(self) -> str:
        """The settings in one line, without values that may be secret."""
        parts = (
            ("like", self.like),
            ("program", self.program),
            ("login", self.login),
            ("hosts", ", ".join(self.hosts)),
            ("bring", ", ".join(self.bring)),
        )
        return "; ".join(f"{name} {value}" for name, value in parts if value) or "as it is known"


def _read_hosts(value: Any) -> tuple[str, ...]:
    hosts = read_network({"hosts": value}).hosts
    if "*" in hosts:
        raise ValueError("names of hosts; an agent's vendor does not have every host")
    return hosts


def _is_text(text: str) -> bool:
    return "\0" not in text


_AGENT: Mapping[str, Form] = {
    "like": LINE,
    "program": LINE,
    "arguments": TEXTS,
    "needs": TEXTS,
    "install": LINE,
    "env": make_pairs("a table of variables", VARIABLE, is_fit=_is_text),
    "files": make_pairs("a table of texts, by their paths below the home directory", _INSIDE, is_fit=_is_text),
    "mode": LINE,
    "endpoints": make_texts(", ".join(ENDPOINTS), "|".join(ENDPOINTS), bare=False),
    "login": make_choice(*LOGINS),
    "credentials": make_texts("paths below your home directory, and names of variables", _INSIDE, bare=False),
    "bring": make_texts(", ".join(BROUGHT), "|".join(BROUGHT), bare=False),
    "hosts": Form(read=_read_hosts, schema={"type": "array", "items": {"type": "string", "pattern": PATTERN}}),
}
AGENTS = make_rows(
    "agent",
    lambda _: make_record(_AGENT, AgentSettings, "for each agent"),
    names=rf"(?!api$){RUNNER_NAME}",
    allowed="names of agents in lower case, not api",
)

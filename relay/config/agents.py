"""The setting `agents`: the user's own agents, and changes of agents that relay knows."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Struct

from relay.config.decoding import Line, Text, Variable, choice, matching, told
from relay.config.network import HostName
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
_Texts = Annotated[tuple[Text, ...], told("a list of texts")]
_Path = Annotated[str, matching("a path below the home directory", _INSIDE)]


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's settings of one agent; an empty field is the profile's."""

    like: Line = ""
    """Another agent, whose profile is the base of this one."""
    program: Line = ""
    """A name on PATH, or an absolute path."""
    arguments: _Texts | None = None
    """Make it speak the Agent Client Protocol on its standard streams."""
    needs: _Texts = ()
    """Other programs that it starts."""
    install: Line = ""
    """The command that installs it, for a person."""
    env: Annotated[Mapping[Variable, Text], told("a table of variables")] = {}
    """Variables, in addition to the profile's. In values and files ``{base}`` is replaced by the gateway's address,
    ``{model}`` by the model, ``{home}`` by the agent's private home directory."""
    files: Annotated[Mapping[_Path, Text], told("a table of texts, by their paths below the home directory")] = {}
    """Files of that home directory, by path."""
    mode: Line = ""
    """The session's mode."""
    endpoints: Annotated[tuple[Annotated[str, choice(*ENDPOINTS)], ...], told(", ".join(ENDPOINTS))] = ()
    """Families of endpoints that it can use."""
    login: Annotated[str, choice(*LOGINS)] = LOGINS[0]
    """One of `LOGINS`."""
    credentials: Annotated[tuple[_Path, ...], told("paths below your home directory, and names of variables")] = ()
    """Files below your home directory that hold the login, copied into its private one; variables in capitals."""
    hosts: tuple[HostName, ...] = ()
    """Hosts that ``tunnel`` lets through, by HTTPS."""
    bring: Annotated[tuple[Annotated[str, choice(*BROUGHT)], ...], told(", ".join(BROUGHT))] = ()
    """Folders of your own that it gets a copy of: ``skills``, ``agents``, ``commands``, where its profile has them."""

    @property
    def text(self) -> str:
        """The settings in one line, without values that may be secret."""
        parts = (
            ("like", self.like),
            ("program", self.program),
            ("login", "" if self.login == LOGINS[0] else self.login),
            ("hosts", ", ".join(self.hosts)),
            ("bring", ", ".join(self.bring)),
        )
        return "; ".join(f"{name} {value}" for name, value in parts if value) or "as it is known"


AgentName = Annotated[str, matching("names of agents in lower case, not api", rf"(?!api$){RUNNER_NAME}")]
Agents = Annotated[Mapping[AgentName, AgentSettings], told("a table of tables, one for each agent")]

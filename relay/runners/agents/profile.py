"""What relay has to know of an agent to start it and to speak with it, as data.

In texts stand for what relay fills in: ``{base}`` the gateway's address, ``{model}`` the model, ``{home}`` the private
home directory, ``{server}`` the command of relay's tool server as JSON, ``{tools}`` its socket, ``{window}`` and
``{output}`` the model's limits in tokens, the latter as far as the caps leave it.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relay.base.values import dataclass

NO_KEY = "held-by-relay"
"""Stands where an agent wants to have a key; the gateway puts in the real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How an agent is told of an endpoint of one family."""

    family: str
    """``anthropic``, ``openai`` or ``gemini``; `relay.runners.messages.endpoint` says what each is."""
    arguments: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEngine:
    """The program that does the work of an agent whose own one only speaks the protocol for it."""

    program: str
    """What a person starts, and logs in with."""
    package: str
    """Of npm: the one that is run."""
    field: str = "version"
    """Of its package.json."""
    tested: str
    variable: str = ""
    """Names another program in its place; empty where it is the one on PATH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One agent."""

    name: str
    """For ``--runner``."""
    title: str
    package: str
    """What a user types to install the tested version; empty where nobody knows."""
    program: str
    """Found on PATH."""
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Other programs that it starts, by their names."""
    tested: str
    """The version that the agent told of itself when this profile was tried."""
    engine: AgentEngine | None = None
    """None where the agent does the work itself."""
    own_tokens: int = 0
    """What its first request has besides relay's words, about."""
    env: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """Path below the home directory, and text."""
    ways: tuple[Way, ...] = (Way(family="anthropic"),)
    """Arguments, variables and files on top of these for each kind of endpoint that it speaks to."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """For session/new."""
    mode: str = ""
    """Of the session; empty for the one that it starts with."""
    login: str = "key"
    """How it asks its model: see `relay.config.agents.LOGINS`."""
    credentials: tuple[str, ...] = ()
    """What holds a login: names of variables, and files below the user's home directory."""
    hosts: tuple[str, ...] = ()
    """Of the vendor, which a login is for."""
    takes_server: bool = True
    """session/new gives it relay's tools; else its own files or arguments do."""
    names_sessions: bool = False
    """It asks another model for a title unless there is one."""

    @property
    def tunnelled(self) -> bool:
        """Whether it asks its vendor itself."""
        return self.login == "tunnel"

    @property
    def usage(self) -> str:
        """``exact`` where relay's gateway counts it, ``~`` where the agent tells it."""
        return "~" if self.tunnelled else "exact"

    @property
    def way(self) -> str:
        """How a user gets it."""
        unknown = f"put {self.program} on PATH, or name another program: agents.{self.name}.program"
        return f"{self.package} installs it" if self.package else unknown

    @property
    def tools(self) -> str:
        """How relay's own tools reach it."""
        texts = (*self.arguments, *(text for _, text in self.files))
        return "MCP" if self.takes_server or any("{server}" in text for text in texts) else "extension"

    @property
    def is_lent(self) -> bool:
        """Whether it has the user's login, not a key that relay holds."""
        return self.login != "key"

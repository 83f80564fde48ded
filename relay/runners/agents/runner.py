"""Agents as kinds of runner: what each of their sessions needs is put up around it, and taken down behind it."""

import json
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from relay.config import Settings
from relay.config.model import ModelSettings
from relay.errors import ConfigError, RunnerError
from relay.runners.agents.profiles import NO_KEY, Profile
from relay.runners.base import ModelInfo, Runner, RunnerKind, SessionSpec, Surroundings
from relay.session.events import Noticed
from relay.values import dataclass

if TYPE_CHECKING:
    from relay.runners.agents.home import Installed
    from relay.runners.agents.parts import Around, Inbox, Started
    from relay.runners.agents.profiles import Way
    from relay.runners.agents.session import AgentSession
    from relay.runners.messages.conversation import ApiRunner
    from relay.runners.messages.endpoint import Family
    from relay.sandbox.policy import Door
    from relay.sandbox.run import Sandbox

PORT = 47_113
"""Of the gateway on the sandbox's loopback, in a network of its own."""
OWN_TOOLS = frozenset({"tick", "record", "amend", "hand_off", "defer", "block", "ask", "submit_plan"})
"""What an agent gets of a session's tools; it has its own for everything else."""
_MODEL, _TOOLS = "model", "tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunner:
    """Runs sessions of one agent; a `relay.runners.base.Runner`. Mutable: it learns the agent's version."""

    profile: Profile
    way: "Way"
    family: "Family"
    given: Surroundings
    endpoint: "ApiRunner | None"
    """Asked for the model; None with a login, which is not for that."""
    versions: list[str] = field(default_factory=list)
    """As the agent told, session by session."""

    @property
    def agent(self) -> str:
        """The agent with the version that it told last."""
        return f"{self.profile.name} {self.versions[-1] if self.versions else ''}".strip()

    @property
    def metering(self) -> str:
        """Who counted."""
        return "agent" if self.profile.tunnelled else "gateway"

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits of a model, by the endpoint or a table: agents have them from catalogues."""
        if self.endpoint is not None:
            return self.endpoint.get_model(model)
        from relay.config.model_table import show_user_file
        from relay.runners.messages.limits import settle_limits

        own = self.given.settings.find_model(model)
        return settle_limits(model, own, ModelSettings(), user_file=show_user_file(self.given.environ))

    def describe_model(self, model: str) -> ModelSettings:
        """Return a model as the endpoint, or else the user, tells of it."""
        return self.endpoint.describe_model(model) if self.endpoint else self.given.settings.find_model(model)

    @contextmanager
    def open_session(self, spec: SessionSpec) -> "Iterator[AgentSession]":
        """Return a fresh session; its process starts with the first word.

        Raises:
            RunnerError: There is no sandbox that can hold an agent.
        """
        import queue

        from relay.runners.agents.parts import Around

        mark = f"relay-session {spec.session_id}-{secrets.token_hex(6)}"
        inbox: Inbox = queue.SimpleQueue()
        with ExitStack() as stack:
            sandbox, installed = self._put_up(stack, spec, inbox, mark)
            around = Around(
                start=partial(self._start, stack, sandbox, spec, inbox, installed),
                note_version=self.versions.append,
                observe=self.given.observe,
                interrupts=self.given.interrupts,
                root=sandbox.policy.root,
                mark=mark,
            )
            yield self._make_session(spec, inbox, around)

    def _make_session(self, spec: SessionSpec, inbox: "Inbox", around: "Around") -> "AgentSession":
        model, observe = self.get_model(spec.model), self.given.observe
        if self.profile.tunnelled:
            from relay.runners.agents.tunnel import ToldAccount, TunnelSession

            return TunnelSession(self.profile, spec, ToldAccount(spec, model, observe), inbox, around)
        from relay.runners.agents.account import Account
        from relay.runners.agents.session import AgentSession

        account = Account(spec, model, observe, max_wait_s=self.given.settings.max_wait_s)
        return AgentSession(self.profile, spec, account, inbox, around)

    def _put_up(self, stack: ExitStack, spec: SessionSpec, inbox: "Inbox", mark: str) -> "tuple[Sandbox, Installed]":
        """Open gateway, tool server and a sandbox with a door to each."""
        from relay.runners.agents.home import get_installed
        from relay.runners.agents.toolserver import Offer, open_toolserver
        from relay.sandbox.policy import Door, Mechanism
        from relay.sandbox.run import open_sandbox

        if spec.sandbox is None or spec.sandbox.mechanism is not Mechanism.BWRAP:
            raise RunnerError(
                f"{self.profile.title} runs in relay's sandbox as a whole, and only bubblewrap can hold it",
                hint="relay doctor shows what is missing; --runner api needs no such sandbox",
            )
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-doors-")))
        ways_out = self._open_way_out(stack, place, inbox, mark)
        tools = tuple(tool for tool in spec.tools if tool.name in OWN_TOOLS)
        stack.enter_context(open_toolserver(Offer(tools=tools, tell=inbox.put), place / _TOOLS))
        policy = spec.sandbox.policy
        installed = get_installed(self.profile, self.given.environ, policy.root)
        kept = (door for door in policy.doors if not (door.hosts and self.profile.tunnelled))  # there is one proxy
        policy = replace(
            policy,
            doors=(*kept, *ways_out, Door(name=_TOOLS, socket=place / _TOOLS)),
            for_agent=True,
            readable=(*policy.readable, *installed.shown),
            network=False,
        )
        return stack.enter_context(open_sandbox(policy, spec.sandbox.level)), installed

    def _open_way_out(self, stack: ExitStack, place: Path, inbox: "Inbox", mark: str) -> "tuple[Door, ...]":
        """Open the gateway, or for an agent that asks its vendor itself a proxy that knows the vendor's hosts."""
        from relay.sandbox.policy import Door

        if self.profile.tunnelled:
            from relay.sandbox.openings.doors import hold_doors

            return stack.enter_context(hold_doors(self.profile.hosts, ())).doors
        from relay.runners.agents.gateway import Route, open_gateway
        from relay.runners.messages.endpoint import find_own_secrets, open_client

        environ, idle_s = self.given.environ, self.given.settings.idle_timeout_s
        lent = self.profile.is_lent
        keys = {self.family.keys[0]: NO_KEY} if lent else {}
        client = stack.enter_context(open_client({**environ, **keys}, idle_s, family=self.family))
        if lent:
            del client.headers[self.family.key_header[0]]
        route = Route(
            client=client,
            mark=mark.encode(),
            secrets=find_own_secrets(environ),
            tell=inbox.put,
            family=self.family,
            passes_login=lent,
        )
        stack.enter_context(open_gateway(route, place / _MODEL))
        return (Door(name=_MODEL, socket=place / _MODEL, port=PORT),)

    def _start(
        self, stack: ExitStack, sandbox: "Sandbox", spec: SessionSpec, inbox: "Inbox", installed: "Installed"
    ) -> "Started":
        from relay.runners.agents.home import HOME_NAME, fill, lend_login, make_home
        from relay.runners.agents.parts import Started
        from relay.runners.agents.toolserver import BRIDGE
        from relay.runners.agents.wire import Wire
        from relay.sandbox.child import start_child

        assert spec.limits is not None  # noqa: S101  # it has a sandbox
        home = sandbox.tmp / HOME_NAME
        door = sandbox.confinement.inside.parent / _TOOLS
        server = {"command": sys.executable, "args": ["-I", "-S", "-c", BRIDGE, str(door)]}
        words = {"base": f"http://127.0.0.1:{PORT}", "model": spec.model, "home": str(home), "tools": str(door)}
        model = self.get_model(spec.model)
        words |= {"window": str(model.window_tokens), "output": str(model.max_output_tokens)}
        words |= {"server": json.dumps(server)}
        make_home(self.profile, self.way, sandbox.private.tmp / HOME_NAME, words)
        own = {name: fill(value, words) for name, value in (*self.profile.env, *self.way.env)}
        if self.profile.is_lent:
            own |= lend_login(self.profile, self.given.environ, sandbox.private.tmp / HOME_NAME)
        child = start_child(
            sandbox.confinement,
            (str(installed.program), *(fill(word, words) for word in (*self.profile.arguments, *self.way.arguments))),
            limits=spec.limits,
            cwd=sandbox.policy.root,
            extra_env={**own, "HOME": str(home), "PATH": installed.path},
            errors=sandbox.private.path / "errors",
        )
        stack.callback(child.end)
        servers = ({"name": "relay", "env": [], **server},) if self.profile.takes_server else ()
        return Started(child=child, wire=Wire(child, inbox.put), cwd=sandbox.policy.root, servers=servers)


def _require(profile: Profile, environ: Mapping[str, str], settings: Settings) -> None:
    from relay.runners.agents.home import get_installed

    if settings.sandbox == "off":
        raise ConfigError(
            f"{settings.origins.get('sandbox', 'sandbox')}: relay starts no agent without its sandbox: nothing else "
            f"would hold what {profile.title} does",
            hint="leave out --sandbox off, or use --runner api",
        )
    get_installed(profile, environ)


@contextmanager
def _open(profile: Profile, given: Surroundings) -> Iterator[Runner]:
    from relay.runners.agents.home import get_way
    from relay.runners.messages.api import open_api
    from relay.runners.messages.connection import ApiConnection
    from relay.runners.messages.conversation import ApiRunner
    from relay.runners.messages.endpoint import FAMILIES

    settings = given.settings
    _require(profile, given.environ, settings)  # before anything is asked
    if profile.is_lent:
        given.observe(Noticed(text=_describe_login(profile), warning=True))
        family = next(found for found in FAMILIES if found.name == profile.ways[0].family)
        yield AgentRunner(profile=profile, way=profile.ways[0], family=family, given=given, endpoint=None)
        return
    way, family = get_way(profile, given.environ, settings.model)
    idle_s = settings.idle_timeout_s
    with open_api(environ=given.environ, interrupts=given.interrupts, idle_timeout_s=idle_s, family=family) as api:
        connection = ApiConnection(
            api=api, observe=given.observe, interrupts=given.interrupts, max_wait_s=settings.max_wait_s
        )
        endpoint = ApiRunner(connection=connection, find_own=settings.find_model)
        yield AgentRunner(profile=profile, way=way, family=family, given=given, endpoint=endpoint)


def _describe_login(profile: Profile) -> str:
    if not profile.tunnelled:
        return (
            f"{profile.name}: your login goes with it into its sandbox and through relay's gateway to its vendor, "
            "whose terms may not allow that to a subscription; relay counts every token and keeps nothing of it"
        )
    return (
        f"{profile.name}: your login goes with it into its sandbox, which reaches {', '.join(profile.hosts)} and "
        "nothing else; what it uses is what it tells (~), and no cap holds before a request, only after what it told"
    )


def _get_key(profile: Profile, environ: Mapping[str, str]) -> str:
    if profile.is_lent:
        return _get_login(profile, environ)
    from relay.runners.messages.endpoint import FAMILIES, get_key_name

    known = {family.name: family for family in FAMILIES}
    return get_key_name(environ, [known[way.family] for way in profile.ways])


def _get_login(profile: Profile, environ: Mapping[str, str]) -> str:
    from relay.runners.agents.home import find_login

    if found := find_login(profile, environ):
        return found
    raise RunnerError(
        f"no login of {profile.title}: none of {', '.join(profile.credentials)} is there (files: below your home)",
        hint=f"log in with {profile.title} itself, or leave out login in agents.{profile.name}",
    )


def make_kind(profile: Profile) -> RunnerKind:
    """Return the kind of runner that an agent is."""
    return RunnerKind(
        get_key=partial(_get_key, profile), require=partial(_require, profile), open=partial(_open, profile)
    )

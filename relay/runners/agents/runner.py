"""Opens and closes the sessions of one agent, with the gateway, sockets and home directory of each.

An agent with the user's login in a tunnel reaches its vendor itself. relay then knows only what the agent reports, and
marks it as reported. No request is held, so relay checks caps, lines and stops when the agent reports that its tools
have ended. To send the agent a text there, relay cancels the turn; an answer that has begun meanwhile may be lost.
"""

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from relay.base.errors import RunnerError
from relay.base.jsonrpc import Answered, Intake, Notification, Wire
from relay.base.values import dataclass
from relay.config.model import ModelSettings
from relay.config.sources import show_user_file
from relay.runners.account import fit_answer
from relay.runners.agents.account import AgentAccount
from relay.runners.agents.acp import (
    BRIDGE,
    MOST_CONNECTIONS,
    PATIENCE_S,
    Offer,
    ToolUpdate,
    choose_offered,
    read_fill,
    read_update,
    read_usage,
    serve_tools,
)
from relay.runners.agents.gateway import Route, serve_agent
from relay.runners.agents.profiles import (
    HOME_NAME,
    EndpointSetup,
    Installed,
    Profile,
    copy_brought,
    copy_login,
    fill,
    get_installed,
    make_home,
)
from relay.runners.agents.session import AGENT_IDLE_S, AgentContext, AgentProcess, AgentSession, Inbox, release_waiting
from relay.runners.base import ModelInfo, SessionSpec, Surroundings
from relay.runners.messages.api import choose_limits, open_wire
from relay.runners.messages.conversation import ApiRunner
from relay.runners.messages.endpoint import ANTHROPIC, Way, find_own_secrets
from relay.sandbox.child import start_child
from relay.sandbox.openings import MOST, listen, serve_openings
from relay.sandbox.policy import Level, Opening
from relay.sandbox.private_folder import find_folder
from relay.sandbox.run import Sandbox, open_sandbox
from relay.session.events import HostAsked, Noticed, Observe, RequestStarted
from relay.session.prices import cost_usd
from relay.session.usage import Spent, Usage
from relay.session.values import SessionOutcome


class ReportedAccount(AgentAccount):
    """Counts by the agent's own reports. Mutable."""

    def __init__(self, spec: SessionSpec, model: ModelInfo, observe: Observe) -> None:
        super().__init__(spec, model, observe, max_wait_s=0.0)
        self._fill = self._largest = self._before = 0
        """Of the running turn, in tokens: the last reported fill, the largest, and the sum of the earlier ones."""
        self._begun = time.monotonic()

    def begin(self) -> None:
        """Note that a turn begins."""
        self.turn += 1
        self._begun = time.monotonic()
        self._observe(RequestStarted(turn=self.turn))

    def take_fill(self, fill_tokens: int) -> bool:
        """Take in the reported fill of the context; return whether it is new."""
        if fill_tokens == self._fill:
            return False
        self._before += self._fill
        self._fill, self._largest = fill_tokens, max(self._largest, fill_tokens)
        self.gauge = self.gauge.measure(Usage(input_tokens=fill_tokens))
        return True

    def check_reported(self) -> SessionOutcome | None:
        """Return an outcome if the reports are over a cap by now."""
        fit = fit_answer(self.spec.check_budget, self._guess().prompt_tokens, 0)
        return fit if isinstance(fit, SessionOutcome) else None

    def end(self, usage: Usage | None) -> None:
        """Account for a turn by the reported usage; None: by the reported fill."""
        known = usage or self._guess()
        self._fill = self._largest = self._before = 0
        usd = None if self.spec.price is None else cost_usd(known, self.spec.price)
        spent = Spent(usage=known, cost_usd=usd, estimated=True)
        shown = {"turn": self.turn, "model": self.spec.model, "stop_reason": "told"}
        self.show(spent, duration_s=time.monotonic() - self._begun, **shown)

    def close(self) -> None:
        """Account for an unfinished turn."""
        if self._fill:
            self.end(None)

    def _guess(self) -> Usage:
        """Return the prompts' sum: each holds the one before it, which comes from the cache."""
        return Usage(input_tokens=self._largest, cache_read_tokens=self._before)


class TunnelSession(AgentSession):
    """One conversation with an agent that reaches its vendor itself."""

    def __init__(self, profile: Profile, spec: SessionSpec, account: ReportedAccount, context: AgentContext) -> None:
        super().__init__(profile, spec, account, context)
        self._reports = account

    def _say(self, text: str) -> None:
        self._reports.begin()
        super()._say(text)

    def _handle_update(self, said: Notification) -> None:
        super()._handle_update(said)
        if (fill := read_fill(said.params)) is not None and self._reports.take_fill(fill):
            self._note_life()
        update: Any = read_update(said.params)
        ended = isinstance(update, ToolUpdate) and update.ended and not self._activity.is_busy
        if ended and self._prompt and self._outcome is None and not self._words:
            self._cross_boundary()
            if over := self._reports.check_reported():
                self._end(over.end, over.detail)

    def _handle_turn_end(self, answered: Answered) -> None:
        self._reports.end(read_usage(answered.result))
        super()._handle_turn_end(answered)


PORT = 47_113
"""Port of the gateway on the sandbox's loopback, which is a network of its own."""
_MODEL, _TOOLS = "model", "tools"
ReportNew = Callable[[], None]
"""Reports what is new since the last look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunner:
    """Runs sessions of one agent; a `relay.runners.base.Runner`. Mutable: learns the agent's version."""

    profile: Profile
    setup: EndpointSetup
    way: Way
    given: Surroundings
    endpoint: ApiRunner | None
    """Gives the model's limits; None with a login, which is not for that."""
    versions: list[str] = field(default_factory=list)
    """Reported by the agent, one for each session."""

    @property
    def agent(self) -> str:
        """The agent with the version that it reported last."""
        return f"{self.profile.name} {self.versions[-1] if self.versions else ''}".strip()

    @property
    def metering(self) -> str:
        """Who counted the tokens."""
        return "agent" if self.profile.tunnelled else "gateway"

    def get_model(self, model: str) -> ModelInfo:
        """Return window and limits of a model from the endpoint or a table."""
        if self.endpoint is not None:
            return self.endpoint.get_model(model)
        own = self.given.settings.find_model(model)
        return choose_limits(model, own, ModelSettings(), user_file=show_user_file(self.given.environ))

    @contextmanager
    def open_session(self, spec: SessionSpec) -> Iterator[AgentSession]:
        """Return a fresh session; its process starts with the first message.

        Raises:
            RunnerError: There is no sandbox that can confine an agent.
        """
        mark = f"relay-session {spec.session_id}-{secrets.token_hex(6)}"
        inbox: Inbox = Intake()
        with ExitStack() as stack:
            stack.callback(lambda: release_waiting(inbox.close()))
            sandbox, installed, look = self._put_up(stack, spec, inbox, mark)
            if self.profile.bring:
                files, digest = copy_brought(self.profile, self.given.environ, sandbox.private.tmp / HOME_NAME)
                what = f"{self.profile.title} has a copy of your {', '.join(self.profile.bring)}"
                self.given.observe(Noticed(text=f"{what}: {files:,} files, SHA-256 {digest}"))
            if spec.effort and not self.profile.effort:
                words = f"{self.profile.title} has an effort of its own; relay cannot tell it {spec.effort}"
                self.given.observe(Noticed(text=words, warning=True))
            context = AgentContext(
                start=partial(self._start, stack, sandbox, spec, inbox, installed),
                note_version=self.versions.append,
                observe=self.given.observe,
                interrupts=self.given.interrupts,
                stop_s=self.given.settings.command_timeout_s,
                idle_s=AGENT_IDLE_S,
                look=look,
                root=sandbox.policy.shown_root,
                inbox=inbox,
                mark=mark,
            )
            model, observe = self.get_model(spec.model), self.given.observe
            if self.profile.tunnelled:  # a text in mid-turn may cost an answer: only the soft line is worth that
                spec = replace(spec, callbacks=replace(spec.callbacks, render_band_notice=lambda _fill, _line: ""))
                yield TunnelSession(self.profile, spec, ReportedAccount(spec, model, observe), context)
            else:
                wait_s, sets = self.given.settings.max_wait_s, not self.profile.has_login
                account = AgentAccount(spec, model, observe, max_wait_s=wait_s, sets_limits=sets)
                yield AgentSession(self.profile, spec, account, context)

    def _put_up(
        self, stack: ExitStack, spec: SessionSpec, inbox: Inbox, mark: str
    ) -> tuple[Sandbox, Installed, ReportNew]:
        """Open gateway, tool server and a sandbox with a socket to each; return also what watches its network."""
        if spec.sandbox is None or not spec.sandbox.mechanism.confines:
            raise RunnerError(
                f"{self.profile.title} runs in relay's sandbox as a whole, and only bubblewrap can hold it",
                hint="relay doctor shows what is missing; --runner api needs no such sandbox",
            )
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-openings-", dir=find_folder())))
        ways_out, look = self._open_way_out(stack, place, inbox, mark, spec)
        hand_in = partial(inbox.put, most=MOST_CONNECTIONS, wait_s=PATIENCE_S)
        offer = Offer(tools=choose_offered(spec.tools), tell=hand_in)
        stack.enter_context(listen(place / _TOOLS, partial(serve_tools, offer), MOST_CONNECTIONS))
        policy = spec.sandbox.policy
        installed = get_installed(self.profile, self.given.environ, policy.shown_root)
        kept = (
            opening for opening in policy.openings if not (opening.hosts and self.profile.tunnelled)
        )  # there is only one proxy
        policy = replace(
            policy,
            openings=(*kept, *ways_out, Opening(name=_TOOLS, socket=place / _TOOLS)),
            for_agent=True,
            readable=(*policy.readable, *installed.shown),
            network=False,
        )
        level = spec.sandbox.level if spec.writes else Level.READ_ONLY
        return stack.enter_context(open_sandbox(policy, level)), installed, look

    def _open_way_out(
        self, stack: ExitStack, place: Path, inbox: Inbox, mark: str, spec: SessionSpec
    ) -> tuple[tuple[Opening, ...], ReportNew]:
        """Open the gateway, or a proxy for the vendor's hosts if the agent reaches its vendor itself."""
        if self.profile.tunnelled:
            name = f"`hosts` in agents.{self.profile.name}"
            held = stack.enter_context(serve_openings(self.profile.hosts, (), name))
            told: set[HostAsked] = set()

            def look() -> None:
                """Report the hosts that the agent asked for since the last look, each once in a session."""
                for asked in held.inquiries.take():
                    if asked not in told:
                        told.add(asked)
                        self.given.observe(asked)

            stack.callback(look)
            return held.openings, look
        environ, idle_s = self.given.environ, self.given.endpoint_idle_s
        lent = self.profile.has_login
        family = self.way.family
        wire = stack.enter_context(closing(open_wire(environ, idle_s, self.way, is_lent=lent)))
        route = Route(
            wire=wire,
            mark=mark.encode(),
            secrets=find_own_secrets(environ),
            tell=lambda told: release_waiting(() if inbox.put(told, most=2 * MOST) else (told,)),
            way=self.way,
            passes_login=lent,
            api_key="" if lent or family is not ANTHROPIC else environ.get(ANTHROPIC.keys[0], ""),
            keep=spec.keep,
            hide=spec.hide,
        )
        stack.enter_context(listen(place / _MODEL, partial(serve_agent, route)))
        return (Opening(name=_MODEL, socket=place / _MODEL, port=PORT),), lambda: None

    def _start(
        self,
        stack: ExitStack,
        sandbox: Sandbox,
        spec: SessionSpec,
        inbox: Inbox,
        installed: Installed,
        most_tokens: int,
    ) -> AgentProcess:
        assert spec.limits is not None  # noqa: S101  # it has a sandbox
        home = sandbox.tmp / HOME_NAME
        tools = sandbox.inside.parent / _TOOLS
        server = {"command": sys.executable, "args": ["-I", "-S", "-c", BRIDGE, str(tools)]}
        model = self.get_model(spec.model)
        words = {
            "base": f"http://127.0.0.1:{PORT}",
            "model": spec.model,
            "home": str(home),
            "tools": str(tools),
            "window": str(model.window_tokens),
            "output": str(most_tokens),
            "effort": spec.effort or "",
            "server": json.dumps(server),
        }
        make_home(self.profile, self.setup, sandbox.private.tmp / HOME_NAME, words)
        told = self.profile.effort if spec.effort else {}
        own = {name: fill(value, words) for name, value in {**told, **self.profile.env, **self.setup.env}.items()}
        if self.profile.has_login:
            own |= copy_login(self.profile, self.given.environ, sandbox.private.tmp / HOME_NAME)
        child = start_child(
            sandbox,
            (str(installed.program), *(fill(word, words) for word in (*self.profile.arguments, *self.setup.arguments))),
            limits=spec.limits,
            cwd=sandbox.policy.root,
            extra_env={**own, "HOME": str(home), "PATH": installed.path},
            errors=sandbox.private.path / "errors",
        )
        stack.callback(child.end)
        servers = ({"name": "relay", "env": [], **server},) if self.profile.takes_server else ()
        wire = Wire(child.output, child.send, inbox.put)
        return AgentProcess(child=child, wire=wire, cwd=sandbox.policy.shown_root, servers=servers)

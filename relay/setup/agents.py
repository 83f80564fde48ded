"""An installed agent tried as a run would use it: in the sandbox, in a repository of its own, on a rehearsed model.

Nothing is paid for and nothing of the user's is touched. Each finding stands for itself, in the order in which a new
user meets what is missing.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.base.errors import RelayError, RunnerError
from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.base.words import count
from relay.config import Settings
from relay.git.command import get_git
from relay.git.repository import open_repo
from relay.runners.agents.home import find_engine_version, find_login, find_package_version, get_installed
from relay.runners.agents.kinds import make_kind
from relay.runners.agents.profiles import Profile
from relay.runners.base import Callbacks, RunnerKind, SessionSpec, Surroundings
from relay.runners.messages.endpoint import FAMILIES
from relay.runners.registry import list_profiles
from relay.sandbox.probe import find_way
from relay.session.events import Event, RequestStarted, ResponseReceived
from relay.session.gauge import parse_reset_at
from relay.session.usage import Usage
from relay.session.values import SessionEnd, SessionKind, SessionOutcome, ToolCall, ToolResult, ToolSpec
from relay.setup.context import RunRequest
from relay.setup.preconditions import Finding, State, check_key, make_missing
from relay.setup.workspace import open_own_workspace

if TYPE_CHECKING:
    from relay.rehearsal.server import Rehearsal
    from relay.tools.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFound:
    """One agent that relay knows, as it is here."""

    profile: Profile
    program: str = ""
    """Where it is; empty when it cannot be used."""
    version: str = ""
    """Of its package; empty when that is not known."""
    engine: str = ""
    """The version of what does its work, where that is another program; empty when that is not known."""
    missing: str = ""
    """What is missing; empty when nothing is."""
    login: str
    """What it asks its model with: the variable of a key, or what is missing, with a login that it could use."""


def examine_agents(settings: Settings, environ: Mapping[str, str]) -> tuple[AgentFound, ...]:
    """Look for every agent; nothing is started."""
    return tuple(examine_agent(profile, environ) for profile in list_profiles(settings).values())


def examine_agent(profile: Profile, environ: Mapping[str, str]) -> AgentFound:
    """Look for one."""
    login = _find_login(profile, environ)
    try:
        installed = get_installed(profile, environ)
    except RunnerError as error:
        return AgentFound(profile=profile, missing=error.message, login=login)
    return AgentFound(
        profile=profile,
        program=str(installed.program),
        version=find_package_version(installed.program),
        engine=find_engine_version(profile, installed),
        login=login,
    )


def _find_login(profile: Profile, environ: Mapping[str, str]) -> str:
    try:
        return make_kind(profile).get_key(environ)
    except RunnerError:
        place = "" if profile.is_lent else find_login(profile, environ)
        return f"no key; a login ({place})" if place else "no login" if profile.is_lent else "no key"


_TOOL = ToolSpec(
    name="tick",
    description="Claim an item of the plan.",
    input_schema={
        "type": "object",
        "properties": {"item": {"type": "string"}, "evidence": {"type": "string"}},
        "required": ["item", "evidence"],
    },
)
_NAMES = ("mcp__relay__tick", "relay_tick", "relay__tick", "relay-tick", "tick")
"""What agents call it."""
_CALL = "input: {item: '1.1', evidence: seen}"
_SCRIPT = "sessions:\n" + "".join(
    f"- {{when: {{tools_include: [{name}]}}, repeat: true, turns: [{{tools: [{{name: {name}, {_CALL}}}]}}, "
    "{text: Done.}]}\n"
    for name in _NAMES
) + "- {repeat: true, turns: [{text: Done.}]}\n"  # fmt: skip
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")

_USED = ("agents", "model", "models", "prices", "readable_dirs")
"""Settings that say what is tried, and on what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _AgentSeen:
    """What happened. Mutable: events come one by one."""

    answers: list[ResponseReceived] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    asked: list[float] = field(default_factory=list)
    """When, in seconds."""

    def observe(self, event: Event) -> None:
        match event:
            case ResponseReceived():
                self.answers.append(event)
            case RequestStarted():
                self.asked.append(time.monotonic() - self.began)
            case _:
                pass

    def run_tool(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        return ToolResult(text="claimed")


def try_agent(
    found: AgentFound, kind: RunnerKind, settings: Settings, environ: Mapping[str, str], *, bwrap: Path | None
) -> tuple[Finding, ...]:
    """Try one agent, with bubblewrap where it is; never raises for what is missing.

    Args:
        found: The agent.
        kind: Its runner.
        settings: The user's: the model, and what else a session of an agent depends on.
        environ: The user's.
        bwrap: Where bubblewrap is; None where it is not.
    """
    key = check_key((kind,), environ, settings, (found.profile.name,))
    return (*_try(found, kind, settings, environ, bwrap), key)


def _try(
    found: AgentFound, kind: RunnerKind, settings: Settings, environ: Mapping[str, str], bwrap: Path | None
) -> Iterator[Finding]:
    yield from _judge_installed(found)
    if found.missing:
        yield from _find_ground(found, environ, bwrap)
    if found.profile.is_lent:
        words = "it asks its vendor with your login: a session would be used up, so none is held"
        yield Finding(name="session", state=State.INFO, words=words)
    elif not found.missing:
        try:
            yield from _hold_session(found, kind, settings, environ)
        except RelayError as error:
            hint = error.hint or find_way(Path.cwd(), has_bwrap=bwrap is not None)
            yield replace(make_missing("sandbox", error), hint=hint)


def _find_ground(found: AgentFound, environ: Mapping[str, str], bwrap: Path | None) -> Iterator[Finding]:
    """Yield what is missing to install an agent, and to hold it."""
    if found.profile.package.startswith("npm ") and shutil.which("npm", path=environ.get("PATH", "")) is None:
        words = "there is no npm on PATH, which installs it"
        yield Finding(
            name="npm", state=State.MISSING, words=words, hint="Node 22.19 or newer has it: https://nodejs.org"
        )
    if bwrap is None:
        words, hint = "only bubblewrap can hold it, which is not here", find_way(Path.cwd(), has_bwrap=False)
        yield Finding(name="sandbox", state=State.MISSING, words=words, hint=hint)


def _judge_installed(found: AgentFound) -> Iterator[Finding]:
    profile, engine = found.profile, found.profile.engine
    if found.missing:
        yield Finding(name="installed", state=State.MISSING, words=found.missing, hint=profile.package or profile.way)
        return
    yield _judge_version("installed", found.program, found.version, profile.tested, profile.package)
    if engine is not None:
        yield _judge_version("runs", engine.program, found.engine, engine.tested, profile.package)


def _judge_version(name: str, program: str, version: str, tested: str, package: str) -> Finding:
    words = f"{program}, {version or 'version unknown'}{f', tested with {tested}' if tested else ''}"
    if not tested or version in {"", tested}:
        return Finding(name=name, state=State.OK, words=words)
    by_npm = "; npm takes an older one by itself where Node is too old" if package.startswith("npm ") else ""
    hint = f"{package} installs the tested one{by_npm}"
    return Finding(name=name, state=State.WARNING, words=words, hint=hint)


def _hold_session(
    found: AgentFound, kind: RunnerKind, settings: Settings, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Run one session, and say what was seen.

    Raises:
        RelayError: No sandbox holds here, or not one that can hold an agent.
    """
    from relay.rehearsal.script import parse_script
    from relay.rehearsal.server import serve

    script = parse_script(f"model: {json.dumps(settings.model)}\n{_SCRIPT}")
    with tempfile.TemporaryDirectory(prefix="relay-try-") as place, serve(script) as server:
        root = Path(place, "repository").resolve()
        root.mkdir()
        get_git(environ, root, None).run("init", "--quiet", str(root))
        own = {name: environ[name] for name in _PASSED_ON if name in environ}
        for family in FAMILIES:
            own |= {family.keys[0]: "rehearsed", family.base: f"{server.base_url}{family.root}"}
        used = {name: getattr(settings, name) for name in _USED}
        settings = Settings(runner=found.profile.name, max_wait_s=0.0, max_cost_usd=None, **used)
        request = RunRequest(
            kind=SessionKind.RUN,
            repo=open_repo(root, environ),
            settings=settings,
            plan_path="PLAN.md",
            allow_dirty=True,
            environ=own,
        )
        with open_own_workspace(request) as workspace:
            yield Finding(
                name="sandbox", state=State.OK, words=f"{workspace.sandbox.mechanism}: it runs in it as a whole"
            )
            seen = _AgentSeen()
            outcome, told = _advance(kind, request, workspace, seen)
            yield from _judge(f"{told} on {settings.model}", outcome, seen, server)


def _advance(
    kind: RunnerKind, request: RunRequest, workspace: "Workspace", seen: _AgentSeen
) -> tuple[SessionOutcome, str]:
    """Return how the session ended, and what the agent is called by itself."""
    interrupts = Interrupts()
    given = Surroundings(
        environ=request.environ, settings=request.settings, observe=seen.observe, interrupts=interrupts
    )
    try:
        with kind.open(given) as runner, runner.open_session(_make_spec(request, workspace, seen)) as session:
            return session.advance("Call tick, then say that you are done."), runner.agent
    finally:
        interrupts.close()


def _make_spec(request: RunRequest, workspace: "Workspace", seen: _AgentSeen) -> SessionSpec:
    return SessionSpec(
        session_id="trial",
        model=request.settings.model,
        system="You are tried by relay.",
        tools=(_TOOL,),
        callbacks=Callbacks(run_tool=seen.run_tool, render_soft_notice=lambda _fill, _room: "relay: end now."),
        reset_at=parse_reset_at("100%"),
        check_budget=lambda _prompt, _output: None,
        price=None,
        max_turns=10,
        sandbox=workspace.sandbox,
        writes=True,
        limits=workspace.limits,
    )


def _judge(who: str, outcome: SessionOutcome, seen: _AgentSeen, server: "Rehearsal") -> Iterator[Finding]:
    if not seen.asked:
        yield Finding(name="session", state=State.MISSING, words=outcome.detail or "it asked its model for nothing")
        return
    ended = outcome.end is SessionEnd.FINISHED
    words = f"{who}: its first request came after {seen.asked[0]:.1f} s"
    yield Finding(
        name="session",
        state=State.OK if ended else State.MISSING,
        words=words if ended else f"{words}; it ended with {outcome.end}: {outcome.detail}",
    )
    yield _judge_tools(seen)
    yield _judge_usage(seen, server)


def _judge_tools(seen: _AgentSeen) -> Finding:
    if seen.calls:
        return Finding(name="tools", state=State.OK, words="relay's own tools reach the model, and their results it")
    words = "relay's tools are not among those that its first request shows; it may have the model search for them"
    return Finding(name="tools", state=State.WARNING, words=words)


def _judge_usage(seen: _AgentSeen, server: "Rehearsal") -> Finding:
    counted = sum((answer.usage for answer in seen.answers if answer.usage), start=Usage())
    logged = [request.usage for request in server.requests if request.usage]
    total = sum(sum(_count(usage)) for usage in logged)
    prompt = max(answer.usage.prompt_tokens for answer in seen.answers if answer.usage) if seen.answers else 0
    words = f"{count(len(logged), 'request')}, the longest of {prompt:,} tokens"
    if counted.context_tokens == total:
        return Finding(name="usage", state=State.OK, words=f"{words}; every token was counted")
    return Finding(
        name="usage", state=State.WARNING, words=f"{words}; {counted.context_tokens:,} of {total:,} were counted"
    )


def _count(usage: Mapping[str, Any]) -> tuple[int, ...]:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    return tuple(int(usage.get(name) or 0) for name in names)

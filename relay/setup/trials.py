"""Trials: one short session with a model on its endpoint, or with an installed agent on a rehearsed model.

`try_model` sends real requests and costs what `estimate_trial` says. `try_agent` runs the agent as a run would, in the
sandbox and in a repository of its own; it costs nothing and touches no file of the user.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from relay.base.errors import ConfigError, RelayError, RunnerError
from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.base.words import count, render_usd
from relay.config import ModelSettings, Settings
from relay.config.model import CONTEXTS, Paths
from relay.config.sources import render_model_table
from relay.git.command import get_git
from relay.git.repository import open_repo
from relay.prompts.texts import render_trial_message, render_trial_system
from relay.runners.agents.profiles import (
    Profile,
    find_login,
    get_installed,
)
from relay.runners.base import Callbacks, ModelInfo, RunnerKind, SessionSpec, Surroundings
from relay.runners.messages.endpoint import FAMILIES
from relay.runners.registry import list_profiles, make_kind
from relay.sandbox.run import find_way
from relay.session.events import Event, Noticed, RequestStarted, ResponseReceived, TextShown
from relay.session.gauge import parse_reset_at
from relay.session.prices import Price, UserPrice, find_limits, worst_cost_usd
from relay.session.usage import Usage, pad_tokens
from relay.session.values import SessionEnd, SessionKind, SessionOutcome, ToolCall, ToolResult, ToolSpec
from relay.setup.context import RunRequest
from relay.setup.preconditions import Finding, State, check_key, make_missing
from relay.setup.session import find_price_now
from relay.setup.workspace import open_own_workspace

if TYPE_CHECKING:
    from relay.rehearsal.server import Player
    from relay.runners.messages.conversation import ApiRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The events of a trial. Mutable: it collects them."""

    answers: list[ResponseReceived] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    asked: list[float] = field(default_factory=list)
    """Seconds from the start to each request."""

    def observe(self, event: Event) -> None:
        match event:
            case ResponseReceived():
                self.answers.append(event)
            case RequestStarted():
                self.asked.append(time.monotonic() - self.began)
            case Noticed():
                self.notes.append(event.text)
            case TextShown(thinking=True):
                self.thoughts.append(event.text)
            case _:
                pass

    def run_tool(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        return ToolResult(text=str(call.input.get("word", "claimed")))

    @property
    def used_tokens(self) -> int:
        return sum(answer.usage.context_tokens for answer in self.answers if answer.usage)

    def make_spec(self, **given: Any) -> SessionSpec:
        callbacks = Callbacks(run_tool=self.run_tool, render_soft_notice=lambda _fill, _room: "relay: end now.")
        return SessionSpec(session_id="trial", callbacks=callbacks, reset_at=parse_reset_at("100%"), **given)


def _find(name: str, state: State, words: str, hint: str = "") -> Finding:
    return Finding(name=name, state=state, words=words, hint=hint)


REQUESTS = 3
"""A trial needs two; the third is for a request that the endpoint refuses, or a model that calls twice."""
ANSWER_TOKENS = 2_000
"""Longest answer: a model that thinks first needs more than a word."""
ASSUMED = ModelSettings(window_tokens=32_000, max_output_tokens=4_000)
"""Limits of an unknown model, for the trial only."""
_CACHEABLE_TOKENS = 1_024
"""Shortest prompt that is cached, for a model without a known limit."""
_WORD = "relay"
_ECHO = ToolSpec(
    name="echo",
    description="Answer with the same word.",
    input_schema={
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrial:
    """The result of a model's trial."""

    findings: tuple[Finding, ...]
    table: str
    """The model's table for the user's settings file; empty if the model never answered."""


def estimate_trial(settings: Settings) -> str:
    """Return the most that a trial can cost, in words."""
    price = find_price_now(settings, settings.model)
    prompt = pad_tokens(_count_prompt(settings.model))
    tokens = REQUESTS * (prompt + ANSWER_TOKENS)
    usd = None if price is None else REQUESTS * worst_cost_usd(prompt, ANSWER_TOKENS, price)
    cost = f"{render_usd(usd)} at most" if usd is not None else "its price is not known"
    return f"{settings.model}: up to {count(REQUESTS, 'request')} of about {tokens:,} tokens together; {cost}"


def try_model(kind: RunnerKind, settings: Settings, environ: Mapping[str, str]) -> ModelTrial:
    """Try a model on its endpoint with one tool call and one word.

    Raises:
        RunnerError: There is no key, or the endpoint cannot be reached.
    """
    seen, interrupts = _Seen(), Interrupts()

    def open_runner(chosen: Settings) -> Any:
        impatient = replace(chosen, max_wait_s=0.0, context=CONTEXTS[0], ablate=())
        return kind.open(Surroundings(environ=environ, settings=impatient, observe=seen.observe, interrupts=interrupts))

    try:
        try:
            with open_runner(settings) as runner:
                return _hold_trial(runner, settings, runner.get_model(settings.model), seen)
        except RunnerError:
            own = settings.find_model(settings.model)
            if seen.answers or (own.window_tokens and own.max_output_tokens):
                raise
        guessed = structs.replace(
            own,
            window_tokens=own.window_tokens or ASSUMED.window_tokens,
            max_output_tokens=own.max_output_tokens or ASSUMED.max_output_tokens,
        )
        chosen = replace(settings, models={**settings.models, settings.model: guessed})
        with open_runner(chosen) as runner:
            return _hold_trial(runner, chosen, runner.get_model(settings.model), seen, unknown=own)
    finally:
        interrupts.close()


def _hold_trial(
    runner: "ApiRunner", settings: Settings, info: ModelInfo, seen: _Seen, *, unknown: ModelSettings | None = None
) -> ModelTrial:
    """Run the session and judge it; `unknown` is the user's table of a model with unknown limits, else None."""
    price = find_price_now(settings, settings.model)
    with runner.open_session(_make_model_spec(settings, price, seen)) as session:
        outcome = session.advance(render_trial_message(_WORD))
    own = price and UserPrice(**asdict(price.rates))
    known = structs.replace(runner.describe_model(settings.model), price=own)
    if unknown is not None:
        known = structs.replace(known, window_tokens=unknown.window_tokens, max_output_tokens=unknown.max_output_tokens)
    findings = tuple(_judge_model(info, outcome, seen, assumed=unknown is not None))
    return ModelTrial(findings=findings, table=render_model_table(settings.model, known) if seen.answers else "")


def _make_model_spec(settings: Settings, price: Price | None, seen: _Seen) -> SessionSpec:
    most = REQUESTS * (pad_tokens(_count_prompt(settings.model)) + ANSWER_TOKENS)

    def check_budget(prompt_tokens: int, output_tokens: int) -> str | None:
        enough = len(seen.answers) >= REQUESTS or seen.used_tokens + prompt_tokens + output_tokens > 2 * most
        return f"no answer that ends after {count(len(seen.answers), 'request')}" if enough else None

    return seen.make_spec(
        model=settings.model,
        system=render_trial_system(_count_prompt(settings.model)),
        tools=(_ECHO,),
        check_budget=check_budget,
        price=price,
        max_output_tokens=ANSWER_TOKENS,
        max_turns=REQUESTS,
        effort=settings.effort,
    )


def _count_prompt(model: str) -> int:
    """Estimate the tokens of the prompt: a quarter more than the shortest prompt that is cached."""
    limits = find_limits(model)
    return (limits.min_cacheable_tokens if limits else _CACHEABLE_TOKENS) * 5 // 4


def _judge_model(info: ModelInfo, outcome: SessionOutcome, seen: _Seen, *, assumed: bool) -> Iterator[Finding]:
    if assumed:
        hint = "correct the table below, and paste it into your settings"
        yield _find("limits", State.MISSING, "the limits of this model are unknown", hint)
    else:
        words = f"window {info.window_tokens:,} tokens, answers up to {info.max_output_tokens:,} ({info.source})"
        yield _find("limits", State.OK, words)
    if not seen.answers:
        yield _find("answer", State.MISSING, outcome.detail or outcome.end.value)
        return
    yield from _judge_answers(outcome, seen)
    for note in seen.notes:
        yield _find("note", State.INFO, note)


def _judge_answers(outcome: SessionOutcome, seen: _Seen) -> Iterator[Finding]:
    ended = outcome.end is SessionEnd.FINISHED
    took = sum(answer.duration_s for answer in seen.answers)
    costs = [answer.cost_usd for answer in seen.answers]
    cost = None if None in costs else sum(filter(None, costs))
    words = f"{count(len(seen.answers), 'request')}, {seen.used_tokens:,} tokens, {render_usd(cost)}, {took:.1f} s"
    yield _find("answer", State.OK if ended else State.MISSING, words if ended else f"{words}: {outcome.detail}")
    streamed = all(answer.streamed for answer in seen.answers)
    words = "answers are streamed" if streamed else "answers come whole: a long answer looks like silence"
    yield _find("streams", State.OK if streamed else State.WARNING, words)
    yield _judge_echo([call.input.get("word") for call in seen.calls], back=_WORD in outcome.text.lower())
    tokens = sum(answer.usage.thinking_tokens for answer in seen.answers if answer.usage)
    words = "shown" if seen.thoughts else f"{tokens:,} tokens, not shown" if tokens else "none seen"
    yield _find("thinking", State.INFO, words)
    told = not any(answer.estimated for answer in seen.answers)
    words = "reported with each answer" if told else "not all of it is reported: relay estimates, and marks that with ~"
    yield _find("usage", State.OK if told else State.WARNING, words)
    if len(seen.answers) > 1:
        usage = seen.answers[-1].usage
        read = usage.cache_read_tokens if usage is not None else 0
        words = (
            "nothing was read from it, or the endpoint does not report it: each request counts with its whole prompt"
        )
        if usage is not None and read:
            words = f"{read:,} of {usage.prompt_tokens:,} tokens of the last prompt came from it"
        yield _find("cache", State.OK if read else State.WARNING, words)


def _judge_echo(asked: list[Any], *, back: bool) -> Finding:
    if _WORD not in asked:
        return _find("tools", State.MISSING, "the model called no tool although it was told to: sessions need tools")
    words = (
        "the model called a tool and read its result"
        if back
        else "the model called the tool and did not say its result"
    )
    return _find("tools", State.OK if back else State.WARNING, words)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFound:
    """An agent that relay knows, as it is installed here."""

    profile: Profile
    program: str = ""
    """The path of its program; empty if it cannot be used."""
    missing: str = ""
    """The reason why it cannot be used; empty if it can."""
    login: str
    """The variable of its key; without a key, the login that it could use."""
    has_login: bool = False
    """Whether there is no key, but a login that the agent could use."""


def examine_agents(settings: Settings, environ: Mapping[str, str]) -> tuple[AgentFound, ...]:
    """Look for every agent without starting one."""
    return tuple(examine_agent(profile, settings, environ) for profile in list_profiles(settings).values())


def examine_agent(profile: Profile, settings: Settings, environ: Mapping[str, str]) -> AgentFound:
    """Look for one agent without starting it."""
    place, program, missing = "", "", ""
    try:
        login = make_kind(profile, settings).get_key(environ)
    except (RunnerError, ConfigError):
        place = "" if profile.has_login else find_login(profile, environ)
        login = f"no key; a login ({place})" if place else "no login" if profile.has_login else "no key"
    try:
        program = str(get_installed(profile, environ).program)
    except RunnerError as error:
        missing = error.message
    return AgentFound(profile=profile, program=program, missing=missing, login=login, has_login=bool(place))


_TICK = ToolSpec(
    name="tick",
    description="Claim an item of the plan.",
    input_schema={
        "type": "object",
        "properties": {"item": {"type": "string"}, "evidence": {"type": "string"}},
        "required": ["item", "evidence"],
    },
)
_NAMES = ("mcp__relay__tick", "relay_tick", "relay__tick", "relay-tick", "tick")
"""The names that agents give the tool."""
_CALL = "input: {item: '1.1', evidence: seen}"
_SCRIPT = "sessions:\n" + "".join(
    f"- {{when: {{tools_include: [{name}]}}, repeat: true, turns: [{{tools: [{{name: {name}, {_CALL}}}]}}, "
    "{text: Done.}]}\n"
    for name in _NAMES
) + "- {repeat: true, turns: [{text: Done.}]}\n"  # fmt: skip
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
_USED = ("agents", "model", "models")
"""The settings that a trial takes over from the user."""


def try_agent(
    found: AgentFound, kind: RunnerKind, settings: Settings, environ: Mapping[str, str], *, bwrap: Path | None
) -> Iterator[Finding]:
    """Try one agent; never raises for what is missing.

    Args:
        found: The agent.
        kind: Its runner.
        bwrap: The path of bubblewrap; None without it.
    """
    profile = found.profile
    if found.missing:
        yield _find("installed", State.MISSING, found.missing, profile.package or profile.installation)
        yield from _find_obstacles(found, environ, bwrap)
    else:
        tested = f", tested with {profile.tested}" if profile.tested else ""
        yield _find("installed", State.OK, f"{found.program}{tested}")
    if profile.has_login:
        words = "it asks its vendor with your login: a session would be used up, so none is held"
        yield _find("session", State.INFO, words)
    elif not found.missing:
        try:
            yield from _hold_session(found, kind, settings, environ)
        except RelayError as error:
            hint = error.hint or find_way(Path.cwd(), has_bwrap=bwrap is not None)
            yield replace(make_missing("sandbox", error), hint=hint)
    yield check_key((kind,), environ, settings, (profile.name,))


def _find_obstacles(found: AgentFound, environ: Mapping[str, str], bwrap: Path | None) -> Iterator[Finding]:
    """Yield what is missing to install an agent and to confine it."""
    if found.profile.package.startswith("npm ") and shutil.which("npm", path=environ.get("PATH", "")) is None:
        hint = "Node 22.19 or newer has it: https://nodejs.org"
        yield _find("npm", State.MISSING, "there is no npm on PATH, which installs it", hint)
    if bwrap is None:
        hint = find_way(Path.cwd(), has_bwrap=False)
        yield _find("sandbox", State.MISSING, "bubblewrap is not installed, and agents run in it only", hint)


def _hold_session(
    found: AgentFound, kind: RunnerKind, settings: Settings, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Run one session and judge it.

    Raises:
        RelayError: No sandbox works here that can confine an agent.
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
        shown = Paths(read=settings.paths.read)
        settings = Settings(runner=found.profile.name, max_wait_s=0.0, max_cost_usd=None, paths=shown, **used)
        request = RunRequest(
            kind=SessionKind.RUN,
            repo=open_repo(root, environ),
            settings=settings,
            plan_path="PLAN.md",
            environ=own,
        )
        with open_own_workspace(request) as workspace:
            yield _find("sandbox", State.OK, f"{workspace.sandbox.mechanism}: the whole agent runs in it")
            seen = _Seen()
            spec = seen.make_spec(
                model=settings.model,
                system="You are tried by relay.",
                tools=(_TICK,),
                check_budget=lambda _prompt, _output: None,
                price=None,
                max_turns=10,
                sandbox=workspace.sandbox,
                writes=True,
                limits=workspace.limits,
            )
            interrupts = Interrupts()
            given = Surroundings(environ=own, settings=settings, observe=seen.observe, interrupts=interrupts)
            try:
                with kind.open(given) as runner, runner.open_session(spec) as session:
                    outcome = session.advance("Call tick, then say that you are done.")
            finally:
                interrupts.close()
            yield from _judge_agent(f"{runner.agent} on {settings.model}", outcome, seen, server)


def _judge_agent(who: str, outcome: SessionOutcome, seen: _Seen, server: "Player") -> Iterator[Finding]:
    if not seen.asked:
        yield _find("session", State.MISSING, outcome.detail or "it sent no request to its model")
        return
    ended = outcome.end is SessionEnd.FINISHED
    words = f"{who}: its first request came after {seen.asked[0]:.1f} s"
    words += "" if ended else f"; it ended with {outcome.end}: {outcome.detail}"
    yield _find("session", State.OK if ended else State.MISSING, words)
    if seen.calls:
        yield _find("tools", State.OK, "the model calls relay's own tools and gets their results")
    else:
        words = "relay's tools are not in its first request; the agent may have the model search for them"
        yield _find("tools", State.WARNING, words)
    counted = sum((answer.usage for answer in seen.answers if answer.usage), start=Usage()).context_tokens
    logged = server.state.bills
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    total = sum(int(usage.get(name) or 0) for usage in logged for name in names)
    prompt = max((answer.usage.prompt_tokens for answer in seen.answers if answer.usage), default=0)
    words = f"{count(len(logged), 'request')}, the longest of {prompt:,} tokens"
    words += "; every token was counted" if counted == total else f"; {counted:,} of {total:,} were counted"
    yield _find("usage", State.OK if counted == total else State.WARNING, words)

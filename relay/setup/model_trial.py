"""A model tried on its endpoint: one tool call and one word, by the way that sessions take; then what was seen."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any

from relay.base.errors import RunnerError
from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.base.words import count, render_usd
from relay.config import ModelSettings, Settings
from relay.config.model_table import render_model_table
from relay.prompts.texts import render_trial_message, render_trial_system
from relay.runners.base import Callbacks, ModelInfo, Runner, RunnerKind, SessionSpec, Surroundings
from relay.session.events import Event, Noticed, ResponseReceived, TextShown
from relay.session.gauge import parse_reset_at
from relay.session.prices import Price, find_limits, find_price, worst_cost_usd
from relay.session.tokens import pad_tokens
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult, ToolSpec
from relay.setup.preconditions import Finding, State

REQUESTS = 3
"""Two are needed; one more for what an endpoint refuses at first, or a model that calls twice."""
ANSWER_TOKENS = 2_000
"""Longest answer: a model that thinks first needs more than a word."""
ASSUMED = ModelSettings(window_tokens=32_000, max_output_tokens=4_000)
"""Of a model that nobody knows, for the trial only."""
_CACHEABLE_TOKENS = 1_024
"""Shortest prompt that is cached, where no table says."""
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
class Trial:
    """What a trial has shown."""

    findings: tuple[Finding, ...]
    table: str
    """The model's table as settings, to be pasted; empty where nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What happened. Mutable: events come one by one."""

    answers: list[ResponseReceived] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)

    def observe(self, event: Event) -> None:
        match event:
            case ResponseReceived():
                self.answers.append(event)
            case Noticed():
                self.notes.append(event.text)
            case TextShown(thinking=True):
                self.thoughts.append(event.text)
            case _:
                pass

    def run_tool(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        return ToolResult(text=str(call.input.get("word", "")))


def estimate_trial(settings: Settings) -> str:
    """Say what a trial takes at most, before it is made."""
    price = _find_price(settings)
    prompt = pad_tokens(_count_prompt(settings.model))
    tokens = REQUESTS * (prompt + ANSWER_TOKENS)
    usd = None if price is None else REQUESTS * worst_cost_usd(prompt, ANSWER_TOKENS, price)
    cost = f"{render_usd(usd)} at most" if usd is not None else "its price is not known"
    return f"{settings.model}: up to {count(REQUESTS, 'request')} of about {tokens:,} tokens together; {cost}"


def try_model(kind: RunnerKind, settings: Settings, environ: Mapping[str, str]) -> Trial:
    """Try a model; costs what `estimate_trial` says.

    Raises:
        RunnerError: No key, or the endpoint cannot be reached.
    """
    seen, interrupts = _Seen(), Interrupts()

    def open_runner(chosen: Settings) -> Any:
        impatient = replace(chosen, max_wait_s=0.0, context="reset", ablate=())
        return kind.open(Surroundings(environ=environ, settings=impatient, observe=seen.observe, interrupts=interrupts))

    try:
        try:
            with open_runner(settings) as runner:
                return _try(runner, settings, runner.get_model(settings.model), seen)
        except RunnerError:
            own = settings.find_model(settings.model)
            if seen.answers or (own.window_tokens and own.max_output_tokens):
                raise
        guessed = replace(
            own,
            window_tokens=own.window_tokens or ASSUMED.window_tokens,
            max_output_tokens=own.max_output_tokens or ASSUMED.max_output_tokens,
        )
        chosen = replace(settings, models={**settings.models, settings.model: guessed})
        with open_runner(chosen) as runner:
            return _try(runner, chosen, runner.get_model(settings.model), seen, unknown=own)
    finally:
        interrupts.close()


def _try(
    runner: Runner, settings: Settings, info: ModelInfo, seen: _Seen, *, unknown: ModelSettings | None = None
) -> Trial:
    """Hold the session.

    Args:
        unknown: What the user has set of a model whose limits nobody knows; None where they are known.
    """
    price = _find_price(settings)
    with runner.open_session(_make_spec(settings, price, seen)) as session:
        outcome = session.advance(render_trial_message(_WORD))
    known = replace(runner.describe_model(settings.model), price=price and replace(price, model=settings.model))
    if unknown is not None:
        known = replace(known, window_tokens=unknown.window_tokens, max_output_tokens=unknown.max_output_tokens)
    findings = tuple(_judge(info, outcome, seen, assumed=unknown is not None))
    return Trial(findings=findings, table=render_model_table(settings.model, known) if seen.answers else "")


def _make_spec(settings: Settings, price: Price | None, seen: _Seen) -> SessionSpec:
    most = REQUESTS * (pad_tokens(_count_prompt(settings.model)) + ANSWER_TOKENS)

    def check_budget(prompt_tokens: int, output_tokens: int) -> str | None:
        used = sum(answer.usage.context_tokens for answer in seen.answers if answer.usage)
        enough = len(seen.answers) >= REQUESTS or used + prompt_tokens + output_tokens > 2 * most
        return f"no answer that ends after {count(len(seen.answers), 'request')}" if enough else None

    return SessionSpec(
        session_id="trial",
        model=settings.model,
        system=render_trial_system(_count_prompt(settings.model)),
        tools=(_ECHO,),
        callbacks=Callbacks(run_tool=seen.run_tool, render_soft_notice=lambda _fill, _room: "relay: end now."),
        reset_at=parse_reset_at("100%"),
        check_budget=check_budget,
        price=price,
        max_output_tokens=ANSWER_TOKENS,
        max_turns=REQUESTS,
        effort=settings.effort,
        cache_ttl=settings.cache_ttl,
    )


def _count_prompt(model: str) -> int:
    """Return how long the prompt is, by estimate: a quarter more than what is cached."""
    limits = find_limits(model)
    return (limits.min_cacheable_tokens if limits else _CACHEABLE_TOKENS) * 5 // 4


def _find_price(settings: Settings) -> Price | None:
    return find_price(settings.model, at=datetime.now(UTC).date(), overrides=settings.prices)


def _judge(info: ModelInfo, outcome: SessionOutcome, seen: _Seen, *, assumed: bool) -> Iterator[Finding]:
    """Yield what there is to say, in the order in which one thing needs the other."""
    if assumed:
        yield _find(
            "limits", State.MISSING, "nobody says what it can do", hint="put the table below right, and paste it"
        )
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
    used = sum(answer.usage.context_tokens for answer in seen.answers if answer.usage)
    words = f"{count(len(seen.answers), 'request')}, {used:,} tokens, {render_usd(cost)}, {took:.1f} s"
    yield _find("answer", State.OK if ended else State.MISSING, words if ended else f"{words}: {outcome.detail}")
    streamed = all(answer.streamed for answer in seen.answers)
    yield _find(
        "streams",
        State.OK if streamed else State.WARNING,
        "answers come piece by piece" if streamed else "answers come whole: a long one looks like silence",
    )
    asked = [call.input.get("word") for call in seen.calls]
    yield _judge_tools(asked, back=_WORD in outcome.text.lower())
    yield _find("thinking", State.INFO, _describe_thinking(seen))
    told = not any(answer.estimated for answer in seen.answers)
    words = "reported with each answer" if told else "not all of it is reported: relay estimates, and marks that with ~"
    yield _find("usage", State.OK if told else State.WARNING, words)
    if len(seen.answers) > 1:
        yield _judge_cache(seen.answers[-1])


def _judge_tools(asked: list[Any], *, back: bool) -> Finding:
    if _WORD not in asked:
        return _find("tools", State.MISSING, "it called no tool as it was told to: sessions can do nothing with it")
    words = "a call and its result went round" if back else "it called the tool and did not say what that answered"
    return _find("tools", State.OK if back else State.WARNING, words)


def _describe_thinking(seen: _Seen) -> str:
    tokens = sum(answer.usage.thinking_tokens for answer in seen.answers if answer.usage)
    if seen.thoughts:
        return "shown"
    return f"{tokens:,} tokens, not shown" if tokens else "none seen"


def _judge_cache(last: ResponseReceived) -> Finding:
    usage = last.usage
    if usage is not None and usage.cache_read_tokens:
        words = f"{usage.cache_read_tokens:,} of {usage.prompt_tokens:,} tokens of the last prompt came from it"
        return _find("cache", State.OK, words)
    words = "nothing was read from it, or that is not said: each request counts with its whole prompt"
    return _find("cache", State.WARNING, words)


def _find(name: str, state: State, words: str, *, hint: str = "") -> Finding:
    return Finding(name=name, state=state, words=words, hint=hint)

"""One session over the real SDK and real HTTP to the rehearsal server, without a repository."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from relay.base.interrupts import Interrupts
from relay.config.model import NOTHING_SET, ModelSettings
from relay.prompts.texts import render_soft_notice, render_system
from relay.runners.base import Callbacks, SessionSpec
from relay.runners.messages.api import open_api
from relay.runners.messages.connection import ApiConnection
from relay.runners.messages.conversation import ApiRunner, Conversation
from relay.session.events import Event
from relay.session.gauge import parse_reset_at
from relay.session.prices import find_price
from relay.session.values import SessionOutcome, ToolCall, ToolResult
from relay.tools.toolbox import RUNNER_SPECS
from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve
from tests.endpoint.state import Recorded


@dataclass
class Talk:
    """A session, the server behind it and what was seen."""

    server: Endpoint
    runner: ApiRunner
    spec: SessionSpec
    session: Conversation
    events: list[Event] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def advance(self, message: str = "Begin.") -> SessionOutcome:
        """Say something and work until the session stops."""
        return self.session.advance(message)

    def renew(self, **changes: Any) -> None:
        """Begin a fresh session of the same run."""
        self.session = ExitStack().enter_context(self.runner.open_session(replace(self.spec, **changes)))

    @property
    def model(self) -> str:
        """Whom it talks to."""
        return self.spec.model

    @property
    def requests(self) -> list[Recorded]:
        """Answered requests for messages."""
        return [r for r in self.server.requests if r.path == "/v1/messages" and r.status == 200]

    def seen(self, kind: type) -> list[Any]:
        """All events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def talk() -> Iterator[Callable[..., Talk]]:
    """Open a session; `result` is what every tool call answers, its size in bytes."""
    with ExitStack() as stack:

        def start(
            sessions: list[Any],
            *,
            result: int = 40,
            clock: Callable[[], float] = time.monotonic,
            refuses: Sequence[str] = (),
            dialect: str = "anthropic",
            now: Callable[[], float] = time.time,
            own: ModelSettings = NOTHING_SET,
            **spec: Any,
        ) -> Talk:
            model = spec.get("model", "claude-opus-5-5")
            script = parse_script(
                json.dumps({"model": model, "dialect": dialect, "sessions": sessions, "refuses": list(refuses)})
            )
            server = stack.enter_context(serve(script, clock=clock))
            environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
            interrupts = Interrupts(sleep=lambda _: None)
            stack.callback(interrupts.close)
            api = stack.enter_context(open_api(environ=environ, interrupts=interrupts, idle_timeout_s=20))
            events: list[Event] = []
            calls: list[ToolCall] = []
            runner = ApiRunner(
                connection=ApiConnection(api=api, observe=events.append, interrupts=interrupts, max_wait_s=60, now=now),
                find_own=lambda _: own,
            )
            wanted = make_spec(calls, result, **spec)
            session = stack.enter_context(runner.open_session(wanted))
            return Talk(server=server, runner=runner, spec=wanted, session=session, events=events, calls=calls)

        yield start


def make_spec(calls: list[ToolCall], result: int, **changes: Any) -> SessionSpec:
    numbers = itertools.count(1)

    def run_tool(call: ToolCall) -> ToolResult:
        calls.append(call)
        return ToolResult(text=f"{next(numbers)}: ".ljust(result, "x"), ends_session=call.name == "hand_off")

    model = changes.get("model", "claude-opus-5-5")
    spec = SessionSpec(
        session_id="s",
        model=model,
        system=render_system("runner", "# Rules\n" + "Write short sentences that say one thing.\n" * 200),
        tools=RUNNER_SPECS,
        callbacks=Callbacks(run_tool=changes.pop("run_tool", run_tool), render_soft_notice=render_soft_notice),
        reset_at=parse_reset_at("100k"),
        check_budget=lambda _prompt, _output: None,
        price=find_price(model),
    )
    return replace(spec, **changes)


@pytest.fixture
def turns() -> Callable[..., list[Any]]:
    """Make a session's turns: `count` with calls of read, `parallel` in each, then a last word."""

    def build(count: int, *, parallel: int = 1, **extra: Any) -> list[Any]:
        calls = [{"name": "read", "input": {"path": "a.py"}}] * parallel
        return [*({"tools": calls, "thinking": "I look.", **extra} for _ in range(count)), {"text": "Done."}]

    return build

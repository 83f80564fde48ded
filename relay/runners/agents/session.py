"""One session of an agent: the order of its steps, and the decisions between two turns.

The gateway, the tool server and the agent's messages each have a thread. The run's thread makes all decisions: the
others put their messages into one inbox, and wait there for answers. A request of the session's own conversation is the
boundary between two turns: all tools have ended, and relay interrupts nothing. There relay keeps the work, and checks
for stops, lines and texts for the session.

At the end of a turn relay goes by, in this order: the gateway's last main request, the error, the agent's stop reason.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.base.errors import SandboxError
from relay.base.interrupts import Interrupts
from relay.base.jsonrpc import Answered, Gone, Incoming, Intake, Notification, Question, Wire
from relay.base.values import dataclass
from relay.base.words import render_span
from relay.runners.agents.account import AgentAccount, count_most_tokens
from relay.runners.agents.acp import (
    INITIALIZE,
    AgentActivity,
    Called,
    choose_offered,
    choose_option,
    find_version,
    has_mode,
    make_system,
    read_update,
)
from relay.runners.agents.gateway import HeldRequest, Passed, RejectedRequest
from relay.runners.agents.profiles import Profile
from relay.runners.base import LineNotices, LoopDetector, SessionSpec, show_crossing
from relay.sandbox.child import Child
from relay.session.events import Noticed, Observe
from relay.session.gauge import Zone
from relay.session.values import SessionEnd, SessionOutcome, ToolCall, ToolResult

_GO_ON = "relay: the endpoint failed and is asked again. Go on where you stopped."
_STOPS = {
    "refusal": SessionEnd.REFUSED,
    "max_tokens": SessionEnd.TRUNCATED,
    "max_turn_requests": SessionEnd.HARD_LINE,
    "model_context_window_exceeded": SessionEnd.OVERFLOW,
}
"""Stop reasons, of the protocol and of an answer, that are no good end."""

OPENING_S = 60.0
"""How long an agent may take to start; the slowest took five seconds on a busy machine."""
AGENT_IDLE_S = 600.0
"""Longest silence of an agent: no request, no tool, no new word. A model thinks unseen for minutes, not for ten."""
TOOL_IDLES = 12
"""A running tool may be silent for so many times as long."""
FIRST_NOTICE_S = 60.0
"""Silence that is reported, and reported again each time it has doubled."""
ENDING_S = 60.0
"""How long the agent may take to reach a boundary, or to cancel, once its session has ended."""
_LOOK_S = 0.1
_MOST_WARNINGS = 10
"""Most warnings about its requests that a session shows; a command of it could invent any number."""

Happening = Incoming | Gone | HeldRequest | Passed | RejectedRequest | Called
Inbox = Intake[Happening]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProcess:
    """An agent's process and the wire to it."""

    child: Child
    wire: Wire
    cwd: Path
    servers: tuple[Mapping[str, Any], ...]
    """Tool servers for session/new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """The surroundings of a session."""

    start: Callable[[int], AgentProcess]
    """Starts the agent's process, with an output limit in tokens. Raises SandboxError."""
    note_version: Callable[[str], None]
    """Called with the agent's version; empty if unknown."""
    observe: Observe
    interrupts: Interrupts
    stop_s: float
    """How long the agent may take to reach a boundary after a request to stop."""
    idle_s: float
    """How long an agent may be idle: no request, no tool, no text."""
    look: Callable[[], None] = lambda: None
    """Called regularly."""
    clock: Callable[[], float] = time.monotonic
    """Steady seconds."""
    root: Path
    """The repository."""
    inbox: Inbox
    """Receives every message to the session."""
    mark: str
    """Appended to the first message: requests that contain it are the session's own."""


class AgentSession:
    """One conversation with an agent; a `relay.runners.base.Session`. Mutable.

    Args:
        context: Its surroundings; the first `advance` starts the process.
    """

    def __init__(self, profile: Profile, spec: SessionSpec, account: AgentAccount, context: AgentContext) -> None:
        self._profile = profile
        self._spec = spec
        self._account = account
        self._context = context
        own = [tool.name for tool in choose_offered(spec.tools)]
        self._activity = AgentActivity(context.observe, context.root, own, spec.preloads)
        self._is_last = False
        """Whether a tool of relay's has ended the session, so that no turn follows."""
        self._stuck = LoopDetector()
        self._notices = LineNotices()
        self._started: AgentProcess | None = None
        self._session_id = ""
        self._takes_system = False
        self._prompt = 0
        """Id of the running prompt; 0 for none."""
        self._later: list[HeldRequest] = []
        """Requests that wait because the caps have no room until others are answered."""
        self._warned: set[str] = set()
        """What was said of its requests, each once."""
        self._outcome: SessionOutcome | None = None
        """How the session ends; set once, and then nothing more is sent."""
        self._words = ""
        """The next message, once the turn has ended."""
        self._clock = context.clock
        self._last = self._looked = self._clock()
        self._notice_s = FIRST_NOTICE_S
        """The silence that is reported next."""
        self._stop_at: float | None = None
        """When the session ends unless it reaches a boundary; None while no stop is requested."""

    @property
    def _process(self) -> AgentProcess:
        assert self._started is not None  # noqa: S101  # nothing is said to it, and nothing comes from it, before
        return self._started

    def advance(self, message: str) -> SessionOutcome:
        """Send a message to the agent and work until the agent stops or must be stopped."""
        if self._outcome is None:
            try:
                self._begin(message)
                self._work()
            except SandboxError as error:
                self._outcome = SessionOutcome(end=SessionEnd.AGENT_FAILED, detail=str(error))
        outcome = replace(self._outcome or SessionOutcome(end=SessionEnd.FINISHED), text=self._activity.last_text)
        if self._started is not None:
            if outcome.end is SessionEnd.FINISHED:
                self._started.child.freeze()  # a daemon that a command left must not write while the work is checked
            else:
                self._started.child.end()
        return outcome

    def _begin(self, message: str) -> None:
        if self._started is not None:
            self._started.child.thaw()
            self._say(message)
            return
        said = count_most_tokens(len(f"{self._spec.system}{message}".encode()))
        fit = self._account.fit_first(said + self._profile.own_tokens)
        if isinstance(fit, SessionOutcome):
            self._outcome = fit
            return
        self._started = self._context.start(fit)
        self._open(self._started)
        if self._outcome is None:
            parts = ["" if self._takes_system else self._spec.system, message, self._context.mark]
            self._say("\n\n".join(part for part in parts if part))

    def _open(self, process: AgentProcess) -> None:
        initialized = self._ask("initialize", INITIALIZE)
        if initialized is None:
            return
        self._context.note_version(find_version(initialized))
        given = {"cwd": str(process.cwd), "mcpServers": list(process.servers), **self._profile.options}
        system = make_system(initialized, self._spec.system)
        self._takes_system = bool(system)
        opened = self._ask("session/new", given | system)
        if opened is None:
            return
        self._session_id = str(opened.get("sessionId", ""))
        if self._profile.mode and has_mode(opened, self._profile.mode):
            self._ask("session/set_mode", {"sessionId": self._session_id, "modeId": self._profile.mode})
        if self._profile.names_sessions:
            process.wire.ask("session/set_title", {"sessionId": self._session_id, "title": "relay"})

    def _ask(self, method: str, params: dict[str, Any]) -> Mapping[str, Any] | None:
        """Ask and wait for the answer; return None if there was none and the session has ended."""
        number = self._process.wire.ask(method, params)
        until = self._clock() + OPENING_S
        while self._outcome is None:
            found = self._take()
            if isinstance(found, Answered) and found.id == number:
                if found.error:
                    self._fail(f"{method}: {found.error}")
                    return None
                return found.result
            if self._clock() >= until:
                self._fail(f"no answer to {method} in {OPENING_S:.0f} s")
            elif found is not None:
                self._handle(found)
        return None

    def _say(self, text: str) -> None:
        prompt = {"sessionId": self._session_id, "prompt": [{"type": "text", "text": text}]}
        self._prompt = self._process.wire.ask("session/prompt", prompt)
        self._note_life()

    def _work(self) -> None:
        """Handle messages until the turn or the session is over."""
        while self._outcome is None and self._prompt:
            found = self._take()
            if found is not None:
                self._handle(found)
        if self._outcome is not None:
            self._stop()

    def _take(self) -> Happening | None:
        """Return the next message, or None after a moment. Look around regularly, also in a flood of messages."""
        if self._context.interrupts.stop_now:
            self._end(SessionEnd.INTERRUPTED, "stopped at once")
            return None
        found = self._context.inbox.take(_LOOK_S)
        if (now := self._clock()) >= self._looked + _LOOK_S:
            self._looked = now
            self._look_around(now)
        return found

    def _note_life(self) -> None:
        self._last, self._notice_s = self._clock(), FIRST_NOTICE_S

    def _look_around(self, now: float) -> None:
        """Check what sends no message: a requested stop, silence."""
        self._context.look()
        if self._context.interrupts.finish_turn:
            self._await_stop(now)
        if self._prompt and self._account.is_overdue:
            self._fail("an answer of the endpoint has no end")
        elif self._prompt and not self._account.is_waiting:  # else the gateway's own deadlines hold
            self._judge_silence(now - self._last)

    def _await_stop(self, now: float) -> None:
        """Give the agent time to reach a boundary, then end it as at the hard line."""
        title, span = self._profile.title, render_span(self._context.stop_s)
        if self._stop_at is None:
            self._stop_at = now + self._context.stop_s
            words = f"{title} has {span} to finish its step (command_timeout_s); then relay ends it"
            self._context.observe(Noticed(text=words))
        elif now >= self._stop_at:
            self._end(SessionEnd.INTERRUPTED, f"asked to stop; {title} was ended in mid-step after {span}")

    def _judge_silence(self, silent_s: float) -> None:
        most_s = self._context.idle_s * (TOOL_IDLES if self._activity.is_busy else 1)
        if self._is_last and silent_s > ENDING_S:
            self._end(SessionEnd.ENDED_BY_TOOL, "")
        elif self._words and silent_s > ENDING_S:
            self._fail("it does not cancel its turn")
        elif silent_s > most_s:
            self._fail(f"silent for more than {render_span(most_s)}")
        elif silent_s >= self._notice_s:
            self._notice_s *= 2
            what = "a tool of it runs" if self._activity.is_busy else "no request, no tool, no word"
            words = f"{self._profile.title} is silent for {render_span(silent_s)} ({what})"
            self._context.observe(Noticed(text=f"{words}; given up at {render_span(most_s)}"))

    def _handle(self, found: Happening) -> None:
        match found:
            case HeldRequest():
                self._handle_request(found)
            case Passed():
                self._account.finish(found)
                self._outcome = self._outcome or self._account.ended
                later, self._later = self._later, []
                for held in later:
                    self._release(held)
            case Called():
                self._handle_call(found)
            case RejectedRequest():  # alone no sign of life, as a notification
                return self._warn_once(f"a request of {self._profile.title} was not sent: {found.words}")
            case Notification():
                return self._handle_update(found)
            case Question():
                known = found.method == "session/request_permission"
                self._process.wire.answer(found, choose_option(found.params) if known else None)
            case Answered():
                if found.id == self._prompt:  # nobody waits for any other answer
                    self._handle_turn_end(found)
            case Gone():
                child = self._process.child
                words = ": ".join(
                    ["its process has ended", *(line[:300] for line in child.read_errors().splitlines()[-1:])]
                )
                self._fail("it does not read what it is told" if child.is_deaf else words)
        return self._note_life()  # only now: one of relay's tools may have waited for a person

    def _handle_update(self, said: Notification) -> None:
        update = read_update(said.params) if said.method == "session/update" else None
        if update is not None and self._activity.take(update):
            self._note_life()  # repetitions count as silence

    def _handle_call(self, called: Called) -> None:
        if self._is_last or self._outcome is not None:
            called.answer.set_result(ToolResult(text="Not executed: the session has ended.", is_error=True))
            return
        result = self._activity.run_own(called.call, self._spec.callbacks.run_tool)
        called.answer.set_result(result)
        self._is_last = result.ends_session

    def _warn_once(self, said: str) -> None:
        if said not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(said)
            self._context.observe(Noticed(text=said, warning=True))

    def _handle_request(self, held: HeldRequest) -> None:
        for name in held.request.unknown:
            self._warn_once(f"{self._profile.title} sends a field that relay does not know, which passes: {name}")
        if self._outcome is None and held.request.is_main and not self._words:
            self._account.look_at(held.request)
            self._cross_boundary()
        self._release(held)

    def _release(self, held: HeldRequest) -> None:
        """Send a request or refuse it. If the caps have no room, it waits until the requests before it are answered."""
        request = held.request
        is_over = bool(self._words) and request.is_main
        found = self._outcome or (None if is_over else self._account.check(request))
        if isinstance(found, SessionOutcome) and found.end is SessionEnd.BUDGET and self._account.is_waiting:
            self._later.append(held)
        elif isinstance(found, SessionOutcome):
            self._outcome = found
            held.release.set_result("the session has ended")
        elif is_over:
            held.release.set_result("the turn was cancelled")
        else:
            self._account.start(request, found)
            held.release.set_result(found)

    def _cross_boundary(self) -> None:
        """Decide in the middle of a turn, while its next request is held.

        A text for the agent starts a new turn: the current one is cancelled where no tool runs, and what was said
        stays. Some agents accept a text without that, each in its own way, and may break off a request that is paid
        for.
        """
        self._words = self._decide_between()
        if self._words:
            self._process.wire.tell("session/cancel", {"sessionId": self._session_id})

    def _decide_between(self) -> str:
        """Decide before the next request of a turn is sent; return a text for the agent, empty for none."""
        calls = self._keep()
        if self._must_stop():
            return ""
        gauge, callbacks, observe = self._account.gauge, self._spec.callbacks, self._context.observe
        if outcome := self._account.check_lines():
            if gauge.zone is Zone.HARD:
                show_crossing(observe, gauge, Zone.HARD)
            self._outcome = outcome
            return ""
        stuck = self._stuck.judge(calls) if calls else ""
        if isinstance(stuck, SessionOutcome):
            self._outcome = stuck
            return ""
        if stuck or not self._account.turn:
            return stuck
        return self._notices.find(gauge, callbacks, observe) or callbacks.hear()

    def _decide_at_end(self, answered: Answered) -> str:
        """Decide at the end of a turn; return a text for the agent. The empty text finishes the session."""
        self._keep()
        account = self._account
        if self._must_stop():
            return ""
        if account.fault is not None:
            return self._wait_for_endpoint(account.fault.message)
        said = str(answered.result.get("stopReason", ""))
        reason = account.stop_reason if account.stop_reason in _STOPS else said
        if reason == "max_tokens" and (cut := account.check_cut()):
            self._outcome = cut
        elif account.turn and reason in _STOPS:
            self._end(_STOPS[reason], f"the turn ended with {reason}")
        elif words := answered.error or ("" if account.turn else "it ended its turn without asking a model"):
            self._fail(words)
        elif reason == "cancelled":
            self._fail("it cancelled its turn by itself")
        return ""

    def _keep(self) -> tuple[tuple[ToolCall, ToolResult], ...] | None:
        calls = self._activity.begin_turn()
        if calls is not None:
            self._spec.callbacks.note_boundary()
        return calls

    def _must_stop(self) -> bool:
        if self._is_last:
            self._end(SessionEnd.ENDED_BY_TOOL, "")
        elif self._context.interrupts.finish_turn:
            self._end(SessionEnd.INTERRUPTED, "asked to stop")
        return self._outcome is not None

    def _wait_for_endpoint(self, fault: str) -> str:
        """Wait as relay does, then have the agent go on: it gave up on its endpoint before relay would."""
        wait = self._account.wait
        if wait is None:
            self._end(SessionEnd.API_FAILED, fault)
            return ""
        if wait.until is not None:
            self._spec.callbacks.note_wait(wait.until)
        if self._context.interrupts.wait(wait.wait_s):
            self._end(SessionEnd.INTERRUPTED, "stopped while waiting for the API")
            return ""
        return _GO_ON

    def _handle_turn_end(self, answered: Answered) -> None:
        self._prompt = 0
        if not self._words:
            self._finish()
        if not self._words and self._outcome is None:
            self._words = self._decide_at_end(answered)
        if self._words and self._outcome is None:
            text, self._words = self._words, ""
            self._say(text)

    def _finish(self) -> None:
        """Handle what still comes of an ended turn: answers of its side requests, late updates."""
        until = self._clock() + ENDING_S
        while self._outcome is None and (self._account.is_waiting or len(self._context.inbox)):
            if (found := self._take()) is not None:
                self._handle(found)
            if self._clock() >= until:
                return

    def _stop(self) -> None:
        """End what runs: a held request is never sent, and every process is gone on return."""
        if self._started is not None:
            self._started.child.end()
        left = (*self._later, *self._context.inbox.close())
        for passed in (found for found in left if isinstance(found, Passed)):
            self._account.finish(passed)
        release_waiting(left)
        self._account.close()
        self._activity.close()

    def _end(self, end: SessionEnd, detail: str) -> None:
        self._outcome = self._outcome or SessionOutcome(end=end, detail=detail)

    def _fail(self, words: str) -> None:
        self._end(SessionEnd.AGENT_FAILED, f"{self._profile.title} failed: {words}")


def release_waiting(found: Iterable[Happening]) -> None:
    """Release everyone who waits for an answer: the session has ended."""
    for one in found:
        match one:
            case HeldRequest():
                one.release.cancel()
            case Called():
                one.answer.cancel()
            case _:
                pass

"""One session of an agent: the order of it all.

The gateway, the tool server and the agent's own words each come on threads of their own, and everything that counts
happens on the run's: they put what they have into one queue, and whoever asks there waits for the answer. A request of
the session's own conversation is the boundary between two turns: all of its tools have ended, nothing is running that
relay would interrupt, so there the work is kept, the lines and the caps are looked at and a stop takes place.
"""

import queue
import time
from collections.abc import Mapping
from typing import Any

from relay.errors import SandboxError
from relay.meters.gauge import Zone
from relay.runners.agents.account import Account
from relay.runners.agents.acp import (
    choose_option,
    find_version,
    has_mode,
    make_initialize,
    make_prompt,
    make_system,
    read_update,
    takes_system,
)
from relay.runners.agents.doings import Doings
from relay.runners.agents.gateway import HeldRequest, Passed
from relay.runners.agents.parts import Around, Inbox, Started
from relay.runners.agents.profiles import Profile
from relay.runners.agents.toolserver import Called
from relay.runners.agents.wire import Answered, Gone, Incoming, Notification, Question, Wire
from relay.runners.base import SessionSpec
from relay.runners.messages.repetition import LoopDetector
from relay.session.events import GaugeCrossed
from relay.session.values import SessionEnd, SessionOutcome, ToolResult

OPENING_S = 60.0
"""How long an agent may take to be ready; the slowest took five seconds on a busy machine."""
SILENT_S = 600.0
"""How long an agent may do nothing at all: no request, no tool, no word."""
TOOL_S = 7_200.0
"""How long one of its tools may run without a word."""
ENDING_S = 60.0
"""How long it may take to come to a boundary, or to cancel, once its session has ended."""
_LOOK_S = 0.1
_NUDGE = (
    "relay: you have made the same calls with the same results three times and nothing changed in between. "
    "Do something else, or call block with what stands in the way."
)
_GO_ON = "relay: the endpoint failed and is asked again. Go on where you stopped."
_STOPS = {
    "refusal": SessionEnd.REFUSED,
    "max_tokens": SessionEnd.TRUNCATED,
    "max_turn_requests": SessionEnd.HARD_LINE,
    "model_context_window_exceeded": SessionEnd.OVERFLOW,
}
"""Reasons of the protocol, and of an answer, that are no good end."""


class AgentSession:
    """One conversation with an agent; a `relay.runners.base.Session`.

    Args:
        profile: Which agent.
        spec: What the session is made of.
        account: What it uses.
        inbox: Where everything comes in.
        around: What it has around it; the first `advance` starts the process.
    """

    def __init__(
        self,
        profile: Profile,
        spec: SessionSpec,
        account: Account,
        inbox: Inbox,
        around: Around,
    ) -> None:
        self._profile = profile
        self._spec = spec
        self._account = account
        self._inbox = inbox
        self._around = around
        self._doings = Doings(around.observe, around.root)
        self._stuck = LoopDetector()
        self._started: Started | None = None
        self._session_id = ""
        self._takes_system = False
        self._prompt = 0
        """Of the running prompt; 0 for none."""
        self._outcome: SessionOutcome | None = None
        """How the session ends; set once, and then nothing more is sent."""
        self._pending: list[str] = []
        """What is to be said once the turn is cancelled."""
        self._ends_at_boundary = False
        self._noticed = self._nudged = False
        self._last = time.monotonic()

    def advance(self, message: str) -> SessionOutcome:
        """Say something to the agent and work until it stops or must be stopped."""
        if self._outcome is None:
            try:
                self._begin(message)
                self._work()
            except SandboxError as error:
                self._outcome = SessionOutcome(end=SessionEnd.AGENT_FAILED, detail=str(error))
        outcome = self._outcome or SessionOutcome(end=SessionEnd.FINISHED, text=self._doings.last_text)
        if self._started is not None:
            if outcome.end is SessionEnd.FINISHED:
                self._started.child.freeze()  # a daemon that a command left must not write while the work is checked
            else:
                self._started.child.end()
        return outcome

    def _begin(self, message: str) -> None:
        if self._started is None:
            self._started = self._around.start()
            self._open(self._started.wire)
            if self._outcome is None:
                self._say_first(message)
        else:
            self._started.child.thaw()
            self._say(message)

    def _open(self, wire: Wire) -> None:
        initialized = self._ask(wire, "initialize", make_initialize())
        if initialized is None:
            return
        self._around.note_version(find_version(initialized))
        assert self._started is not None  # noqa: S101  # set by the caller
        given = {"cwd": str(self._started.cwd), "mcpServers": list(self._started.servers), **self._profile.options}
        self._takes_system = takes_system(initialized)
        opened = self._ask(wire, "session/new", given | (make_system(self._spec.system) if self._takes_system else {}))
        if opened is None:
            return
        self._session_id = str(opened.get("sessionId", ""))
        if self._profile.mode and has_mode(opened, self._profile.mode):
            self._ask(wire, "session/set_mode", {"sessionId": self._session_id, "modeId": self._profile.mode})
        if self._profile.names_sessions:
            wire.ask("session/set_title", {"sessionId": self._session_id, "title": "relay"})

    def _ask(self, wire: Wire, method: str, params: dict[str, Any]) -> Mapping[str, Any] | None:
        """Ask and wait for the answer; None when there was none, and the session has ended."""
        number = wire.ask(method, params)
        until = time.monotonic() + OPENING_S
        while self._outcome is None:
            found = self._take(until)
            if isinstance(found, Answered) and found.id == number:
                if found.error:
                    self._fail(f"{method}: {found.error}")
                    return None
                return found.result
            if found is None and time.monotonic() >= until:
                self._fail(f"no answer to {method} in {OPENING_S:.0f} s")
            elif found is not None:
                self._handle(found)
        return None

    def _say_first(self, message: str) -> None:
        parts = ["" if self._takes_system else self._spec.system, message, self._around.mark]
        self._say("\n\n".join(part for part in parts if part))

    def _say(self, text: str) -> None:
        assert self._started is not None  # noqa: S101  # nothing is said before
        self._prompt = self._started.wire.ask("session/prompt", make_prompt(self._session_id, text))
        self._last = time.monotonic()

    def _work(self) -> None:
        """Take what comes until the turn is over, or the session is."""
        while self._outcome is None and self._prompt:
            found = self._take(time.monotonic() + _LOOK_S)
            if found is None:
                self._look_around()
            else:
                self._handle(found)
                self._last = time.monotonic()  # a tool of relay's may have waited for a person
        if self._outcome is not None:
            self._stop()

    def _take(self, until: float) -> Incoming | Gone | HeldRequest | Passed | Called | None:
        if self._around.interrupts.stop_now:
            self._end(SessionEnd.INTERRUPTED, "stopped at once")
            return None
        try:
            return self._inbox.get(timeout=max(0.0, min(_LOOK_S, until - time.monotonic())))
        except queue.Empty:
            return None

    def _look_around(self) -> None:
        """Look at what nobody tells: silence, memory."""
        silent_s = time.monotonic() - self._last
        assert self._started is not None  # noqa: S101  # it works
        if words := self._started.child.check_memory():
            self._fail(words)
        if self._account.is_waiting:
            return  # the gateway's own deadlines hold
        if self._ends_at_boundary and silent_s > ENDING_S:
            self._end(SessionEnd.ENDED_BY_TOOL, "")
        elif self._pending and silent_s > ENDING_S:
            self._fail("it does not cancel its turn")
        elif silent_s > (TOOL_S if self._doings.is_busy else SILENT_S):
            self._fail(f"silent for {silent_s / 60:.0f} minutes")

    def _handle(self, found: Incoming | Gone | HeldRequest | Passed | Called) -> None:
        match found:
            case HeldRequest():
                self._handle_request(found)
            case Passed():
                self._account.finish(found)
                self._outcome = self._outcome or self._account.ended
            case Called():
                self._handle_call(found)
            case Notification():
                self._handle_update(found)
            case Question():
                self._handle_question(found)
            case Answered():
                self._handle_answer(found)
            case Gone():
                self._handle_gone()

    def _handle_update(self, said: Notification) -> None:
        update = read_update(said.params) if said.method == "session/update" else None
        if update is not None:
            self._doings.take(update)

    def _handle_answer(self, answered: Answered) -> None:
        """Take the end of a turn; every other answer is to what nobody waits for any more."""
        if self._prompt and answered.id == self._prompt:
            self._handle_turn_end(answered)

    def _handle_question(self, asked: Question) -> None:
        assert self._started is not None  # noqa: S101  # it asks
        option = choose_option(asked.params) if asked.method == "session/request_permission" else None
        self._started.wire.answer(asked, option)

    def _handle_gone(self) -> None:
        assert self._started is not None  # noqa: S101  # it was there
        words = self._started.child.read_errors().splitlines()
        self._fail(f"its process has ended{f': {words[-1][:300]}' if words else ''}")

    def _handle_call(self, called: Called) -> None:
        if self._ends_at_boundary or self._outcome is not None:
            called.answer.set_result(ToolResult(text="Not executed: the session has ended.", is_error=True))
            return
        result = self._doings.run_own(called.call, self._spec.run_tool)
        called.answer.set_result(result)
        self._ends_at_boundary = result.ends_session

    def _handle_request(self, held: HeldRequest) -> None:
        request = held.request
        if self._outcome is None and request.is_main and not self._pending:
            self._account.look_at(request)
            self._cross_boundary()
        if self._outcome is None and not self._pending:
            self._outcome = self._account.check(request)
        if self._outcome is not None or (self._pending and request.is_main):
            held.release.set_result("the session has ended" if self._outcome else "the turn was cancelled")
            return
        self._account.start(request)
        held.release.set_result("")

    def _cross_boundary(self) -> None:
        """Keep what the turn did, and see whether there may be another."""
        calls = self._doings.begin_turn()
        if calls is not None:
            self._spec.note_boundary()
        if self._ends_at_boundary:
            self._end(SessionEnd.ENDED_BY_TOOL, "")
        elif self._around.interrupts.finish_turn:
            self._end(SessionEnd.INTERRUPTED, "asked to stop")
        elif outcome := self._account.check_lines():
            if self._account.gauge.zone is Zone.HARD:
                self._observe_line("hard", self._account.gauge.hard_tokens)
            self._outcome = outcome
        elif calls and self._stuck.is_stuck(calls):
            self._handle_loop(", ".join(dict.fromkeys(call.name for call, _ in calls)))
        elif self._account.turn and (words := self._find_words()):
            self._steer(words)

    def _find_words(self) -> str:
        """Return what the agent has to be told now; empty for nothing."""
        gauge = self._account.gauge
        if gauge.zone is not Zone.SOFT or self._noticed:
            return self._spec.hear()
        self._noticed = True
        self._observe_line("soft", gauge.soft_tokens)
        return self._spec.render_soft_notice(gauge.least_tokens, gauge.hard_tokens - gauge.least_tokens)

    def _handle_loop(self, names: str) -> None:
        if self._nudged:
            self._end(SessionEnd.STUCK, f"the same calls with the same results again ({names})")
            return
        self._nudged = True
        self._stuck.forget()
        self._steer(_NUDGE)

    def _steer(self, text: str) -> None:
        """Say something in the middle of a turn, while its next request is held.

        The turn is cancelled there, where no tool runs, and a new one begins with the text; what was said stays. Some
        agents take a text without that, each in a way of its own, and may break off a request that is paid for.
        """
        assert self._started is not None  # noqa: S101  # it works
        self._pending.append(text)
        self._started.wire.tell("session/cancel", {"sessionId": self._session_id})

    def _handle_turn_end(self, answered: Answered) -> None:
        self._prompt = 0
        if self._pending:
            text, self._pending = "\n\n".join(self._pending), []
            self._say(text)
            return
        self._settle()
        if self._outcome is not None:
            return
        if self._doings.begin_turn() is not None:
            self._spec.note_boundary()
        self._outcome = self._judge(answered)
        if self._outcome is not None and self._outcome.end is SessionEnd.FINISHED:
            self._outcome = None  # it may be asked for more

    def _settle(self) -> None:
        """Take what still comes of a turn that the agent calls ended: answers of its side requests, late updates."""
        until = time.monotonic() + ENDING_S
        while self._outcome is None and (self._account.is_waiting or not self._inbox.empty()):
            found = self._take(until)
            if found is not None:
                self._handle(found)
            elif time.monotonic() >= until:
                return

    def _judge(self, answered: Answered) -> SessionOutcome | None:
        """Say how the turn ended: the gateway's last main request, then the error, then the reason that is given."""
        account, text = self._account, self._doings.last_text
        if self._ends_at_boundary:
            return SessionOutcome(end=SessionEnd.ENDED_BY_TOOL, text=text)
        if self._around.interrupts.finish_turn:
            return SessionOutcome(end=SessionEnd.INTERRUPTED, detail="asked to stop", text=text)
        if account.fault is not None:
            return self._go_on_after_fault(text)
        if not account.turn:
            return self._make_failure(answered.error or "it ended its turn without asking a model")
        return self._judge_reason(answered, text)

    def _judge_reason(self, answered: Answered, text: str) -> SessionOutcome:
        said = str(answered.result.get("stopReason", ""))
        reason = self._account.stop_reason if self._account.stop_reason in _STOPS else said
        if reason in _STOPS:
            return SessionOutcome(end=_STOPS[reason], detail=f"the turn ended with {reason}", text=text)
        if answered.error or reason == "cancelled":
            return self._make_failure(answered.error or "it cancelled its turn by itself")
        return SessionOutcome(end=SessionEnd.FINISHED, text=text)

    def _go_on_after_fault(self, text: str) -> SessionOutcome | None:
        """The agent gave up on its endpoint before relay would: wait as relay does, then have it go on."""
        account = self._account
        assert account.fault is not None  # noqa: S101  # the caller looked
        if account.wait is None:
            return SessionOutcome(end=SessionEnd.API_FAILED, detail=account.fault.message, text=text)
        if account.wait.until is not None:
            self._spec.note_wait(account.wait.until)
        if self._around.interrupts.wait(account.wait.wait_s):
            return SessionOutcome(end=SessionEnd.INTERRUPTED, detail="stopped while waiting for the API", text=text)
        self._say(_GO_ON)
        return None

    def _stop(self) -> None:
        """End what runs: the request that is held is never sent, and every process is gone when this returns."""
        assert self._started is not None  # noqa: S101  # it works
        self._started.child.end()
        while not self._inbox.empty():
            match self._inbox.get():
                case Passed() as passed:
                    self._account.finish(passed)
                case HeldRequest() as held:
                    held.release.cancel()
                case Called() as called:
                    called.answer.cancel()
                case _:
                    pass
        self._account.close()
        self._doings.close()

    def _observe_line(self, line: str, line_tokens: int) -> None:
        fill = self._account.gauge.least_tokens
        self._around.observe(GaugeCrossed(line=line, fill_tokens=fill, line_tokens=line_tokens))

    def _end(self, end: SessionEnd, detail: str) -> None:
        if self._outcome is None:
            self._outcome = SessionOutcome(end=end, detail=detail, text=self._doings.last_text)

    def _fail(self, words: str) -> None:
        if self._outcome is None:
            self._outcome = self._make_failure(words)

    def _make_failure(self, words: str) -> SessionOutcome:
        detail = f"{self._profile.title} failed: {words}"
        return SessionOutcome(end=SessionEnd.AGENT_FAILED, detail=detail, text=self._doings.last_text)

"""How a session reaches its endpoint: the one place that waits, retries and reports both."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from relay.base.errors import RunnerError
from relay.base.hints import RUN
from relay.base.interrupts import Interrupted, Interrupts
from relay.base.values import dataclass
from relay.config.model import NOTHING_SET, ModelSettings
from relay.runners.base import ModelInfo
from relay.runners.messages.answers import Answer
from relay.runners.messages.dialect import EndpointDialect
from relay.runners.messages.faults import Fault
from relay.runners.messages.retry import RetryPolicy
from relay.session.events import Observe, RetryScheduled
from relay.session.tape import Keep
from relay.session.values import SessionEnd, SessionOutcome

NOTED_WAIT_S = 60.0
"""A wait for a limit that is longer than this is written down first, so that a restart does not ask too early."""


class Api(Protocol):
    """The endpoint as a session needs it; `relay.runners.messages.api.MessagesApi` is the real one."""

    def find_model(self, model: str, own: ModelSettings = NOTHING_SET) -> ModelInfo | Fault:
        """Return window and limits, the user's own first, or a fault that may pass by itself."""

    def send(
        self,
        request: Mapping[str, Any],
        *,
        on_block: Callable[[Mapping[str, Any]], None],
        keep: Keep,
        meanwhile: Callable[[], object],
    ) -> Answer | Fault:
        """Send one request, and keep what goes over the wire.

        Contract: never raises for what an endpoint or a signal does. `meanwhile` is called on the caller's thread, at
        most once, when there is nothing to do but to wait for the answer.
        """

    def refresh(self, request: Mapping[str, Any]) -> Answer | Fault:
        """Send a request once more with nothing to be generated.

        Contract: as `send`; in a thread.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConnection:
    """How a session reaches its endpoint and its observers, and how long it may try."""

    api: Api
    observe: Observe
    interrupts: Interrupts
    max_wait_s: float
    """Longest time to keep trying one request; a reset further away ends the session."""
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
    now: Callable[[], float] = time.time
    """Seconds since the epoch, for limits that reset at a time of day."""
    dialect: EndpointDialect = field(default_factory=EndpointDialect)
    """What the endpoint has refused; mutable, shared by all sessions of the process."""

    def wait_after(
        self, fault: Fault, policy: RetryPolicy, *, duration_s: float, note: Callable[[float], None] = lambda _: None
    ) -> SessionOutcome | None:
        """Report the wait before the next try, then wait.

        Args:
            duration_s: How long the request took to fail.
            note: Told until when (seconds since the epoch) a long wait for a limit lasts, before it begins.

        Returns:
            None to try again; else how the session ends.
        """
        wait = policy.judge(fault, duration_s=duration_s, jitter=self.jitter(), now=self.now())
        if isinstance(wait, SessionOutcome):
            return wait
        if wait.until is not None and wait.wait_s > NOTED_WAIT_S:
            # Before the wait: whoever kills relay meanwhile leaves the note for the next run.
            note(wait.until)
        self.observe(RetryScheduled(attempt=wait.attempt, wait_s=wait.wait_s, reason=fault.message))
        if self.interrupts.wait(wait.wait_s):
            return SessionOutcome(end=SessionEnd.INTERRUPTED, detail="stopped while waiting for the API")
        return None


def get_model(connection: ApiConnection, model: str, own: ModelSettings = NOTHING_SET) -> ModelInfo:
    """Ask the endpoint for a model, again and again while it is only overloaded.

    Raises:
        RunnerError: Something that the user has to change, or the endpoint stayed unavailable.
        Interrupted: The user asked to stop.
    """
    policy = RetryPolicy(max_wait_s=connection.max_wait_s)
    while True:
        started = connection.clock()
        found = connection.api.find_model(model, own)
        if isinstance(found, ModelInfo):
            return found
        outcome = connection.wait_after(found, policy, duration_s=connection.clock() - started)
        if outcome is None:
            continue
        if outcome.end is SessionEnd.INTERRUPTED:
            raise Interrupted
        raise RunnerError(f"the endpoint gave no answer about {model}: {outcome.detail}", hint=RUN)

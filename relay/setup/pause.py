"""Waiting for the user: while the run is paused from another terminal, and between two phases that need a yes."""

import time

from relay.session.events import RunPaused, RunResumed
from relay.setup.context import RunContext
from relay.store.inbox import is_paused

_LOOK_S = 0.5
"""How often a run that waits looks whether it may go on."""


def wait_while_paused(ctx: RunContext, reason: str = "relay resume goes on, relay stop hands over") -> None:
    """Return at once where nobody asked for a pause, else when it is over or a stop is asked for."""
    if not is_paused(ctx.repo):
        return
    began = time.monotonic()
    ctx.observe(RunPaused(reason=reason))
    while is_paused(ctx.repo) and not ctx.interrupts.wait(_LOOK_S):
        ctx.sessions.waits.look()
    ctx.observe(RunResumed(waited_s=time.monotonic() - began))

"""Waiting while the user has the run paused from another terminal, and for a worker's claim."""

import time

from relay.session.events import RunPaused, RunResumed
from relay.setup.context import RunContext
from relay.store.claim_end import is_claim_over
from relay.store.inbox import is_paused

_LOOK_S = 0.5
"""How often a run that waits looks whether it may go on."""
_CLAIM = (
    "the claim on its phase ran out; it goes on when the worker has renewed it, and ends when another worker has it"
)
_PAUSE = "relay resume goes on, relay stop hands over"


def wait_while_paused(ctx: RunContext) -> None:
    """Return at once where nobody asked for a pause and no claim ran out, else when it is over, or a stop is asked."""
    for lasts, why in ((is_claim_over, _CLAIM), (is_paused, _PAUSE)):
        if not lasts(ctx.repo):
            continue
        began = time.monotonic()
        ctx.observe(RunPaused(reason=why))
        while lasts(ctx.repo) and not ctx.interrupts.wait(_LOOK_S):
            ctx.sessions.waits.look()
        ctx.observe(RunResumed(waited_s=time.monotonic() - began))

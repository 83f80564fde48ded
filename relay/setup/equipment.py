"""What every session is given, whatever it is for: where its tools work."""

from relay.setup.context import RunContext
from relay.setup.policy import make_limits
from relay.tools.workspace import Workspace


def make_workspace(ctx: RunContext) -> Workspace:
    """Return what the tools of a session work on."""
    root = ctx.repo.root
    hidden = ctx.sandbox.policy.unreadable
    return Workspace(
        root=root,
        sandbox=ctx.sandbox,
        protected=ctx.protected,
        outputs_dir=ctx.outputs_dir,
        should_stop=lambda: ctx.interrupts.stop_now,
        limits=make_limits(ctx.settings, timeout_s=ctx.settings.command_timeout_s),
        unreadable=tuple(place.relative_to(root).as_posix() for place in hidden if place.is_relative_to(root)),
        spills="spill" not in ctx.settings.ablate,
    )

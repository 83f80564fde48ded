"""What every session is given, whatever it is for: where its tools work, and how its conversation is held."""

from collections.abc import Callable

from relay.runners.base import SessionSpec
from relay.session.values import ToolCall, ToolResult, ToolSpec
from relay.setup.context import RunContext
from relay.setup.open import make_limits
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


def make_spec(
    ctx: RunContext,
    session_id: str,
    *,
    system: str,
    tools: tuple[ToolSpec, ...],
    run_tool: Callable[[ToolCall], ToolResult],
    render_soft_notice: Callable[[int, int], str],
) -> SessionSpec:
    """Return what a fresh session is made of, with the run's model, lines, budget and cache."""
    return SessionSpec(
        session_id=session_id,
        model=ctx.settings.model,
        system=system,
        tools=tools,
        run_tool=run_tool,
        reset_at=ctx.settings.reset_at_for(ctx.settings.model),
        render_soft_notice=render_soft_notice,
        check_budget=ctx.meter.check,
        price=ctx.price,
        max_output_tokens=ctx.settings.max_output_tokens,
        effort=ctx.settings.effort,
        cached="cache" not in ctx.settings.ablate,
        long_cache=ctx.long_cache,
    )

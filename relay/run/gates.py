"""What runs in the sandbox on relay's own behalf: a phase's gate and the user's commit hooks."""

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from relay.gate.model import GateResult, Verdict
from relay.gate.run import run_gate
from relay.gate.verdict import compare_gate
from relay.git.hooks import HookResult, HookRun, Hooks
from relay.session.events import GateFinished, GateStarted
from relay.setup.context import RunContext
from relay.tools.workspace import Workspace


def run_phase_gate(
    ctx: RunContext,
    phase_id: str,
    commands: Sequence[str],
    *,
    baseline: GateResult | None,
    own: Collection[str] | None = None,
    is_baseline: bool = False,
) -> tuple[GateResult, Verdict]:
    """Run a phase's gate and tell everybody about it.

    Args:
        ctx: The collaborators.
        phase_id: For the events.
        commands: The gate; without any, it is green and proves nothing.
        baseline: The same before the phase; None when it is not known: then nothing red is excused.
        own: Commands that stand in the phase itself; None when all do.
        is_baseline: Whether this run is the baseline.
    """
    if not commands:
        return GateResult(commands=()), Verdict(green=True, for_model="", for_user="no verify command")
    ctx.observe(GateStarted(phase_id=phase_id, baseline=is_baseline, commands=tuple(commands)))
    result = run_gate(
        commands,
        sandbox=ctx.workspace.sandbox,
        limits=replace(ctx.workspace.limits, timeout_s=ctx.settings.gate_timeout_s),
        should_stop=ctx.workspace.should_stop,
        outputs_dir=ctx.workspace.outputs_dir,
    )
    verdict = compare_gate(baseline, result, own=own)
    ctx.observe(
        GateFinished(
            phase_id=phase_id,
            baseline=is_baseline,
            passed=verdict.green,
            summary=verdict.for_user,
            duration_s=sum(check.duration_s for check in result.commands),
        )
    )
    return result, verdict


def make_hooks(ctx: RunContext, *, recheck: Callable[[tuple[str, ...]], str | None] = lambda _: None) -> Hooks:
    """Return how the user's commit hooks are run: in the sandbox, with a scratch directory of their own."""
    scratch = ctx.workspace.sandbox.private.tmp / "hooks"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    return Hooks(
        run=lambda run: _run_hook(ctx.workspace, run, timeout_s=ctx.settings.gate_timeout_s),
        scratch=scratch,
        recheck=recheck,
    )


def _run_hook(workspace: Workspace, run: HookRun, *, timeout_s: float) -> HookResult:
    """Run one of the user's hooks in the sandbox, where the scratch directory has another name."""
    sandbox = workspace.sandbox
    outside, inside = str(sandbox.private.tmp), str(sandbox.tmp)
    result = sandbox.run(
        [argument.replace(outside, inside) for argument in run.argv],
        limits=replace(workspace.limits, timeout_s=timeout_s),
        should_stop=workspace.should_stop,
        extra_env={name: value.replace(outside, inside) for name, value in run.env.items()},
    )
    text = result.output.decode("utf-8", "replace").strip()
    ended = "timed out" if result.timed_out else f"exited with {result.exit_code}"
    return HookResult(ok=result.exit_code == 0, output=f"the {run.name} hook {ended}\n{text[-4000:]}")

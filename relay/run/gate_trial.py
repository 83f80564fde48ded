"""A phase's gate, and the commit hooks, without a session: on the work tree as it is."""

from collections.abc import Sequence
from dataclasses import replace

from relay.base.words import list_some
from relay.gate.causes import Failure, find_causes
from relay.gate.model import GateResult, Outcome, compare_gate
from relay.gate.run import run_gate
from relay.git.status import read_status
from relay.plan.files import STATE_DIR
from relay.run.commit.gates import find_handed, open_hooks, render_gate, reveal
from relay.run.commit.hooks import find_hook_causes, render_hook, try_hook
from relay.sandbox.veil import lift_veil
from relay.session.events import GateFinished, GateStarted, Observe
from relay.setup.context import RunRequest
from relay.store.commit import CommitEnd, CommitOutcome
from relay.store.environment import load_environment, read_environment
from relay.store.extra_files import SessionChanges, read_spans
from relay.store.legs import read_leg
from relay.tools.workspace import Workspace


def try_gate(
    request: RunRequest, workspace: Workspace, phase_id: str, commands: Sequence[str], observe: Observe
) -> GateFinished:
    """Run commands as the gate of a phase would; tell of it, and return how it ended.

    Raises:
        SandboxError: The sandbox could not be set up.
    """
    observe(GateStarted(phase_id=phase_id, baseline=False, commands=tuple(commands)))
    with workspace.sandbox.renew() as fresh:
        result = run_gate(
            commands,
            sandbox=reveal(request.repo, request.settings, fresh),
            limits=replace(workspace.limits, timeout_s=request.settings.gate_timeout_s),
            should_stop=workspace.should_stop,
            outputs_dir=workspace.outputs_dir,
            handed=find_handed(request.repo, request.settings, request.environ),
        )
    verdict = compare_gate(None, result)
    finished = render_gate(phase_id, result, passed=verdict.green, summary=verdict.for_user)
    observe(finished)
    return finished


def try_hooks(request: RunRequest, workspace: Workspace, subject: str, observe: Observe) -> GateFinished | None:
    """Run the commit hooks on what is staged, in the same way; None when there is none.

    Raises:
        SandboxError: The sandbox could not be set up.
    """
    repo, settings = request.repo, request.settings
    with open_hooks(repo, settings, workspace) as hooks:
        if hooks is None:
            return None
        names = [name for name in settings.hooks if name in (hooks.names or ())]
        observe(GateStarted(phase_id="", baseline=False, commands=tuple(f"{name} hook" for name in names)))
        index = repo.git_dir / "index"
        tried = [try_hook(repo, hooks, name, index=index, subject=subject) for name in names]
    checks = tuple(render_hook(one, _find_causes(workspace, settings.gate_timeout_s, one)) for one in tried)
    red = [check.command for check in checks if check.status is not Outcome.PASSED]
    summary = f"the {list_some(red)} refused" if red else "no hook refused"
    finished = render_gate("", GateResult(commands=checks), passed=not red, summary=summary)
    observe(finished)
    return finished


def _find_causes(workspace: Workspace, timeout_s: float, tried: CommitOutcome) -> tuple[str, ...]:
    if tried.end is not CommitEnd.HOOK_REFUSED:
        return ()
    failed = Failure(
        command=f"{tried.hook} hook", status=Outcome.FAILED, output=tried.output, missing="", timeout_s=timeout_s
    )
    return (*find_causes(failed, lift_veil(workspace.sandbox)), *find_hook_causes(tried))


def find_uncommitted(request: RunRequest) -> tuple[str, ...]:
    """Return the files that commands see now and that no commit has: a run's gate is shown what its commit holds."""
    status = read_status(request.repo)
    own = (request.plan_path, request.files.ledger_path)
    named = dict.fromkeys((*status.changed, *status.untracked))
    return tuple(path for path in named if path not in own and not path.startswith(f"{STATE_DIR}/"))


def find_unshown(request: RunRequest) -> tuple[tuple[str, ...], str]:
    """Return what commands see now that git ignores and a run's gate is not shown; and a sentence on what it would see.

    It came since the open phase began, or sessions changed it.
    """
    leg, there = read_leg(request.repo), sorted(read_environment(request.repo).roots)
    began = load_environment(request.repo, leg.environment) if leg else None
    new = [path for path in there if began is not None and not began.holds(path)]
    by_sessions = SessionChanges(root=str(request.repo.root), spans=read_spans(request.repo))
    for path in there:
        if path not in new:
            by_sessions.look(path)
    return (*new, *by_sessions.hidden), by_sessions.render()

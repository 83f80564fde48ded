"""A phase's gate, and the commit hooks, without a session: on the work tree as it is."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relay.gate.causes import Failure, find_causes
from relay.gate.model import CommandCheck, GateResult, Outcome
from relay.gate.run import run_gate
from relay.gate.verdict import compare_gate
from relay.git.config_guard import guard
from relay.git.hooks import has_hook, make_hook_run
from relay.git.status import read_status
from relay.plan.files import STATE_DIR
from relay.run.commit.gates import render_gate, reveal, run_hook
from relay.run.commit.hook_refusal import find_hook_causes, render_hook
from relay.sandbox.run import Sandbox
from relay.sandbox.veil import lift_veil
from relay.session.events import GateFinished, GateStarted, Observe
from relay.setup.context import RunRequest
from relay.store.environment import load_environment, read_environment
from relay.store.legs import read_leg
from relay.tools.workspace import Workspace
from relay.words import list_some


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
    config = guard(request.repo).config
    names = [name for name in request.settings.hooks if has_hook(request.repo, config, name)]
    if not names:
        return None
    observe(GateStarted(phase_id="", baseline=False, commands=tuple(f"{name} hook" for name in names)))
    with workspace.sandbox.renew() as fresh:
        checks = tuple(_try_hook(request, workspace, fresh, name, subject) for name in names)
    red = [check.command for check in checks if check.status is not Outcome.PASSED]
    summary = f"the {list_some(red)} refused" if red else "no hook refused"
    finished = render_gate("", GateResult(commands=checks), passed=not red, summary=summary)
    observe(finished)
    return finished


def _try_hook(request: RunRequest, workspace: Workspace, fresh: Sandbox, name: str, subject: str) -> CommandCheck:
    repo, timeout_s = request.repo, request.settings.gate_timeout_s
    scratch = Path(tempfile.mkdtemp(prefix="hook-", dir=fresh.private.tmp))
    message = scratch / "COMMIT_EDITMSG"
    message.write_text(f"{subject}\n")
    if (repo.git_dir / "index").is_file():
        shutil.copyfile(repo.git_dir / "index", scratch / "index")
    args = {"pre-commit": (), "commit-msg": (str(message),)}.get(name, (str(message), "message"))
    hook = make_hook_run(repo, guard(repo).config, name, args, index=scratch / "index")
    result = run_hook(workspace, repo, fresh, hook, timeout_s=timeout_s)
    if result.ok:
        return render_hook(name, result.output, duration_s=result.duration_s)
    failed = Failure(
        command=f"{name} hook", status=Outcome.FAILED, output=result.output, missing="", timeout_s=timeout_s
    )
    causes = (*find_causes(failed, lift_veil(fresh)), *find_hook_causes(name, result.output))
    return render_hook(name, result.output, duration_s=result.duration_s, causes=causes)


def find_uncommitted(request: RunRequest) -> tuple[str, ...]:
    """Return the files that commands see now and that no commit has: a run's gate is shown what its commit holds."""
    status = read_status(request.repo)
    own = (request.plan_path, request.files.ledger_path)
    named = dict.fromkeys((*status.changed, *status.untracked))
    return tuple(path for path in named if path not in own and not path.startswith(f"{STATE_DIR}/"))


def find_unshown(request: RunRequest) -> tuple[str, ...]:
    """Return what commands see now and the gate of the open phase is not shown: git ignores it, and it came since."""
    leg = read_leg(request.repo)
    began = load_environment(request.repo, leg.environment) if leg else None
    if began is None:
        return ()
    return tuple(path for path in sorted(read_environment(request.repo).roots) if not began.holds(path))

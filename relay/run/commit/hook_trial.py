"""The commit hooks without a commit: before a session is paid, and where a person tries them."""

import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from relay.base.errors import RepoError
from relay.git.config_guard import guard
from relay.git.hooks import HookResult, Hooks, make_hook_run, only_forbids_branch
from relay.git.repository import Repo
from relay.run.commit.gates import open_hooks
from relay.run.commit.hook_refusal import explain_hook, render_hook_gate
from relay.session.events import GateStarted
from relay.setup.context import RunContext
from relay.store import staging
from relay.store.commit import CommitEnd, CommitOutcome

_WANTS_MORE = re.compile(
    r"\A[^\n]*\n*\Z|\bstag(?:ed|ing)\b|no (?:path|files?)\b|nothing to|^usage:", re.IGNORECASE | re.MULTILINE
)
"""A hook that says nothing, or that it was given nothing: it may agree once there is something to commit."""


def require_hooks(ctx: RunContext, phase_id: str) -> bool:
    """Refuse to begin where the pre-commit hook refuses the files as they are: no session is asked to repair that.

    It is run once in a run, with nothing staged, unless a commit of the run has shown that it agrees.

    Returns:
        Whether it was run: the work tree may not be as it was.

    Raises:
        RepoError: It refuses.
    """
    if ctx.memory.knows_hooks:
        return False
    with open_hooks(ctx.repo, ctx.settings, ctx.workspace) as hooks:
        if hooks is None or "pre-commit" not in (hooks.names or ()):
            return False
        ctx.observe(GateStarted(phase_id="", baseline=True, commands=("pre-commit hook",)))
        index = staging.stage_paths(ctx.repo, guard(ctx.repo), ctx.repo.head(), ())
        tried = try_hook(ctx.repo, hooks, "pre-commit", index=Path(index))
    if ctx.workspace.should_stop():
        return True
    is_red = tried.end is CommitEnd.HOOK_REFUSED
    says_nothing = is_red and _WANTS_MORE.search(tried.output) is not None and not tried.is_of_branch
    expected = "as nothing is staged yet" if says_nothing else ""
    ctx.observe(replace(render_hook_gate("", tried), baseline=True, expected=expected))
    if is_red and not says_nothing:
        refused = explain_hook(tried)
        words = f"phase {phase_id} was not begun, because no commit could be made: {refused.for_user}"
        raise RepoError(words, hint=refused.ways)
    ctx.memory.knows_hooks = not is_red
    return True


def try_hook(repo: Repo, hooks: Hooks, name: str, *, index: Path, subject: str = "") -> CommitOutcome:
    """Run a hook as a commit would have it run, on a copy of an index; what it does with that is nobody's.

    Returns:
        Its refusal, with its words in any case.
    """

    def run(hooks: Hooks) -> HookResult:
        scratch = Path(tempfile.mkdtemp(prefix="hook-", dir=hooks.scratch))
        message = scratch / "COMMIT_EDITMSG"
        message.write_text(f"{subject}\n")
        if index.is_file():
            shutil.copyfile(index, scratch / "index")
        args = {"pre-commit": (), "commit-msg": (str(message),)}.get(name, (str(message), "message"))
        return hooks.run(make_hook_run(repo, guard(repo).config, name, args, index=scratch / "index"))

    result = run(hooks)
    return CommitOutcome(
        end=CommitEnd.COMMITTED if result.ok else CommitEnd.HOOK_REFUSED,
        output=result.output,
        hook=name,
        hook_s=result.duration_s,
        is_of_branch=name == "pre-commit" and only_forbids_branch(hooks, result, run),
    )

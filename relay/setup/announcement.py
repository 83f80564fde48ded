"""What a run says before it does anything."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from relay.config import Settings
from relay.config.sources import find_unknown
from relay.git.names import list_paths
from relay.git.repository import Repo
from relay.git.status import find_tracked_hidden
from relay.sandbox.policy import describe_opened
from relay.session.events import Noticed, RunStarted
from relay.session.gauge import open_gauge
from relay.session.values import SessionKind
from relay.setup.context import RunContext
from relay.store.history import find_beginning
from relay.store.legs import get_branch
from relay.store.orphans import describe_orphans


def announce(ctx: RunContext, kind: SessionKind, run_id: str, left: tuple[str, ...]) -> None:
    """Say what begins, and whatever a person should know before it does."""
    started = RunStarted(
        run_id=run_id,
        command=kind,
        model=ctx.settings.model,
        plan_path=ctx.plan_path,
        branch=get_branch(ctx.repo),
        sandbox=ctx.workspace.sandbox.mechanism,
        cap_usd=ctx.settings.max_cost_usd,
        spent_usd=ctx.meter.total.cost_usd,
        estimated=ctx.meter.total.estimated,
        rehearsed=ctx.sessions.model.rehearsed,
        context=ctx.settings.strategy,
        ablated=ctx.settings.ablate,
        plan_commit="" if kind.replaces_plan else find_beginning(ctx.repo, ctx.plan_path),
    )
    ctx.observe(started)
    reset_at = ctx.settings.reset_at_for(ctx.settings.model)
    limited = open_gauge(window_tokens=ctx.sessions.model.window_tokens, reset_at=reset_at).limited
    gaps = ctx.workspace.sandbox.gaps
    for words in (
        *left,
        *_describe_git_dir(ctx.repo),
        *describe_tracked(ctx.repo),
        *describe_orphans(ctx.repo, ctx.repo.branch),
        *_describe_experiment(ctx.settings),
        *ctx.rules.warnings,
        *([limited] if limited else []),
        *describe_opened(ctx.workspace.sandbox.policy),
        *gaps,
    ):
        ctx.observe(Noticed(text=words, warning=True))


def describe_settings(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Name what is set and has no effect."""
    if unknown := find_unknown(environ):
        yield f"{', '.join(unknown)}: no setting of relay's, not looked at"
    for name, path in (
        *(("writable_dirs", p) for p in settings.writable_dirs),
        *(("readable_dirs", p) for p in settings.readable_dirs),
    ):
        if not Path(path).expanduser().is_dir():
            yield f"{name}: {path} is no directory: commands do not have it"


def _describe_git_dir(repo: Repo) -> Iterator[str]:
    """Name a git directory that a file puts elsewhere; a linked work tree's is known to be its own."""
    if repo.git_dir == repo.common_dir and not repo.git_dir.is_relative_to(repo.root):
        yield f"the history of this work tree is in {repo.git_dir}, which the file .git names"


def describe_tracked(repo: Repo) -> Iterator[str]:
    """Name what is hidden and cannot be kept from a session, because git has it."""
    if found := find_tracked_hidden(repo):
        yield (
            f"git tracks {list_paths(found)}: a session is not shown the file, but can read with git what was "
            "committed; keep no secret in it"
        )


def _describe_experiment(settings: Settings) -> Iterator[str]:
    """Say what of relay is switched off or replaced, so that the user does not take the run for an ordinary one."""
    if settings.strategy != "reset":
        yield f"context strategy: {settings.strategy}, to be compared with relay's own; sessions are not reset"
    if settings.ablate:
        yield f"switched off ({settings.origins['ablate']}): {', '.join(settings.ablate)}"

"""Everything that must hold before a session starts, checked in the order in which a user can repair it.

Nothing has been changed when one of these checks fails, and no request has been sent before the key, the repository
and the sandbox are known to be usable.
"""

import os
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relay.config import Settings
from relay.errors import ConfigError, PlanError, RepoError
from relay.git.config_guard import read_config
from relay.git.hooks import find_hooks_dir
from relay.git.identity import get_identity
from relay.git.lock_journal import clear_stale_locks
from relay.git.operations import check_state
from relay.git.repository import Repo
from relay.git.signing import check_signing
from relay.git.status import find_ignored, read_status
from relay.hints import AT_ROOT, Caller
from relay.interrupts import Interrupts
from relay.meters.prices import Budget, Price, find_price
from relay.meters.spend import Meter
from relay.plan.files import STATE_DIR, find_ledger_path, find_protected
from relay.runners.base import ModelInfo, Runner
from relay.runners.messages.api import MessagesApi, open_api, require_key
from relay.runners.messages.cache import CacheTtlPolicy
from relay.runners.messages.connection import ApiConnection, get_model
from relay.runners.messages.conversation import ApiRunner
from relay.sandbox.memory import find_most_bytes
from relay.sandbox.policy import MIB, Level, Limits, Policy
from relay.sandbox.run import open_sandbox
from relay.secrets.patterns import find_secret_values
from relay.session.events import Event, Noticed, Observe, RunStarted
from relay.session.usage import Spent
from relay.setup.context import RunContext
from relay.setup.rules import Rules, load_rules
from relay.setup.session import Sessions
from relay.state.facts import find_landed
from relay.store.completion import finish_pending
from relay.store.history import read_plan_commits, read_rewound_commits
from relay.store.legs import find_boot_id, get_branch, read_leg
from relay.store.lock import lock_worktree
from relay.store.orphans import describe_strays
from relay.store.planning_cost import read_plan_usage
from relay.telemetry.log import EventLog, open_log, sweep_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a command knows when it asks for a run."""

    command: str
    """``plan`` or ``run``."""
    repo: Repo
    settings: Settings
    plan_path: str
    """Relative to the repository's root."""
    allow_dirty: bool
    environ: Mapping[str, str]
    caller: Caller = AT_ROOT
    """Where and how it was typed; the default is the root, with the plan of the settings."""


@contextmanager
def open_run(request: RunRequest, view: Observe, interrupts: Interrupts) -> Iterator[RunContext]:
    """Check everything, open everything, hand out the collaborators, close everything.

    Raises:
        RelayError: Something that the user or the environment has to change first.
    """
    require_key(request.environ)
    with ExitStack() as stack:
        run_id = new_id()
        ctx, left = _open(stack, request, run_id, view, interrupts)
        ctx.observe(_describe_start(ctx, request.command, run_id))
        strays = describe_strays(request.repo)
        for words in (*left, *strays, *_describe_experiment(request.settings), *ctx.rules.warnings, *ctx.sandbox.gaps):
            ctx.observe(Noticed(text=words, warning=True))
        sweep_outputs(ctx.repo.root, now_s=time.time())
        yield ctx


def _open(
    stack: ExitStack, request: RunRequest, run_id: str, view: Observe, interrupts: Interrupts
) -> tuple[RunContext, tuple[str, ...]]:
    """Return the collaborators, and what an earlier run's commit still lacks, in words."""
    repo, settings = request.repo, request.settings
    require_repository(repo)
    require_plan_file(repo, request.plan_path, request.caller)
    stack.enter_context(lock_worktree(repo))
    require_commits(repo)
    left = finish_pending(repo)
    require_clean(request)
    api = stack.enter_context(  # here, because its SDK loads while the sandbox proves itself and git is asked
        open_api(environ=request.environ, interrupts=interrupts, idle_timeout_s=settings.idle_timeout_s)
    )
    rules = Rules() if "rules" in settings.ablate else load_repository_rules(repo.root, settings)
    protected = find_protected(request.plan_path)
    log = stack.enter_context(_open_log(request, run_id))  # makes .relay before commands could
    policy = make_policy(repo, settings, protected, request.environ)
    level = Level.READ_ONLY if request.command == "plan" else Level.WORKSPACE_WRITE
    sandbox = stack.enter_context(open_sandbox(policy, level, off=settings.sandbox == "off"))
    sessions = _open_sessions(api, request, view, log, interrupts)
    ctx = RunContext(
        repo=repo,
        settings=settings,
        sandbox=sandbox,
        sessions=sessions,
        rules=rules,
        meter=sessions.meter,
        observe=sessions.observe,
        interrupts=interrupts,
        plan_path=request.plan_path,
        ledger_path=find_ledger_path(request.plan_path),
        outputs_dir=repo.root / STATE_DIR / "outputs",
        protected=protected,
        boot_id=find_boot_id(),
        new_id=new_id,
        secret_values=find_secret_values(request.environ),
        caller=request.caller,
    )
    return ctx, left


def _open_sessions(
    api: MessagesApi, request: RunRequest, view: Observe, log: EventLog, interrupts: Interrupts
) -> Sessions:
    """Return how this run's sessions are run; the endpoint has been asked for the model."""
    repo, settings = request.repo, request.settings
    price = find_price(settings.model, at=datetime.now(UTC).date(), overrides=settings.prices)
    meter = make_meter(repo, request.plan_path, settings, price)
    cache_ttl = CacheTtlPolicy()
    connection = ApiConnection(api=api, observe=view, interrupts=interrupts, max_wait_s=settings.max_wait_s)
    model = _apply_limits(get_model(connection, settings.model), settings)
    observe = _make_observe((meter.observe, cache_ttl.observe, view), log)
    runner = ApiRunner(connection=replace(connection, observe=observe), known={model.id: model})
    return Sessions(
        runner=_choose_runner(runner, settings.strategy),
        model=model,
        settings=settings,
        price=price,
        meter=meter,
        cache_ttl=cache_ttl,
        observe=observe,
    )


def _choose_runner(runner: ApiRunner, strategy: str) -> Runner:
    if strategy == "reset":
        return runner
    from relay.runners.messages.strategies import Continuous

    return Continuous(runner=runner, strategy=strategy)


def _open_log(request: RunRequest, run_id: str) -> EventLog:
    values = find_secret_values(request.environ)
    return open_log(request.repo.root, run_id, clock=time.time, secret_values=values)


def _describe_start(ctx: RunContext, command: str, run_id: str) -> RunStarted:
    return RunStarted(
        run_id=run_id,
        command=command,
        model=ctx.settings.model,
        plan_path=ctx.plan_path,
        branch=get_branch(ctx.repo),
        sandbox=ctx.sandbox.mechanism,
        cap_usd=ctx.settings.max_cost_usd,
        spent_usd=ctx.meter.total.cost_usd,
        rehearsed=ctx.sessions.model.rehearsed,
        context=ctx.settings.strategy,
        ablated=ctx.settings.ablate,
    )


def _describe_experiment(settings: Settings) -> Iterator[str]:
    """Say what of relay is switched off or replaced, so that nobody takes the run for an ordinary one."""
    if settings.strategy != "reset":
        yield f"context strategy: {settings.strategy}, to be compared with relay's own; sessions are not reset"
    if settings.ablate:
        yield f"switched off ({settings.origins['ablate']}): {', '.join(settings.ablate)}"


def _make_observe(observers: tuple[Observe, ...], log: EventLog) -> Observe:
    """Feed every event to the observers in their order, the view last, then to the log."""

    def observe(event: Event) -> None:
        for tell in observers:
            tell(event)
        if lost := log.append(event):
            observers[-1](lost)

    return observe


def new_id() -> str:
    """Return a session id: eight hexadecimal digits."""
    return secrets.token_hex(4)


def require_repository(repo: Repo) -> str:
    """Return the branch to work on.

    Raises:
        RepoError: git is too old, HEAD is detached, or a merge, rebase or the like is unfinished.
    """
    repo.read_version()
    if words := check_state(repo):
        raise RepoError(words)
    return get_branch(repo)


def require_plan_file(repo: Repo, plan_path: str, caller: Caller) -> None:
    """Make sure that the plan is a file that relay can replace and git will keep.

    Raises:
        PlanError: It is a symbolic link or lies behind one, or git ignores it.
    """
    root = os.path.realpath(repo.root)
    real = os.path.realpath(repo.root / plan_path)
    if real != os.path.normpath(Path(root, plan_path)):
        inside = os.path.relpath(real, root) if Path(real).is_relative_to(root) else ""
        raise PlanError(
            f"{plan_path} leads through a symbolic link to {inside or real}; relay commits the plan where it is",
            hint=f"--plan {shlex.quote(caller.find_typed(inside))}"
            if inside
            else "put the plan itself into the repository",
        )
    if find_ignored(repo, [plan_path]):
        raise PlanError(
            f"{plan_path} is ignored by git, and relay commits the plan with the work",
            hint=f"git add -f {shlex.quote(caller.find_typed(plan_path))}, or take it out of .gitignore",
        )


def require_commits(repo: Repo) -> None:
    """Make sure that a commit could be made, before a session is paid for.

    Raises:
        RepoError: A lock of somebody else's is in the way, there is no identity, or commits cannot be signed.
    """
    if locks := clear_stale_locks(repo):
        raise RepoError("; ".join(locks))
    get_identity(repo)
    if words := check_signing(repo):
        raise RepoError(words)


def require_clean(request: RunRequest) -> None:
    """Make sure that no uncommitted change of the user's to a tracked file is in the way.

    An open leg's own changes are no obstacle: they are what the run goes on with.

    Raises:
        RepoError: Tracked files are changed; the message names them.
    """
    if request.command != "run" or request.allow_dirty or read_leg(request.repo) is not None:
        return
    own = {request.plan_path, find_ledger_path(request.plan_path)}
    status = read_status(request.repo)
    dirty = [path for path in status.changed if path not in own]
    if dirty:
        dirty = [f"{path} (which git status was told to hide)" if path in status.hidden else path for path in dirty]
        shown = ", ".join(dirty[:5]) + (f" and {len(dirty) - 5} more" if len(dirty) > 5 else "")  # noqa: PLR2004
        raise RepoError(
            f"tracked files have uncommitted changes: {shown}",
            hint="commit them, or use --allow-dirty: relay then keeps these files out of every commit",
        )


def load_repository_rules(root: Path, settings: Settings) -> Rules:
    """Load AGENTS.md and its kin.

    Raises:
        ConfigError: The most specific file does not fit the budget; work would go on without its rules.
    """
    rules = load_rules(
        root,
        max_bytes=settings.rules_max_bytes,
        fallback_names=settings.rules_fallback_names,
        root_markers=settings.rules_root_markers,
        global_dir=Path(settings.rules_global_dir) if settings.rules_global_dir else None,
    )
    if rules.nearest_cut:
        raise ConfigError(
            f"the rules do not fit {settings.rules_max_bytes:,} bytes: {'; '.join(rules.warnings)}",
            hint="shorten AGENTS.md, or raise rules_max_bytes",
        )
    return rules


def make_policy(repo: Repo, settings: Settings, protected: tuple[str, ...], environ: Mapping[str, str]) -> Policy:
    """Return what commands in this repository may touch."""
    return Policy(
        root=repo.root,
        env=environ,
        git_dirs=tuple(dict.fromkeys((repo.git_dir, repo.common_dir))),
        protected=tuple(repo.root / path for path in protected),
        writable=tuple(Path(path).expanduser() for path in settings.writable_dirs),
        readable=(find_hooks_dir(repo, read_config(repo)),),
        unreadable=get_unreadable(repo.root, settings, environ),
        pass_env=settings.env,
        network=settings.network,
    )


def make_limits(settings: Settings, *, timeout_s: float) -> Limits:
    """Return the bounds of a command that may take so long."""
    own = settings.command_memory_mib
    return Limits(timeout_s=timeout_s, memory_bytes=own * MIB if own else find_most_bytes())


def get_unreadable(root: Path, settings: Settings, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the places of the setting `unreadable`, absolute and with links resolved.

    Raises:
        ConfigError: One of them holds the whole repository, or is in a home directory that nobody knows.
    """
    places = []
    for text in settings.unreadable:
        home = environ.get("HOME", "")
        if text.startswith("~/") and not home.startswith("/"):
            raise ConfigError(f"{settings.origins['unreadable']}: unreadable: {text}: HOME is not set")
        place = Path(os.path.realpath(root / (f"{home}/{text[2:]}" if text.startswith("~/") else text)))
        if root.is_relative_to(place):
            raise ConfigError(f"{settings.origins['unreadable']}: unreadable: {text} holds the repository itself")
        places.append(place)
    return tuple(places)


def make_meter(repo: Repo, plan_path: str, settings: Settings, price: Price | None) -> Meter:
    """Return a meter that knows what the plan has cost: its commits, and its open leg where no commit records that."""
    budget = Budget(
        run_cap_usd=settings.max_cost_usd,
        phase_cap_usd=settings.max_phase_cost_usd,
        token_cap=settings.max_tokens_total,
    )
    meter = Meter(budget, price=price, before=read_spent(repo, plan_path))
    leg = read_leg(repo)
    if leg is not None and find_landed(repo, leg) is None:
        meter.restore(leg.spend)
    return meter


def read_spent(repo: Repo, plan_path: str) -> Spent:
    """Return what the commits of the current plan record, rewound ones too, and planning that no commit has yet."""
    own = read_plan_commits(repo, plan_path)
    total = sum((commit.spent for commit in (*own, *read_rewound_commits(repo, plan_path, own))), start=Spent())
    planning = read_plan_usage(repo)
    return total + planning.spend if planning and planning.plan_path == plan_path else total


def _apply_limits(model: ModelInfo, settings: Settings) -> ModelInfo:
    own: dict[str, Any] = {}
    limits = settings.find_model(settings.model)
    if limits.window_tokens:
        own["window_tokens"] = limits.window_tokens
    if limits.max_output_tokens:
        own["max_output_tokens"] = limits.max_output_tokens
    return replace(model, **own, source="settings") if own else model

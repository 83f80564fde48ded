"""The one place where a run's collaborators are made, in the order in which a user can repair what is missing.

Nothing has been changed when a precondition fails, and no request has been sent before the key, the repository and
the sandbox are known to be usable.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from relay.config import Settings
from relay.errors import RepoError
from relay.git.lock_journal import clear_stale_locks
from relay.git.repository import Repo
from relay.hints import AT_ROOT, Caller
from relay.interrupts import Interrupts
from relay.meters.pace import Pace
from relay.meters.prices import find_price
from relay.plan.files import STATE_DIR, find_ledger_path, find_protected
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.runners.registry import RUNNERS, get_kind
from relay.sandbox.policy import Level
from relay.sandbox.run import Sandbox, open_sandbox
from relay.secrets.patterns import find_secret_values
from relay.session.events import Event, Noticed, Observe, RunStarted
from relay.setup import preconditions
from relay.setup.account import make_meter
from relay.setup.context import PlanFiles, RunContext
from relay.setup.policy import make_limits, make_policy
from relay.setup.preconditions import require
from relay.setup.rules import Rules, load_repository_rules
from relay.setup.session import Sessions
from relay.store.completion import finish_pending
from relay.store.legs import get_branch
from relay.store.lock import lock_worktree
from relay.store.orphans import describe_orphans
from relay.telemetry.log import EventLog, open_log, sweep_outputs
from relay.tools.workspace import Workspace


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

    @property
    def files(self) -> PlanFiles:
        """The plan and its ledger."""
        return PlanFiles(repo=self.repo, plan_path=self.plan_path, ledger_path=find_ledger_path(self.plan_path))


@contextmanager
def open_run(
    request: RunRequest, view: Observe, interrupts: Interrupts, *, runners: Mapping[str, RunnerKind] = RUNNERS
) -> Iterator[RunContext]:
    """Check everything, open everything, hand out the collaborators, close everything.

    Args:
        request: What the command knows.
        view: Told of everything that happens.
        interrupts: Whether the user asked to stop.
        runners: All there are; the settings choose one.

    Raises:
        RelayError: Something that the user or the environment has to change first.
    """
    settings = request.settings
    kind = get_kind(settings.runner, origin=settings.origins.get("runner", "default"), known=runners)
    require(preconditions.check_key(kind, request.environ))
    with ExitStack() as stack:
        run_id = new_id()
        left = _take_repository(stack, request)
        rules = _load_rules(request)
        log = stack.enter_context(_open_log(request, run_id))  # makes .relay before commands could
        counters: list[Observe] = []
        observe = _make_observe(counters, view, log)
        given = Surroundings(environ=request.environ, settings=settings, observe=observe, interrupts=interrupts)
        # Opened here, because what it needs loads while the sandbox proves itself and git is asked.
        runner = stack.enter_context(kind.open(given))
        sandbox = stack.enter_context(_open_commands(request))
        sessions = _make_sessions(request, runner, observe)
        counters += [sessions.meter.observe, sessions.pace.observe]
        ctx = RunContext(
            files=request.files,
            settings=settings,
            workspace=_make_workspace(request, sandbox, interrupts),
            sessions=sessions,
            rules=rules,
            meter=sessions.meter,
            observe=sessions.observe,
            interrupts=interrupts,
            new_id=new_id,
            secret_values=find_secret_values(request.environ),
            caller=request.caller,
        )
        _announce(ctx, request.command, run_id, left)
        sweep_outputs(ctx.repo.root, now_s=time.time())
        yield ctx


def _take_repository(stack: ExitStack, request: RunRequest) -> tuple[str, ...]:
    """Make sure that the repository can be worked in, and keep others out; what an earlier commit lacks, in words.

    Raises:
        RelayError: The user has to change something.
    """
    repo, path = request.repo, request.plan_path
    require(preconditions.check_git(repo))
    require(preconditions.check_repository(repo))
    require(preconditions.check_plan_file(repo, path, request.caller))
    stack.enter_context(lock_worktree(repo))
    if locks := clear_stale_locks(repo):
        raise RepoError("; ".join(locks))
    require(preconditions.check_identity(repo))
    require(preconditions.check_signature(repo))
    left = finish_pending(repo)
    if request.command == "run" and not request.allow_dirty:
        require(preconditions.check_clean(repo, path))
    return left


def _load_rules(request: RunRequest) -> Rules:
    if "rules" in request.settings.ablate:
        return Rules()
    rules = load_repository_rules(request.repo.root, request.settings)
    require(preconditions.check_rules(rules, request.settings))
    return rules


def _open_commands(request: RunRequest) -> Sandbox:
    """Return where this run's commands run, proven to hold; a planner's write nothing."""
    settings = request.settings
    policy = make_policy(request.repo, settings, find_protected(request.plan_path), request.environ)
    level = Level.READ_ONLY if request.command == "plan" else Level.WORKSPACE_WRITE
    return open_sandbox(policy, level, off=settings.sandbox == "off")


def _make_sessions(request: RunRequest, runner: Runner, observe: Observe) -> Sessions:
    """Return what runs this run's sessions, on the plan's account; the runner is asked for the model."""
    settings = request.settings
    price = find_price(settings.model, at=datetime.now(UTC).date(), overrides=settings.prices)
    return Sessions(
        runner=runner,
        model=runner.get_model(settings.model),
        settings=settings,
        price=price,
        meter=make_meter(request.repo, request.plan_path, settings, price),
        pace=Pace(),
        observe=observe,
    )


def _make_workspace(request: RunRequest, sandbox: Sandbox, interrupts: Interrupts) -> Workspace:
    """Return what tools and commands work on, planning or running."""
    root, settings = request.repo.root, request.settings
    hidden = sandbox.policy.unreadable
    return Workspace(
        root=root,
        sandbox=sandbox,
        protected=find_protected(request.plan_path),
        outputs_dir=root / STATE_DIR / "outputs",
        should_stop=lambda: interrupts.stop_now,
        limits=make_limits(settings, timeout_s=settings.command_timeout_s),
        unreadable=tuple(place.relative_to(root).as_posix() for place in hidden if place.is_relative_to(root)),
        spills="spill" not in settings.ablate,
    )


def _open_log(request: RunRequest, run_id: str) -> EventLog:
    values = find_secret_values(request.environ)
    return open_log(request.repo.root, run_id, clock=time.time, secret_values=values)


def _announce(ctx: RunContext, command: str, run_id: str, left: tuple[str, ...]) -> None:
    """Say what begins, and whatever a person should know before it does."""
    started = RunStarted(
        run_id=run_id,
        command=command,
        model=ctx.settings.model,
        plan_path=ctx.plan_path,
        branch=get_branch(ctx.repo),
        sandbox=ctx.workspace.sandbox.mechanism,
        cap_usd=ctx.settings.max_cost_usd,
        spent_usd=ctx.meter.total.cost_usd,
        rehearsed=ctx.sessions.model.rehearsed,
        context=ctx.settings.strategy,
        ablated=ctx.settings.ablate,
    )
    ctx.observe(started)
    gaps = ctx.workspace.sandbox.gaps
    for words in (
        *left,
        *describe_orphans(ctx.repo, ctx.repo.branch),
        *_describe_experiment(ctx.settings),
        *ctx.rules.warnings,
        *gaps,
    ):
        ctx.observe(Noticed(text=words, warning=True))


def _describe_experiment(settings: Settings) -> Iterator[str]:
    """Say what of relay is switched off or replaced, so that nobody takes the run for an ordinary one."""
    if settings.strategy != "reset":
        yield f"context strategy: {settings.strategy}, to be compared with relay's own; sessions are not reset"
    if settings.ablate:
        yield f"switched off ({settings.origins['ablate']}): {', '.join(settings.ablate)}"


def _make_observe(counters: Sequence[Observe], view: Observe, log: EventLog) -> Observe:
    """Tell what counts, then the view, then the log."""

    def observe(event: Event) -> None:
        for tell in (*counters, view):
            tell(event)
        if lost := log.append(event):
            view(lost)

    return observe


def new_id() -> str:
    """Return a session id: eight hexadecimal digits."""
    return secrets.token_hex(4)

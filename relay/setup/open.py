"""Take the repository and make all collaborators of a run, in an order that lets a user repair what is missing.

If a precondition fails, nothing has been changed. No request is sent before the key, the repository and the sandbox
are known to work.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias

from relay.base.errors import RepoError
from relay.base.interrupts import Interrupts
from relay.base.redaction import find_handed_values, hide_values
from relay.config.model import OWN_LOOP
from relay.git.lock_journal import clear_stale_locks
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.git.worktrees import forget_torn
from relay.insight.telemetry.log import OUTPUT_AGE_S, OUTPUTS, sweep
from relay.insight.telemetry.tape import FOLDER, TAPE_AGE_S, open_tape
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.runners.registry import get_kind, list_runners
from relay.sandbox.policy import Level, Policy
from relay.sandbox.private_folder import find_folder, remove_left_overs
from relay.sandbox.run import require_mechanism
from relay.session.events import Noticed, Observe
from relay.session.spend import Meter, Pace
from relay.session.values import SessionKind
from relay.setup.context import RunContext, RunRequest
from relay.setup.gate_tree import GateOpener
from relay.setup.observers import Observers, Progress, announce, describe_sandbox, describe_settings
from relay.setup.preconditions import check_apart, check_taken, check_untaken, require_all
from relay.setup.rules import Rules
from relay.setup.session import Book, Sessions, find_price_now, make_meter
from relay.setup.workspace import (
    find_all_secrets,
    find_handed_secrets,
    get_mechanism,
    hide_places,
    load_run_rules,
    open_workspace,
    read_handed,
)
from relay.store.checkpoints import repair_refs
from relay.store.completion import finish_pending
from relay.store.plan_state import read_open_cost
from relay.store.steering_files import begin_watch, end_watch
from relay.store.worktree_notes import find_home
from relay.tools.workspace import Workspace

_OpenHeard: TypeAlias = Callable[[RunRequest, Rules], AbstractContextManager[Workspace]]


@contextmanager
def open_run(
    request: RunRequest, view: Observe, interrupts: Interrupts, *, runners: Mapping[str, RunnerKind] | None = None
) -> Iterator[RunContext]:
    """Check the preconditions, open all collaborators, yield them, and close them.

    Args:
        runners: All known runners by name; None: relay's and the user's own.

    Raises:
        RelayError: The user or the environment has to change something first.
    """
    settings = request.settings
    runners = list_runners(settings) if runners is None else runners
    request = hide_places(request)
    require_all(check_apart(request, runners))
    with ExitStack() as stack:
        run_id = new_id()
        observe = (observers := Observers(view=view)).observe
        given = Surroundings(environ=request.environ, settings=settings, observe=observe, interrupts=interrupts)
        # First: what runners need is loaded in the background, while git works and the sandbox is proven.

        @cache  # an edit of the plan may name another one, opened at first use
        def get_runner(name: str) -> Runner:
            kind = get_kind(name, origin="Runner", known=runners)
            kind.get_key(request.environ)
            return stack.enter_context(kind.open(given))

        for name in request.runners:
            get_runner(name)
        meter, left = stack.enter_context(take_repository(request))
        rules = load_run_rules(request)
        # Before the sandbox opens: the log makes .relay before a command could.
        stack.enter_context(observers.logging(request, run_id))
        handed = find_handed_values(read_handed(request.repo.root, settings, request.environ))
        progress = Progress(observers.observe, partial(hide_values, values=handed))
        observers.counters.append(progress.note)

        open_heard = partial(_open_heard, observers, progress, interrupts)
        get_workspace = cache(lambda: stack.enter_context(open_heard(request, rules)))
        require_mechanism(
            Policy(root=request.repo.root, env=request.environ), Level.WORKSPACE_WRITE, get_mechanism(settings)
        )
        sessions, book = _make_sessions(request, get_runner, observe, meter)
        if not request.is_apart:
            sessions = _put_in(sessions, get_workspace())
        observers.meter = meter
        observers.counters += [meter.observe, sessions.pace.observe, book.observe]
        ctx = RunContext(
            files=request.files,
            settings=settings,
            get_workspace=get_workspace,
            sessions=sessions,
            rules=rules,
            meter=meter,
            observe=sessions.observe,
            observe_job=observers.observe_job,
            interrupts=interrupts,
            new_id=new_id,
            secret_values=find_all_secrets(request),
            environ=request.environ,
            open_reading=partial(_open_reading, request, rules, interrupts),
            open_tree=partial(_open_tree, request, open_heard, set[str]()),
            open_gate=GateOpener(request=request, rules=rules, observe=observe, open_heard=open_heard).open,
        )
        announce(ctx, request, run_id, (*left, *describe_settings(settings, request.environ)))
        for folder, age_s in ((OUTPUTS, OUTPUT_AGE_S), (FOLDER, TAPE_AGE_S)):
            sweep(ctx.repo.root, folder, now_s=time.time(), max_age_s=age_s)
        yield ctx


@contextmanager
def _open_heard(
    observers: Observers, progress: Progress, interrupts: Interrupts, request: RunRequest, rules: Rules
) -> Iterator[Workspace]:
    """Open a workspace whose commands the run's observers hear of."""
    with open_workspace(request, rules, interrupts) as opened:
        observers.inquiries.append(opened.sandbox.inquiries)
        try:
            yield replace(opened, sandbox=replace(opened.sandbox, hear=progress.hear))
        finally:
            observers.inquiries.remove(opened.sandbox.inquiries)


@contextmanager
def _open_tree(
    request: RunRequest,
    open_heard: _OpenHeard,
    told: set[str],
    ctx: RunContext,
    repo: Repo,
    left: tuple[str, ...],
) -> Iterator[RunContext]:
    """Yield the collaborators of a run for sessions in another work tree; see `RunContext.open_tree`.

    Args:
        told: What the user has been told of the sandboxes of this run.
        left: What `hold_worktree` said of it: the caller holds its lock.
    """
    own = hide_places(replace(request, repo=repo))
    with _watching(own):
        rules = load_run_rules(own)
        with open_heard(own, rules) as workspace:
            for words in dict.fromkeys((*left, *describe_sandbox(workspace.sandbox))):
                if words not in told:
                    ctx.observe(Noticed(text=words, warning=True))
            told.update(describe_sandbox(workspace.sandbox))
            ctx.meter.take_up(read_open_cost(repo, request.plan_path))
            yield replace(
                ctx,
                files=own.files,
                home=ctx.repo,
                get_workspace=lambda: workspace,
                sessions=_put_in(ctx.sessions, workspace),
                rules=rules,
                secret_values=find_all_secrets(own),
                open_reading=partial(_open_reading, own, rules, ctx.interrupts),
                open_gate=GateOpener(request=own, rules=rules, observe=ctx.observe, open_heard=open_heard).open,
                after_phase=lambda: None,
            )


def _put_in(sessions: Sessions, workspace: Workspace) -> Sessions:
    return replace(sessions, sandbox=workspace.sandbox, limits=workspace.limits)


def _open_reading(
    request: RunRequest, rules: Rules, interrupts: Interrupts, kind: SessionKind
) -> AbstractContextManager[Workspace]:
    return open_workspace(replace(request, kind=kind), rules, interrupts)


@contextmanager
def _watching(request: RunRequest) -> Iterator[None]:
    """Compare the files that steer agents from now on: no session may have written one."""
    begin_watch(request.repo, request.plan_path)
    try:
        yield
    finally:
        # If the disk is full, the next run asks the user about steering files instead.
        with suppress(OSError, RepoError):
            end_watch(request.repo, request.plan_path)


def _make_sessions(
    request: RunRequest,
    get_runner: Callable[[str], Runner],
    observe: Observe,
    meter: Meter,
) -> tuple[Sessions, Book]:
    """Return the sessions of this run and the book of their cost; asks the first runner about the model."""
    settings, roles, first = request.settings, request.settings.roles, request.runners[0]
    book = Book(request.repo, meter)
    if request.is_reviewed:  # fail now, not after a paid session whose work nobody could review
        reviewer = get_runner(settings.runner_for(roles.review_runner) if roles.review_runner else first)
        reviewer.get_model(roles.review or settings.model)
    if roles.explore and "explore" not in settings.ablate and OWN_LOOP in request.runners:
        get_runner(OWN_LOOP).get_model(roles.explore)
    for name, model in request.choices:  # the same holds for each model that a phase names
        get_runner(name).get_model(model)
    sessions = Sessions(
        get_runner=get_runner,
        model=get_runner(first).get_model(settings.model),
        settings=settings,
        price=find_price_now(settings, settings.model),
        find_price=partial(find_price_now, settings),
        meter=meter,
        check_budget=book.check,
        pace=Pace(),
        observe=observe,
        open_tape=partial(open_tape, find_home(request.repo), secret_values=find_all_secrets(request))
        if settings.history
        else None,
        handed=find_handed_secrets(request),
    )
    return sessions, book


def new_id() -> str:
    """Return a session id of eight hexadecimal digits."""
    return secrets.token_hex(4)


@contextmanager
def hold_worktree(repo: Repo, *, wait_s: float = 0.0) -> Iterator[tuple[str, ...]]:
    """Hold the lock of a work tree, and repair what a killed relay left there.

    Args:
        wait_s: How long to wait for whoever has the lock.

    Yields:
        A message for each file, or the index, that still lacks a part of an earlier commit.

    Raises:
        RepoError: Somebody is at work there or left a lock, or a process of an earlier run does not end.
    """
    with lock_worktree(repo, wait_s=wait_s):
        # First: processes that a killed relay had started may still write.
        remove_left_overs(find_folder())
        forget_torn(repo)
        if locks := clear_stale_locks(repo):
            raise RepoError("; ".join(locks))
        yield (*repair_refs(repo), *finish_pending(repo))


@contextmanager
def take_repository(request: RunRequest) -> Iterator[tuple[Meter, tuple[str, ...]]]:
    """Hold the repository, and check that a run can work in it.

    Yields:
        The plan's meter, and the messages of `hold_worktree`.

    Raises:
        RelayError: The user has to change something, or a process of an earlier run does not end.
    """
    repo, settings = request.repo, request.settings
    require_all(check_untaken(request))
    with hold_worktree(repo) as left:
        meter = make_meter(repo, request.plan_path, settings, find_price_now(settings, settings.model))
        require_all(check_taken(request, meter))
        with _watching(request) if request.kind.writes and not request.is_apart else nullcontext():
            yield meter, left

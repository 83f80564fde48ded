"""The one place where a run's collaborators are made, in the order in which a user can repair what is missing.

Nothing has been changed when a precondition fails, and no request has been sent before the key, the repository and
the sandbox are known to be usable.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from relay.base.interrupts import Interrupts
from relay.git.repository import Repo
from relay.insight.telemetry.log import OUTPUT_AGE_S, OUTPUTS, sweep
from relay.insight.telemetry.tape import FOLDER, TAPE_AGE_S, open_tape
from relay.runners.base import Runner, RunnerKind, Surroundings
from relay.runners.registry import list_runners
from relay.session.events import Observe
from relay.session.pace import Pace
from relay.session.spend import Meter
from relay.session.values import SessionKind
from relay.setup.account import Book, find_price_now
from relay.setup.context import RunContext, RunRequest
from relay.setup.observers import Observers, Progress, announce, describe_settings
from relay.setup.preconditions import check_apart, check_enclosed, require_all
from relay.setup.repository import take_repository
from relay.setup.rules import Rules, load_repository_rules
from relay.setup.runners import OpenRunners
from relay.setup.session import Sessions
from relay.setup.tape import OpenTape
from relay.setup.workspace import find_all_secrets, find_handed_secrets, get_hidden, get_unreadable, open_workspace
from relay.store.worktrees import find_home
from relay.tools.workspace import Workspace


@contextmanager
def open_run(
    request: RunRequest, view: Observe, interrupts: Interrupts, *, runners: Mapping[str, RunnerKind] | None = None
) -> Iterator[RunContext]:
    """Check everything, open everything, hand out the collaborators, close everything.

    Args:
        runners: All there are; None: those that relay knows and the user's own.

    Raises:
        RelayError: Something that the user or the environment has to change first.
    """
    settings = request.settings
    runners = list_runners(settings) if runners is None else runners
    request = replace(request, repo=_hide(request))
    require_all(check_apart(request, runners))
    with ExitStack() as stack:
        run_id = new_id()
        observe = (observers := Observers(view=view)).observe
        given = Surroundings(environ=request.environ, settings=settings, observe=observe, interrupts=interrupts)
        # Opened first, because what they need loads while git is asked and the sandbox proves itself.
        opened = OpenRunners(known=runners, given=given, stack=stack).open(request.runners)
        meter, left = stack.enter_context(take_repository(request))
        rules = _load_rules(request)
        # Opened before the sandbox: it makes .relay before commands could.
        stack.enter_context(observers.logging(request, run_id))
        workspace = _listen(observers, stack.enter_context(open_workspace(request, rules, interrupts)))
        require_all(check_enclosed(request, workspace.sandbox))
        sessions, book = _make_sessions(request, opened.get, observe, workspace, meter)
        observers.meter = meter
        observers.counters += [meter.observe, sessions.pace.observe, book.observe]
        ctx = RunContext(
            files=request.files,
            settings=settings,
            workspace=workspace,
            sessions=sessions,
            rules=rules,
            meter=meter,
            observe=sessions.observe,
            observe_job=observers.observe_job,
            interrupts=interrupts,
            new_id=new_id,
            secret_values=find_all_secrets(request),
            environ=request.environ,
            open_reading=partial(open_workspace, replace(request, kind=SessionKind.REVIEW), rules, interrupts),
        )
        announce(ctx, request.kind, run_id, (*left, *describe_settings(settings, request.environ)))
        _sweep(ctx.repo.root)
        yield ctx


def _hide(request: RunRequest) -> Repo:
    """Return the repository with what no session is shown."""
    hidden = get_hidden(request.repo, request.settings, request.environ)
    return replace(request.repo, hidden=hidden)


def _sweep(root: Path) -> None:
    """Delete what relay has kept long enough."""
    for folder, age_s in ((OUTPUTS, OUTPUT_AGE_S), (FOLDER, TAPE_AGE_S)):
        sweep(root, folder, now_s=time.time(), max_age_s=age_s)


def _listen(observers: Observers, workspace: Workspace) -> Workspace:
    """Return the workspace with everybody told of what its commands ask for and print."""
    progress = Progress(observers.observe)
    observers.inquiries.append(workspace.sandbox.inquiries)
    observers.counters.append(progress.note)

    return replace(workspace, sandbox=replace(workspace.sandbox, hear=progress.hear))


def _load_rules(request: RunRequest) -> Rules:
    if "rules" in request.settings.ablate:
        return Rules()
    root, settings = request.repo.root, request.settings
    return load_repository_rules(root, settings, get_unreadable(root, settings, request.environ))


def _make_sessions(
    request: RunRequest,
    get_runner: Callable[[str], Runner],
    observe: Observe,
    workspace: Workspace,
    meter: Meter,
) -> tuple[Sessions, Book]:
    """Return what runs this run's sessions, on the plan's account, and its book; a runner is asked for the model."""
    settings, first = request.settings, request.runners[0]
    book = Book(request.repo, meter)
    if request.is_reviewed:  # before a session is paid for whose work nobody could review
        reviewer = get_runner(settings.runner_for(settings.review_runner) if settings.review_runner else first)
        reviewer.get_model(settings.review_model or settings.model)
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
        sandbox=workspace.sandbox,
        limits=workspace.limits,
        open_tape=_find_tapes(request),
        handed=find_handed_secrets(request),
    )
    return sessions, book


def _find_tapes(request: RunRequest) -> OpenTape | None:
    """Return what keeps the history of sessions, where it is wanted."""
    values = find_all_secrets(request)
    return partial(open_tape, find_home(request.repo), secret_values=values) if request.settings.history else None


def new_id() -> str:
    """Return a session id: eight hexadecimal digits."""
    return secrets.token_hex(4)

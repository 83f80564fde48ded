"""Shared by commands with sessions: read the settings, open the view and the collaborators, act, report the end."""

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import click

from relay.base.errors import PlanError, RelayError
from relay.base.hints import Caller
from relay.base.interrupts import Interrupts, Urgency
from relay.cli.boundary import note_place
from relay.cli.options import find_flags
from relay.cli.screen import has_person, say
from relay.cli.views.base import View, find_asker
from relay.cli.views.shapes import make_view
from relay.git.repository import Repo
from relay.run.commit.plan_commit import make_source
from relay.run.phases.landing import Job
from relay.run.phases.worktrees import find_jobs
from relay.sandbox.process import prepare_process
from relay.session.events import RunEnded
from relay.session.values import SessionKind
from relay.setup.context import PlanFiles, RunContext, RunEnd, RunRequest
from relay.setup.observers import note_refusal
from relay.setup.open import open_run
from relay.setup.place import Place, find_settings, load_plan
from relay.setup.preconditions import find_unapproved, save_approval
from relay.store.attempts import read_attempt
from relay.store.plan_state import read_questions
from relay.store.refs import has_jobs
from relay.store.worktree_notes import find_home

parent_option = click.option("--job-of", type=int, hidden=True, help="Process id of the relay that started this one.")


def obey_parent(interrupts: Interrupts, parent: int | None) -> None:
    """Make a child hand over when its parent dies, or at once if the parent is dead already.

    Args:
        parent: The parent's process id; None if this run is no child.
    """
    if parent is None:
        return
    import ctypes
    import signal

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
    if os.getppid() != parent:
        interrupts.request(Urgency.FINISH_TURN)


_PR_SET_PDEATHSIG = 1


def make_request(kind: SessionKind, options: Mapping[str, Any], *, needs_plan: bool = True) -> tuple[RunRequest, Place]:
    """Turn a command's options into a request.

    Args:
        needs_plan: Whether a missing or unreadable plan is an error.

    Raises:
        RelayError: There is no repository, the plan is not in it, or a setting or typed value is not allowed.
    """
    place, plan = note_place(options["plan"]), None
    try:
        plan = load_plan(place)
    except PlanError:
        if needs_plan:
            raise
    settings = find_settings(find_flags(options), os.environ, place.root, plan=plan, plan_name=place.plan_name)
    request = RunRequest(kind=kind, repo=place.repo, settings=settings, plan_path=place.plan_name, environ=os.environ)
    return request, place


def find_open_jobs(repo: Repo, plan_path: str, phase_id: str = "") -> tuple[Job, ...]:
    """Return the jobs whose phase is open, in their work trees; with a phase, only that."""
    jobs = find_jobs(repo, plan_path) if has_jobs(repo) else ()
    return tuple(job for job in jobs if phase_id in {"", job.phase_id} and read_attempt(job.repo) is not None)


def take_open_tree(request: RunRequest, phase_id: str = "") -> RunRequest:
    """Return the request for the work tree of relay's own in which a phase is open; the same where it is not clear.

    Args:
        phase_id: That phase only; empty for any.
    """
    jobs = find_open_jobs(request.repo, request.plan_path, phase_id)
    return replace(request, repo=jobs[0].repo) if len(jobs) == 1 else request


def make_end_event(end: RunEnd, caller: Caller, questions: tuple[str, ...] = ()) -> RunEnded:
    """Return the event that tells the user how the command ended.

    Args:
        questions: Questions that sessions of the plan left to the user.
    """
    return RunEnded(
        exit_code=end.exit_code,
        reason=caller.write(end.reason),
        next_command=caller.write(end.next_command or ""),
        spent_usd=end.spent.cost_usd,
        estimated=end.spent.estimated,
        waits_for=end.waits_for,
        questions=questions,
        unsent_usd=end.unsent.cost_usd if end.unsent else None,
        unsent_tokens=end.unsent.tokens if end.unsent else None,
    )


def ask_for_setup(request: RunRequest, *, approved: bool, as_json: bool) -> None:
    """Save the user's approval of a repository's setup commands; without one, ask at a terminal."""
    root, settings = find_home(request.repo), request.settings
    left = find_unapproved(root, settings, request.environ)
    if left and not approved and not as_json and has_person():
        say(f"{settings.origins['setup']} runs, with network, before a session and when a lock file has changed:")
        for words in left:
            say(f"  {words}")
        approved = click.confirm("May this repository run these commands, now and later?", default=False)
    if left and approved:
        save_approval(root, left, request.environ)


def find_left_questions(files: PlanFiles) -> tuple[str, ...]:
    """Return the questions that sessions of the plan left to the user, also in job work trees not merged yet."""
    asked = read_questions(make_source(files), files.repo)
    if has_jobs(files.repo):
        for job in find_jobs(files.repo, files.plan_path):
            there = read_questions(make_source(replace(files, repo=job.repo)), job.repo)
            asked += tuple(words for words in there if words.startswith(f"phase {job.phase_id}: "))
    return tuple(dict.fromkeys(asked))


def show_end(end: RunEnd, request: RunRequest, caller: Caller, *, as_json: bool) -> int:
    """Report the end of a command that needed no session; return its exit code."""
    with make_view(json=as_json, stream=sys.stdout) as view:
        view.observe(make_end_event(end, caller, find_left_questions(request.files)))
    return end.exit_code


def run_sessions(
    request: RunRequest,
    caller: Caller,
    act: "Callable[[RunContext], RunEnd]",
    *,
    as_json: bool,
    asks: bool = False,
    view: "View | None" = None,
) -> int:
    """Open the view and the run's collaborators, act, report the end, close them; return the exit code.

    Args:
        caller: Writes the command to type next.
        asks: Whether sessions may ask the person at the terminal.
    """
    began = time.time()
    prepare_process()
    view = view or make_view(json=as_json, stream=sys.stdout)
    try:
        with (
            closing(Interrupts()) as interrupts,
            interrupts.installed(view.note_stop),
            view,
            open_run(request, view.observe, interrupts) as ctx,
        ):
            gc.freeze()  # modules stay loaded; the collector need not scan them again
            gc.set_threshold(700, 10, 10)  # Python's default; `relay.__main__` put collections off
            ask = find_asker(view, interrupts, asks=asks and not as_json)
            end = act(replace(ctx, ask=ask))
            ended = make_end_event(end, caller, find_left_questions(request.files))
            ctx.observe(ended)
    except RelayError as error:
        note_refusal(request, error, hint=caller.write(error.hint), began=began)
        raise
    return ended.exit_code

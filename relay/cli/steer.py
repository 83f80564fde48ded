"""`relay say`, `pause`, `resume` and `stop`: from another terminal, to the run of this work tree."""

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import click

from relay.base.errors import PlanError, RepoError
from relay.base.hints import RUN
from relay.cli.boundary import note_place
from relay.cli.completion import offer_phases
from relay.cli.options import plan_option
from relay.cli.screen import clean_line, say
from relay.setup.place import Place, load_plan
from relay.store.inbox import MAX_CHARS, ask_for_pause, end_pause, leave_words
from relay.store.refs import has_jobs
from relay.store.worktrees import find_holder

if TYPE_CHECKING:
    from relay.fleet.landing import Job
    from relay.git.repository import Repo


@click.command("say", short_help="Say something to the session that is at work.")
@click.argument("words", nargs=-1, required=True, help="What you say.")
@click.option("--phase", metavar="N", default="", shell_complete=offer_phases, help="Only to sessions of this phase.")
@plan_option
def say_command(words: tuple[str, ...], phase: str, plan: str | None) -> None:
    """Say something to the session that is at work here, behind its next tool result.

    The sessions after it are told too, until the phase is committed. Where no relay is at work, the next session is
    told. What you say counts as much as the plan; the gate decides as before.
    """
    place = note_place(plan)
    repo = place.repo
    text = "\n".join(clean_line(line) for line in " ".join(words).splitlines()).strip()
    if not text:
        raise click.UsageError("there is nothing to say")
    if len(text) > MAX_CHARS:
        size = f"{len(text):,} characters are more than {MAX_CHARS:,}"
        raise click.UsageError(f"{size}; put the long part into a file and name it, or relay plan --revise")
    if phase:
        _require_open(place, phase)
    jobs = [job for job in find_working_jobs(repo, place.plan_name) if phase in {"", job.phase_id}]
    for one in [job.repo for job in jobs] or [repo]:
        leave_words(one, text, phase_id=phase)
    whom = f"a session of phase {phase}" if phase else "its session"
    if jobs:
        told = " and ".join(f"phase {job.phase_id}" for job in jobs)
        say(f"left for the session of {told}; it is told behind its next tool result")
    elif find_holder(repo) is not None:
        say(f"left for the run that is at work here; {whom} is told behind its next tool result")
    else:
        whom = whom if phase else "the next session"
        say(f"no relay is at work here; {whom} is told when it begins: {place.caller.write(RUN)}")


def _require_open(place: Place, phase_id: str) -> None:
    from relay.run.selection import get_phase

    if get_phase(load_plan(place), phase_id).done:
        raise PlanError(f"phase {phase_id} is done, no session will work on it", hint="say it without --phase")


@click.command("pause", short_help="Have the run wait before its next request.")
def pause_command() -> None:
    """Have the run that is at work here wait before its next request, until relay resume.

    What a tool or a verify command is doing goes on to its end. A prompt cache of five minutes may run out meanwhile.
    """
    repo = note_place().repo
    _require_run(repo)
    for one in _list_runs(repo):
        ask_for_pause(one)
    say("the run waits before its next request; relay resume goes on, relay stop hands over")


@click.command("resume", short_help="Let a paused run go on.")
def resume_command() -> None:
    """Let a paused run go on. A run that was stopped or killed goes on with relay run."""
    repo = note_place().repo
    _require_run(repo)
    ended = [end_pause(one) for one in _list_runs(repo)]
    say("the run goes on" if any(ended) else "the run was not paused")


@click.command("stop", short_help="Have the run hand over and stop, as Ctrl-C does.")
@click.option("--now", is_flag=True, help="Do not wait for the answer and its tools; nothing is lost.")
def stop_command(*, now: bool) -> None:
    """Have the run that is at work here finish the answer and its tools, hand over and stop, as Ctrl-C does.

    A second one stops at once, as a second Ctrl-C does. relay run goes on from there.
    """
    repo = note_place().repo
    process = _require_run(repo)
    try:
        os.kill(process, signal.SIGTERM if now else signal.SIGINT)
    except ProcessLookupError:
        say("it has just ended")
        return
    except PermissionError as error:
        raise RepoError(
            f"process {process} belongs to another user", hint=f"kill -INT {process}, as that user"
        ) from error
    say("the run stops at once" if now else "the run finishes this step, hands over and stops")


def find_working_jobs(repo: "Repo", plan_path: str) -> "tuple[Job, ...]":
    """Return the jobs of this work tree's plan that are at work."""
    if not has_jobs(repo):
        return ()
    from relay.fleet.worktrees import find_jobs

    return tuple(job for job in find_jobs(repo, plan_path) if find_holder(job.repo) is not None)


def _list_runs(repo: "Repo") -> "tuple[Repo, ...]":
    """Return the work trees of the runs that work on the plan of this one: its own, and those of its jobs."""
    return (repo, *(job.repo for job in find_working_jobs(repo, "")))


def _require_run(repo: "Repo") -> int:
    """Return the process that is at work; without one a pause that a killed run left goes too."""
    process = find_holder(repo)
    if process is None:
        with contextlib.suppress(OSError):
            end_pause(repo)
        raise RepoError("no relay is at work in this work tree", hint=RUN)
    return process

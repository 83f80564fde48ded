"""`relay watch`, `say` and `stop`: follow and steer a run from another terminal.

`watch` only reads the run's event log. The others reach the run of this work tree.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from relay.base.errors import ConfigError, ExitCode, FlagError, PlanError, RepoError
from relay.base.hints import RUN, Command
from relay.base.words import list_some, render_usd
from relay.cli.boundary import note_place
from relay.cli.options import events_option, plan_option
from relay.cli.screen import clean_line, say, say_now
from relay.cli.views.base import View
from relay.cli.views.shapes import make_view
from relay.config.keys import KEYS
from relay.git.notes import find_holder, is_locked
from relay.git.repository import Repo
from relay.insight.telemetry.log import LogTail, RunLogs, list_own_logs, list_runs
from relay.run.phases.worktrees import find_jobs
from relay.run.selection import get_phase
from relay.session.events import RunEnded
from relay.setup.place import Place, load_plan
from relay.store.refs import has_jobs
from relay.store.worktree_notes import MAX_CHARS, leave_cap, leave_words

POLL_S = 0.25
"""Seconds between two looks at the log; the board is drawn as often as in the run's own terminal."""


@click.command("watch")
@click.argument("run", required=False, default="", help="Run id, or its beginning; default: the newest run.")
@events_option
@click.option(
    "--page", is_flag=True, help="Write the page of `relay report`, always anew: a browser that shows it keeps up."
)
def command(run: str, *, as_json: bool, page: bool) -> int:
    """Watch a run from another terminal, during its work or after its end.

    The view comes from the run's event log alone, so nothing that you do here reaches the run: Ctrl-C ends only the
    view. The exit status is that of the run, once it has ended.
    """
    place = note_place()
    repo, run_id = place.repo, get_run(place.repo, run)
    is_alive = partial(is_run_alive, repo, run_id)
    with RunLogs(repo.root, open_tail(repo, run_id)) as log:
        if page:
            with contextlib.suppress(KeyboardInterrupt):
                keep_page(repo.root, run_id, log, is_alive, time.sleep)
            return ExitCode.DONE
        view = make_view(json=as_json, stream=sys.stdout, keeps_board=True)
        try:
            with view:
                return follow(log, view, is_alive, time.sleep)
        except KeyboardInterrupt:
            return ExitCode.DONE


REFRESH_S = 5
"""Seconds between two pages of a run at work."""


def keep_page(
    root: Path, run_id: str, log: RunLogs, is_alive: Callable[[], bool], pause: Callable[[float], None]
) -> None:
    """Write the page of a run, anew while the run is alive, and print its path; it has the browser read it again."""
    from relay.insight.database import Database
    from relay.insight.figures import collect
    from relay.insight.report.contents import make_page
    from relay.insight.report.page import render_page, save_page

    is_said, alive = False, True
    with Database() as database:
        while alive:
            alive = is_alive()  # asked before reading: the last events are written before the process ends
            records = [*log.read()]
            for phase_id in dict.fromkeys(phase for phase, _ in records):
                database.add((record for phase, record in records if phase == phase_id), log=phase_id)
            if records or not (is_said and alive):
                database.compute()
                page = make_page(collect(database), None)
                html = render_page(page, clean=clean_line, refresh_s=REFRESH_S if alive else 0)
                path = save_page(root, run_id, html)
                if not is_said:
                    say_now(str(path))
                is_said = True
            if alive:
                pause(REFRESH_S)


def get_run(repo: Repo, start: str) -> str:
    """Return the id of the newest run whose id begins like this.

    Raises:
        ConfigError: There is none.
    """
    if not start and (newest := next(list_own_logs(repo.root), "")):
        return newest
    logs = list_runs(repo.root)
    found = [run_id for run_id in logs if run_id.startswith(start)]
    if found:
        return found[-1]
    if not logs:
        raise ConfigError("no run has left a log here", hint="relay run starts one; relay status shows the plan")
    raise ConfigError(f"no run {start!r} has left a log here", hint=f"the last ones: {list_some(logs[::-1], 5)}")


def open_tail(repo: Repo, run_id: str) -> LogTail:
    """Open the log of a run.

    Raises:
        ConfigError: The log is gone, or cannot be read.
    """
    try:
        return LogTail(repo.root, run_id)
    except OSError as error:
        raise ConfigError(f"the log of run {run_id} cannot be read: {error.strerror}") from error


def is_run_alive(repo: Repo, run_id: str) -> bool:
    """Return whether the relay that writes this log is alive; the kernel frees its lock, however the process ends."""
    return is_locked(repo) and next(list_own_logs(repo.root), run_id) == run_id


def follow(log: RunLogs, view: View, is_alive: Callable[[], bool], pause: Callable[[float], None]) -> int:
    """Show a log, with all that is still written to it, until its run has ended or is gone.

    Args:
        log: Read on from its present position.
        is_alive: Whether a relay may still write to the log.
        pause: Waits for a number of seconds.

    Returns:
        The run's exit code; "stopped with work left" if the run is gone without one.
    """
    while True:
        alive = is_alive()  # asked before reading: the last events are written before the process ends
        for phase_id, record in log.read():
            view.tell(record, phase_id=phase_id)
            if isinstance(record.event, RunEnded) and not phase_id:
                return record.event.exit_code
        if not alive:
            view.note_loss()
            return ExitCode.STOPPED
        pause(POLL_S)


@click.command("say")
@click.argument("words", nargs=-1, help="Your message.")
@click.option("--phase", metavar="N", default="", help="Tell only sessions of this phase.")
@click.option("--max-cost", metavar="USD", help="Raise or lower the cap of the plan that is at work; none: no cap.")
@plan_option
def say_command(words: tuple[str, ...], phase: str, max_cost: str | None, plan: str | None) -> None:
    """Send a message to the session that is at work here; it reads the message with its next tool result.

    Later sessions read it too, until the phase is committed. If no relay is at work, the next session reads it. Your
    words weigh as much as the plan; the gate decides as before. With --max-cost the run at work has another cap.
    """
    place = note_place(plan)
    repo = place.repo
    if max_cost is not None:
        _say_cap(place, max_cost)
        if not words:
            return
    text = "\n".join(clean_line(line) for line in " ".join(words).splitlines()).strip()
    if not text:
        raise click.UsageError("there is nothing to say")
    if len(text) > MAX_CHARS:
        size = f"{len(text):,} characters are more than {MAX_CHARS:,}"
        raise click.UsageError(f"{size}; put the long part into a file and name it, or relay plan --revise")
    if phase and get_phase(load_plan(place), phase).done:
        raise PlanError(f"phase {phase} is done, no session will work on it", hint="say it without --phase")
    known = find_jobs(repo, place.plan_name) if has_jobs(repo) else ()
    jobs = [job for job in known if phase in {"", job.phase_id} and find_holder(job.repo) is not None]
    for one in [job.repo for job in jobs] or [repo]:
        leave_words(one, text, phase_id=phase)
    told = " and ".join(f"phase {job.phase_id}" for job in jobs)
    if told or find_holder(repo) is not None:
        where = f"the session of {told}" if told else "the run that is at work here"
        say(f"left for {where}; it is told behind its next tool result")
    else:
        whom = f"a session of phase {phase}" if phase else "the next session"
        say(f"no relay is at work here; {whom} is told when it begins: {place.caller.write(RUN)}")


def _say_cap(place: Place, typed: str) -> None:
    try:
        cap = KEYS["max_cost_usd"].read(typed, is_text=True)
    except ValueError as error:
        raise FlagError(f"--max-cost {typed!r}: {error}") from None
    if find_holder(place.repo) is None:
        words = "no relay is at work here whose cap could change"
        raise ConfigError(words, hint=(Command(words=("run", "--max-cost", typed)), " begins with this cap"))
    leave_cap(place.repo, cap)
    shown = "no cap" if cap is None else f"a cap of {render_usd(cap)}"
    say(f"left for the run that is at work here; it has {shown} from its next request on")


@click.command("stop")
@click.option("--now", is_flag=True, help="Stop at once, without waiting for the current step; no work is lost.")
def stop_command(*, now: bool) -> None:
    """Stop the run that is at work here, as Ctrl-C does: the session finishes its step and hands over.

    A second `relay stop` stops at once. `relay run` goes on from there.
    """
    repo = note_place().repo
    process = find_holder(repo)
    if process is None:
        raise RepoError("no relay is at work in this work tree", hint=RUN)
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

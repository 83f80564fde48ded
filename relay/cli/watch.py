"""`relay watch`: the board of a run from another terminal, by its event log alone."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from relay.base.errors import ConfigError, ExitCode
from relay.base.words import list_some
from relay.cli.boundary import note_place
from relay.cli.screen import say_now
from relay.cli.views.base import View
from relay.cli.views.shapes import make_view
from relay.git.notes import is_locked
from relay.insight.telemetry.log import LogTail, list_runs
from relay.insight.telemetry.logs import RunLogs, list_own_logs
from relay.session.events import RunEnded

if TYPE_CHECKING:
    from relay.git.repository import Repo

POLL_S = 0.25
"""How long a look at the log may be in coming; the board itself is drawn as in the run's own terminal."""


@click.command("watch", short_help="Show a run, live, from another terminal.")
@click.argument("run", required=False, default="", help="The run's id; the newest one when left out.")
@click.option("--json", "as_json", is_flag=True, help="One event per line on standard output.")
@click.option(
    "--serve",
    metavar="[PORT]",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0, 65535),
    help="Show it in a browser of this machine instead; a free port when left out.",
)
def command(run: str, *, as_json: bool, serve: int | None) -> int:
    """Show a run as its own terminal does, from another one, while it is at work or after its end.

    RUN is the beginning of a run's id; the last run when left out. It is read from the event log alone: nothing that
    is done here reaches the run, and Ctrl-C leaves it alone. The exit status is the run's own, once it has ended.
    """
    place = note_place()
    repo, run_id = place.repo, get_run(place.repo, run)
    with RunLogs(repo.root, open_tail(repo, run_id)) as log:
        if serve is not None:
            return serve_run(log, lambda: is_run_alive(repo, run_id), serve)
        view = make_view(json=as_json, stream=sys.stdout, keeps_board=True)
        try:
            with view:
                return follow(log, view, lambda: is_run_alive(repo, run_id), time.sleep)
        except KeyboardInterrupt:
            return ExitCode.DONE


def serve_run(log: RunLogs, is_alive: Callable[[], bool], port: int) -> int:
    """Serve a run's board until Ctrl-C, also behind the run's end.

    Raises:
        ConfigError: The port cannot be listened on.
    """
    from relay.cli.views.server import ServedView, serve_board

    view = ServedView()
    with serve_board(view, port) as address, contextlib.suppress(KeyboardInterrupt):
        say_now(f"{address}\nwho has this address sees the run, and can do nothing to it; Ctrl-C closes it")
        follow(log, view, is_alive, time.sleep)
        threading.Event().wait()
    return ExitCode.DONE


def get_run(repo: "Repo", start: str) -> str:
    """Return the id of the last run that begins like this.

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


def open_tail(repo: "Repo", run_id: str) -> LogTail:
    """Open the log of a run.

    Raises:
        ConfigError: It is gone, or cannot be read.
    """
    try:
        return LogTail(repo.root, run_id)
    except OSError as error:
        raise ConfigError(f"the log of run {run_id} cannot be read: {error.strerror}") from error


def is_run_alive(repo: "Repo", run_id: str) -> bool:
    """Return whether the relay that writes this log lives; the kernel lets go of its lock, however it ends."""
    return is_locked(repo) and next(list_own_logs(repo.root), run_id) == run_id


def follow(log: RunLogs, view: View, is_alive: Callable[[], bool], pause: Callable[[float], None]) -> int:
    """Show what a log holds and will hold, until its run has ended or is gone.

    Args:
        log: From where it was read to.
        is_alive: Whether somebody may still write to it.
        pause: Waits for so many seconds.

    Returns:
        The run's own exit code, or that it stopped with work left.
    """
    while True:
        alive = is_alive()  # asked first: what was written before it ended is read after
        for phase_id, record in log.read():
            if phase_id:
                view.tell(record, phase_id=phase_id)
                continue
            view.replay(record.at, record.event)
            if isinstance(record.event, RunEnded):
                return record.event.exit_code
        if not alive:
            view.note_loss()
            return ExitCode.STOPPED
        pause(POLL_S)

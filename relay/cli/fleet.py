"""`relay fleet`: a queue of phases for workers on many machines. `relay work`: one worker without a queue."""

import math
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay.base.errors import ExitCode, RelayError
from relay.cli.boundary import note_place
from relay.cli.options import AMOUNT, SectionedCommand, offer_phases, plan_option, session_options, setup_option
from relay.cli.run import parse_selection
from relay.cli.screen import complain, say, say_now
from relay.cli.sessions import ask_for_setup, find_left_questions, make_request
from relay.session.values import SessionKind
from relay.setup.place import find_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.base.interrupts import Interrupts
    from relay.fleet.engine import Engine, Ticket
    from relay.fleet.work import WorkEnd, WorkTask
    from relay.git.remote import Remote
    from relay.session.events import Observe
    from relay.setup.context import RunRequest


_TEMPLATES = {"actions": "actions.yml", "slurm": "slurm.sh", "k8s": "k8s.yaml", "nomad": "nomad.hcl"}
_URL = "RELAY_FLEET_URL"
_DATABASE_PLACE = "database"
_LOOK_S = 2.0
_DATABASE = click.option(
    "--database", metavar="URL", envvar=_URL, help=f"postgresql://…; default: {_URL}, else that of relay fleet up."
)
_REMOTE = click.option(
    "--remote", metavar="NAME", default="origin", show_default=True, help="Git remote that has the plan."
)


@click.group("fleet")
def command() -> None:
    """Queue phases for workers on many machines.

    The queue only distributes phases: claims, spending and results are on the git remote (relay work). If you lose the
    queue, submit its phases again.
    """


@command.command("up", short_help="Run a database for the queue on this machine.")
@click.option("--data", metavar="DIR", type=click.Path(path_type=Path), help="Directory of the database.")
def up(data: Path | None) -> None:
    """Run PostgreSQL for this machine's workers until Ctrl-C; for many machines use a server of your own.

    The database keeps its files. Only you can reach it, by a socket in its directory.
    """
    from relay.base.interrupts import Interrupts
    from relay.fleet.engine import is_up, run_database

    interrupts, place = Interrupts(), data or get_data()
    try:
        with interrupts.installed(lambda _: None), run_database(place) as url:
            say_now(f"{url}\nthe database is up; Ctrl-C stops it")
            while not interrupts.wait(_LOOK_S):
                if not is_up(place):
                    raise RelayError("the database has ended", hint=f"relay fleet up; its log is {place / 'log'}")
    finally:
        interrupts.close()


@command.command("submit", short_help="Queue the phases that can begin now.")
@_DATABASE
@_REMOTE
@click.argument("plans", nargs=-1, metavar="[PLAN]...", help="Plan files; default: that of the settings (PLAN.md).")
def submit(database: str | None, remote: str, plans: tuple[str, ...]) -> None:
    """Queue the phases that can begin now. A worker that finishes a phase queues the phases that waited for it."""
    from relay.fleet.overview import fetch_plan, find_tickets, require_pushed
    from relay.store.refs import get_branch

    engine = open_engine(database)
    for plan in plans or (None,):
        there, plan_path = get_remote(plan, remote)
        branch = get_branch(there.repo)
        require_pushed(there, branch, fetch_plan(there, branch, plan_path)[0])
        tickets = find_tickets(there, plan_path)
        new = engine.submit(tickets)
        for ticket in tickets:
            say(f"phase {ticket.phase_id}  {'queued' if ticket in new else 'already queued'}")
        if not tickets:
            say(f"{plan_path}: no phase can begin now; relay fleet status --why explains each")


@command.command("worker", short_help="Work on queued phases, one after the other.")
@_DATABASE
@click.option("--place", metavar="DIR", type=click.Path(path_type=Path), help="Directory of this worker's clones.")
@click.option("--once", is_flag=True, help="End when the queue is empty.")
def worker(database: str | None, place: Path | None, *, once: bool) -> None:
    """Work on queued phases. Ctrl-C hands over the present phase and ends the worker.

    The worker also ends when it loses the database: have your service manager restart it.
    """
    from relay.cli.views.shapes import make_view
    from relay.fleet.queue_worker import QueueWorker
    from relay.sandbox.process import prepare_process

    prepare_process()
    engine = open_engine(database)
    with make_view(json=False, stream=sys.stdout, keeps_board=False) as view:
        worker = QueueWorker(
            engine=engine,
            place=(place or get_data("clones")).absolute(),
            environ=dict(os.environ),
            make_task=make_work_task,
            tell=say_now,
            observe=view.observe,
        )
        engine.serve(worker.do, name=f"{socket.gethostname()}-{os.getpid()}", wait=not once)


@command.command("status", short_help="Show what is queued, claimed and done.")
@_DATABASE
@_REMOTE
@plan_option
@click.option("--why", is_flag=True, help="Explain for each open phase why nobody works on it.")
def status(database: str | None, remote: str, plan: str | None, *, why: bool) -> None:
    """Show the plan's state on the remote: phases that are done, claimed and queued."""
    from relay.fleet.engine import Engine
    from relay.fleet.overview import describe_fleet

    there, plan_path = get_remote(plan, remote)
    url = find_database(database)
    try:
        placed = Engine(url).list_placed() if url else None
    except RelayError as error:
        complain(f"{error}: the queue is unknown ({error.hint})")
        placed = None
    if why and not url:
        complain("no database is named, and none runs here: the queue is unknown")
    for line in describe_fleet(there, plan_path, placed, why=why):
        say(line)


@command.command("cancel", short_help="Take queued phases back.")
@_DATABASE
@click.argument(
    "numbers", nargs=-1, required=True, type=int, metavar="NUMBER...", help="Number from relay fleet status."
)
def cancel(database: str | None, numbers: tuple[int, ...]) -> None:
    """Take phases out of the queue. A worker hands over a phase that it is working on.

    Workers do not queue these phases again; relay fleet submit does.
    """
    engine = open_engine(database)
    busy = {one.number for one in engine.list_placed() if one.status == "doing"}
    gone = engine.cancel(numbers)
    for number in numbers:
        end = "its worker hands over" if number in busy else "taken back"
        say(f"{number}  {end if number in gone else 'not queued'}")


@command.command("reap", short_help="Requeue the phases of dead workers.")
@_DATABASE
@_REMOTE
@plan_option
@click.option(
    "--lost",
    metavar="USD",
    type=AMOUNT,
    help="Book this amount (from the bill) as the spending of lost workers, and free their reserved shares.",
)
def reap(database: str | None, remote: str, plan: str | None, *, lost: float | None) -> None:
    """Requeue the phases of workers that show no sign of life. Every worker also does this by itself."""
    if lost is not None:
        for words in _book_lost(*get_remote(plan, remote), lost):
            say(words)
        return
    reaped = open_engine(database).reap()
    say(f"{', '.join(map(str, reaped))}: requeued" if reaped else "every worker with a phase is alive")


def _book_lost(remote: "Remote", plan_path: str, spent_usd: float) -> "Iterator[str]":
    """Book the spending of lost workers and free their reserved shares; yield a sentence for each worker."""
    from relay.base.words import render_usd
    from relay.fleet.exchange import keep_booked
    from relay.fleet.overview import fetch_plan, open_registry
    from relay.session.usage import Spent
    from relay.store.refs import get_branch
    from relay.store.spend import Whose

    branch = get_branch(remote.repo)
    registry = open_registry(remote, branch, plan_path)
    tip, _ = fetch_plan(remote, branch, plan_path, registry.refspec)
    if not registry.recall().find_lost(registry.now()):
        yield "no lost worker has a reserved share"
        return
    own = Whose(plan_path=plan_path, phase_id="", session_id=secrets.token_hex(8), base=tip)
    booked = [keep_booked(remote.repo, branch, own, Spent(cost_usd=spent_usd))] if spent_usd else []
    for one in registry.free_lost(*booked):
        yield f"{render_usd(one.cost_usd)} of {one.worker} on phase {one.phase_id}: freed"
    yield f"{render_usd(spent_usd)} booked"


def get_data(name: str = _DATABASE_PLACE) -> Path:
    """Return the directory of this user's fleet files. Root's database, which another user runs, is in no home."""
    base = os.environ.get("XDG_DATA_HOME", "")
    home = Path("/var/lib") if os.geteuid() == 0 and name == _DATABASE_PLACE else Path.home() / ".local/share"
    return (Path(base) if Path(base).is_absolute() else home) / "relay/fleet" / name


@command.command("template", short_help="Print a job file for your scheduler.")
@click.argument("kind", type=click.Choice(list(_TEMPLATES)), help="Your scheduler.")
def template(kind: str) -> None:
    """Print a job file for GitHub Actions, Slurm, Kubernetes or Nomad. It runs relay work; change it as you like."""
    from relay.prompts.package_data import get_shipped

    click.echo((get_shipped("templates") / "fleet" / _TEMPLATES[kind]).read_text(encoding="utf-8"), nl=False)


def find_database(url: str | None) -> str | None:
    """Return the address of the queue's database; None if none is named and none runs here."""
    from relay.fleet.engine import find_url

    return url or find_url(get_data())


def open_engine(url: str | None) -> "Engine":
    """Return the queue.

    Raises:
        RelayError: No database is named, and none runs here.
    """
    from relay.fleet.engine import Engine

    found = find_database(url)
    if found is None:
        raise RelayError("no database is named, and none runs here", hint=f"relay fleet up, or {_URL}=postgresql://…")
    return Engine(found)


def get_remote(plan: str | None, name: str) -> "tuple[Remote, str]":
    """Return the remote of the repository here, and the path of the plan in it.

    Raises:
        RepoError: There is no repository here.
    """
    from relay.git.remote import Remote

    place = note_place(plan)
    return Remote(repo=place.repo, name=name, environ=os.environ), place.plan_name


def make_work_task(remote: "Remote", ticket: "Ticket") -> "WorkTask":
    """Return the task of a ticket, with the settings of its clone."""
    from relay.fleet.overview import fetch_plan
    from relay.fleet.work import WorkTask

    plan = fetch_plan(remote, ticket.branch, ticket.plan_path)[1]
    settings = find_settings({}, os.environ, remote.repo.root, plan=plan, plan_name=ticket.plan_path)
    return WorkTask(
        main=remote.repo,
        remote=remote,
        plan_path=ticket.plan_path,
        settings=settings,
        words=("--plan", ticket.plan_path),
        environ=dict(os.environ),
        phase_id=ticket.phase_id,
    )


_SILENT_S = 3_600.0
"""A worker retries a remote that answered before for so long."""
_LOST_S = 300.0
"""A worker retries a remote that has lost an object of a claim for so long: the claim's worker may push another."""
_MOST_CUT_OFF = 3
"""A worker goes on after so many kills in a row, by the system, of its git or its run."""
_POLL_S = 20.0
"""Seconds between two looks at the remote for a phase that can begin."""


@click.command("work", cls=SectionedCommand)
@click.option(
    "--phase",
    metavar="next|all|N",
    default="next",
    show_default=True,
    shell_complete=offer_phases,
    help="The next free phase, all phases one by one until the plan is done, or phase N.",
)
@click.option("--remote", metavar="NAME", default="origin", show_default=True, help="Git remote of plan and results.")
@click.option(
    "--lease",
    metavar="SECONDS",
    default=300,
    type=click.IntRange(15, 3_600),
    show_default=True,
    help="Lifetime of a claim without renewal.",
)
@click.option(
    "--land",
    type=click.Choice(["push", "pr"]),
    default="push",
    show_default=True,
    help="pr, for a protected branch: open a request of the phase; a person merges it.",
)
@setup_option
@session_options
def work_command(phase: str, *, as_json: bool, remote: str, lease: int, approve_setup: bool, **options: Any) -> int:
    """Claim a phase on the remote, work on it in its own work tree, merge it and push it.

    Any number of machines can do this at once. One machine claims a phase, together with its share of the cap. If that
    machine dies, another one goes on from the work that it had pushed. relay pushes only its own refs and, forward
    only, the plan's branch.

    With --land pr relay does not move the plan's branch: it opens a request of the phase's branch with gh or glab.
    Workers leave the phase alone until a person has merged or closed the request; closed, the phase is open again.
    """
    from relay.base.interrupts import Interrupts
    from relay.cli.run import make_job_words
    from relay.cli.views.shapes import make_view
    from relay.sandbox.process import prepare_process
    from relay.session.events import RunEnded
    from relay.setup.preconditions import check_repository, require
    from relay.store.plan_state import read_plan_cost

    request, place = make_request(SessionKind.RUN, options)
    require(check_repository(request.repo))
    ask_for_setup(request, approved=approve_setup, as_json=as_json)
    task = _make_task(request, remote, make_job_words(request, options), phase, lease)
    if options["land"] == "pr":
        from dataclasses import replace

        from relay.cli.pr import PhaseRequests, require_installed
        from relay.git.forge import find_forge

        task = replace(task, requests=PhaseRequests(require_installed(find_forge(request.repo, os.environ), None)))
    prepare_process()
    interrupts = Interrupts()
    view = make_view(json=as_json, stream=sys.stdout)
    try:
        with interrupts.installed(view.note_stop), view:
            end = work_on(task, view.observe, interrupts, goes_on=phase == "all")
            spent = read_plan_cost(task.main, task.plan_path).spent
            ended = RunEnded(
                exit_code=end.exit_code,
                reason=end.reason,
                next_command=place.caller.write(end.next_command),
                spent_usd=spent.cost_usd,
                estimated=spent.estimated,
                questions=find_left_questions(request.files),
            )
            view.observe(ended)
    finally:
        interrupts.close()
    return end.exit_code


def _get_phase_id(phase: str) -> str:
    selection = parse_selection(phase)
    if selection.last_id:
        raise click.UsageError(f"--phase: found {phase!r}; allowed: next, all or the number of a phase")
    return selection.phase_id


def _make_task(request: "RunRequest", remote: str, words: tuple[str, ...], phase: str, lease_s: int) -> "WorkTask":
    from relay.fleet.work import WorkTask
    from relay.git.remote import Remote

    return WorkTask(
        main=request.repo,
        remote=Remote(repo=request.repo, name=remote, environ=os.environ),
        plan_path=request.plan_path,
        settings=request.settings,
        words=words,
        environ=dict(os.environ),
        phase_id=_get_phase_id(phase),
        lease_s=lease_s,
    )


def work_on(
    task: "WorkTask", observe: "Observe", interrupts: "Interrupts", *, goes_on: bool, poll_s: float = _POLL_S
) -> "WorkEnd":
    """Work on one phase, or on one phase after the other until the plan is done or needs a person.

    Raises:
        RelayError: The remote cannot be reached, or the user must change something first.
    """
    import time

    from relay.fleet.work import work
    from relay.git.command import CutOffError
    from relay.git.remote import RemoteError
    from relay.session.events import Noticed

    silent_s: float | None = None
    told = ""
    has_worked = False
    cut_off = 0
    while True:
        try:
            end = work(task, observe, interrupts)
        except (RemoteError, CutOffError) as error:
            now = time.monotonic()
            silent_s = now if silent_s is None else silent_s
            cut_off += isinstance(error, CutOffError)
            most_s = _find_patience_s(error, goes_on=goes_on, has_worked=has_worked)
            if now - silent_s > most_s or cut_off > _MOST_CUT_OFF or interrupts.wait(poll_s):
                raise
            observe(Noticed(text=f"{error}; relay tries again", warning=True))
            continue
        has_worked, silent_s = True, None
        if not goes_on or interrupts.finish_turn:
            return end
        is_cut_off = bool(end.phase_id) and end.exit_code == ExitCode.INTERRUPTED  # by the system: no user asked
        cut_off = cut_off + 1 if is_cut_off else 0
        if end.is_over or cut_off > _MOST_CUT_OFF:
            return end
        told = "" if end.phase_id else _tell_wait(end.reason, told, observe, poll_s)
        if not end.phase_id and interrupts.wait(poll_s):
            return end


def _find_patience_s(error: Exception, *, goes_on: bool, has_worked: bool) -> float:
    """Return for how many seconds the worker retries after an error; below 0 for no retry."""
    from relay.fleet.claims import ContentionError
    from relay.git.command import CutOffError
    from relay.git.remote import LostObjectError

    match error:
        case ContentionError() | CutOffError():  # if many workers begin at once, some lose every race at first
            return math.inf
        case LostObjectError():
            return _LOST_S if goes_on else -1.0
        case _:
            return _SILENT_S if goes_on and has_worked else -1.0


def _tell_wait(reason: str, told: str, observe: "Observe", poll_s: float) -> str:
    """Report why no phase can begin, unless this is the last reason reported; return that reason."""
    import re

    from relay.session.events import Noticed

    words = re.sub(r"[0-9]+ s\b", "", reason)  # the remaining time always differs
    if words != told:
        observe(Noticed(text=f"{reason}; relay looks again every {poll_s:g} s"))
    return words

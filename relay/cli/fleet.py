"""`relay fleet`: the phases of a plan shared out among workers on many machines, by a queue on PostgreSQL."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

from relay.base.errors import RelayError
from relay.base.interrupts import Interrupts
from relay.base.words import render_usd
from relay.cli.boundary import note_place
from relay.cli.options import AMOUNT, plan_option
from relay.cli.screen import complain, say, say_now
from relay.cli.views.shapes import make_view
from relay.fleet.exchange import keep_booked, name_booked, push_booked
from relay.fleet.overview import (
    LIVE,
    describe_fleet,
    fetch_plan,
    find_fleet_lines,
    find_tickets,
    read_plan,
    require_pushed,
)
from relay.fleet.queue import Queue
from relay.fleet.takes import Placed, Standing, Ticket
from relay.git.refs import find_ref
from relay.git.remote import Remote
from relay.git.repository import Repo
from relay.plan.model import Plan
from relay.prompts.package_data import get_shipped
from relay.run.selection import get_phase
from relay.sandbox.process import prepare_process
from relay.session.usage import Spent
from relay.store.loose import require_in_commits
from relay.store.refs import get_branch
from relay.store.spend import Whose
from relay.store.worktree_notes import FleetSight, save_fleet_sight

_TEMPLATES = {"systemd": "relay-worker.service", "compose": "compose.yaml", "k8s": "k8s.yaml"}
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
    """Share the phases of a plan among workers on many machines.

    The queue, a PostgreSQL database, says who works on what and sets money aside. Work and spending are on the git
    remote.
    """


@command.command("up", short_help="Run a database for the queue on this machine.")
@click.option("--data", metavar="DIR", type=click.Path(path_type=Path), help="Directory of the database.")
def up(data: Path | None) -> None:
    """Run PostgreSQL for this machine's workers until Ctrl-C; for many machines use a server of your own.

    The database keeps its files. Only you can reach it, by a socket in its directory.
    """
    from relay.fleet.database import is_up, run_database

    place = data or get_data()
    with closing(Interrupts()) as interrupts, interrupts.installed(lambda _: None), run_database(place) as url:
        say_now(f"{url}\nthe database is up; Ctrl-C stops it")
        while not interrupts.wait(_LOOK_S):
            if not is_up(place):
                raise RelayError("the database has ended", hint=f"relay fleet up; its log is {place / 'log'}")


@command.command("submit", short_help="Queue the phases that can begin now.")
@_DATABASE
@_REMOTE
@click.option(
    "--phase", metavar="N", default="", help="Only this phase, also if it waits for a person or was cancelled."
)
@click.argument("plans", nargs=-1, metavar="[PLAN]...", help="Plan files; default: that of the settings (PLAN.md).")
def submit(database: str | None, remote: str, phase: str, plans: tuple[str, ...]) -> None:
    """Queue the phases that can begin now. Workers queue the phases that waited for these."""
    queue = open_queue(database)
    for path in plans or (None,):
        there, own = get_plan(path, remote, phase)
        tip, plan = fetch_plan(there, own.branch, own.plan_path)
        require_pushed(there, own.branch, tip)
        if phase:
            get_phase(plan, phase)
            queue.settle_phase(own.plan, phase)
        tickets = find_tickets(queue, plan, own)
        new = queue.submit(tickets)
        for ticket in tickets:
            say(f"phase {ticket.phase_id}  {'queued' if ticket in new else 'already queued'}")
        if not tickets:
            say(f"{own.plan_path}: no phase can begin now; relay fleet status --why explains each")
        _note_sight(there.repo, plan, own, queue.read(own.plan), queue.list_placed())


@command.command("worker", short_help="Work on queued phases, one after the other.")
@_DATABASE
@click.option("--place", metavar="DIR", type=click.Path(path_type=Path), help="Directory of this worker's clones.")
@click.option("--once", is_flag=True, help="End when the queue is empty.")
def worker(database: str | None, place: Path | None, *, once: bool) -> None:
    """Work on queued phases. Ctrl-C hands over the present phase and ends the worker.

    While the database is away the worker goes on with the phase at work and with the money set aside for it, and takes
    up the next phase when the database is back.
    """
    from relay.fleet.worker import Worker

    prepare_process()
    queue = open_queue(database)
    view = make_view(json=False, stream=sys.stdout, keeps_board=False)
    with closing(Interrupts()) as interrupts, interrupts.installed(view.note_stop), view:
        worker = Worker(
            queue=queue,
            place=(place or get_data("clones")).absolute(),
            environ=dict(os.environ),
            observe=view.observe,
            interrupts=interrupts,
        )
        worker.serve(wait=not once)


@command.command("status", short_help="Show what is queued, at work and done.")
@_DATABASE
@_REMOTE
@plan_option
@click.option("--why", is_flag=True, help="Explain for each open phase why nobody works on it.")
def status(database: str | None, remote: str, plan: str | None, *, why: bool) -> None:
    """Show the plan's state on the remote and in the queue: phases that are done, at work, queued or waiting."""
    there, own = get_plan(plan, remote)
    standing, placed = None, tuple[Placed, ...]()
    try:
        queue = open_queue(database)
        standing, placed = queue.read(own.plan), queue.list_placed()
    except RelayError as error:
        complain(f"{error}: the queue is unknown ({error.hint})")
    for line in describe_fleet(there, own, standing, placed, why=why):
        say(line)
    if standing is not None:
        _note_sight(there.repo, read_plan(there, own.branch, own.plan_path)[1], own, standing, placed)


@command.command("cancel", short_help="Take queued phases back, or free what dead workers had reserved.")
@_DATABASE
@_REMOTE
@plan_option
@click.option(
    "--lost",
    metavar="USD",
    type=AMOUNT,
    help="Book this amount (from the bill) as the spending of dead workers, and free their reserved shares.",
)
@click.argument("numbers", nargs=-1, type=int, metavar="[NUMBER]...", help="Number from relay fleet status.")
def cancel(
    database: str | None, remote: str, plan: str | None, numbers: tuple[int, ...], *, lost: float | None
) -> None:
    """Take phases out of the queue. A worker hands over a phase that it is working on.

    Workers do not queue these phases again; relay fleet submit does.
    """
    if not numbers and lost is None:
        raise click.UsageError("name a NUMBER, or --lost USD")
    queue = open_queue(database)
    if lost is not None:
        for words in _book_lost(queue, *get_plan(plan, remote), lost):
            say(words)
    busy = {one.number for one in queue.list_placed() if one.status == "doing"}
    gone = queue.cancel(numbers) if numbers else ()
    for number in numbers:
        end = "its worker hands over" if number in busy else "taken back"
        say(f"{number}  {end if number in gone else 'not queued'}")


def _book_lost(queue: Queue, remote: Remote, own: Ticket, spent_usd: float) -> Iterator[str]:
    """Book the spending of dead workers and free their reserved shares; yield a sentence for each."""
    lost = queue.read(own.plan).lost
    if not lost:
        yield "no dead worker has a reserved share"
        return
    tip = fetch_plan(remote, own.branch, own.plan_path)[0] if spent_usd else ""
    reserved_usd = sum(take.reserved_usd or 0.0 for take in lost)
    for take in lost:
        share_usd = spent_usd * (take.reserved_usd or 0.0) / reserved_usd
        is_new = True
        if spent_usd:  # by the take's nonce, as its own machine does: whoever is second finds it booked
            is_new = find_ref(remote.repo, name_booked(own.branch, take.nonce)) is None
            whose = Whose(plan_path=own.plan_path, phase_id=take.phase_id, session_id=take.nonce, base=tip)
            booked = keep_booked(remote.repo, own.branch, whose, Spent(cost_usd=share_usd))
            is_new = push_booked(remote, booked) and is_new
        queue.settle_lost((take,))
        words = f"{render_usd(share_usd)} booked" if is_new else "booked before"
        yield f"{render_usd(take.reserved_usd)} of {take.worker} on phase {take.phase_id}: freed, {words}"


def get_data(name: str = _DATABASE_PLACE) -> Path:
    """Return the directory of this user's fleet files. Root's database, which another user runs, is in no home."""
    base = os.environ.get("XDG_DATA_HOME", "")
    home = Path("/var/lib") if os.geteuid() == 0 and name == _DATABASE_PLACE else Path.home() / ".local/share"
    return (Path(base) if Path(base).is_absolute() else home) / "relay/fleet" / name


@command.command("template", short_help="Print what keeps workers alive: a unit, a service, a deployment.")
@click.argument("kind", type=click.Choice(list(_TEMPLATES)), help="Who keeps them alive.")
def template(kind: str) -> None:
    """Print a systemd unit, a compose file or a Kubernetes deployment that keeps workers alive, for you to change."""
    click.echo((get_shipped("templates") / "fleet" / _TEMPLATES[kind]).read_text(encoding="utf-8"), nl=False)


def open_queue(url: str | None) -> Queue:
    """Return the queue.

    Raises:
        RelayError: No database is named, and none runs here.
    """
    from relay.fleet.database import find_url

    found = url or find_url(get_data())
    if found is None:
        raise RelayError("no database is named, and none runs here", hint=f"relay fleet up, or {_URL}=postgresql://…")
    return Queue(found)


def get_plan(plan: str | None, name: str, phase_id: str = "") -> tuple[Remote, Ticket]:
    """Return the remote of the repository here, and a ticket that names the plan there.

    Raises:
        RepoError: There is no repository here.
        PlanError: No commit holds the plan.
    """
    place = note_place(plan)
    require_in_commits(place.repo, place.plan_name)
    remote = Remote(repo=place.repo, name=name, environ=os.environ)
    branch = get_branch(place.repo)
    return remote, Ticket(remote=remote.find_address(), branch=branch, plan_path=place.plan_name, phase_id=phase_id)


def _note_sight(repo: Repo, plan: Plan, own: Ticket, standing: Standing, placed: tuple[Placed, ...]) -> None:
    """Note for `relay status` and `relay run` here what the fleet is at."""
    queued = {one.ticket.phase_id for one in placed if one.status in LIVE and one.ticket.plan == own.plan}
    busy = {*queued, *standing.held}
    lines = find_fleet_lines(plan, own, standing, placed, why=False)
    phases = {phase.id: words for phase, words in lines if phase.id in busy and not phase.done}
    sight = FleetSight(plan_path=own.plan_path, branch=own.branch, at=time.time(), phases=phases)
    save_fleet_sight(repo, sight)

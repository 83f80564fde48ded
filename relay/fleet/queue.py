"""The queue of a fleet on PostgreSQL: the one truth of which worker has which phase, and of what that may cost.

Procrastinate keeps jobs, heartbeats and requests to abort, and tells who listens. relay drives its `JobManager`, not
its `Worker` (3.10): that one stops within ten seconds when the database goes away, and ends a job by its number,
whoever has it by now. So here no number is given out twice: the job of a dead worker is ended and a new one takes its
place, and what a revived worker says of the old number finds nothing. No job has Procrastinate's ``lock``, which a job
that waits for a usage limit would hold.

relay adds one table, ``relay_takes``: a row for each time that a worker took a phase. Its number is the fencing token.
The row holds the money that is set aside for the take, and how the take ended; three deaths park a phase. What was
spent is not in it: git has that (`relay.store.plan_state`).

Weighed, each with real processes and ``kill -9``: Dask runs paid work again and forgets all with its scheduler, Ray
takes running jobs down with its head, the fail-over of DBOS is not free, PgQueuer would do and weighs four times more.
"""

import asyncio
import contextlib
import json
import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from relay.base.errors import RelayError
from relay.base.hints import advise_extra
from relay.base.words import render_usd
from relay.fleet.takes import Bid, NotTaken, Placed, Standing, Take, TakeState, Ticket, Turn

if TYPE_CHECKING:
    from procrastinate import App
    from procrastinate.jobs import Job
    from psycopg import Connection

AnswerT = TypeVar("AnswerT")
TASK, QUEUE = "relay.work", "relay"
_MOST_CHARS = 900
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_HINT = "relay fleet up runs one here; RELAY_FLEET_URL, or --database, names another"
_CONNECT = {"connect_timeout": 10, "keepalives_idle": 10, "tcp_user_timeout": 20_000, "application_name": "relay"}
"""A database that does not answer is away after some 20 seconds, for who waits for an answer as for who connects."""
_POOL: dict[str, Any] = {"min_size": 0, "max_size": 1, "max_idle": 0.2}
"""Hardly a connection is kept between two questions: a hundred are all that a PostgreSQL takes by default."""
BEAT_S = 5.0
STALLED_S = 30.0
"""After so long without a heartbeat a worker counts as dead."""
_CENT_USD = 0.01
_TURN_S = 600.0
"""How long a landing has the plan's branch for itself: longer than most checks. It ends with its take."""
_MOST_RIDERS = 15
"""How many phases land along with one: each takes a moment to merge, and one that is red has all of them wait."""
_MIGRATIONS = (
    """
    create table relay_takes (
        token bigint generated always as identity primary key,
        nonce text not null,
        plan text not null,
        phase_id text not null,
        job_id bigint not null,
        worker text not null,
        state text not null default 'held' check (state in ('held', 'done', 'free', 'stopped', 'died')),
        words text not null default '',
        reserved_usd double precision,
        seen_usd double precision not null default 0,
        is_settled boolean not null default false,
        lands_until timestamptz,
        along text not null default '' check (along in ('', 'waits', 'alone', 'landed')),
        taken_at timestamptz not null default now()
    );
    create unique index relay_takes_held on relay_takes (plan, phase_id) where state = 'held';
    create index relay_takes_plan on relay_takes (plan, phase_id, token);
    """,
)
"""Of the table ``relay_takes``; how many of them a database has had is the comment on the table."""


class AwayError(RelayError):
    """The database does not answer."""


def check_ticket(ticket: Ticket) -> str:
    """Return why a ticket must not be queued; empty when it may."""
    if _PASSWORD.search(ticket.remote):
        return "the remote's address holds a password, and others may read the queue; use a credential helper or ssh"
    is_long = len(ticket.plan) + len(ticket.phase_id) > _MOST_CHARS
    return f"a ticket has to fit in {_MOST_CHARS} characters" if is_long else ""


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Say an error of the database in one line.

    Raises:
        AwayError: There was one.
    """
    import psycopg
    from procrastinate.exceptions import ConnectorException

    try:
        yield
    except (ConnectorException, psycopg.Error) as error:
        cause = error.__cause__ or error
        words = next(iter(str(cause).splitlines()), "") or type(cause).__name__
        raise AwayError(f"the database does not answer: {words}", hint=_HINT) from None


class Queue:
    """The queue in one database. Mutable: it makes its tables at the first use.

    Args:
        url: Of the database, as ``postgresql://…``; the connection must be direct or pooled by session, for LISTEN.
        stalled_s: How long a worker may send no heartbeat.
    """

    def __init__(self, url: str, *, stalled_s: float = STALLED_S, beat_s: float = BEAT_S) -> None:
        self._url, self._is_made = url, False
        self.stalled_s, self.beat_s = stalled_s, beat_s
        try:
            import procrastinate  # noqa: F401  # asked for here, so that all else can rely on it
        except ImportError as error:
            raise RelayError("the engine is not installed", hint=advise_extra("fleet")) from error

    @contextlib.asynccontextmanager
    async def open(self) -> "AsyncIterator[App]":
        """Open Procrastinate on the database.

        Raises:
            AwayError: The database does not answer.
        """
        from procrastinate import App, PsycopgConnector

        # The pool writes what it thinks of each try; Procrastinate, of each job's end.
        for name in ("psycopg.pool", "procrastinate"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        await asyncio.to_thread(self._make)
        with _translated():
            app = App(connector=PsycopgConnector(conninfo=self._url, kwargs=_CONNECT, **_POOL))
            async with app.open_async():
                yield app

    def _ask(self, question: Callable[["App"], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        """Connect, ask once and leave; the one place where relay, which has no loop of its own, meets one."""

        async def ask() -> AnswerT:
            async with self.open() as app:
                return await question(app)

        return asyncio.run(ask())

    @contextlib.contextmanager
    def _connect(self) -> "Iterator[Connection[Any]]":
        """Yield a connection to the database, which has its tables."""
        self._make()
        with self._reach() as there:
            yield there

    @contextlib.contextmanager
    def _reach(self) -> "Iterator[Connection[Any]]":
        import psycopg

        with _translated(), psycopg.connect(self._url, autocommit=True, **_CONNECT) as there:  # type: ignore[arg-type]
            yield there

    def _make(self) -> None:
        """Make or migrate the tables, once; two that meet an empty database take turns.

        Raises:
            RelayError: A newer relay has made them.
        """
        if self._is_made:
            return
        from procrastinate import App, SyncPsycopgConnector

        with self._reach() as there, there.transaction():
            there.execute("select pg_advisory_xact_lock(hashtext('relay'))")
            if there.execute("select to_regclass('procrastinate_jobs')").fetchone() == (None,):
                with App(connector=SyncPsycopgConnector(conninfo=self._url)).open() as app:
                    app.schema_manager.apply_schema()
            row = there.execute("select obj_description(to_regclass('relay_takes'), 'pg_class')").fetchone()
            version = int(row[0] or 0) if row else 0
            if version > len(_MIGRATIONS):
                words = f"the queue's table is of version {version}, and this relay knows {len(_MIGRATIONS)}"
                raise RelayError(words, hint="update relay here")
            for migration in _MIGRATIONS[version:]:
                there.execute(migration)
            there.execute(f"comment on table relay_takes is '{len(_MIGRATIONS)}'")
        self._is_made = True

    @contextlib.contextmanager
    def _turn(self, plan: str) -> "Iterator[Connection[Any]]":
        """Yield a transaction; no other relay changes a plan's takes or tickets meanwhile."""
        with self._connect() as there, there.transaction():
            there.execute("select pg_advisory_xact_lock(hashtext(%s))", (plan,))
            yield there

    def submit(self, tickets: Sequence[Ticket], *, follows: bool = False, wait_s: float = 0.0) -> tuple[Ticket, ...]:
        """Queue tickets; return those that were neither waiting nor in work already.

        Args:
            follows: Whether a worker queues them: tickets that a person took back stay out.
            wait_s: Seconds until they may begin.

        Raises:
            RelayError: The database does not answer, or a ticket must not be queued.
        """
        for ticket in tickets:
            if words := check_ticket(ticket):
                raise RelayError(words)

        async def submit(app: "App") -> tuple[Ticket, ...]:
            last = {one.ticket: one.status for one in await _list_placed(app)}
            left_out = {"todo", "doing", "aborting"} | ({"cancelled", "aborted"} if follows else set())
            new = tuple(ticket for ticket in dict.fromkeys(tickets) if last.get(ticket) not in left_out)
            task = app.configure_task(TASK, queue=QUEUE, schedule_in={"seconds": int(wait_s)} if wait_s else None)
            for ticket in new:
                await task.defer_async(**asdict(ticket))
            return new

        if not tickets:
            return ()
        with self._turn(tickets[0].plan):
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

    def fetch(self, worker_id: int) -> Placed | None:
        """Give a registered worker, which has none at work, the next ticket; None when there is none.

        One that it was given and has not ended, since an answer of the database was lost, comes first.

        Raises:
            RelayError: The database does not answer.
        """

        async def fetch(app: "App") -> Placed | None:
            jobs = app.job_manager
            own = list(await jobs.list_jobs_async(queue=QUEUE, status="doing", worker_id=worker_id))
            while job := own.pop() if own else await jobs.fetch_job(queues=[QUEUE], worker_id=worker_id):
                if found := parse_job(job):
                    return found
                await _finish(app, job.id, "failed", keep=True)  # nobody can read it
            return None

        return self._ask(fetch)

    def read(self, plan: str) -> Standing:
        """Return the takes of a plan (`Ticket.plan`); one that is held without a ticket in work has died.

        Raises:
            RelayError: The database does not answer.
        """
        with self._turn(plan) as there:
            there.execute(
                "update relay_takes set state = 'died', words = 'its worker lost its ticket'"
                " where plan = %s and state = 'held' and not exists"
                " (select from procrastinate_jobs where id = job_id and status = 'doing')",
                (plan,),
            )
            return _read(there, plan)

    def list_plans(self) -> tuple[Ticket, ...]:
        """Return a ticket without a phase for each plan that workers have worked on for a day, or are to.

        Raises:
            RelayError: The database does not answer.
        """
        with self._connect() as there:
            recent = "select distinct plan from relay_takes where taken_at > now() - interval '1 day'"
            rows = there.execute(recent).fetchall()
        known = (found for (plan,) in rows if (found := _parse_plan(plan)))
        placed = (replace(one.ticket, phase_id="") for one in self.list_placed())
        return tuple(dict.fromkeys((*known, *placed)))

    def take(self, placed: Placed, worker: str, bid: Bid) -> Take | NotTaken:
        """Take a ticket's phase and set money aside for it, or say why not.

        Raises:
            RelayError: The database does not answer.
        """
        plan, phase_id = placed.ticket.plan, placed.ticket.phase_id
        with self._turn(plan) as there:
            before = _read(there, plan)
            if other := before.held.get(phase_id):
                return NotTaken(words=f"phase {phase_id} is at work: {other.worker}")
            unseen = before.find_unseen(bid.before)
            # What git knows by now of a dead worker's spend is not set aside any more; its own clone knows all of it.
            there.execute(
                "update relay_takes set reserved_usd = case when worker = %(worker)s then 0"
                " else greatest(0, reserved_usd - greatest(0, %(seen)s - seen_usd)) end, seen_usd = %(seen)s"
                " where plan = %(plan)s and phase_id = %(phase)s and state = 'died' and reserved_usd > 0",
                {"worker": worker, "seen": bid.seen_usd, "plan": plan, "phase": phase_id},
            )
            left = _find_left(_read(there, plan), bid, unseen)
            if unseen is None or (left is not None and left <= 0):
                return _refuse(before, bid, phase_id, unseen)
            row = there.execute(
                "insert into relay_takes (nonce, plan, phase_id, job_id, worker, reserved_usd, seen_usd)"
                " values (%s, %s, %s, %s, %s, %s, %s) returning token",
                (
                    secrets.token_hex(8),
                    plan,
                    phase_id,
                    placed.number,
                    worker,
                    _share(left, bid.shares, bid),
                    bid.seen_usd,
                ),
            ).fetchone()
            token = row[0] if row else 0
            return next(take for take in _read(there, plan).takes if take.token == token)

    def raise_share(self, plan: str, own: Take, bid: Bid) -> Take | NotTaken:
        """Set all that is left aside for a phase that has spent its share, or say why not.

        Raises:
            RelayError: The database does not answer.
        """
        with self._turn(plan) as there:
            before = _read(there, plan)
            take = before.held.get(own.phase_id)
            if take is None or (take.token, take.nonce) != (own.token, own.nonce):
                return NotTaken(words="another worker has the phase")
            unseen = before.find_unseen(bid.before)
            left = _find_left(before, bid, unseen)
            share = _share(None if left is None else left + (take.reserved_usd or 0.0), 1, bid) or 0.0
            if unseen is None or share + bid.seen_usd <= (take.reserved_usd or 0.0) + take.seen_usd + _CENT_USD:
                return _refuse(before, bid, own.phase_id, unseen)
            there.execute(
                "update relay_takes set reserved_usd = %s, seen_usd = %s where token = %s",
                (share, bid.seen_usd, take.token),
            )
            return replace(take, reserved_usd=share, seen_usd=bid.seen_usd)

    def holds(self, take: Take) -> bool:
        """Return whether a take is still its worker's: the fencing token is checked.

        Raises:
            RelayError: The database does not answer.
        """
        with self._connect() as there:
            found = there.execute(
                "select 1 from relay_takes where token = %s and nonce = %s and state = 'held'",
                (take.token, take.nonce),
            ).fetchone()
        return found is not None

    def take_turn(self, plan: str, own: Take, *, rides: bool = False) -> Turn:
        """Have the turn to land on the plan's branch for a while, unless another take has it.

        A merge is checked on top of the branch as it is, and is for nothing when another one lands meanwhile. The turn
        saves that; no promise rests on it, so it ends by itself, and with its take.

        Args:
            rides: Whether the take that has the turn may land this one along: all of it is on the remote.

        Raises:
            RelayError: The database does not answer.
        """
        with self._turn(plan) as there:
            row = there.execute(
                "select along, exists (select from relay_takes as other where other.plan = own.plan"
                " and other.token <> own.token and other.state = 'held' and other.lands_until > now())"
                " from relay_takes as own where token = %s",
                (own.token,),
            ).fetchone()
            along, is_busy = row or ("", False)
            if along == "landed":
                return Turn.LANDED
            there.execute(
                "update relay_takes set"
                " lands_until = case when not %(busy)s then now() + make_interval(secs => %(span)s) end,"
                " along = case when along = 'alone' then along when %(rides)s then 'waits' else '' end"
                " where token = %(token)s",
                {"busy": is_busy, "rides": is_busy and rides, "span": _TURN_S, "token": own.token},
            )
            return Turn.WAITS if is_busy else Turn.LANDS

    def give_turn_back(self, own: Take) -> None:
        """Have others land meanwhile.

        Raises:
            RelayError: The database does not answer.
        """
        with self._connect() as there:
            there.execute("update relay_takes set lands_until = null where token = %s", (own.token,))

    def list_riders(self, plan: str, own: Take) -> Mapping[str, int]:
        """Return the phases that a take with the turn may land along, and their takes' tokens; none if it lands alone.

        Raises:
            RelayError: The database does not answer.
        """
        with self._connect() as there:
            rows = there.execute(
                "select phase_id, token from relay_takes where plan = %s and state = 'held' and along = 'waits'"
                " and token <> %s and not exists (select from relay_takes where token = %s and along = 'alone')"
                " order by token limit %s",
                (plan, own.token, own.token, _MOST_RIDERS),
            ).fetchall()
        return dict(rows)

    def note_riders(self, tokens: Collection[int], *, landed: bool) -> None:
        """Note that takes have landed along with another one, or that each of them is to land alone.

        Raises:
            RelayError: The database does not answer.
        """
        with self._connect() as there:
            there.execute(
                "update relay_takes set along = %s where token = any(%s) and state = 'held'",
                ("landed" if landed else "alone", list(tokens)),
            )

    def end(self, take: Take, state: TakeState, words: str = "") -> bool:
        """End a take and free what it had reserved; False: it was not its worker's any more, and nothing changed.

        Raises:
            RelayError: The database does not answer.
        """
        with self._connect() as there, there.transaction():
            row = there.execute(
                "update relay_takes set state = %(state)s, words = %(words)s, reserved_usd ="
                " case when %(state)s = 'died' then 0 else reserved_usd end"  # its worker lives, and has pushed all
                " where token = %(token)s and nonce = %(nonce)s and state = 'held' returning plan",
                {"state": state, "words": words, "token": take.token, "nonce": take.nonce},
            ).fetchone()
            if row and state is TakeState.DONE:
                _settle(there, row[0], take.phase_id)
        return row is not None

    def settle_lost(self, takes: Collection[Take]) -> None:
        """Free what dead workers had reserved: what they spent is booked.

        Raises:
            RelayError: The database does not answer.
        """
        if takes:
            with self._connect() as there:
                there.execute(
                    "update relay_takes set reserved_usd = 0 where state = 'died' and reserved_usd > 0"
                    " and (token, nonce) in (select * from unnest(%s::bigint[], %s::text[]))",
                    ([take.token for take in takes], [take.nonce for take in takes]),
                )

    def settle_phase(self, plan: str, phase_id: str) -> None:
        """Have a phase that waits for a person be worked on again: a person says so.

        Raises:
            RelayError: The database does not answer.
        """
        with self._turn(plan) as there:
            _settle(there, plan, phase_id)

    def finish(self, placed: Placed, *, again_s: float | None = None, taken_back: bool = False) -> None:
        """End a ticket that this worker was given.

        Args:
            again_s: Seconds until the phase is queued again; None: it is not.
            taken_back: Whether a person took it back: it stays in the list, and no worker queues it again.

        Raises:
            RelayError: The database does not answer.
        """

        async def finish(app: "App") -> None:
            await _finish(app, placed.number, "aborted" if taken_back else "succeeded", keep=taken_back)

        self._ask(finish)
        if again_s is not None and not taken_back:
            self.submit((placed.ticket,), follows=True, wait_s=again_s)

    def bury(self, placed: Placed, *, taken_back: bool = False) -> None:
        """End the ticket of a dead worker, and queue its phase again but where too many have died of it.

        Raises:
            RelayError: The database does not answer.
        """
        with self._turn(placed.ticket.plan) as there:
            there.execute(
                "update relay_takes set state = 'died', words = 'its worker died'"
                " where job_id = %s and plan = %s and state = 'held'",
                (placed.number, placed.ticket.plan),
            )
            is_parked = placed.ticket.phase_id in _read(there, placed.ticket.plan).waits
        self.finish(placed, again_s=None if is_parked else 0.0, taken_back=taken_back)


def _read(there: "Connection[Any]", plan: str) -> Standing:
    rows = there.execute(
        "select token, nonce, phase_id, job_id, worker, state, words, reserved_usd, seen_usd, is_settled, taken_at"
        " from relay_takes where plan = %s order by token",
        (plan,),
    ).fetchall()
    names = tuple(Take.__slots__)
    takes = (dict(zip(names, row, strict=True)) for row in rows)
    return Standing(takes=tuple(Take(**{**one, "state": TakeState(one["state"])}) for one in takes))


def _settle(there: "Connection[Any]", plan: str, phase_id: str) -> None:
    there.execute("update relay_takes set is_settled = true where plan = %s and phase_id = %s", (plan, phase_id))


def _find_left(standing: Standing, bid: Bid, unseen_usd: float | None) -> float | None:
    if bid.cap_usd is None:
        return None
    return bid.cap_usd - bid.spent_usd - standing.reserved_usd - (unseen_usd or 0.0)


def _share(left: float | None, shares: int, bid: Bid) -> float | None:
    share = None if left is None else left / max(1, shares)
    if bid.phase_cap_usd is None:
        return share
    own = max(0.0, bid.phase_cap_usd - bid.seen_usd)
    return own if share is None else min(share, own)


def _refuse(standing: Standing, bid: Bid, phase_id: str, unseen_usd: float | None) -> NotTaken:
    words = f"of {render_usd(bid.cap_usd)} are {bid.spent_usd:.2f} spent and {standing.reserved_usd:.2f} reserved"
    freed = "; relay fleet cancel --lost USD frees what dead workers had" if standing.lost else ""
    return NotTaken(words=f"{words}: not enough for phase {phase_id}{freed}", is_stale=unseen_usd != 0)


async def _list_placed(app: "App") -> tuple[Placed, ...]:
    jobs = await app.job_manager.list_jobs_async(task=TASK)
    return tuple(sorted((found for job in jobs if (found := parse_job(job))), key=lambda one: one.number))


async def _finish(app: "App", number: int | None, status: str, *, keep: bool) -> None:
    """End a job; one that is gone was a dead worker's."""
    from procrastinate.exceptions import ConnectorException
    from procrastinate.jobs import Status

    if number is None:
        return
    try:
        await app.job_manager.finish_job_by_id_async(job_id=number, status=Status(status), delete_job=not keep)
    except ConnectorException as error:
        if "not found" not in str(error.__cause__):
            raise


def _parse_plan(text: str) -> Ticket | None:
    """Return a ticket without a phase for a plan (`Ticket.plan`); None where somebody else has put anything there."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(found) != len(_NAMES) - 1 or not all(isinstance(one, str) for one in found):
        return None
    return Ticket(**dict(zip(_NAMES, (*found, ""), strict=True)))


_NAMES = ("remote", "branch", "plan_path", "phase_id")


def parse_job(job: "Job") -> Placed | None:
    """Return the ticket of a job; None where somebody else has put anything there that must not be queued."""
    given: object = job.task_kwargs
    fields = {n: text for n in _NAMES if isinstance(given, dict) and isinstance(text := given.get(n), str)}
    if job.id is None or len(fields) < len(_NAMES):
        return None
    ticket = Ticket(**fields)
    if check_ticket(ticket):
        return None
    return Placed(number=job.id, ticket=ticket, status=job.status or "", at=job.scheduled_at)

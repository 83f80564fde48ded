"""The queue of a fleet on PostgreSQL: the one truth of which worker has which phase, and of what that may cost.

Procrastinate gives the tables of jobs, heartbeats and requests to abort, the SQL to change them, and tells who listens.
relay drives that SQL and not its `Worker` (3.10), which stops within ten seconds when the database goes away, and ends
a job by its number, whoever has it by now. So here no number is given out twice: the job of a dead worker is ended and
a new one takes its place, and what a revived worker says of the old number finds nothing. A job and its take change in
one transaction. No job has Procrastinate's ``lock``, which a job that waits for a usage limit would hold.

relay adds one table, ``relay_takes``: a row for each time that a worker took a phase. Its number is the fencing token.
The row holds the money that is set aside for the take, and how the take ended; three deaths park a phase. What was
spent is not in it: git has that (`relay.store.plan_state`).

Weighed, each with real processes and ``kill -9``: Dask runs paid work again and forgets all with its scheduler, Ray
takes running jobs down with its head, the fail-over of DBOS is not free, PgQueuer would do and weighs four times more.

Every method that asks the database raises `AwayError` when it does not answer.
"""

import contextlib
import json
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import msgspec

from relay.base.errors import RelayError
from relay.base.hints import advise_extra
from relay.fleet.takes import Bid, NotTaken, Placed, Standing, Take, TakeState, Ticket, Turn

if TYPE_CHECKING:
    from psycopg import Connection

QUEUE = "relay"
CHANNEL = f"procrastinate_queue_v1#{QUEUE}"
"""Where Procrastinate tells of new jobs and of requests to abort."""
JOBS = (
    "select job.id, args, status, scheduled_at, abort_requested, last_heartbeat from procrastinate_jobs as job"
    " left join procrastinate_workers as worker on worker.id = worker_id where task_name = 'relay.work'"
)
"""What `parse_job` reads."""
_TAKES = (
    "select token, nonce, plan, phase_id, job_id, worker, state, words, reserved_usd, seen_usd, is_settled, taken_at"
    " from relay_takes where plan = %s order by token"
)
_MOST_CHARS = 900
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_HINT = "relay fleet up runs one here; RELAY_FLEET_URL, or --database, names another"
_CONNECT: dict[str, Any] = {
    "connect_timeout": 10, "keepalives_idle": 10, "tcp_user_timeout": 20_000, "application_name": "relay",
}  # fmt: skip
"""A database that does not answer is away after some 20 seconds, for who waits for an answer as for who connects."""
BEAT_S = 5.0
STALLED_S = 40.0
"""A worker that gives no heartbeat for so long counts as dead."""
_CENT_USD = 0.01
_TURN_S = 600.0
"""How long a landing has the plan's branch for itself: longer than most checks. It ends with its take."""
_MOST_RIDERS = 15
"""How many phases land along with one: each takes a moment to merge, and one that is red has all of them wait."""
_TABLE = """
    create table if not exists relay_takes (
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
    create unique index if not exists relay_takes_held on relay_takes (plan, phase_id) where state = 'held';
    create index if not exists relay_takes_plan on relay_takes (plan, phase_id, token);
    """


class AwayError(RelayError):
    """The database does not answer."""


def check_ticket(ticket: Ticket) -> str:
    """Return why a ticket must not be queued; empty when it may."""
    if _PASSWORD.search(ticket.remote):
        return "the remote's address holds a password, and others may read the queue; use a credential helper or ssh"
    is_long = len(ticket.plan) + len(ticket.phase_id) > _MOST_CHARS
    return f"a ticket has to fit in {_MOST_CHARS} characters" if is_long else ""


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
            import procrastinate.sql
        except ImportError as error:
            raise RelayError("the engine is not installed", hint=advise_extra("fleet")) from error
        self.sql = procrastinate.sql.queries
        """Procrastinate's own SQL, by the names that it has there."""

    @contextlib.contextmanager
    def connect(self) -> "Iterator[Connection[Any]]":
        """Yield a connection to the database, which has its tables.

        Raises:
            AwayError: The database does not answer.
        """
        import psycopg

        try:
            with psycopg.connect(self._url, autocommit=True, **_CONNECT) as there:
                if not self._is_made:
                    self._make(there)
                yield there
        except psycopg.Error as error:
            words = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise AwayError(f"the database does not answer: {words}", hint=_HINT) from None

    def _make(self, there: "Connection[Any]") -> None:
        """Make the tables, once; two that meet an empty database take turns."""
        from procrastinate.schema import SchemaManager

        with there.transaction():
            there.execute("select pg_advisory_xact_lock(hashtext('relay'))")
            if there.execute("select to_regclass('procrastinate_jobs')").fetchone() == (None,):
                there.execute(SchemaManager.get_schema())
            there.execute(_TABLE)
        self._is_made = True

    @contextlib.contextmanager
    def _turn(self, plan: str) -> "Iterator[Connection[Any]]":
        """Yield a transaction; no other relay changes a plan's takes or tickets meanwhile."""
        with self.connect() as there, there.transaction():
            there.execute("select pg_advisory_xact_lock(hashtext(%s))", (plan,))
            yield there

    def _run(self, statement: str, /, **given: object) -> list[Any]:
        """Run one statement by itself; return the rows that it yields."""
        with self.connect() as there:
            cursor = there.execute(statement, given)
            return cursor.fetchall() if cursor.description else []

    def submit(self, tickets: Sequence[Ticket], *, follows: bool = False, wait_s: float = 0.0) -> tuple[Ticket, ...]:
        """Queue tickets; return those that were neither waiting nor in work already.

        Args:
            follows: Whether a worker queues them: tickets that a person took back stay out.
            wait_s: Seconds until they may begin.

        Raises:
            RelayError: A ticket must not be queued.
        """
        for ticket in tickets:
            if words := check_ticket(ticket):
                raise RelayError(words)
        if not tickets:
            return ()
        with self._turn(tickets[0].plan) as there:
            return tuple(one for one in dict.fromkeys(tickets) if _submit(there, one, follows=follows, wait_s=wait_s))

    def list_placed(self) -> tuple[Placed, ...]:
        """Return all tickets, by number."""
        return tuple(filter(None, map(parse_job, self._run(f"{JOBS} order by job.id"))))

    def cancel(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Take tickets back and return those that existed; phases in work hand over."""
        given = ({"job_id": number, "abort": True, "delete_job": False} for number in numbers)
        return tuple(one["job_id"] for one in given if self._run(self.sql["cancel_job"], **one) != [(None,)])

    def fetch(self, worker_id: int) -> Placed | None:
        """Give a registered worker, which has none at work, the next ticket; None when there is none.

        One that it was given and has not ended, since an answer of the database was lost, comes first.
        """
        own = f"{JOBS} and status = 'doing' and worker_id = %s"
        with self.connect() as there:
            while True:
                if row := there.execute(own, (worker_id,)).fetchone():
                    if found := parse_job(row):
                        return found
                    _end_job(there, row[0])  # nobody can read it
                [(number, *_)] = there.execute(self.sql["fetch_job"], {"queues": [QUEUE], "worker_id": worker_id})
                if number is None:
                    return None

    def read(self, plan: str) -> Standing:
        """Return the takes of a plan (`Ticket.plan`); one that is held without a ticket in work has died."""
        with self._turn(plan) as there:
            there.execute(
                "update relay_takes set state = 'died', words = 'its worker lost its ticket'"
                " where plan = %s and state = 'held' and not exists"
                " (select from procrastinate_jobs where id = job_id and status = 'doing')",
                (plan,),
            )
            return _read(there, plan)

    def list_plans(self) -> tuple[Ticket, ...]:
        """Return a ticket without a phase for each plan that workers have worked on for a day, or are to."""
        rows = self._run("select distinct plan from relay_takes where taken_at > now() - interval '1 day'")
        known = filter(None, (_parse_plan(plan) for (plan,) in rows))
        return tuple(dict.fromkeys((*known, *(replace(one.ticket, phase_id="") for one in self.list_placed()))))

    def take(self, placed: Placed, worker: str, bid: Bid) -> Take | NotTaken:
        """Take a ticket's phase and set money aside for it, or say why not."""
        plan, phase_id = placed.ticket.plan, placed.ticket.phase_id
        with self._turn(plan) as there:
            before = _read(there, plan)
            if other := before.held.get(phase_id):
                return NotTaken(words=f"phase {phase_id} is at work: {other.worker}")
            unseen = before.find_unseen(bid.before)
            given = {"worker": worker, "seen": bid.seen_usd, "plan": plan, "phase": phase_id, "job": placed.number}
            # What git knows by now of a dead worker's spend is not set aside any more; its own clone knows all of it.
            there.execute(
                "update relay_takes set reserved_usd = case when worker = %(worker)s then 0"
                " else greatest(0, reserved_usd - greatest(0, %(seen)s - seen_usd)) end, seen_usd = %(seen)s"
                " where plan = %(plan)s and phase_id = %(phase)s and state = 'died' and reserved_usd > 0",
                given,
            )
            left = bid.find_left(_read(there, plan).reserved_usd, unseen)
            if unseen is None or (left is not None and left <= 0):
                return bid.refuse(before, phase_id, unseen)
            given |= {"nonce": secrets.token_hex(8), "share": bid.find_share(left, bid.shares)}
            there.execute(
                "insert into relay_takes (nonce, plan, phase_id, job_id, worker, reserved_usd, seen_usd)"
                " values (%(nonce)s, %(plan)s, %(phase)s, %(job)s, %(worker)s, %(share)s, %(seen)s)",
                given,
            )
            return _read(there, plan).held[phase_id]

    def raise_share(self, own: Take, bid: Bid) -> Take | NotTaken:
        """Set all that is left aside for a phase that has spent its share, or say why not."""
        with self._turn(own.plan) as there:
            before = _read(there, own.plan)
            take = before.held.get(own.phase_id)
            if take is None or (take.token, take.nonce) != (own.token, own.nonce):
                return NotTaken(words="another worker has the phase")
            unseen, had = before.find_unseen(bid.before), take.reserved_usd or 0.0
            share = bid.find_share(bid.find_left(before.reserved_usd - had, unseen), 1) or 0.0
            if unseen is None or share + bid.seen_usd <= had + take.seen_usd + _CENT_USD:
                return bid.refuse(before, own.phase_id, unseen)
            there.execute(
                "update relay_takes set reserved_usd = %s, seen_usd = %s where token = %s",
                (share, bid.seen_usd, take.token),
            )
            return replace(take, reserved_usd=share, seen_usd=bid.seen_usd)

    def holds(self, take: Take) -> bool:
        """Return whether a take is still its worker's: the fencing token is checked."""
        held = "select 1 from relay_takes where token = %(token)s and nonce = %(nonce)s and state = 'held'"
        return bool(self._run(held, token=take.token, nonce=take.nonce))

    def take_turn(self, own: Take, *, rides: bool = False) -> Turn:
        """Have the turn to land on the plan's branch for a while, unless another take has it.

        A merge is checked on top of the branch as it is, and is for nothing when another one lands meanwhile. The turn
        saves that; no promise rests on it, so it ends by itself, and with its take.

        Args:
            rides: Whether the take that has the turn may land this one along: all of it is on the remote.
        """
        with self._turn(own.plan) as there:
            row = there.execute(
                "select along, exists (select from relay_takes as other where other.plan = own.plan"
                " and other.token <> own.token and other.state = 'held' and other.lands_until > now())"
                " from relay_takes as own where token = %s",
                (own.token,),
            ).fetchone()
            along, is_busy = row or ("", False)
            if along == "landed":
                return Turn(has_landed=True)
            there.execute(
                "update relay_takes set"
                " lands_until = case when not %(busy)s then now() + make_interval(secs => %(span)s) end,"
                " along = case when along = 'alone' then along when %(rides)s then 'waits' else '' end"
                " where token = %(token)s",
                {"busy": is_busy, "rides": is_busy and rides, "span": _TURN_S, "token": own.token},
            )
            if is_busy:
                return Turn(waits=True)
            riders = there.execute(
                "select phase_id, token from relay_takes where plan = %s and state = 'held' and along = 'waits'"
                " order by token limit %s",
                (own.plan, _MOST_RIDERS if along != "alone" else 0),
            ).fetchall()
            return Turn(riders=dict(riders))

    def give_turn_back(self, own: Take) -> None:
        """Have others land meanwhile."""
        self._run("update relay_takes set lands_until = null where token = %(token)s", token=own.token)

    def note_riders(self, tokens: Collection[int], *, landed: bool) -> None:
        """Note that takes have landed along with another one, or that each of them is to land alone."""
        words = "update relay_takes set along = %(along)s where token = any(%(tokens)s) and state = 'held'"
        self._run(words, along="landed" if landed else "alone", tokens=list(tokens))

    def end(self, take: Take, state: TakeState, words: str = "") -> bool:
        """End a take and free what it had reserved; False: it was not its worker's any more, and nothing changed."""
        ended = self._run(
            "update relay_takes set state = %(state)s, words = %(words)s, reserved_usd ="
            " case when %(state)s = 'died' then 0 else reserved_usd end"  # its worker lives, and has pushed all
            " where token = %(token)s and nonce = %(nonce)s and state = 'held' returning token",
            state=state, words=words, token=take.token, nonce=take.nonce,
        )  # fmt: skip
        return bool(ended)

    def settle_lost(self, takes: Collection[Take]) -> None:
        """Free what dead workers had reserved: what they spent is booked."""
        for take in takes:
            freed = "update relay_takes set reserved_usd = 0 where state = 'died'"
            self._run(f"{freed} and token = %(token)s and nonce = %(nonce)s", token=take.token, nonce=take.nonce)

    def settle_phase(self, plan: str, phase_id: str) -> None:
        """Have a phase that waits for a person be worked on again: a person says so."""
        words = "update relay_takes set is_settled = true where plan = %(plan)s and phase_id = %(phase)s"
        self._run(words, plan=plan, phase=phase_id)

    def finish(self, placed: Placed, *, again_s: float | None = None, taken_back: bool = False) -> None:
        """End a ticket that this worker was given.

        Args:
            again_s: Seconds until the phase is queued again; None: it is not.
            taken_back: Whether a person took it back: it stays in the list, and no worker queues it again.
        """
        with self._turn(placed.ticket.plan) as there:
            _finish(there, placed, again_s, taken_back=taken_back)

    def bury(self, placed: Placed) -> None:
        """End the ticket of a dead worker, and queue its phase again but where too many have died of it."""
        plan = placed.ticket.plan
        with self._turn(plan) as there:
            there.execute(
                "update relay_takes set state = 'died', words = 'its worker died'"
                " where job_id = %s and plan = %s and state = 'held'",
                (placed.number, plan),
            )
            is_parked = placed.ticket.phase_id in _read(there, plan).waits
            _finish(there, placed, None if is_parked else 0.0, taken_back=placed.is_taken_back)


def _read(there: "Connection[Any]", plan: str) -> Standing:
    from psycopg.rows import kwargs_row

    def make(**row: Any) -> Take:
        return Take(**{**row, "state": TakeState(row["state"])})

    with there.cursor(row_factory=kwargs_row(make)) as cursor:
        cursor.execute(_TAKES, (plan,))
        return Standing(takes=tuple(cursor))


def _submit(there: "Connection[Any]", ticket: Ticket, *, follows: bool, wait_s: float) -> bool:
    """Queue a ticket, unless it is in the queue; return whether that was done."""
    done = there.execute(
        "insert into procrastinate_jobs (queue_name, task_name, args, scheduled_at) select 'relay', 'relay.work',"
        " %(args)s::jsonb, case when %(wait)s > 0 then now() + make_interval(secs => %(wait)s) end where coalesce("
        "(select status <> all(%(out)s::procrastinate_job_status[]) from procrastinate_jobs"
        " where task_name = 'relay.work' and args = %(args)s::jsonb order by id desc limit 1), true)",
        {
            "args": json.dumps(asdict(ticket)), "wait": wait_s,
            "out": ["todo", "doing", "aborting", *(["cancelled", "aborted"] if follows else [])],
        },
    )  # fmt: skip
    return done.rowcount > 0


def _finish(there: "Connection[Any]", placed: Placed, again_s: float | None, *, taken_back: bool) -> None:
    _end_job(there, placed.number, keep=taken_back)
    if again_s is not None and not taken_back:
        _submit(there, placed.ticket, follows=True, wait_s=again_s)


def _end_job(there: "Connection[Any]", number: int, *, keep: bool = False) -> None:
    """End a job, which stays in the list as taken back if it is to be kept; one that is gone was a dead worker's."""
    ended = "select procrastinate_finish_job_v1(id, 'aborted', %s) from procrastinate_jobs"
    there.execute(f"{ended} where id = %s and status = 'doing'", (not keep, number))


def _parse_plan(text: str) -> Ticket | None:
    """Return a ticket without a phase for a plan (`Ticket.plan`); None where somebody else has put anything there."""
    try:
        remote, branch, plan_path = msgspec.json.decode(text, type=tuple[str, str, str])
    except (msgspec.DecodeError, RecursionError):
        return None
    return Ticket(remote=remote, branch=branch, plan_path=plan_path, phase_id="")


def parse_job(row: Sequence[Any]) -> Placed | None:
    """Return the ticket of a job; None where somebody else has put anything there that must not be queued."""
    number, args, status, at, is_taken_back, beat_at = row
    try:
        ticket = msgspec.convert(args, Ticket)
    except msgspec.ValidationError:
        return None
    if check_ticket(ticket):
        return None
    return Placed(number=number, ticket=ticket, status=status, at=at, is_taken_back=is_taken_back, beat_at=beat_at)

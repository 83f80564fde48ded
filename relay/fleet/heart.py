"""A worker's heartbeats on a thread of their own, and what it hears from the queue meanwhile."""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from relay.fleet.queue import CHANNEL, JOBS, AwayError, Queue, parse_job
from relay.fleet.takes import Take

if TYPE_CHECKING:
    from psycopg import Connection

_KEPT_S = 86_400.0
_HEARING_S = 0.1
"""How often a heart that listens looks whether its worker ends."""

_Seen = Mapping[tuple[int, datetime | None], int]


class Heart:
    """Beats for a worker on a thread of its own, hears of jobs, of requests to abort, and returns dead workers' jobs.

    Mutable: it says what it last heard. When the database goes away it tells so once, and comes back with it.

    Args:
        tell: Takes a sentence when the database goes away, and one when it is back.
    """

    def __init__(self, queue: Queue, tell: Callable[[str], object]) -> None:
        self._queue, self._tell = queue, tell
        self._over, self._known = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self.wake = threading.Event()
        """Set when there may be something to do."""
        self.worker_id: int | None = None
        """None while the database has not answered."""
        self.take: Take | None = None
        """The take at work, whose token is checked with each beat."""
        self.number = 0
        """The job at work; 0: none."""
        self.has_lost = self.is_taken_back = self.is_away = False
        self._thread = threading.Thread(target=self._run, name="relay-heart", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._known.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def begin(self, number: int) -> None:
        """A job is at work from now on."""
        self.number, self.take, self.has_lost, self.is_taken_back = number, None, False, False

    def require_alive(self) -> None:
        """Raise what ended the thread, if it has ended."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                try:
                    with self._queue.connect() as there:
                        self._live(there)
                except AwayError as error:
                    if not self.is_away:
                        self._tell(f"{error}; what is at work goes on with the money it has, and relay tries again")
                    self.is_away = True
                    self._known.set()
                    self._over.wait(min(1.0, self._queue.beat_s))
        except BaseException as error:  # noqa: BLE001  # the worker's own thread raises it
            self._error = error
            self.wake.set()
            self._known.set()

    def _live(self, there: "Connection[Any]") -> None:
        seen: _Seen = {}
        there.execute(f'listen "{CHANNEL}"')
        while not self._over.is_set():
            self._beat(there)
            seen = self._reap(there, seen)
            if self.is_away:
                self._tell("the database is back")
            self.is_away = False
            self._known.set()
            due_s = time.monotonic() + self._queue.beat_s
            while (left_s := due_s - time.monotonic()) > 0 and not self._over.is_set():
                if any(there.notifies(timeout=min(left_s, _HEARING_S), stop_after=1)):
                    self._beat(there)
                    self.wake.set()
        if not self.number:
            there.execute(self._queue.sql["unregister_worker"], {"worker_id": self.worker_id})

    def _beat(self, there: "Connection[Any]") -> None:
        """Tell that the worker lives, and ask whether what it is at is still its own."""
        take, number = self.take, self.number
        words = "update procrastinate_workers set last_heartbeat = now() where id = %s"
        if not there.execute(words, (self.worker_id,)).rowcount:
            [(self.worker_id,)] = there.execute(self._queue.sql["register_worker"])
        [(is_taken_back, is_held)] = there.execute(
            "select exists (select from procrastinate_jobs where id = %s and abort_requested), exists"
            " (select from relay_takes where token = %s and nonce = %s and state = 'held')",
            (number, take and take.token, take and take.nonce),
        )
        self.is_taken_back = self.is_taken_back or (is_taken_back and self.number == number)
        self.has_lost = self.has_lost or (take is not None and not is_held and self.take is take)

    def _reap(self, there: "Connection[Any]", seen: _Seen) -> _Seen:
        """End the jobs of workers whose heartbeat has stayed the same for so many beats of this one; no clock is asked.

        After an outage every heartbeat is old: this one counts anew, and who lives beats meanwhile.
        """
        found = tuple(filter(None, map(parse_job, there.execute(f"{JOBS} and status = 'doing'"))))
        now = {(one.number, one.beat_at): seen.get((one.number, one.beat_at), 0) + 1 for one in found}
        for one in found:
            if now[one.number, one.beat_at] * self._queue.beat_s > self._queue.stalled_s:
                self._queue.bury(one)
                self.wake.set()
        there.execute(self._queue.sql["prune_stalled_workers"], {"seconds_since_heartbeat": _KEPT_S})
        return now

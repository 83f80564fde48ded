"""A worker's heartbeats on a thread of their own, and what it hears from the queue meanwhile."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Self

from relay.fleet.queue import QUEUE, TASK, AwayError, Queue, parse_job
from relay.fleet.takes import Take

if TYPE_CHECKING:
    from procrastinate import App

_GRACE = 3
"""So many heartbeats long a worker must look dead to another one that sees the database all the while. After an outage,
or when the database's clock jumps, every worker looks dead until its next heartbeat."""
_KEPT_S = 86_400.0
_AGAIN_S = 0.2


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
        self._loop, self._heard = asyncio.new_event_loop(), asyncio.Event()
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
        self._loop.call_soon_threadsafe(self._heard.set)
        self._thread.join()
        self._loop.close()

    def begin(self, number: int) -> None:
        """A job is at work from now on."""
        self.number, self.take, self.has_lost, self.is_taken_back = number, None, False, False

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:  # noqa: BLE001  # the worker's own thread raises it
            self._error = error
            self.wake.set()
            self._known.set()

    def require_alive(self) -> None:
        """Raise what ended the thread, if it has ended."""
        if self._error is not None:
            raise self._error

    async def _live(self) -> None:
        while not self._over.is_set():
            try:
                async with self._queue.open() as app:
                    await self._beat(app)
            except AwayError as error:
                if not self.is_away:
                    self._tell(f"{error}; what is at work goes on with the money it has, and relay tries again")
                self.is_away = True
                self._known.set()
                await asyncio.sleep(min(1.0, self._queue.beat_s))

    async def _beat(self, app: "App") -> None:
        jobs, seen = app.job_manager, dict[int, float]()
        own = app.connector.execute_query_one_async
        listening = asyncio.create_task(self._listen(app))
        try:
            while not self._over.is_set():
                known = "select count(*) as found from procrastinate_workers where id = %(id)s"
                if self.worker_id is None or not (await own(known, id=self.worker_id))["found"]:
                    self.worker_id = await jobs.register_worker()
                await jobs.update_heartbeat(self.worker_id)
                aborts = frozenset(await jobs.list_jobs_to_abort_async(queue=QUEUE))
                self.is_taken_back = self.is_taken_back or self.number in aborts
                take = self.take
                if take is not None and not await asyncio.to_thread(self._queue.holds, take) and self.take is take:
                    self.has_lost = True
                await self._reap(app, seen, aborts)
                if listening.done():
                    listening = asyncio.create_task(self._listen(app))
                if self.is_away:
                    self._tell("the database is back")
                self.is_away = False
                self._known.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._heard.wait(), self._queue.beat_s)
                self._heard.clear()
        finally:
            while not listening.done():  # a cancel that comes between two waits of the library's is lost
                listening.cancel()
                await asyncio.wait({listening}, timeout=_AGAIN_S)
            if self._over.is_set() and self.worker_id is not None and not self.number:
                with contextlib.suppress(Exception):
                    await jobs.unregister_worker(self.worker_id)

    async def _listen(self, app: "App") -> None:
        """Hear of jobs and of requests to abort; what is not heard is found by the next heartbeat."""
        from procrastinate.exceptions import ConnectorException

        with contextlib.suppress(ConnectorException):
            await app.job_manager.listen_for_jobs(on_notification=self._hear, queues=[QUEUE])

    async def _hear(self, **_: Any) -> None:
        self._heard.set()
        self.wake.set()

    async def _reap(self, app: "App", seen: dict[int, float], aborts: Collection[int]) -> None:
        """End the jobs of workers that have looked dead for some heartbeats, as long as this one saw the database."""
        found = await app.job_manager.get_stalled_jobs(task_name=TASK, seconds_since_heartbeat=self._queue.stalled_s)
        stalled, now = {job.id: job for job in found if job.id is not None}, time.monotonic()
        for number in [number for number in seen if number not in stalled]:
            del seen[number]
        for number in stalled:
            seen.setdefault(number, now)
        dead = [job for number, job in stalled.items() if now - seen[number] >= _GRACE * self._queue.beat_s]
        if dead:
            for placed in filter(None, map(parse_job, dead)):
                await asyncio.to_thread(self._queue.bury, placed, taken_back=placed.number in aborts)
            self.wake.set()
        await app.job_manager.prune_stalled_workers(_KEPT_S)

"""A fleet's worker: takes a ticket, works on its phase in a clone, and queues the phases that waited for it."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path

from relay.base.errors import ExitCode, RelayError
from relay.base.interrupts import Interrupts, Urgency
from relay.base.values import dataclass
from relay.fleet.claims import LeaseClock
from relay.fleet.engine import BusyError, EndedError, Engine, Ticket
from relay.fleet.holding import UnfitError
from relay.fleet.overview import AS_REMOTE, find_tickets
from relay.fleet.work import WorkEnd, WorkTask, work
from relay.git.clones import CloneSource, ensure_work_tree
from relay.git.remote import Remote
from relay.git.repository import Repo
from relay.session.events import Noticed, Observe

_LOOK_S = 0.5


def ensure_clone(folder: Path, ticket: Ticket, environ: Mapping[str, str], tell: Callable[[str], object]) -> Repo:
    """Return a work tree on a ticket's branch; finish a clone that a killed worker began.

    Args:
        folder: Where the worker keeps its clones.
        ticket: Names the remote and the branch.
        tell: Takes progress messages of a long first fetch.

    Raises:
        RepoError: The remote cannot be reached, or has no such branch.
    """
    digest = hashlib.sha256(f"{ticket.remote}\0{ticket.branch}".encode()).hexdigest()[:16]
    place = folder / digest
    source = CloneSource(remote=ticket.remote, ref=f"refs/heads/{ticket.branch}", reason=AS_REMOTE)
    return ensure_work_tree(place, source, ticket.branch, environ, tell)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWorker:
    """A worker of the queue."""

    engine: Engine
    place: Path
    """The folder of its clones."""
    environ: Mapping[str, str]
    make_task: Callable[[Remote, Ticket], WorkTask]
    """Reads the settings that hold in a clone."""
    tell: Callable[[str], None]
    observe: Observe
    lease_clock: LeaseClock = field(default_factory=LeaseClock)
    """Shared by all tickets, so that a claim is not watched twice."""

    async def do(self, ticket: Ticket, should_stop: Callable[[], bool]) -> None:
        """Do one ticket.

        Raises:
            BusyError: Another worker has its phase, or the run was interrupted.
            EndedError: The phase stopped; its claim says why.
            UnfitError: This machine cannot work on any ticket.
            asyncio.CancelledError: A person took the ticket back; the phase is handed over by then.
        """
        interrupts, taken_back = Interrupts(), None
        try:
            working = asyncio.create_task(asyncio.to_thread(self._work, ticket, interrupts))
            while not working.done():
                try:
                    await asyncio.wait({working}, timeout=_LOOK_S)
                except asyncio.CancelledError as error:  # the thread goes on: no other ticket beside it
                    taken_back = error
                if taken_back or should_stop():
                    interrupts.request(Urgency.FINISH_TURN)
            end = working.result()
        finally:
            interrupts.close()
        if taken_back:
            self.tell(f"phase {ticket.phase_id} was taken back from the queue: {end.reason}")
            raise taken_back
        is_busy = end.exit_code == ExitCode.INTERRUPTED or (not end.phase_id and not end.is_over)
        whose = "" if end.reason.startswith(f"phase {ticket.phase_id}") else f"phase {ticket.phase_id}: "
        self.tell(f"{whose}{end.reason}{'; it is tried again later' if is_busy else ''}")
        if is_busy:
            raise BusyError(end.reason)
        if end.exit_code != ExitCode.DONE:
            raise EndedError(end.reason)

    def _work(self, ticket: Ticket, interrupts: Interrupts) -> WorkEnd:
        try:
            repo = ensure_clone(self.place, ticket, self.environ, lambda words: self.observe(Noticed(text=words)))
            remote = Remote(repo=repo, name=ticket.remote, environ=self.environ)
            task = replace(self.make_task(remote, ticket), lease_clock=self.lease_clock)
            end = work(task, self.observe, interrupts)
            # A phase that stopped no longer keeps those back that name the same paths.
            if end.exit_code == ExitCode.DONE or (end.phase_id and end.exit_code != ExitCode.INTERRUPTED):
                self.engine.submit(find_tickets(remote, ticket.plan_path), follows=True)
        except UnfitError:
            raise
        except RelayError as error:
            return WorkEnd(exit_code=ExitCode.USER, reason=f"{error} (its clones are in {self.place})")
        return end

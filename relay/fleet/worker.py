"""A worker of the queue: takes a phase, brings it to its end (`relay.fleet.phase`), and takes the next."""

import time
from contextlib import suppress
from dataclasses import replace

from relay.base.errors import RelayError
from relay.fleet.heart import Heart
from relay.fleet.overview import fetch_plan, find_tickets
from relay.fleet.phase import PhaseWork
from relay.fleet.queue import AwayError
from relay.fleet.takes import BusyError, DoneError, LostError, Placed, TakeState, UnfitError
from relay.fleet.workplace import HEARING_S, Workplace
from relay.plan.model import Plan

_LATER_S = 30.0


class Worker(Workplace):
    """Serves the queue on its machine."""

    def serve(self, *, wait: bool = True) -> None:
        """Work on phases, one after the other, until a signal; the phase in work is then handed over.

        Args:
            wait: Whether to wait when the queue is empty.

        Raises:
            RelayError: Nothing can be done on this machine.
        """
        with Heart(self.queue, self.say) as heart:
            looked_s = -self.compare_s
            while not self.interrupts.finish_turn:
                heart.require_alive()
                heart.wake.clear()
                try:
                    if time.monotonic() - looked_s >= self.compare_s:
                        looked_s = time.monotonic()
                        self._reconcile()
                    placed = None if heart.worker_id is None else self.queue.fetch(heart.worker_id)
                    if placed is not None:
                        self._do(heart, placed)
                        continue
                    if not wait and heart.worker_id is not None:
                        return
                except AwayError:
                    if heart.worker_id is None:  # one that never answered is a mistake
                        raise
                    looked_s = -self.compare_s  # whoever has the database again looks at once what it lacks
                ends_s = time.monotonic() + self.queue.beat_s
                while time.monotonic() < ends_s and not heart.wake.is_set():
                    if self.interrupts.wait(HEARING_S / 5):
                        break

    def _reconcile(self) -> None:
        """Queue what can begin, of each plan that the queue knows: whoever should have done so may have been killed."""
        for own in self.queue.list_plans():
            try:
                remote = self.get_remote(self.ensure_clone(own), own)
                _, plan = fetch_plan(remote, own.branch, own.plan_path)
                self.queue.submit(find_tickets(self.queue, plan, own), follows=True)
            except AwayError:
                raise
            except RelayError as error:  # another plan's remote may be well
                self.say(f"{error}", warning=True)

    def _do(self, heart: Heart, placed: Placed) -> None:
        """Do one ticket to its end; what of that the queue does not take is asked again until it does."""
        heart.begin(placed.number)
        again_s: float | None = None
        work: PhaseWork | None = None
        try:
            repo = self.ensure_clone(placed.ticket)
            work = PhaseWork(self, heart, placed, repo, self.get_remote(repo, placed.ticket))
            end = work.run()
            self.say(end.reason, warning=end.state is TakeState.STOPPED)
            again_s = end.wait_s
        except (DoneError, LostError) as error:
            self.say(str(error))
        except BusyError as error:
            self.say(f"{error}; it is tried again later")
            again_s = _LATER_S
        except UnfitError:
            with suppress(BusyError):
                self.ask(lambda: self._finish(heart, placed, None, 0.0))
            raise
        except (RelayError, OSError) as error:
            self.say(f"{error} (its clones are in {self.place}); it is tried again later", warning=True)
            again_s = _LATER_S
        with suppress(BusyError):  # whoever has the ticket next finds what is done
            self.ask(lambda: self._finish(heart, placed, work.plan if work else None, again_s))

    def _finish(self, heart: Heart, placed: Placed, plan: Plan | None, again_s: float | None) -> None:
        """End a ticket, and queue what can begin by it, as the plan was when it landed or was last seen."""
        if not heart.has_lost and heart.number:
            self.queue.finish(placed, again_s=again_s, taken_back=heart.is_taken_back)
        heart.begin(0)
        if plan is not None:
            tickets = find_tickets(self.queue, plan, replace(placed.ticket, phase_id=""))
            self.queue.submit(tickets, follows=True)

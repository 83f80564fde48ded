"""The user's request: which phase is next, and in which hours a run works (``--not-before``, ``--until``)."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from relay.base.errors import ExitCode, FlagError, PlanError
from relay.base.hints import RUN, WHY, Command
from relay.base.interrupts import Interrupts, Urgency
from relay.base.values import dataclass
from relay.base.words import list_some, render_moment, shorten
from relay.plan.model import Phase, Plan
from relay.session.events import Observe, RetryScheduled
from relay.store.plan_state import PlanState, find_disorder
from relay.store.resume import ResumeCase

if TYPE_CHECKING:
    from relay.setup.context import RunEnd

_SHOWN_CHARS = 60
_SHOWN_HEADINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The phases that the user requested."""

    phase_id: str = ""
    """The id of one phase, or of the first of a range; empty for the next one."""
    last_id: str = ""
    """The id of the last phase of a range; empty for one phase."""
    all: bool = True
    """Whether to go on after a phase is done."""
    unchecked: bool = False
    """Whether to tick phases that nothing checks: without a verify command, or with tests that the sandbox breaks."""
    lands_only: bool = False
    """Whether to end where a session would begin."""

    @property
    def text(self) -> str:
        """The phases as typed: ``2``, ``2-4``; empty if none were named."""
        return f"{self.phase_id}-{self.last_id}" if self.last_id else self.phase_id

    def get_named(self, plan: Plan) -> tuple[Phase, ...]:
        """Return the phases that were named, in the plan's order.

        Raises:
            PlanError: There is no such phase, or the last one stands before the first.
        """
        first, last = get_phase(plan, self.phase_id), get_phase(plan, self.last_id or self.phase_id)
        found = tuple(phase for phase in plan.phases if first.start <= phase.start <= last.start)
        if not found:
            words = f"--phase {self.text}: phase {last.id} stands before phase {first.id}"
            raise PlanError(words, hint=f"--phase {last.id}-{first.id}")
        return found

    def list_phases(self, plan: Plan) -> tuple[Phase, ...]:
        """Return the open phases of the request."""
        if self.phase_id:
            known = plan.find_phase(self.phase_id) and plan.find_phase(self.last_id or self.phase_id)
            return tuple(phase for phase in self.get_named(plan) if not phase.done) if known else ()
        if self.all:
            return tuple(phase for phase in plan.phases if not phase.done)
        phase = plan.next_phase()
        return (phase,) if phase else ()


def choose_phase(plan_state: PlanState, selection: Selection, plan_path: str) -> Phase | None:
    """Return the phase to work on; None if nothing of the request is left.

    Args:
        plan_state: The state of the plan; a run can go on from it.
        plan_path: The plan's path in error messages.

    Raises:
        PlanError: The requested phase does not exist, waits for others, or another phase is open; or no phase can
            begin.
    """
    plan, point = plan_state.plan, plan_state.get_point()
    if not selection.phase_id:
        # An open attempt is settled first.
        is_stuck = not (point.phase_id or plan.done) and point.case is ResumeCase.NOTHING_OPEN
        if is_stuck and (error := find_disorder(plan, plan_path)):
            raise error
        return plan.find_phase(point.phase_id)
    wanted = [phase for phase in selection.get_named(plan) if not phase.done]
    if not wanted:
        return None
    if plan_state.goes_on and point.phase_id not in {phase.id for phase in wanted}:
        words = f"phase {point.phase_id} is open and has uncommitted work"
        raise PlanError(words, hint=(Command(words=("run", "--phase", point.phase_id)), ", or ", WHY))
    waits = plan.find_waits()
    ready = [phase for phase in wanted if not waits[phase.id]]
    if not ready:
        phase = wanted[0]
        if error := find_disorder(plan, plan_path, phase):
            raise error
        raise PlanError(f"phase {phase.id} comes after {', '.join(waits[phase.id])}, which is not done", hint=RUN)
    return next((phase for phase in ready if plan_state.goes_on and phase.id == point.phase_id), ready[0])


def get_phase(plan: Plan, phase_id: str) -> Phase:
    """Return a phase of the plan.

    Raises:
        PlanError: There is no phase with this id.
    """
    phase = plan.find_phase(phase_id)
    if phase is None:
        known = ", ".join(phase.id for phase in plan.phases)
        said = describe_headings(plan, phase_id)
        hint = f"{said}; phases: {known}" if said else f"phases: {known}"
        raise PlanError(f"there is no phase {phase_id!r} in the plan", hint=hint)
    return phase


def describe_headings(plan: Plan, phase_id: str) -> str:
    """Return which phases have headings that say `phase_id`, where relay counts differently; empty without one."""
    said = (
        f"the heading `{shorten(phase.heading, _SHOWN_CHARS)}` is phase {phase.id}"
        for phase in plan.list_saying(phase_id)
    )
    return list_some(list(said), _SHOWN_HEADINGS, joint="; ")


def describe_choice(plan: Plan, phase_id: str) -> str:
    """Return which phase was requested if another phase's heading says the same number; else empty."""
    phase, said = plan.find_phase(phase_id), describe_headings(plan, phase_id)
    return f"phase {phase_id} is `{shorten(phase.title, _SHOWN_CHARS)}`; {said}" if phase and said else ""


_LOOK_S = 30.0
"""Longest time between two looks at the clock, so that a machine that slept past the moment notices soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """When a run works."""

    not_before: float | None = None
    """Seconds since the epoch; None to begin at once."""
    until: float | None = None
    """Seconds since the epoch; None for no end."""


def parse_hours(not_before: str | None, until: str | None, *, now: float) -> Hours:
    """Parse ``22:00`` (the next such time in the local zone) or ``2026-11-23T07:00``; None for no hour.

    A beginning that has passed is now: a script may follow relay's own advice late.

    Raises:
        FlagError: The text is no time, the end has passed, or it comes before the beginning.
    """
    begins = None if not_before is None else _parse_moment("--not-before", not_before, now)
    ends = None if until is None else _parse_moment("--until", until, max(begins or now, now))
    return Hours(not_before=begins, until=ends)


def _parse_moment(name: str, text: str, after: float) -> float:
    base = datetime.fromtimestamp(after).astimezone()
    try:
        if len(text) <= len("07:00"):
            clock = datetime.strptime(text, "%H:%M").time()  # noqa: DTZ007  # a time of day, in the zone of `base`
            found = datetime.combine(base.date(), clock).astimezone()
            if found <= base:
                found = datetime.combine(base.date() + timedelta(days=1), clock).astimezone()
        else:
            found = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise FlagError(f"{name} {text!r} is no time, such as 07:00 or 2026-11-23T07:00") from None
    if found <= base and name == "--until":
        raise FlagError(f"{name} {text}: {found:%Y-%m-%d %H:%M} has passed by {base:%Y-%m-%d %H:%M}")
    return found.timestamp()


def work_within(hours: Hours, interrupts: Interrupts, observe: Observe, act: "Callable[[], RunEnd]") -> "RunEnd":
    """Wait for the first hour, act, and hand over at the last hour; return the end of the run."""
    now = time.time()
    if hours.not_before is not None and hours.not_before > now:
        wait_s = hours.not_before - now
        words = f"until {render_moment(hours.not_before, now=now)}, as asked (--not-before)"
        observe(RetryScheduled(attempt=0, wait_s=wait_s, reason=words))
        interrupts.wait(wait_s)  # after an interrupt, `act` sees the requested stop
    with _closing(interrupts, hours.until) as closed:
        end = act()
    if hours.until is None or not closed.is_set() or end.exit_code is not ExitCode.INTERRUPTED:
        return end
    words = f"it is {render_moment(hours.until, now=time.time())} (--until); everything is kept"
    return replace(end, exit_code=ExitCode.STOPPED, reason=words, next_command=RUN)


@contextmanager
def _closing(interrupts: Interrupts, until: float | None) -> Iterator[threading.Event]:
    """Request a stop at `until`, after the current answer and its tools; the yielded event says whether it did."""
    closed, left = threading.Event(), threading.Event()

    def watch(until: float) -> None:
        while (wait_s := until - time.time()) > 0:
            if left.wait(min(wait_s, _LOOK_S)):
                return
        if not interrupts.finish_turn:
            closed.set()
            interrupts.request(Urgency.FINISH_TURN)

    watcher = threading.Thread(target=watch, args=(until,), name="hours", daemon=True) if until is not None else None
    if watcher is not None:
        watcher.start()
    try:
        yield closed
    finally:
        left.set()
        if watcher is not None:
            watcher.join()

"""The contracts of a view of a run.

A view only ever receives facts: it cannot change the run, and a terminal that goes away ends the view, never the run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from relay.base.interrupts import Urgency
from relay.session import events
from relay.session.records import LoggedEvent


class View(Protocol):
    """Shows a run while its `with` block is open.

    Contract:
        `observe` is an `events.Observe`: it returns at once and never raises for what a stream does.
        `note_stop` is called inside a signal's handler, at any moment of the run's thread.
        Leaving the block leaves the terminal as it was found and everything observed shown.
    """

    def observe(self, event: events.Event) -> None:
        """Take one event, that happens now."""

    def replay(self, at: float, event: events.Event) -> None:
        """Take one that happened then; in seconds on the view's clock."""

    def tell(self, record: LoggedEvent, *, phase_id: str) -> None:
        """Take what a phase's own run says: the record is as its own log has it."""

    def note_stop(self, urgency: Urgency) -> None:
        """Say that a stop was asked for and how soon it comes."""

    def note_loss(self) -> None:
        """Say that the run's relay is gone without a word."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SharedView(View, Protocol):
    """A view that steps aside while a person is asked."""

    def suspended(self) -> AbstractContextManager[object]:
        """Leave the terminal to the body, with everything observed shown above it."""


class ClockedView(ABC):
    """What views share that need neither opening nor closing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def observe(self, event: events.Event) -> None:
        """Take one event, that happens now."""
        self.replay(self._clock(), event)

    @abstractmethod
    def replay(self, at: float, event: events.Event) -> None:
        """Take one event of then."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

"""The contracts of a view of a run, and a session's question at the terminal while the view is out of the way.

A view only ever receives facts: it cannot change the run, and a terminal that goes away ends the view, never the run.
"""

import contextlib
import os
import sys
import termios
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from relay.base.interrupts import Interrupted, Interrupts, Urgency
from relay.cli.screen import clean_line, has_person, say
from relay.session import events
from relay.session.events import QuestionAsked
from relay.session.records import LoggedEvent
from relay.setup.context import Ask


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


MAX_ANSWER_CHARS = 1_000
_MAX_LINE_BYTES = 4_096
"""Longer ones a terminal cuts by itself."""


def find_asker(view: SharedView, interrupts: Interrupts, *, asks: bool) -> Ask | None:
    """Return who asks the person at the terminal; None where none is there or `asks` is False.

    Args:
        view: Makes room for the question.
        asks: Whether anybody is to be asked.
    """
    if not asks or not has_person():
        return None
    return partial(_ask, view, interrupts)


def _ask(view: SharedView, interrupts: Interrupts, question: QuestionAsked, left: int) -> str | None:
    """Show a question and read the answer; None when a stop is asked for, or the terminal says no more."""
    if interrupts.finish_turn:
        return None
    with view.suspended(), contextlib.suppress(Interrupted, OSError):
        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before there was a question answers none
        say()
        say(f"question: {clean_line(question.question)}")
        for number, option in enumerate(question.options, 1):
            say(f"  {number}. {clean_line(option)}{' (default)' if option == question.assumed else ''}")
        more = f", {left} more to come" if left else ""
        say(f"A number, your own words, or Enter for the default{more}.", style="dim")
        with interrupts.interruptible(Urgency.FINISH_TURN):
            return _read(question)
    return None


def _read(question: QuestionAsked) -> str | None:
    while True:
        sys.stdout.write("> ")
        sys.stdout.flush()
        line = os.read(sys.stdin.fileno(), _MAX_LINE_BYTES).decode("utf-8", "replace")  # a terminal gives one line
        if not line:
            say()
            return None
        answer = clean_line(line)
        if not answer:
            return question.assumed
        if not answer.isdecimal():
            if len(answer) <= MAX_ANSWER_CHARS:
                return answer
            say(f"{len(answer):,} characters are more than {MAX_ANSWER_CHARS:,}; shorter, please.")
        elif 1 <= int(answer) <= len(question.options):
            return question.options[int(answer) - 1]
        else:
            say(f"There are {len(question.options)} options.")

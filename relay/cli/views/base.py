"""The contract of a view of a run, and the dialogue for a session's question, during which the view is suspended.

A view only receives facts: it cannot change the run. If the terminal goes away, the view ends and the run goes on.
"""

import contextlib
import os
import sys
import termios
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import Self

from relay.base.interrupts import Interrupted, Interrupts, Urgency
from relay.cli.screen import clean_line, has_person, say
from relay.session import events
from relay.session.events import QuestionAsked
from relay.session.records import LoggedEvent, Recorder
from relay.setup.context import Ask


class View(ABC):
    """Shows a run while its `with` block is open.

    Contract:
        `observe` is an `events.Observe`: it returns at once and raises no error of a stream.
        `note_stop` may be called in a signal handler, at any moment of the run's thread.
        When the block ends, every event is shown and the terminal is as it was before.

    Args:
        clock: In seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._recorder = Recorder(clock)

    def observe(self, event: events.Event) -> None:
        """Show an event that happens now."""
        self.tell(self._recorder.record(event))

    @abstractmethod
    def tell(self, record: LoggedEvent, *, phase_id: str = "") -> None:
        """Show an event as a log has it; with `phase_id` it is an event of the job with that phase."""

    @abstractmethod
    def note_stop(self, urgency: Urgency) -> None:
        """Show that the user asked for a stop, and how soon it comes."""

    @abstractmethod
    def note_loss(self) -> None:
        """Show that the run's relay is gone without an end in the log."""

    def suspended(self) -> AbstractContextManager[object]:
        """Show all events, then leave the terminal to the body of the `with` block, for a question to the user."""
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


_MAX_LINE_BYTES = 4_096
"""A terminal cuts longer lines by itself."""


def find_asker(view: View, interrupts: Interrupts, *, asks: bool) -> Ask | None:
    """Return the function that asks the person at the terminal; None if there is no person, or `asks` is False.

    Args:
        view: Suspended during the question.
    """
    if not asks or not has_person():
        return None
    return partial(_ask, view, interrupts)


def _ask(view: View, interrupts: Interrupts, question: QuestionAsked, left: int) -> str | None:
    """Show a question and read the answer; None if the user asks for a stop, or the terminal is closed."""
    if interrupts.finish_turn:
        return None
    with view.suspended(), contextlib.suppress(Interrupted, OSError):
        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # drop input typed before the question
        say(f"\nquestion: {clean_line(question.question)}")
        for number, option in enumerate(question.options, 1):
            say(f"  {number}. {clean_line(option)}{' (default)' if option == question.assumed else ''}")
        more = f", {left} more to come" if left else ""
        say(f"Type a number or your own words, or press Enter for the default{more}.", style="dim")
        with interrupts.interruptible(Urgency.FINISH_TURN):
            while True:
                sys.stdout.write("> ")
                sys.stdout.flush()
                line = os.read(sys.stdin.fileno(), _MAX_LINE_BYTES).decode("utf-8", "replace")  # one line of a terminal
                answer = clean_line(line)
                if not line:
                    say()
                    return None
                if not answer.isdecimal():
                    return answer or question.assumed
                if 1 <= int(answer) <= len(question.options):
                    return question.options[int(answer) - 1]
                say(f"There are {len(question.options)} options.")
    return None

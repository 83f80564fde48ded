"""A session's question at the terminal, while the view is out of the way."""

import contextlib
import os
import select
import sys
import termios
from collections.abc import Callable
from functools import partial

from relay.base.interrupts import Interrupted, Interrupts, Urgency
from relay.cli.screen import has_person, say
from relay.cli.text import clean_line
from relay.cli.views.base import SharedView
from relay.session.events import QuestionAsked
from relay.setup.context import Ask

MAX_ANSWER_CHARS = 1_000
_MAX_LINE_BYTES = 4_096
"""Longer ones a terminal cuts by itself."""
_LOOK_S = 0.5


def find_asker(
    view: SharedView, interrupts: Interrupts, *, asks: bool, look: Callable[[], None] = lambda: None
) -> Ask | None:
    """Return who asks the person at the terminal; None where none is there or `asks` is False.

    Args:
        view: Makes room for the question.
        asks: Whether anybody is to be asked.
        look: Called now and then while the answer is waited for.
    """
    if not asks or not has_person():
        return None
    return partial(_ask, view, interrupts, look)


def _ask(
    view: SharedView, interrupts: Interrupts, look: Callable[[], None], question: QuestionAsked, left: int
) -> str | None:
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
            return _read(question, look)
    return None


def _read(question: QuestionAsked, look: Callable[[], None]) -> str | None:
    while True:
        sys.stdout.write("> ")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
            look()
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

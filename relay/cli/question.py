"""A session's question at the terminal, while the view is out of the way."""

import contextlib
import sys
import termios
from functools import partial

from relay.cli.screen import say, say_fitting
from relay.cli.text import clean_line
from relay.cli.view import SharedView
from relay.interrupts import Interrupted, Interrupts, Urgency
from relay.session.events import QuestionAsked
from relay.setup.context import Ask

MAX_ANSWER_CHARS = 1_000


def find_asker(view: SharedView, interrupts: Interrupts, *, asks: bool) -> Ask | None:
    """Return who asks the person at the terminal; None where none is there or `asks` is False."""
    if not asks or not (sys.stdin.isatty() and sys.stdout.isatty()):
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
        say_fitting(f"question: {clean_line(question.question)}")
        for number, option in enumerate(question.options, 1):
            say_fitting(f"  {number}. {clean_line(option)}{' (default)' if option == question.assumed else ''}")
        more = f", {left} more to come" if left else ""
        say(f"A number, your own words, or Enter for the default{more}.", style="dim")
        with interrupts.interruptible(Urgency.FINISH_TURN):
            return _read(question)
    return None


def _read(question: QuestionAsked) -> str | None:
    while True:
        sys.stdout.write("> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
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

"""`relay run --approve`: one phase, then a question, then the next."""

import os
from collections.abc import Callable, Collection

import click

from relay.cli.screen import has_person, say
from relay.errors import ExitCode
from relay.hints import RUN
from relay.plan.model import Phase, Plan
from relay.setup.place import get_place, load_plan
from relay.state.resume import find_blocked_by
from relay.words import name_item

_ANSWERS = {
    "y": "yes: work on it",
    "s": "skip it in this run, with what comes after it",
    "e": "edit the plan first",
    "q": "stop here",
}


def run_approved(start: Callable[[str], int], plan_option: str | None) -> int:
    """Run phase after phase, each with a person's yes behind the first; without a terminal the first one only.

    Args:
        start: Runs the phase of an id, or ``next``; returns the exit code.
        plan_option: ``--plan`` as typed.

    Raises:
        RelayError: As `start`.
    """
    skipped: set[str] = set()
    code = start("next")
    while code == ExitCode.DONE:
        place = get_place(plan=plan_option, environ=os.environ)
        phase = find_next(load_plan(place), skipped)
        if phase is None:
            return code
        if not has_person():
            say(f"phase {phase.id} — {phase.title} waits for a yes: {place.caller.write(RUN)} --approve")
            return code
        match _ask(phase):
            case "y":
                code = start(phase.id)
            case "s":
                skipped.add(phase.id)
            case "e":
                click.edit(filename=str(place.plan_file))
            case _:
                return code
    return code


def find_next(plan: Plan, skipped: Collection[str]) -> Phase | None:
    """Return the first open phase that was not skipped and waits for nothing; None when there is none."""
    left = (phase for phase in plan.phases if not phase.done and phase.id not in skipped)
    return next((phase for phase in left if not find_blocked_by(plan, phase)), None)


def _ask(phase: Phase) -> str:
    say()
    say(f"next: phase {phase.id} — {phase.title}", style="bold")
    for item in phase.open_items:
        say(f"  {name_item(item.id, item.text)}")
    say("  ".join(f"[{key}] {words}" for key, words in _ANSWERS.items()), style="dim")
    return str(click.prompt("Go on?", type=click.Choice(list(_ANSWERS)), default="y", show_choices=True))

"""`relay run --approve`: one phase, then a question, then the next."""

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import click

from relay.base.errors import ExitCode, RelayError
from relay.base.hints import Command
from relay.base.words import name_item
from relay.cli.screen import has_person, say
from relay.plan.model import Phase, Plan
from relay.setup.context import RunEnd
from relay.setup.place import Place, get_place, load_plan
from relay.store.resume import find_blocked_by

Start: TypeAlias = Callable[[str, Callable[[RunEnd], RunEnd]], int]
_ANSWERS = {
    "y": "yes: work on it",
    "s": "skip it in this run, with what comes after it",
    "e": "edit the plan first",
    "q": "stop here",
}


def run_approved(start: Start, plan_option: str | None, *, as_json: bool) -> int:
    """Run phase after phase, each with a person's yes behind the first; without a terminal the first one only.

    That is a stop with work left where another phase waits.

    Args:
        start: Runs the phase of an id, or ``next``, and has the end of its run say what is next; returns the exit code.
        plan_option: ``--plan`` as typed.

    Raises:
        RelayError: As `start`.
    """
    skipped: set[str] = set()

    def look() -> tuple[Place, Phase | None]:
        place = get_place(plan=plan_option, environ=os.environ)
        return place, find_next(load_plan(place), skipped)

    has_asker = has_person() and not as_json
    tell_next = partial(_tell_next, look, code=ExitCode.DONE if has_asker else ExitCode.STOPPED)
    code = start("next", tell_next)
    while code == ExitCode.DONE:
        place, phase = look()
        if phase is None or not has_asker:
            return code
        match _ask(phase):
            case "y":
                code = start(phase.id, tell_next)
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


def _tell_next(look: Callable[[], tuple[Place, Phase | None]], end: RunEnd, *, code: ExitCode) -> RunEnd:
    try:
        phase = look()[1] if end.exit_code == ExitCode.DONE else None
    except RelayError:  # somebody edits the plan: the next look says so, when this run's end has been told
        return end
    if phase is None:
        return end
    return replace(end, exit_code=code, next_command=Command(words=("run", "--approve")), waits_for=_name(phase))


def _name(phase: Phase) -> str:
    return f"phase {phase.id} — {phase.title}"


def _ask(phase: Phase) -> str:
    say()
    say(f"next: {_name(phase)}", style="bold")
    for item in phase.open_items:
        say(f"  {name_item(item.id, item.text)}")
    say("  ".join(f"[{key}] {words}" for key, words in _ANSWERS.items()), style="dim")
    return str(click.prompt("Go on?", type=click.Choice(list(_ANSWERS)), default="y", show_choices=True))

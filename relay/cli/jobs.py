"""`relay run --jobs N`: the parent's side, and what a child owes its parent."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from relay.base.words import shorten
from relay.cli.options import find_flags
from relay.cli.screen import say_hanging
from relay.cli.sessions import run_sessions
from relay.session.events import Noticed
from relay.setup.place import Place
from relay.store.presence import has_seen_claims

if TYPE_CHECKING:
    from relay.base.interrupts import Interrupts
    from relay.plan.model import Phase, Plan
    from relay.run.hours import Hours
    from relay.setup.context import RunContext, RunEnd, RunRequest

_SHOWN_CHARS = 260
_PASSED_ON = {
    "runner": "--runner", "model": "--model", "reset_at": "--reset-at", "max_legs": "--max-legs",
    "context": "--context", "sandbox": "--sandbox",
}  # fmt: skip
"""Settings that were typed and that each child is told as well; the cap it is told is a part of the whole."""


def get_job_count(options: Mapping[str, Any], phase: str, settings_jobs: int) -> int:
    """Return how many phases may be at work at once.

    Raises:
        click.UsageError: It was typed together with what is one phase at a time.
    """
    alone = [f"--{name}" for name in ("phase", "approve") if (phase != "all" if name == "phase" else options[name])]
    if options["jobs"] is not None and settings_jobs > 1 and alone:
        raise click.UsageError(f"{alone[0]} is for one phase at a time: leave it out, or --jobs")
    return 1 if alone else settings_jobs


def show_waves(plan: "Plan", jobs: int) -> "tuple[Phase, ...]":
    """Say which phases may be side by side; return those that would start."""
    from relay.plan.waves import find_waves

    waves = find_waves(plan, {}, jobs=jobs).waves
    shown = shorten(" │ ".join(" ".join(wave) for wave in waves), _SHOWN_CHARS)
    say_hanging("waves  ", f"{shown}, up to {jobs} at once")
    return tuple(phase for phase in plan.phases if phase.id in waves[0][:jobs]) if waves else ()


def warn_of_claims(ctx: "RunContext") -> None:
    """Say which phases another machine was at work on when this clone last asked; a run asks nobody."""
    if has_seen_claims(ctx.repo):
        from relay.cli.views.claim_lines import list_claimed_elsewhere

        for words in list_claimed_elsewhere(ctx.repo, ctx.plan_path):
            ctx.observe(Noticed(text=words, warning=True))


def run_with_jobs(request: "RunRequest", place: Place, options: Mapping[str, Any], hours: "Hours") -> int:
    """Work through the plan with several phases at once."""
    from relay.cli.views.shapes import make_view
    from relay.fleet.parent import Order, run_jobs
    from relay.run.hours import work_within

    view = make_view(json=options["as_json"], stream=sys.stdout)
    order = Order(
        jobs=request.settings.jobs,
        words=make_job_words(request, options),
        environ={**os.environ, "RELAY_NOTIFY": "off"},  # the parent calls: of one limit, one cap, one end
        unchecked=options["unchecked"],
    )

    def act(ctx: "RunContext") -> "RunEnd":
        warn_of_claims(ctx)
        return work_within(hours, ctx.interrupts, ctx.observe, lambda: run_jobs(ctx, order, view.tell))

    return run_sessions(request, place.caller, act, as_json=options["as_json"], view=view)


def make_job_words(request: "RunRequest", options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the run of a phase is told of what was typed."""
    words = ["--plan", request.plan_path]
    flags = find_flags(options)
    for key, flag in _PASSED_ON.items():
        words += [flag, str(flags[key])] if flags[key] is not None else []
    if flags["network"] is not None:
        words.append("--network" if flags["network"] else "--no-network")
    return (*words, *(["--unchecked"] if options.get("unchecked") else []))


def obey_parent(interrupts: "Interrupts", parent: int | None) -> None:
    """Have a child hand over when its parent dies, and at once where it is dead already; None: it is nobody's child."""
    if parent is None:
        return
    import signal

    from relay.base.interrupts import Urgency

    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
    if os.getppid() != parent:
        interrupts.request(Urgency.FINISH_TURN)


_PR_SET_PDEATHSIG = 1

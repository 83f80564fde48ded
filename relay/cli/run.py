"""`relay run`: work through the plan."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from relay.base.errors import ExitCode
from relay.cli.completion import offer_phases
from relay.cli.jobs import get_job_count, obey_parent, run_with_jobs, show_waves, warn_of_claims
from relay.cli.options import session_options
from relay.cli.screen import say
from relay.cli.sessions import ask_for_setup, make_request, run_sessions, show_end
from relay.session.values import SessionKind

if TYPE_CHECKING:
    from relay.config import Settings
    from relay.plan.model import Phase
    from relay.run.selection import Selection
    from relay.setup.context import RunContext, RunEnd, RunRequest
    from relay.setup.place import Place


@click.command("run", short_help="Work through the plan, one fresh session and one commit per phase.")
@click.option(
    "--phase",
    metavar="next|all|N",
    default="all",
    show_default=True,
    shell_complete=offer_phases,
    help="Which phases to run.",
)
@session_options
@click.option("--max-legs", metavar="N", help="Sessions of one phase before relay asks for a split.")
@click.option(
    "--context", metavar="reset|none|compact|prune", help="What to do when the context fills; reset is relay."
)
@click.option("--allow-dirty", is_flag=True, help="Start with uncommitted changes; they stay out of every commit.")
@click.option("--branch", is_flag=True, help="Make a branch for the plan, relay/<its title>, and work there.")
@click.option(
    "--unchecked",
    is_flag=True,
    help="Tick phases that nothing checks: no verify command, or tests that are red in the sandbox.",
)
@click.option("--approve-setup", is_flag=True, help="Let this repository's setup commands run, now and later.")
@click.option("--not-before", metavar="TIME", help="Send nothing before 22:00, or 2026-11-23T22:00.")
@click.option("--until", metavar="TIME", help="Hand over and stop at 07:00, or 2026-11-23T07:00.")
@click.option("--jobs", type=int, metavar="N", help="Work on so many phases at once, each in a work tree of its own.")
@click.option("--job-of", type=int, hidden=True, help="The process of the relay that started this one.")
@click.option("--approve", is_flag=True, help="Ask between two phases: yes, skip, edit the plan, stop.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; nothing is sent and nothing changed.")
def command(phase: str, *, approve: bool, **options: Any) -> int:
    """Work through the plan: a fresh session for each phase, its checks, one commit.

    An interrupted run is resumed by running it again. After Ctrl-C relay finishes the answer and its tools, hands
    over and stops; a second one stops at once. Nothing is lost either way.
    """
    options["approve"] = approve
    if not approve or phase != "all":
        return start(phase, options)
    if options["dry_run"]:
        return start("next", options)
    from relay.cli.approval import run_approved

    return run_approved(
        lambda one, tell_next: start(one, options, tell_next), options["plan"], as_json=options["as_json"]
    )


def start(phase: str, options: Mapping[str, Any], tell_next: "Callable[[RunEnd], RunEnd]" = lambda end: end) -> int:
    """Run one phase, or all, as the options say; return the exit code.

    Args:
        tell_next: Given how a run ended, returns that with what it waits for.

    Raises:
        RelayError: Something that the user has to change first.
    """
    from relay.fleet.beginning import get_beginning, require_phases, tidy_jobs
    from relay.run.ends import end_without_session
    from relay.run.hours import parse_hours, work_within
    from relay.run.loop import run
    from relay.run.selection import describe_choice
    from relay.session.events import Noticed
    from relay.setup.place import find_source
    from relay.store.situation import ask

    as_json = options["as_json"]
    hours = parse_hours(options["not_before"], options["until"], now=time.time())
    request, place = make_request(SessionKind.RUN, options)
    selection = replace(parse_selection(phase), unchecked=options["unchecked"])
    jobs = get_job_count(options, phase, request.settings.jobs)
    if options["dry_run"]:
        return show_dry_run(request, place, selection, jobs=jobs)
    situation = ask(find_source(place), request.repo)
    if end := end_without_session(request, situation, selection):
        tidy_jobs(request)
        return show_end(end, request, place.caller, as_json=as_json)
    request = require_phases(request, situation.plan, selection)
    ask_for_setup(request, approved=options["approve_setup"], as_json=as_json)
    if options["branch"]:
        from relay.store.own_branch import begin_branch, name_branch

        begin_branch(place.repo, name_branch(situation.plan.title, place.plan_name))
    if get_beginning(request, situation, selection, jobs=jobs).side_by_side:
        return run_with_jobs(request, place, options, hours)

    def act(ctx: "RunContext") -> "RunEnd":
        obey_parent(ctx.interrupts, options["job_of"])
        if not options["job_of"]:
            warn_of_claims(ctx)
            if words := describe_choice(situation.plan, selection.phase_id):
                ctx.observe(Noticed(text=words, warning=True))
        return tell_next(work_within(hours, ctx.interrupts, ctx.observe, lambda: run(ctx, selection)))

    return run_sessions(request, place.caller, act, as_json=as_json)


def parse_selection(phase: str) -> "Selection":
    """Read ``next``, ``all`` or the id of a phase; a variable that was not set is none of these."""
    from relay.run.selection import Selection

    if not phase:
        raise click.UsageError("--phase: found ''; allowed: next, all or the number of a phase")
    if phase in {"next", "all"}:
        return Selection(all=phase == "all")
    return Selection(phase_id=phase, all=False)


def show_dry_run(request: "RunRequest", place: "Place", selection: "Selection", *, jobs: int) -> int:
    """Require what a run requires, as far as it can be known without a model, and say what would follow.

    Raises:
        RelayError: A run could not start.
    """
    from relay.cli.status import Near, show_standing
    from relay.fleet.beginning import Beginning, get_beginning, require_phases
    from relay.run.ends import needs_session
    from relay.run.resume.settlement import require_point
    from relay.run.selection import describe_choice
    from relay.setup.checklist import check_all, require_all
    from relay.setup.place import find_source
    from relay.store.standing import gather_standing

    standing = gather_standing(find_source(place), request.repo)
    situation, begins = standing.situation, Beginning()
    if needs_session(situation, selection, request.plan_path):
        request = require_phases(request, situation.plan, selection)
        begins = get_beginning(request, situation, selection, jobs=jobs)
        require_all(check_all(request))
        if not situation.running:
            require_point(situation, request.plan_path)
    show_standing(standing, place.caller, Near(), why=True)
    if words := describe_choice(situation.plan, selection.phase_id):
        say(words, style="yellow")
    phases: tuple[Phase, ...] = (begins.phase,) if begins.phase else ()
    if begins.side_by_side and begins.open_jobs:
        phases = ()
        say(f"jobs   {', '.join(begins.open_jobs)} first, where their work is")
    elif begins.side_by_side and not situation.running and not situation.goes_on:
        phases = show_waves(situation.plan, jobs)
    show_next(phases, request.settings)
    return ExitCode.DONE


def show_next(begins: "Sequence[Phase]", settings: "Settings") -> None:
    """Say what the next sessions would be; none where there is none, or another relay is at work."""
    from relay.run.commit.readiness import get_commands

    for phase in begins:
        say(f"phase  {phase.id}  {phase.title}")
        say(f"gate   {'; '.join(get_commands(settings, phase)) or 'none: this phase has no Verify: line'}")
        say(f"runner {settings.runner_for(phase.runner)}")
    say(f"model  {settings.model}, hands off at {settings.reset_at.text}")
    say("dry run: nothing was sent and nothing changed")

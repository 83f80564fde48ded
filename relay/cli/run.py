"""`relay run`: work through the plan phase by phase, with a question between phases, or with `--jobs` side by side."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import click

from relay.base.errors import ExitCode, RelayError, RepoError, within
from relay.base.hints import Command
from relay.base.words import list_some, name_item, shorten
from relay.cli.options import SectionedCommand, find_flags, session_options, setup_option
from relay.cli.screen import has_person, say
from relay.cli.sessions import ask_for_setup, make_request, obey_parent, parent_option, run_sessions, show_end
from relay.cli.views.job_lines import warn_of_fleet
from relay.cli.views.shapes import make_view
from relay.config import Settings
from relay.gate.needs import find_test_command
from relay.git.names import list_paths
from relay.git.status import check_state, read_status
from relay.plan.model import Phase, Plan
from relay.plan.waves import find_waves
from relay.run.commit.readiness import get_commands, settle_in
from relay.run.loop import end_without_session, needs_session, run
from relay.run.phases.beginning import find_begun, require_phases, tidy_jobs
from relay.run.phases.parent import Order, run_plan
from relay.run.phases.worktrees import move_jobs
from relay.run.planning.submission import describe_fit
from relay.run.resume import require_point
from relay.run.selection import Selection, choose_phase, describe_choice, parse_hours, work_within
from relay.session.events import Noticed
from relay.session.values import SessionKind
from relay.setup.context import RunContext, RunEnd, RunRequest
from relay.setup.place import Place, find_source, get_place, load_plan
from relay.setup.preconditions import check_all, check_apart, check_plan_file, check_taken, require_all
from relay.store.branches import begin_branch, name_branch
from relay.store.plan_state import ask, summarize_plan
from relay.store.worktree_notes import is_own_tree, read_fleet_sight

_SHOWN_CHARS = 260
_PASSED_ON = ("runner", "model", "reset_at", "max_sessions", "sandbox")
"""Typed settings that relay passes on to each child; a child's cap is a share of the whole."""


def get_job_count(options: Mapping[str, Any], phase: str, settings_jobs: int) -> int:
    """Return the number of phases that may run at once.

    Raises:
        click.UsageError: The user typed --jobs with an option for one phase at a time.
    """
    alone = "--phase" if phase != "all" else "--approve" if options["approve"] else ""
    if options["jobs"] is not None and settings_jobs > 1 and alone:
        raise click.UsageError(f"{alone} and --jobs exclude each other: {alone} is for one phase at a time")
    return 1 if alone else settings_jobs


def _tell_start(ctx: RunContext, known: Sequence[str]) -> None:
    """Note what is known, and what sessions do not see of the user's work; warn of a fleet that is at the plan."""
    status = read_status(ctx.repo)
    unseen = sorted({*status.changed, *status.untracked} - {ctx.plan_path, ctx.ledger_path})
    lost = f"this run does not see what you have not committed: {list_paths(unseen)}" if unseen else ""
    for words in filter(None, (*known, lost)):
        ctx.observe(Noticed(text=words))
    if sight := read_fleet_sight(ctx.repo, ctx.plan_path):
        ctx.observe(Noticed(text=warn_of_fleet(sight), warning=True))


def describe_sizes(place: Place, settings: Settings, plan: Plan, phases: Sequence[Phase]) -> tuple[str, ...]:
    """Return which plan it is, and what the user should know of the sizes of phases before they are paid for."""
    from relay.cli.check import measure_plan

    asked = {phase.id for phase in phases}
    sizes = [size for size in measure_plan(place.root, plan, settings) if size.phase_id in asked]
    return (*place.tell_choice("run"), *describe_fit(plan, sizes))


def make_job_words(request: RunRequest, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the typed options for the run of one phase."""
    words = ["--plan", request.plan_path]
    flags = find_flags(options)
    for key in _PASSED_ON:
        words += [f"--{key.replace('_', '-')}", str(flags[key])] if flags[key] is not None else []
    if flags["network"] is not None:
        words.append("--network" if flags["network"] else "--no-network")
    words += chain.from_iterable(("--verify", command) for command in options.get("verify") or ())
    return (*words, *(["--unchecked"] if options.get("unchecked") else []))


Start: TypeAlias = Callable[[str, Callable[[RunEnd], RunEnd]], int]


def run_approved(start: Start, plan_option: str | None, *, as_json: bool) -> int:
    """Run phase after phase and ask before each but the first. Without a terminal run the first phase only.

    In that case the exit code is "stopped with work left" if another phase waits. The plan is read anew for each.

    Args:
        start: Runs a phase by its id, or ``next``, and lets a function add the next phase to its end; returns the exit
            code.
        plan_option: ``--plan`` as typed.

    Raises:
        RelayError: As `start`.
    """
    has_asker = has_person() and not as_json

    def look() -> Phase | None:
        return load_plan(get_place(plan=plan_option, environ=os.environ)).next_phase()

    def tell_next(end: RunEnd) -> RunEnd:
        try:
            phase = look() if end.exit_code == ExitCode.DONE else None
        except RelayError:  # somebody edits the plan; the next look reports it, after the end of this run
            phase = None
        if phase is None:
            return end
        code, again = ExitCode.DONE if has_asker else ExitCode.STOPPED, Command(words=("run", "--approve"))
        return replace(end, exit_code=code, next_command=again, waits_for=f"phase {phase.id} — {phase.title}")

    code = start("next", tell_next)
    while code == ExitCode.DONE and (phase := look()) and has_asker:
        say(f"\nnext: phase {phase.id} — {phase.title}", style="bold")
        for item in phase.open_items:
            say(f"  {name_item(item.id, item.text)}")
        if not click.confirm("Go on?", default=True):
            return code
        code = start(phase.id, tell_next)
    return code


_SECTIONS = {
    "Times": ("not_before", "until"),
    "Sessions": ("reset_at", "max_sessions", "network", "sandbox"),
    "Gate": ("verify", "unchecked"),
    "Permissions": ("approve_setup",),
}
"""Options behind the everyday ones, which fit a screen of 24 lines in 80 columns with the usage above them."""


@click.command("run", cls=SectionedCommand, sections=_SECTIONS)
@click.argument("plans", nargs=-1, help="Plan files, one after the other.")
@click.option(
    "--phase",
    metavar="PHASES",
    default="all",
    show_default=True,
    help="next, all, N or N-M.",
)
@click.option("--dry-run", is_flag=True, help="Show what a run would do; send and change nothing.")
@click.option("--approve", is_flag=True, help="Ask before each further phase.")
@click.option("--jobs", type=int, metavar="N", help="Work on N phases at once, each in its own work tree.")
@click.option("--branch", is_flag=True, help="Create the branch relay/<plan title> and work there.")
@click.option("--pr/--no-pr", default=None, help="Push, and update the draft request, after each phase.")
@session_options
@click.option("--not-before", metavar="TIME", help="Send nothing before TIME: 22:00 or 2026-11-23T22:00.")
@click.option("--until", metavar="TIME", help="Hand over and stop at TIME: 07:00 or 2026-11-23T07:00.")
@click.option("--max-sessions", metavar="N", help="Stop after N sessions of a phase; suggest a split.")
@click.option("--verify", metavar="COMMAND", multiple=True, help="A command that must pass at the end of each phase.")
@click.option(
    "--unchecked",
    is_flag=True,
    help="Tick phases that nothing checks: no verify command, or tests that are red in the sandbox.",
)
@setup_option
@parent_option
@click.option("--lands-only", is_flag=True, hidden=True, help="End where a session would begin.")
def command(phase: str, *, plans: tuple[str, ...], **options: Any) -> int:
    """Work through the plan: one fresh session and one green commit per phase.

    Run it again after an interruption. Ctrl-C lets the session finish its step and hand over; a second Ctrl-C stops at
    once. No work is lost.
    """
    if plans and (options["plan"] is not None or (phase != "all" and len(plans) > 1)):
        named = "--plan" if options["plan"] is not None else "--phase"
        raise click.UsageError(f"{named} is for one plan: leave it out, or the plan files")
    places: dict[str, str | None] = {} if plans else {"": options["plan"]}
    for plan in plans:  # none is run before all are read
        place = get_place(plan=plan, environ=os.environ)
        load_plan(place)
        places.setdefault(place.plan_name, plan)
    code = int(ExitCode.DONE)
    for name, named_plan in places.items():
        if code == ExitCode.DONE:
            if len(places) > 1 and not options["as_json"]:
                say(name, style="bold")
            code = begin(phase, {**options, "plan": named_plan})
    return code


def begin(phase: str, options: Mapping[str, Any]) -> int:
    """Run one plan, with questions between phases where the user asked for them; return the exit code."""
    if not options["approve"] or phase != "all":
        return start(phase, options)
    if options["dry_run"]:
        return start("next", options)
    plan, as_json = options["plan"], options["as_json"]
    return run_approved(lambda one, tell_next: start(one, options, tell_next), plan, as_json=as_json)


def start(phase: str, options: Mapping[str, Any], tell_next: Callable[[RunEnd], RunEnd] = lambda end: end) -> int:
    """Run one phase or all phases; return the exit code.

    Args:
        tell_next: Adds to the end of a run what it waits for.

    Raises:
        RelayError: The user must change something first.
    """
    as_json = options["as_json"]
    hours = parse_hours(options["not_before"], options["until"], now=time.time())
    request, place = make_request(SessionKind.RUN, options)
    selection = parse_selection(phase)
    selection = replace(selection, unchecked=options["unchecked"], lands_only=options["lands_only"])
    jobs, keep = get_job_count(options, phase, request.settings.jobs), None
    if request.settings.pr and not options["job_of"]:
        from relay.cli.pr import prepare_drafts

        keep = prepare_drafts(request, place, makes_branch=options["branch"])
    if options["dry_run"]:
        return show_dry_run(request, place, selection, jobs=jobs)
    plan_state = ask(find_source(place), request.repo)
    if end := end_without_session(request, plan_state, selection):
        tidy_jobs(request)
        return show_end(end, request, place.caller, as_json=as_json)
    if command := _ask_for_gate(request, place, selection.list_phases(plan_state.plan), options):
        options = {**options, "verify": (command,)}  # each job is told it, too
        request = replace(request, settings=replace(request.settings, verify=(command,)))
    request = require_phases(request, plan_state.plan, selection)
    ask_for_setup(request, approved=options["approve_setup"], as_json=as_json)
    if options["branch"]:
        _begin_branch(request, name_branch(plan_state.plan.title, place.plan_name))
    plan = plan_state.plan
    sizes = describe_sizes(place, request.settings, plan, selection.list_phases(plan))
    view = make_view(json=as_json, stream=sys.stdout)
    is_job = options["job_of"] is not None or is_own_tree(request.repo)
    request, words = replace(request, is_apart=not is_job), make_job_words(request, options)
    environ = {**os.environ, "RELAY_NOTIFY": "off"}  # only the parent notifies
    order = Order(selection=selection, jobs=jobs, words=words, environ=environ)

    def act(ctx: RunContext) -> RunEnd:
        obey_parent(ctx.interrupts, options["job_of"])
        if is_job:
            return work_within(hours, ctx.interrupts, ctx.observe, lambda: run(ctx, selection))
        _tell_start(ctx, (describe_choice(plan, selection.text), *sizes))
        ctx = keep(ctx) if keep else ctx
        return tell_next(work_within(hours, ctx.interrupts, ctx.observe, lambda: run_plan(ctx, order, view.tell)))

    return run_sessions(request, place.caller, act, as_json=as_json, view=view)


def _begin_branch(request: RunRequest, name: str) -> None:
    """Switch to a new branch. What a run refuses is refused before HEAD moves; a branch ends a detached HEAD."""
    plan_file = check_plan_file(request.repo, request.plan_path, request.settings)
    require_all(chain(check_apart(request), (plan_file,), check_taken(request)))
    if state := check_state(request.repo):
        raise RepoError(state)
    begin_branch(request.repo, name, partial(move_jobs, request.repo, request.repo.branch))


def _ask_for_gate(request: RunRequest, place: Place, phases: Sequence[Phase], options: Mapping[str, Any]) -> str:
    """Offer a person at the terminal the project's own test command where phases have no gate; empty: not taken.

    It is offered only where it passes in the sandbox now: a gate that is red before the work proves nothing by itself.
    """
    from relay.cli.gate import try_proposal

    with within(request.plan_path):
        bare = [phase.id for phase in phases if not get_commands(request.settings, phase)]
    is_asked = bare and not (options["unchecked"] or options["as_json"] or options["job_of"]) and has_person()
    found = find_test_command(place.root, request.plan_path) if is_asked else None
    if found is None:
        return ""
    say(f"phase{'s' if bare[1:] else ''} {list_some(bare)}: no verify command checks the ticks")
    gate = try_proposal(found, timeout_s=request.settings.gate_timeout_s)
    if gate is None or not gate.passed:
        return ""
    say(f"verify = [{json.dumps(found.command)}] in relay.toml makes it the gate of every phase", exact=True)
    return found.command if click.confirm("Make it the gate of this run's phases?", default=True) else ""


_PHASES = "allowed: next, all, the number of a phase, or a range such as 2-4"


def parse_selection(phase: str) -> Selection:
    """Parse ``next``, ``all``, the id of a phase, or a range such as ``2-4``.

    Raises:
        click.UsageError: The text is empty, as of an unset shell variable, or lacks an end of a range.
    """
    if not phase:
        raise click.UsageError(f"--phase: found ''; {_PHASES}")
    if phase in {"next", "all"}:
        return Selection(all=phase == "all")
    first, dash, last = phase.partition("-")
    if dash and not (first and last):
        raise click.UsageError(f"--phase: found {phase!r}; {_PHASES}")
    return Selection(phase_id=first, last_id="" if first == last else last, all=False)


def show_dry_run(request: RunRequest, place: Place, selection: Selection, *, jobs: int) -> int:
    """Make all checks of a run that need no model, and print what the run would do.

    Raises:
        RelayError: The run could not start.
    """
    from relay.cli.status import Near, show_summary

    summary = summarize_plan(find_source(place), request.repo)
    plan_state, begun, phase = summary.plan_state, dict[str, str](), None
    if needs_session(plan_state, selection, request.plan_path):
        request = require_phases(request, plan_state.plan, selection)
        begun = dict(find_begun(request.repo, request.plan_path, plan_state.plan))
        phase = choose_phase(plan_state, selection, request.plan_path) if plan_state.point else None
        require_all(check_all(request))
        if not plan_state.running:
            require_point(plan_state, request.plan_path)
    show_summary(summary, place.caller, Near(), why=True)
    plan = settle_in(request.repo, request.plan_path, plan_state.plan, request.repo.head())
    said = describe_sizes(place, request.settings, plan, selection.list_phases(plan))
    for words in filter(None, (describe_choice(plan, selection.text), *said)):
        say(words, style="yellow")
    phases = tuple(one for one in plan.phases if phase and one.id == phase.id)
    if begun:
        phases = ()
        which, verb = ("phase", "has") if len(begun) == 1 else ("phases", "have")
        say(f"first  {which} {list_some(list(begun))}, which {verb} work that has not landed")
    elif jobs > 1 and not plan_state.running:
        waves = find_waves(plan, {}, jobs=jobs).waves
        shown = shorten(" │ ".join(" ".join(wave) for wave in waves), _SHOWN_CHARS)
        say(f"waves  {shown}, up to {jobs} at once")
        phases = tuple(one for one in plan.phases if waves and one.id in waves[0][:jobs])
    settings = request.settings
    for one in phases:
        model, effort = settings.model_for(one.model), settings.effort_for(one.effort)
        say(f"phase  {one.id}  {one.title}")
        say(f"gate   {'; '.join(get_commands(settings, one)) or 'none: this phase has no Verify: line'}")
        say(f"runner {settings.runner_for(one.runner)}")
        say(f"model  {model}{f', effort {effort}' if effort else ''}, hands over at {settings.reset_at_for(model)}")
    say("dry run: relay sent nothing and changed nothing")
    return ExitCode.DONE

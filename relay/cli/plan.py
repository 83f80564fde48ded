"""`relay plan`: have a plan written, changed or split."""

import os
from typing import TYPE_CHECKING, Any

import click

from relay.base.errors import ExitCode
from relay.cli.options import session_options
from relay.cli.screen import say
from relay.cli.sessions import make_request, run_sessions
from relay.session.values import SessionKind

if TYPE_CHECKING:
    from relay.run.planning.planner import PlanTask
    from relay.setup.place import Place


@click.command("plan", short_help="Have PLAN.md written by a session that can only read.")
@click.argument("feature", required=False, help="What is to be built, in a sentence or several.")
@click.option("--revise", metavar="TEXT", help="Change the existing plan as said; what is ticked stays.")
@click.option("--split", metavar="N", help="Split open phase N into smaller ones.")
@click.option("--force", is_flag=True, help="Write a new plan over an unfinished one.")
@click.option("-e", "--edit", is_flag=True, help="Open the plan in your editor afterwards.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: the default of each question holds.")
@session_options
def command(  # one parameter for each option of its own
    feature: str | None,
    *,
    revise: str | None,
    split: str | None,
    force: bool,
    edit: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Have PLAN.md written by a session that explores the repository and can change nothing.

    The plan is checked, written and shown (of a changed one what is different), not committed: read it, change it, then
    `relay run`. What only you can decide you are asked: your answers become constraints of the plan. Without a terminal
    the default of each question holds, and stands in the plan under Assumptions.
    """
    from relay.run.planning.planner import plan_feature, read_existing

    task = make_task(feature, revise=revise, split=split, force=force)
    request, place = make_request(SessionKind.PLAN, options, needs_plan=False)
    before = read_existing(place.root, place.plan_name, task)
    code = run_sessions(
        request, place.caller, lambda ctx: plan_feature(ctx, task), as_json=as_json, asks=not options["yes"]
    )
    if code == ExitCode.DONE and edit:
        click.edit(filename=str(place.plan_file))
    if code == ExitCode.DONE and not as_json:
        show_plan(place, before.text if before else "")
    return code


def make_task(feature: str | None, *, revise: str | None, split: str | None, force: bool) -> "PlanTask":
    """Make the one thing that was asked for.

    Raises:
        click.UsageError: Nothing or more than one thing was asked for.
    """
    from relay.run.planning.planner import PlanTask

    asked = [text for text in (feature, revise, split) if text is not None]
    if len(asked) != 1 or not asked[0].strip():
        raise click.UsageError('say one thing: relay plan "what you want", or --revise TEXT, or --split N')
    if force and feature is None:
        raise click.UsageError("--force goes with a new plan only; --revise and --split never drop what is done")
    return PlanTask(feature=feature or "", revise=revise or "", split=split or "", force=force)


def show_plan(place: "Place", before: str) -> None:
    """Print the plan as it was written, or how it differs from the text before, and what its phases will take."""
    from relay.cli.check import check_file, show_checked

    say()
    text = place.plan_file.read_text(encoding="utf-8", errors="surrogateescape")
    if before:
        _show_changes(before, text)
    else:
        say(text.rstrip("\n"))
    say()
    show_checked(check_file(place, os.environ))


def _show_changes(before: str, after: str) -> None:
    from difflib import unified_diff

    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in unified_diff(before.splitlines(), after.splitlines(), "before", "now", lineterm="", n=2):
        say(line, style=styles.get(line[:1], ""))

"""`relay review`: have a phase, a range of commits or the whole plan looked at by sessions that did not write it."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay import __version__
from relay.base.errors import ExitCode, RelayError
from relay.cli.completion import offer_phases
from relay.cli.options import session_options
from relay.cli.plan import show_plan
from relay.cli.screen import say
from relay.cli.sessions import make_request, run_sessions
from relay.session.values import SessionKind

if TYPE_CHECKING:
    from relay.setup.context import RunContext, RunEnd


def require_place(file: Path) -> None:
    """Make sure, before anything is paid for, that a file can be written.

    Raises:
        RelayError: It cannot.
    """
    place = file if file.exists() else file.absolute().parent
    if not (place.is_dir() or place == file) or not os.access(place, os.W_OK):
        raise RelayError(f"{file} cannot be written", hint=f"is {place} a directory that you may write to?")


@click.command("review", short_help="Have a phase, a range of commits or the whole plan reviewed.")
@click.argument("what", metavar="[PHASE|RANGE]", required=False, shell_complete=offer_phases, help="What is reviewed.")
@click.option("--whole-plan", is_flag=True, help="Hold the finished plan against the repository instead.")
@click.option("--sarif", metavar="FILE", type=click.Path(dir_okay=False), help="Write the findings for code hosts.")
@session_options
def command(what: str | None, sarif: str | None, *, whole_plan: bool, as_json: bool, **options: Any) -> int:
    """Have a phase (the last one that is done, when left out) or a range such as main..HEAD reviewed.

    One fresh session looks for faults, a second one tries to refute each. Both read the work tree as it is now and
    write nothing. The exit code is 4 where a fault was confirmed.

    With --whole-plan one session, which can only read, holds the finished plan against the repository. If something is
    missing, it becomes a new phase behind the others, not committed: read it, then relay run. Otherwise the plan stays
    as it is, to the byte.
    """
    if whole_plan:
        if what is not None or sarif is not None:
            raise click.UsageError("--whole-plan takes no PHASE, RANGE or --sarif")
        return _review_plan(options, as_json=as_json)
    return _review_range(what or "", sarif, options, as_json=as_json)


def _review_plan(options: dict[str, Any], *, as_json: bool) -> int:
    from relay.run.planning.planner import PlanTask, plan_feature, read_existing
    from relay.setup.place import load_plan

    task = PlanTask(converge=True)
    request, place = make_request(SessionKind.CONVERGE, options)
    before = read_existing(place.root, place.plan_name, task)
    code = run_sessions(request, place.caller, lambda ctx: plan_feature(ctx, task), as_json=as_json)
    if code == ExitCode.DONE and not as_json and before and load_plan(place).text != before.text:
        show_plan(place, before.text)
    return code


def _review_range(what: str, sarif: str | None, options: dict[str, Any], *, as_json: bool) -> int:
    from relay.run.commit.review import get_range, review_range
    from relay.run.review import render_sarif

    request, place = make_request(SessionKind.REVIEW, options)
    if sarif is not None:
        require_place(Path(sarif))
    chosen = get_range(request.files, what)

    def act(ctx: "RunContext") -> "RunEnd":
        end, findings = review_range(ctx, chosen)
        if sarif is not None and findings is not None:
            text = json.dumps(render_sarif(findings, version=__version__, name=chosen.name), indent=1)
            Path(sarif).write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        return end

    code = run_sessions(request, place.caller, act, as_json=as_json)
    if sarif is not None and not as_json and Path(sarif).exists():
        say(f"written: {os.fspath(sarif)}")
    return code

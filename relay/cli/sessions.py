"""What `relay run` and `relay plan` share: settings, the view, the collaborators, one act, an exit code."""

import gc
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relay.cli.boundary import note_caller
from relay.cli.options import find_flags
from relay.errors import ConfigError, FlagError, PlanError, RepoError
from relay.hints import Caller
from relay.session.events import RunEnded
from relay.setup.place import Place, find_settings, get_place, load_plan

if TYPE_CHECKING:
    from relay.setup.context import RunContext, RunEnd
    from relay.setup.request import RunRequest


def make_request(command: str, options: Mapping[str, Any]) -> tuple["RunRequest", Place]:
    """Turn a command's options into a request.

    Raises:
        RelayError: There is no repository, the plan is not in it, or a setting is not allowed.
        click.UsageError: A value that was typed is not allowed.
    """
    from relay.setup.request import RunRequest

    place = get_place(plan=options["plan"], environ=os.environ)
    note_caller(place.caller)
    if place.repo is None:
        raise RepoError("there is no git repository here", hint="git init")
    if Path(place.plan_name).is_absolute():
        raise ConfigError(f"{place.plan_name} is not in this repository", hint="a plan is committed with the work")
    try:
        settings = find_settings(
            find_flags(options), os.environ, place.root, plan_settings=_read_plan_settings(place, command)
        )
    except FlagError as error:
        raise click.UsageError(str(error)) from error
    request = RunRequest(
        command=command,
        repo=place.repo,
        settings=settings,
        plan_path=place.plan_name,
        allow_dirty=bool(options.get("allow_dirty")),
        environ=os.environ,
    )
    return request, place


def _read_plan_settings(place: Place, command: str) -> Mapping[str, Any]:
    """Return the front matter; a plan that is about to be written need not be readable yet."""
    try:
        return load_plan(place).settings
    except PlanError:
        if command != "plan":
            raise
        return {}


def render_end(end: "RunEnd", caller: Caller) -> RunEnded:
    """Return the event that tells the user how the command ended."""
    return RunEnded(
        exit_code=end.exit_code,
        reason=caller.write(end.reason),
        next_command=caller.write(end.next_command or ""),
        spent_usd=end.spent.cost_usd,
        estimated=end.spent.estimated,
    )


def show_end(end: "RunEnd", caller: Caller, *, as_json: bool) -> int:
    """Tell how a command ended that needed no session."""
    from relay.cli.view import make_view

    with make_view(json=as_json, stream=sys.stdout) as view:
        view.observe(render_end(end, caller))
    return end.exit_code


def run_sessions(request: "RunRequest", caller: Caller, act: "Callable[[RunContext], RunEnd]", *, as_json: bool) -> int:
    """Open everything, act, tell how it ended, close everything."""
    from relay.cli.view import make_view
    from relay.interrupts import Interrupts
    from relay.sandbox.harden import prepare_process
    from relay.setup.open import open_run

    prepare_process()
    interrupts = Interrupts()
    view = make_view(json=as_json, stream=sys.stdout)
    try:
        with interrupts.installed(view.note_stop), view, open_run(request, view.observe, interrupts) as ctx:
            gc.freeze()  # what is loaded by now stays: nothing of it has to be looked through again
            gc.enable()
            ended = render_end(act(ctx), caller)
            ctx.observe(ended)
    finally:
        interrupts.close()
    return ended.exit_code

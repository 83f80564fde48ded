"""`relay work`: one phase of a plan that many machines work on."""

import math
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from relay.base.errors import ExitCode
from relay.cli.completion import offer_phases
from relay.cli.options import session_options
from relay.cli.run import parse_selection
from relay.cli.sessions import ask_for_setup, find_left_questions, make_request
from relay.session.values import SessionKind

if TYPE_CHECKING:
    from relay.base.interrupts import Interrupts
    from relay.fleet.work import WorkEnd, WorkTask
    from relay.session.events import Observe

_SILENT_S = 3_600.0
"""How long a remote that answered before is asked again."""
_LOST_S = 300.0
"""How long a remote that has lost an object of a claim is asked again: its worker may push another one."""
_MOST_CUT_OFF = 3
"""How often in a row a worker goes on behind a git, or a run of its own, that the system ended."""
_POLL_S = 20.0
"""How often a remote is asked whether a phase can begin by now."""


@click.command("work", short_help="Work on one phase of a plan that many machines share.")
@click.option(
    "--phase",
    metavar="next|all|N",
    default="next",
    show_default=True,
    shell_complete=offer_phases,
    help="Which phases: the first that is free, one after the other until the plan is done, or this one.",
)
@click.option(
    "--remote", metavar="NAME", default="origin", show_default=True, help="Where plan, claims and results are."
)
@click.option(
    "--lease",
    metavar="SECONDS",
    default=300,
    type=click.IntRange(15, 3_600),
    show_default=True,
    help="How long a claim holds without a sign of life.",
)
@click.option("--approve-setup", is_flag=True, help="Let this repository's setup commands run, now and later.")
@session_options
def command(
    phase: str, *, as_json: bool, remote: str, lease: int, approve_setup: bool, **options: Any
) -> int:  # its options
    """Claim a phase on the remote, run it in a work tree of its own, land it, and push it.

    Any number of machines may do so at once. A phase is claimed by one, with what it may cost; what a machine that died
    had pushed of it, another one goes on with. Only refs that relay made are pushed, and the plan's branch, forward.
    """
    from relay.base.interrupts import Interrupts
    from relay.cli.run import make_job_words
    from relay.cli.views.shapes import make_view
    from relay.fleet.work import WorkTask
    from relay.git.remote import Remote
    from relay.sandbox.memory import prepare_process
    from relay.session.events import RunEnded
    from relay.setup.preconditions import check_repository, require
    from relay.store.spend import read_plan_cost

    request, place = make_request(SessionKind.RUN, options)
    require(check_repository(request.repo))
    ask_for_setup(request, approved=approve_setup, as_json=as_json)
    task = WorkTask(
        main=request.repo,
        remote=Remote(repo=request.repo, name=remote, environ=os.environ),
        plan_path=request.plan_path,
        settings=request.settings,
        words=make_job_words(request, options),
        environ=dict(os.environ),
        phase_id=parse_selection(phase).phase_id,
        lease_s=lease,
    )
    prepare_process()
    interrupts = Interrupts()
    view = make_view(json=as_json, stream=sys.stdout)
    try:
        with interrupts.installed(view.note_stop), view:
            end = work_on(task, view.observe, interrupts, goes_on=phase == "all")
            spent = read_plan_cost(task.main, task.plan_path).spent
            ended = RunEnded(
                exit_code=end.exit_code,
                reason=end.reason,
                next_command=place.caller.write(end.next_command),
                spent_usd=spent.cost_usd,
                estimated=spent.estimated,
                questions=find_left_questions(request.files),
            )
            view.observe(ended)
    finally:
        interrupts.close()
    return end.exit_code


def work_on(
    task: "WorkTask", observe: "Observe", interrupts: "Interrupts", *, goes_on: bool, poll_s: float = _POLL_S
) -> "WorkEnd":
    """Work on one phase, or on one after the other until the plan is done or needs a person.

    Raises:
        RelayError: The remote cannot be reached, or something here has to be changed first.
    """
    import time

    from relay.fleet.work import work
    from relay.git.command import CutOffError
    from relay.git.remote import RemoteError
    from relay.session.events import Noticed

    silent_s: float | None = None
    told = ""
    has_worked = False
    cut_off = 0
    while True:
        try:
            end = work(task, observe, interrupts)
        except (RemoteError, CutOffError) as error:
            now = time.monotonic()
            silent_s = now if silent_s is None else silent_s
            cut_off += isinstance(error, CutOffError)
            most_s = _find_patience_s(error, goes_on=goes_on, has_worked=has_worked)
            if now - silent_s > most_s or cut_off > _MOST_CUT_OFF or interrupts.wait(poll_s):
                raise
            observe(Noticed(text=f"{error}; it is tried again", warning=True))
            continue
        has_worked, silent_s = True, None
        if not goes_on or interrupts.finish_turn:
            return end
        is_cut_off = bool(end.phase_id) and end.exit_code == ExitCode.INTERRUPTED  # by the system: nobody asked for it
        cut_off = cut_off + 1 if is_cut_off else 0
        if end.is_over or cut_off > _MOST_CUT_OFF:
            return end
        told = "" if end.phase_id else _tell_wait(end.reason, told, observe, poll_s)
        if not end.phase_id and interrupts.wait(poll_s):
            return end


def _find_patience_s(error: Exception, *, goes_on: bool, has_worked: bool) -> float:
    """Return how long it is tried again what ended like this; below 0: not at all."""
    from relay.fleet.claims import ContentionError
    from relay.git.command import CutOffError
    from relay.git.remote import LostObjectError

    match error:
        case ContentionError() | CutOffError():  # where many workers begin at once some lose every race at first
            return math.inf
        case LostObjectError():
            return _LOST_S if goes_on else -1.0
        case _:
            return _SILENT_S if goes_on and has_worked else -1.0


def _tell_wait(reason: str, told: str, observe: "Observe", poll_s: float) -> str:
    """Say why nothing can be done now, unless that was told last; return what was."""
    import re

    from relay.session.events import Noticed

    words = re.sub(r"[0-9]+ s\b", "", reason)  # the time that is left is another one each time
    if words != told:
        observe(Noticed(text=f"{reason}; looks again every {poll_s:g} s"))
    return words

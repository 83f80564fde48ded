"""`relay converge`: is everything there that the finished plan asks for?"""

from typing import Any

import click

from relay.base.errors import ExitCode
from relay.cli.options import session_options
from relay.cli.plan import show_plan
from relay.cli.sessions import make_request, run_sessions
from relay.session.values import SessionKind


@click.command("converge", short_help="Have the finished plan held against the repository.")
@session_options
def command(*, as_json: bool, **options: Any) -> int:
    """Have a session that can only read hold the finished plan against the repository.

    What is missing becomes a new phase behind the others, not committed: read it, then relay run. Where nothing is
    missing the plan stays as it is, to the byte.
    """
    from relay.run.planning.planner import PlanTask, plan_feature, read_existing
    from relay.setup.place import load_plan

    task = PlanTask(converge=True)
    request, place = make_request(SessionKind.CONVERGE, options)
    before = read_existing(place.root, place.plan_name, task)
    code = run_sessions(request, place.caller, lambda ctx: plan_feature(ctx, task), as_json=as_json)
    if code == ExitCode.DONE and not as_json and before and load_plan(place).text != before.text:
        show_plan(place, before.text)
    return code

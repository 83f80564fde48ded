"""`relay agents`: the agents that can run sessions, and what is missing for each."""

import json
import os

import click

from relay.cli.screen import say, say_json
from relay.errors import ExitCode


@click.command("agents", short_help="Show the agents that can run sessions here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(*, as_json: bool) -> int:
    """Show which agents can run sessions (--runner NAME), where each was found, its version and the tested one.

    Each runs in relay's sandbox as a whole, with the key held outside of it. Exit status 1 when none is installed.
    """
    from relay.setup.agents import examine_agents

    found = examine_agents(os.environ)
    if as_json:
        rows = [
            {"name": a.name, "title": a.title, "program": a.program, "version": a.version, "tested": a.tested}
            | {"missing": a.missing, "install": a.install}
            for a in found
        ]
        say_json(json.dumps(rows, ensure_ascii=True))
    else:
        for agent in found:
            said = f"{agent.version or 'unknown version'}, tested {agent.tested}: {agent.program}"
            say(f"{agent.name:<10}{agent.title:<14}{agent.missing or said}")
            if agent.missing:
                say(f"{'':<24}{agent.install}")
    return ExitCode.USER if all(agent.missing for agent in found) else ExitCode.DONE

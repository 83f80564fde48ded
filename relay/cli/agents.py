"""`relay agents`: the agents that can run sessions, what is missing for each, and whether they work here."""

import os
from typing import TYPE_CHECKING

import click

from relay.base.errors import ExitCode
from relay.base.hints import AT_ROOT
from relay.cli.doctor import render_check, show_finding
from relay.cli.options import json_option
from relay.cli.screen import say, say_document

if TYPE_CHECKING:
    from relay.config import Settings
    from relay.setup.preconditions import Finding
    from relay.setup.trials import AgentFound

_ALL = "all"
_SHOWN = ("name", "title", "version", "tested", "usage", "steering", "tools", "login")
_COLUMNS = "{:<10}{:<15}{:<11}{:<10}{:<9}{:<10}{:<11}{}"


@click.command("agents", short_help="Show the agents that can run sessions here, or try them.")
@click.option(
    "--try",
    "tried",
    metavar="[NAME]",
    is_flag=False,
    flag_value=_ALL,
    help="Try one, or all that are installed: a session in the sandbox on a rehearsed model. It costs nothing.",
)
@json_option
def command(*, tried: str | None, as_json: bool) -> int:
    """Show which agents can run sessions (--runner NAME), their version and the tested one, and what each can do.

    Each runs in relay's sandbox as a whole, with the key held outside of it. Exit status 1 when none is installed; with
    --try, when the one that was named does not work here, or none does.
    """
    from relay.setup.place import find_settings, get_place
    from relay.setup.trials import examine_agents

    place = get_place(plan=None, environ=os.environ, needs_repo=False)
    settings = find_settings({}, os.environ, place.root, plan=None)
    found = examine_agents(settings, os.environ)
    if tried is not None:
        return _try(found, tried, settings, as_json=as_json)
    if as_json:
        say_document({"agents": [_render(agent) for agent in found]})
    else:
        _show(found)
    return ExitCode.USER if all(agent.missing for agent in found) else ExitCode.DONE


def _render(agent: "AgentFound") -> dict[str, str]:
    profile = agent.profile
    return {
        "name": profile.name,
        "title": profile.title,
        "program": agent.program,
        "version": agent.version,
        "tested": profile.tested,
        "engine": agent.engine,
        "engine_tested": profile.engine.tested if profile.engine else "",
        "usage": profile.usage,
        "steering": "yes",
        "tools": profile.tools,
        "login": agent.login,
        "missing": agent.missing,
        "install": profile.package,
    }


def _show(found: "tuple[AgentFound, ...]") -> None:
    head = _COLUMNS.format("name", "agent", "found", "tested", "usage", "steering", "tools", "login")
    say(head, style="dim")
    for agent in found:
        row = _render(agent) | {"version": "-" if agent.missing else agent.version or "unknown"}
        say(_COLUMNS.format(*(row[name] for name in _SHOWN)), style="dim" if agent.missing else "")
        if agent.missing:
            say(f"{'':<10}{agent.missing}: {row['install'] or agent.profile.way}", style="dim")
        elif engine := agent.profile.engine:
            whose = "of its own" if engine.variable else "on PATH"
            words = (
                f"runs the {engine.program} {whose}: {agent.engine or 'version unknown'}, tested with {engine.tested}"
            )
            say(f"{'':<10}{words}", style="dim")
    say()
    say("usage: exact, by relay's gateway; ~ as the agent tells it. `relay agents --try NAME` tries one for nothing.")


def _try(found: "tuple[AgentFound, ...]", name: str, settings: "Settings", *, as_json: bool) -> int:
    from relay.setup.preconditions import State

    chosen = [agent for agent in found if name in {agent.profile.name, _ALL}]
    if not chosen:
        raise click.UsageError(f"--try: found {name!r}; allowed: {', '.join(agent.profile.name for agent in found)}")
    works, rows = False, []
    for agent in chosen:
        findings = _run_trial(agent, settings)
        ready = all(finding.state is not State.MISSING for finding in findings)
        works = works or ready
        rows.append(
            {"name": agent.profile.name, "ready": ready, "findings": [render_check(f, AT_ROOT) for f in findings]}
        )
        if not as_json:
            _show_trial(agent, findings, ready=ready)
    if as_json:
        say_document({"trials": rows})
    return ExitCode.DONE if works else ExitCode.USER


def _run_trial(agent: "AgentFound", settings: "Settings") -> "tuple[Finding, ...]":
    from relay.runners.registry import list_runners
    from relay.sandbox.bwrap import find_bwrap
    from relay.sandbox.memory import prepare_process
    from relay.setup.trials import try_agent

    prepare_process()
    kind = list_runners(settings)[agent.profile.name]
    return try_agent(agent, kind, settings, os.environ, bwrap=find_bwrap())


def try_for_use(agent: "AgentFound", settings: "Settings") -> tuple[bool, bool]:
    """Try an agent and print the findings; return whether it can run sessions here, and whether it needs its login."""
    from relay.setup.preconditions import State

    findings = _run_trial(agent, settings)
    missing = {finding.name for finding in findings if finding.state is State.MISSING}
    uses_login = missing == {"key"} and agent.has_login
    _show_trial(agent, findings, ready=not missing or uses_login)
    return not missing or uses_login, uses_login


def _show_trial(agent: "AgentFound", findings: "tuple[Finding, ...]", *, ready: bool) -> None:
    profile = agent.profile
    say(f"{profile.title} ({profile.name})", style="bold")
    for finding in findings:
        show_finding(finding, AT_ROOT.write(finding.hint))
    say(f"relay run --runner {profile.name} {'can work here' if ready else 'cannot work here yet'}", style="bold")
    say()

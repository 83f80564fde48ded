"""`relay doctor`: check this machine, or one thing on it: a model, the agents, notifications, the sandbox."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from relay.base.errors import ConfigError, ExitCode
from relay.base.hints import AT_ROOT, Caller
from relay.base.words import count
from relay.cli.boundary import note_place
from relay.cli.documents import AgentTrial, DoctorDocument, DoctorFinding, EffectiveSetting, FoundAgent, fill
from relay.cli.options import json_option, offer_models, offer_runners
from relay.cli.screen import complain, say, say_document
from relay.cli.sessions import make_request
from relay.config import Settings
from relay.config.model import OWN_LOOP
from relay.config.sources import show_user_file
from relay.git.notes import lock_worktree
from relay.news.notifier import TRIAL, Notifier
from relay.runners.registry import list_runners
from relay.sandbox.bwrap import find_bwrap
from relay.sandbox.process import prepare_process
from relay.sandbox.visibility import take_inventory
from relay.session.values import SessionKind
from relay.setup.doctor import Report, examine
from relay.setup.place import find_settings, get_place
from relay.setup.preconditions import Finding, State
from relay.setup.trials import AgentFound, estimate_trial, examine_agents, try_agent, try_model
from relay.setup.workspace import open_own_workspace
from relay.store.checkpoints import drop_snapshots, sort_snapshots

DAYS = 30
"""git keeps unreachable commits as long (gc.reflogExpireUnreachable)."""
_DAY_S = 86_400
_MARKS = {State.OK: "ok", State.MISSING: "PROBLEM", State.WARNING: "warning", State.INFO: "-"}
_STYLES = {State.OK: "green", State.MISSING: "bold red", State.WARNING: "yellow", State.INFO: ""}


_SECTIONS = ("model", "agent", "notify", "sandbox", "gc")
"""Options that show one thing in place of the whole report; only one of them can be typed."""


@click.command("doctor")
@click.option(
    "--model",
    metavar="ID",
    shell_complete=offer_models,
    help="Try this model instead, with two or three small paid requests.",
)
@click.option(
    "--agent",
    metavar="[NAME|all]",
    is_flag=False,
    flag_value="",
    shell_complete=offer_runners,
    help="List the agents that can run sessions; with a name, try that one in a sandboxed session; free.",
)
@click.option("--notify", is_flag=True, help="Send a message to each recipient of notifications, and show the answers.")
@click.option("--sandbox", is_flag=True, help="List what a session's commands can see, write and reach.")
@click.option(
    "--gc",
    metavar="[DAYS]",
    is_flag=False,
    flag_value=DAYS,
    type=click.IntRange(0, 36_500),
    help=f"Delete checkpoints of committed work that are older than DAYS, {DAYS} by default.",
)
@click.option("--runner", metavar="NAME", shell_complete=offer_runners, help="Check for this runner of sessions.")
@click.option("--settings", "with_settings", is_flag=True, help="Also show each setting and where it comes from.")
@json_option
def command(*, runner: str | None, with_settings: bool, as_json: bool, **sections: Any) -> int:
    """Check what relay needs: git, identity, key, model, sandbox, rules.

    Missing things come first, then warnings, then the rest. relay never shows the key. Exit status 1 if something that
    `relay run` needs is missing.

    --model, --agent, --notify, --sandbox and --gc do one thing alone. --model first names the price of its requests,
    and prints the model's table for your settings. --gc keeps the checkpoints of open phases, of work that no branch
    has committed, and what records spending and rewound work.
    """
    typed = [name for name in _SECTIONS if sections[name] not in {None, False}]
    if len(typed) > 1:
        raise click.UsageError(f"type only one of --{' and --'.join(typed)}")
    if as_json and typed in (["notify"], ["gc"]):
        raise click.UsageError(f"--{typed[0]} prints no JSON")
    model, agent, days = (sections[name] for name in ("model", "agent", "gc"))
    if model is not None:
        return _try_model({"model": model, "runner": runner}, as_json=as_json)
    if agent is not None:
        return _check_agents(agent, as_json=as_json)
    if sections["notify"]:
        return _notify()
    if sections["sandbox"]:
        return _show_inventory(as_json=as_json)
    if days is not None:
        return _drop_checkpoints(days)
    report = examine(Path.cwd(), os.environ, {"runner": runner})
    if as_json:
        settings = {key: EffectiveSetting(value=value, origin=origin) for key, value, origin in report.settings}
        found = _render(report.findings, report.caller)
        ready, advice = not report.missing, report.next_command
        say_document(DoctorDocument(ready=ready, findings=found, settings=settings, next=advice))
    else:
        _show_report(report, with_settings=with_settings)
    return ExitCode.USER if report.missing else ExitCode.DONE


def _try_model(flags: Mapping[str, str | None], *, as_json: bool) -> int:
    place = get_place(plan=None, environ=os.environ, needs_repo=False)
    settings = find_settings(flags, os.environ, place.root, plan=None)
    kind = list_runners(settings)[OWN_LOOP]  # whatever runs the sessions: an agent runs in a sandbox, on a repository
    kind.get_key(os.environ)
    complain(estimate_trial(settings))
    trial = try_model(kind, settings, os.environ)
    missing = any(finding.state is State.MISSING for finding in trial.findings)
    if as_json:
        found = _render(trial.findings, place.caller)
        say_document(DoctorDocument(ready=not missing, findings=found, table=trial.table))
    else:
        _show_findings(trial.findings, place.caller)
        if trial.table:
            say(f"\nAs it stands in {show_user_file(os.environ)}:\n\n{trial.table}")
    return ExitCode.USER if missing else ExitCode.DONE


def _show_report(report: Report, *, with_settings: bool) -> None:
    """Print the findings, then the settings, then the verdict."""
    _show_findings(report.findings, report.caller)
    if with_settings and report.settings:
        say()
        width = max(len(key) for key, _, _ in report.settings)
        say("settings, strongest source first: flag, RELAY_*, plan, relay.toml, your config, default", style="dim")
        for key, value, origin in report.settings:
            say(f"  {key:<{width}}  {value}  ({origin})", style="dim" if origin == "default" else "")
    say()
    names = ", ".join(dict.fromkeys(finding.name for finding in report.missing))
    say(f"relay run cannot work here yet: {names}" if names else "relay run can work here", style="bold")
    if report.next_command:
        say(f"next: {report.next_command}")


def _show_findings(findings: Iterable[Finding], caller: Caller) -> None:
    """Print findings, each with its details and its hint."""
    for finding in findings:
        say(f"{_MARKS[finding.state]:<8} {finding.name:<11} {finding.words}", style=_STYLES[finding.state])
        for detail in finding.details if finding.state is not State.OK else ():
            say(f"{'':<21}{detail}", style="dim")
        if hint := caller.write(finding.hint):
            first, *more = hint.splitlines()
            say("\n".join((f"{'':<21}do: {first}", *(f"{'':<25}{line}" for line in more))))


def _render(findings: Iterable[Finding], caller: Caller) -> tuple[DoctorFinding, ...]:
    return tuple(fill(DoctorFinding, finding, hint=caller.write(finding.hint)) for finding in findings)


_ALL = "all"
_SHOWN = ("name", "title", "found", "tested", "usage", "steering", "tools", "login")
_COLUMNS = "{:<10}{:<15}{:<11}{:<10}{:<9}{:<10}{:<11}{}"


def _check_agents(name: str, *, as_json: bool) -> int:
    """List the agents, or try one of them or all; each runs inside relay's sandbox and never sees the key."""
    place = get_place(plan=None, environ=os.environ, needs_repo=False)
    settings = find_settings({}, os.environ, place.root, plan=None)
    agents = examine_agents(settings, os.environ)
    if name:
        return _try(agents, name, settings, as_json=as_json)
    rows = [
        fill(
            FoundAgent,
            agent.profile,
            program=agent.program,
            steering="yes",
            login=agent.login,
            missing=agent.missing,
            install=agent.profile.package,
        )
        for agent in agents
    ]
    if as_json:
        say_document({"agents": rows})
        return ExitCode.USER if all(agent.missing for agent in agents) else ExitCode.DONE
    say(_COLUMNS.format(*_SHOWN).replace("title", "agent", 1), style="dim")
    for row, agent in zip(rows, agents, strict=True):
        cells = [("-" if row.missing else "yes") if one == "found" else getattr(row, one) for one in _SHOWN]
        say(_COLUMNS.format(*cells), style="dim" if row.missing else "")
        if row.missing:
            say(f"{'':<10}{row.missing}: {row.install or agent.profile.installation}", style="dim")
    say("\nusage: exact, counted by relay's gateway; ~ as the agent reports it. `relay doctor --agent NAME` is free.")
    return ExitCode.USER if all(agent.missing for agent in agents) else ExitCode.DONE


def _try(agents: "Sequence[AgentFound]", name: str, settings: Settings, *, as_json: bool) -> int:
    chosen = [agent for agent in agents if name in {agent.profile.name, _ALL}]
    if not chosen:
        names = ", ".join(agent.profile.name for agent in agents)
        raise click.UsageError(f"--agent: found {name!r}; allowed: {names}, {_ALL}")
    rows: list[AgentTrial] = []
    for agent in chosen:
        findings, missing = try_out(agent, settings, quiet=as_json)
        rows.append(AgentTrial(name=agent.profile.name, ready=not missing, findings=_render(findings, AT_ROOT)))
    if as_json:
        say_document({"trials": rows})
    return ExitCode.DONE if any(row.ready for row in rows) else ExitCode.USER


def try_out(agent: AgentFound, settings: Settings, *, quiet: bool) -> "tuple[tuple[Finding, ...], set[str]]":
    """Try an agent, and print what was found; return that, and the names of what is missing."""
    prepare_process()
    profile = agent.profile
    kind = list_runners(settings)[profile.name]
    findings = tuple(try_agent(agent, kind, settings, os.environ, bwrap=find_bwrap()))
    missing = {finding.name for finding in findings if finding.state is State.MISSING}
    if not quiet:
        say(f"{profile.title} ({profile.name})", style="bold")
        _show_findings(findings, AT_ROOT)
        with_login = "can work here with your login" if missing == {"key"} and agent.has_login else ""
        verdict = with_login or ("cannot work here yet" if missing else "can work here")
        say(f"relay run --runner {profile.name} {verdict}\n", style="bold")
    return findings, missing


_WAIT_S = 20.0


def _notify() -> int:
    """Send each recipient a message, whatever events it wants, and show the answers."""
    place = note_place(needs_repo=False)
    channels = find_settings({}, os.environ, place.root, plan=None).notify
    if not channels:
        raise ConfigError("runs notify nobody", hint='in your own settings: notify = [{form = "desktop"}]')
    notifier = Notifier(channels, os.environ, str)
    for channel in channels:
        say(channel.text)
        notifier.tell(channel, TRIAL)
    notifier.close(_WAIT_S)
    answers = notifier.take_ends()
    for answer in answers:
        say(f"{answer.name}: {answer.words}", style="green" if answer.reached else "red")
    return ExitCode.DONE if all(answer.reached for answer in answers) else ExitCode.USER


def _show_inventory(*, as_json: bool) -> int:
    """Print the resources that a command of a run sees."""
    request, _ = make_request(SessionKind.RUN, {"plan": None}, needs_plan=False)
    prepare_process()
    with open_own_workspace(request) as workspace:
        found = take_inventory(workspace.sandbox)
    if as_json:
        say_document({"sandbox": found})
        return 0
    say(f"{found.mechanism}, {found.level}: resources of a command in `relay run`", style="bold")
    scratch = (f"{found.tmp} (TMPDIR; private, kept between commands)", f"{found.home} (HOME; new for each command)")
    groups: Mapping[str, Sequence[str]] = {
        "can write": (*found.writable, *scratch),
        "can write, but loses it when the command ends": found.lost,
        "can only read, inside the above": found.protected,
        "sees as empty": found.hidden,
        "can read, inside the empty ones": found.shown,
        "cannot read": found.masked,
        "cannot reach these sockets": found.sockets,
        "everything else": ("read only",),
        "network": found.opened or ("only its own loopback: no host, no service of this machine",),
        "variables passed on": (" ".join(found.passed),),
        "variables dropped (the setting `env` passes them on)": (" ".join(found.dropped),),
        "variables never passed on": (" ".join(found.refused),),
        "not protected here": found.gaps,
    }
    for head, entries in groups.items():
        if any(entries):
            say()
            say(head, style="cyan")
        for entry in filter(None, entries):
            say(f"  {entry}")
    return 0


def _drop_checkpoints(days: int) -> int:
    place = note_place()
    with lock_worktree(place.repo):
        found = sort_snapshots(place.repo, before=time.time() - days * _DAY_S)
        went = drop_snapshots(place.repo, found.old)
    say(f"removed: the checkpoints of {count(went, 'session')}, older than {count(days, 'day')}")
    for reason, number in sorted(found.kept.items()):
        say(f"kept: {number:,} {reason.value}", style="dim")
    return ExitCode.DONE

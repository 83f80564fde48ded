"""`relay doctor`: what is there, what is missing, and what to do about it."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from relay.base.errors import ExitCode
from relay.base.hints import Caller
from relay.cli.completion import offer_models, offer_runners
from relay.cli.options import json_option
from relay.cli.screen import complain, say, say_document
from relay.setup.doctor import Report
from relay.setup.preconditions import Finding, State

_MARKS = {State.OK: "ok", State.MISSING: "PROBLEM", State.WARNING: "warning", State.INFO: "-"}
_STYLES = {State.OK: "green", State.MISSING: "bold red", State.WARNING: "yellow", State.INFO: ""}


@click.command("doctor", short_help="Show what relay finds here and what is missing.")
@click.option(
    "--model",
    metavar="ID",
    shell_complete=offer_models,
    help="Try this model instead, with two or three small requests, which cost.",
)
@click.option("--runner", metavar="NAME", shell_complete=offer_runners, help="Who would run the sessions.")
@click.option("--settings", "with_settings", is_flag=True, help="Show each setting too, and where it comes from.")
@json_option
def command(*, model: str | None, runner: str | None, with_settings: bool, as_json: bool) -> int:
    """Show what relay finds here and what is missing: git, identity, key, model, sandbox, rules.

    What is missing stands first, then what is doubtful, then what is there. The sandbox is judged by what it really
    refuses: acts that it must refuse, or allow, have just been tried. The key itself is never shown. Exit status 1
    when something that `relay run` needs is missing.

    With --model it tries that model on its endpoint: whether it streams, calls tools, thinks, uses the cache and says
    what was used. It prints the model's table for your settings. That is a paid request; what it costs is said first.
    """
    if model is not None:
        return _try_model({"model": model, "runner": runner}, as_json=as_json)
    from relay.setup.doctor import examine

    report = examine(Path.cwd(), os.environ, {"runner": runner})
    if as_json:
        say_document(render_json(report))
    else:
        show_report(report, with_settings=with_settings)
    return ExitCode.USER if report.missing else ExitCode.DONE


def _try_model(flags: Mapping[str, str | None], *, as_json: bool) -> int:
    from relay.config.model_table import show_user_file
    from relay.runners.registry import get_kind, list_runners
    from relay.setup.place import find_settings, get_place
    from relay.setup.trials import estimate_trial, try_model

    place = get_place(plan=None, environ=os.environ, needs_repo=False)
    settings = find_settings(flags, os.environ, place.root, plan=None)
    kind = get_kind(settings.runner, origin=settings.origins.get("runner", "default"), known=list_runners(settings))
    kind.get_key(os.environ)
    complain(estimate_trial(settings))
    trial = try_model(kind, settings, os.environ)
    missing = any(finding.state is State.MISSING for finding in trial.findings)
    if as_json:
        found = [render_check(finding, place.caller) for finding in trial.findings]
        say_document({"ready": not missing, "findings": found, "table": trial.table})
        return ExitCode.USER if missing else ExitCode.DONE
    for finding in trial.findings:
        show_finding(finding, place.caller.write(finding.hint))
    if trial.table:
        say(f"\nAs it stands in {show_user_file(os.environ)}:\n\n{trial.table}")
    return ExitCode.USER if missing else ExitCode.DONE


def show_report(report: Report, *, with_settings: bool) -> None:
    """Print the report, one finding per line."""
    for finding in report.findings:
        show_finding(finding, report.caller.write(finding.hint))
    if with_settings and report.settings:
        say()
        width = max(len(key) for key, _, _ in report.settings)
        say("settings, strongest source first: flag, RELAY_*, plan, relay.toml, your config, default", style="dim")
        for key, value, origin in report.settings:
            say(f"  {key:<{width}}  {value}  ({origin})", style="dim" if origin == "default" else "")
    say()
    names = ", ".join(dict.fromkeys(finding.name for finding in report.missing))
    say(f"relay run cannot work here yet: {names}" if names else "relay run can work here", style="bold")


def show_finding(finding: Finding, hint: str) -> None:
    """Print a finding, with what to do about it."""
    say(f"{_MARKS[finding.state]:<8} {finding.name:<11} {finding.words}", style=_STYLES[finding.state])
    for detail in finding.details if finding.state is not State.OK else ():
        say(f"{'':<21}{detail}", style="dim")
    if hint:
        first, *more = hint.splitlines()
        say("\n".join((f"{'':<21}do: {first}", *(f"{'':<25}{line}" for line in more))))


def render_check(finding: Finding, caller: Caller) -> dict[str, object]:
    """Return a finding as JSON has it."""
    return {
        "name": finding.name,
        "state": finding.state.value,
        "words": finding.words,
        "details": list(finding.details),
        "hint": caller.write(finding.hint),
    }


def render_json(report: Report) -> dict[str, object]:
    """Return the report as JSON has it."""
    findings = [render_check(finding, report.caller) for finding in report.findings]
    settings = {key: {"value": value, "origin": origin} for key, value, origin in report.settings}
    return {"ready": not report.missing, "findings": findings, "settings": settings}

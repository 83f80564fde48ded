"""`relay doctor`: what is there, what is missing, and what to do about it."""

import json
import os
from pathlib import Path

import click

from relay.cli.screen import say, say_json
from relay.errors import ExitCode
from relay.setup.doctor import Report
from relay.setup.preconditions import Finding, State

_MARKS = {State.OK: "ok", State.MISSING: "MISSING", State.WARNING: "warning", State.INFO: "-"}
_STYLES = {State.OK: "green", State.MISSING: "bold red", State.WARNING: "yellow", State.INFO: ""}


@click.command("doctor", short_help="Show what relay finds here and what is missing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(*, as_json: bool) -> int:
    """Show what relay finds here and what is missing: git, identity, key, model, sandbox, settings, rules.

    The sandbox is judged by what it really refuses: every act listed has just been tried. The key itself is never
    shown. Exit status 1 when something that `relay run` needs is missing.
    """
    from relay.setup.doctor import examine

    report = examine(Path.cwd(), os.environ)
    if as_json:
        say_json(render_json(report))
    else:
        show_report(report)
    return ExitCode.USER if report.missing else ExitCode.DONE


def show_report(report: Report) -> None:
    """Print the report, one finding per line."""
    for finding in report.findings:
        _show_finding(finding, report.caller.write(finding.hint))
    if report.settings:
        say()
        width = max(len(key) for key, _, _ in report.settings)
        say("settings, strongest source first: flag, RELAY_*, plan, relay.toml, your config, default", style="dim")
        for key, value, origin in report.settings:
            say(f"  {key:<{width}}  {value}  ({origin})", style="dim" if origin == "default" else "")
    say()
    names = ", ".join(dict.fromkeys(finding.name for finding in report.missing))
    say(f"relay run cannot work here yet: {names}" if names else "relay run can work here", style="bold")


def _show_finding(finding: Finding, hint: str) -> None:
    say(f"{_MARKS[finding.state]:<8} {finding.name:<11} {finding.words}", style=_STYLES[finding.state])
    for detail in finding.details:
        say(f"{'':<21}{detail}", style="dim")
    if hint:
        say(f"{'':<21}do: {hint}")


def render_json(report: Report) -> str:
    """Write the report as one JSON document."""
    findings = [
        {
            "name": finding.name,
            "state": finding.state.value,
            "words": finding.words,
            "details": list(finding.details),
            "hint": report.caller.write(finding.hint),
        }
        for finding in report.findings
    ]
    settings = {key: {"value": value, "origin": origin} for key, value, origin in report.settings}
    return json.dumps({"ready": not report.missing, "findings": findings, "settings": settings}, ensure_ascii=True)

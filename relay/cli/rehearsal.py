"""`relay demo`: the product on a scripted model; with --serve, that model for any client of the Messages API."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from relay.base.errors import ExitCode
from relay.base.words import count
from relay.cli.screen import complain, say, say_now
from relay.rehearsal.script import FORMAT, load_script
from relay.tools import toolbox
from relay.tools.toolbox import find_faults, list_allowed


@click.command("demo")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Create the repository in this new or empty directory and keep it.",
)
@click.option(
    "--serve",
    "served",
    type=click.Path(path_type=Path),
    metavar="SCRIPT",
    help="Serve your own script (YAML) as a model on this machine until Ctrl-C.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port on loopback for --serve; a free one by default.")
@click.option(
    "--check",
    "checked",
    is_flag=False,
    flag_value="",
    metavar="[SCRIPT]",
    help="Check a script and serve nothing; without SCRIPT list all that one may hold.",
)
def demo_command(keep: Path | None, served: Path | None, port: int | None, checked: str | None) -> int:
    """Watch relay plan and build a small feature in a new repository. This needs no key and no network.

    A script plays the model; sessions, sandbox, checks, commits and the interruption are real.

    With --serve SCRIPT relay prints two `export` lines; type them in the shell where `relay run`, or any other client
    of the Messages API, should use the model of that script.
    """
    if (keep, served, checked).count(None) < 2 or (port is not None and served is None):  # noqa: PLR2004
        raise click.UsageError("--keep, --serve and --check do not go together, and --port is for --serve")
    if checked is not None:
        return _check(Path(checked)) if checked else _list_format()
    if served is not None:
        return _serve(served, port or 0)
    from relay.rehearsal.demo import run_demo

    return run_demo(keep=keep, say=say_now, environ=os.environ)


def _serve(path: Path, port: int) -> int:
    """Play a script until Ctrl-C or SIGTERM, also as a shell's background job, which ignores Ctrl-C.

    Return 1 if the script was used wrongly.
    """
    from relay.rehearsal.server import serve

    script, ends = load_script(path), {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # or a handler runs just before a wait, which then goes on
    with serve(script, port=port) as player:
        complain(f"rehearsal: {path} plays the model; no real model answers; Ctrl-C ends it")
        say(f"export ANTHROPIC_BASE_URL={player.base_url}", exact=True)
        say_now("export ANTHROPIC_API_KEY=rehearsal")
        signal.sigwait(ends)
    complain(f"{count(player.state.requests_seen, 'request')} came")
    for words in player.unplayed:
        complain(f"not played: {words}")
    for error in player.errors:
        complain(f"Error: {error}")
    return ExitCode.USER if player.errors else ExitCode.DONE


def _list_format() -> int:
    """Print what a script may hold."""
    tools = "the input of relay's tools (anywhere in it `!file PATH`, the text of a file beside the script)"
    inputs = {name: list_allowed(schema) for name, schema in _list_inputs().items()}
    for title, keys in {**FORMAT, tools: inputs}.items():
        say(f"{title}:", exact=True)
        for name, words in keys.items():
            say(f"  {name:<22} {words}", exact=True)
    return ExitCode.DONE


def _list_inputs() -> dict[str, Mapping[str, Any]]:
    """Return the schema of the input of each tool of any kind of session, by its name."""
    handing_in = (toolbox.EXPLORE, toolbox.ANSWER, toolbox.REPORT_FINDINGS, toolbox.JUDGE_FINDINGS)
    return {spec.name: spec.input_schema for spec in (*toolbox.PLANNER_SPECS, *toolbox.RUNNER_SPECS, *handing_in)}


def _check(path: Path) -> int:
    """Say how long a script is, and which calls of relay's tools are wrong."""
    script = load_script(path)
    turns, known = [turn for session in script.sessions for turn in session.turns], _list_inputs()
    wrong = 0
    for call in (call for turn in turns for call in turn.tools):
        faults = find_faults(known[call.name], call.input) if call.name in known else []
        if faults:
            wrong += 1
            allowed = list_allowed(known[call.name])
            complain(f"{script.source}:{call.line}: {call.name}: {'; '.join(faults)}; allowed: {allowed}")
    say(f"{script.source}: {count(len(script.sessions), 'session')}, {count(len(turns), 'turn')}")
    return ExitCode.USER if wrong else ExitCode.DONE

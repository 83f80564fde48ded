"""`relay rehearse`: serve a scripted model to any client of the Messages API. `relay demo`: the product on one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.base.errors import ConfigError, ExitCode
from relay.base.words import count
from relay.cli.screen import complain, say, say_now

if TYPE_CHECKING:
    from relay.rehearsal.server import Player
    from relay.rehearsal.turns import Script
    from relay.session.values import ToolSpec


@click.command("rehearse")
@click.argument("script", required=False, type=click.Path(path_type=Path), help="Rehearsal script in YAML.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port on loopback.")
@click.option("--check", "checks", is_flag=True, help="Check SCRIPT, or list all that one may hold, and serve nothing.")
def rehearse_command(script: Path | None, port: int, *, checks: bool) -> int:
    """Serve a scripted model on this machine until Ctrl-C.

    SCRIPT holds the model's answers. relay prints two `export` lines; type them in the shell where `relay run`, or any
    other client of the Messages API, should use this model.
    """
    from relay.rehearsal.script import load_script
    from relay.rehearsal.server import run_forever

    if script is None:
        if not checks:
            raise ConfigError(
                "a script is missing", hint="relay rehearse SCRIPT; relay rehearse --check lists its keys"
            )
        for line in _list_format():
            say(line, exact=True)
        return ExitCode.DONE
    read = load_script(script)
    if checks:
        return _check(read)
    served: list[Player] = []
    run_forever(read, port=port, announce=lambda player: _show_address(script, player, served))
    return _report(served)


def _list_format() -> Iterator[str]:
    """Yield what a script may hold."""
    from relay.rehearsal.script import FORMAT
    from relay.tools.toolbox import list_allowed

    for title, keys in FORMAT.items():
        yield f"{title}:"
        yield from (f"  {name:<22} {words}" for name, words in keys.items())
    yield "the input of relay's tools (anywhere in it `!file PATH`, the text of a file beside the script):"
    yield from (f"  {spec.name:<22} {list_allowed(spec.input_schema)}" for spec in _list_tools())


def _list_tools() -> "tuple[ToolSpec, ...]":
    """List the tools of all kinds of sessions, by name once each."""
    from relay.tools import toolbox

    handing_in = (toolbox.EXPLORE, toolbox.ANSWER, toolbox.REPORT_FINDINGS, toolbox.JUDGE_FINDINGS)
    return tuple({spec.name: spec for spec in (*toolbox.PLANNER_SPECS, *toolbox.RUNNER_SPECS, *handing_in)}.values())


def _check(script: "Script") -> int:
    """Say how long a script is, and which calls of relay's tools are wrong."""
    from relay.rehearsal.turns import Call
    from relay.tools.toolbox import find_faults, list_allowed

    turns = [turn for session in script.sessions for turn in session.turns]
    known = {spec.name: spec.input_schema for spec in _list_tools()}
    wrong = 0
    for call in (part for turn in turns for part in turn.parts if isinstance(part, Call)):
        faults = find_faults(known[call.name], call.input) if call.name in known else []
        if faults:
            wrong += 1
            allowed = list_allowed(known[call.name])
            complain(f"{script.source}:{call.line}: {call.name}: {'; '.join(faults)}; allowed: {allowed}")
    say(f"{script.source}: {count(len(script.sessions), 'session')}, {count(len(turns), 'turn')}")
    return ExitCode.USER if wrong else ExitCode.DONE


def _show_address(script: Path, player: "Player", served: "list[Player]") -> None:
    """Print the variables that lead a client to the server."""
    served.append(player)
    complain(f"rehearsal: {script} plays the model; no real model answers; Ctrl-C ends it")
    say(f"export ANTHROPIC_BASE_URL={player.base_url}", exact=True)
    say_now("export ANTHROPIC_API_KEY=rehearsal")


def _report(served: "list[Player]") -> int:
    """Print the number of requests and the errors; return 1 if there are errors."""
    errors = [error for player in served for error in player.errors]
    for player in served:
        complain(f"{count(player.state.requests_seen, 'request')} came")
        for words in player.unplayed:
            complain(f"not played: {words}")
    for error in errors:
        complain(f"Error: {error}")
    return ExitCode.USER if errors else ExitCode.DONE


@click.command("demo")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Create the repository in this new or empty directory and keep it.",
)
def demo_command(keep: Path | None) -> int:
    """Watch relay plan and build a small feature in a new repository. This needs no key and no network.

    A script plays the model; sessions, sandbox, checks, commits and the interruption are real.
    """
    from relay.rehearsal.demo import run_demo

    return run_demo(keep=keep, say=say_now, environ=os.environ)

"""`relay init`: a project's first files, and how a provider's models are reached (`templates/providers.toml`)."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from relay.base.errors import RelayError, RepoError
from relay.base.hints import AT_ROOT
from relay.cli.screen import say, say_json
from relay.config import ModelSettings, find_user_dir
from relay.config.model_table import render_model_table, show_user_file
from relay.prompts.package_data import get_shipped
from relay.session.prices import parse_price

_MODEL = "NAME-OF-THE-MODEL"


def read_providers() -> Mapping[str, Mapping[str, Any]]:
    """Return all providers by name."""
    return tomllib.loads((get_shipped("templates") / "providers.toml").read_text(encoding="utf-8"))


def set_up(name: str, model: str | None, environ: Mapping[str, str]) -> None:
    """Print how to reach a provider's model, and begin the user's own settings where there are none.

    Raises:
        RelayError: There is no such provider, or the file cannot be written.
    """
    providers = read_providers()
    if name not in providers:
        raise RelayError(
            f"relay knows no provider {name!r}",
            hint=f"known: {', '.join(providers)}; any other endpoint needs ANTHROPIC_BASE_URL and its key",
        )
    provider = providers[name]
    for note in provider["notes"]:
        say(f"# {note}")
    say(f"export ANTHROPIC_BASE_URL={provider['base_url']}", exact=True)
    say(f"export ANTHROPIC_AUTH_TOKEN={provider['key'] or '…'}", exact=True)
    say("unset ANTHROPIC_API_KEY")
    say()
    _set_up_model(model or _MODEL, ModelSettings(price=_find_price(provider)), environ)
    say()
    say(f"relay doctor --model {model or _MODEL}   tries it, with two or three small requests")


def _find_price(provider: Mapping[str, Any]) -> Any:
    return parse_price("", {"input": 0, "output": 0}) if provider["local"] else None


def _set_up_model(model: str, known: ModelSettings, environ: Mapping[str, str]) -> None:
    text = f'model = "{model}"\n\n{render_model_table(model, known)}\n'
    folder = find_user_dir(environ)
    if model != _MODEL and folder is not None and _write_new(folder / "config.toml", text):
        say(f"# written to {show_user_file(environ)}:", style="green")
    else:
        say(f"# into {show_user_file(environ)}, which is yours and is not changed:")
    say(text.rstrip(), exact=True)


def _write_new(path: Path, text: str) -> bool:
    """Create a file; False when anything of that name is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise RelayError(f"{path} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return True


TRIAL_S = 60.0
"""How long the repository's own tests may take when they are only proposed."""
_SHOWN_LINES = 8
_MAIN = frozenset({"main", "master", "trunk", "develop"})
FILES = ("AGENTS.md", "PLAN.md", "relay.toml", ".gitattributes")

WORKFLOWS = {"github": ".github/workflows/relay.yml", "gitlab": ".gitlab-ci.yml"}
"""Where each forge looks for one."""
_OWN_MARK = b"relay init --ci"
"""Stands in those that relay wrote."""


@click.command("init", short_help="Put AGENTS.md, PLAN.md and relay.toml here.")
@click.option(
    "--provider", metavar="NAME", help="Say how this provider's models are reached instead: ollama, openrouter …"
)
@click.option("--model", metavar="ID", help="With --provider: the model.")
@click.option(
    "--ci", type=click.Choice(list(WORKFLOWS)), help="Write a workflow that checks and runs the plan instead."
)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of relay.toml instead, for editors.")
def command(*, provider: str | None, model: str | None, ci: str | None, schema: bool) -> None:
    """Put AGENTS.md, PLAN.md, relay.toml and .gitattributes into the repository; what exists is kept as it is.

    With --provider, --ci or --schema nothing of that. The first prints the variables that lead to that provider, and
    the settings of the model, which it writes to your own config.toml where there is none yet.
    """
    if schema:
        from relay.config.schema import render_schema

        say_json(json.dumps(render_schema()))
        return
    if provider is not None:
        set_up(provider, model, os.environ)
        return
    if model is not None:
        raise click.UsageError("--model goes with --provider")
    root, missing, on_main = _find_root(Path.cwd())
    if ci is not None:
        write_workflow(root, ci)
        if missing:
            say(missing)
    else:
        _start_project(root, missing, on_main=on_main)


def _start_project(root: Path, missing: str, *, on_main: bool) -> None:
    made = [name for name in FILES if write_template(root, name)]
    for name in FILES:
        say(f"wrote {name}" if name in made else f"kept {name}: it exists", style="green" if name in made else "")
    if not missing:
        _propose_gate(root)
    say()
    say("Next:")
    if missing:
        say(f"  {missing}")
    say("  edit AGENTS.md      say how your project is built and tested")
    say('  relay plan "…"      have PLAN.md written from a sentence, over the example')
    say("  relay doctor        see what is still missing to run it")
    if not missing and (shared := [name for name in made if name != "PLAN.md"]):  # a run commits the plan by itself
        say(f"  git add {' '.join(shared)} && git commit")
        say("                      what no commit has, no clone and no gate has")
    if on_main:
        say("  relay run --branch  build it on a branch of its own, not on the one that you are on")


def _propose_gate(root: Path) -> None:
    """Name the repository's own test command, and say how it does in the sandbox."""
    from relay.gate.proposal import find_test_command

    found = find_test_command(root)
    if found is None:
        return
    from relay.cli.gate import try_proposal
    from relay.cli.views.last_run import say_lines, tell_failures

    say()
    say(f"{found.source} says how this is tested: {found.command}; trying it in the sandbox …")
    gate = try_proposal(found.command, timeout_s=TRIAL_S)
    if gate is not None:
        say_lines(tell_failures(gate, indent="  ", shown=_SHOWN_LINES))
        say(
            "it passes there" if gate.passed else "it does not pass there yet",
            style="green" if gate.passed else "yellow",
        )
    say(f"verify = ['{found.command}'] in relay.toml makes it the gate of every phase")


def _find_root(cwd: Path) -> tuple[Path, str, bool]:
    """Return the repository's root, or the current directory and what to do about that; and whether it is on main."""
    from relay.git.repository import open_repo

    try:
        repo = open_repo(cwd)
    except RepoError as error:
        return cwd, f"{AT_ROOT.write(error.hint) or 'git init':<19} {error}", False
    return repo.root, "", repo.branch in _MAIN


def write_workflow(root: Path, forge: str) -> None:
    """Put a forge's workflow into the repository, and say what it needs; what exists is kept as it is.

    Raises:
        RelayError: The directory cannot be written.
    """
    from relay.base.tree import read_file

    place, include = WORKFLOWS[forge], ""
    there = read_file(root, place)
    if forge == "gitlab" and there is not None and _OWN_MARK not in there:
        place, include = ".gitlab/relay.yml", f"add to {place}:  include: [{{local: .gitlab/relay.yml}}]"
    written = write_template(root, place, f"ci/{forge}.yml")
    say(f"wrote {place}" if written else f"kept {place}: it exists", style="green" if written else "")
    say("it looks at PLAN.md; its first lines say which variables it needs")
    if include:
        say(include, exact=True)
        say("its jobs are in the stage test: where yours is none of that name, give .relay in there another stage:")


def write_template(root: Path, name: str, source: str = "") -> bool:
    """Create one file from `templates/`; False when anything of that name is there, a dangling link included.

    Args:
        name: Of the file in there; folders are made, links are not followed.
        source: The template, where it has another name.

    Raises:
        RelayError: The directory cannot be written.
    """
    from relay.base.walk import open_folder
    from relay.prompts.package_data import get_shipped

    content = (get_shipped("templates") / (source or name)).read_bytes()
    *folders, last = name.split("/")
    try:
        with open_folder(root, tuple(folders), create=True) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(last, flags, 0o666, dir_fd=folder)
    except FileExistsError:
        return False
    except OSError as error:
        raise RelayError(f"{name} cannot be written here: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return True

"""`relay init`: create a project's first files, or the user's settings for a provider or an agent."""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import click

from relay.base.errors import ExitCode, RelayError, RepoError
from relay.base.hints import AT_ROOT, advise_extra
from relay.base.tree import read_file, replace_file
from relay.base.walk import open_folder
from relay.cli.screen import say, say_json
from relay.config import ModelSettings, find_user_dir
from relay.config.sources import render_model_table, show_user_file
from relay.gate.needs import KnownCommand, find_test_command
from relay.git.repository import open_repo
from relay.git.trees import FILE
from relay.plan.paths import split_place
from relay.plan.text import DEFAULT_PLAN
from relay.prompts.package_data import get_shipped
from relay.runners.registry import list_profiles
from relay.session.prices import UserPrice, find_limits
from relay.setup.place import find_nearest_plan, find_settings, get_place
from relay.setup.preconditions import list_login_settings
from relay.setup.project import find_set_up, is_unfinished, render_project_rules
from relay.setup.trials import examine_agent

_MODEL = "NAME-OF-THE-MODEL"


def set_up(name: str, model: str | None, environ: Mapping[str, str]) -> None:
    """Print how to reach a provider's model, and create the user's own settings file if there is none.

    Raises:
        RelayError: There is no such provider, or the file cannot be written.
    """
    providers = tomllib.loads((get_shipped("templates") / "providers.toml").read_text(encoding="utf-8"))
    if name not in providers:
        hint = f"known: {', '.join(providers)}; for another endpoint set ANTHROPIC_BASE_URL and its key"
        raise RelayError(f"relay knows no provider {name!r}", hint=hint)
    provider = providers[name]
    for note in provider["notes"]:
        say(f"# {note}", exact=True)
    is_cloud = "model" in provider
    if is_cloud and provider["login"] and name != "anthropic" and find_spec("boto3") is None:  # one extra brings all
        say(f"# its login needs packages: {advise_extra('cloud')}", exact=True)
    exports = [f"export {line}" for line in provider["variables"]]
    for line in filter(None, (*exports, provider["login"])):
        say(line, exact=True)
    say()
    chosen = model or provider.get("model", _MODEL)
    price = UserPrice(input=0, output=0) if provider.get("local") else None
    has_table = not is_cloud or find_limits(chosen) is None
    table = f"\n{render_model_table(chosen, ModelSettings(price=price))}\n" if has_table else ""
    head, is_complete = (f'provider = "{name}"\n', not table) if is_cloud else ("", chosen != _MODEL)
    _begin_user_settings(f'{head}model = "{chosen}"\n{table}', environ, is_complete=is_complete)
    say("\nrelay doctor   says which key or login it finds, and what is missing")
    say(f"relay doctor --model {chosen}   tries the model, with two or three small requests")


def _begin_user_settings(text: str, environ: Mapping[str, str], *, is_complete: bool) -> None:
    """Write the user's own settings file if there is none; else print the settings for the user to add."""
    folder = find_user_dir(environ)
    if is_complete and folder is not None and write_file(folder.resolve(), "config.toml", text.encode(), 0o600):
        say(f"# written to {show_user_file(environ)}:", style="green")
    else:
        say(f"# for {show_user_file(environ)}; relay does not change that file, please add:")
    say(text.rstrip(), exact=True)


def set_up_agent(name: str, environ: Mapping[str, str]) -> int:
    """Try an agent without cost, and create the user's own settings file with it as the runner; return the exit code.

    Raises:
        click.UsageError: relay knows no such agent.
    """
    from relay.cli.doctor import try_out

    settings = find_settings({}, environ, get_place(plan=None, environ=environ, needs_repo=False).root, plan=None)
    profiles = list_profiles(settings)
    if name not in profiles:
        raise click.UsageError(f"--agent: found {name!r}; allowed: {', '.join(profiles)}")
    agent = examine_agent(profiles[name], settings, environ)
    _, missing = try_out(agent, settings, quiet=False)
    uses_login = missing == {"key"} and agent.has_login
    if missing and not uses_login:
        say(f"relay wrote nothing; fix this, then run relay init --agent {name} again")
        return ExitCode.USER
    lines = [f'runner = "{name}"', *(list_login_settings(profiles[name], settings) if uses_login else ())]
    _begin_user_settings("\n".join(lines) + "\n", environ, is_complete=all("…" not in line for line in lines))
    if uses_login:
        say("the agent uses your login; its usage is what the agent itself reports, marked ~")
    return ExitCode.DONE


TRIAL_S = 60.0
"""Seconds for a trial of the repository's own tests."""
_EXAMPLE_TEST = "python3 -m unittest discover"
"""The verify command of the example plan, for a project whose own is not known."""
_RULES = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""relay reads the first of these files by itself, so `init` adds no other one."""
_SKILLS = (".claude/skills/relay/SKILL.md", ".agents/skills/relay/SKILL.md")
"""Paths of a project's skills for Claude Code, and for Codex and others."""
_MAIN = frozenset({"main", "master", "trunk", "develop"})
WORKFLOWS = {"github": ".github/workflows/relay.yml", "gitlab": ".gitlab-ci.yml"}
"""Path of each forge's workflow."""
_OWN_MARK = b"relay init --ci"
"""Text in the workflows that relay wrote."""


@click.command("init")
@click.option(
    "--provider",
    metavar="NAME",
    help="Instead, show how to reach a provider's models: bedrock, vertex, ollama, openrouter …",
)
@click.option("--model", metavar="ID", help="With --provider: the model.")
@click.option("--ci", type=click.Choice(list(WORKFLOWS)), help="Instead, write a CI workflow that runs the plan.")
@click.option("--agent", metavar="NAME", help="Instead, try an agent and make it your runner: claude, codex …")
@click.option("--skill", is_flag=True, help="Instead, write a skill that teaches your agent to plan for relay.")
@click.option("--schema", is_flag=True, help="Instead, print the JSON Schema of relay.toml, for editors.")
def command(
    *, provider: str | None, model: str | None, ci: str | None, agent: str | None, skill: bool, schema: bool
) -> int | None:
    """Create AGENTS.md, PLAN.md, relay.toml and .gitattributes in the repository. Existing files stay unchanged.

    relay reads your project's files and writes into AGENTS.md how to set it up, test it and check its style. It writes
    no AGENTS.md beside a CLAUDE.md or GEMINI.md, because sessions read those.

    --provider prints the variables of the provider, and the settings for it and its model. --agent tries the agent with
    a scripted model, without cost. Both write the settings to your own config.toml if that file does not exist yet.
    """
    if model is not None and provider is None:
        raise click.UsageError("--model needs --provider")
    if schema:
        from relay.config.schema import render_schema

        say_json(json.dumps(render_schema()))
    elif provider is not None:
        set_up(provider, model, os.environ)
    elif agent is not None:
        return set_up_agent(agent, os.environ)
    else:
        root, missing, on_main = _find_root(Path.cwd())
        if (up := os.path.relpath(root)) != ".":
            say(f"{up} is the root of this repository: rules and settings go there")
        if skill:
            _write_skills(root, missing)
        elif ci is not None:
            _write_workflow(root, ci)
            if missing:
                say(missing)
        else:
            _start_project(root, missing, on_main=on_main)
    return None


def _write_skills(root: Path, missing: str) -> None:
    skill = _read_template("SKILL.md")
    made = [_create(root, place, skill) for place in _SKILLS]
    if any(made):
        seen = f"git add .claude .agents && git commit\n{'':<22}clones and their agents see committed files only"
        say(f"\nNext:\n  {missing or seen}")


def _create(root: Path, name: str, content: bytes) -> bool:
    """Create a file, as `write_file` does, and say so."""
    is_new, name = write_file(root, name, content), os.path.relpath(root / name)  # as it is typed here
    say(f"wrote {name}" if is_new else f"kept {name}: it exists", style="green" if is_new else "")
    return is_new


def _start_project(root: Path, missing: str, *, on_main: bool) -> None:
    # The nearest plan; without one it is beside the user in a package, which has a test command of its own, else at the
    # root. A directory of tests is no package.
    nearest, found = find_nearest_plan(root, Path.cwd()), find_test_command(Path.cwd())
    is_package = found is not None and not re.fullmatch(r"test.*\.py|conftest\.py", found.source)
    beside = os.path.relpath(Path.cwd() / DEFAULT_PLAN, root) if is_package else DEFAULT_PLAN
    plan_path = beside if nearest in {"", DEFAULT_PLAN} else nearest
    test = find_test_command(root, plan_path)
    made = _write_first_files(root, test, plan_path)
    shared = ""
    if not missing:
        repo = open_repo(root)
        # Only now: the sandbox keeps a command from writing these files, but not from creating them.
        if test is not None:
            _propose_gate(root, test, made.get("relay.toml", "") if plan_path == DEFAULT_PLAN else "")
        own = [name for name in made if name != plan_path]  # a run commits the plan
        names = own if repo.head() is not None else ["."]
        shared = " ".join(shlex.quote(os.path.relpath(root / name)) for name in names)
    say("\nNext:")
    if missing:
        say(f"  {missing}")
    if is_unfinished(made.get("AGENTS.md", "")):
        say("  edit AGENTS.md      fill in the places marked …: how to build and test your project")
    if plan_path in made:
        say('  relay plan "…"      write PLAN.md from a sentence, in place of the example')
    say("  relay doctor        see what is still missing, and what belongs into .gitignore")
    if shared:
        say(f"  git add {shared} && git commit")
        say("                      clones and gates see committed files only")
    if on_main:
        say("  relay run --branch  build on a new branch, not on the one that you are on")


def _write_first_files(root: Path, test: KnownCommand | None, plan_path: str) -> Mapping[str, str]:
    """Write the files that are not there; return their texts."""
    rules = next((name for name in _RULES if os.path.lexists(root / name)), "AGENTS.md")
    contents = {name: _read_template(name).decode() for name in (DEFAULT_PLAN, "relay.toml", ".gitattributes")}
    example = contents.pop(DEFAULT_PLAN)
    if test is not None:
        example = example.replace(_EXAMPLE_TEST, split_place(test.command)[1])
    contents = {plan_path: example, **contents}
    if rules == "AGENTS.md":
        contents = {rules: render_project_rules(root), **contents}
    else:
        say(f"kept {rules}: relay reads it as the rules for sessions")
    return {name: text for name, text in contents.items() if _create(root, name, text.encode())}


def _propose_gate(root: Path, found: KnownCommand, written: str) -> None:
    """Try the repository's own test command in the sandbox; if it passes, make it the gate of all phases.

    Args:
        written: The text of the relay.toml that was just written; empty for none that may be changed.
    """
    from relay.cli.gate import try_proposal

    say()
    gate = try_proposal(found, timeout_s=TRIAL_S)
    if gate is None:
        return
    line, place = f"verify = [{json.dumps(found.command)}]", "relay.toml"
    if gate.passed and written and read_file(root, place) == written.encode():  # nobody has changed it meanwhile
        replace_file(root, place, written.replace("# verify = []", line).encode(), FILE)
        say(f"{place} makes `{found.command}` the gate of every phase", exact=True)
        return
    for command in () if gate.passed else find_set_up(root):
        say(f"is the project set up? {command}; then relay gate tries it again", exact=True)
    say(f"{line} in {place} makes it the gate of every phase", exact=True)


def _find_root(cwd: Path) -> tuple[Path, str, bool]:
    """Return the repository's root, the step that a missing repository needs, and whether HEAD is a main branch.

    Without a repository the root is the current directory.
    """
    try:
        repo = open_repo(cwd)
    except RepoError as error:
        return cwd, f"{AT_ROOT.write(error.hint) or 'git init'}\n{'':<22}{error}", False
    return repo.root, "", repo.branch in _MAIN


def _write_workflow(root: Path, forge: str) -> None:
    """Create a forge's workflow in the repository, and say what it needs. An existing workflow stays unchanged.

    Raises:
        RelayError: The directory cannot be written.
    """
    place, include = WORKFLOWS[forge], ""
    there = read_file(root, place)
    if forge == "gitlab" and there is not None and _OWN_MARK not in there:
        place, include = ".gitlab/relay.yml", f"add to {place}:  include: [{{local: .gitlab/relay.yml}}]"
    _create(root, place, _read_template(f"ci/{forge}.yml"))
    say("it reads PLAN.md; its first lines name the variables that it needs")
    if include:
        say(include, exact=True)
        say("its jobs use the stage test; if yours has another name, set it as the stage: of .relay in that file")


def _read_template(name: str) -> bytes:
    return (get_shipped("templates") / name).read_bytes()


def write_file(root: Path, name: str, content: bytes, mode: int = 0o666) -> bool:
    """Create a file; return False if anything of that name exists, even a dangling link.

    Raises:
        RelayError: The directory cannot be written.
    """
    *folders, last = name.split("/")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with open_folder(root, tuple(folders), create=True) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(last, flags, mode, dir_fd=folder)
    except FileExistsError:
        return False
    except OSError as error:
        raise RelayError(f"{name} cannot be written in {root}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return True

"""A repository's languages and commands, read off its files for `relay init`. Nothing is run."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from string import Template

from relay.gate.needs import find_test_command, read_beginning
from relay.prompts.package_data import get_shipped

_LANGUAGES = (
    ("Python", ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")),
    ("TypeScript", ("tsconfig.json",)),
    ("JavaScript", ("package.json",)),
    ("Rust", ("Cargo.toml",)),
    ("Go", ("go.mod",)),
    ("Java", ("pom.xml", "build.gradle")),
    ("Kotlin", ("build.gradle.kts",)),
    ("Ruby", ("Gemfile",)),
    ("PHP", ("composer.json",)),
    ("Elixir", ("mix.exs",)),
    ("C or C++", ("CMakeLists.txt", "meson.build", "configure.ac")),
)
_SET_UP = (
    ("uv.lock", "uv sync"),
    ("poetry.lock", "poetry install"),
    ("pdm.lock", "pdm install"),
    ("requirements.txt", "python3 -m pip install -r requirements.txt"),
    ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
    ("yarn.lock", "yarn install --immutable"),
    ("bun.lock", "bun install --frozen-lockfile"),
    ("package-lock.json", "npm ci"),
    ("Gemfile.lock", "bundle install"),
    ("composer.lock", "composer install"),
    ("mix.lock", "mix deps.get"),
)
_NODE_LOCKS = frozenset({"pnpm-lock.yaml", "yarn.lock", "bun.lock", "package-lock.json"})
_HOOKS = (
    (".pre-commit-config.yaml", "pre-commit run --all-files"),
    ("lefthook.yml", "lefthook run pre-commit --all-files"),
    (".husky/pre-commit", "sh .husky/pre-commit"),
)
_MAKE_TARGET = re.compile(r"^(lint|format|fmt)(?=:(?!=))", re.MULTILINE)
_SCRIPTS = ("lint", "format", "typecheck")
_UNKNOWN = "`…`"
"""Stands in the rules for a command that a person has to fill in."""


def render_project_rules(root: Path) -> str:
    """Return an AGENTS.md for a repository: its languages, and the commands that set it up, test it and check it."""
    languages = [name for name, files in _LANGUAGES if any((root / file).is_file() for file in files)]
    if "TypeScript" in languages and "JavaScript" in languages:
        languages.remove("JavaScript")
    test = find_test_command(root)
    lines = [f"- Set up: `{command}`" for command in find_set_up(root)]
    lines.append(f"- Test everything: `{test.command}`" if test else f"- Test everything: {_UNKNOWN}")
    lines += [f"- Check the style: `{command}`" for command in _find_checks(root)]
    lines += [f"- Each commit runs hooks: `{command}`" for file, command in _HOOKS if (root / file).is_file()]
    template = Template((get_shipped("templates") / "AGENTS.md").read_text(encoding="utf-8"))
    return template.substitute(
        project=f"A project in {' and '.join(languages)}." if languages else f"What this project is: {_UNKNOWN}",
        commands="\n".join(lines),
    )


def find_set_up(root: Path) -> tuple[str, ...]:
    """Return the commands that install what a repository's lock files name, or its package.json without one."""
    found = tuple(command for file, command in _SET_UP if (root / file).is_file())
    has_lock = any((root / file).is_file() for file in _NODE_LOCKS)
    needs_npm = not has_lock and (root / "package.json").is_file()
    return (*found, "npm install") if needs_npm else found


def find_packages(paths: Iterable[str]) -> dict[str, int]:
    """Return the directories of installed packages that hold files, with the number of these files.

    Args:
        paths: Relative to the repository's root, of files that git neither has nor ignores.
    """
    from relay.sandbox.places import INSTALLED

    split = [path.split("/") for path in paths]
    environments = {"/".join(parts[:-1]) for parts in split if parts[-1] == "pyvenv.cfg"}
    found = Counter[str]()
    for parts in split:
        above = ("/".join(parts[:end]) for end in range(1, len(parts)))
        top = next((one for one in above if one in environments or one.rpartition("/")[2] in INSTALLED), "")
        found.update([f"{top}/"] * bool(top))
    return dict(found)


def is_unfinished(rules: str) -> bool:
    """Return whether rules that `relay init` wrote still wait for a person to fill something in."""
    return (
        _UNKNOWN in rules and get_shipped("templates/AGENTS.md").read_text(encoding="utf-8").partition("\n")[0] in rules
    )


def _find_checks(root: Path) -> list[str]:
    """Return the commands that check or format the sources, of the Makefile and of package.json."""
    checks = [f"make {target}" for target in dict.fromkeys(_MAKE_TARGET.findall(read_beginning(root / "Makefile")))]
    try:
        scripts = json.loads(read_beginning(root / "package.json") or "{}")["scripts"]
        return [*checks, *(f"npm run {name}" for name in _SCRIPTS if scripts.get(name))]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return checks

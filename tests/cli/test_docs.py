"""README.md and docs/: short, linked, and without a command or an option that there is not."""

import re
import shlex
from pathlib import Path

import click
import pytest

from relay.cli.main import LazyGroup

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
TASKS = [ROOT / "README.md", ROOT / "docs/tutorial.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def find_commands(page: Path) -> list[list[str]]:
    """Return the words behind `relay` for each line of a page's shell blocks that starts with it."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("relay ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def anchor(heading: str) -> str:
    """Return the fragment that GitHub and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_the_readme_is_a_front_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_readme_has_the_test_command_of_ci():
    assert "make --no-print-directory test\n" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "`make test`" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        place = page.parent / path if path else page
        if not place.exists():
            missing.append(target)
        elif fragment:
            headings = re.findall(r"^#+ (.+)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            missing += [] if fragment in map(anchor, headings) else [target]
    assert missing == []


def test_the_readme_leads_to_each_task():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name_of(page) for page in TASKS[1:] if f"({name_of(page)})" not in readme] == []


@pytest.mark.parametrize("page", TASKS, ids=name_of)
def test_commands_and_their_options_are_there(page):
    context = click.Context(LazyGroup())
    for words in find_commands(page):
        command = LazyGroup().get_command(context, words[0])
        assert command is not None, words
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        typed = {word.partition("=")[0] for word in words[1:] if word.startswith("-")}
        assert typed - options - {"--help"} == set(), words

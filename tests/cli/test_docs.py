"""README.md and docs/: short, linked, and without a command or an option that there is not."""

import ast
import re
from pathlib import Path

import click
import pytest

from relay.cli.main import COMMANDS, LazyGroup
from relay.cli.manual import list_pages

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
LARGEST_PICTURES = 200_000
CITED = [page for page in PAGES if page.name not in {"AGENTS.md", "index.md"} and page.parent.name != "contributing"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def find_commands(page: Path) -> list[list[str]]:
    """Return the words behind `relay` of each code span, and of each line of a shell block, that begins with it."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    spans = re.findall(r"(?<!`)`([^`]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [words.split()[1:] for words in (*lines, *spans) if re.match(r"relay [a-z]", words)]


def anchor(heading: str) -> str:
    """Return the fragment that GitHub and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_the_readme_is_a_front_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_readme_shows_the_view_and_the_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = {ROOT / place for place in re.findall(r"(?:\]\(|(?:src|srcset)=\")(docs/pictures/[^)\"]+)", text)}
    assert shown == set((ROOT / "docs/pictures").iterdir())
    assert sum(path.stat().st_size for path in shown) < LARGEST_PICTURES
    assert "@font-face" not in (ROOT / "docs/pictures/live.svg").read_text("utf-8")  # it would ask another server


def test_the_readme_has_the_test_command_of_ci():
    assert "make --no-print-directory test\n" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "`make test`" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_each_promise_names_tests_that_there_are():
    """A test that goes has a successor, and the list of promises names it."""
    promises = re.findall(r"^- .*", (ROOT / "docs/contributing/promises.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert promises
    named = {promise: re.findall(r"`([\w/]*\btest_\w+\.py)::(test_\w+)`", promise) for promise in promises}
    assert [promise for promise, tests in named.items() if len(tests) != promise.count("`, `") + 1] == []
    gone = []
    for path, name in {test for tests in named.values() for test in tests}:
        place = ROOT / "tests" / path
        text = place.read_text(encoding="utf-8") if place.exists() else ""
        gone += [] if re.search(rf"^def {name}\(", text, re.MULTILINE) else [f"{path}::{name}"]
    assert gone == []


def test_each_row_of_a_fleet_s_recovery_names_tests_that_there_are():
    page = (ROOT / "docs/reference/fleet.md").read_text(encoding="utf-8")
    table = page.partition("| What happens |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    known = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests/fleet").glob("test_*.py"))
    assert 0 < len(rows) <= 15
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.split(" | ")[-1])
        assert named, row
        assert [name for name in named if f"\ndef {name}(" not in known] == []


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


@pytest.mark.parametrize("start", ["README.md", "docs/index.md"])
def test_each_page_is_reached_from_the_first(start):
    place = ROOT / start
    linked = {(place.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", place.read_text("utf-8"))}
    assert [name_of(page) for page in CITED if page != place and page not in linked | {ROOT / "README.md"}] == []


def list_options(command: click.Command, context: click.Context, words: list[str]) -> set[str]:
    """Return the options of a command, and of those of its commands that the words name."""
    found = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if isinstance(command, click.Group):
        named = set(re.findall(r"[a-z]+", words[0])) if words else set()
        assert named <= set(command.list_commands(context)), words
        inner = [command.get_command(context, name) for name in named]
        found |= {name for one in inner if one for name in list_options(one, context, [])}
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_their_options_are_there(page):
    context = click.Context(LazyGroup())
    for words in find_commands(page):
        if words[0] == "help":
            continue  # `test_help_names_pages_that_there_are`
        command = LazyGroup().get_command(context, words[0])
        assert command is not None, words
        typed = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(words[1:])))
        assert typed - list_options(command, context, words[1:]) - {"--help"} == set(), words


def test_help_names_pages_that_there_are():
    """A message names a page by `relay help`, which the package brings along: who installed relay has no docs/."""
    files = [*ROOT.glob("relay/**/*.py"), *(path for path in ROOT.glob("templates/**/*.*") if path.is_file()), *PAGES]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    named = {name for text in texts.values() for name in re.findall(r"(?<!\w)relay help ([a-z][\w/-]*)", text)}
    pages = {name for page in list_pages() for name in (page, page.rpartition("/")[2])}
    assert named - pages - {*COMMANDS, "pages"} == set()
    strings = (
        (path, node.value)
        for path in files
        if path.suffix == ".py"
        for statement in ast.walk(ast.parse(texts[path]))
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for node in ast.iter_child_nodes(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert [(name_of(path), text) for path, text in strings if re.search(r"\bdocs/[\w/-]+\.md", text)] == []


def test_the_reference_has_every_command():
    text = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    context = click.Context(LazyGroup())
    commands = {name: LazyGroup().get_command(context, name) for name in LazyGroup().list_commands(context)}
    shown = [name for name, command in commands.items() if command and not command.hidden]
    assert [name for name in shown if not re.search(rf"^\| .*`(relay )?{name}[ `]", text, re.MULTILINE)] == []

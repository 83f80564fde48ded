"""README.md and docs/: short, linked, and without a command or an option that there is not."""

import ast
import re
import tomllib
from pathlib import Path

import click
from msgspec import Struct

from relay.cli.main import COMMANDS, LazyGroup
from relay.cli.manual import list_pages
from relay.config.keys import KEYS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
LARGEST_PICTURES = 200_000
SAID = [
    path
    for pattern in ("relay/**/*.py", "templates/**/*.*", "examples/*.*", "examples/compare/*.*")
    for path in ROOT.glob(pattern)
    if path.is_file()
]
EXAMPLES = {"docs/rules.md", "config/local.yaml", "config/production.yaml", "session/new", "session/cancel"}
CITED = [page for page in PAGES if page.name not in {"AGENTS.md", "index.md"} and page.parent.name != "contributing"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def find_spans(path: Path) -> list[str]:
    """Return the code spans of a file, outside of blocks where it is a page."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL) if path.suffix == ".md" else text
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def find_commands(path: Path) -> list[list[str]]:
    """Return the words behind `relay` of each code span, and of each line of a shell block, that begins with it."""
    blocks = re.findall(r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    return [words.split()[1:] for words in (*lines, *find_spans(path)) if re.match(r"relay [a-z]", words)]


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


def list_tests(path: Path) -> dict[str, bool]:
    """Return a file's tests, each with whether it is nightly."""
    found, late = dict[str, bool](), False
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        late = bool(line) and (late or line == "@pytest.mark.nightly")
        if begun := re.match(r"def (test_\w+)\(", line):
            found[begun[1]] = late
    return found


def test_each_promise_names_tests_that_there_are():
    """A test that goes has a successor, and the list of promises names it; not all of them are nightly."""
    promises = re.findall(r"^- .*", (ROOT / "docs/contributing/promises.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert promises
    named = {promise: re.findall(r"`([\w/]*\btest_\w+\.py)::(test_\w+)`", promise) for promise in promises}
    assert [promise for promise, tests in named.items() if len(tests) != promise.count("`, `") + 1] == []
    listed = {test for tests in named.values() for test in tests}
    known = {path: list_tests(ROOT / "tests" / path) for path in {path for path, _ in listed}}
    assert [f"{path}::{name}" for path, name in sorted(listed) if name not in known[path]] == []
    late = {(path, name) for path, name in listed if known[path][name]}
    assert [promise for promise, tests in named.items() if late.issuperset(tests)] == []


def test_the_scripts_of_ci_name_tests_that_there_are():
    scripts = [ROOT / "Makefile", *(ROOT / ".ci").iterdir()]
    named = re.findall(r"\btests/([\w/]+\.py)(?:::(test_\w+))?", "".join(path.read_text("utf-8") for path in scripts))
    assert named
    gone = [(path, name) for path, name in named if not (ROOT / "tests" / path).exists()]
    assert gone + [(path, name) for path, name in named if name and name not in list_tests(ROOT / "tests" / path)] == []


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


def test_links_lead_somewhere_and_to_each_page_from_the_first():
    """A link from the README and the index to each page; no link to a page or a heading that there is not."""
    missing, linked = [], dict[Path, set[Path]]()
    for page in PAGES:
        targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        for target in (one for one in targets if "://" not in one):
            path, _, fragment = target.partition("#")
            place = (page.parent / path).resolve() if path else page
            linked.setdefault(page, set()).add(place)
            headings = re.findall(r"^#+ (.+)$", place.read_text("utf-8"), re.MULTILINE) if fragment else []
            missing += [] if place.exists() and (not fragment or fragment in map(anchor, headings)) else [target]
    for start in (ROOT / "README.md", ROOT / "docs/index.md"):
        missing += [name_of(page) for page in CITED if page not in linked[start] | {start, ROOT / "README.md"}]
    assert missing == []


def list_options(command: click.Command, context: click.Context, words: list[str]) -> set[str]:
    """Return the options of a command, and of those of its commands that the words name."""
    found = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if isinstance(command, click.Group):
        named = set(re.findall(r"[a-z]+", words[0])) if words else set()
        assert named <= set(command.list_commands(context)), words
        inner = [command.get_command(context, name) for name in named]
        found |= {name for one in inner if one for name in list_options(one, context, [])}
    return found


def test_commands_and_their_options_are_there():
    """On pages, in what relay says, in templates and examples."""
    context, wrong = click.Context(LazyGroup()), []
    for path, words in ((where, found) for where in (*PAGES, *SAID) for found in find_commands(where)):
        if words[0] == "help":
            continue  # `test_help_names_pages_that_there_are`
        command = LazyGroup().get_command(context, words[0])
        typed = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(words[1:]))) - {"--help"}
        if command is None or typed - list_options(command, context, words[1:]):
            wrong.append((name_of(path), words))
    assert wrong == []


def test_files_and_settings_that_a_page_names_are_there():
    """A path that begins with a room or a folder of relay's own, a setting with its value, a variable of relay's."""
    folders = {place.name for base in (ROOT, ROOT / "relay") for place in base.glob("[!.]*/")} | {".ci"}
    known = set(KEYS) | {name for kind in Struct.__subclasses__() for name in kind.__struct_fields__}
    wrong = []
    said = "".join(path.read_text(encoding="utf-8") for path in (*SAID, ROOT / "docs/how-to/mac.md"))
    for page, span in ((where, found) for where in PAGES for found in find_spans(where)):
        path = re.fullmatch(r"([\w.-]+)/[\w./-]*", span)
        places = (base / span for base in (ROOT, ROOT / "relay", ROOT / "tests"))
        if path and path[1] in folders and span not in EXAMPLES and not any(place.exists() for place in places):
            wrong.append((name_of(page), span))
        setting = re.fullmatch(r"(\w+)(?:\.\w+)* = .*", span)
        if setting and setting[1] not in known:
            wrong.append((name_of(page), span))
        if any(name.lower() not in KEYS and f"RELAY_{name}" not in said for name in re.findall(r"\bRELAY_(\w+)", span)):
            wrong.append((name_of(page), span))
    for page in PAGES:
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            wrong += [(name_of(page), name) for name in tomllib.loads(block) if name not in known]
    assert wrong == []


def test_help_names_pages_that_there_are():
    """A message names a page by `relay help`, which the package brings along: who installed relay has no docs/."""
    texts = {path: path.read_text(encoding="utf-8") for path in (*PAGES, *SAID)}
    named = {name for text in texts.values() for name in re.findall(r"(?<!\w)relay help ([a-z][\w/-]*)", text)}
    pages = {name for page in list_pages() for name in (page, page.rpartition("/")[2])}
    assert named - pages - {*COMMANDS, "pages"} == set()
    strings = (
        (path, node.value)
        for path in texts
        if path.suffix == ".py" and "docs/" in texts[path]
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

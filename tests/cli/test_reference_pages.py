"""docs/reference/ against the code: commands and options, exit codes, trailers, refs, the plan's grammar."""

import re
from pathlib import Path

import click

from relay.base.errors import ExitCode
from relay.plan.parse import parse_plan
from relay.tools.toolbox import PLANNER_SPECS, RUNNER_SPECS
from tests.cli import manual

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "relay").rglob("*.py"))
GIT = (ROOT / "docs/reference/git.md").read_text(encoding="utf-8")
GRAMMAR = (ROOT / "docs/reference/plan.md").read_text(encoding="utf-8").partition("## Grammar")[2].partition("\n## ")[0]
PLAN = """\
---
relay: {verify: ["make lint"], max_cost_usd: 3}
---
# Keys
Verify: `pytest -q`

## Phase 1 — Table
Verify: `pytest a` `pytest b`
Runner: claude
Tools: docs, db

**Files:**
- db/schema.py

- [ ] 1.1 Add the table — a.py, b.py
* [X] 1.2 Done
1) [~] Begun

### Notes
- a note

## Step 2: Keys
After: none
Verify:
```
pytest c
```
- [ ] Keys
"""


def test_no_help_text_names_a_source_file():
    """A user has the command and not its sources."""
    for command, context in manual.list_commands():
        said = "\n".join((command.help or "", *(words for _, words in manual.list_parameters(command, context))))
        assert not re.search(r"\w/\w+\.py\b", said), context.command_path


def test_the_page_of_rehearsals_names_each_tool():
    """Their input is what `relay demo --check` lists, from the tools themselves."""
    page = (ROOT / "docs/how-to/rehearse.md").read_text(encoding="utf-8")
    assert not re.search(r"relay/\w+/\w+\.py", page)
    assert {spec.name for spec in (*RUNNER_SPECS, *PLANNER_SPECS)} <= set(re.findall(r"`(\w+)`", page))


def test_the_manual_is_ascii():
    assert manual.write_manual().isascii()


def test_the_page_and_the_manual_have_every_option():
    page, man = manual.write_options_page(), manual.write_manual().replace("\\-", "-")
    for command, context in manual.list_commands()[1:]:
        assert f"# {context.command_path}\n" in page
        assert f".SS {context.command_path}\n" in man
        for option in (name for p in command.params if isinstance(p, click.Option) and not p.hidden for name in p.opts):
            assert option in page
            assert option in man


def test_the_reference_names_only_options_that_are_there():
    """On other pages a flag may be another program's; in the row of a command it is that command's, or its group's."""
    text = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    options: dict[str, set[str]] = {}
    for command, context in manual.list_commands():
        named = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        options.setdefault(" ".join(context.command_path.split()[1:2]), {"--help"}).update(named)
    rows = re.findall(r"^\| `relay (\w+)(.*)", text, re.MULTILINE)
    flags = [(name, flag) for name, row in rows for flag in re.findall(r"(?<![\w-])--\w[\w-]*", row)]
    assert len(flags) > 60
    assert [(name, flag) for name, flag in flags if flag not in options[name]] == []


def test_every_exit_code_is_there():
    text = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == {int(code) for code in ExitCode}
    assert set(manual.EXITS) == set(ExitCode)


def test_every_trailer_is_there():
    written = {key for path in SOURCES for key in re.findall(r'"(Relay-[A-Z][A-Za-z-]+)"', path.read_text())}
    assert set(re.findall(r"`(Relay-[A-Za-z-]+)", GIT)) == written


def test_every_kind_of_ref_is_there():
    kinds = {kind for path in SOURCES for kind in re.findall(r"refs/relay/([a-z]+)", path.read_text())}
    assert set(re.findall(r"refs/relay/([a-z]+)", GIT)) == kinds


def test_a_keyword_of_the_grammar_numbers_a_phase():
    for keyword in re.findall(r'"(\w+)"', GRAMMAR.partition("keyword")[2].partition("\nnumber")[0]):
        (phase,) = parse_plan(f"# Plan\n\n### {keyword} 7: Keys\n- [ ] Make keys\n").phases
        assert (phase.id, phase.title) == ("7", "Keys"), keyword


def test_what_the_grammar_says_is_read_so():
    plan = parse_plan(PLAN)
    first, second = plan.phases
    assert (first.id, first.title, first.runner, first.tools) == ("1", "Table", "claude", ("docs", "db"))
    assert first.verify == ("make lint", "pytest -q", "pytest a", "pytest b")
    assert second.verify == ("make lint", "pytest -q", "pytest c")
    assert (second.id, second.title, second.after) == ("2", "Keys", ())
    assert [(item.id, item.done) for item in first.items] == [("1.1", False), ("1.2", True), ("1.3", False)]
    assert first.items[0].paths == ("a.py", "b.py")
    assert "db/schema.py" in first.files
    assert plan.settings.get("max_cost_usd") == 3

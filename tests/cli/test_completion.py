"""What a shell is offered, and the help where one looks for it."""

import re
from pathlib import Path

import pytest

from relay.cli.main import COMMANDS, GROUPS
from relay.cli.manual import list_pages

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def offer(relay, environ):
    """Return what is offered for a command line whose last word is unfinished."""

    def ask(*words: str) -> list[str]:
        asked = {"_RELAY_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        ran = relay(env={**environ, **asked})
        return [line.partition(",")[2] for line in ran.out.splitlines()]

    return ask


def test_commands_models_runners_and_files_are_offered(offer):
    assert offer("relay", "dem") == ["demo"]
    assert "claude-opus-5-5" in offer("relay", "doctor", "--model", "claude-")
    assert offer("relay", "run", "--plan", "do") == ["do"]
    assert offer("relay", "plan", "--runner", "")[0] == "api"
    assert offer("relay", "run", "--runner", "cl") == ["claude", "cline"]


def test_a_flag_that_is_none_says_what_to_do_instead(relay):
    ran = relay("run", "--zzz", "none")
    assert (ran.code, "No such option '--zzz'." in ran.err, "Hint: `relay run --help`" in ran.err) == (2, True, True)


def test_help_and_version_are_where_one_looks_for_them(relay):
    shown = relay("--help").out
    assert relay("help").out == shown
    assert all(f"\n{title}:\n" in shown for title in GROUPS)
    assert re.findall(r"^  ([a-z]+)  ", shown, re.MULTILINE) == [*COMMANDS]
    assert relay("help", "run").out == relay("run", "--help").out
    assert relay("help").out == relay("--help").out == shown
    assert relay("-V").out == relay("--version").out
    assert relay("help", "night").out == relay("help", "how-to/night").out == (DOCS / "how-to/night.md").read_text()
    assert relay("help", "gate").out == relay("gate", "--help").out
    assert re.findall(r"^(\S+)", relay("help", "pages").out, re.MULTILINE) == [*list_pages()]
    assert relay("help", "fleet", "worker").out == relay("fleet", "worker", "--help").out
    assert [relay("help", *words).code for words in (["rnu"], ["fleet", "x"])] == [2, 2]

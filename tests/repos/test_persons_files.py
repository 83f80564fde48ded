"""Rules and settings that a person writes while a phase is open: in nobody's commit, in nobody's way."""

import pytest

from relay.base.errors import ExitCode
from relay.session.events import Noticed
from tests.resume.conftest import LUNCH
from tests.scripts import HELLO

BLOCKED = HELLO.replace('- text: "Commit: Say hello"', "- tools: [{name: block, input: {reason: lunch}}]")
MINE = {"CLAUDE.md": "mine\n", "docs/AGENTS.md": "mine\n", "relay.toml": "max_sessions = 5\n", ".mcp.json": "{}\n"}


@pytest.mark.nightly
def test_what_a_person_writes_between_two_runs_stops_no_phase(stage):
    """The phase is committed without it, what was left out is said, and it stays where it is."""
    assert stage.run(BLOCKED, all_=False).exit_code == ExitCode.STOPPED
    for path, text in MINE.items():
        stage.write(path, text)

    ended = stage.run("sessions: [{turns: [{text: 'Commit: Say hello'}]}]", all_=False)

    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, []), ended
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["PLAN.md", "hello.txt"]
    assert {path: (stage.root / path).read_text() for path in MINE} == MINE
    said = [notice.text for notice in stage.seen(Noticed) if "only you write such a file" in notice.text]
    assert said == [f"not committed, because only you write such a file: {', '.join(sorted(MINE))}"]
    assert stage.run(LUNCH, all_=False).exit_code == ExitCode.STOPPED  # and the next run starts


def test_what_a_person_writes_while_a_session_works_is_asked_about_once(stage):
    """Whose it is cannot be known: no session is asked to repair it, and staging it is the answer."""
    stage.on_tool = lambda: stage.write("CLAUDE.md", "mine\n")
    ended = stage.run(HELLO, all_=False)
    stage.calm()

    assert ended.exit_code == ExitCode.STOPPED
    assert "only you write such a file; look at it" in ended.reason
    assert "if it is yours, say so: git add -f CLAUDE.md" in ended.reason
    assert [request.method for request in stage.server.requests].count("POST") == 3
    stage.git("add", "-f", "CLAUDE.md")
    ended = stage.run("sessions: [{turns: [{text: 'Commit: Say hello'}]}]", all_=False)
    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, []), ended
    assert stage.git("diff", "--cached", "--name-only") == "CLAUDE.md\n"

"""`agents.NAME.bring`: an agent has a copy of the user's skills, agents and commands, and nothing else of theirs."""

import json
import os
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.agents import fake_agent
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.scripts import ONE_PHASE

SETTINGS = """\
runner = "mine"
[agents.mine]
like = "claude"
program = "{program}"
env = {{ FAKE_BASE = "{{base}}", FAKE_MODEL = "{{model}}", FAKE_LIES = "rummage" }}
bring = ["skills", "agents", "commands"]
"""
HEALTHY = """\
model: claude-opus-5-5
sessions:
  - turns:
      - tools: [{name: bash, input: {command: "echo hello > hello.txt"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "hello.txt says hello"}}]
      - text: Done.
"""
THEIRS = {
    ".claude/skills/pdf/SKILL.md": "Fill forms.",
    ".claude/skills/pdf/fill.sh": "#!/bin/sh\n",
    ".claude/agents/reader.md": "Read slowly.",
    ".claude/commands/ship it.md": "Ship it.",
}


@pytest.fixture
def theirs(environ, tmp_path, project, commit):
    """The user's home with those folders, a login and settings beside them; the agent is set as runner."""
    (project / "PLAN.md").write_text(ONE_PHASE)
    commit()
    home, programs = Path(environ["HOME"]), tmp_path / "programs"
    others = {".claude/.credentials.json": "login", ".claude/settings.json": "{}", ".claude/projects/x.jsonl": "talk"}
    for name, text in {**THEIRS, **others}.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / ".claude/skills/pdf/fill.sh").chmod(0o755)
    programs.mkdir()
    for name, text in (
        ("agent", f"#!{sys.executable} -IS\n{Path(fake_agent.__file__).read_text()}"),
        ("node", "#!/bin/sh\n"),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (home / ".config/relay").mkdir(parents=True)
    (home / ".config/relay/config.toml").write_text(SETTINGS.format(program=programs / "agent"))
    environ |= {"PATH": f"{programs}:{environ['PATH']}", "ANTHROPIC_API_KEY": "sk-the-real-key-of-the-user"}
    return home


def test_a_session_has_a_copy_of_them_hashed_into_the_log(relay, theirs, project):
    """The originals stay as they are whatever the agent does to its copy."""
    with serve(parse_script(HEALTHY)) as server:
        ran = relay("run", env={"ANTHROPIC_BASE_URL": server.base_url})
    assert (ran.code, ran.err) == (0, ""), ran.out
    seen = json.loads((project / "rummage.json").read_text())
    assert {name: text for name, (_, text) in seen.items()} == THEIRS
    assert {mode for mode, _ in seen.values()} == {"0o400", "0o500"}
    assert {name: (theirs / name).read_text() for name in THEIRS} == THEIRS
    order = sorted(THEIRS, key=lambda name: ("skills", "agents", "commands").index(name.split("/")[1]))
    lines = "".join(f"{name}\0{sha256(THEIRS[name].encode()).hexdigest()}\n" for name in order)
    words = f"your skills, agents, commands: 4 files, SHA-256 {sha256(lines.encode()).hexdigest()}"
    assert words in " ".join(ran.out.split())
    assert words in "".join(path.read_text() for path in (project / ".relay/sessions").iterdir())


def test_a_link_out_of_a_folder_stops_the_run_before_it_starts(relay, theirs):
    (theirs / ".claude/skills/pdf/notes.md").symlink_to(theirs / ".claude/.credentials.json")
    os.mkfifo(theirs / ".claude/agents/wait.md")
    for command in ("run", "run --dry-run"):
        ran = relay(*command.split(), env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == (
            "Error: Claude Code: ~/.claude/skills: 'notes.md' cannot be copied: it is a link\n"
            "Hint: put a copy of it there, or leave skills out of agents.mine.bring\n"
        )
    assert "'notes.md' cannot be copied: it is a link" in relay("doctor").out

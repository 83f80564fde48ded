"""`relay run` and `relay doctor` with a key that renews itself: the whole program, over HTTP."""

import json
from pathlib import Path

import pytest

from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve

PLAN = "# Greetings\n\n## Phase 1 — Hello\nVerify: `grep -q hello hello.txt`\n- [ ] Say hello — hello.txt\n"
SCRIPT = """\
model: claude-opus-5-5
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - fault: {kind: status, status: 401}
        tools: [{name: tick, input: {item: "1.1", evidence: "hello.txt says hello"}}]
      - text: Done.
"""
KEYS = "n=$(cat ~/asked 2>/dev/null | wc -l); echo asked >> ~/asked; echo the-key-number-$((n + 1))-is-secret"
"""A command that prints another key each time."""


@pytest.fixture
def planned(project, commit):
    (project / "PLAN.md").write_text(PLAN)
    commit()
    return project


@pytest.fixture
def home(environ):
    """The user's home: a folder, and the function that writes their settings there."""
    place = Path(environ["HOME"])

    def configure(text):
        (place / ".config/relay").mkdir(parents=True, exist_ok=True)
        (place / ".config/relay/config.toml").write_text(text)
        return place

    return configure


def test_a_key_that_ends_in_mid_run_costs_no_phase(relay, planned, home, git):
    """The command is asked when the run starts and after the refusal; nothing that is kept shows what it printed."""
    place = home(f"key_command = {json.dumps(['sh', '-c', KEYS])}\n")
    with serve(parse_script(SCRIPT)) as server:
        ran = relay("run", env={"ANTHROPIC_BASE_URL": server.base_url})
    assert (ran.code, ran.err) == (0, "")
    assert (place / "asked").read_text() == "asked\n" * 2
    assert git("show", "HEAD:hello.txt") == "hello"
    kept = [path.read_bytes() for path in planned.rglob("*") if path.is_file()]
    assert not [text for text in (ran.out.encode(), *kept) if b"the-key-number" in text]
    assert list((planned / ".relay/history").iterdir())


@pytest.mark.usefixtures("planned")
def test_the_doctor_says_which_credential_and_not_its_value(relay, home):
    home(f"key_command = {json.dumps(['sh', '-c', KEYS])}\n")
    with serve(parse_script(SCRIPT)) as server:
        shown = relay("doctor", env={"ANTHROPIC_BASE_URL": server.base_url, "RELAY_SANDBOX": "off"}).out
    assert "ok       key         key_command (sh) is set" in shown
    assert "ok       model       claude-opus-5-5: window" in shown
    assert "the-key-number" not in shown


@pytest.mark.usefixtures("planned")
def test_a_locked_vault_stops_a_run_before_anything_else(relay, home, git):
    """In its own words, with what to do; nothing is changed, and nothing sent."""
    home('key_command = ["sh", "-c", "echo the vault is locked >&2; exit 1"]\n')
    before = git("for-each-ref"), git("status", "--porcelain")
    with serve(parse_script(SCRIPT)) as server:
        ran = relay("run", env={"ANTHROPIC_BASE_URL": server.base_url})
        assert not server.requests
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "Error: key_command (sh) ended with 1: the vault is locked\n"
        "Hint: type the command yourself: it has to print the key and nothing else\n"
    )
    assert (git("for-each-ref"), git("status", "--porcelain")) == before

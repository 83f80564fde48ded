"""Tool servers, attacked from both sides: a repository that names its own, and a server of the user's gone bad."""

from pathlib import Path

import pytest

BAD = Path(__file__).with_name("bad_server.py")
MOST_CHARS = 50_000
"""Of a result, whatever a server says."""
REFUSED = 3
"""Of its requests; the fourth is a ping."""
FAKE = Path(__file__).parents[1] / "tools/fake_server.py"
PHASE = "# P\n\n## Phase 1 — One\nVerify: `test -f one.txt`\nTools: evil, db\n- [ ] Say one — one.txt\n"
NAMED = '{"mcpServers": {"evil": {"command": "touch", "args": ["@OUT@/executed"]}}}'


def name_server(arena, source, kind):
    """Have the user's own settings name a program that is no friend of theirs."""
    config = arena.home / ".config/relay/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[mcp_servers.db]\ncommand = ["{arena.python}", "-I", "server.py", "{kind}"]\n')
    arena.write("server.py", source.read_text().replace("@ABSTRACT@", arena.places["ABSTRACT"]))
    arena.write("PLAN.md", PHASE)


@pytest.fixture
def serving(arena):
    """The user's own server is a program that asks for what it must not have."""
    name_server(arena, FAKE, "writes")
    for path in (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"):
        arena.write(path, NAMED.replace("@OUT@", str(arena.outside)))
    arena.commit()
    return arena


def test_a_server_reaches_no_more_than_commands_do_and_a_repositorys_is_not_started(serving, leaks):
    asked = [str(serving.home / ".ssh/id_ed25519"), str(serving.outside / "secret.txt"), "/proc/1/environ"]
    played = serving.call([("db__query", {"path": path}) for path in asked], "run", warm=True)

    texts = [got.text for got in played.got]
    assert len(texts) == len(asked), played.tail
    assert all(text.startswith("refused environ ") for text in texts[:2]), texts
    assert not [leak for leak in leaks for text in texts if leak in text]
    assert b"Tools: evil is none of your mcp_servers" in played.out
    assert not (serving.outside / "executed").exists()
    assert not (serving.outside / "stolen").exists()
    assert not (serving.home / ".ssh/stolen").exists()


GONE_BAD = {
    "orders": "",
    "names that shadow": "",
    "a huge schema": "There is no tool",
    "a schema without end": "There is no tool",
    "megabytes": "",
    "a line without end": "its program has ended",
    "requests of its own": "",
    "an answer after its death": "its program has ended",
}
"""What a server does, and what a call of its tool is answered with where that is an error."""


@pytest.mark.parametrize("kind", GONE_BAD)
def test_a_server_gone_bad_is_a_tool_that_answers_badly(arena, leaks, kind):
    """It gives no orders, takes no other tool's name, ends nothing but itself, and the session goes on behind it."""
    name_server(arena, BAD, kind)
    arena.commit()
    query = {"tools": [{"name": "db__query", "input": {}}]}
    turns = [
        query,
        {"tools": [{"name": "bash", "input": {"command": "echo mine > one.txt; cat one.txt"}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "seen"}}]},
        query,
        {"text": "Commit: Say one"},
    ]

    played = arena.play([{"turns": turns}], "run", "--phase", "1", terminal=True, warm=True)

    assert (played.code, played.errors) == (0, ()), played.tail
    first, bash, tick, again = played.got
    for got in (first, again):
        assert got.is_error == bool(GONE_BAD[kind]), got
        assert GONE_BAD[kind] in got.text
        assert len(got.text) < MOST_CHARS
        assert not [leak for leak in (*leaks, "\x1b", "\x07") if leak in got.text]
        assert kind != "requests of its own" or got.text.count("-32601") == REFUSED, got.text
    assert ("mine" in bash.text.splitlines(), tick.is_error) == (True, False)
    assert not [text for text in (*played.systems, *played.messages) if "you are the user" in text]
    assert not arena.is_running(arena.places["ABSTRACT"])
    for sequence in (b"\x1b[2J", b"\x1b]0;owned", b"\x07", "\u202e".encode()):
        assert sequence not in played.out

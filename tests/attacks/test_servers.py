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


def name_servers(arena, source, kinds):
    """Have the user's own settings name programs that are no friends of theirs."""
    config = arena.home / ".config/relay/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    named = (
        f'[mcp_servers.{name}]\ncommand = ["{arena.python}", "-I", "{{repository}}/server.py", "{kind}"]\n'
        for name, kind in kinds.items()
    )
    config.write_text("".join(named))
    arena.write("server.py", source.read_text().replace("@ABSTRACT@", arena.places["ABSTRACT"]))
    arena.write("PLAN.md", PHASE.replace("db", ", ".join(kinds)))


@pytest.fixture
def serving(arena):
    """The user's own server is a program that asks for what it must not have."""
    name_servers(arena, FAKE, {"db": "writes"})
    for path in (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"):
        arena.write(path, NAMED.replace("@OUT@", str(arena.outside)))
    arena.commit()
    return arena


def test_a_server_reaches_no_more_than_commands_do_and_a_repositorys_is_not_started(serving, leaks):
    asked = [str(serving.home / ".ssh/id_ed25519"), str(serving.outside / "secret.txt"), "/proc/1/environ"]
    played = serving.call([("db__query", {"path": path}) for path in asked], "run", "--unchecked", warm=True)

    texts = [got.text for got in played.got]
    assert len(texts) == len(asked), played.tail
    assert all(text.startswith("refused environ ") for text in texts[:2]), texts
    assert not [leak for leak in leaks for text in texts if leak in text]
    assert b"Tools: evil: none of your mcp_servers" in played.out
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


@pytest.mark.nightly
def test_servers_gone_bad_are_tools_that_answer_badly(arena, leaks):
    """They give no orders, take no other tool's name, end nothing but themselves; the session goes on behind them."""
    names = {"db" if kind == "names that shadow" else f"s{number}": kind for number, kind in enumerate(GONE_BAD)}
    name_servers(arena, BAD, names)
    arena.commit()
    query = [{"tools": [{"name": f"{name}__query", "input": {}}]} for name in names]
    turns = [
        *query,
        {"tools": [{"name": "bash", "input": {"command": "echo mine > one.txt; cat one.txt"}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "seen"}}]},
        *query,
        {"text": "Commit: Say one"},
    ]

    played = arena.play([{"turns": turns}], "run", "--phase", "1", "--unchecked", terminal=True, warm=True)

    assert (played.code, played.errors) == (0, ()), played.tail
    calls = len(GONE_BAD)
    bash, tick = played.got[calls:-calls]
    for kind, got in zip([*GONE_BAD] * 2, played.got[:calls] + played.got[-calls:], strict=True):
        assert got.is_error == bool(GONE_BAD[kind]), (kind, got)
        assert GONE_BAD[kind] in got.text, kind
        assert len(got.text) < MOST_CHARS, kind
        assert not [leak for leak in (*leaks, "\x1b", "\x07") if leak in got.text], kind
        assert kind != "requests of its own" or got.text.count("-32601") == REFUSED, got.text
    assert ("mine" in bash.text.splitlines(), tick.is_error) == (True, False)
    assert not [text for text in (*played.systems, *played.messages) if "you are the user" in text]
    assert not arena.is_running(arena.places["ABSTRACT"])
    for sequence in (b"\x1b[2J", b"\x1b]0;owned", b"\x07", "\u202e".encode()):
        assert sequence not in played.out

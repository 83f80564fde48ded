"""Tool servers, attacked from both sides: a repository that names its own, and a server of the user's gone bad."""

from pathlib import Path

import pytest

FAKE = Path(__file__).parents[1] / "tools/fake_server.py"
PHASE = "# P\n\n## Phase 1 — One\nVerify: `test -f one.txt`\nTools: evil, db\n- [ ] Say one — one.txt\n"
NAMED = '{"mcpServers": {"evil": {"command": "touch", "args": ["@OUT@/executed"]}}}'


@pytest.fixture
def serving(arena):
    """The user's own server is a program that asks for what it must not have."""
    config = arena.home / ".config/relay/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[mcp_servers.db]\ncommand = ["python3", "-I", "server.py", "writes"]\n')
    arena.write("server.py", FAKE.read_bytes())
    arena.write("PLAN.md", PHASE)
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

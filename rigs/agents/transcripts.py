"""Small transcripts that the real agents write, for `tests/transcripts/`: they build a key store, against the player.

    python -m rigs.agents.transcripts [--place DIR] [AGENT …]

Each is asked twice in one session, compacts where it can be told to, and is left in the middle of its work. Machine
paths and the vendors' own long texts are taken out; nothing else is changed.
"""

import argparse
import json
import platform
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from rigs.agents.real import AGENTS, GIT, KEY, MACHINE, install
from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve
from tests.transcripts.test_events import describe_all

OUT = Path(__file__).parents[2] / "tests/transcripts"
MOST_CHARS = {True: 1_200, False: 240}
"""Of a text in a line that is part of the talk, and in any other."""
_TALK = {"user", "assistant", "system", "cost-state", "response_item", "event_msg", "token_usage_record", "compacted"}
"""Kinds of lines of which all are kept; of the others the first."""
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3eF5"
ASKED = (
    "Build a small key store: keys.py with put and get, and its tests. Use the standard library only.",
    f"No, never pickle: write JSON. Then add expiry. Deploy with {TOKEN} later, not now.",
    "Go on with expiry, and do not touch README.md.",
)
KEYS = "import json\n\n\ndef put(path, name, value):\n    path.write_text(json.dumps({name: value}))\n"
TESTS = "from keys import get\n\nassert get\n"
DECIDED = "I decided to keep one JSON file per store, because two services read it and neither may lock it."
SUMMARY = "The user wants a key store in keys.py. put is written; get and expiry are open."
LEFT = "Expiry is not done yet: get has no max_age, and the test of it fails. Next I will add it to keys.py."


def turn(text: str = "", *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Make a turn of a script."""
    made: dict[str, Any] = {"text": text} if text else {}
    return made | ({"tools": [{"name": name, "input": given} for name, given in calls]} if calls else {})


class Stand:
    """A home, a repository, and what is on the PATH."""

    def __init__(self, path: str) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="relay-transcripts-"))
        self.home, self.root = self.place / "home", self.place / "home/keys"
        self.root.mkdir(parents=True)
        (self.home / "tmp").mkdir()
        (self.home / ".gitconfig").write_text(GIT)
        (self.root / "README.md").write_text("# Keys\n\nA key store.\n")
        self.env = {"HOME": str(self.home), "PATH": path, "LC_ALL": "C.UTF-8", "TMPDIR": str(self.home / "tmp")}
        for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
            subprocess.run(["git", *args], cwd=self.root, env=self.env, check=True)

    def run(self, *words: str, **env: str) -> str:
        ended = subprocess.run(
            words, cwd=self.root, env=self.env | env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        sys.stderr.write(f"{words[0]}: {ended.returncode} {ended.stdout[-1500:]}{ended.stderr[-1500:]}\n")
        return ended.stdout

    def scrub(self, text: str) -> str:
        name = re.sub(r"[^A-Za-z0-9]", "-", str(self.home))
        return (
            text.replace(str(self.home), "/home/me")
            .replace(name, "-home-me")
            .replace(KEY, "the-key")
            .replace(TOKEN, "@TOKEN@")
            .replace(platform.release(), "6.0")
        )


def cut_texts(value: Any, *, talk: bool = True) -> Any:
    """Return JSON with the vendors' long texts cut: system prompts, tool descriptions, encrypted thinking."""
    if isinstance(value, dict):
        return {key: cut_texts(inner, talk=talk) for key, inner in value.items()}
    if isinstance(value, list):
        return [cut_texts(inner, talk=talk) for inner in value]
    is_long = isinstance(value, str) and len(value) > MOST_CHARS[talk]
    return f"{value[:40]}… ({len(value):,} characters)" if is_long else value


def save_lines(stand: Stand, found: Path, name: str) -> None:
    """Save a file of JSON lines."""
    kept: dict[tuple[str, str, int], str] = {}
    for number, text in enumerate(stand.scrub(found.read_text()).splitlines()):
        line = json.loads(text)
        kind, inner = line["type"], line.get("attachment", {}).get("type", "")
        talk = kind in {"user", "assistant", "compacted"} or "output" in line.get("payload", {})
        shown = json.dumps(cut_texts(line, talk=talk), ensure_ascii=False)
        kept.setdefault((kind, inner, number if kind in _TALK else 0), shown)
    (OUT / name).write_text("".join(f"{line}\n" for line in kept.values()))


def make_claude(stand: Stand, server: Endpoint) -> None:
    """Claude Code, told to compact after its first answer."""
    env = {"IS_SANDBOX": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    env |= {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY}
    line = ("claude", "-p", "--output-format", "json", "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5")
    session = "0c0ffee0-0000-4000-8000-000000000001"
    stand.run(*line, "--session-id", session, "--", ASKED[0], **env)
    stand.run(*line, "--resume", session, "--", ASKED[1], **env)
    stand.run(*line, "--resume", session, "--", "/compact", **env)
    stand.run(*line, "--resume", session, "--", ASKED[2], **env)
    (found,) = (stand.home / ".claude/projects").glob(f"*/{session}.jsonl")
    save_lines(stand, found, "claude.jsonl")


def make_codex(stand: Stand, server: Endpoint) -> None:
    """Codex, which compacts by itself at a low line."""
    (stand.home / ".codex").mkdir()
    (stand.home / ".codex/config.toml").write_text(
        'model = "gpt-rehearsed"\nmodel_provider = "scripted"\ncheck_for_update_on_startup = false\n'
        "model_auto_compact_token_limit = 60000\nmodel_context_window = 400000\n[analytics]\nenabled = false\n"
        f'[model_providers.scripted]\nname = "s"\nbase_url = "{server.base_url}/v1"\nenv_key = "SCRIPTED_KEY"\n'
        'wire_api = "responses"\n'
    )
    line, rest = ("codex", "exec"), ("--json", "--dangerously-bypass-approvals-and-sandbox", "--disable", "plugins")
    said = stand.run(*line, *rest, ASKED[0], SCRIPTED_KEY=KEY)
    thread = json.loads(next(row for row in said.splitlines() if "thread.started" in row))["thread_id"]
    for asked in ASKED[1:]:
        stand.run(*line, "resume", *rest[:2], thread, asked, SCRIPTED_KEY=KEY)
    (found,) = (stand.home / ".codex/sessions").glob("*/*/*/rollout-*.jsonl")
    save_lines(stand, found, "codex.jsonl")


def make_opencode(stand: Stand, server: Endpoint) -> None:
    """OpenCode; its tables are kept as SQL, with the columns that are read."""
    folder = stand.home / ".config/opencode"
    folder.mkdir(parents=True)
    options = {"baseURL": f"{server.base_url}/v1", "apiKey": KEY}
    model = "anthropic/claude-sonnet-4-5"
    config = {"model": model, "small_model": model, "enabled_providers": ["anthropic"], "snapshot": False}
    models = {"claude-sonnet-4-5": {"limit": {"context": 100_000, "output": 8_000}}}
    config |= {
        "provider": {"anthropic": {"options": options, "models": models}},
        "permission": {"edit": "allow", "bash": "allow"},
    }
    (folder / "opencode.json").write_text(json.dumps(config))
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD")}
    line = ("opencode", "run", "--format", "json", "--title", "keys")
    said = stand.run(*line, ASKED[0], **env)
    session = json.loads(said.splitlines()[0])["sessionID"]
    for asked in ASKED[1:]:
        stand.run(*line, "--session", session, asked, **env)
    kept = {"session": "id, parent_id, directory, title, version, time_created, time_updated"}
    kept |= {"message": "id, session_id, time_created, data", "part": "id, message_id, data"}
    text = ""
    with closing(sqlite3.connect(stand.home / ".local/share/opencode/opencode.db")) as base:
        for table, columns in kept.items():
            text += f"CREATE TABLE {table} ({columns});\n"
            for row in base.execute(f"SELECT {columns} FROM {table} ORDER BY id"):
                cells = [cut_json(cell) if isinstance(cell, str) else cell for cell in row]
                (quoted,) = base.execute(f"SELECT {', '.join(['quote(?)'] * len(cells))}", cells)
                text += f"INSERT INTO {table} VALUES ({', '.join(map(str, quoted))});\n"
    (OUT / "opencode.sql").write_text(stand.scrub(text))


def cut_json(cell: str) -> str:
    """Return a cell with its long texts cut."""
    return json.dumps(cut_texts(json.loads(cell)), ensure_ascii=False) if cell.startswith("{") else cell


def _write(path: str, text: str, how: str) -> tuple[str, dict[str, Any]]:
    if how == "claude":
        return "Write", {"file_path": path, "content": text}
    if how == "opencode":
        return "write", {"filePath": path, "content": text}
    body = "".join(f"+{line}\n" for line in text.splitlines())
    name = path.rpartition("/")[2]
    return "exec_command", {
        "cmd": f"apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {name}\n{body}*** End Patch\nEOF"
    }


def _shell(command: str, how: str) -> tuple[str, dict[str, Any]]:
    if how == "codex":
        return "exec_command", {"cmd": command}
    return ("Bash" if how == "claude" else "bash"), {"command": command, "description": "x"}


def _list(how: str, *states: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that write the agent's own list of what is to do."""
    steps = list(zip(("Write keys.py", "Add expiry to get", "Test expiry"), states, strict=True))
    if how == "claude" and "completed" in states:
        return [("TaskUpdate", {"taskId": str(n), "status": state}) for n, (_, state) in enumerate(steps, 1)]
    if how == "claude":
        return [("TaskCreate", {"subject": step, "description": step}) for step, _ in steps]
    if how == "codex":
        return [("update_plan", {"plan": [{"step": step, "status": state} for step, state in steps]})]
    todos = [{"content": step, "status": state, "activeForm": step, "priority": "high"} for step, state in steps]
    return [("todowrite", {"todos": todos})]


def write_script(how: str, root: Path) -> str:
    """Return what the model answers."""
    tests = _shell("python3 test_keys.py", how)
    most = {"codex": 70_000, "opencode": 180_000}.get(how, 0)
    """What fills a context, so that the agent compacts it."""
    first = [
        turn("I look first.", _shell("cat README.md", how), *_list(how, "in_progress", "pending", "pending")),
        turn(DECIDED, _write(f"{root}/keys.py", KEYS, how), _write(f"{root}/test_keys.py", TESTS, how)),
        turn("", tests),
        turn("put is written; its test fails, for get is missing."),
    ]
    second = [
        turn("I write JSON.", _shell("git add keys.py && git commit -qm 'keys: put'", how)),
        turn("", *_list(how, "completed", "in_progress", "pending")),
        {"text": "The store writes JSON now."} | ({"usage": {"input_padding_tokens": most}} if most else {}),
    ]
    last = [turn("", tests), turn(LEFT)]
    asides = [
        {"name": word, "aside": True, "when": {f"{which}_message_contains": word}, "turns": [turn(text)]}
        for word, which, text in (("itle", "first", "x"), ("detailed summary", "last", SUMMARY))
    ]
    rest = {  # who goes on in the same conversation, who in a new one, and who goes on by itself
        "claude": [{"turns": [*first, *second, *last]}],
        "codex": [{"turns": [*first, *second, turn(SUMMARY)]}, {"turns": last}],
        "opencode": [{"turns": [*first, *second]}, {"turns": [turn(SUMMARY), turn("I wait."), *last]}],
    }[how]
    model = {"model": {"id": "gpt-rehearsed", "window": 400_000}} if how == "codex" else {}
    return json.dumps({**model, "sessions": [*([] if how == "codex" else asides), *rest]})


MAKERS: dict[str, Callable[[Stand, Endpoint], None]] = {
    "claude": make_claude, "codex": make_codex, "opencode": make_opencode,
}  # fmt: skip


def main() -> None:
    """Make those that are named; all without a name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", type=Path)
    parser.add_argument("names", nargs="*", default=[*MAKERS])
    asked: Any = parser.parse_args()
    agents = [agent for agent in AGENTS if agent.name in asked.names]
    place = (asked.place or Path(tempfile.mkdtemp(prefix="relay-agents-"))).resolve()
    own = place / f"claude/node_modules/@anthropic-ai/claude-agent-sdk-linux-{MACHINE}"  # without the protocol's client
    path = f"{own}:{install(place, agents)}"
    OUT.mkdir(exist_ok=True)
    for name in asked.names:
        stand = Stand(path)
        with serve(parse_script(write_script(name, stand.root))) as server:
            MAKERS[name](stand, server)
            for error in server.errors:
                sys.stderr.write(f"{error}\n")
    (OUT / "events.txt").write_text(describe_all(Path(tempfile.mkdtemp())))


if __name__ == "__main__":
    main()

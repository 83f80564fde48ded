"""Scripts of the model that tests of several rooms play, and playing one for a command."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve

ONE_PHASE = """\
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt
"""
TWO_PHASES = f"""{ONE_PHASE}
## Phase 2 — World
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
"""
HELLO = """
sessions:
  - name: hello
    turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello"
"""
"""The first phase of the plan that most tests have."""


def call(name: str, **given: object) -> dict[str, Any]:
    """Return a turn with one tool call."""
    return {"tools": [{"name": name, "input": given}]}


def run_commands(*commands: str) -> str:
    """Return the script of a session that runs these in the shell, ticks the first item and is done."""
    turns = [{"tools": [{"name": "bash", "input": {"command": command}}]} for command in commands]
    tick = {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "seen"}}]}
    return json.dumps({"sessions": [{"name": "s", "turns": [*turns, tick, {"text": "Commit: Do it", "repeat": 6}]}]})


@contextmanager
def serving(script: str, *, key: str = "k") -> Iterator[tuple[Endpoint, dict[str, str]]]:
    """Serve a script; yield the server and the variables that lead to it."""
    with serve(parse_script(script)) as server:
        yield server, {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": key, "NO_PROXY": "*"}

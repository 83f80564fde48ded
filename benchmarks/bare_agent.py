"""The least that an agent can be: the SDK, one loop, three tools. `overhead.py` measures relay against it.

    python benchmarks/bare_agent.py BASE_URL

No snapshots, no sandbox, no checks of paths or inputs, no gauge, no log: what relay takes longer is what these cost.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import anthropic

MODEL = "claude-opus-5-5"


def define(name: str, *required: str) -> dict[str, Any]:
    """Return a tool as the API takes it."""
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in required}, "required": list(required)}
    return {"name": name, "description": f"{name} something", "input_schema": schema}


TOOLS: list[Any] = [
    define("read", "path"),
    define("write", "path", "content"),
    define("bash", "command"),
    define("tick", "item", "evidence"),
]


def run_tool(name: str, given: dict[str, Any]) -> str:
    """Do what was asked for."""
    if name == "read":
        return Path(given["path"]).read_text(encoding="utf-8")
    if name == "write":
        Path(given["path"]).write_text(given["content"], encoding="utf-8")
    if name == "bash":
        return subprocess.run(["bash", "-c", given["command"]], capture_output=True, text=True, check=False).stdout
    return "done"


def main(base_url: str) -> None:
    """Work until the model has nothing more to call."""
    client = anthropic.Anthropic(api_key="rehearsal", base_url=base_url, max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "Carry out phase 1 now."}]
    while True:
        with client.messages.stream(
            model=MODEL, max_tokens=8_000, messages=messages, tools=TOOLS, cache_control={"type": "ephemeral"}
        ) as stream:
            answer = stream.get_final_message()
        if answer.stop_reason != "tool_use":
            return
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": run_tool(block.name, block.input)}
            for block in answer.content
            if block.type == "tool_use"
        ]
        messages += [{"role": "assistant", "content": [block.to_dict() for block in answer.content]}]
        messages += [{"role": "user", "content": results}]


if __name__ == "__main__":
    main(sys.argv[1])

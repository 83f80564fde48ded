"""What relay counts on in Anthropic's SDK: a release that changes it is seen here, not in somebody's night."""

import json
import logging
import subprocess
import sys
from typing import Any

import httpx2
import pytest

from relay.base.interrupts import Interrupts
from relay.runners.messages.answers import Answer
from relay.runners.messages.api import MessagesApi
from relay.runners.messages.connection import Fault, FaultKind
from relay.runners.messages.credentials import Credential, Proof
from relay.runners.messages.endpoint import ANTHROPIC, AWS, BEDROCK, EDITING_BETA, FOUNDRY, VERTEX, Way
from tests.clouds import render_frames
from tests.runners.test_api import REQUEST, WHOLE

SSE, FRAMED = "text/event-stream", "application/vnd.amazon.eventstream"
MANTLE, RUNTIME = "anthropic.claude-opus-5-5", "us.anthropic.claude-opus-4-5-20251101-v1:0"
BASE = "http://cloud.invalid"
KINDS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "key": (ANTHROPIC, "claude-opus-5-5", {"base_url": BASE}),
    "mantle": (BEDROCK, MANTLE, {"base_url": BASE, "aws_region": "r"}),
    "runtime": (BEDROCK, RUNTIME, {"runtime_url": BASE, "aws_region": "r"}),
    "aws": (AWS, "claude-opus-5-5", {"base_url": BASE, "aws_region": "r", "workspace_id": "w"}),
    "vertex": (VERTEX, "claude-opus-5-5", {"base_url": BASE, "region": "r", "project_id": "p"}),
    "foundry": (FOUNDRY, "claude-opus-5-5", {"base_url": BASE}),
}
"""Each client of the SDK: family, model, and where it asks."""


@pytest.fixture
def ask():
    """Send a request to an endpoint that a function plays, by one of the SDK's clients."""
    interrupts, opened = Interrupts(sleep=lambda _: None), []

    def send(answer, kind="key", environ=None, **fields):
        family, model, place = KINDS[kind]
        credential = Credential("it", lambda _: Proof(value="the-token-of-it", secrets=()), advice="")
        way = Way(family=family, needs_sdk=family is not ANTHROPIC, credential=credential, find_place=lambda: place)
        transport = httpx2.MockTransport(answer)
        given = {"ANTHROPIC_BASE_URL": BASE} if environ is None else environ
        api = MessagesApi(environ=given, interrupts=interrupts, idle_timeout_s=5, way=way, transport=transport)
        opened.append(api)
        return api.send({**REQUEST, "model": model, **fields}, on_block=lambda _: None)

    yield send
    for api in opened:
        api.close()
    interrupts.close()


def hear(seen):
    """Return an endpoint that answers, in frames where those are asked for, and keeps what it was sent."""

    def answer(request):
        seen.append(request)
        is_framed = "invoke-with-response-stream" in str(request.url)
        body = render_frames(WHOLE) if is_framed else WHOLE
        return httpx2.Response(200, headers={"content-type": FRAMED if is_framed else SSE}, content=body)

    return answer


def test_each_client_sends_relays_own_headers_and_none_of_the_process(ask, monkeypatch):
    """The user's headers and addresses are for the user's endpoint: a rehearsal gets neither.

    A field that the SDK does not know is sent, with its beta; Bedrock's runtime reads that in the body.
    """
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Leak: to-nobody")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-key-of-the-process")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere.invalid")
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    for kind in KINDS:
        seen: list[httpx2.Request] = []
        answer = ask(hear(seen), kind, context_management=edits, of_tomorrow=[{"a": None}])
        assert isinstance(answer, Answer), kind
        [sent] = seen
        assert sent.url.host == "cloud.invalid"
        assert sent.headers["authorization"] == "Bearer the-token-of-it"
        assert sent.headers["user-agent"].startswith("relay/")
        names = {name for name in sent.headers if name.startswith(("x-stainless-", "x-leak", "x-api-key"))}
        assert names == {"x-stainless-raw-response"}, "a further header by which the SDK tells of itself"
        assert "the-key-of-the-process" not in str(sent.headers.raw)
        body = json.loads(sent.read())
        assert (body["context_management"], body["of_tomorrow"]) == (edits, [{"a": None}])
        assert sent.headers["anthropic-beta"] == EDITING_BETA
        assert body.get("anthropic_beta") == ([EDITING_BETA] if kind == "runtime" else None)


def test_the_sdk_tries_nothing_again_by_itself(ask):
    for kind, status in [*((kind, 500) for kind in KINDS), ("key", 408), ("key", 429)]:
        seen: list[httpx2.Request] = []

        def refuse(request, seen=seen, status=status):
            seen.append(request)
            return httpx2.Response(status, headers={"x-should-retry": "true", "retry-after": "0"})

        assert isinstance(ask(refuse, kind), Fault)
        assert len(seen) == 1, (kind, status)


def test_a_request_that_the_sdk_refuses_to_write_is_the_users_to_change(ask, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_AWS_WORKSPACE_ID", raising=False)
    monkeypatch.setitem(KINDS, "aws", (AWS, "claude-opus-5-5", {"base_url": BASE, "aws_region": "r"}))
    fault = ask(hear([]), "aws")
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.may_be_billed) == (FaultKind.USER, False)
    assert fault.message.startswith("Anthropic's SDK: No workspace ID found.")


def test_nothing_is_traced_warned_of_or_logged(ask, monkeypatch, caplog):
    """A tracer would keep prompts; a warning or a line of a log would be written through the view."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    caplog.set_level(logging.DEBUG)
    from relay.runners.messages.client import SdkWire
    from relay.runners.messages.transport import open_http

    wire = SdkWire({"ANTHROPIC_API_KEY": "k"}, Way(), lambda address: open_http(address, 5))
    assert wire._get_client(None, "m").open_telemetry["traces"]["enabled"] is False
    wire.close()
    assert isinstance(ask(hear([]), model="claude-opus-4-20250514", thinking={"type": "enabled"}), Answer)
    assert caplog.records == []


@pytest.mark.nightly
def test_every_public_name_of_the_sdk_is_there_and_few_of_its_modules_are_loaded():
    program = """
import ast, importlib.util, sys
import relay.runners.messages.client as client
loaded = [name for name in sys.modules if name.startswith("anthropic.")]
assigned = [node for node in ast.parse(open(client.anthropic.__file__).read()).body if isinstance(node, ast.Assign)]
[public] = [ast.literal_eval(node.value) for node in assigned if node.targets[0].id == "__all__"]
missing = [name for name in public if not hasattr(client.anthropic, name)]
print(len(loaded), missing, hasattr(client.anthropic, "none"))
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    loaded, rest = said.split(maxsplit=1)
    assert int(loaded) < 1_500  # of 3,150
    assert rest == "[] False\n"

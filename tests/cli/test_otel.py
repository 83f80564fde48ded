"""A run's log as OpenTelemetry spans, taken by a collector on loopback."""

import http.server
import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.session.events import Event, LegStarted, RequestStarted, ResponseReceived, RunEnded, RunStarted, TextShown
from relay.session.records import LoggedEvent, Scope
from relay.telemetry import otel
from relay.telemetry.otel import Spans, render_batch
from tests.any_event import any_event

LOG = (Path(__file__).parent / "recorded.jsonl").read_bytes()


@pytest.fixture
def collector():
    """A receiver of OTLP over HTTP; its address and the bodies that came."""
    came = []

    class Take(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Take) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", came
        server.shutdown()
        thread.join()


def read_spans(came):
    return [span for _, _, body in came for one in body["resourceSpans"] for span in one["scopeSpans"][0]["spans"]]


def read_said(span):
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_a_run_is_a_tree_of_spans_without_a_word_of_its_content(relay, project, collector, recorded):
    """Run, sessions, answers, tools and gates, with the names of the conventions; sent twice it is the same."""
    address, came = collector
    (project / ".relay/sessions").mkdir(parents=True)
    (project / ".relay/sessions/aaaa1111.jsonl").write_bytes(LOG)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b"}
    ran = relay("otel", env=env)
    spans = read_spans(came)
    assert (ran.code, ran.out) == (0, f"sent: {len(spans)} spans to {address}/v1/traces\n")
    assert came[0][0] == "/v1/traces"
    assert came[0][1]["X-Team"] == "a b"
    (run,) = [span for span in spans if "parentSpanId" not in span]
    legs = [span for span in spans if span["name"] == "invoke_agent relay"]
    answers = [span for span in spans if span["name"].startswith("chat ")]
    tools = [span for span in spans if span["name"].startswith("execute_tool ")]
    gates = [span for span in spans if span["name"] == "relay.gate"]
    assert read_said(run)[otel.WORKFLOW] == "relay run"
    assert {leg["parentSpanId"] for leg in legs} == {run["spanId"]}
    assert {span["parentSpanId"] for span in (*answers, *tools)} <= {leg["spanId"] for leg in legs}
    assert len(answers) == sum(isinstance(event, ResponseReceived) for _, event in recorded)
    assert tools
    assert gates
    assert len({span["spanId"] for span in spans}) == len(spans)
    usage = [event.usage for _, event in recorded if isinstance(event, ResponseReceived) and event.usage]
    sent = [int(read_said(span)[otel.INPUT]) for span in answers if otel.INPUT in read_said(span)]
    assert sum(sent) == sum(one.prompt_tokens for one in usage)
    for _, event in recorded:
        if isinstance(event, TextShown):
            assert event.text not in json.dumps(came, ensure_ascii=False)
    before = spans
    came.clear()
    relay("otel", "aaaa", env=env)
    assert read_spans(came) == before


def test_a_collector_that_is_not_there_is_said(relay, project):
    (project / ".relay/sessions").mkdir(parents=True)
    (project / ".relay/sessions/aaaa1111.jsonl").write_bytes(LOG)
    ran = relay("otel", "--endpoint", "http://127.0.0.1:9")
    assert ran.code == 1
    assert ran.err.startswith("Error: the collector at http://127.0.0.1:9/v1/traces did not take the spans: ")
    assert relay("otel", "--endpoint", "file:///etc/passwd").err.startswith(
        "Error: file:///etc/passwd/v1/traces is no "
    )


def test_a_run_that_was_killed_has_its_spans_up_to_its_last_event():
    """Also a session that was cut off by the next; what is unknown is left out and never 0."""
    scope = Scope(run_id="r", session_id="s", phase_id="1", turn=1)
    run = RunStarted(
        run_id="r", command="run", model="m", plan_path="P", branch="b", sandbox="off", cap_usd=None, spent_usd=None,
        rehearsed=False,
    )  # fmt: skip
    legs = [LegStarted(session_id=name, phase_id="1", title="t", leg=1, reason="") for name in ("s", "t")]
    spans = Spans()
    happened: list[Event] = [run, *legs, RequestStarted(turn=1)]
    found = [
        span
        for at, event in enumerate(happened)
        for span in spans.take(LoggedEvent(at=float(at), scope=scope, event=event))
    ]
    found += spans.finish()
    assert [span["name"] for span in found] == ["invoke_agent relay", "invoke_agent relay", "invoke_workflow relay run"]
    assert [span["endTimeUnixNano"] for span in found] == ["2000000000", "3000000000", "3000000000"]
    assert "relay.exit_code" not in read_said(found[-1])
    assert list(spans.finish()) == []


@given(
    st.lists(st.one_of(*(any_event(kind) for kind in (RunStarted, LegStarted, ResponseReceived, RunEnded))), max_size=8)
)
def test_any_events_are_a_batch_of_valid_json(taken):
    spans = Spans()
    found = [span for at, event in enumerate(taken) for span in spans.take(LoggedEvent(at=float(at), event=event))]
    body = json.loads(json.dumps(render_batch([*found, *spans.finish()], "1")))
    for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)

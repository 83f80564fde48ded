"""A run's log as OpenTelemetry spans, taken by a collector on loopback."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.trace import StatusCode

from relay import __version__
from relay.base.errors import ConfigError
from relay.insight.telemetry import otel
from relay.insight.telemetry.otel import (
    Collector,
    Spans,
    find_rejected,
    send_log,
)
from relay.session.events import (
    Event,
    RequestStarted,
    ResponseReceived,
    RunEnded,
    RunStarted,
    SessionEnded,
    SessionStarted,
    TextShown,
    ToolFinished,
)
from relay.session.records import LoggedEvent, Scope
from relay.session.usage import Usage
from relay.session.values import SessionEnd
from tests.any_event import any_event
from tests.effort import try_each
from tests.figures.streams import turn
from tests.news.listener import listen
from tests.scripts import HELLO, ONE_PHASE, serving

LOG = (Path(__file__).parent / "recorded.jsonl").read_bytes()


RUN = RunStarted(
    run_id="r", command="run", model="m", plan_path="P", branch="b", sandbox="off", cap_usd=None, spent_usd=None,
    rehearsed=False,
)  # fmt: skip
STARTED = SessionStarted(session_id="s", phase_id="1", title="t", number=1, reason="")


def answer(turn):
    """What a model answered."""
    return ResponseReceived(
        turn=turn, model="m", usage=Usage(input_tokens=100, output_tokens=5), cost_usd=0.5, fill_tokens=105,
        soft_tokens=1_000, hard_tokens=2_000, window_tokens=9_000, stop_reason="end_turn", duration_s=2.0,
    )  # fmt: skip


def ended():
    """The end of its session."""
    return SessionEnded(
        session_id="s", phase_id="1", end=SessionEnd.FINISHED, result="done", detail="", usage=Usage(), cost_usd=None
    )


def happen(*events):
    """Return events as a log has them, a second apart."""
    return [LoggedEvent(at=float(at), event=event) for at, event in enumerate(events, 1)]


@pytest.fixture
def collector():
    """A receiver of OTLP over HTTP."""
    with listen() as found:
        yield found


def read_spans(collector):
    """Return what came, as the collectors' own library reads it."""
    bodies = [MessageToDict(ExportTraceServiceRequest.FromString(body)) for _, _, body in collector.seen]
    return [span for body in bodies for one in body["resourceSpans"] for span in one["scopeSpans"][0]["spans"]]


def read_said(span):
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_a_run_is_a_tree_of_spans_without_a_word_of_its_content(relay, project, collector, recorded):
    """Run, sessions, answers, tools and gates, with the names of the conventions; sent twice it is the same."""
    (project / ".relay/sessions").mkdir(parents=True)
    (project / ".relay/sessions/aaaa1111.jsonl").write_bytes(LOG)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b"}
    ran = relay("report", "--otel", env=env)
    spans = read_spans(collector)
    assert (ran.code, ran.out) == (0, f"sent to {collector.url}: {len(spans)} spans\n")
    assert {headers["x-team"] for _, headers, _ in collector.seen} == {"a b"}
    (run,) = [span for span in spans if "parentSpanId" not in span]
    sessions = [span for span in spans if span["name"] == "invoke_agent relay"]
    answers = [span for span in spans if span["name"].startswith("chat ")]
    tools = [span for span in spans if span["name"].startswith("execute_tool ")]
    gates = [span for span in spans if span["name"] == "relay.gate"]
    assert read_said(run)[otel.WORKFLOW] == "relay run"
    assert {session["parentSpanId"] for session in sessions} == {run["spanId"]}
    assert {span["parentSpanId"] for span in (*answers, *tools)} <= {session["spanId"] for session in sessions}
    assert len(answers) == sum(isinstance(event, ResponseReceived) for _, event in recorded)
    assert tools
    assert {key for gate in gates for key in read_said(gate)} == {
        "relay.phase", "relay.gate.passed", "relay.gate.baseline"
    }  # fmt: skip
    assert len({span["spanId"] for span in spans}) == len(spans)
    usage = [event.usage for _, event in recorded if isinstance(event, ResponseReceived) and event.usage]
    sent = [int(read_said(span)[otel.INPUT]) for span in answers if otel.INPUT in read_said(span)]
    assert sum(sent) == sum(one.prompt_tokens for one in usage)
    for _, event in recorded:
        if isinstance(event, TextShown):
            assert event.text.encode() not in b"".join(body for *_, body in collector.seen)
    collector.seen.clear()
    relay("report", "--otel", "aaaa", env=env)
    assert read_spans(collector) == spans


WRONG = [
    ("http://127.0.0.1:9", "Connection refused"),
    ("http://127.0.0.1:abc", "Failed to parse"),
    ("file:///etc/passwd", "is not an http:// or https:// address"),
]


def test_why_there_is_no_collector_is_said_with_what_helps(relay, project):
    (project / ".relay/sessions").mkdir(parents=True)
    (project / ".relay/sessions/aaaa1111.jsonl").write_bytes(LOG)
    for endpoint, words in WRONG:
        ran = relay("report", "--otel", env={"NO_PROXY": "*", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
        assert (ran.code, words in ran.err, "4318" in ran.err.partition("Hint: ")[2]) == (1, True, True), ran.err


def test_what_a_collector_refuses_is_said(collector):
    read = happen(RUN, STARTED)
    for answer in (401, 503, 302, "nonsense", "drop"):
        collector.answers[:] = [answer]
        words = f"answered {answer}" if isinstance(answer, int) else "nothing was sent"
        with pytest.raises(ConfigError, match=words) as caught:
            send_log(read, Collector(collector.url, {}), "r")
        assert "without /v1/traces" in str(caught.value.hint)
    assert {path for path, *_ in collector.seen} == {"/topic/v1/traces"}  # nor is a redirect followed


def test_silence_is_an_answer_too():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        collector = Collector(f"http://127.0.0.1:{deaf.getsockname()[1]}", {}, timeout_s=0.01)
        with pytest.raises(ConfigError, match="timed out"):
            send_log(happen(RUN, STARTED), collector, "r")


def test_a_part_that_is_rejected_is_no_success():
    part = ExportTracePartialSuccess(rejected_spans=2, error_message="too old")
    assert find_rejected(ExportTraceServiceResponse(partial_success=part).SerializeToString()) == "2 rejected: too old"
    for said in (b"", b"{}", b"[]", b"\xff", ExportTraceServiceResponse().SerializeToString()):
        assert find_rejected(said) == ""


def test_numbers_are_what_the_collectors_own_library_reads(collector):
    assert send_log(happen(RUN, STARTED, answer(1), ended()), Collector(collector.url, {}), "r") == 3
    (traces,) = collector.seen
    assert {headers["content-type"] for _, headers, _ in collector.seen} == {"application/x-protobuf"}
    (one,) = ExportTraceServiceRequest.FromString(traces[2]).resource_spans
    assert {said.key: said.value.string_value for said in one.resource.attributes} == {
        "service.name": "relay", "service.version": __version__, "service.instance.id": "r",
    }  # fmt: skip
    assert one.scope_spans[0].scope.name == "relay"
    assert {(len(span.trace_id), len(span.span_id)) for span in one.scope_spans[0].spans} == {(16, 8)}


def test_credentials_come_from_the_headers_setting_alone(collector, tmp_path, monkeypatch, capfd):
    """Whatever is in a value. ~/.netrc, which the HTTP library would read, is left alone, and nothing is printed."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=se;cret%2C1,not a header"}
    collector.answers.append(401)
    with pytest.raises(ConfigError):
        send_log(happen(RUN, STARTED), Collector(collector.url, environ), "r")
    ((_, headers, _),) = collector.seen
    assert headers["x-key"] == "se;cret,1"
    assert "Authorization" not in headers
    assert capfd.readouterr() == ("", "")


def test_a_collector_that_refuses_costs_a_run_a_line_and_nothing_else(relay, project, collector, commit):
    """A run sends its own spans at its end; what was not taken can be sent later."""
    (project / "PLAN.md").write_text(ONE_PHASE)
    commit()
    collector.answers.append(503)
    with serving(HELLO) as (server, env):
        ran = relay("run", env={**env, "RELAY_SANDBOX": "off", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
        used = sum(request.usage["input_tokens"] for request in server.requests if request.usage)
    assert ran.code == 0
    assert "answered 503" in ran.out.partition("telemetry: the collector at")[2]
    assert "`relay report --otel " in ran.out
    collector.seen.clear()
    collector.answers.clear()
    relay("report", "--otel", env={"NO_PROXY": "*", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    spans = read_spans(collector)
    assert [span["name"] for span in spans if "parentSpanId" not in span] == ["invoke_workflow relay run"]
    assert b"hello" not in b"".join(body for *_, body in collector.seen)
    sent = [int(read_said(span)[otel.INPUT]) for span in spans if span["name"].startswith("chat ")]
    assert used <= sum(sent)


def test_a_run_that_was_killed_has_its_spans_up_to_its_last_event():
    """Also a session that was cut off by the next; what is unknown is left out and never 0."""
    scope = Scope(run_id="r", session_id="s", phase_id="1", turn=1)
    sessions = [SessionStarted(session_id=name, phase_id="1", title="t", number=1, reason="") for name in ("s", "t")]
    spans = Spans("r")
    _, answer = turn(1, 4_000, 100)
    happened: list[Event] = [RUN, sessions[0], answer, sessions[1], RequestStarted(turn=1)]
    for at, event in enumerate(happened):
        spans.take(LoggedEvent(at=float(at), scope=scope, event=event))
    spans.finish()
    found = [span for span in spans.take_ended() if not span.name.startswith("chat ")]
    assert [span.name for span in found] == ["invoke_agent relay", "invoke_agent relay", "invoke_workflow relay run"]
    assert [span.end_time for span in found] == [3_000_000_000, 4_000_000_000, 4_000_000_000]
    assert "relay.exit_code" not in (found[-1].attributes or {})
    states = [{name: value for name, value in (span.attributes or {}).items() if "context" in name} for span in found]
    known = {"turn": 1, "fill_tokens": 4_100, "soft_tokens": 80_000}
    assert states == [{f"relay.context.{name}": value for name, value in known.items()}, {}, {}]
    assert {span.status.status_code for span in found} == {StatusCode.ERROR}
    spans.finish()
    assert spans.take_ended() == ()


def test_a_log_that_was_sent_before_its_end_has_the_same_ids_after_it():
    """Those of another run are others, as is its trace."""
    happened = [RUN, STARTED, answer(1), ended(), RunEnded(exit_code=0, reason="", next_command="", spent_usd=None)]

    def find_ids(run_id, taken):
        spans = Spans(run_id)
        for record in happen(*taken):
            spans.take(record)
        spans.finish()
        return {span.name: (span.context.trace_id, span.context.span_id) for span in spans.take_ended()}

    whole, others = find_ids("r", happened), find_ids("q", happened)
    assert len(whole) == 3
    assert find_ids("r", happened[:3]) == whole
    assert all(trace != others[name][0] and span != others[name][1] for name, (trace, span) in whole.items())


@try_each()
@given(
    st.lists(
        st.one_of(*(any_event(kind) for kind in (RunStarted, SessionStarted, ResponseReceived, RunEnded))),
        max_size=8,
    )
)
def test_any_events_are_a_batch_that_can_be_sent(taken):
    spans = Spans("r")
    for record in happen(*taken):
        spans.take(record)
    spans.finish()
    for span in [span for one in encode_spans(spans.take_ended()).resource_spans for span in one.scope_spans[0].spans]:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)


def test_an_estimate_is_no_usage_another_agent_no_provider_and_a_failed_call_an_error():
    counted = answer(1)
    tool = ToolFinished(
        call_id="c", name="bash", is_error=True, result_sha256="", call_sha256="", result_bytes=0, duration_s=0.0,
        changed_paths=(),
    )  # fmt: skip
    spans = Spans("r")
    for record in happen(
        RUN, STARTED, counted, replace(STARTED, runner="claude"), replace(counted, estimated=True), tool
    ):
        spans.take(record)
    chats = [span for span in spans.take_ended() if not span.name.startswith("invoke_agent")]
    said = [[(span.attributes or {}).get(key) for key in (otel.PROVIDER, otel.INPUT, otel.ERROR)] for span in chats]
    assert said == [["anthropic", 100, None], [None, None, None], [None, None, "tool_error"]]


def test_numbers_and_texts_that_otlp_has_no_room_for_are_sent_as_others():
    tool = ToolFinished(
        call_id="\udc80", name="\ud800", is_error=False, result_sha256="", call_sha256="", result_bytes=0,
        duration_s=1e300, changed_paths=(),
    )  # fmt: skip
    spans = Spans("\udc80")
    spans.take(LoggedEvent(at=1e300, event=tool))
    (span,) = encode_spans(spans.take_ended()).resource_spans[0].scope_spans[0].spans
    assert (span.name, span.start_time_unix_nano, span.end_time_unix_nano) == ("execute_tool ?", 0, 2**63 - 1)

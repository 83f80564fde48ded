"""Transcripts of Codex as events: what an answer used comes behind its calls, sums are never a context's size."""

from relay.session.events import ResponseReceived, ToolFinished, ToolStarted
from relay.session.usage import Usage
from tests.lab.samples import counts, line, meta, write_lines


def item(second, kind, **payload):
    return line("response_item", second, type=kind, **payload)


def event(second, kind, **payload):
    return line("event_msg", second, type=kind, **payload)


def use(second, call_id, command):
    return item(second, "function_call", name="exec_command", call_id=call_id, arguments=f'{{"cmd": "{command}"}}')


def done(second, call_id, output):
    return item(second, "function_call_output", call_id=call_id, output=output)


def spent(second, *numbers):
    return line("token_usage_record", second, usage=counts(*numbers), thread_token_usage=counts(10**6, 0, 0))


def total(second, last, whole):
    info = {"last_token_usage": last, "total_token_usage": whole, "model_context_window": 258_400}
    return event(second, "token_count", info=info)


START = (
    meta(),
    line("turn_context", 0, model="gpt-5.5"),
    event(0, "task_started", model_context_window=258_400),
    item(0, "message", role="user", content=[{"type": "input_text", "text": "go on"}]),
)


def test_an_older_transcript_counts_each_answer_once(read, tmp_path):
    """Its counts come behind the results, are said again on resuming, and sums grow for ever."""
    one, two = counts(9000, 4000, 40), counts(9500, 9000, 40)
    path = write_lines(
        tmp_path / "rollout.jsonl",
        *START,
        item(1, "function_call", name="shell", call_id="c1", arguments='{"command": ["bash", "-lc", "ls"]}'),
        done(2, "c1", '{"output": "x", "metadata": {"exit_code": 0}}'),
        total(2, one, one),
        item(3, "custom_tool_call", name="apply_patch", call_id="c2", input="*** Add File: b.py\n+x\n"),
        item(4, "custom_tool_call_output", call_id="c2", output={"content": [{"type": "input_image"}]}),
        total(4, two, counts(18_500, 13_000, 80)),
        total(90, two, counts(18_500, 13_000, 80)),
        total(90, counts(0, 0, 0), counts(18_500, 13_000, 81)),
        event(91, "exec_command_end", call_id="c9", exit_code=None),
    )
    seen = read(path)
    assert seen.prompts == [9000, 9500, None]
    assert next(e.summary for e in seen.of(ToolStarted)) == "ls"
    assert [(e.changed_paths, e.result_bytes) for e in seen.of(ToolFinished)] == [(None, 1), (("b.py",), 8_000)]
    kinds = [type(record.event).__name__ for record in seen.records]
    assert kinds.index("ResponseReceived") < kinds.index("ToolStarted")


def test_what_is_odd_is_counted_and_never_fatal(read, tmp_path):
    path = write_lines(
        tmp_path / "rollout.jsonl",
        *START,
        meta(forked_from_id="another"),
        line("world_state", 1, full=True),
        line("brand-new", 1),
        {"type": "response_item", "payload": 7},
        item(1, "brand-new"),
        item(1, "web_search_call"),
        item(1, "local_shell_call", call_id="c1", action={"command": []}),
        done(2, "unheard of", "x"),
        done(2, "c1", ["odd"]),
        spent(2, 9000, 10**6, -1),
        use(3, "c2", "sleep 9"),
        '{"torn',
    )
    seen = read(path)
    assert seen.prompts == [9000, None]
    assert seen.of(ResponseReceived)[0].usage == Usage(cache_read_tokens=9000)
    assert seen.reading.unknown == {"brand-new": 1, "response_item ": 1, "response_item brand-new": 1}
    assert (seen.reading.torn, len(seen.reading.notes)) == (1, 1)

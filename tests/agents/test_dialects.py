"""What passes through the gateway in four dialects: what is asked, what is used, what went wrong."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.runners.agents.dialects import (
    _MAX_LINE_BYTES,
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    Tally,
    may_pass,
    read_request,
    shorten_answer,
)
from relay.session.usage import Usage
from rigs.agents.real import AGENTS

MARK = b"mark-1"
PATHS = {
    MESSAGES: "/v1/messages?beta=true",
    RESPONSES: "/v1/responses",
    CHAT: "/v1/chat/completions",
    GEMINI: "/v1beta/models/gemini-9:streamGenerateContent?alt=sse",
}
TOOL = {"type": "function", "name": "bash", "parameters": {}}
REQUESTS: Any = {
    MESSAGES: {"model": "m", "max_tokens": 100, "tools": [{"name": "bash"}], "messages": "work mark-1"},
    RESPONSES: {"model": "m", "max_output_tokens": 100, "tools": [TOOL], "input": "work mark-1"},
    CHAT: {"model": "m", "max_completion_tokens": 100, "tools": [TOOL], "messages": "work mark-1"},
    GEMINI: {
        "generationConfig": {"maxOutputTokens": 100}, "tools": [{"functionDeclarations": []}], "contents": "work mark-1"
    },
}  # fmt: skip
LIMITS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "generationConfig")
EVERY = pytest.mark.parametrize("dialect", PATHS, ids=lambda dialect: dialect.name)


def read(dialect, changes=(), drop=()):
    body = {name: value for name, value in {**REQUESTS[dialect], **dict(changes)}.items() if name not in drop}
    found: Any = read_request(PATHS[dialect], json.dumps(body).encode(), MARK)
    return found


UNKNOWN = "relay does not know this field"


def refuses(dialect, changes, words):
    """Return whether a request with these fields is refused in such words."""
    try:
        read(dialect, changes)
    except ValueError as error:
        return re.search(words, str(error)) is not None
    return False


@EVERY
def test_a_request_is_the_sessions_own_by_its_tools_and_its_mark_and_has_its_limit(dialect):
    """Without one it may be as long as the model lets it, where the API allows that."""
    main = read(dialect)
    assert (main.is_main, main.max_output_tokens) == (True, 100)
    assert main.model == ("gemini-9" if dialect is GEMINI else "m")
    assert not read(dialect, {"tools": []}).is_main
    conversation = ({"messages", "input", "contents"} & {*REQUESTS[dialect]}).pop()
    assert not read(dialect, {conversation: "a title for this"}).is_main
    if dialect is MESSAGES:
        with pytest.raises(ValueError, match="no max_tokens"):
            read(dialect, drop=LIMITS)
    else:
        assert read(dialect, drop=LIMITS).max_output_tokens is None
    for most in (True, -1, "9", 1.5, [1]):
        changes = {**dict.fromkeys(LIMITS[:3], most), "generationConfig": {"maxOutputTokens": most}}
        with pytest.raises(ValueError, match=r"tokens|Tokens"):
            read(dialect, changes)


@EVERY
def test_an_answer_is_shortened_and_nothing_else_is_changed(dialect):
    for named in (True, False):
        body = {name: value for name, value in REQUESTS[dialect].items() if named or name not in LIMITS}
        body |= {"labels" if dialect is GEMINI else "metadata": {"user": "\ud800 é"}}
        short = json.loads(shorten_answer(json.dumps(body).encode(), dialect, 40))

        expected = replace(read(dialect), max_output_tokens=40, prompt_bytes=len(json.dumps(short)))
        assert read_request(PATHS[dialect], json.dumps(short).encode(), MARK) == expected
        kept = {name: body[name] for name in body if name not in LIMITS}
        assert {name: short[name] for name in kept} == kept
        assert len(short) == len(body) + (not named)


def test_a_shorter_answer_is_still_longer_than_its_thinking_and_odd_tables_break_nothing():
    body: Any = {**REQUESTS[MESSAGES], "thinking": {"type": "enabled", "budget_tokens": 90}}
    short = json.loads(shorten_answer(json.dumps(body).encode(), MESSAGES, 40))
    assert (short["max_tokens"], short["thinking"]) == (40, {"type": "enabled", "budget_tokens": 20})
    odds: tuple[Any, ...] = (None, [], "x")
    for odd in odds:
        made = shorten_answer(json.dumps({"generationConfig": odd, "thinking": odd}).encode(), GEMINI, 40)
        assert json.loads(made)["generationConfig"] == {"maxOutputTokens": 40}
    both = json.loads(shorten_answer(b'{"max_tokens": 100, "max_completion_tokens": 90}', CHAT, 40))
    assert both == {"max_tokens": 40, "max_completion_tokens": 40}


DOING: list[dict[str, Any]] = [
    {"mcp_servers": [{"url": "https://elsewhere.example"}]},
    {"background": True},
    {"models": ["a-dearer-one"]},
    {"n": 8},
    {"generationConfig": {"candidateCount": 8}},
    {"tools": [{"type": "web_search_20260209", "name": "web_search"}]},
    {"tools": [{"googleSearch": {}, "type": "google_search"}]},
    {"tools": [{"type": "namespace", "tools": [{"type": "code_interpreter"}]}]},
    {"tools": [{"type": "mcp", "server_url": "https://elsewhere.example"}]},
    {"tools": {"urlContext": {}}},
    {"generation_config": {"candidate_count": 8}},
    {"previous_response_id": "resp_1"},
    {"conversation": "conv_1"},
    {"prompt": {"id": "pmpt_1"}},
    {"cachedContent": "cachedContents/1"},
    {"search_parameters": {"mode": "on"}},
    {"enable_search": True},
    {"web_search_options": {}, "plugins": [{"id": "web"}]},
    {"service_tier": "priority"},
    {"speed": "fast"},
    {"n": True},
    {"modalities": ["text", "audio"]},
    {"context_management": {"edits": [{"type": "compact_20260112"}]}},
    {"context_management": [{"type": "compaction", "compact_threshold": 1}]},
    {"inference_geo": "us"},
    {"a_field_of_tomorrow": {"fetch": "https://elsewhere.example"}},
]


@EVERY
def test_an_endpoint_does_nothing_but_answer_once(dialect):
    for changes in DOING:
        assert refuses(dialect, changes, "endpoint"), changes
    assert read(dialect, {"background": False, "previous_response_id": None, "mcp_servers": [], "plugins": {}})


NEW = {"of_tomorrow": "very-high", "is_terse": True, "min_penalty": 0.5, "seriousness": 3}
"""What a release of an agent may add: switches, numbers, words."""


@EVERY
def test_a_new_number_switch_or_word_passes_and_is_named(dialect):
    assert read(dialect).unknown == ()
    assert read(dialect, NEW).unknown == tuple(NEW)
    if dialect is GEMINI:
        config = {"generationConfig": {"maxOutputTokens": 100, **NEW}}
        assert read(dialect, config).unknown == tuple(f"generationConfig.{name}" for name in NEW)


HOSTILE = [
    *("https://elsewhere.example", "elsewhere.example", "//elsewhere", "data:text/plain,x", "file:///etc/passwd"),
    *("file_1", "resp_1a2b", "cachedContents/1", "4711", "550e8400-e29b-11d4", "YWJj=="),
    *("a" * 41, "a sentence that says what to do next", "two\nlines", "caf\u00e9", "\ud800", "a\u202eb"),
    *({"effort": "high"}, ["high"], [1], {"a": {}}),
]
REACHING = [
    *("fileUri", "file_id", "imageURL", "image_url", "documentRef", "response_id", "previousResponse", "requestId"),
    *("enable_search", "webAccess", "grounding_mode", "use_tools", "auto_mcp", "enable_code_interpreter", "run_agent"),
    *("run_in_background", "is_async", "keep_conversation", "cachedContent", "use_memory", "session"),
    *("num_answers", "candidate_count", "answers_n", "best_of", "max_new_tokens", "fallback_model", "inference_geo"),
    *("internet", "online", "engine", "deployment", "adapter", "forward_to", "share", "train", "generations"),
    "max_output",
    *("URLFetch", "fileurl", "enablesearch", "userID", "API_KEY", "speed_tier"),
    *("a.b", "a b", "", "a" * 65, "x-field", "f1", "\u0430"),
]


@EVERY
def test_a_new_field_with_an_address_an_id_or_a_text_is_refused(dialect):
    passed = [value for value in HOSTILE if not refuses(dialect, {"of_tomorrow": value}, f"of_tomorrow: {UNKNOWN}")]
    assert passed == []


@EVERY
def test_a_new_field_whose_name_says_that_it_reaches_keeps_or_multiplies_is_refused(dialect):
    fields = itertools.product(REACHING, ("on", True, 8))
    assert [field for field in fields if not refuses(dialect, dict([field]), f"{UNKNOWN}|may only be")] == []


URL = "https://elsewhere.example/?SECRET"
REPORT = {
    "type": "tool_result",
    "tool_use_id": "t",
    "content": [{"type": "image", "source": {"type": "url", "url": URL}}],
}
WEB = {"type": "web_search_20260209", "name": "web_search"}
ELSEWHERE: Any = {
    MESSAGES: (
        ("image.source.url", {"type": "image", "source": {"type": "url", "url": URL}}),
        ("image.source.url", REPORT),
        ("document.source.url", {"type": "document", "source": {"type": "url", "url": URL}}),
        ("document.source.file_id", {"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
        ("image.source.url", {"type": "document", "source": {"type": "content", "content": REPORT["content"]}}),
        ("container_upload", {"type": "container_upload", "file_id": "file_1"}),
        ("mcp_tool_use", {"type": "mcp_tool_use", "server_name": "x"}),
        ("web_search_20260209", {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": WEB}}),
    ),
    RESPONSES: (
        ("input_image.image_url", {"type": "input_image", "image_url": URL}),
        ("input_image.file_id", {"type": "input_image", "file_id": "file_1"}),
        ("input_file.file_url", {"type": "input_file", "file_url": URL}),
        ("input_file.file_id", {"type": "input_file", "file_id": "file_1"}),
        ("input_file.file_url", {"type": "function_call_output", "output": [{"type": "input_file", "file_url": URL}]}),
        ("item_reference", {"type": "item_reference", "id": "msg_1"}),
        ("image_generation_call", {"type": "image_generation_call", "id": "ig_1"}),
        ("web_search", {"type": "tool_search_output", "tools": [{"type": "web_search"}]}),
        ("mcp", {"type": "additional_tools", "tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}),
    ),
    CHAT: (
        ("image_url.image_url.url", {"type": "image_url", "image_url": {"url": URL}}),
        ("image_url.image_url", {"type": "image_url", "image_url": URL}),
        ("file.file.file_id", {"type": "file", "file": {"file_id": "file_1"}}),
        ("video_url", {"type": "video_url", "video_url": {"url": URL}}),
        ("audio", {"role": "assistant", "audio": {"id": "audio_1"}}),
    ),
    GEMINI: (
        ("fileData", {"fileData": {"fileUri": URL}}),
        ("file_data", {"file_data": {"file_uri": URL}}),
        ("fileData", {"functionResponse": {"name": "x", "parts": [{"fileData": {"fileUri": URL}}]}}),
    ),
}  # fmt: skip
HELD: Any = {
    MESSAGES: (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": URL}, "title": "x"},
        {"type": "tool_use", "id": "t", "name": "fetch", "input": {"type": "image", "source": {"url": URL}}},
        {"type": "search_result", "source": URL, "title": "x", "content": [{"type": "text", "text": "x"}]},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "bash"}}},
    ),
    RESPONSES: (
        {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "file_id": None, "detail": "auto"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,iVBO", "filename": "x.pdf"},
        {"type": "tool_search_output", "tools": [TOOL]},
    ),
    CHAT: (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO", "detail": "low"}},
        {"type": "file", "file": {"file_data": "iVBO", "filename": "x.pdf"}},
        {"role": "assistant", "content": None, "audio": None, "reasoning_content": "x", "tool_calls": []},
    ),
    GEMINI: (
        {"inlineData": {"mimeType": "image/png", "data": "iVBO"}},
        {"functionResponse": {"name": "x", "response": {"fileData": URL}}},
    ),
}  # fmt: skip
CONVERSATIONS: Any = {MESSAGES: ("messages", "system"), RESPONSES: ("input",), CHAT: ("messages",)}


def say(dialect, part):
    """Return the conversations that have this as one of their parts, or as part of one."""
    inner = "parts" if dialect is GEMINI else "content"
    names = CONVERSATIONS.get(dialect, ("contents", "systemInstruction"))
    return [{name: found} for name in names for found in ([part], [{"role": "user", inner: [part]}])]


def test_an_endpoint_fetches_nothing_for_a_session():
    """Nor where tokens are only counted, nor by a model's name."""
    for dialect, (words, part) in [(dialect, case) for dialect, cases in ELSEWHERE.items() for case in cases]:
        for changes in say(dialect, part):
            assert refuses(dialect, changes, rf"{words}\b.*endpoint|endpoint.*{words}\b"), (dialect.name, words, part)
    assert refuses(CHAT, {"model": "m:online"}, "model: with :online the endpoint would search")
    counted: list[tuple[str, Any, str]] = [
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": [REPORT]}]}, r"image\.source\.url"),
        (
            "/v1beta/models/gemini-9:countTokens",
            {"contents": [{"parts": [{"fileData": {"fileUri": URL}}]}]},
            "fileData",
        ),
    ]
    for path, body, words in counted:
        assert read_request(path, b"{}", MARK) is None  # costs nothing, and is not held
        with pytest.raises(ValueError, match=words):
            read_request(path, json.dumps(body).encode(), MARK)


def test_what_a_request_itself_holds_passes():
    for dialect, part in [(dialect, part) for dialect, parts in HELD.items() for part in parts]:
        for changes in say(dialect, part):
            assert read(dialect, changes), (dialect.name, part)


RECORDED = sorted(Path(__file__).with_name("requests").glob("*.json"))


def test_what_the_agents_send_passes():
    """Of each that `rigs.agents.real` tries a title's request and a later one of its work, with its texts cut."""
    assert {path.stem for path in RECORDED} == {f"{agent.name}-{agent.api.lower()}" for agent in AGENTS}
    for path in RECORDED:
        for said in json.loads(path.read_text()):
            assert read_request(said["path"], json.dumps(said["body"]).encode(), MARK), path.stem


NO_REQUESTS = [
    *(b"[" * 100_000, b'{"a":' * 200 + b"1" + b"}" * 200, b"[" + b"[]," * 1_000_001 + b"1]"),
    *(b"nothing", b"[]", b"7", b"\x1f\x8b", b""),
    b'{"model": "m", "max_tokens": 8, "n": 1, "messages": [], "n": 8}',  # which of two is read is another's affair
]


@EVERY
def test_what_is_no_request_is_refused(dialect):
    for body in NO_REQUESTS:
        with pytest.raises(ValueError, match=r"."):
            read_request(PATHS[dialect], body, MARK)


STREAMS = {
    MESSAGES: (
        {"type": "message_start", "message": {"model": "m", "usage": {
            "input_tokens": 5, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 7, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": 'message_stop is a word, and "error" too'}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ),
    RESPONSES: (
        {"type": "response.created", "response": {"object": "response", "status": "in_progress", "model": "m"}},
        {"type": "response.output_text.delta", "delta": 'a "response" is a word, and "error" too'},
        {"type": "response.incomplete", "response": {
            "object": "response", "status": "incomplete", "model": "m", "error": None,
            "incomplete_details": {"reason": "max_output_tokens"},
            "usage": {
                "input_tokens": 72, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 7},
                "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 81}}},
    ),
    CHAT: (
        {"model": "m", "choices": [{"delta": {"content": '"usage" and "error"'}, "finish_reason": None}]},
        {"model": "m", "choices": [{"delta": {}, "finish_reason": "length"}], "usage": None},
        {"model": "m", "choices": [], "usage": {
            "prompt_tokens": 72, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 7},
            "completion_tokens": 9}},
    ),
    GEMINI: (
        {"modelVersion": "m", "candidates": [{"content": {}}], "usageMetadata": {"promptTokenCount": 72}},
        {"candidates": [{"finishReason": "MAX_TOKENS"}], "usageMetadata": {
            "promptTokenCount": 65, "toolUsePromptTokenCount": 0, "cachedContentTokenCount": 60,
            "candidatesTokenCount": 4, "thoughtsTokenCount": 5}},
    ),
}  # fmt: skip
"""The same answer in each dialect; Gemini has no writes to its cache."""
USED = Usage(input_tokens=5, cache_read_tokens=60, cache_write_5m_tokens=7, output_tokens=9)
USED_GEMINI = Usage(input_tokens=5, cache_read_tokens=60, output_tokens=9, thinking_tokens=5)


def stream(dialect):
    return b"".join(b"data: %b\r\n\r\n" % json.dumps(part).encode() for part in STREAMS[dialect])


def judge(tally):
    return tally.is_complete, tally.stop_reason, tally.model, tally.error, tally.usage


@given(data=st.data(), dialect=st.sampled_from(list(STREAMS)))
def test_an_answer_is_the_same_however_it_is_cut(data, dialect):
    text = stream(dialect)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    tally = Tally(dialect=dialect, streamed=True)
    for start, end in itertools.pairwise(sorted({0, len(text), *cuts})):
        tally.feed(text[start:end])
    tally.close()
    assert judge(tally) == (True, "max_tokens", "m", None, USED_GEMINI if dialect is GEMINI else USED)


@EVERY
def test_the_last_line_is_read_though_nothing_ends_it(dialect):
    """Also behind a line that is too long, of which nothing is read and nothing kept."""
    expected = (True, "max_tokens", "m", None, USED_GEMINI if dialect is GEMINI else USED)
    for end in (b"", b"\n", b"\r\n"):
        tally = Tally(dialect=dialect, streamed=True)
        if not end:
            tally.feed(b"data: " + bytes(_MAX_LINE_BYTES))
            assert tally.held_bytes == 0
            tally.feed(b"\n")
        tally.feed(stream(dialect).rstrip() + end)
        tally.close()
        assert judge(tally) == expected, end


@EVERY
def test_an_answer_that_ends_early_is_not_complete(dialect):
    """Its usage is known as far as it was told."""
    tally = Tally(dialect=dialect, streamed=True)
    tally.feed(
        stream(dialect)[:-1].rsplit(b"data: ", 2)[0] if dialect is CHAT else stream(dialect).rsplit(b"data: ", 1)[0]
    )
    tally.close()
    assert not tally.is_complete
    assert (tally.usage is not None) == (dialect in {MESSAGES, GEMINI})


WHOLE: Any = {
    MESSAGES: {
        "type": "message", "model": "m", "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 9}
    },
    RESPONSES: {
        "object": "response", "status": "completed", "model": "m", "usage": {"input_tokens": 5, "output_tokens": 9}
    },
    CHAT: {
        "model": "m", "choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 9}
    },
    GEMINI: [
        {"modelVersion": "m"},
        {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 9}},
    ],
}  # fmt: skip


@EVERY
def test_an_answer_without_a_stream_is_counted_too(dialect):
    tally = Tally(dialect=dialect, streamed=False)
    tally.feed(json.dumps(WHOLE[dialect]).encode())
    tally.close()
    assert judge(tally) == (True, "end_turn", "m", None, Usage(input_tokens=5, output_tokens=9))


ERRORS: Any = [
    (MESSAGES, {"type": "error", "error": {"type": "overloaded_error"}}, "type", "overloaded_error"),
    (RESPONSES, {"type": "error", "code": "server_error", "message": "x"}, "code", "server_error"),
    (RESPONSES, {"type": "error", "error": {"code": "server_error"}}, "code", "server_error"),
    (
        RESPONSES,
        {"response": {"status": "failed", "error": {"code": "rate_limit_exceeded"}}},
        "code",
        "rate_limit_exceeded",
    ),
    (RESPONSES, {"response": {"status": "cancelled", "error": None}}, "code", "cancelled"),
    (CHAT, {"error": {"message": "x", "code": "server_error"}}, "code", "server_error"),
    (CHAT, {"error": "words only"}, "message", "words only"),
    (GEMINI, {"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}, "status", "UNAVAILABLE"),
]


def test_an_error_in_mid_stream_is_none_of_the_models_words():
    for dialect, part, name, value in ERRORS:
        tally = Tally(dialect=dialect, streamed=True)
        tally.feed(b"event: error\ndata: %b\n\n" % json.dumps(part).encode())
        error: Any = tally.error
        assert (error[name], tally.is_complete) == (value, False), part


def test_classes_never_overlap_whatever_an_endpoint_says():
    tally = Tally(dialect=CHAT, streamed=False)
    usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 90}}
    tally.feed(json.dumps({"choices": [], "usage": usage}).encode())
    tally.close()
    assert tally.usage == Usage(cache_read_tokens=10)


def test_a_line_of_megabytes_is_read_in_time_and_the_rest_of_it_is_text():
    tally = Tally(dialect=RESPONSES, streamed=True)
    whole = json.dumps(STREAMS[RESPONSES][2] | {"padding": "x" * 8_000_000}).encode()
    for start in range(0, len(whole), 4096):
        tally.feed((b"data: " if start == 0 else b"") + whole[start : start + 4096])
    tally.feed(b"\n\n")
    assert tally.usage == USED


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["failed", "response"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "response", "choices", "candidates", "usage", "usageMetadata", "error", "status", "n",
                         "finish_reason", "prompt_tokens_details", "tools", "model", "generationConfig"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(dialect=st.sampled_from(list(STREAMS)), found=JSON, streamed=st.booleans())
@example(dialect=RESPONSES, found={"response": {"status": []}}, streamed=True)
def test_neither_does_any_json(dialect, found, streamed):
    tally = Tally(dialect=dialect, streamed=streamed)
    text = json.dumps(found).encode()
    tally.feed(b"data: " + text + b"\n" if streamed else text)
    tally.close()
    assert isinstance(tally.stop_reason, str)
    try:
        request = read_request(PATHS[dialect], text, MARK)
    except ValueError:
        return
    assert request is not None


@given(st.text(max_size=30), st.text(max_size=60))
def test_nothing_passes_but_what_is_named(method, path):
    assert may_pass(method, path) <= (path.startswith("/v1") and method in {"GET", "POST"})

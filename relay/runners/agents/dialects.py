"""Requests and answers of four dialects, as they pass the gateway: what is allowed, what was used. Pure.

Messages, Responses, Chat Completions and Gemini requests each pass to an endpoint that speaks the same dialect.
Only the longest answer is changed, where the caps leave less.

A request may have an endpoint answer, once, from what the request itself holds. An endpoint's vendor adds fields that
fetch addresses, run tools, keep conversations or cost more, and a command of a session can ask for all of them. So the
allowed fields of each dialect are listed. Of the others a number, a switch or a word passes, and the session is told so
once, since agents send new ones with each release; not if the field's name says that it reaches, keeps or multiplies
something, nor with a value that may be an address or an id. A field that is null, false or empty asks for nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import unquote

from relay.base.documents import parse_json
from relay.base.jsonrpc import dig
from relay.base.values import dataclass
from relay.runners.messages.answers import name_stop_reason, parse_api_usage
from relay.session.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How requests and answers of one kind of endpoint are read, and what its requests may contain."""

    name: str
    limits: tuple[str, ...]
    """Dotted paths of a request's output limit."""
    has_limit: bool = False
    """Whether every request has an output limit."""
    usage: tuple[tuple[str, tuple[str, ...]], ...] | None
    """Dotted paths of an answer's usage by class; several add up. ``prompt`` is the whole prompt, ``read`` and
    ``written`` its parts from and to the cache, ``thinking`` a part of ``output``. None if usage comes in relay's own
    classes."""
    said: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Dotted paths in a part of an answer, the first that is there: its ``model``, ``reason``, ``usage``, ``error``."""
    ends: tuple[tuple[str, ...], tuple[str, ...]]
    """Paths in the part with which an answer is complete, apart from its usage, and the values there; none: any."""
    fields: re.Pattern[str]
    """Top-level fields of a request."""
    conversation: tuple[str, ...]
    """The fields that hold the conversation."""
    parts: re.Pattern[str]
    """Kinds of its parts: their ``type``; for Gemini, their names."""
    tools: re.Pattern[str]
    """Kinds of tools that the agent itself runs. Tools that an endpoint runs would reach what a session must not."""
    by_name: bool = False
    """Parts and tools have no type: each name in them is a kind."""


_SAMPLING = r"stream|temperature|top_[kp]|metadata|tools|tool_choice|model|service_tier"
_OPENAI = rf"{_SAMPLING}|parallel_tool_calls|stream_options|store|user|safety_identifier|prompt_cache_\w+|top_logprobs"
_CHAT = (
    r"messages|max_tokens|max_completion_tokens|n|best_of|stop|seed|(?:presence|frequency|repetition)_penalty|min_p"
    r"|logit_bias|logprobs|response_format|reasoning(?:_effort|_split)?|verbosity|modalities|prediction|usage"
    r"|functions|function_call|(?:enable_|preserve_)?thinking|thinking_budget|chat_template_kwargs|cache_control"
    r"|vl_high_resolution_images"
)
MESSAGES = Dialect(
    name="messages",
    limits=("max_tokens",),
    has_limit=True,
    usage=None,
    said={
        "model": ("message.model", "model"),
        "reason": ("delta.stop_reason", "stop_reason"),
        "usage": ("message.usage", "usage"),
        "error": ("error",),
    },
    ends=(("type",), ("message_stop", "message")),
    fields=re.compile(
        rf"{_SAMPLING}|messages|system|max_tokens|stop_sequences|thinking|output_(?:config|format)|cache_control"
        r"|context_management|diagnostics|speed"
    ),
    conversation=("messages", "system"),
    parts=re.compile(
        r"message|text|image|document|search_result|(?:redacted_)?thinking|tool_(?:use|result|reference)"
        r"|server_tool_use|tool_search_tool_\w+|tool_(?:addition|removal)"
    ),
    tools=re.compile(
        r"custom|tool_(?:reference|definition)|(?:bash|text_editor|memory|computer|tool_search_tool_\w+)_\d+"
    ),
)
RESPONSES = Dialect(
    name="responses",
    limits=("max_output_tokens",),
    usage=(
        ("prompt", ("input_tokens",)),
        ("read", ("input_tokens_details.cached_tokens",)),
        ("written", ("input_tokens_details.cache_write_tokens",)),
        ("output", ("output_tokens",)),
        ("thinking", ("output_tokens_details.reasoning_tokens",)),
    ),
    said={
        "model": ("response.model", "model"),
        "reason": (
            *("response.incomplete_details.reason", "incomplete_details.reason"),
            *("response.status", "status"),
        ),
        "usage": ("response.usage", "usage"),
        "error": ("response.error", "error"),
    },
    ends=(("response.status", "status"), ("completed", "incomplete")),
    fields=re.compile(
        rf"{_OPENAI}|input|instructions|max_output_tokens|max_tool_calls|include|reasoning|text|truncation"
        r"|client_metadata"
    ),
    conversation=("input", "instructions"),
    parts=re.compile(
        r"message|(?:input|output|summary|reasoning)_text|refusal|reasoning|input_(?:image|file|audio)|compaction"
        r"|(?:function|custom_tool|local_shell|apply_patch|tool_search)_call(?:_output)?|tool_search_output"
        r"|additional_tools"
    ),
    tools=re.compile(r"function|custom|namespace|tool_search|local_shell|apply_patch"),
)
CHAT = Dialect(
    name="chat",
    limits=("max_completion_tokens", "max_tokens"),
    usage=(
        ("prompt", ("prompt_tokens",)),
        ("read", ("prompt_tokens_details.cached_tokens",)),
        ("written", ("prompt_tokens_details.cache_write_tokens",)),
        ("output", ("completion_tokens",)),
        ("thinking", ("completion_tokens_details.reasoning_tokens",)),
    ),
    said={
        "model": ("model",),
        "reason": ("choices.0.finish_reason",),
        "usage": ("usage", "choices.0.usage"),
        "error": ("error",),
    },
    ends=(("choices.0.finish_reason",), ()),
    fields=re.compile(rf"{_OPENAI}|{_CHAT}"),
    conversation=("messages",),
    parts=re.compile(r"message|text|refusal|reasoning|thinking|image_url|input_audio|file"),
    tools=re.compile(r"function|custom"),
)
GEMINI = Dialect(
    name="gemini",
    limits=("generationConfig.maxOutputTokens",),
    usage=(
        ("prompt", ("promptTokenCount", "toolUsePromptTokenCount")),
        ("read", ("cachedContentTokenCount",)),
        ("written", ()),
        ("output", ("candidatesTokenCount", "thoughtsTokenCount")),
        ("thinking", ("thoughtsTokenCount",)),
    ),
    said={
        "model": ("modelVersion",),
        "reason": ("candidates.0.finishReason", "promptFeedback.blockReason"),
        "usage": ("usageMetadata",),
        "error": ("error",),
    },
    ends=(("candidates.0.finishReason", "promptFeedback.blockReason"), ()),
    fields=re.compile(r"contents|systemInstruction|tools|toolConfig|generationConfig|safetySettings|labels"),
    conversation=("contents", "systemInstruction"),
    parts=re.compile(r"role|parts|text|thought|thoughtSignature|functionCall|functionResponse|inlineData|partMetadata"),
    tools=re.compile(r"functionDeclarations"),
    by_name=True,
)
_BY_PATH = {"/v1/messages": MESSAGES, "/v1/responses": RESPONSES, "/v1/chat/completions": CHAT}
_GENERATION = re.compile(
    r"temperature|top[KP]|(?:maxOutput|thinking|response|presence|frequency)\w+|candidateCount|stopSequences|seed"
    r"|logprobs|mediaResolution"
)
_ONLY: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("n", "best_of", "candidateCount"), (1,)),
    "service_tier": ("auto", "default", "standard", "standard_only"),
    "speed": ("standard",),
    "modalities": (["text"],),
    "responseModalities": (["TEXT"],),
}
"""Values that some fields may have: one answer, of text, at the known price."""
_SEARCHING = ":online"
"""Ending of a model's name by which gateways search the web."""
_EDITS = re.compile(r"clear_\w+")
"""What an endpoint may do to a conversation by itself. A summary would be a further answer."""
_MEDIA = re.compile(r"image|document|image_url|input_(?:image|file|audio)|file")
_CONTAINERS = frozenset({"source", "image_url", "input_audio", "file"})
_HELD = _CONTAINERS | {
    *("type", "media_type", "data", "file_data", "filename", "format", "detail", "title", "context", "citations"),
    *("cache_control", "prompt_cache_breakpoint", "content", "id"),
}  # fmt: skip
_ADDRESSES = frozenset({"url", "image_url"})
"""Fields for addresses; they pass if the address itself holds the data."""
_INNER = frozenset({"content", "parts", "output"})


_REACHING = re.compile(
    r"ur[il]|link|href|host|proxy|hook|callback|address|domain|file|image|picture|audio|video|media|document|attach|voice"
    r"|search|web|brows|fetch|crawl|retriev|ground|knowledge|mcp|tool|plugin|connector|code|interpret|execut|container"
    r"|sandbox|agent|skill|background|defer|async|batch|queue|conversation|session|thread|previous|parent|refer|handle"
    r"|secret|cache|memor|store|persist|prompt|template|system|instruct|model|route|fallback|provider|preset|count"
    r"|candidate|complet|choice|sample|beam|vote|token|length|tier|speed|fast|priorit|turbo|region"
    r"|internet|online|engine|backend|deploy|endpoint|adapter|lora|target|dest|forward|notif|mail|shar|publi|train|retain"
    r"|save|record|generations|output|replica|variant|repeat|max_|budget|ttl|service|premium|flex"
    r"|(?:^|_)(?:app|best|geo|id|ip|job|key|n|num|number|rag|ref)s?(?:_|$)"
)
"""Parts of a field's name that may have an endpoint reach, keep, run or multiply something, or cost more."""
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAME = re.compile(r"[A-Za-z_]{1,64}")
_WORD = re.compile(r"[A-Za-z]+(?:[ _-][A-Za-z]+){0,3}")
_WORD_CHARS = 40


def _is_harmless(name: str, value: Any) -> bool:
    """Return whether an unknown field is a number, a switch or a word, and nothing that an endpoint could look up."""
    if not _NAME.fullmatch(name) or _REACHING.search(_HUMP.sub("_", name).lower()):
        return False
    if isinstance(value, str):
        return len(value) <= _WORD_CHARS and _WORD.fullmatch(value) is not None
    return isinstance(value, bool | int | float)


def require_permitted(request: Mapping[str, Any], dialect: Dialect) -> tuple[str, ...]:
    """Refuse a request that has the endpoint do more than answer once; return its unknown fields that pass.

    Raises:
        ValueError: It does; the message names the field.
    """
    unknown = _require_fields(request, dialect.fields, "")
    if str(request.get("model", "")).endswith(_SEARCHING):
        raise ValueError(f"model: with {_SEARCHING} the endpoint would search the web")
    if isinstance(config := request.get("generationConfig"), dict):
        unknown += _require_fields(config, _GENERATION, "generationConfig.")
    _require_edits(request.get("context_management"))
    _require_tools(request.get("tools"), dialect, "tools")
    for name in dialect.conversation:
        _require_parts(request.get(name), dialect, name)
    return unknown


def _require_fields(found: Mapping[str, Any], known: re.Pattern[str], place: str) -> tuple[str, ...]:
    unknown = []
    for name, value in found.items():
        if not value:
            continue
        if name in _ONLY and (isinstance(value, bool) or value not in _ONLY[name]):
            raise ValueError(f"{place}{name} may only be {' or '.join(map(str, _ONLY[name]))} for an endpoint")
        if known.fullmatch(name):
            continue
        if not _is_harmless(name, value):
            raise ValueError(
                f"{place}{name[:100]}: relay does not know this field, and an endpoint does nothing for a session but "
                "answer"
            )
        unknown.append(f"{place}{name}")
    return tuple(unknown)


def _require_edits(management: Any) -> None:
    edits = management.get("edits") if isinstance(management, dict) else management
    for edit in edits if isinstance(edits, list) else []:
        if not (isinstance(edit, dict) and _EDITS.fullmatch(str(edit.get("type")))):
            raise ValueError("context_management: the endpoint would ask a model besides")


def _require_tools(tools: Any, dialect: Dialect, place: str) -> None:
    if tools and not isinstance(tools, list):
        raise ValueError(f"{place}: no list of tools, as the endpoint would have it")
    for kind in _list_kinds(tools or [], dialect):
        if not dialect.tools.fullmatch(kind):
            raise ValueError(f"{place}: {kind[:100]!r} would be run by the endpoint, outside of the sandbox")


def _list_kinds(tools: list[Any], dialect: Dialect) -> Iterator[str]:
    for tool in tools:
        if isinstance(tool, dict) and dialect.by_name:
            yield from tool
        elif isinstance(tool, dict):
            yield str(tool.get("type") or "custom")
            inner = tool.get("tools")
            yield from _list_kinds([tool.get("definition"), *(inner if isinstance(inner, list) else ())], dialect)


def _require_parts(found: Any, dialect: Dialect, place: str) -> None:
    for part in found if isinstance(found, list) else [found]:
        if isinstance(part, dict):
            _require_part(part, dialect, place)


def _require_part(part: Mapping[str, Any], dialect: Dialect, place: str) -> None:
    kinds = list(part) if dialect.by_name else [str(part.get("type") or "message")]
    for kind in kinds:
        if not dialect.parts.fullmatch(kind):
            raise ValueError(
                f"{place}: an endpoint gets only what the request itself holds, and {kind[:100]!r} is none"
            )
        if _MEDIA.fullmatch(kind):
            _require_held(part, dialect, f"{place}: {kind}")
    if part.get("audio"):
        raise ValueError(f"{place}: audio: an endpoint gets only what the request itself holds")
    _require_tools(part.get("tools"), dialect, f"{place}: tools")
    _require_tools([part.get("tool")], dialect, f"{place}: tool")
    answer = part.get("functionResponse")
    for name, inner in (*part.items(), *(answer.items() if isinstance(answer, dict) else ())):
        if name in _INNER:
            _require_parts(inner, dialect, place)


def _require_held(medium: Mapping[str, Any], dialect: Dialect, place: str) -> None:
    """Refuse media that are not in the request: at an address, or in a file that the endpoint keeps."""
    for name, value in medium.items():
        is_held = value.startswith("data:") if name in _ADDRESSES and isinstance(value, str) else name in _HELD
        if value and not is_held:
            raise ValueError(f"{place}.{name[:100]}: an endpoint fetches nothing; base64 and text pass")
        if name in _CONTAINERS and isinstance(value, dict):
            _require_held(value, dialect, f"{place}.{name}")
            _require_parts(value.get("content"), dialect, place)


_MODELS = re.compile(r"/v1(?:beta)?/models(?:/[^/?]+)?")
"""What an agent may ask besides; the rest of an endpoint (files, batches, stored answers) is out of reach."""
_COUNTING = re.compile(r"/v1/messages/count_tokens|/v1(?:beta)?/models/[^/?:]+:countTokens")
_GEMINI = re.compile(r"/v1(?:beta)?/models/([^/?:]+):(?:streamG|g)enerateContent")
MAX_PARTS = 2_000_000
"""Most parts of a request: such a request takes 200 MB in memory."""
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request that a model will answer."""

    dialect: Dialect
    model: str
    is_main: bool
    """Whether it belongs to the session's own conversation: it has tools and the session's mark. Requests for titles
    and the like lack one of them."""
    prompt_bytes: int
    max_output_tokens: int | None
    """None if the request does not say: the model's own limit holds."""
    is_streamed: bool
    """Whether it asks for a stream by a field."""
    unknown: tuple[str, ...] = ()
    """Fields that relay does not know and lets pass."""


def find_dialect(path: str) -> Dialect | None:
    """Return the dialect of a request that a model answers; None for other requests."""
    bare = path.partition("?")[0]
    return _BY_PATH.get(bare) or (GEMINI if _GEMINI.fullmatch(bare) else None)


def may_pass(method: str, path: str) -> bool:
    """Return whether the gateway forwards a request."""
    bare = path.partition("?")[0]
    if ".." in unquote(bare):
        return False
    if method == "GET":
        return _MODELS.fullmatch(bare) is not None
    return method == "POST" and (find_dialect(bare) is not None or _COUNTING.fullmatch(bare) is not None)


def read_request(path: str, body: bytes, mark: bytes) -> ModelRequest | None:
    """Return what a request asks of a model; None if it costs nothing.

    Args:
        path: With its query.
        mark: A text that only the session's own conversation holds.

    Raises:
        ValueError: The request cannot be accounted for.
    """
    bare = path.partition("?")[0]
    dialect = find_dialect(path)
    if dialect is None and not _COUNTING.fullmatch(bare):
        return None
    found = parse_json(body, most_parts=MAX_PARTS, most_levels=_MAX_DEPTH, object_pairs_hook=_join)
    if not isinstance(found, dict):
        raise ValueError("the request is no JSON object")  # noqa: TRY004  # what it is is the other side's choice
    unknown = require_permitted(found, dialect or (MESSAGES if bare.startswith("/v1/messages") else GEMINI))
    if dialect is None:
        return None
    named = _GEMINI.fullmatch(bare)
    return ModelRequest(
        dialect=dialect,
        model=(unquote(named[1]) if named else str(found.get("model", "")))[:200],
        is_main=bool(found.get("tools")) and mark in body,
        prompt_bytes=len(body),
        max_output_tokens=_read_limit(found, dialect),
        is_streamed=bool(found.get("stream")),
        unknown=unknown,
    )


def _join(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Refuse a duplicate field: an endpoint may read either value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object of the request has a field twice")
    return found


def _read_limit(request: Mapping[str, Any], dialect: Dialect) -> int | None:
    for path in dialect.limits:
        most = dig(request, path)
        if most is None:
            continue
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise ValueError(f"{path} is no number of tokens")
        return most
    if dialect.has_limit:
        raise ValueError(f"the request has no {dialect.limits[0]}")
    return None


def shorten_answer(body: bytes, dialect: Dialect, most_tokens: int) -> bytes:
    """Return the body with another output limit."""
    found = json.loads(body)
    paths = [path for path in dialect.limits if dig(found, path) is not None] or dialect.limits[:1]
    for path in paths:
        *tables, name = path.split(".")
        place = found
        for table in tables:
            place[table] = place = place[table] if isinstance(place.get(table), dict) else {}
        place[name] = most_tokens
    budget = dig(found, "thinking.budget_tokens")
    if isinstance(budget, int) and budget >= most_tokens:  # an answer has to be longer than its thinking
        found["thinking"]["budget_tokens"] = most_tokens // 2
    return json.dumps(found).encode()


def name_usage(found: Mapping[str, Any], paths: tuple[tuple[str, tuple[str, ...]], ...] | None) -> Mapping[str, Any]:
    """Return the usage in the Messages API's classes, which do not overlap."""
    if paths is None:
        return found
    given = {name: [dig(found, path) for path in several] for name, several in paths}
    counts = {name: sum(n for n in several if isinstance(n, int) and n > 0) for name, several in given.items()}
    prompt = counts["prompt"]
    read = min(prompt, counts["read"])
    written = min(prompt - read, counts["written"])
    return {
        "input_tokens": prompt - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": counts["output"],
        "output_tokens_details": {"thinking_tokens": counts["thinking"]},
    }


_SAID = ("model", "reason", "usage", "error")
_FAILED = ("failed", "cancelled")
_MAX_LINE_BYTES = 64 * 1024 * 1024
"""Longest line of a stream, or longest whole answer, that is read."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Reads an answer while it passes. Mutable: it comes in pieces."""

    dialect: Dialect
    streamed: bool
    """As server-sent events; else as JSON."""
    model: str = ""
    stop_reason: str = ""
    """In the Messages API's terms, if it has one."""
    is_complete: bool = False
    error: Mapping[str, Any] | None = None
    """The error that ended a stream."""
    parts: int = 0
    """Number of events."""
    _usage: dict[str, Any] = field(default_factory=dict)
    _held: bytearray = field(default_factory=bytearray)

    @property
    def usage(self) -> Usage | None:
        """The reported usage; None if nothing was reported. Output counts only at the end of an answer."""
        named = name_usage(self._usage, self.dialect.usage)
        return parse_api_usage(named if self.is_complete else {**named, "output_tokens": 0})

    @property
    def held_bytes(self) -> int:
        """Size of the unfinished line or answer in memory."""
        return len(self._held)

    def forget(self) -> None:
        """Drop the unfinished line or answer: it will count as broken off."""
        self._held.clear()

    def feed(self, chunk: bytes) -> None:
        """Read a chunk that has passed."""
        self._held += chunk
        if len(self._held) > _MAX_LINE_BYTES:
            self.forget()
        if not self.streamed or b"\n" not in chunk:
            return
        *lines, rest = bytes(self._held).split(b"\n")
        self._held = bytearray(rest)
        for line in lines:
            self._read_line(line)

    def close(self) -> None:
        """Read the end of the answer."""
        if self.streamed:
            self._read_line(bytes(self._held))
        for part in () if self.streamed else _parse(bytes(self._held)):
            self._take(part)

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self.parts += 1
            for part in _parse(line[5:]):
                self._take(part)

    def _take(self, part: Mapping[str, Any]) -> None:
        model, reason, usage, error = (_dig_first(part, self.dialect.said[name]) for name in _SAID)
        if isinstance(model, str):
            self.model = model[:200]
        if isinstance(reason, str):
            self.stop_reason = name_stop_reason(reason)[:100]
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
        if part.get("type") == "error":
            error = error or {name: value for name, value in part.items() if name != "type"}
        if error or reason in _FAILED:
            self.error = error if isinstance(error, dict) else {"message": str(error)} if error else {"code": reason}
        places, values = self.dialect.ends
        end = _dig_first(part, places)
        self.is_complete = self.is_complete or (end in values if values else bool(end))


def _dig_first(part: Mapping[str, Any], paths: tuple[str, ...]) -> Any:
    return next((found for path in paths if (found := dig(part, path)) is not None), None)


def _parse(data: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a text: one, or those of a list."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    for part in found if isinstance(found, list) else [found]:
        if isinstance(part, dict):
            yield part

"""What a request may have an endpoint do: answer, once, on what the request itself holds. Pure.

Lists of what is allowed, by dialect: an endpoint's vendor adds fields by which it fetches addresses, runs tools, keeps
conversations or costs more, and a command of a session can ask for all of them. What is not known does not pass; what
is null, false or empty asks for nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from relay.base.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What the requests of one dialect may have."""

    fields: re.Pattern[str]
    """At the top."""
    conversation: tuple[str, ...]
    """Those of them that hold what is said."""
    parts: re.Pattern[str]
    """Kinds of what it is made of: by their ``type``, Gemini's by their names."""
    tools: re.Pattern[str]
    """Kinds of tools that the agent runs; an endpoint that runs others reaches what a session must not."""
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
PERMITS: Mapping[str, Permit] = {
    "messages": Permit(
        fields=re.compile(
            rf"{_SAMPLING}|messages|system|max_tokens|stop_sequences|thinking|output_(?:config|format)|cache_control"
            r"|context_management|diagnostics|speed"
        ),
        conversation=("messages", "system"),
        parts=re.compile(
            r"message|text|image|document|search_result|(?:redacted_)?thinking|tool_(?:use|result|reference)"
            r"|server_tool_use|tool_search_tool_\w+|tool_(?:addition|removal)"
        ),
        tools=re.compile(r"custom|tool_(?:reference|definition)|(?:bash|text_editor|memory|computer|tool_search_tool_\w+)_\d+"),
    ),
    "responses": Permit(
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
    ),
    "chat": Permit(
        fields=re.compile(rf"{_OPENAI}|{_CHAT}"),
        conversation=("messages",),
        parts=re.compile(r"message|text|refusal|reasoning|thinking|image_url|input_audio|file"),
        tools=re.compile(r"function|custom"),
    ),
    "gemini": Permit(
        fields=re.compile(r"contents|systemInstruction|tools|toolConfig|generationConfig|safetySettings|labels"),
        conversation=("contents", "systemInstruction"),
        parts=re.compile(
            r"role|parts|text|thought|thoughtSignature|functionCall|functionResponse|inlineData|partMetadata"
        ),
        tools=re.compile(r"functionDeclarations"),
        by_name=True,
    ),
}  # fmt: skip
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
"""What some of them may say; an answer is one, of text, at the price that is known."""
_SEARCHING = ":online"
"""At the end of a model's name at gateways."""
_EDITS = re.compile(r"clear_\w+")
"""What an endpoint may do to a conversation by itself; to sum it up is a further answer."""
_MEDIA = re.compile(r"image|document|image_url|input_(?:image|file|audio)|file")
_CONTAINERS = frozenset({"source", "image_url", "input_audio", "file"})
_HELD = _CONTAINERS | {
    *("type", "media_type", "data", "file_data", "filename", "format", "detail", "title", "context", "citations"),
    *("cache_control", "prompt_cache_breakpoint", "content", "id"),
}  # fmt: skip
_ADDRESSES = frozenset({"url", "image_url"})
"""Of which one that has its data in itself passes."""
_INNER = frozenset({"content", "parts", "output"})


def require_permitted(request: Mapping[str, Any], dialect: str) -> None:
    """Refuse what would have the endpoint do more than to answer once.

    Raises:
        ValueError: It asks for that; the words name the field.
    """
    permit = PERMITS[dialect]
    _require_fields(request, permit.fields, "")
    if str(request.get("model", "")).endswith(_SEARCHING):
        raise ValueError(f"model: with {_SEARCHING} the endpoint would search the web")
    if isinstance(config := request.get("generationConfig"), dict):
        _require_fields(config, _GENERATION, "generationConfig.")
    _require_edits(request.get("context_management"))
    _require_tools(request.get("tools"), permit, "tools")
    for name in permit.conversation:
        _require_parts(request.get(name), permit, name)


def _require_fields(found: Mapping[str, Any], known: re.Pattern[str], place: str) -> None:
    for name, value in found.items():
        if not value:
            continue
        if not known.fullmatch(name):
            raise ValueError(
                f"{place}{name[:100]}: relay does not know this field, and an endpoint does nothing for a session but "
                "answer"
            )
        if name in _ONLY and (isinstance(value, bool) or value not in _ONLY[name]):
            raise ValueError(f"{place}{name} may only be {' or '.join(map(str, _ONLY[name]))} for an endpoint")


def _require_edits(management: Any) -> None:
    edits = management.get("edits") if isinstance(management, dict) else management
    for edit in edits if isinstance(edits, list) else []:
        if not (isinstance(edit, dict) and _EDITS.fullmatch(str(edit.get("type")))):
            raise ValueError("context_management: the endpoint would ask a model besides")


def _require_tools(tools: Any, permit: Permit, place: str) -> None:
    if tools and not isinstance(tools, list):
        raise ValueError(f"{place}: no list of tools, as the endpoint would have it")
    for kind in _list_kinds(tools or [], permit):
        if not permit.tools.fullmatch(kind):
            raise ValueError(f"{place}: {kind[:100]!r} would be run by the endpoint, outside of the sandbox")


def _list_kinds(tools: list[Any], permit: Permit) -> Iterator[str]:
    for tool in tools:
        if isinstance(tool, dict) and permit.by_name:
            yield from tool
        elif isinstance(tool, dict):
            yield str(tool.get("type") or "custom")
            inner = tool.get("tools")
            yield from _list_kinds([tool.get("definition"), *(inner if isinstance(inner, list) else ())], permit)


def _require_parts(found: Any, permit: Permit, place: str) -> None:
    for part in found if isinstance(found, list) else [found]:
        if isinstance(part, dict):
            _require_part(part, permit, place)


def _require_part(part: Mapping[str, Any], permit: Permit, place: str) -> None:
    kinds = list(part) if permit.by_name else [str(part.get("type") or "message")]
    for kind in kinds:
        if not permit.parts.fullmatch(kind):
            raise ValueError(
                f"{place}: an endpoint gets only what the request itself holds, and {kind[:100]!r} is none"
            )
        if _MEDIA.fullmatch(kind):
            _require_held(part, permit, f"{place}: {kind}")
    if part.get("audio"):
        raise ValueError(f"{place}: audio: an endpoint gets only what the request itself holds")
    _require_tools(part.get("tools"), permit, f"{place}: tools")
    _require_tools([part.get("tool")], permit, f"{place}: tool")
    answer = part.get("functionResponse")
    for name, inner in (*part.items(), *(answer.items() if isinstance(answer, dict) else ())):
        if name in _INNER:
            _require_parts(inner, permit, place)


def _require_held(medium: Mapping[str, Any], permit: Permit, place: str) -> None:
    """Refuse what a medium has elsewhere: at an address, or in a file that the endpoint keeps."""
    for name, value in medium.items():
        is_held = value.startswith("data:") if name in _ADDRESSES and isinstance(value, str) else name in _HELD
        if value and not is_held:
            raise ValueError(f"{place}.{name[:100]}: an endpoint fetches nothing; base64 and text pass")
        if name in _CONTAINERS and isinstance(value, dict):
            _require_held(value, permit, f"{place}.{name}")
            _require_parts(value.get("content"), permit, place)

"""The Messages API's forms: content blocks and their size in tokens, models, errors, JSON.

A block costs ``ceil(utf8 bytes / 3.5) + 3`` tokens; the bytes are those of its text, of a tool's name, description and
schema, of a call's name and JSON input, or of a result's content. An inline image or document costs 2,000 tokens.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relay.base.values import dataclass
from relay.session.prices import list_limits

Body = Mapping[str, Any]
"""A request's fields."""
ContentBlock = Mapping[str, Any]

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def dump(value: Any) -> str:
    """Write compact JSON with the key order kept."""
    return _ENCODER.encode(value)


def encode(text: str) -> bytes:
    """Write text of a model, which may hold half of a surrogate pair."""
    return text.encode(errors="surrogatepass")


def digest(*parts: Any) -> str:
    """Hash JSON values in order."""
    return hashlib.sha256(encode(dump(parts))).hexdigest()


BYTES_PER_TOKEN = 3.5
BLOCK_TOKENS = 3
INLINE_TOKENS = 2000


def list_blocks(content: Any) -> list[ContentBlock]:
    """Read ``content`` as blocks: a string is one text block, an empty one no block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def canonical(block: ContentBlock) -> dict[str, Any]:
    """Remove what does not change a block's meaning: null fields, cache marks, the order of its own fields."""
    kept = {name: block[name] for name in sorted(block) if name != "cache_control" and block[name] is not None}
    if kept.get("type") == "tool_result":
        kept["content"] = [canonical(part) for part in list_blocks(block.get("content"))]
    return kept


def count_text(text: str) -> int:
    """Count the tokens of a text block."""
    return math.ceil(len(encode(text)) / BYTES_PER_TOKEN) + BLOCK_TOKENS


def count_block(block: ContentBlock, words: str = "") -> int:
    """Count the tokens of any block or tool definition; `words` is its canonical JSON if known."""
    match block.get("type"):
        case "text":
            return count_text(str(block.get("text", "")))
        case "thinking":
            return count_text(str(block.get("thinking", "")))
        case "tool_use":
            return count_text(str(block.get("name", "")) + dump(block.get("input", {})))
        case "tool_result":
            return BLOCK_TOKENS + sum(count_block(part) for part in list_blocks(block.get("content")))
        case "image" | "document":
            return INLINE_TOKENS
        case _:
            return count_text(words or dump(canonical(block)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """One model as the Models API sees it."""

    id: str
    window_tokens: int = 1_000_000
    output_tokens: int = 128_000


CATALOG: tuple[ModelCard, ...] = tuple(
    ModelCard(id=model, window_tokens=limits.window_tokens, output_tokens=limits.max_output_tokens)
    for model, limits in list_limits().items()
)


def render_model_info(card: ModelCard) -> Mapping[str, Any]:
    """Write a model as ``GET /v1/models/{id}`` does; no release date is known."""
    return {
        "type": "model",
        "id": card.id,
        "display_name": f"{card.id} (rehearsed)",
        "created_at": "1970-01-01T00:00:00Z",
        "max_input_tokens": card.window_tokens,
        "max_tokens": card.output_tokens,
    }


def render_model_name(card: ModelCard) -> Mapping[str, Any]:
    """Write a model as OpenAI's API and its imitations do."""
    return {"id": card.id, "object": "model", "created": 0, "owned_by": "library"}


def render_google_model(card: ModelCard) -> Mapping[str, Any]:
    """Write a model as Google's API does."""
    limits = {"inputTokenLimit": card.window_tokens, "outputTokenLimit": card.output_tokens}
    return {"name": f"models/{card.id}", "displayName": f"{card.id} (rehearsed)"} | limits


ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""HTTP status → ``error.type``. Source: platform.claude.com api/errors, 2026-08-21."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """An error response; a value, not an exception."""

    status: int
    message: str
    type: str = ""
    """Empty: the type of the status."""
    error_code: str = ""
    """``error.details.error_code``; empty for none."""
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """The request is answered with an error."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def refuse(message: str) -> ApiError:
    """Build the 400 of a malformed request."""
    return ApiError(status=400, message=message)


def find_error_type(status: int) -> str:
    """Name the ``error.type`` of a status; other 4xx are invalid requests, other 5xx are api errors."""
    return ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004  # HTTP


def render_error(error: ApiError, request_id: str) -> Mapping[str, Any]:
    """Write an error as the API's response body."""
    inner: dict[str, Any] = {"type": error.type or find_error_type(error.status), "message": error.message}
    if error.error_code:
        inner["details"] = {"error_code": error.error_code}
    return {"type": "error", "error": inner, "request_id": request_id}

"""The models that the rehearsal knows (`models.toml`); models and errors as the APIs write them."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from relay.base.values import dataclass

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
Body = Mapping[str, Any]
"""A request's fields."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


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


def dump(value: Any) -> str:
    """Write compact JSON with the key order kept."""
    return _ENCODER.encode(value)


EFFORTS = ("low", "medium", "high", "xhigh", "max")
_EPOCH = "1970-01-01T00:00:00Z"
"""The Models API's release date of a model without a known one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """One model as the Models API and the request checks see it."""

    id: str
    name: str
    window_tokens: int = 1_000_000
    output_tokens: int = 128_000
    min_cache_tokens: int = 1024
    """Shorter prefixes are silently not cached."""
    thinking: frozenset[str] = frozenset({"adaptive", "disabled"})
    """Accepted values of ``thinking.type``."""
    efforts: tuple[str, ...] = EFFORTS
    default_effort: str = "high"
    binds_thinking: bool = False
    """Whether thinking blocks are only accepted behind the exact prefix they were produced for."""
    forced_tools: bool = True
    """Whether ``tool_choice`` any/tool is accepted."""
    prefill: bool = False
    """Whether a final assistant message is accepted."""
    system_messages: bool = False
    """Whether ``system`` messages in mid-conversation are accepted."""
    aliases: tuple[str, ...] = ()
    created_at: str = _EPOCH


def _parse_card(model: str, table: Mapping[str, Any]) -> ModelCard:
    sets = {name: frozenset(table[name]) for name in ("thinking",) if name in table}
    tuples = {name: tuple(table[name]) for name in ("efforts", "aliases") if name in table}
    return ModelCard(id=model, **{**table, **sets, **tuples})


CATALOG: tuple[ModelCard, ...] = tuple(
    _parse_card(model, table)
    for model, table in tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8")).items()
)


def find_card(model: str, cards: tuple[ModelCard, ...] = CATALOG) -> ModelCard | None:
    """Find a model by its id or an alias; None if unknown."""
    return next((card for card in cards if model == card.id or model in card.aliases), None)


def render_model_info(card: ModelCard) -> Mapping[str, Any]:
    """Write a model as ``GET /v1/models/{id}`` does."""
    return {
        "type": "model",
        "id": card.id,
        "display_name": f"{card.name} (rehearsed)",
        "created_at": card.created_at,
        "max_input_tokens": card.window_tokens,
        "max_tokens": card.output_tokens,
    }


def render_model_name(card: ModelCard) -> Mapping[str, Any]:
    """Write a model as OpenAI's API and its imitations do."""
    return {"id": card.id, "object": "model", "created": 0, "owned_by": "library"}


def render_google_model(card: ModelCard) -> Mapping[str, Any]:
    """Write a model as Google's API does."""
    limits = {"inputTokenLimit": card.window_tokens, "outputTokenLimit": card.output_tokens}
    return {"name": f"models/{card.id}", "displayName": f"{card.name} (rehearsed)"} | limits


def list_models(cards: tuple[ModelCard, ...]) -> Mapping[str, Any]:
    """Write all models as one page of ``GET /v1/models``."""
    data = [render_model_info(card) for card in cards]
    return {"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}

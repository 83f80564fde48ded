"""The models that the rehearsal knows, relay's own table; models and errors as the APIs write them."""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relay.base.values import dataclass
from relay.session.prices import list_limits, load_models

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
"""The release date of every model: none is known."""


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


def _make_card(model: str, own: Mapping[str, Any]) -> ModelCard:
    limits = list_limits()[model]
    snapshot = own.get("snapshot", model)
    _, family, *version = model.split("-")
    return ModelCard(
        id=snapshot,
        name=f"Claude {family.title()} {'.'.join(version)}",
        window_tokens=limits.window_tokens,
        output_tokens=limits.max_output_tokens,
        min_cache_tokens=limits.min_cacheable_tokens,
        thinking=frozenset(own.get("thinking", ("adaptive", "disabled"))),
        efforts=tuple(own.get("efforts", EFFORTS)),
        default_effort=limits.default_effort or "high",
        system_messages=limits.system_messages,
        aliases=(model,) if snapshot != model else (),
        **{name: own[name] for name in ("binds_thinking", "forced_tools", "prefill") if name in own},
    )


CATALOG: tuple[ModelCard, ...] = tuple(
    _make_card(model, table.get("rehearsal", {})) for model, table in load_models().items()
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
        "created_at": _EPOCH,
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

"""The API's error shape and ids."""

import json
from collections.abc import Mapping
from dataclasses import field
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
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """A request that is answered with an error; a value, not an exception."""

    status: int
    message: str
    type: str = ""
    """Empty: the type that belongs to the status."""
    error_code: str = ""
    """``error.details.error_code``; empty for none."""
    headers: Mapping[str, str] = field(default_factory=dict)


def refuse(message: str) -> ApiError:
    """Build the 400 the API gives for a request it cannot take."""
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

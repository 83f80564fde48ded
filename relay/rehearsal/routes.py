"""Which API a request is for, by its path."""

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote

from relay.base.values import dataclass
from relay.rehearsal.cache import CacheUse
from relay.rehearsal.other_apis import CHAT, GEMINI, Tongue
from relay.rehearsal.responses import RESPONSES
from relay.rehearsal.wire import ApiError

_GEMINI = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+):(?P<stream>streamG|g)enerateContent")
_BY_PATH: Mapping[str, Tongue] = {"/v1/responses": RESPONSES, "/v1/chat/completions": CHAT}
_OVERLOADED = 529


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What a request's path says of one that is not of the Messages API."""

    tongue: Tongue
    model: str = ""
    """Where the path names it."""
    streams: bool | None = None
    """Where the path says so."""


def find_foreign(method: str, path: str) -> Foreign | None:
    """Return which other API a request is for; None for none of them."""
    if method != "POST":
        return None
    if path in _BY_PATH:
        return Foreign(tongue=_BY_PATH[path])
    found = _GEMINI.fullmatch(path)
    return Foreign(tongue=GEMINI, model=unquote(found["model"]), streams=found["stream"] != "g") if found else None


def blend(use: CacheUse) -> CacheUse:
    """Return how a prompt divides for an API whose writes to the cache are plain input."""
    written = use.write_5m_tokens + use.write_1h_tokens
    return CacheUse(input_tokens=use.input_tokens + written, read_tokens=use.read_tokens)


def blend_error(error: ApiError) -> ApiError:
    """Return an error with a status that others than Anthropic's API have."""
    return replace(error, status=503, type="server_error") if error.status == _OVERLOADED else error

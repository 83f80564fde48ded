"""Requests of four dialects as they pass through the gateway: what they ask for, and of whom. Pure.

Nothing that passes is changed but for its longest answer, where the caps leave less: Messages, Responses, Chat
Completions and Gemini each to an endpoint that speaks it.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from relay.base.values import dataclass
from relay.runners.agents.permits import require_permitted
from relay.runners.agents.wire import dig

_MODELS = re.compile(r"/v1(?:beta)?/models(?:/[^/?]+)?")
"""What an agent may ask besides; everything else of an endpoint (files, batches, stored answers) is out of reach."""
_COUNTING = re.compile(r"/v1/messages/count_tokens|/v1(?:beta)?/models/[^/?:]+:countTokens")
_GEMINI = re.compile(r"/v1(?:beta)?/models/([^/?:]+):(?:streamG|g)enerateContent")
MAX_PARTS = 2_000_000
"""Of a request, what separates its parts counted in its texts too: such a one takes 200 MB when it is read."""
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageNames:
    """Where an answer has what it used; dotted paths, of which several add up."""

    prompt: tuple[str, ...]
    """All of the prompt, with what was read from the cache and written to it."""
    read: tuple[str, ...]
    written: tuple[str, ...] = ()
    output: tuple[str, ...]
    thinking: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one kind of endpoint is spoken to."""

    name: str
    limits: tuple[str, ...]
    """Dotted paths of the longest answer in a request."""
    has_limit: bool = False
    """Every request names it."""
    usage: UsageNames | None
    """None for the classes that relay itself counts in."""


MESSAGES = Dialect(
    name="messages",
    limits=("max_tokens",),
    has_limit=True,
    usage=None,
)
RESPONSES = Dialect(
    name="responses",
    limits=("max_output_tokens",),
    usage=UsageNames(
        prompt=("input_tokens",),
        read=("input_tokens_details.cached_tokens",),
        written=("input_tokens_details.cache_write_tokens",),
        output=("output_tokens",),
        thinking="output_tokens_details.reasoning_tokens",
    ),
)
CHAT = Dialect(
    name="chat",
    limits=("max_completion_tokens", "max_tokens"),
    usage=UsageNames(
        prompt=("prompt_tokens",),
        read=("prompt_tokens_details.cached_tokens",),
        written=("prompt_tokens_details.cache_write_tokens",),
        output=("completion_tokens",),
        thinking="completion_tokens_details.reasoning_tokens",
    ),
)
GEMINI = Dialect(
    name="gemini",
    limits=("generationConfig.maxOutputTokens",),
    usage=UsageNames(
        prompt=("promptTokenCount", "toolUsePromptTokenCount"),
        read=("cachedContentTokenCount",),
        output=("candidatesTokenCount", "thoughtsTokenCount"),
        thinking="thoughtsTokenCount",
    ),
)
_BY_PATH = {"/v1/messages": MESSAGES, "/v1/responses": RESPONSES, "/v1/chat/completions": CHAT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request that a model is going to answer."""

    dialect: Dialect
    model: str
    is_main: bool
    """Of the session's own conversation: it has tools and the session's mark. Titles and the like have not both."""
    prompt_bytes: int
    max_output_tokens: int | None
    """None when it does not say: the model's own limit."""


def find_dialect(path: str) -> Dialect | None:
    """Return what a request is spoken in that a model answers; None for any other."""
    bare = path.partition("?")[0]
    return _BY_PATH.get(bare) or (GEMINI if _GEMINI.fullmatch(bare) else None)


def may_pass(method: str, path: str) -> bool:
    """Say whether a request is one that the gateway forwards."""
    bare = path.partition("?")[0]
    if ".." in unquote(bare):
        return False
    if method == "GET":
        return _MODELS.fullmatch(bare) is not None
    return method == "POST" and (find_dialect(bare) is not None or _COUNTING.fullmatch(bare) is not None)


def read_request(path: str, body: bytes, mark: bytes) -> ModelRequest | None:
    """Return what a request asks of a model; None for one that costs nothing.

    Args:
        path: With its query.
        mark: What only the session's own conversation holds.

    Raises:
        ValueError: It is no request that can be accounted for.
    """
    bare = path.partition("?")[0]
    dialect = find_dialect(path)
    if dialect is None and not _COUNTING.fullmatch(bare):
        return None
    found = _load(body)
    require_permitted(found, (dialect or (MESSAGES if bare.startswith("/v1/messages") else GEMINI)).name)
    if dialect is None:
        return None
    named = _GEMINI.fullmatch(bare)
    return ModelRequest(
        dialect=dialect,
        model=(unquote(named[1]) if named else str(found.get("model", "")))[:200],
        is_main=bool(found.get("tools")) and mark in body,
        prompt_bytes=len(body),
        max_output_tokens=_read_limit(found, dialect),
    )


def _load(body: bytes) -> dict[str, Any]:
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_PARTS:
        raise ValueError(f"the request has more than {MAX_PARTS:,} parts")
    try:
        found = json.loads(body, object_pairs_hook=_join)
    except RecursionError:
        raise ValueError("the request is nested too deeply") from None
    if _is_deep(found):
        raise ValueError("the request is nested too deeply")
    if not isinstance(found, dict):
        raise ValueError("the request is no JSON object")  # noqa: TRY004  # what it is is the other side's choice
    return found


def _join(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of a field that it has twice an endpoint may read the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object of the request has a field twice")
    return found


def _is_deep(found: Any) -> bool:
    """Say whether something is nested so deeply that who handles it might not come to its bottom."""
    level = [found] if isinstance(found, dict | list) else []
    for _ in range(_MAX_DEPTH):
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
    return bool(level)


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
    """Return the body of a request that asks for an answer of so many tokens."""
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


def name_usage(found: Mapping[str, Any], names: UsageNames | None) -> Mapping[str, Any]:
    """Return what was used in the Messages API's classes, which do not overlap."""
    if names is None:
        return found
    count: Callable[[tuple[str, ...]], int] = lambda paths: sum(_count(dig(found, path)) for path in paths)  # noqa: E731
    prompt = count(names.prompt)
    read = min(prompt, count(names.read))
    written = min(prompt - read, count(names.written))
    return {
        "input_tokens": prompt - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": count(names.output),
        "output_tokens_details": {"thinking_tokens": _count(dig(found, names.thinking))},
    }


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0

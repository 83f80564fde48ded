"""The prompt cache: how long its entries have to live, and when it broke and by what. Pure.

A drop of less than 5 %, or of fewer than 2,000 tokens, is noise: entries end at block borders. Claude Code counts so
too.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from relay.base.values import dataclass
from relay.session.events import CacheBroken
from relay.session.usage import Usage

MIN_DROP_TOKENS = 2_000
KEPT_SHARE = 0.95
SHORT_TTL_S = 300.0
LONG_TTL_S = 3_600.0


def wants_long(cache_ttl: str, turn_s: float) -> bool:
    """Say whether a session should ask for entries of one hour.

    An entry lives from the *start* of the request that wrote or read it. So the cache of five minutes is lost when an
    answer and the pause behind it take longer than that together. One such miss writes the whole context again at 1.25
    times the price of input; entries of one hour cost 0.75 times more to write, each token once. So a run that has come
    that close before asks for the hour in its next session.

    Args:
        cache_ttl: ``5m``, ``1h`` or ``auto``.
        turn_s: How far apart two requests may be in this run.
    """
    return cache_ttl == "1h" or (cache_ttl == "auto" and turn_s > SHORT_TTL_S)


@dataclass(slots=True)
class CacheWatch:
    """Compares what each response read from the cache with what the one before it had left there.

    Mutable: remembers the response before.
    """

    lifetime_s: float = SHORT_TTL_S
    _expected_tokens: int | None = None
    _at: float = 0.0
    _sent: tuple[Mapping[str, Any], str] = ({}, "")
    """The request without its messages, and the model."""
    _messages: list[str] = field(default_factory=list)

    def check(self, usage: Usage | None, request: Mapping[str, Any], *, model: str, at: float) -> CacheBroken | None:
        """Take one response.

        Args:
            usage: None is skipped: nothing is known.
            request: What was sent.
            at: When the request was sent, in seconds on any steady clock. After a pause longer than the lifetime of
                an entry a miss is expected.
        """
        if usage is None:
            return None
        expected, read = self._expected_tokens, usage.cache_read_tokens
        broken = None
        if expected is not None and at - self._at <= self.lifetime_s and _is_break(expected, read):
            changed = self._find_change(request, model)
            broken = CacheBroken(changed=changed, expected_tokens=expected, read_tokens=read)
        self._expected_tokens, self._at = read + usage.cache_write_tokens, at
        self._sent = ({**request, "messages": ()}, model)
        self._messages += [_digest_message(message) for message in request["messages"][len(self._messages) :]]
        return broken

    def _find_change(self, request: Mapping[str, Any], model: str) -> str:
        before, now = dict(_digest_parts(*self._sent)), dict(_digest_parts(request, model))
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        past = [_digest_message(message) for message in request["messages"][: len(self._messages)]]
        if past != self._messages:
            names.append("messages")
            self._messages = past
        return ", ".join(names) or "unknown"


def _is_break(expected: int, read: int) -> bool:
    return read < KEPT_SHARE * expected and expected - read >= MIN_DROP_TOKENS


def _digest_parts(request: Mapping[str, Any], model: str) -> Iterator[tuple[str, str]]:
    """Yield what stands in front of the messages: names for people, and what tells two versions apart."""
    yield "system", _digest(_strip_marks(request["system"]))
    yield "model", model
    yield "settings", _digest([request.get("thinking"), request.get("output_config")])
    tools: Sequence[Mapping[str, Any]] = request["tools"]
    yield from ((f"tool {tool['name']}", _digest(tool)) for tool in tools)


def _digest_message(message: Mapping[str, Any]) -> str:
    return _digest([message["role"], _strip_marks(message["content"])])


def _strip_marks(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()

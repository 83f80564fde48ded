"""Notice when the prompt cache broke, and name the part that changed. Pure.

Source of the rule and its constants: DESIGN § 7; a drop of less than 5 % or of fewer than 2,000 tokens is noise.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from relay.events import CacheBroken
from relay.session import ToolSpec, Usage

MIN_DROP_TOKENS = 2_000
KEPT_SHARE = 0.95
SHORT_TTL_S = 300.0


@dataclass(slots=True)
class CacheWatch:
    """Compares what each response read from the cache with what the one before it read."""

    _read_tokens: int | None = None
    _at: float = 0.0
    _parts: dict[str, str] = field(default_factory=dict)

    def check(
        self, usage: Usage | None, *, system: str, tools: Sequence[ToolSpec], model: str, at: float
    ) -> CacheBroken | None:
        """Take one response.

        Args:
            usage: None is skipped: nothing is known.
            system: The system text that was sent.
            tools: The tools that were sent.
            model: The model that answered.
            at: Seconds on any steady clock; after a pause longer than the short lifetime a miss is expected.
        """
        if usage is None:
            return None
        parts = {
            "system": _digest(system),
            "model": model,
            **{f"tool {t.name}": _digest_tool(t) for t in tools},
        }
        before, changed = self._read_tokens, _find_change(self._parts, parts)
        expired = at - self._at > SHORT_TTL_S
        self._read_tokens, self._at, self._parts = usage.cache_read_tokens, at, parts
        if before is None or expired or not _is_break(before, usage.cache_read_tokens):
            return None
        return CacheBroken(changed=changed, expected_tokens=before, read_tokens=usage.cache_read_tokens)


def _is_break(before: int, now: int) -> bool:
    return now < KEPT_SHARE * before and before - now >= MIN_DROP_TOKENS


def _find_change(before: dict[str, str], now: dict[str, str]) -> str:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return ", ".join(names) if names else "messages or the endpoint's own cache"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest_tool(tool: ToolSpec) -> str:
    return _digest(json.dumps([tool.description, tool.input_schema], sort_keys=True, default=str))

"""Endpoints that speak the Messages API and are not its provider's, as far as a client notices.

Read in their sources, documents and threads by 2026-11-21 (ollama#17130, CodeRouter#39, vllm#40912 and #49456,
sglang#20678, vercel/ai#17326, litellm#31069); none of them was at hand to be compared with.
"""

from collections.abc import Mapping

from relay.base.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDialect:
    """What an endpoint does otherwise than the API."""

    lists_limits: bool = True
    """The Models API says what a model can do; else it is OpenAI's, which has names only."""
    counts_tokens: bool = True
    """There is a ``count_tokens``."""
    report: str = ""
    """How usage is told: ``bare``: input and output, no field of the cache; ``reads``: those and what was read from
    the cache; ``flat``: the cache's fields are always 0; ``late``: all zero at the start, ``bare`` at the end; empty:
    as the API does."""
    signs: bool = True
    """Thinking has a signature."""
    refuses: tuple[str, ...] = ()
    """What of a request is answered with a 400; see `relay.rehearsal.checks.check_refused`."""


_LOCAL = ServerDialect(lists_limits=False, counts_tokens=False, report="bare", signs=False)

DIALECTS: Mapping[str, ServerDialect] = {
    "anthropic": ServerDialect(),
    "ollama": _LOCAL,
    "lmstudio": _LOCAL,
    "llamacpp": _LOCAL,
    "vllm": ServerDialect(lists_limits=False, report="reads", signs=False),
    "sglang": ServerDialect(lists_limits=False, report="late", signs=False),
    "vercel": ServerDialect(counts_tokens=False, report="late"),
    "litellm": ServerDialect(lists_limits=False, report="flat"),
    "fireworks": ServerDialect(lists_limits=False, counts_tokens=False, refuses=("ttl",)),
}
"""By the names that people have for them."""

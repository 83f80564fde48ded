"""A request as the model sees it: blocks in the order tools, system, messages, counted and hashed.

Blocks cost what the player's estimate says (`relay.rehearsal.wire`), but a thinking block what its signature says,
whatever text is shown; a script may add tokens to a block (`Padding`), so that a gauge fills without megabytes of text.

Two chains of hashes run over the blocks. The *cache* chain also covers what the API renders into the prompt
(thinking, effort and ``tool_choice`` before the messages, ``speed`` before the system prompt) and leaves out
dropped thinking blocks. The *binding* chain covers tools, system and messages exactly as they were sent.
``cache_control``, fields that are null and the order of a block's own fields count in neither; the order of
keys inside a tool's input counts in both.

Thinking blocks work only in the conversation that produced them. A signature carries the model, the prefix before the
block, the tokens of the thinking and a digest of the shown text, so a restarted server still knows its own blocks. The
key is public: this imitates a check and protects nothing.

The prompt cache (source: platform.claude.com build-with-claude/prompt-caching, 2026-08-22; the time is an argument):

* A marked block writes one entry: the hash of the whole prefix that ends there. No other position is written.
* A read walks back from each marked block, 20 positions counting itself, looking for an entry that an earlier
  request wrote; later marks first, so the first hit is the longest.
* Prefixes shorter than the model's minimum are neither written nor billed as writes.
* Read tokens = the longest hit A; 1-hour writes = up to the last 1-hour mark B after A; 5-minute writes = from
  there to the last mark C; the rest is plain input.
* Lifetime counts from the *start* of the request that wrote or read the entry. An entry can be read once the
  response of the request that wrote it has begun.
* Each model has its own cache.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from enum import StrEnum
from typing import Any, Self

from relay.base.values import dataclass
from relay.rehearsal.answer import PromptUse
from relay.rehearsal.wire import ContentBlock, canonical, digest, dump, encode, list_blocks
from relay.rehearsal.wire import count_block as count_shown
from tests.endpoint.faults import StrictCard

LOOKBACK_BLOCKS = 20


class Ttl(StrEnum):
    """Lifetime of a cache entry, as on the wire."""

    FIVE_MINUTES = "5m"
    ONE_HOUR = "1h"

    @property
    def seconds(self) -> float:
        return 3600.0 if self is Ttl.ONE_HOUR else 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One block of a prompt, as the cache sees it."""

    key: str
    """Hash of everything up to and including the block."""
    tokens: int
    """Tokens up to and including the block."""
    ttl: Ttl | None = None
    """Set if the block is marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """What one request reads, and what it will write once its response begins."""

    use: PromptUse
    model: str
    started: float
    """Clock reading at the start of the request."""
    writes: tuple[tuple[str, Ttl], ...]
    """Entries that become readable with `PromptCache.commit`."""
    touches: tuple[str, ...]
    """Entries whose lifetime restarts: the hit, and the marked entries before it."""


@dataclass(slots=True, kw_only=True)
class _Entry:
    """Mutable: each read renews it."""

    ttl: Ttl
    used: float

    def lives_at(self, now: float) -> bool:
        return now - self.used < self.ttl.seconds


@dataclass(slots=True, kw_only=True)
class PromptCache:
    """Entries of all models of one workspace. Mutable: a cache."""

    _entries: dict[tuple[str, str], _Entry] = field(default_factory=dict)

    def plan(self, model: str, positions: tuple[Position, ...], *, minimum: int, now: float) -> CachePlan:
        """Divide a prompt into read, written and plain tokens.

        Args:
            model: The cache is looked up per model.
            positions: Every block of the prompt, in the order tools, system, messages.
            minimum: The model's shortest cacheable prefix in tokens.
            now: Clock reading at the start of the request, in seconds.
        """
        marked = [i for i, p in enumerate(positions) if p.ttl and p.tokens >= minimum]
        hit = self._find_hit(model, positions, marked, now)
        return CachePlan(
            use=_divide(positions, marked, hit),
            model=model,
            started=now,
            writes=tuple((positions[i].key, positions[i].ttl or Ttl.FIVE_MINUTES) for i in marked if i > hit),
            touches=tuple(positions[i].key for i in (*marked, hit) if 0 <= i <= hit),
        )

    def commit(self, plan: CachePlan) -> None:
        """Make the plan's entries readable: the first byte of the response is about to be sent."""
        for key in plan.touches:
            entry = self._entries.get((plan.model, key))
            if entry is not None and entry.lives_at(plan.started):
                entry.used = max(entry.used, plan.started)
        for key, ttl in plan.writes:
            self._write(plan, key, ttl)
        gone = [name for name, entry in self._entries.items() if not entry.lives_at(plan.started)]
        for name in gone:
            del self._entries[name]

    def _write(self, plan: CachePlan, key: str, ttl: Ttl) -> None:
        old = self._entries.get((plan.model, key))
        if old is not None and old.used + old.ttl.seconds > plan.started + ttl.seconds:
            return
        self._entries[plan.model, key] = _Entry(ttl=ttl, used=plan.started)

    def _find_hit(self, model: str, positions: tuple[Position, ...], marked: list[int], now: float) -> int:
        """Find the index of the longest cached prefix; -1 for none."""
        for mark in reversed(marked):
            for index in range(mark, max(mark - LOOKBACK_BLOCKS, -1), -1):
                entry = self._entries.get((model, positions[index].key))
                if entry is not None and entry.lives_at(now):
                    return index
        return -1


def _divide(positions: tuple[Position, ...], marked: list[int], hit: int) -> PromptUse:
    """Apply the billing positions A, B and C of the documentation."""
    total = positions[-1].tokens if positions else 0
    read = positions[hit].tokens if hit >= 0 else 0
    hour = max((positions[i].tokens for i in marked if positions[i].ttl is Ttl.ONE_HOUR), default=0)
    last = max((positions[i].tokens for i in marked), default=0)
    b = max(read, hour)
    c = max(b, last)
    return PromptUse(input_tokens=total - c, read_tokens=read, write_1h_tokens=b - read, write_5m_tokens=c - b)


_KEY = b"relay rehearsal"
_MAC_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The content of a thinking block's signature."""

    model: str
    prefix: str
    """Digest of tools, system and every message before the block, as the client sent them."""
    tokens: int
    """Thinking tokens of the block, whatever text is shown."""
    text: str
    """Digest of the text that was returned."""

    def encode(self) -> str:
        """Write the opaque string that goes over the wire."""
        payload = json.dumps(asdict(self), separators=(",", ":")).encode()
        return base64.b64encode(_mac(payload) + payload).decode()

    @classmethod
    def decode(cls, signature: str) -> Self | None:
        """Read a signature; None if this server did not write it."""
        try:
            raw = base64.b64decode(signature, validate=True)
        except ValueError:
            return None
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(payload)):
            return None
        return cls(**json.loads(payload))


def digest_text(text: str) -> str:
    """Shorten a shown text to the digest in `Signature.text`."""
    return hashlib.sha256(encode(text)).hexdigest()[:16]


def _mac(payload: bytes) -> bytes:
    return hmac.digest(_KEY, payload, "sha256")[:_MAC_BYTES]


THINKING = frozenset({"thinking", "redacted_thinking"})

Padding = Mapping[str, int]
"""Binding-chain key of a block → tokens on top of its estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlock:
    """One block of a request."""

    where: str
    """Path in the request: ``tools.0``, ``system.1``, ``messages.3.content.0``."""
    body: ContentBlock
    before: str
    """Binding chain in front of the block; a thinking signature is bound to it."""
    bound: str
    """Binding chain including the block."""
    key: str
    """Cache chain including the block."""
    tokens: int
    """Tokens of this block alone, padding included; 0 if it was dropped."""


def count_block(block: ContentBlock, words: str = "") -> int:
    """Count the tokens of any block or tool definition; `words` is its canonical JSON if known."""
    signature = Signature.decode(str(block.get("signature") or "")) if block.get("type") in THINKING else None
    return signature.tokens if signature else count_shown(block, words)


def _extend(chain: str, role: str, words: str) -> str:
    """Continue a chain by a block, given as canonical JSON."""
    return hashlib.sha256(encode(f"{chain} {role} {words}")).hexdigest()


def read_cache_mark(block: ContentBlock) -> Ttl | None:
    """Return a block's explicit cache mark, also from inside a tool result; None without one."""
    nested = list_blocks(block.get("content")) if block.get("type") == "tool_result" else []
    for part in (block, *nested):
        mark = part.get("cache_control")
        if isinstance(mark, Mapping):
            return Ttl.ONE_HOUR if mark.get("ttl") == Ttl.ONE_HOUR else Ttl.FIVE_MINUTES
    return None


def is_markable(block: ContentBlock) -> bool:
    """Return whether a block can end a cached prefix."""
    empty = block.get("type") == "text" and not block.get("text")
    return block.get("type") not in THINKING and not empty


CLEARED = {"type": "text", "text": "[cleared]"}


def list_edits(body: Mapping[str, Any]) -> list[ContentBlock]:
    """Return the edits of the context that a request asks for."""
    wish = body.get("context_management")
    return list_blocks(wish.get("edits")) if isinstance(wish, Mapping) else []


def find_edit(body: Mapping[str, Any], blocks: tuple[PromptBlock, ...]) -> frozenset[str]:
    """Return the paths of the tool results that context editing clears in a request; empty for none.

    Source: platform.claude.com build-with-claude/context-editing, `clear_tool_uses_20250919`.
    """
    edit = next((one for one in list_edits(body) if one.get("type") == "clear_tool_uses_20250919"), None)
    results = [block for block in blocks if block.body.get("type") == "tool_result"]
    if edit is None or sum(block.tokens for block in blocks) <= _read_value(edit, "trigger", 100_000):
        return frozenset()
    old = results[: max(0, len(results) - _read_value(edit, "keep", 3))]
    enough = sum(block.tokens for block in old) >= _read_value(edit, "clear_at_least", 0)
    return frozenset(block.where for block in old) if enough else frozenset()


def _read_value(edit: Mapping[str, Any], name: str, default: int) -> int:
    found = edit.get(name)
    value = found.get("value") if isinstance(found, Mapping) else None
    return value if isinstance(value, int) else default


def render_prompt(
    body: Mapping[str, Any],
    card: StrictCard,
    *,
    padding: Padding,
    dropped: frozenset[str] = frozenset(),
    cleared: frozenset[str] = frozenset(),
) -> tuple[PromptBlock, ...]:
    """List the blocks of a request with their tokens and hashes.

    Args:
        body: The request body.
        card: The model, for its default effort.
        padding: Extra tokens by binding-chain key.
        dropped: Paths of thinking blocks that the model does not see.
        cleared: Paths of tool results of which the model sees a placeholder.
    """
    blocks: list[PromptBlock] = []
    bound = cached = ""
    for where, role, block in _walk(body):
        cached = _enter(cached, role, body, card, blocks)
        words = dump(canonical(block))
        before, bound = bound, _extend(bound, role, words)
        gone, is_cleared = where in dropped, where in cleared
        shown = {**block, "content": [CLEARED]} if is_cleared else block
        words = dump(canonical(shown)) if is_cleared else words
        cached = cached if gone else _extend(cached, role, words)
        tokens = 0 if gone else count_block(shown, words) + (0 if is_cleared else padding.get(bound, 0))
        blocks.append(PromptBlock(where=where, body=block, before=before, bound=bound, key=cached, tokens=tokens))
    return tuple(blocks)


def extend_binding(bound: str, blocks: list[ContentBlock]) -> Iterator[tuple[str, str]]:
    """Continue the binding chain over an answer; yield the chain before and after each block."""
    for block in blocks:
        before, bound = bound, _extend(bound, "assistant", dump(canonical(block)))
        yield before, bound


def list_positions(blocks: tuple[PromptBlock, ...], body: Mapping[str, Any]) -> tuple[Position, ...]:
    """List a prompt's blocks as the cache sees them, with the automatic mark on the last markable block."""
    auto = read_cache_mark({"cache_control": body.get("cache_control")})
    last = max((i for i, b in enumerate(blocks) if is_markable(b.body) and b.tokens), default=-1)
    total, positions = 0, []
    for index, block in enumerate(blocks):
        total += block.tokens
        ttl = read_cache_mark(block.body) or (auto if index == last else None)
        positions.append(Position(key=block.key, tokens=total, ttl=ttl))
    return tuple(positions)


def _walk(body: Mapping[str, Any]) -> Iterator[tuple[str, str, ContentBlock]]:
    """Yield (path, role, block) in prompt order; tools and the system prompt have roles of their own."""
    for i, tool in enumerate(list_blocks(body.get("tools"))):
        yield f"tools.{i}", "tools", tool
    for i, block in enumerate(list_blocks(body.get("system"))):
        yield f"system.{i}", "prompt", block
    for i, message in enumerate(list_blocks(body.get("messages"))):
        for j, block in enumerate(list_blocks(message.get("content"))):
            yield f"messages.{i}.content.{j}", str(message.get("role")), block


def _enter(cached: str, role: str, body: Mapping[str, Any], card: StrictCard, blocks: list[PromptBlock]) -> str:
    """Mix settings into the cache chain at the beginning of each section."""
    section = role if role in {"tools", "prompt"} else "messages"
    last = blocks[-1].where.partition(".")[0] if blocks else "tools"
    if section == "prompt" and last == "tools":
        return digest(cached, body.get("speed") or "standard")
    if section == "messages" and last != "messages":
        return digest(cached, _render_settings(body, card))
    return cached


def _render_settings(body: Mapping[str, Any], card: StrictCard) -> list[Any]:
    """List the request settings that precede the messages in the prompt."""
    thinking, output = body.get("thinking") or {}, body.get("output_config") or {}
    choice = {k: v for k, v in (body.get("tool_choice") or {"type": "auto"}).items() if v is not None}
    mode = thinking.get("type") or ("disabled" if card.thinking == {"enabled", "disabled"} else "adaptive")
    return [mode, thinking.get("budget_tokens"), output.get("effort") or card.default_effort, choice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A checked request, counted and hashed."""

    card: StrictCard
    blocks: tuple[PromptBlock, ...]
    dropped: tuple[Mapping[str, str], ...]
    edits: tuple[Mapping[str, Any], ...] = ()
    """What context editing did, as ``applied_edits`` reports it."""

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return sum(block.tokens for block in self.blocks)

    @property
    def bound(self) -> str:
        """Binding chain of the whole prompt."""
        return self.blocks[-1].bound

"""What a rehearsal server knows between requests: stage, prompt cache, padding, and the record of it all."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.answer import PlayedAnswer
from relay.rehearsal.cache import CachePlan, PromptCache
from relay.rehearsal.catalog import ModelCard
from relay.rehearsal.checks import check_signatures
from relay.rehearsal.faults import FaultSpec
from relay.rehearsal.prompt import PromptBlock, list_positions, render_prompt
from relay.rehearsal.stage import Cue, Stage
from relay.rehearsal.turns import Script
from relay.rehearsal.wire import ApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request and how it was answered."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Lower-case names; credentials are replaced by ``***``."""
    body: Any
    """Parsed JSON; None when there was none, it did not parse, or bodies are not kept."""
    status: int
    """0 when the connection was dropped before a response."""
    usage: Mapping[str, Any] | None = None
    """What the reply has used and is billed for, whatever was reported of it; None when there was no work."""
    stop_reason: str = ""
    session: str = ""
    """Name of the session that answered; empty for none."""
    step: int = 0
    """Which answer of its conversation this is, from 1; 0 for none."""
    fault: str = ""
    """Kind of the fault that was played; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A checked request, counted and hashed."""

    card: ModelCard
    blocks: tuple[PromptBlock, ...]
    dropped: tuple[Mapping[str, str], ...]

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return sum(block.tokens for block in self.blocks)

    @property
    def bound(self) -> str:
        """Binding chain of the whole prompt."""
        return self.blocks[-1].bound


class ServerState:
    """Everything that outlives a request.

    Args:
        clock: Seconds; the prompt cache ages by it.
        keeps_bodies: Whether the record holds request bodies; a server that runs for days should not.
    """

    def __init__(self, script: Script, clock: Callable[[], float], *, keeps_bodies: bool = True) -> None:
        self.script = script
        self.keeps_bodies = keeps_bodies
        self.stage = Stage(script=script)
        self.requests: list[Recorded] = []
        self.errors: list[str] = []
        self.stopping = asyncio.Event()
        self._clock = clock
        self._cache = PromptCache()
        self._padding: dict[str, int] = {}
        self._endpoint_plays: dict[int, int] = {}
        self._serial = 0

    def find_endpoint_fault(self, endpoint: str) -> FaultSpec | None:
        """Find the fault an endpoint other than messages has to play now, and count it."""
        for index, entry in enumerate(self.script.endpoint_faults):
            played = self._endpoint_plays.get(index, 0)
            if entry.on == endpoint and (entry.fault.times is None or played < entry.fault.times):
                self._endpoint_plays[index] = played + 1
                return entry.fault
        return None

    def read_prompt(self, body: Mapping[str, Any], card: ModelCard) -> Prompt | ApiError:
        """Count and hash a request, and check its thinking blocks."""
        blocks = render_prompt(body, card, padding=self._padding)
        signs = self.script.dialect.signs  # who gives no signature looks for none
        problem, dropped = check_signatures(blocks, card, body) if signs else (None, ())
        if problem is not None:
            return problem
        if dropped:
            paths = frozenset(item["path"] for item in dropped)
            blocks = render_prompt(body, card, padding=self._padding, dropped=paths)
        return Prompt(card=card, blocks=blocks, dropped=dropped)

    def pad(self, prompt: Prompt, body: Mapping[str, Any], cue: Cue) -> Prompt | ApiError:
        """Count the turn's input padding as part of the last message from now on."""
        extra = cue.turn.usage.input_padding_tokens
        if not extra:
            return prompt
        self._padding[prompt.bound] = extra
        return self.read_prompt(body, prompt.card)

    def plan_cache(self, prompt: Prompt, body: Mapping[str, Any]) -> CachePlan:
        """Divide a prompt's tokens by what the cache holds now."""
        positions = list_positions(prompt.blocks, body)
        card = prompt.card
        return self._cache.plan(card.id, positions, minimum=card.min_cache_tokens, now=self._clock())

    def begin(self, plan: CachePlan, answer: PlayedAnswer | None, cue: Cue | None) -> None:
        """The response is about to begin: entries become readable, the answer becomes history."""
        self._cache.commit(plan)
        if answer is not None and cue is not None:
            self._padding.update(answer.padding)
            self.stage.note_answer(cue, answer)

    def count(self) -> int:
        """Number the next request, from 1."""
        self._serial += 1
        return self._serial

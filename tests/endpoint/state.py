"""What the endpoint remembers between requests: faults that played, the prompt cache, every request."""

from collections.abc import Callable, Mapping
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.answer import PlayedAnswer
from relay.rehearsal.stage import Cue, Miss, PlayerState, Stage, digest_content
from relay.rehearsal.wire import ApiError, Body, list_blocks
from tests.endpoint.answer import EndpointAnswer
from tests.endpoint.checks import check_signatures
from tests.endpoint.faults import FaultSpec, StrictCard, list_faults
from tests.endpoint.prompt import CachePlan, Prompt, PromptCache, find_edit, list_positions, render_prompt
from tests.endpoint.script import EndpointScript, FaultyTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request, and how it was answered."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Lower-case names; credentials are replaced by ``***``."""
    body: Any
    """Parsed JSON; None if there was none, it was malformed, or bodies are not kept."""
    status: int
    """0 if the connection was dropped before a response."""
    usage: Mapping[str, Any] | None = None
    """The real, billed usage, whatever was reported; None if there was no work."""
    stop_reason: str = ""
    session: str = ""
    """Name of the session that answered; empty for none."""
    step: int = 0
    """Which answer of its conversation this is, from 1; 0 for none."""
    fault: str = ""
    """Kind of the fault that was played; empty for none."""


class EndpointStage(Stage):
    """Where the conversations of one script stand, with answers beside them. Mutable: advances with every request."""

    def __init__(self, script: EndpointScript) -> None:
        asides = [one for one in script.sessions if one.aside]
        super().__init__(script.source, [one for one in script.sessions if one not in asides])
        self._asides = asides
        self._plays: dict[tuple[int, int, int], int] = {}
        """Conversation, step and turn → how often it was played."""
        self._paused: set[str] = set()

    def cue(self, body: Body) -> Cue | Miss:
        """Find the turn for a request and count it as played."""
        for session in self._asides:
            if not session.when.check(body):
                self._cued.add(id(session.turns[0]))
                return Cue(cast=0, step=0, session=session, turn=session.turns[0])
        return super().cue(body)

    def take_fault(self, cue: Cue) -> FaultSpec | None:
        """Count one play of a step; its faults play first, each as often as it says."""
        place = cue.cast, cue.step, id(cue.turn)
        played = self._plays.get(place, 0)
        self._plays[place] = played + 1
        for fault in cue.turn.faults if isinstance(cue.turn, FaultyTurn) else ():
            if fault.times == "always" or played < fault.times:
                self.note_broken(cue)
                return fault
            played -= fault.times
        return None

    def note_answer(self, cue: Cue, answer: PlayedAnswer) -> None:
        """Remember the answer, to recognise the conversation."""
        if not cue.cast:
            return
        super().note_answer(cue, answer)
        if answer.stop_reason == "pause_turn":
            self._paused.add(digest_content([block.body for block in answer.blocks]))

    def note_broken(self, cue: Cue) -> None:
        """Note that the client did not get the whole answer."""
        if cue.cast:
            super().note_broken(cue)

    def has_paused(self, body: Body) -> bool:
        """Return whether a request's history holds an answer that was a ``pause_turn``."""
        if not self._paused:
            return False
        contents = (list_blocks(message.get("content")) for message in list_blocks(body.get("messages")))
        return any(digest_content(content) in self._paused for content in contents)

    def list_unplayed(self) -> tuple[str, ...]:
        """Name the sessions that never began, and the turns of the others that were never played."""
        left = [one for one in self._asides if id(one.turns[0]) not in self._cued]
        never = [f"session {one.name!r} ({self._source}:{one.line}) never began" for one in left]
        return (*super().list_unplayed(), *never)


class EndpointState(PlayerState):
    """Everything that outlives a request. Mutable: a server's threads change it, each behind `guard`.

    Args:
        clock: Seconds; the prompt cache ages by it.
        keeps_bodies: Whether the record holds request bodies; a rig that runs for hours should not.
    """

    script: EndpointScript
    stage: EndpointStage

    def __init__(self, script: EndpointScript, clock: Callable[[], float], *, keeps_bodies: bool) -> None:
        super().__init__(script, EndpointStage(script))
        self.keeps_bodies = keeps_bodies
        self.requests: list[Recorded] = []
        """Every request so far, in the order in which responses began."""
        self._clock = clock
        self._cache = PromptCache()
        self._models_plays: dict[int, int] = {}

    def find_models_fault(self) -> FaultSpec | None:
        """Find the fault that the Models API has to play now, and count it."""
        with self.guard:
            for index, fault in enumerate(list_faults(self.script.models_fault)):
                played = self._models_plays.get(index, 0)
                if fault.times == "always" or played < fault.times:
                    self._models_plays[index] = played + 1
                    return fault
        return None

    def read_prompt(self, body: Body, card: StrictCard) -> Prompt | ApiError:
        """Count and hash a request, and check its thinking blocks."""
        blocks = render_prompt(body, card, padding=self._padding)
        signs = self.script.server.signs  # an endpoint without signatures checks none
        problem, dropped = check_signatures(blocks, card, body) if signs else (None, ())
        if problem is not None:
            return problem
        paths = frozenset(item["path"] for item in dropped)
        if dropped:
            blocks = render_prompt(body, card, padding=self._padding, dropped=paths)
        if signs and (cleared := find_edit(body, blocks)):  # others ignore the wish
            shown = render_prompt(body, card, padding=self._padding, dropped=paths, cleared=cleared)
            tokens = sum(block.tokens for block in blocks) - sum(block.tokens for block in shown)
            edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": len(cleared)}
            edits = ({**edit, "cleared_input_tokens": tokens},)
            return Prompt(card=card, blocks=shown, dropped=dropped, edits=edits)
        return Prompt(card=card, blocks=blocks, dropped=dropped)

    def pad(self, prompt: Prompt, body: Body, cue: Cue) -> Prompt | ApiError:
        """Count the turn's input padding as part of the last message from now on."""
        extra = cue.turn.usage.input_padding_tokens
        if not extra:
            return prompt
        self._padding[prompt.bound] = extra
        return self.read_prompt(body, prompt.card)

    def plan_cache(self, prompt: Prompt, body: Body) -> CachePlan:
        """Divide a prompt's tokens by what the cache holds now."""
        positions = list_positions(prompt.blocks, body)
        card = prompt.card
        with self.guard:
            return self._cache.plan(card.id, positions, minimum=card.min_cache_tokens, now=self._clock())

    def begin_answer(self, plan: CachePlan, answer: EndpointAnswer, cue: Cue) -> None:
        """Make cache entries readable and the answer part of the history: the response is about to begin."""
        with self.guard:
            self._cache.commit(plan)
            self._padding.update(answer.padding)
            self.stage.note_answer(cue, answer)

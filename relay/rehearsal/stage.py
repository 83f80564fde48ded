"""Chooses the turn that answers a request.

The stage knows every request it has answered and every tool call id it has given out. The docstring of `script` has the
rules. A *cast* is one running conversation, a *step* counts its answers.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.answer import PlayedAnswer, digest_content
from relay.rehearsal.checks import check_signatures
from relay.rehearsal.prompt import (
    CachePlan,
    ContentBlock,
    PromptBlock,
    PromptCache,
    canonical,
    digest,
    find_edit,
    list_blocks,
    list_positions,
    render_prompt,
)
from relay.rehearsal.turns import FaultSpec, Script, ScriptSession, Turn, check_conditions
from relay.rehearsal.wire import ApiError, ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """The turn for a request."""

    cast: int
    """Number of the conversation, from 1."""
    step: int
    """Number of the answer within the conversation, from 0."""
    session: ScriptSession
    turn: Turn
    n: int
    """Repetition of the turn, from 1."""
    fault: FaultSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """No turn fits; the words say why."""

    words: str


@dataclass(slots=True, kw_only=True)
class _Cast:
    """Mutable: advances with its conversation."""

    number: int
    segments: list[tuple[ScriptSession, int]]
    """Sessions that this conversation went through, each with its first step."""
    reached: int = 0
    plays: dict[int, int] = field(default_factory=dict)
    """Step → how often it was played."""
    silent: set[int] = field(default_factory=set)
    """Steps whose last answer had no content: the conversation goes on without an assistant turn."""
    spoiled: set[int] = field(default_factory=set)
    """Steps whose last play was a fault: a changed request then is another try."""


_Place = tuple[_Cast, int]


@dataclass(slots=True, kw_only=True)
class Stage:
    """Where the conversations of one script stand. Mutable: advances with every request."""

    script: Script
    _casts: list[_Cast] = field(default_factory=list)
    _asides: dict[int, _Cast] = field(default_factory=dict)
    _played: set[int] = field(default_factory=set)
    _cued: set[int] = field(default_factory=set)
    """Identities of the turns that were played."""
    _by_request: dict[tuple[str, str], _Place] = field(default_factory=dict)
    _by_call: dict[str, _Place] = field(default_factory=dict)
    _by_content: dict[str, _Place] = field(default_factory=dict)
    _paused: set[str] = field(default_factory=set)

    def cue(self, body: Mapping[str, Any]) -> Cue | Miss:
        """Find the turn for a checked request and count it as played."""
        aside = self._find_aside(body)
        if aside is not None:
            return aside
        history = _History(body)
        place = self._find_place(history) or self._open(body, history)
        if isinstance(place, Miss):
            return place
        cast, step = place
        self._by_request[history.scope, history.chain[-1]] = place
        self._by_request["", history.chain[-1]] = place
        found = self._find_turn(cast, step, body)
        if isinstance(found, Miss):
            return found
        session, turn, n = found
        problems = check_conditions(turn.expect, body)
        if problems:
            where = f"{self.script.source}:{turn.line}"
            return Miss(words=f"{where}: {session.name!r}, step {step + 1}: {'; '.join(problems)}")
        cast.reached = max(cast.reached, step)
        self._cued.add(id(turn))
        fault = self._take_fault(cast, step, turn)
        return Cue(cast=cast.number, step=step, session=session, turn=turn, n=n, fault=fault)

    def note_answer(self, cue: Cue, answer: PlayedAnswer) -> None:
        """Remember the answer, to recognise the conversation."""
        if cue.session.aside:
            return
        cast = self._casts[cue.cast - 1]
        place = (cast, cue.step)
        bodies = [block.body for block in answer.blocks]
        (cast.silent.discard if bodies else cast.silent.add)(cue.step)
        for body in bodies:
            if body.get("type") == "tool_use":
                self._by_call[str(body["id"])] = place
        content = digest_content(bodies)
        self._by_content[content] = place
        if answer.stop_reason == "pause_turn":
            self._paused.add(content)

    def has_paused(self, body: Mapping[str, Any]) -> bool:
        """Return whether a request's history holds an answer that was a ``pause_turn``."""
        if not self._paused:
            return False
        contents = (list_blocks(message.get("content")) for message in list_blocks(body.get("messages")))
        return any(digest_content(content) in self._paused for content in contents)

    def list_unplayed(self) -> tuple[str, ...]:
        """Name the sessions that never began, and the turns of the others that were never played."""
        words: list[str] = []
        for index, session in enumerate(self.script.sessions):
            if index not in self._played:
                words.append(f"session {session.name!r} ({self.script.source}:{session.line}) never began")
                continue
            left = [turn for turn in session.turns if id(turn) not in self._cued]
            words += [f"{self.script.source}:{t.line}: a turn of {session.name!r} was not played" for t in left]
        return tuple(words)

    def _find_aside(self, body: Mapping[str, Any]) -> Cue | None:
        """Find the session that answers this request outside of every conversation."""
        for index, session in enumerate(self.script.sessions):
            if session.aside and not check_conditions(session.when, body):
                turn = session.turns[0]
                self._played.add(index)
                self._cued.add(id(turn))
                fault = self._take_fault(self._asides.setdefault(index, _Cast(number=0, segments=[])), 0, turn)
                return Cue(cast=0, step=0, session=session, turn=turn, n=1, fault=fault)
        return None

    def _find_place(self, history: "_History") -> _Place | None:
        same = self._by_request.get((history.scope, history.chain[-1]))
        if same is not None:
            cast, step = same
            return None if step == 0 and cast.reached > 0 and not history.has_answers else same
        for call_id in history.last_calls:
            if call_id in self._by_call:
                cast, step = self._by_call[call_id]
                while step + 1 in cast.silent:
                    step += 1
                return cast, step + 1
        return self._find_prefix(history) or self._find_content(history)

    def _find_prefix(self, history: "_History") -> _Place | None:
        """Find the longest earlier request that this one continues."""
        for scope in (history.scope, ""):
            for end in range(len(history.chain) - 2, -1, -1):
                place = self._by_request.get((scope, history.chain[end]))
                if place is None:
                    continue
                cast, step = place
                if history.answers_after(end) or step in cast.silent:
                    return cast, step + 1
                if step in cast.spoiled and scope:
                    return place
        return None

    def _find_content(self, history: "_History") -> _Place | None:
        place = self._by_content.get(history.last_content) if history.has_answers else None
        return (place[0], place[1] + 1) if place else None

    def _open(self, body: Mapping[str, Any], history: "_History") -> _Place | Miss:
        if history.has_answers:
            return Miss(words="this conversation has an assistant turn that the rehearsal did not write")
        picked = self._pick_session(body)
        if isinstance(picked, Miss):
            return picked
        cast = _Cast(number=len(self._casts) + 1, segments=[(picked, 0)])
        self._casts.append(cast)
        return cast, 0

    def _pick_session(self, body: Mapping[str, Any]) -> ScriptSession | Miss:
        sessions = [(i, s) for i, s in enumerate(self.script.sessions) if not s.aside]
        open_sessions = [(i, s) for i, s in sessions if s.repeat or i not in self._played]
        fitting = [(i, s) for i, s in open_sessions if s.when and not check_conditions(s.when, body)]
        in_order = [(i, s) for i, s in open_sessions if not s.when]
        in_order.sort(key=lambda item: item[0] in self._played)
        chosen = next(iter(fitting + in_order), None)
        if chosen is None:
            count = len(sessions)
            return Miss(words=f"{self.script.source}: a new conversation began, but all {count} sessions are played")
        self._played.add(chosen[0])
        return chosen[1]

    def _find_turn(self, cast: _Cast, step: int, body: Mapping[str, Any]) -> tuple[ScriptSession, Turn, int] | Miss:
        session, first = next(seg for seg in reversed(cast.segments) if seg[1] <= step)
        found = _find_repetition(session, step - first)
        if found is not None:
            return session, *found
        if not session.then_next:
            where = f"{self.script.source}:{session.line}"
            return Miss(words=f"{where}: {session.name!r} has no turn for step {step + 1 - first}")
        picked = self._pick_session(body)
        if isinstance(picked, Miss):
            return picked
        cast.segments.append((picked, step))
        return picked, picked.turns[0], 1

    def _take_fault(self, cast: _Cast, step: int, turn: Turn) -> FaultSpec | None:
        """Count one play of a step; its faults play first, each as often as it says."""
        played = cast.plays.get(step, 0)
        cast.plays[step] = played + 1
        cast.spoiled.discard(step)
        for fault in turn.faults:
            if fault.times is None or played < fault.times:
                cast.spoiled.add(step)
                return fault
            played -= fault.times
        return None


class _History:
    """A request's messages, hashed block by block."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        system = [canonical(block) for block in list_blocks(body.get("system"))]
        tools = sorted(str(tool.get("name")) for tool in list_blocks(body.get("tools")))
        self.scope = digest(body.get("model"), system, tools)
        self.chain: list[str] = []
        self._roles: list[str] = []
        last: list[ContentBlock] = []
        link = ""
        for message in list_blocks(body.get("messages")):
            role, blocks = str(message.get("role")), list_blocks(message.get("content"))
            last = blocks if role == "assistant" else last
            for block in blocks:
                link = digest(link, role, canonical(block))
                self.chain.append(link)
                self._roles.append(role)
        self.chain = self.chain or [""]
        self.has_answers = "assistant" in self._roles
        self.last_calls = [str(block.get("id")) for block in last if block.get("type") == "tool_use"]
        self.last_content = digest_content(last)

    def answers_after(self, end: int) -> bool:
        """Return whether an assistant block follows position `end`."""
        return "assistant" in self._roles[end + 1 :]


def _find_repetition(session: ScriptSession, offset: int) -> tuple[Turn, int] | None:
    """Find the turn `offset` steps into a session, with its repetition from 1."""
    for turn in session.turns:
        if turn.repeat is None or offset < turn.repeat:
            return turn, offset + 1
        offset -= turn.repeat
    return None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A checked request, counted and hashed."""

    card: ModelCard
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


class ServerState:
    """Everything that outlives a request. Mutable: a server's threads change it, each behind `guard`.

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
        self.guard = threading.RLock()
        self._clock = clock
        self._cache = PromptCache()
        self._padding: dict[str, int] = {}
        self._endpoint_plays: dict[int, int] = {}
        self._serial = 0

    def find_endpoint_fault(self, endpoint: str) -> FaultSpec | None:
        """Find the fault that an endpoint other than messages has to play now, and count it."""
        with self.guard:
            for index, entry in enumerate(self.script.endpoint_faults):
                played = self._endpoint_plays.get(index, 0)
                if entry.on == endpoint and (entry.fault.times is None or played < entry.fault.times):
                    self._endpoint_plays[index] = played + 1
                    return entry.fault
        return None

    def read_prompt(self, body: Mapping[str, Any], card: ModelCard) -> Prompt | ApiError:
        """Count and hash a request, and check its thinking blocks."""
        blocks = render_prompt(body, card, padding=self._padding)
        signs = self.script.dialect.signs  # an endpoint without signatures checks none
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
        with self.guard:
            return self._cache.plan(card.id, positions, minimum=card.min_cache_tokens, now=self._clock())

    def begin(self, plan: CachePlan, answer: PlayedAnswer | None, cue: Cue | None) -> None:
        """Make cache entries readable and the answer part of the history: the response is about to begin."""
        with self.guard:
            self._cache.commit(plan)
            if answer is not None and cue is not None:
                self._padding.update(answer.padding)
                self.stage.note_answer(cue, answer)

    def count(self) -> int:
        """Number the next request, from 1."""
        with self.guard:
            self._serial += 1
            return self._serial

"""Chooses the turn that answers a request, and remembers what the server was asked.

The stage knows every request it has answered and every tool call id it has given out. The docstring of `script` has the
rules. A *cast* is one running conversation, a *step* counts its answers.

A prompt costs its estimate (`wire`) and what the script adds. Its cache is simple: where a request marks anything for
the cache, the part that an earlier marked request of the same model, tools and system prompt had is read, and the rest
is written.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.answer import PlayedAnswer, PromptUse
from relay.rehearsal.script import Script, ScriptSession, Turn
from relay.rehearsal.wire import Body, ContentBlock, canonical, count_block, digest, dump, list_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """The turn for a request."""

    cast: int
    """Number of the conversation, from 1."""
    step: int
    """Number of the answer within the conversation, from 0."""
    session: ScriptSession
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """No turn fits; the words say why."""

    words: str


@dataclass(slots=True, kw_only=True)
class Cast:
    """Mutable: advances with its conversation."""

    number: int
    segments: list[tuple[ScriptSession, int]]
    """Sessions that this conversation went through, each with its first step."""
    reached: int = 0
    silent: set[int] = field(default_factory=set)
    """Steps whose last answer had no content: the conversation goes on without an assistant turn."""
    broken: set[int] = field(default_factory=set)
    """Steps whose last answer broke off: a changed request then is another try."""


Place = tuple[Cast, int]


def digest_content(blocks: Sequence[ContentBlock]) -> str:
    """Identify an assistant turn by its content, without thinking."""
    return digest([canonical(block) for block in blocks if block.get("type") != "thinking"])


class History:
    """A request's messages, hashed block by block."""

    def __init__(self, body: Body) -> None:
        system = [canonical(block) for block in list_blocks(body.get("system"))]
        tools = sorted(str(tool.get("name")) for tool in list_blocks(body.get("tools")))
        self.scope = digest(body.get("model"), system, tools)
        self.chain: list[str] = []
        """A hash for each block, of it and of all before."""
        self.blocks: list[ContentBlock] = []
        self.roles: list[str] = []
        last: list[ContentBlock] = []
        link = ""
        for message in list_blocks(body.get("messages")):
            role, blocks = str(message.get("role")), list_blocks(message.get("content"))
            last = blocks if role == "assistant" else last
            for block in blocks:
                link = extend(link, role, block)
                self.chain.append(link)
                self.blocks.append(block)
                self.roles.append(role)
        self.chain = self.chain or [""]
        self.has_answers = "assistant" in self.roles
        self.last_calls = [str(block.get("id")) for block in last if block.get("type") == "tool_use"]
        self.last_content = digest_content(last)


def extend(link: str, role: str, block: ContentBlock) -> str:
    """Return the hash of a conversation with one more block."""
    return digest(link, role, canonical(block))


class Stage:
    """Where the conversations of one script stand. Mutable: advances with every request."""

    def __init__(self, source: str, sessions: Sequence[ScriptSession]) -> None:
        self._source = source
        self._sessions = sessions
        self._casts: list[Cast] = []
        self._played: set[int] = set()
        """Indices of the sessions that began."""
        self._cued: set[int] = set()
        """Identities of the turns that were played."""
        self._by_request: dict[tuple[str, str], Place] = {}
        self._by_call: dict[str, Place] = {}
        self._by_content: dict[str, Place] = {}

    def cue(self, body: Body) -> Cue | Miss:
        """Find the turn for a request and count it as played."""
        history = History(body)
        place = self._find_place(history) or self._open(body, history)
        if isinstance(place, Miss):
            return place
        cast, step = place
        self._by_request[history.scope, history.chain[-1]] = place
        self._by_request["", history.chain[-1]] = place
        session, first = next(segment for segment in reversed(cast.segments) if segment[1] <= step)
        turn = _find_turn(session, step - first)
        if turn is None and session.then == "next":
            picked = self._pick_session(body)
            if isinstance(picked, Miss):
                return picked
            session, turn = picked, picked.turns[0]
            cast.segments.append((picked, step))
        if turn is None:
            where = f"{self._source}:{session.line}"
            return Miss(words=f"{where}: {session.name!r} has no turn for step {step + 1 - first}")
        problems = turn.expect.check(body)
        if problems:
            where = f"{self._source}:{turn.line}"
            return Miss(words=f"{where}: {session.name!r}, step {step + 1}: {'; '.join(problems)}")
        cast.reached = max(cast.reached, step)
        cast.broken.discard(step)
        self._cued.add(id(turn))
        return Cue(cast=cast.number, step=step, session=session, turn=turn)

    def note_answer(self, cue: Cue, answer: PlayedAnswer) -> None:
        """Remember the answer, to recognise the conversation."""
        cast = self._casts[cue.cast - 1]
        place = (cast, cue.step)
        bodies = [block.body for block in answer.blocks]
        (cast.silent.discard if bodies else cast.silent.add)(cue.step)
        for body in bodies:
            if body.get("type") == "tool_use":
                self._by_call[str(body["id"])] = place
        self._by_content[digest_content(bodies)] = place

    def note_broken(self, cue: Cue) -> None:
        """Note that the client did not get the whole answer."""
        self._casts[cue.cast - 1].broken.add(cue.step)

    def list_unplayed(self) -> tuple[str, ...]:
        """Name the sessions that never began, and the turns of the others that were never played."""
        words: list[str] = []
        for index, session in enumerate(self._sessions):
            if index not in self._played:
                words.append(f"session {session.name!r} ({self._source}:{session.line}) never began")
                continue
            left = [turn for turn in session.turns if id(turn) not in self._cued]
            words += [f"{self._source}:{t.line}: a turn of {session.name!r} was not played" for t in left]
        return tuple(words)

    def _find_place(self, history: History) -> Place | None:
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
        if (place := self._find_prefix(history)) or not history.has_answers:
            return place
        known = self._by_content.get(history.last_content)
        return (known[0], known[1] + 1) if known else None

    def _find_prefix(self, history: History) -> Place | None:
        """Find the longest earlier request that this one continues."""
        for scope in (history.scope, ""):
            for end in range(len(history.chain) - 2, -1, -1):
                place = self._by_request.get((scope, history.chain[end]))
                if place is None:
                    continue
                cast, step = place
                if "assistant" in history.roles[end + 1 :] or step in cast.silent:
                    return cast, step + 1
                if step in cast.broken and scope:
                    return place
        return None

    def _open(self, body: Body, history: History) -> Place | Miss:
        if history.has_answers:
            return Miss(words="this conversation has an assistant turn that the rehearsal did not write")
        picked = self._pick_session(body)
        if isinstance(picked, Miss):
            return picked
        cast = Cast(number=len(self._casts) + 1, segments=[(picked, 0)])
        self._casts.append(cast)
        return cast, 0

    def _pick_session(self, body: Body) -> ScriptSession | Miss:
        open_sessions = [(i, s) for i, s in enumerate(self._sessions) if s.repeat or i not in self._played]
        fitting = [(i, s) for i, s in open_sessions if s.when and not s.when.check(body)]
        in_order = [(i, s) for i, s in open_sessions if not s.when]
        in_order.sort(key=lambda item: item[0] in self._played)
        chosen = next(iter(fitting + in_order), None)
        if chosen is None:
            count = len(self._sessions)
            return Miss(words=f"{self._source}: a new conversation began, but all {count} sessions are played")
        self._played.add(chosen[0])
        return chosen[1]


def _find_turn(session: ScriptSession, offset: int) -> Turn | None:
    """Find the turn `offset` steps into a session."""
    for turn in session.turns:
        if turn.repeat == "forever" or offset < turn.repeat:
            return turn
        offset -= turn.repeat
    return None


def is_marked(body: Body) -> bool:
    """Return whether a request marks anything for the cache."""
    return '"cache_control":{' in dump(body)


class PlayerState:
    """Everything that outlives a request. Mutable: a server's threads change it, each behind `guard`."""

    def __init__(self, script: Script, stage: Stage) -> None:
        self.script = script
        self.stage = stage
        self.guard = threading.RLock()
        self.errors: list[str] = []
        """Faults of the script: failed expectations, missing turns."""
        self.bills: list[Mapping[str, Any]] = []
        """The usage of each answer."""
        self.requests_seen = 0
        self.held = 0
        """Answers that wait for the `delay_s` of their turn."""
        self._cached: set[tuple[str, str]] = set()
        """Scope and hash up to which a marked request went."""
        self._padding: dict[str, int] = {}
        """Tokens that a prompt has from a block on, beyond its estimate, by the block's hash."""

    def count(self) -> int:
        """Number the next request, from 1."""
        with self.guard:
            self.requests_seen += 1
            return self.requests_seen

    def hold(self, change: int) -> None:
        """Count the answers that wait."""
        with self.guard:
            self.held += change

    def measure(self, body: Body, turn: Turn | None = None) -> PromptUse:
        """Count a prompt's tokens, and divide them by the cache; `turn` is to answer it."""
        history = History(body)
        head = [*list_blocks(body.get("tools")), *list_blocks(body.get("system"))]
        if turn is not None and turn.usage.input_padding_tokens:
            self._padding[history.chain[-1]] = turn.usage.input_padding_tokens
        total, read = sum(map(count_block, head)), 0
        for link, block in zip(history.chain, history.blocks, strict=False):
            total += count_block(block) + self._padding.get(link, 0)
            read = total if (history.scope, link) in self._cached else read
        if not is_marked(body):
            return PromptUse(input_tokens=total)
        long = '"ttl":"1h"' in dump(body)
        return PromptUse(
            input_tokens=0,
            read_tokens=read,
            write_5m_tokens=0 if long else total - read,
            write_1h_tokens=total - read if long else 0,
        )

    def begin(self, body: Body, cue: Cue, answer: PlayedAnswer) -> None:
        """Make prompt and answer part of the history: the response is about to begin."""
        history = History(body)
        with self.guard:
            if is_marked(body):
                self._cached.add((history.scope, history.chain[-1]))
            link = history.chain[-1]
            for block in answer.blocks:
                link = extend(link, "assistant", block.body)
            scripted = cue.turn.usage.output_tokens
            if answer.blocks and scripted is not None:
                self._padding[link] = scripted - sum(block.tokens for block in answer.blocks)
            self.stage.note_answer(cue, answer)

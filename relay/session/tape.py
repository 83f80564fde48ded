"""What a session and its endpoint sent each other, note by note, so that the session can be replayed. Pure.

A note is a JSON object with a ``kind``:

- ``session``: the session's settings; the first note. ``runner`` is present if an agent sends the requests.
- ``say``: relay's message at the beginning of an advance: ``text``.
- ``request``: ``body`` as it was sent; the first ``same`` parts of its conversation are those of the request before.
- ``answer``: ``status``, ``headers`` and ``body`` as they came; ``cut`` if the connection ended first.
- ``made``: what relay made of it: ``stop_reason``, ``usage`` and ``content_sha256`` (of its content without secrets,
  which is in the next request), or ``fault`` and its message; for an agent, ``path`` and what was read.
- ``tool``: the result of a call, by its ``id``.
- ``notice``, ``band``, ``heard``, ``budget``: the answer of relay's own parts to the ``n``-th question of this kind.
- ``full``: the tape ends here, because it had grown too long.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay.base.values import dataclass

VERSION = 1
Note = Mapping[str, Any]
KeepNote = Callable[[Note], None]
"""Takes the next note. Must not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TapedAnswer:
    """An answer on the wire."""

    status: int
    """0 if nothing came."""
    headers: Mapping[str, str]
    body: bytes
    cut: bool
    """Whether the connection ended before the answer did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TapedExchange:
    """A request, its answer, and what relay made of it."""

    body: Mapping[str, Any]
    answer: TapedAnswer
    made: Mapping[str, Any]
    """Empty if relay was killed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TapedSession:
    """A whole tape."""

    header: Mapping[str, Any]
    said: tuple[str, ...]
    exchanges: tuple[TapedExchange, ...]
    tools: Mapping[str, Mapping[str, Any]]
    """Results by the call's id."""
    replies: Mapping[str, Mapping[int, str]]
    """For each kind of question to relay's own parts: the n-th answer by n."""
    is_whole: bool
    """False if the tape had grown too long."""


_NOTHING = TapedAnswer(status=0, headers={}, body=b"", cut=True)
_ASKED = frozenset({"notice", "band", "heard", "budget"})
_CONVERSATIONS = ("messages", "input", "contents")
"""Fields that hold the conversation, which grows from request to request, in each dialect."""


def find_conversation(body: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the name of a request's conversation field, and the conversation."""
    name = next((name for name in _CONVERSATIONS if isinstance(body.get(name), list)), _CONVERSATIONS[0])
    return name, list(body.get(name, ()))


def shorten_request(body: Mapping[str, Any], before: Sequence[Any]) -> Note:
    """Return the note of a request.

    Args:
        before: The conversation of the request before.
    """
    name, messages = find_conversation(body)
    same = 0
    for one, other in zip(messages, before, strict=False):
        if one is not other and one != other:
            break
        same += 1
    return {"kind": "request", "same": same, "body": {**body, name: messages[same:]}}


def seal_content(note: Note, redact: Callable[[str], str] = str) -> Note:
    """Return the note with a digest in place of its content.

    Args:
        note: A note without ``content`` is returned unchanged.
        redact: Removes secrets from a text.
    """
    if "content" not in note:
        return note
    text = redact(json.dumps(note["content"], ensure_ascii=False, separators=(",", ":"), default=str))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {**{name: value for name, value in note.items() if name != "content"}, "content_sha256": digest}


def render_wire(body: Mapping[str, Any]) -> bytes:
    """Return a body as the HTTP client writes it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def join_notes(notes: Sequence[Note]) -> TapedSession | None:
    """Read notes; None if the first is not a session's. Malformed notes are skipped."""
    if not notes or notes[0].get("kind") != "session":
        return None
    said: list[str] = []
    exchanges: list[TapedExchange] = []
    tools: dict[str, Note] = {}
    replies: dict[str, dict[int, str]] = {kind: {} for kind in _ASKED}
    messages: list[Any] = []
    for note in notes[1:]:
        match note.get("kind"):
            case "say":
                said.append(str(note.get("text", "")))
            case "request" if isinstance(note.get("body"), Mapping):
                name, new = find_conversation(note["body"])
                messages = [*messages[: int(note.get("same", 0))], *new]
                body = {**note["body"], name: messages}
                exchanges.append(TapedExchange(body=body, answer=_NOTHING, made={}))
            case "answer" | "made" if exchanges:
                exchanges[-1] = _complete(exchanges[-1], note)
            case "tool":
                tools[str(note.get("id"))] = note
            case kind if kind in _ASKED:
                replies[str(kind)][int(note.get("n", 0))] = str(note.get("text", ""))
            case _:
                pass
    return TapedSession(
        header=notes[0],
        said=tuple(said),
        exchanges=tuple(exchanges),
        tools=tools,
        replies=replies,
        is_whole=all(note.get("kind") != "full" for note in notes),
    )


def _complete(exchange: TapedExchange, note: Note) -> TapedExchange:
    if note["kind"] == "made":
        made = {name: value for name, value in note.items() if name != "kind"}
        return TapedExchange(body=exchange.body, answer=exchange.answer, made=made)
    headers = note.get("headers")
    answer = TapedAnswer(
        status=int(note.get("status", 0)),
        headers={str(name): str(value) for name, value in headers.items()} if isinstance(headers, Mapping) else {},
        body=str(note.get("body", "")).encode("utf-8", "surrogateescape"),
        cut=bool(note.get("cut")),
    )
    return TapedExchange(body=exchange.body, answer=answer, made=exchange.made)


def find_difference(one: Any, other: Any, at: str = "") -> str:
    """Return where two JSON values first differ, such as ``messages[3].content[0].text``; empty if they are equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in (*one, *(name for name in other if name not in one)):
            if name not in one or name not in other:
                return f"{at}.{name}".lstrip(".")
            if found := find_difference(one[name], other[name], f"{at}.{name}".lstrip(".")):
                return found
        return ""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        for n, (a, b) in enumerate(zip(one, other, strict=False)):
            if found := find_difference(a, b, f"{at}[{n}]"):
                return found
        return "" if len(one) == len(other) else f"{at}[{min(len(one), len(other))}]"
    return "" if type(one) is type(other) and one == other else at or "the whole"

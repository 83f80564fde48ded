"""A script as values: conversations of turns, and conditions on requests."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.wire import CATALOG, ContentBlock, ModelCard, list_blocks

SUBJECTS = {
    "model": "the model's id",
    "system": "the system prompt",
    "first_message": "the first message",
    "last_message": "all that came after the last answer",
    "last_result": "the tool results in that",
}
"""What a condition can be about, in words."""
_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """All of them must hold; without any it holds always."""

    contains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Subject → texts that must all occur in it."""
    lacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Subject → texts of which none may occur in it."""
    last_result_is_error: bool | None = None
    """Whether any tool result after the last assistant turn is an error; None: not checked."""
    tools: tuple[str, ...] = ()
    """Names that must be among the offered tools."""

    def __bool__(self) -> bool:
        return bool(self.contains or self.lacks or self.tools or self.last_result_is_error is not None)


def check_conditions(conditions: Conditions, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each unmet condition."""
    problems = []
    for subject, texts in conditions.contains.items():
        found = read_subject(body, subject)
        problems += [f"{subject} lacks {t!r}; it is {_show(found)}" for t in texts if t not in found]
    for subject, texts in conditions.lacks.items():
        found = read_subject(body, subject)
        problems += [f"{subject} has {t!r}; it is {_show(found)}" for t in texts if t in found]
    offered = {str(tool.get("name")) for tool in list_blocks(body.get("tools"))}
    problems += [f"no tool {name!r} is offered" for name in conditions.tools if name not in offered]
    wanted = conditions.last_result_is_error
    if wanted is not None and wanted != any(block.get("is_error") for block in _list_results(body)):
        shown = _show(read_subject(body, "last_result"))
        problems.append(f"the last result {'is not' if wanted else 'is'} an error: {shown}")
    return tuple(problems)


def read_subject(body: Mapping[str, Any], subject: str) -> str:
    """Return the text that a condition is about."""
    messages = list_blocks(body.get("messages"))
    match subject:
        case "model":
            return str(body.get("model", ""))
        case "system":
            return _join_text(body.get("system"))
        case "first_message":
            return _join_text(messages[0].get("content")) if messages else ""
        case "last_message":
            return "\n".join(_join_text(message.get("content")) for message in _list_news(body))
        case _:
            return "\n".join(_join_text(block.get("content")) for block in _list_results(body))


def _list_news(body: Mapping[str, Any]) -> list[ContentBlock]:
    """List the messages after the last assistant turn; all messages if there is none."""
    messages = list_blocks(body.get("messages"))
    turns = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    return messages[turns[-1] + 1 :] if turns else messages


def _join_text(content: Any) -> str:
    """Join all text in a message's content, tool results included."""
    parts = []
    for block in list_blocks(content):
        inner = block.get("content") if block.get("type") == "tool_result" else None
        parts.append(_join_text(inner) if inner is not None else str(block.get("text", "")))
    return "\n".join(parts)


def _list_results(body: Mapping[str, Any]) -> list[ContentBlock]:
    blocks = [block for message in _list_news(body) for block in list_blocks(message.get("content"))]
    return [block for block in blocks if block.get("type") == "tool_result"]


def _show(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return repr(text)
    half = _SHOWN_CHARS // 2
    return f"{text[:half]!r} … {text[-half:]!r} ({len(text)} characters)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """A text block."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """A thinking block; its text is shown only to clients that ask for summaries."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call."""

    line: int = 0
    name: str
    input: Mapping[str, Any]


Part = Say | Think | Call


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnUsage:
    """Corrections of the estimated usage."""

    output_tokens: int | None = None
    """All output of the turn; the next prompt counts it, too. None: estimated."""
    input_padding_tokens: int = 0
    """Added to the prompt from this turn on, as if the last message were longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of the model."""

    line: int = 0
    parts: tuple[Part, ...] = ()
    expect: Conditions = field(default_factory=Conditions)
    stop: str = ""
    """Stop reason; empty: ``tool_use`` after calls, else ``end_turn``."""
    usage: TurnUsage = field(default_factory=TurnUsage)
    delay_s: float = 0.0
    repeat: int | None = 1
    """How many turns this stands for; None: forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSession:
    """One conversation."""

    name: str
    line: int = 0
    when: Conditions = field(default_factory=Conditions)
    repeat: bool = False
    """Whether every conversation that fits plays it again."""
    then_next: bool = False
    """Whether a conversation goes on with the next session after the last turn."""
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything a rehearsal plays."""

    source: str = "script.yaml"
    cards: tuple[ModelCard, ...] = CATALOG
    """Known models; the script's own first."""
    sessions: tuple[ScriptSession, ...] = ()
    first_byte_s: float = 0.0
    event_s: float = 0.0
    """Time between two events of a stream."""

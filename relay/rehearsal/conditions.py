"""What a request must look like: chooses sessions (``when``) and checks clients (``expect``)."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import yaml

from relay.base.values import dataclass
from relay.rehearsal.nodes import NodeReader, pick
from relay.rehearsal.prompt import list_blocks

SUBJECTS = ("model", "system", "first_message", "last_message", "last_result")
"""``last_message`` is everything after the last assistant turn, ``last_result`` the tool results in it."""
_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """All of them must hold; none given holds always."""

    contains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Subject → texts that must all occur in it."""
    lacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Subject → texts of which none may occur in it."""
    last_result_is_error: bool | None = None
    """Whether any tool result after the last assistant turn is an error; None: not asked."""
    tools: tuple[str, ...] = ()
    """Names that must be among the offered tools."""

    def __bool__(self) -> bool:
        """Tell whether anything is asked at all."""
        return bool(self.contains or self.lacks or self.tools or self.last_result_is_error is not None)


def parse_conditions(reader: NodeReader, node: yaml.Node, what: str) -> Conditions:
    """Read a ``when`` or an ``expect``."""
    pairs = [f"{subject}_{verb}" for subject in SUBJECTS for verb in ("contains", "lacks")]
    fields = reader.mapping(node, what, (*pairs, "last_result_is_error", "tools_include"))
    read = {s: fields[f"{s}_contains"] for s in SUBJECTS if f"{s}_contains" in fields}
    lacks = {s: fields[f"{s}_lacks"] for s in SUBJECTS if f"{s}_lacks" in fields}
    return Conditions(
        contains={s: reader.texts(n, f"{s}_contains") for s, n in read.items()},
        lacks={s: reader.texts(n, f"{s}_lacks") for s, n in lacks.items()},
        last_result_is_error=pick(fields, "last_result_is_error", reader.flag, None),
        tools=pick(fields, "tools_include", reader.texts, ()),
    )


def check_conditions(conditions: Conditions, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each condition that a request does not meet; empty when it meets all."""
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
    if wanted is not None and wanted != _has_error(body):
        problems.append(f"the last result {'is not' if wanted else 'is'} an error: {_show_result(body)}")
    return tuple(problems)


def read_subject(body: Mapping[str, Any], subject: str) -> str:
    """Read the text that a condition looks at."""
    messages = list_blocks(body.get("messages"))
    match subject:
        case "model":
            return str(body.get("model", ""))
        case "system":
            return _join_text(body.get("system"))
        case "first_message":
            return _join_text(messages[0].get("content")) if messages else ""
        case "last_message":
            return "\n".join(_join_text(message.get("content")) for message in list_news(body))
        case _:
            return "\n".join(_join_text(block.get("content")) for block in _list_results(body))


def list_news(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the messages after the last assistant turn; all of them when there is none."""
    messages = list_blocks(body.get("messages"))
    turns = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    return messages[turns[-1] + 1 :] if turns else messages


def _join_text(content: Any) -> str:
    """Join everything readable in a message's content, tool results included."""
    parts = []
    for block in list_blocks(content):
        inner = block.get("content") if block.get("type") == "tool_result" else None
        parts.append(_join_text(inner) if inner is not None else str(block.get("text", "")))
    return "\n".join(parts)


def _list_results(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    blocks = [block for message in list_news(body) for block in list_blocks(message.get("content"))]
    return [block for block in blocks if block.get("type") == "tool_result"]


def _has_error(body: Mapping[str, Any]) -> bool:
    return any(block.get("is_error") for block in _list_results(body))


def _show_result(body: Mapping[str, Any]) -> str:
    return _show(read_subject(body, "last_result"))


def _show(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return repr(text)
    half = _SHOWN_CHARS // 2
    return f"{text[:half]!r} … {text[-half:]!r} ({len(text)} characters)"

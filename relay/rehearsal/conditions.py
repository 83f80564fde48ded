"""Conditions of a script on a request."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct

from relay.config.decoding import told
from relay.rehearsal.wire import ContentBlock, list_blocks

Texts = str | tuple[str, ...]
_LACKS = Annotated[Texts, told("a text or a list: none of it occurs there")]
_SHOWN_CHARS = 160


def list_texts(texts: Texts) -> tuple[str, ...]:
    """Return one text or several as several."""
    return (texts,) if isinstance(texts, str) else texts


class Conditions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When or expect: all of it must hold; without any it holds always."""

    model_contains: Annotated[Texts, told("a text or a list: all of it occurs in the model's id")] = ()
    model_lacks: _LACKS = ()
    system_contains: Annotated[Texts, told("a text or a list, in the system prompt")] = ()
    system_lacks: _LACKS = ()
    first_message_contains: Annotated[Texts, told("a text or a list, in the first message")] = ()
    first_message_lacks: _LACKS = ()
    last_message_contains: Annotated[Texts, told("a text or a list, in all that came after the last answer")] = ()
    last_message_lacks: _LACKS = ()
    last_result_contains: Annotated[Texts, told("a text or a list, in the tool results in that")] = ()
    last_result_lacks: _LACKS = ()
    last_result_is_error: Annotated[bool | None, told("true or false: whether a result was an error")] = None
    tools_include: Annotated[Texts, told("names of tools that the request offers")] = ()

    def __bool__(self) -> bool:
        return self != ALWAYS

    def check(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a sentence for each condition that a request does not meet."""
        if not self:
            return ()
        news, problems = _list_news(body), list[str]()
        results = [block for message in news for block in list_blocks(message.get("content"))]
        results = [block for block in results if block.get("type") == "tool_result"]
        messages = list_blocks(body.get("messages"))
        subjects = {
            "model": str(body.get("model", "")),
            "system": _join_text(body.get("system")),
            "first_message": _join_text(messages[0].get("content")) if messages else "",
            "last_message": "\n".join(_join_text(message.get("content")) for message in news),
            "last_result": "\n".join(_join_text(block.get("content")) for block in results),
        }
        for subject, found in subjects.items():
            wanted, unwanted = (list_texts(getattr(self, f"{subject}_{verb}")) for verb in ("contains", "lacks"))
            problems += [f"{subject} lacks {t!r}; it is {_show(found)}" for t in wanted if t not in found]
            problems += [f"{subject} has {t!r}; it is {_show(found)}" for t in unwanted if t in found]
        offered = {str(tool.get("name")) for tool in list_blocks(body.get("tools"))}
        problems += [f"no tool {name!r} is offered" for name in list_texts(self.tools_include) if name not in offered]
        is_error = self.last_result_is_error
        if is_error is not None and is_error != any(block.get("is_error") for block in results):
            is_or_not = "is not" if is_error else "is"
            problems.append(f"the last result {is_or_not} an error: {_show(subjects['last_result'])}")
        return tuple(problems)


ALWAYS = Conditions()


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


def _show(text: str) -> str:
    if len(text) <= _SHOWN_CHARS:
        return repr(text)
    half = _SHOWN_CHARS // 2
    return f"{text[:half]!r} … {text[-half:]!r} ({len(text)} characters)"

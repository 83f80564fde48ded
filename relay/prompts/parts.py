"""How large the parts of a session's first prompt are."""

import json
from collections.abc import Iterable, Sequence

from relay.prompts.texts import split_rules
from relay.session.shapes import SizedPart
from relay.session.tokens import estimate_tokens
from relay.session.values import ToolSpec


def measure_prompt(system: str, tools: Sequence[ToolSpec], message: Iterable[tuple[str, str]]) -> tuple[SizedPart, ...]:
    """Return the parts of a first prompt as `LegStarted.prompt` has them.

    Args:
        system: Role, protocol and the repository's rules.
        tools: What the model can call.
        message: The parts of the first message, each with its source.
    """
    role, rules = split_rules(system)
    described = json.dumps([[tool.name, tool.description, tool.input_schema] for tool in tools], default=str)
    texts: dict[str, str] = {}
    for source, text in (("system", role), ("rules", rules), *message):
        texts[source] = f"{texts[source]}\n\n{text}" if source in texts else text
    parts = [_measure(source, text) for source, text in texts.items() if text]
    return (*parts[:1], _measure("tools", described, is_json=True), *parts[1:])


def _measure(source: str, text: str, *, is_json: bool = False) -> SizedPart:
    size = len(text.encode("utf-8", "replace"))
    return SizedPart(source=source, bytes=size, tokens=estimate_tokens(text, json=is_json))

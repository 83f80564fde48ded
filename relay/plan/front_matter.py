"""The YAML block at the top of a plan file; only its ``relay`` mapping is kept.

Aliases, tags and depth are refused before anything is built, against alias bombs and deep recursion. Other tools keep
keys of their own in front matter; these are left alone, and need not be YAML.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.base.yaml_events import YamlFault, YamlLimits, YamlTextError, compose, construct
from relay.plan.spans import Lines

MAX_CHARS = 64 * 1024
_LIMITS = YamlLimits(chars=MAX_CHARS, depth=50, refused=frozenset({YamlFault.ALIAS, YamlFault.TAG}), is_pure=True)
_WORDS = {
    YamlFault.ALIAS: "uses an alias (`*name`); write the value out",
    YamlFault.TAG: "uses a tag (`!name`); plain values are allowed",
    YamlFault.DEPTH: f"is nested more than {_LIMITS.depth} levels deep",
    YamlFault.SYNTAX: "is not valid YAML: {}",
    YamlFault.CHARACTER: "holds a character that YAML forbids",
    YamlFault.VALUE: "holds a value that YAML cannot read: {}",
}
_FENCE = re.compile(r"---[ \t]*")
_KEY = re.compile(r"[A-Za-z_][\w.-]*[ \t]*:(?=[ \t]|$)")
_RELAY = re.compile(r"\s*(?:\{(?:.*[\s{,])?)?[\"']?relay[\"']?[ \t]*:")
_MARKDOWN = re.compile(r"#{1,6}[ \t]|[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]\][ \t]")
_RULE_HINT = "if this is a thematic break and not front matter, put a blank line above it"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """The content of the block, and where Markdown begins."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    verify: tuple[str, ...] = ()
    body: int = 0
    """0-based index of the first line that is Markdown."""


def parse_front_matter(lines: Lines) -> FrontMatter:
    """Read the front matter; a text without any gives an empty value.

    Raises:
        PlanError: It has a ``relay`` key, and is not closed, too long or not YAML, or that mapping is not usable.
    """
    if not _FENCE.fullmatch(lines.at(0)):
        return FrontMatter()
    close = _read_close(lines)
    if close is None:
        return FrontMatter()
    try:
        document = _load(lines, close)
    except PlanError:
        if _is_ours(lines, close):
            raise
        return FrontMatter(body=close + 1 if _is_of_others(lines, close) else 0)
    if document is not None and not isinstance(document, dict):
        return FrontMatter()
    settings = _read_settings(document or {}, lines, close)
    line = _find_line(lines, close, "verify")
    return FrontMatter(settings=settings, verify=_read_verify(settings.get("verify"), line), body=close + 1)


def find_setting_line(front: FrontMatter, lines: Lines, key: str) -> int:
    """Return the 1-based line of a key of the front matter; its first line if a plain search does not find the key."""
    return _find_line(lines, front.body - 1, key)


def _read_close(lines: Lines) -> int | None:
    limit = lines.starts[0] + MAX_CHARS
    for index in range(1, lines.count):
        if lines.starts[index] > limit:
            break
        if _FENCE.fullmatch(lines.at(index)):
            return index
    if lines.count > 1 and _KEY.match(lines.at(1)) and _is_ours(lines, min(lines.index_at(limit) + 1, lines.count)):
        raise PlanError(
            f"the front matter that starts here is not closed by a line `---` within {MAX_CHARS // 1024} KiB",
            line=1,
            hint=_RULE_HINT,
        )
    return None


def _is_ours(lines: Lines, stop: int) -> bool:
    return any(_RELAY.match(lines.at(index)) for index in range(1, stop))


def _is_of_others(lines: Lines, close: int) -> bool:
    """Whether this is another tool's front matter, and not Markdown between two thematic breaks."""
    return _KEY.match(lines.at(1)) is not None and not any(_MARKDOWN.match(lines.at(at)) for at in range(1, close))


def _load(lines: Lines, close: int) -> Any:
    start = lines.starts[1]
    try:
        node = compose(lines.text[start : lines.starts[close]], _LIMITS)
        _require_unique(node, lines, start)
        return construct(node) if node else None
    except YamlTextError as error:
        line = 2 if error.offset is None else _line_at(lines, start + error.offset)
        raise _refusal(line, _WORDS[error.fault].format(error.words)) from None  # YAML counts from the fence


def _require_unique(node: Any, lines: Lines, start: int) -> None:
    """Refuse a key that stands twice in the document or under ``relay``: YAML would drop the first silently."""
    import yaml

    seen: set[str] = set()
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if str(key.value) in seen:
            line = _line_at(lines, start + key.start_mark.index)
            raise _refusal(line, f"has the key `{key.value}` twice; each key may stand once")
        seen.add(str(key.value))
        if key.value == "relay":
            _require_unique(value, lines, start)


def _read_settings(document: Mapping[Any, Any], lines: Lines, close: int) -> Mapping[str, Any]:
    settings = document.get("relay")
    line = _find_line(lines, close, "relay")
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise _refusal(line, f"has `relay: {settings!r}`; `relay` must be a mapping such as `relay: {{model: …}}`")
    wrong = [key for key in settings if not isinstance(key, str)]
    if wrong:
        raise _refusal(line, f"has the key {wrong[0]!r} under `relay`; keys must be words (quote `on`, `yes`, `no`)")
    return settings


def _read_verify(value: Any, line: int) -> tuple[str, ...]:
    commands = [value] if isinstance(value, str) else value
    if commands is None:
        return ()
    if not isinstance(commands, list) or not all(isinstance(c, str) and c.strip() for c in commands):
        raise _refusal(line, 'has a `verify` that is not a list of commands such as ["pytest -q"] (quote each one)')
    return tuple(command.strip() for command in commands)


def _find_line(lines: Lines, close: int, key: str) -> int:
    pattern = re.compile(rf"(?:.*[\s{{,])?[\"']?{re.escape(key)}[\"']?[ \t]*:")
    return next((index + 1 for index in range(1, close) if pattern.match(lines.at(index))), 1)


def _line_at(lines: Lines, offset: int) -> int:
    return lines.index_at(offset) + 1


def _refusal(line: int, what: str) -> PlanError:
    words = " ".join(what.split())
    return PlanError(f"the front matter {words}", line=line, hint=_RULE_HINT)

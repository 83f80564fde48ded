"""Conditions on a request: ``when`` chooses a session, ``expect`` checks the client. YAML nodes with line numbers.

Every error says ``file:line``, what was found and what is allowed. YAML 1.1 turns unquoted ``yes``, ``0123`` or
``1:30`` into other values than their writer meant; here they are errors that ask for quotes. A key that occurs twice is
an error. ``!file path`` stands for the text of a file next to the script.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import yaml

from relay.base.errors import ConfigError
from relay.base.values import dataclass
from relay.base.yaml_events import YamlFault, YamlLimits, YamlTextError, compose, get_line
from relay.rehearsal.prompt import list_blocks

MAX_SCRIPT_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 60
MAX_NODES = 50_000
"""How many values one script may hold after its aliases are followed."""
_LIMITS = YamlLimits(chars=MAX_SCRIPT_BYTES, depth=MAX_DEPTH)

_STR, _NULL, _FILE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null", "!file"
_TIME = "tag:yaml.org,2002:timestamp"
_NAMES = {_NULL: "nothing", "tag:yaml.org,2002:map": "a mapping", "tag:yaml.org,2002:seq": "a list"}


@dataclass(slots=True, kw_only=True)
class NodeReader:
    """Turns YAML nodes of one script into checked values. Mutable: spends its budget of values."""

    source: str
    """Name of the script, for messages."""
    base: Path | None = None
    """Directory that ``!file`` is relative to and confined to; None forbids it."""
    budget: int = MAX_NODES

    def compose(self, text: str) -> yaml.Node:
        """Parse a script's text.

        Raises:
            ConfigError: Not YAML, empty, or nested too deeply.
        """
        try:
            root: yaml.Node | None = compose(text, _LIMITS)
        except YamlTextError as error:
            is_deep = error.fault is YamlFault.DEPTH
            words = f"nested more than {MAX_DEPTH} levels deep" if is_deep else f"not YAML: {error.words}"
            raise ConfigError(f"{self.source}:{error.line or 1}: {words}") from None
        if root is None:
            raise ConfigError(f"{self.source}:1: the script is empty")
        return root

    def error(self, node: yaml.Node, message: str) -> ConfigError:
        """Build the error for a node."""
        return ConfigError(f"{self.source}:{get_line(node)}: {message}")

    def mapping(self, node: yaml.Node, what: str, allowed: Iterable[str] | None = None) -> dict[str, yaml.Node]:
        """Read a mapping with text keys; `allowed` None takes any key."""
        self._spend(node)
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} should be a mapping, found {_describe(node)}")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if not name:
                raise self.error(key, f"a key of {what} should be text, found {_describe(key)}")
            if name in found:
                raise self.error(key, f"{what} has the key {name!r} twice")
            self._require_key(key, name, what, None if allowed is None else tuple(allowed))
            found[name] = value
        return found

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """Read a list."""
        self._spend(node)
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, f"{what} should be a list, found {_describe(node)}")
        return list(node.value)

    def text(self, node: yaml.Node, what: str) -> str:
        """Read text, possibly from a file."""
        self._spend(node)
        if node.tag == _FILE:
            return self.file(node, str(node.value))
        if not isinstance(node, yaml.ScalarNode) or node.tag != _STR:
            quotes = "; put it in quotes" if isinstance(node, yaml.ScalarNode) and node.tag != _NULL else ""
            raise self.error(node, f"{what} should be text, found {_describe(node)}{quotes}")
        return str(node.value)

    def texts(self, node: yaml.Node, what: str) -> tuple[str, ...]:
        """Read one text or a list of texts."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        return tuple(self.text(item, what) for item in nodes)

    def choice(self, node: yaml.Node, what: str, options: Iterable[str]) -> str:
        """Read one of some words."""
        word, known = self.text(node, what), tuple(options)
        if word not in known:
            raise self.error(node, f"{what} {word!r} is not known{_suggest(word, known)}; one of: {', '.join(known)}")
        return word

    def integer(self, node: yaml.Node, what: str, *, low: int = 0) -> int:
        """Read a whole number of at least `low`."""
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise self.error(node, f"{what} should be a whole number ≥ {low}, found {_describe(node)}")
        return value

    def seconds(self, node: yaml.Node, what: str) -> float:
        """Read a duration in seconds."""
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise self.error(node, f"{what} should be seconds ≥ 0, found {_describe(node)}")
        return float(value)

    def flag(self, node: yaml.Node, what: str) -> bool:
        """Read true or false."""
        value = self.value(node)
        if not isinstance(value, bool):
            raise self.error(node, f"{what} should be true or false, found {_describe(node)}")
        return value

    def value(self, node: yaml.Node, depth: int = 0) -> Any:
        """Read any JSON value."""
        self._spend(node)
        if depth > MAX_DEPTH:
            raise self.error(node, f"nested more than {MAX_DEPTH} levels deep")
        if node.tag == _FILE:
            return self.file(node, str(node.value))
        if isinstance(node, yaml.MappingNode):
            return {k: self.value(v, depth + 1) for k, v in self.mapping(node, "a value").items()}
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        return self._scalar(node)

    def file(self, node: yaml.Node, name: str) -> str:
        """Read a file next to the script."""
        if self.base is None:
            raise self.error(node, "files can only be named by a script that is itself a file")
        root = self.base.resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise self.error(node, f"{name!r} is outside the script's directory")
        try:
            return path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise self.error(node, f"cannot read {name!r}: {error}") from error

    def _scalar(self, node: yaml.Node) -> Any:
        if node.tag in {_STR, _TIME}:
            return str(node.value)
        if node.tag == _NULL:
            return None
        try:
            return json.loads(str(node.value))
        except ValueError:
            raise self.error(node, f"{node.value!r} means another value in YAML; put it in quotes") from None

    def _require_key(self, node: yaml.Node, name: str, what: str, allowed: tuple[str, ...] | None) -> None:
        if allowed is not None and name not in allowed:
            known = ", ".join(allowed)
            raise self.error(node, f"{what} has no key {name!r}{_suggest(name, allowed)}; allowed: {known}")

    def _spend(self, node: yaml.Node) -> None:
        self.budget -= 1
        if self.budget < 0:
            raise self.error(node, f"more than {MAX_NODES} values")


def pick(fields: Mapping[str, yaml.Node], name: str, read: Any, default: Any) -> Any:
    """Read an optional key: `read` gets its node and its name."""
    return read(fields[name], name) if name in fields else default


def _describe(node: yaml.Node) -> str:
    if node.tag in _NAMES:
        return _NAMES[node.tag]
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else f"a value tagged {node.tag}"


def _suggest(word: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {str(close[0])!r}?)" if close else ""


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

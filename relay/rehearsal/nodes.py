"""Reading YAML with line numbers: every error says ``file:line``, what was found and what is allowed.

YAML 1.1 turns unquoted ``yes``, ``0123`` or ``1:30`` into other values than their writer meant; here they are
errors that ask for quotes. Keys that occur twice are errors. ``!file path`` stands for the text of a file
next to the script.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from relay.base.errors import ConfigError
from relay.base.values import dataclass
from relay.base.yaml_events import YamlFault, YamlLimits, YamlTextError, compose, get_line

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

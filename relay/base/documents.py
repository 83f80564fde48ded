"""Read YAML, TOML and JSON of any author, with limits.

A YAML composer recurses into its input and follows aliases: a short text can end a process or fill its memory. So a
text that is too long or too deep, or uses a refused feature, is refused from the parser's events, before anything is
built of them. The library's TOML parser is quadratic in the parts of a dotted key, so their number is limited.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relay.base.values import dataclass


class YamlTextError(Exception):
    """The text cannot be read; the message goes on from a name for it: ``is not valid YAML: …``."""

    def __init__(self, words: str, *, line: int | None = None, offset: int | None = None) -> None:
        """Take what is wrong, and where it is (None: not known; `line` is 1-based)."""
        super().__init__(words)
        self.line = line
        self.offset = offset


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlLimits:
    """Limits on a text."""

    chars: int
    depth: int
    """Levels of nested lists and mappings."""
    tags: bool = False
    """Whether tags are allowed; anchors and aliases never are."""
    is_pure: bool = False
    """Use PyYAML's own parser, so that texts and messages are the same where libyaml is missing; it is slow."""

    @property
    def loader(self) -> Any:
        """PyYAML's loader class."""
        import yaml

        return yaml.SafeLoader if self.is_pure else getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compose(text: str, limits: YamlLimits) -> Any:
    """Build the root node of a text's one document; None if it is empty.

    Raises:
        YamlTextError: The text is not YAML, or exceeds a limit.
    """
    import yaml

    if len(text) > limits.chars:
        raise YamlTextError(f"has {len(text):,} characters; allowed: {limits.chars:,}")
    depth = 0
    with _translate_errors():
        events: Iterator[Any] = yaml.parse(text, Loader=limits.loader)
        for event in events:
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            words = f"is nested more than {limits.depth} levels deep" if depth > limits.depth else ""
            is_tagged = not limits.tags and getattr(event, "tag", None) not in {None, "!"}
            if is_tagged or getattr(event, "anchor", None):  # an alias has its anchor's name
                words = "has an anchor, an alias or a tag; allowed: plain values"
            if words:
                raise YamlTextError(words, line=get_line(event), offset=event.start_mark.index)
        return yaml.compose(text, Loader=limits.loader)


def construct(node: Any) -> Any:
    """Build the plain value of a node.

    Raises:
        YamlTextError: It holds a value that cannot be read.
    """
    import yaml

    with _translate_errors():
        return yaml.SafeLoader("").construct_document(node)


def get_line(found: Any) -> int:
    """Return the 1-based line that an event or a node begins on."""
    return int(found.start_mark.line) + 1


@contextmanager
def _translate_errors() -> Iterator[None]:
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = {"line": mark.line + 1, "offset": mark.index} if mark else {}
        raise YamlTextError(f"is not valid YAML: {error.problem or error.context}", **place) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        words = f"is not valid YAML: {' '.join(str(error).split())}"
        raise YamlTextError(words, offset=getattr(error, "position", None)) from error


MOST_PARTS = 100
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MOST_PARTS}}}")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


class TomlError(ValueError):
    """The text cannot be read.

    Args:
        words: Why.
        line: 1-based; 0 when it is not known.
    """

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(words)
        self.line = line


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text.

    Raises:
        TomlError: It is no TOML, or is nested too deeply.
    """
    import tomllib

    if deep := _DEEP_KEY.search(text):
        raise TomlError(
            f"nested too deeply: a key of more than {MOST_PARTS} parts", text.count("\n", 0, deep.start()) + 1
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        at = _AT_LINE.search(str(exc))  # Python 3.14 has it as a field of the error
        raise TomlError(str(exc)[: at.start()] if at else str(exc), int(at[1]) if at else 0) from None
    except RecursionError:
        raise TomlError("nested too deeply") from None
    except ValueError:  # from converting a number, not from the parser
        raise TomlError("a number of thousands of digits") from None


_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"?')


def parse_json(data: bytes, *, most_parts: int, most_levels: int | None = None, **options: Any) -> Any:
    """Parse JSON of a foreign program.

    Args:
        most_parts: Commas, lists and objects outside of texts.
        most_levels: Nested lists and objects; None: as many as Python takes.
        options: As in `json.loads`.

    Raises:
        ValueError: It is no JSON, or exceeds a limit; the message says which.
    """
    import json

    if _count_parts(data) > most_parts and _count_parts(_TEXTS.sub(b"", data)) > most_parts:
        raise ValueError(f"more than {most_parts:,} parts")
    try:
        found = json.loads(data, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if most_levels is not None and is_deep(found, most_levels):
        raise ValueError("nested too deeply")
    return found


def _count_parts(data: bytes) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


def is_deep(value: Any, most_levels: int) -> bool:
    """Return whether a value is nested so deeply that another program might fail on it."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most_levels):
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
    return bool(level)

"""The parser events of a YAML text, with limits.

A composer recurses into what it reads and follows aliases: a short text can end a process or fill its memory. So what
is too long or too deep, and what a caller does not want, is refused from the events, before anything is built of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from relay.base.values import dataclass


class YamlFault(StrEnum):
    """What is wrong with a text, or, as an event's feature, not wanted in it."""

    SYNTAX = "syntax"
    CHARACTER = "character"
    """One that YAML forbids."""
    VALUE = "value"
    """One that cannot be read, such as a date without such a day."""
    LENGTH = "length"
    DEPTH = "depth"
    ALIAS = "alias"
    ANCHOR = "anchor"
    TAG = "tag"


class YamlTextError(Exception):
    """The text cannot be read; the caller tells the user in its own words."""

    def __init__(
        self, fault: YamlFault, *, words: str = "", line: int | None = None, offset: int | None = None
    ) -> None:
        """Take what is wrong, where it is (None: not known; `line` is 1-based), and the parser's words for it."""
        super().__init__(words)
        self.fault = fault
        self.words = words
        self.line = line
        self.offset = offset


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlLimits:
    """What a text may hold."""

    chars: int
    depth: int
    """How many lists and mappings may stand within each other."""
    refused: frozenset[YamlFault] = frozenset()
    """Of aliases, anchors and tags."""
    is_pure: bool = False
    """Read by PyYAML itself, so that a text means the same, in the same words, where libyaml is missing; it is slow."""

    @property
    def loader(self) -> Any:
        """PyYAML's class."""
        import yaml

        return yaml.SafeLoader if self.is_pure else getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_events(text: str, limits: YamlLimits) -> Iterator[Any]:
    """Yield the parser's events as far as they keep the limits.

    Raises:
        YamlTextError: The text is not YAML, or does not keep a limit.
    """
    import yaml

    if len(text) > limits.chars:
        words = f"found {len(text):,} characters; allowed: {limits.chars:,}"
        raise YamlTextError(YamlFault.LENGTH, words=words)
    depth = 0
    with _translate_errors():
        events: Iterator[Any] = yaml.parse(text, Loader=limits.loader)
        for event in events:
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            fault = YamlFault.DEPTH if depth > limits.depth else _find_feature(event)
            if fault is YamlFault.DEPTH or fault in limits.refused:
                raise YamlTextError(fault, line=get_line(event), offset=event.start_mark.index)
            yield event


def compose(text: str, limits: YamlLimits) -> Any:
    """Build the node of a text's one document; None when it holds nothing.

    Raises:
        YamlTextError: The text is not YAML, or does not keep a limit.
    """
    import yaml

    for _ in read_events(text, limits):
        pass
    with _translate_errors():
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


def _find_feature(event: Any) -> YamlFault | None:
    import yaml

    if isinstance(event, yaml.AliasEvent):
        return YamlFault.ALIAS
    if getattr(event, "tag", None) not in {None, "!"}:
        return YamlFault.TAG
    return YamlFault.ANCHOR if getattr(event, "anchor", None) else None


@contextmanager
def _translate_errors() -> Iterator[None]:
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = {"line": mark.line + 1, "offset": mark.index} if mark else {}
        raise YamlTextError(YamlFault.SYNTAX, words=str(error.problem or error.context), **place) from error
    except yaml.reader.ReaderError as error:
        raise YamlTextError(YamlFault.CHARACTER, words=" ".join(str(error).split()), offset=error.position) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise YamlTextError(YamlFault.VALUE, words=" ".join(str(error).split())) from error

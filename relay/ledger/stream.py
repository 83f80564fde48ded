"""A YAML file as a stream of parser events, read no deeper than a ledger goes and with every scalar as text."""

from collections.abc import Iterator
from typing import Any

from relay.errors import LedgerError

MAX_LEDGER_CHARS = 2 * 1024 * 1024
_DEEPEST = 4  # list, entry, list of sources, source


def read_entries(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the entries of a file with their lines, as dicts, lists and texts."""
    import yaml

    if len(text) > MAX_LEDGER_CHARS:
        raise fail(0, f"found {len(text):,} characters; allowed: {MAX_LEDGER_CHARS:,}")
    events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        yield from _read_list(events)
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark else 0
        raise fail(line, f"no YAML: {exc.problem}") from None
    except (yaml.YAMLError, UnicodeEncodeError) as exc:
        raise fail(0, f"no YAML: {' '.join(str(exc).split())}") from None


def _read_list(events: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the items of the file's one list; nothing at all and a lone ``---`` are an empty one."""
    import yaml

    documents = 0
    for event in events:
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise fail(_line(event), "found a second document; allowed: one list")
        if isinstance(event, yaml.SequenceStartEvent):
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                yield _line(item), _read_node(item, events, depth=2)
        elif isinstance(event, yaml.NodeEvent) and getattr(event, "value", None) != "":
            raise fail(_line(event), "found something else than a list of entries")


def _read_node(event: Any, events: Iterator[Any], depth: int) -> Any:
    """Build one value from parser events, no deeper than an entry goes."""
    import yaml

    line = _line(event)
    if isinstance(event, yaml.AliasEvent) or event.anchor or getattr(event, "tag", None):
        raise fail(line, "found an anchor, an alias or a tag; allowed: plain values")
    if isinstance(event, yaml.ScalarEvent):
        return event.value
    if depth > _DEEPEST:
        raise fail(line, "nested more deeply than an entry is")
    items = []
    while not isinstance(item := next(events), yaml.CollectionEndEvent):
        items.append(_read_node(item, events, depth + 1))
    if isinstance(event, yaml.SequenceStartEvent):
        return items
    keys = items[::2]
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
        raise fail(line, "found a key twice, or one that is no text")
    return dict(zip(keys, items[1::2], strict=True))


def _line(event: Any) -> int:
    """Return the 1-based line that an event begins on."""
    return int(event.start_mark.line) + 1


def fail(line: int, message: str) -> LedgerError:
    """Make the error of a ledger that cannot be used; line 0 is the whole file."""
    return LedgerError(message, line=line, hint="relay only appends to it; git log shows who changed it")

"""A YAML file as a stream of parser events, read no deeper than a ledger goes and with every scalar as text."""

import re
from collections.abc import Iterator
from typing import Any

from relay.errors import LedgerError
from relay.files.yaml_events import YamlFault, YamlLimits, YamlTextError, get_line, read_events

_LIMITS = YamlLimits(
    chars=2 * 1024 * 1024,
    depth=4,  # list, entry, list of sources, source
    refused=frozenset({YamlFault.ALIAS, YamlFault.ANCHOR, YamlFault.TAG}),
)
_HINT = "relay only appends to it; git log shows who changed it"
_MERGE_MARK = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
_MERGE_HINT = (
    "keep the lines of both sides, for each is an entry; with the line '*.ledger.yaml merge=union' in .gitattributes "
    "git does so by itself"
)
_WORDS = {
    YamlFault.LENGTH: "{}",
    YamlFault.DEPTH: "nested more deeply than an entry is",
    **dict.fromkeys(_LIMITS.refused, "found an anchor, an alias or a tag; allowed: plain values"),
}


def read_entries(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the entries of a file with their lines, as dicts, lists and texts."""
    if not text:
        return  # most plans have none, and need no reader loaded
    if mark := _MERGE_MARK.search(text):
        raise fail(text.count("\n", 0, mark.start()) + 1, "a merge left its marks here", hint=_MERGE_HINT)
    try:
        yield from _read_list(read_events(text, _LIMITS))
    except YamlTextError as error:
        raise fail(error.line or 0, _WORDS.get(error.fault, "no YAML: {}").format(error.words)) from None


def _read_list(events: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the items of the file's one list; nothing at all and a lone ``---`` are an empty one."""
    import yaml

    documents = 0
    for event in events:
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise fail(get_line(event), "found a second document; allowed: one list")
        if isinstance(event, yaml.SequenceStartEvent):
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                yield get_line(item), _read_node(item, events)
        elif isinstance(event, yaml.NodeEvent) and getattr(event, "value", None) != "":
            raise fail(get_line(event), "found something else than a list of entries")


def _read_node(event: Any, events: Iterator[Any]) -> Any:
    """Build one value from parser events."""
    import yaml

    if isinstance(event, yaml.ScalarEvent):
        return event.value
    items = []
    while not isinstance(item := next(events), yaml.CollectionEndEvent):
        items.append(_read_node(item, events))
    if isinstance(event, yaml.SequenceStartEvent):
        return items
    keys = items[::2]
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
        raise fail(get_line(event), "found a key twice, or one that is no text")
    return dict(zip(keys, items[1::2], strict=True))


def fail(line: int, message: str, *, hint: str = _HINT) -> LedgerError:
    """Make the error of a ledger that cannot be used; line 0 is the whole file."""
    return LedgerError(message, line=line, hint=hint)

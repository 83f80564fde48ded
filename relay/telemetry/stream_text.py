"""Secrets in a stream of events, whose texts come in pieces: no piece looks like one. Of any dialect."""

import json
from collections.abc import Callable, Iterator
from typing import Any

_DATA = "data:"
_PLACE = ("type", "index", "item_id", "output_index")
"""What says of an event which text its piece is of."""
_Holder = dict[str, Any] | list[Any]


def redact_stream(body: str, redact: Callable[[str], str]) -> str:
    """Leave secrets out of a stream; where a text holds one, its first piece gets the whole text and the rest none.

    Args:
        body: As it came.
        redact: Leaves secrets out of a text.
    """
    lines = body.split("\n")
    events: dict[int, Any] = {}
    texts: dict[object, list[tuple[int, _Holder, Any]]] = {}
    for number, event in _iter_events(lines):
        events[number] = event
        place = tuple(str(event.get(name)) for name in _PLACE)
        for path, holder, name in _iter_texts(event):
            texts.setdefault((place, path), []).append((number, holder, name))
    for pieces in texts.values():
        text = "".join(holder[name] for _, holder, name in pieces)
        left = redact(text)
        if left == text:
            continue
        for number, holder, name in pieces:
            holder[name], left = left, ""
            lines[number] = f"{_DATA} {json.dumps(events[number], ensure_ascii=False, separators=(',', ':'))}"
    return "\n".join(lines)


def _iter_events(lines: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines):
        if not line.startswith(_DATA):
            continue
        try:
            event = json.loads(line[len(_DATA) :])
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield number, event


def _iter_texts(event: dict[str, Any]) -> Iterator[tuple[object, Any, Any]]:
    """Yield where each text of an event stands: its path, and what holds it by which name."""
    rest: list[tuple[tuple[object, ...], _Holder]] = [((), event)]
    while rest:
        path, holder = rest.pop()
        for name, value in [*(holder.items() if isinstance(holder, dict) else enumerate(holder))]:
            if isinstance(value, str):
                yield (*path, name), holder, name
            elif isinstance(value, dict | list):
                rest.append(((*path, name), value))

"""Secrets in a stream of events, whose texts come in pieces: no piece looks like one."""

import json
from collections.abc import Callable, Iterator
from typing import Any

_DATA = "data: "
_FIELDS = ("text", "thinking", "partial_json")


def redact_stream(body: str, redact: Callable[[str], str]) -> str:
    """Leave secrets out of a stream; where a block holds one, its first piece gets the whole text and the rest none.

    Args:
        body: As it came.
        redact: Leaves secrets out of a text.
    """
    lines = body.split("\n")
    blocks: dict[tuple[int, str], list[tuple[int, dict[str, Any]]]] = {}
    for line, block, field, event in _iter_pieces(lines):
        blocks.setdefault((block, field), []).append((line, event))
    for (_, field), pieces in blocks.items():
        text = "".join(event["delta"][field] for _, event in pieces)
        left = redact(text)
        if left == text:
            continue
        for line, event in pieces:
            piece = {**event, "delta": {**event["delta"], field: left}}
            lines[line] = f"{_DATA}{json.dumps(piece, ensure_ascii=False, separators=(',', ':'))}"
            left = ""
    return "\n".join(lines)


def _iter_pieces(lines: list[str]) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    """Yield line, block and field of each piece of text, with its event."""
    for number, line in enumerate(lines):
        if not line.startswith(_DATA) or "_delta" not in line:
            continue
        try:
            event = json.loads(line[len(_DATA) :])
        except (ValueError, RecursionError):
            continue
        delta = event.get("delta") if isinstance(event, dict) else None
        if not isinstance(delta, dict):
            continue
        for field in _FIELDS:
            if isinstance(delta.get(field), str) and isinstance(event.get("index"), int):
                yield number, event["index"], field, event

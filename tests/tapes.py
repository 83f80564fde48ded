"""Reading a session's history: what `relay.session.tape` says that relay writes."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.session.tape import find_conversation


@dataclass(slots=True)
class Taped:
    """A request with its answer."""

    body: dict[str, Any]
    answer: dict[str, Any] = field(default_factory=dict)


def find_tapes(root: Path) -> list[Path]:
    """List the histories of a repository."""
    folder = root / ".relay" / "history"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def read_notes(path: Path) -> list[dict[str, Any]]:
    """Read the notes of a session."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_tape(path: Path) -> list[Taped]:
    """Read the requests of a session, each with its whole conversation."""
    found: list[Taped] = []
    messages: list[Any] = []
    for note in read_notes(path):
        if note["kind"] == "request":
            name, new = find_conversation(note["body"])
            messages = [*messages[: note["same"]], *new]
            found.append(Taped(body={**note["body"], name: messages}))
        elif note["kind"] == "answer":
            found[-1].answer = note
    return found

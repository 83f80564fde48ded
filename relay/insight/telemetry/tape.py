"""Tapes below ``.relay/history/``: one file per session, one note per line; no run depends on them.

As with the event log, the place may have been planted and is entered without following links, secrets are redacted, and
a failure to write ends the tape.
"""

import json
import os
from pathlib import Path
from threading import RLock
from typing import Any

from relay.base.redaction import redact
from relay.base.walk import open_ignored, open_regular
from relay.insight.telemetry.log import SUFFIX
from relay.plan.text import STATE_DIR
from relay.session.tape import Note, find_conversation, shorten_request

FOLDER = "history"
MAX_TAPE_BYTES = 64 * 1024 * 1024
"""Per session."""
TAPE_AGE_S = 30 * 86_400
"""Age by modification time at which tapes are deleted."""


class FileTape:
    """An open tape. Mutable: holds a descriptor and the last request's messages.

    Args:
        descriptor: Of the file; None writes nothing.
        secret_values: Redacted, as are texts that look like a secret.
        most_bytes: The first note that exceeds it ends the tape.
    """

    def __init__(
        self, descriptor: int | None, secret_values: tuple[str, ...], most_bytes: int = MAX_TAPE_BYTES
    ) -> None:
        self._descriptor = descriptor
        self._secret_values = secret_values
        self._messages: list[Any] = []
        self._written = 0
        self._lock = RLock()
        self._most_bytes = most_bytes

    def keep(self, note: Note) -> None:
        """Write a note at once; after a failure, or when the tape is full, nothing more is written."""
        with self._lock:
            if self._descriptor is None:
                return
            if note.get("kind") == "request":
                body, before = note["body"], self._messages
                _, self._messages = find_conversation(body)
                note = shorten_request(body, before)
            line = self._clean(json.dumps(note, ensure_ascii=False, separators=(",", ":"), default=str))
            data = f"{line}\n".encode("utf-8", "backslashreplace")
            self._written += len(data)
            if self._written > self._most_bytes:
                self._write(b'{"kind":"full"}\n')
                self.close()
            else:
                self._write(data)

    def _clean(self, text: str) -> str:
        return redact(text, environ_values=self._secret_values)

    def _write(self, data: bytes) -> None:
        try:
            while data and self._descriptor is not None:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self.close()

    def close(self) -> None:
        """Write nothing more."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None


def open_tape(
    repo_root: Path, session_id: str, secret_values: tuple[str, ...] = (), *, most_bytes: int = MAX_TAPE_BYTES
) -> FileTape:
    """Open a new tape; a file that is there belongs to an earlier session and stays as it is."""
    try:
        with open_ignored(repo_root, (STATE_DIR,), FOLDER) as folder:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
            return FileTape(open_regular(f"{session_id}{SUFFIX}", folder, flags), secret_values, most_bytes)
    except OSError:
        return FileTape(None, secret_values)

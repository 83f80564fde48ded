"""What a session of an agent is made of."""

import queue
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relay.interrupts import Interrupts
from relay.runners.agents.gateway import HeldRequest, Passed
from relay.runners.agents.toolserver import Called
from relay.runners.agents.wire import Gone, Incoming, Wire
from relay.sandbox.child import Child
from relay.session.events import Observe
from relay.values import dataclass

Inbox = queue.SimpleQueue[Incoming | Gone | HeldRequest | Passed | Called]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An agent's process, and what speaks with it."""

    child: Child
    wire: Wire
    cwd: Path
    servers: tuple[Mapping[str, Any], ...]
    """For session/new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a session has around it."""

    start: Callable[[], Started]
    """Starts the agent's process. Raises SandboxError."""
    note_version: Callable[[str], None]
    """Told what the agent says of its version; empty when it says nothing."""
    observe: Observe
    interrupts: Interrupts
    root: Path
    """Of the repository."""
    mark: str
    """Put behind the first message: requests that hold it are the session's own."""

"""The collaborators of a run, made once by `relay.setup.open` and handed down.

Nothing here does anything; it names who does what, so that the loop and the leg take their collaborators as arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relay.config import Settings
from relay.git.repository import Repo
from relay.hints import Caller
from relay.interrupts import Interrupts
from relay.meters.spend import Meter
from relay.sandbox.run import Sandbox
from relay.session.events import Observe
from relay.setup.rules import Rules
from relay.setup.session import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Everything that planning and running share."""

    repo: Repo
    settings: Settings
    sandbox: Sandbox
    """Confines every command: workspace-write for a run, read-only for planning."""
    sessions: Sessions
    rules: Rules
    meter: Meter
    observe: Observe
    """Feeds the meter, the view and telemetry."""
    interrupts: Interrupts
    plan_path: str
    """Of the plan file, relative to the repository's root, with forward slashes."""
    ledger_path: str
    outputs_dir: Path
    """Where long tool output is spilled to."""
    protected: tuple[str, ...]
    """Repository-relative paths no tool and no command may write."""
    boot_id: str
    new_id: Callable[[], str]
    """Makes session ids."""
    secret_values: tuple[str, ...]
    """Secrets of the environment; nothing that relay keeps may hold one."""
    caller: Caller
    """Writes the commands that the user is told to type."""

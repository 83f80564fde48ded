"""The collaborators of a run, made once by `relay.setup.open` and handed down.

Nothing here does anything; it names who does what, so that the loop and the leg take their collaborators as arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass

from relay.config import Settings
from relay.git.repository import Repo
from relay.hints import Caller
from relay.interrupts import Interrupts
from relay.meters.spend import Meter
from relay.session.events import Observe
from relay.setup.rules import Rules
from relay.setup.session import Sessions
from relay.tools.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Everything that planning and running share."""

    repo: Repo
    settings: Settings
    workspace: Workspace
    """What tools and commands work on; its sandbox lets a run's write the work tree, a planner's nothing."""
    sessions: Sessions
    rules: Rules
    meter: Meter
    observe: Observe
    """Feeds the meter, the view and telemetry."""
    interrupts: Interrupts
    plan_path: str
    """Of the plan file, relative to the repository's root, with forward slashes."""
    ledger_path: str
    new_id: Callable[[], str]
    """Makes session ids."""
    secret_values: tuple[str, ...]
    """Secrets of the environment; nothing that relay keeps may hold one."""
    caller: Caller
    """Writes the commands that the user is told to type."""

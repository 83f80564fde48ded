"""The collaborators of a run, made once by `relay.setup.open` and handed down, and how it ends.

Nothing here does anything; it names who does what, so that the loop and the leg take their collaborators as arguments.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field

from relay.config import Settings
from relay.errors import ExitCode
from relay.gate.model import GateMemory
from relay.git.repository import Repo
from relay.hints import Command, Hint
from relay.interrupts import Interrupts
from relay.meters.spend import Meter
from relay.session.events import Observe, QuestionAsked
from relay.session.usage import Spent
from relay.setup.rules import Rules
from relay.setup.session import Sessions
from relay.tools.workspace import Workspace
from relay.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFiles:
    """A plan and its ledger, in the repository that keeps them: all that most readers of git need to know."""

    repo: Repo
    plan_path: str
    """Relative to the repository's root, with forward slashes."""
    ledger_path: str


Ask = Callable[[QuestionAsked, int], str | None]
"""Given a question and how many come behind it, returns what the user answers; None where nobody does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Everything that planning and running share."""

    files: PlanFiles
    settings: Settings
    workspace: Workspace
    """What tools and commands work on; its sandbox lets a run's write the work tree, a planner's nothing."""
    sessions: Sessions
    rules: Rules
    meter: Meter
    observe: Observe
    """Feeds the meter, the view and telemetry."""
    observe_job: Observe
    """Calls whom the user wants to be called, of what the run of a phase beside others has said."""
    interrupts: Interrupts
    new_id: Callable[[], str]
    """Makes session ids."""
    secret_values: tuple[str, ...]
    """Secrets of the environment; nothing that relay keeps may hold one."""
    open_reading: Callable[[], AbstractContextManager[Workspace]]
    """Opens the same work tree for sessions that write nothing."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The user's; what stands in it of secrets goes to nobody but those that the settings name."""
    ask: Ask | None = None
    """Asks the person at the terminal; None where none is there, or wants to be asked."""
    memory: GateMemory = field(default_factory=GateMemory, compare=False)
    """What has passed in this run."""

    @property
    def repo(self) -> Repo:
        """Where the plan's work is done."""
        return self.files.repo

    @property
    def plan_path(self) -> str:
        """Of the plan file, relative to the repository's root."""
        return self.files.plan_path

    @property
    def ledger_path(self) -> str:
        """Of the ledger, in the same way."""
        return self.files.ledger_path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run or a planning ends, for the command that asked for it to tell."""

    exit_code: ExitCode
    reason: Hint
    """One line: what was done, or why it stopped and what the user can do about it."""
    next_command: Command | None
    """What to type next; None when nothing is left."""
    spent: Spent
    """On the plan, this run included."""

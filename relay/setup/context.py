"""What a run is asked for, the collaborators that `relay.setup.open` makes of it and hands down, and how it ends.

Nothing here does anything; it names who does what, so that the loop and the leg take their collaborators as arguments.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field

from relay.base.errors import ExitCode
from relay.base.hints import Command, Hint
from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.config import Settings
from relay.gate.model import GateMemory
from relay.git.repository import Repo
from relay.plan.model import Phase
from relay.plan.text import find_ledger_path
from relay.session.events import Observe, QuestionAsked
from relay.session.spend import Meter
from relay.session.usage import Spent
from relay.session.values import SessionKind
from relay.setup.rules import Rules
from relay.setup.session import Sessions
from relay.tools.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFiles:
    """A plan and its ledger, in the repository that keeps them: all that most readers of git need to know."""

    repo: Repo
    plan_path: str
    """Relative to the repository's root, with forward slashes."""
    ledger_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a command knows when it asks for a run."""

    kind: SessionKind
    repo: Repo
    settings: Settings
    plan_path: str
    allow_dirty: bool
    environ: Mapping[str, str]
    phases: tuple[Phase, ...] = ()
    """Those that are going to be worked on, as far as is known; each may name its runner."""

    @property
    def is_reviewed(self) -> bool:
        """Whether sessions of a reviewer look at each phase."""
        return self.kind.commits_phases and self.settings.review != "off"

    @property
    def needs_clean(self) -> bool:
        """Whether the work tree has to be clean."""
        return self.kind.commits_phases and not self.allow_dirty

    @property
    def runners(self) -> tuple[str, ...]:
        """Who runs them and who reviews, the first one first, each once; without phases who the settings say."""
        wishes = [phase.runner for phase in self.phases] or [""]
        if self.is_reviewed and self.settings.review_runner:
            wishes.append(self.settings.review_runner)
        return tuple(dict.fromkeys(map(self.settings.runner_for, wishes)))

    @property
    def files(self) -> PlanFiles:
        """The plan and its ledger."""
        return PlanFiles(repo=self.repo, plan_path=self.plan_path, ledger_path=find_ledger_path(self.plan_path))


Ask = Callable[[QuestionAsked, int], str | None]
"""Given a question and how many come behind it, returns what the user answers; None where nobody does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run or a planning ends, for the command that asked for it to tell."""

    exit_code: ExitCode
    reason: Hint
    """One line: what was done, or why it stopped and what the user can do about it."""
    next_command: "Hint | None"
    """What to type next; None when nothing is left."""
    spent: Spent
    """On the plan, this run included."""
    waits_for: str = ""
    """As of `RunEnded`."""
    unsent: Spent | None = None
    """The request that a cap of the run's held back, at the most that it can cost; None where none was."""


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
    unchecked: bool = False
    """The user typed that phases may be ticked which nothing checks."""
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

    def end(self, code: ExitCode, reason: Hint, then: Command | None = None) -> RunEnd:
        """Return that the run ends now; see `RunEnd`."""
        return RunEnd(exit_code=code, reason=reason, next_command=then, spent=self.meter.total)

"""Values: the request for a run, the collaborators that `relay.setup.open` makes of it, and the end of a run."""

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
from relay.store.worktree_notes import take_cap
from relay.tools.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFiles:
    """A plan and its ledger in their repository."""

    repo: Repo
    plan_path: str
    """Relative to the repository's root, with forward slashes."""
    ledger_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The request of a command for a run."""

    kind: SessionKind
    repo: Repo
    settings: Settings
    plan_path: str
    environ: Mapping[str, str]
    is_apart: bool = False
    """Whether sessions work in trees of relay's own, and none in this one."""
    phases: tuple[Phase, ...] = ()
    """The phases to work on, as far as is known; each may name its runner."""
    is_criticized: bool = False
    """Whether a reviewer's sessions look at a new plan."""

    @property
    def is_reviewed(self) -> bool:
        """Whether a reviewer's sessions look at each phase, or at the plan."""
        return self.is_criticized or (self.kind.commits_phases and self.settings.review != "off")

    @property
    def runners(self) -> tuple[str, ...]:
        """Names of the runners of the phases and of the reviewer, the first one first, each once."""
        wishes = [phase.runner for phase in self.phases] or [""]
        if self.is_reviewed and self.settings.roles.review_runner:
            wishes.append(self.settings.roles.review_runner)
        return tuple(dict.fromkeys(map(self.settings.runner_for, wishes)))

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """The runners and models that the run may ask, without reviews and explorers; each pair once."""
        settings, first = self.settings, self.runners[0]
        if not self.kind.commits_phases:
            return ((first, (self.kind.plans and settings.roles.plan) or settings.model),)
        own = [(settings.runner_for(phase.runner), settings.model_for(phase.model)) for phase in self.phases]
        others = ((first, model) for model in settings.other_models)
        return tuple(dict.fromkeys((*(own or [(first, settings.model)]), *others)))

    @property
    def files(self) -> PlanFiles:
        return PlanFiles(repo=self.repo, plan_path=self.plan_path, ledger_path=find_ledger_path(self.plan_path))


Ask = Callable[[QuestionAsked, int], str | None]
"""Given a question and how many follow it, returns the user's answer; None if nobody answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run or of planning, for the command that shows it."""

    exit_code: ExitCode
    reason: Hint
    """One line: the result, or why the run stopped and what the user can do about it."""
    next_command: "Hint | None"
    """The command to type next; None if nothing is left."""
    spent: Spent
    """Total spend of the plan, this run included."""
    waits_for: str = ""
    """As in `RunEnded`."""
    unsent: Spent | None = None
    """The request that a cap of this run held back, at its highest cost; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFiles:
    """The files that a gate judges: those of a commit that is to be made."""

    head: str | None
    """The commit's parent."""
    tree: str
    """The commit's files, with the plan and its ledger as in the parent."""
    paths: tuple[str, ...] = ()
    """What the phase changed."""
    is_baseline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTree:
    """The tree of a gate, with these files checked out."""

    repo: Repo
    workspace: Workspace
    reset: Callable[[], object]
    """Makes the commit's files what they were, and removes what commands left."""
    is_new: bool
    """Whether what git ignores is there otherwise than for the gate before."""
    installed: tuple[str, ...]
    """Directories of packages that sessions have installed or changed, and that the gate sees so."""
    links: tuple[str, ...]
    """Links of the commit that are not there, because they lead to what no commit has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The collaborators that planning and running share."""

    files: PlanFiles
    settings: Settings
    get_workspace: Callable[[], Workspace]
    """Opens it at first use: where sessions work in trees of relay's own, only hooks of the plan's commits need it."""
    sessions: Sessions
    rules: Rules
    meter: Meter
    observe: Observe
    """Feeds the meter, the view and telemetry."""
    observe_job: Observe
    """Sends notifications about an event of a job."""
    interrupts: Interrupts
    new_id: Callable[[], str]
    """Makes session ids."""
    secret_values: tuple[str, ...]
    """Secrets of the environment; relay keeps none of them anywhere."""
    open_reading: Callable[[SessionKind], AbstractContextManager[Workspace]]
    """Opens the same work tree for sessions of a kind that writes nothing."""
    open_tree: "Callable[[RunContext, Repo, tuple[str, ...]], AbstractContextManager[RunContext]]"
    """Opens a work tree of relay's own, whose lock is held, for the run's sessions; everything but it is shared."""
    open_gate: Callable[[GateFiles], AbstractContextManager[GateTree]]
    """Checks a commit's files out in the tree of the gates, and opens that."""
    home: Repo | None = None
    """The user's work tree, in a run that works in one of relay's own."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The user's environment; its secrets go only to receivers that the settings name."""
    ask: Ask | None = None
    """Asks the person at the terminal; None without one, or if the person does not want questions."""
    after_phase: Callable[[], None] = lambda: None
    """Called after each phase's commit on the run's branch; raises nothing."""
    unchecked: bool = False
    """The user typed that phases without a check may be ticked."""
    memory: GateMemory = field(default_factory=GateMemory, compare=False)
    """Results of gates that passed in this run."""

    @property
    def repo(self) -> Repo:
        return self.files.repo

    @property
    def workspace(self) -> Workspace:
        """For tools and commands; its sandbox lets a run's sessions write the work tree, a planner's nothing."""
        return self.get_workspace()

    @property
    def plan_path(self) -> str:
        return self.files.plan_path

    @property
    def ledger_path(self) -> str:
        return self.files.ledger_path

    def hear_cap(self) -> None:
        """Obey a cap that a person set meanwhile, from the next request on."""
        if moved := take_cap(self.home or self.repo):
            self.meter.move_cap(moved.cap_usd)
            self.observe(moved)

    def end(self, code: ExitCode, reason: Hint, then: Command | None = None) -> RunEnd:
        """Return a `RunEnd` with the total spend so far."""
        return RunEnd(exit_code=code, reason=reason, next_command=then, spent=self.meter.total)

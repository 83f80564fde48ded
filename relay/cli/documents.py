"""The JSON documents that commands print with --json: fields and meanings. `make docs` writes docs/reference/json.md.

A field is in every document of its kind unless its words say when it is.
"""

from typing import NotRequired, TypedDict

from relay.base.errors import ErrorKind
from relay.base.words import BoxState
from relay.ledger.belief import ClaimStatus
from relay.ledger.model import Kind
from relay.sandbox.visibility import Inventory
from relay.session.events import CheckResult
from relay.setup.preconditions import State
from relay.store.outcomes import OutcomeSums, PhaseOutcome
from relay.store.resume import ResumeCase


class Spend(TypedDict):
    """Money and tokens."""

    usd: float | None
    """Null if some of it is unknown; an upper bound if `estimated` is true."""
    estimated: bool
    input_tokens: int
    """Input outside of the cache: neither read from it nor written to it."""
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    """All output, including thinking."""
    thinking_tokens: int
    """The thinking part of `output_tokens`; 0 if not reported."""


class StatusItem(TypedDict):
    """An item of a phase."""

    id: str
    text: str
    state: BoxState


class StatusPhase(TypedDict):
    """A phase, with its commits on the branch."""

    id: str
    title: str
    done: bool
    items: list[StatusItem]
    commits: list[str]
    """Oldest first."""
    doubts: list[str]
    """Doubts about ticked boxes, from the phase's commits."""
    runner: str | None
    """The runner that the plan names, if any."""
    spent: Spend


class CurrentActivity(TypedDict):
    """The present activity."""

    name: str
    """A tool's name, `gate`, `model`, `retry`, `waits` or `paused`."""
    summary: str
    since: float
    until: float | None
    """The end of a wait."""


class CurrentWork(TypedDict):
    """The session at work."""

    run: str
    phase: str | None
    session: str | None
    number: int | None
    fill_tokens: int | None
    """Size of its context, as of the last answer."""
    soft_tokens: int | None
    """The soft line: relay asks the session to hand over there."""
    hard_tokens: int | None
    activity: CurrentActivity | None


class StatusJob(TypedDict):
    """A phase with its own work tree (a job)."""

    phase: str
    worktree: str | None
    """Absolute path; null if the work tree is gone."""
    state: str
    """The state of its work: a `row` as in `StatusNext`, `waiting` or `lost`."""
    at_work: CurrentWork | None
    stopped: str | None
    """Why its run stopped."""
    waits: str | None
    """Why it waits."""


class FleetPhase(TypedDict):
    """A phase that a fleet was given."""

    phase: str
    state: str
    """As `relay fleet status` says it."""


class StatusFleet(TypedDict):
    """What a fleet was at when `relay fleet submit` or `status` was typed here last."""

    at: float
    """Seconds since the epoch."""
    phases: list[FleetPhase]


class UsageLimit(TypedDict):
    """A provider's usage limit that stopped the open phase."""

    model: str
    resets_at: float


class RedGate(TypedDict):
    """The last unexpected red gate of the run."""

    phase: str
    at: float
    checks: list[CheckResult]


class LastRun(TypedDict):
    """The end of the last run of this plan; unknown if the run was killed."""

    command: str
    began: float
    ended: float | None
    exit_code: int | None
    reason: str
    next: str
    """The command that the run recommended."""
    gate: RedGate | None


class StatusNext(TypedDict):
    """The next step of `relay run`."""

    phase: str | None
    row: ResumeCase
    why: str
    then: str


class StatusDocument(TypedDict):
    """The plan's state."""

    plan: str
    branch: str | None
    """Null if HEAD is detached."""
    done: bool
    phases: list[StatusPhase]
    questions: list[str]
    """Questions that sessions left to you, with their assumptions."""
    spent: Spend
    """The cost of the whole plan."""
    rewound: Spend
    """The part of it for work that `relay rewind` left on another branch."""
    running: str | None
    """The relay that works here."""
    at_work: CurrentWork | None
    jobs: list[StatusJob]
    fleet: StatusFleet | None
    limit: UsageLimit | None
    last_run: LastRun | None
    """Null if the plan is done, or a run is at work."""
    obstacle: str | None
    """The operation that you must finish before a run can go on, and how."""
    next: StatusNext | None
    said: str | None
    """A command that helps more than `relay run`."""


class PlanItem(TypedDict):
    """An item."""

    id: str
    text: str
    done: bool
    line: int
    paths: list[str]
    """Paths that the item names."""


class PlanPhase(TypedDict):
    """A phase."""

    id: str
    title: str
    line: int
    verify: list[str]
    after: list[str]
    """Phases that come before it."""
    runner: str | None
    model: str | None
    effort: str | None
    items: list[PlanItem]


class SharedPath(TypedDict):
    """A path that several phases name, so that they cannot run side by side."""

    path: str
    phases: list[str]


class Parallel(TypedDict):
    """The phases that could run side by side."""

    waves: list[list[str]]
    shared: list[SharedPath]
    jobs: int
    time: float | None
    """Duration with that many jobs, relative to one phase after the other."""


class PlanViolation(TypedDict):
    """A mistake in the plan, or a warning."""

    path: str
    """Empty if no file is at fault."""
    line: int
    """1-based; 0 for the whole file."""
    message: str
    warning: bool
    hint: str


class CheckDocument(TypedDict):
    """A plan and its mistakes."""

    phases: list[PlanPhase]
    """Empty if the plan cannot be read."""
    violations: list[PlanViolation]
    parallel: Parallel | None
    overkill: bool
    """Whether one session is expected to do all open phases in half of its context."""


class DoctorFinding(TypedDict):
    """The result of one check."""

    name: str
    state: State
    words: str
    details: list[str]
    hint: str


class EffectiveSetting(TypedDict):
    """A setting."""

    value: str
    origin: str
    """The source of the value."""


class FoundAgent(TypedDict):
    """An agent that can run sessions."""

    name: str
    title: str
    program: str
    """Empty if the agent is not installed."""
    tested: str
    """The version that relay was tested with."""
    usage: str
    steering: str
    tools: str
    login: str
    missing: str
    """What is missing; empty for nothing."""
    install: str


class AgentTrial(TypedDict):
    """The result of one agent's trial."""

    name: str
    ready: bool
    findings: list[DoctorFinding]


class DoctorDocument(TypedDict):
    """The results of all checks; or, of one section of the doctor, what it found."""

    ready: NotRequired[bool]
    """Whether nothing is missing; not with --agent and --sandbox."""
    findings: NotRequired[list[DoctorFinding]]
    settings: NotRequired[dict[str, EffectiveSetting]]
    next: NotRequired[str]
    """The command to type next; where something is missing, the first line of the advice about it."""
    table: NotRequired[str]
    """With --model: the model's table for a settings file."""
    agents: NotRequired[list[FoundAgent]]
    """With --agent: the agents that relay knows."""
    trials: NotRequired[list[AgentTrial]]
    """With --agent NAME: the results of agents' trials."""
    sandbox: NotRequired[Inventory]
    """With --sandbox: what a session's commands see, write and reach."""


class ClaimSource(TypedDict):
    """A place that a claim cites."""

    path: str
    lines: str
    blob: str
    changed: str
    """How the source has changed since; empty if it has not."""
    place: str
    """The place as the ledger writes it."""


class LedgerClaim(TypedDict):
    """A claim and its status."""

    id: str
    kind: Kind
    status: ClaimStatus
    why: str
    claim: str
    because: str
    rests_on: list[str]
    replaces: list[str]
    sources: list[ClaimSource]
    phase: str
    session: str
    at: str
    explanation: list[str]
    """The claim in full, and a line for each fact behind its status, if it was asked for by its id; empty in a list."""


class Contradiction(TypedDict):
    """Claims that cannot all hold; nobody has settled it."""

    id: str
    claims: list[str]
    because: str


class LedgerDocument(TypedDict):
    """The claims of the ledger, or one."""

    claims: list[LedgerClaim]
    contradictions: list[Contradiction]
    to_do: list[str]
    """What a person or a session has to settle or to look at again."""


class OutcomesDocument(TypedDict):
    """With --all: how phases went."""

    phases: list[PhaseOutcome]
    """Oldest first."""
    month: list[OutcomeSums]
    model: list[OutcomeSums]
    runner: list[OutcomeSums]


class SaidError(TypedDict):
    """The error."""

    kind: ErrorKind
    message: str
    path: str
    line: int
    causes: list[str]
    hint: str


class ErrorDocument(TypedDict):
    """An error; standard error holds nothing else then."""

    error: SaidError
    exit_code: int

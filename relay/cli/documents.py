"""The JSON documents that commands print with --json: fields and meanings. `make docs` writes docs/reference/json.md.

A field is in every document of its kind unless its words say when it is. `fill` takes the fields that a value of relay
has under the same name.
"""

from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType, convert

from relay.base.errors import ErrorKind
from relay.base.words import BoxState
from relay.cli.views.board import Activity
from relay.ledger.belief import ClaimStatus
from relay.ledger.model import Kind, Nogood
from relay.plan.waves import Waves
from relay.sandbox.visibility import Inventory
from relay.session.events import CheckResult
from relay.session.usage import Spent
from relay.setup.preconditions import State
from relay.store.resume import ResumeCase
from relay.store.worktree_notes import FleetSight


class Document(Struct, kw_only=True):
    """A document, or a part of one."""


DocumentT = TypeVar("DocumentT", bound=Document)


def fill(kind: type[DocumentT], value: object, **given: Any) -> DocumentT:
    """Return a document with the fields of a value, but for those that are given."""
    fields = {name: given[name] if name in given else getattr(value, name) for name in kind.__struct_fields__}
    return convert(fields, kind, from_attributes=True)


def fill_spend(spent: Spent) -> "Spend":
    """Return what something has cost."""
    return fill(Spend, spent.usage, usd=spent.cost_usd, estimated=spent.estimated)


class Spend(Document):
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


class StatusItem(Document):
    """An item of a phase."""

    id: str
    text: str
    state: BoxState


class StatusPhase(Document):
    """A phase, with its commits on the branch."""

    id: str
    title: str
    done: bool
    items: tuple[StatusItem, ...]
    commits: tuple[str, ...]
    """Oldest first."""
    doubts: tuple[str, ...]
    """Doubts about ticked boxes, from the phase's commits."""
    runner: str | None
    """The runner that the plan names, if any."""
    spent: Spend


class CurrentWork(Document):
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
    activity: Activity | None


class StatusJob(Document):
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


class UsageLimit(Document):
    """A provider's usage limit that stopped the open phase."""

    model: str
    resets_at: float


class RedGate(Document):
    """The last unexpected red gate of the run."""

    phase: str
    at: float
    checks: tuple[CheckResult, ...]


class LastRun(Document):
    """The end of the last run of this plan; unknown if the run was killed."""

    command: str
    began: float
    ended: float | None
    exit_code: int | None
    reason: str
    next: str
    """The command that the run recommended."""
    gate: RedGate | None


class StatusNext(Document):
    """The next step of `relay run`."""

    phase: str | None
    row: ResumeCase
    why: str
    then: str


class StatusDocument(Document):
    """The plan's state."""

    plan: str
    branch: str | None
    """Null if HEAD is detached."""
    done: bool
    phases: tuple[StatusPhase, ...]
    questions: tuple[str, ...]
    """Questions that sessions left to you, with their assumptions."""
    spent: Spend
    """The cost of the whole plan."""
    rewound: Spend
    """The part of it for work that `relay rewind` left on another branch."""
    running: str | None
    """The relay that works here."""
    at_work: CurrentWork | None
    jobs: tuple[StatusJob, ...]
    fleet: FleetSight | None
    limit: UsageLimit | None
    last_run: LastRun | None
    """Null if the plan is done, or a run is at work."""
    obstacle: str | None
    """The operation that you must finish before a run can go on, and how."""
    next: StatusNext | None
    said: str | None
    """A command that helps more than `relay run`."""


class PlanItem(Document):
    """An item."""

    id: str
    text: str
    done: bool
    line: int
    paths: tuple[str, ...]
    """Paths that the item names."""


class PlanPhase(Document):
    """A phase."""

    id: str
    title: str
    line: int
    verify: tuple[str, ...]
    after: tuple[str, ...]
    """Phases that come before it."""
    runner: str | None
    model: str | None
    effort: str | None
    items: tuple[PlanItem, ...]


class PlanViolation(Document):
    """A mistake in the plan, or a warning."""

    path: str
    """Empty if no file is at fault."""
    line: int
    """1-based; 0 for the whole file."""
    message: str
    warning: bool
    hint: str


class CheckDocument(Document):
    """A plan and its mistakes."""

    phases: tuple[PlanPhase, ...]
    """Empty if the plan cannot be read."""
    violations: tuple[PlanViolation, ...]
    parallel: Waves | None
    """The phases that could run side by side, each weighed by its expected turns."""
    overkill: bool
    """Whether one session is expected to do all open phases in half of its context."""


class DoctorFinding(Document):
    """The result of one check."""

    name: str
    state: State
    words: str
    details: tuple[str, ...]
    hint: str


class EffectiveSetting(Document):
    """A setting."""

    value: str
    origin: str
    """The source of the value."""


class FoundAgent(Document):
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


class AgentTrial(Document):
    """The result of one agent's trial."""

    name: str
    ready: bool
    findings: tuple[DoctorFinding, ...]


class DoctorDocument(Document):
    """The results of all checks; or, of one section of the doctor, what it found."""

    ready: bool | UnsetType = UNSET
    """Whether nothing is missing; not with --agent and --sandbox."""
    findings: tuple[DoctorFinding, ...] | UnsetType = UNSET
    settings: dict[str, EffectiveSetting] | UnsetType = UNSET
    next: str | UnsetType = UNSET
    """The command to type next; where something is missing, the first line of the advice about it."""
    table: str | UnsetType = UNSET
    """With --model: the model's table for a settings file."""
    agents: tuple[FoundAgent, ...] | UnsetType = UNSET
    """With --agent: the agents that relay knows."""
    trials: tuple[AgentTrial, ...] | UnsetType = UNSET
    """With --agent NAME: the results of agents' trials."""
    sandbox: Inventory | UnsetType = UNSET
    """With --sandbox: what a session's commands see, write and reach."""


class ClaimSource(Document):
    """A place that a claim cites."""

    path: str
    lines: str
    blob: str
    changed: str
    """How the source has changed since; empty if it has not."""
    place: str
    """The place as the ledger writes it."""


class LedgerClaim(Document):
    """A claim and its status."""

    id: str
    kind: Kind
    status: ClaimStatus
    why: str
    claim: str
    because: str
    rests_on: tuple[str, ...]
    replaces: tuple[str, ...]
    sources: tuple[ClaimSource, ...]
    phase: str
    session: str
    at: str
    explanation: tuple[str, ...]
    """The claim in full, and a line for each fact behind its status, if it was asked for by its id; empty in a list."""


class LedgerDocument(Document):
    """The claims of the ledger, or one."""

    claims: tuple[LedgerClaim, ...]
    contradictions: tuple[Nogood, ...]
    """Those that nobody has settled."""
    to_do: tuple[str, ...]
    """What a person or a session has to settle or to look at again."""


class SaidError(Document):
    """The error."""

    kind: ErrorKind
    message: str
    path: str
    line: int
    causes: tuple[str, ...]
    hint: str


class ErrorDocument(Document):
    """An error; standard error holds nothing else then."""

    error: SaidError
    exit_code: int

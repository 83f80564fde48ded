"""What commands print with --json: the fields of each document, and what they mean. `docs/json.md` is made from it.

A field is in every document of its kind unless it is marked as one that may be missing.
"""

import json
from dataclasses import is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from relay.base.errors import ErrorKind
from relay.cli.screen import JSON_VERSION
from relay.insight.figures.tuning import BandRates, TrialFigures
from relay.ledger import ClaimStatus, Kind
from relay.sandbox.visibility import Inventory
from relay.session.events import BoxState, CheckResult
from relay.setup.preconditions import State
from relay.store.resume import ResumeCase


class Spend(TypedDict):
    """Money and tokens."""

    usd: float | None
    """Null where some of it is unknown; the most that it can be where `estimated` is true."""
    estimated: bool
    input_tokens: int
    """Input that neither came from the cache nor was written to it."""
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    """All output, thinking included."""
    thinking_tokens: int
    """The part of `output_tokens` that was thinking; 0 when not reported."""


class StatusItem(TypedDict):
    """An item of a phase."""

    id: str
    text: str
    state: BoxState


class StatusPhase(TypedDict):
    """A phase, and what the branch says of it."""

    id: str
    title: str
    done: bool
    items: list[StatusItem]
    commits: list[str]
    """Oldest first."""
    doubts: list[str]
    """What its commits say against boxes that they tick."""
    runner: str | None
    """Who is to run it, where the plan says so."""
    spent: Spend


class CurrentActivity(TypedDict):
    """What goes on right now."""

    name: str
    """A tool's name, `gate`, `model`, `retry`, `waits` or `paused`."""
    summary: str
    since: float
    until: float | None
    """When a wait is over."""


class CurrentWork(TypedDict):
    """The session that is at work."""

    run: str
    phase: str | None
    session: str | None
    leg: int | None
    fill_tokens: int | None
    """Of its context, as of the last answer."""
    soft_tokens: int | None
    """At which it is asked to hand over."""
    hard_tokens: int | None
    activity: CurrentActivity | None


class StatusJob(TypedDict):
    """A phase with a work tree of its own."""

    phase: str
    worktree: str | None
    """Absolute; null where it is gone."""
    state: str
    """How its work was left, as `row` of `StatusNext` has it, `waiting` or `lost`."""
    at_work: CurrentWork | None
    stopped: str | None
    """Why."""
    waits: str | None
    """For what."""


class StatusClaim(TypedDict):
    """A phase that another machine has claimed, as this clone saw it last."""

    phase: str
    worker: str
    attempt: int
    waits: str | None
    """For what."""
    until: float
    """By the worker's clock."""


class UsageLimit(TypedDict):
    """A provider's limit that the open phase met."""

    model: str
    resets_at: float


class RedGate(TypedDict):
    """The last gate of the run that was red and should not have been."""

    phase: str
    at: float
    checks: list[CheckResult]


class LastRun(TypedDict):
    """How the last run of this plan ended; of a killed one the end is not known."""

    command: str
    began: float
    ended: float | None
    exit_code: int | None
    reason: str
    next: str
    """What it said to type next."""
    gate: RedGate | None


class StatusNext(TypedDict):
    """What `relay run` does next."""

    phase: str | None
    row: ResumeCase
    why: str
    then: str


class StatusDocument(TypedDict):
    """Where the plan stands."""

    version: int
    plan: str
    branch: str | None
    """Null where HEAD is detached."""
    done: bool
    phases: list[StatusPhase]
    questions: list[str]
    """What sessions left you to answer, and what they assumed."""
    spent: Spend
    """Of everything."""
    rewound: Spend
    """The part of it that `relay rewind` left on another branch."""
    running: str | None
    """Who is at work here."""
    at_work: CurrentWork | None
    jobs: list[StatusJob]
    claims: list[StatusClaim]
    limit: UsageLimit | None
    last_run: LastRun | None
    """Null where the plan is done, or a run is at work."""
    obstacle: str | None
    """What has to be ended before a run can go on, and how."""
    next: StatusNext | None
    said: str | None
    """A command that helps more than `relay run` would."""


class PlanItem(TypedDict):
    """An item."""

    id: str
    text: str
    done: bool
    line: int
    paths: list[str]
    """That it names."""


class PlanPhase(TypedDict):
    """A phase."""

    id: str
    title: str
    line: int
    verify: list[str]
    after: list[str]
    """Phases that come before it."""
    runner: str | None
    items: list[PlanItem]


class SharedPath(TypedDict):
    """A path that phases side by side name."""

    path: str
    phases: list[str]


class Parallel(TypedDict):
    """What could be side by side."""

    waves: list[list[str]]
    longest: list[str]
    """The chain that no number of jobs makes shorter."""
    shared: list[SharedPath]
    jobs: int
    time: float | None
    """With so many jobs, where one after the other takes 1."""


class PlanViolation(TypedDict):
    """What is wrong with the plan, or may be."""

    path: str
    """Empty if no file is at fault."""
    line: int
    """1-based; 0 for the whole file."""
    message: str
    warning: bool
    hint: str


class CheckDocument(TypedDict):
    """A plan, and what is wrong with it."""

    version: int
    phases: list[PlanPhase]
    """Empty where the plan cannot be read."""
    violations: list[PlanViolation]
    parallel: Parallel | None
    overkill: bool
    """Whether one session is expected to do all open phases in half of its context."""


class DoctorFinding(TypedDict):
    """One thing that was looked at."""

    name: str
    state: State
    words: str
    details: list[str]
    hint: str


class EffectiveSetting(TypedDict):
    """A setting."""

    value: str
    origin: str
    """Where it came from."""


class DoctorDocument(TypedDict):
    """What relay needs, and what is there."""

    version: int
    ready: bool
    findings: list[DoctorFinding]
    settings: dict[str, EffectiveSetting]
    next: str
    """The command to type next; where something is missing, the first line of the advice about it."""


class TriedModelDocument(TypedDict):
    """What became of a trial of a model."""

    version: int
    ready: bool
    findings: list[DoctorFinding]
    table: str
    """For a settings file."""


class FoundAgent(TypedDict):
    """An agent that can run sessions."""

    name: str
    title: str
    program: str
    """Empty where it is not installed."""
    version: str
    tested: str
    """The version that relay was tested with."""
    engine: str
    """The version of what does its work, where that is another program; empty where it is not known."""
    engine_tested: str
    """Empty where the agent does its work itself."""
    usage: str
    steering: str
    tools: str
    login: str
    missing: str
    """What is; empty where nothing is."""
    install: str


class AgentsDocument(TypedDict):
    """The agents that relay knows."""

    version: int
    agents: list[FoundAgent]


class AgentTrial(TypedDict):
    """What became of a trial of one agent."""

    name: str
    ready: bool
    findings: list[DoctorFinding]


class TriedAgentsDocument(TypedDict):
    """What became of trials of agents."""

    version: int
    trials: list[AgentTrial]


class LastGateDocument(TypedDict):
    """What the last gate of this work tree said."""

    version: int
    at: float
    phase_id: str
    passed: bool
    baseline: bool
    expected: str
    """Why it was red and had to be; empty otherwise."""
    summary: str
    checks: list[CheckResult]


class ClaimSource(TypedDict):
    """A place that a claim cites."""

    path: str
    lines: str
    symbol: str
    blob: str
    changed: str
    """What became of it since; empty where nothing did."""
    place: str
    """As it is written in the ledger."""


class LedgerClaim(TypedDict):
    """A claim, and where it stands."""

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


class Contradiction(TypedDict):
    """Claims that cannot hold together, and do."""

    id: str
    claims: list[str]
    because: str


class LedgerListDocument(TypedDict):
    """All claims."""

    version: int
    claims: list[LedgerClaim]
    contradictions: list[Contradiction]


class LedgerShowDocument(LedgerClaim):
    """One claim."""

    version: int


class LedgerWhyDocument(LedgerClaim):
    """One claim, and why it stands where it does."""

    version: int
    explanation: list[str]
    """Its lines."""


class LedgerCheckDocument(TypedDict):
    """What has to be looked at again."""

    version: int
    remarks: list[str]
    contradictions: list[Contradiction]


class LedgerCompactDocument(TypedDict):
    """The ledger as a session is told it."""

    version: int
    text: str
    tokens: int
    """By estimate."""


class LedgerGraphDocument(TypedDict):
    """What rests on what."""

    version: int
    mermaid: str


class LedgerWrittenDocument(TypedDict):
    """What was written to the ledger."""

    version: int
    id: str
    path: str


class TuneDocument(TypedDict):
    """Where sessions should be reset."""

    version: int
    rates: list[BandRates]
    trial: TrialFigures


class KeptSession(TypedDict):
    """A session whose history is kept."""

    session: str
    written: float
    """When it was written last."""
    bytes: int


class ReplayListDocument(TypedDict):
    """The sessions that can be played again, newest first."""

    version: int
    sessions: list[KeptSession]


class ReplayedRequest(TypedDict):
    """A request of a session that was played again."""

    number: int
    same: bool
    differs_at: str
    """Where the request is another than then; empty where it is not."""
    made_differs_at: str
    """The same of what relay's own parts made of the answer."""


class ReplayDocument(TypedDict):
    """A session that was played again from its history."""

    version: int
    session: str
    same: bool
    requests: list[ReplayedRequest]
    beyond: int
    """Requests that the history does not have."""
    end: str
    detail: str


class SaidError(TypedDict):
    """What went wrong."""

    kind: ErrorKind
    message: str
    path: str
    line: int
    causes: list[str]
    hint: str


class ErrorDocument(TypedDict):
    """An error, on standard error; nothing else stands there then."""

    version: int
    error: SaidError
    exit_code: int


DOCUMENTS: dict[str, Any] = {
    "relay status": StatusDocument,
    "relay check": CheckDocument,
    "relay doctor": DoctorDocument,
    "relay doctor --model ID": TriedModelDocument,
    "relay agents": AgentsDocument,
    "relay agents --try": TriedAgentsDocument,
    "relay gate --last": LastGateDocument,
    "relay ledger list": LedgerListDocument,
    "relay ledger show": LedgerShowDocument,
    "relay ledger why": LedgerWhyDocument,
    "relay ledger check": LedgerCheckDocument,
    "relay ledger compact": LedgerCompactDocument,
    "relay ledger graph": LedgerGraphDocument,
    "relay ledger add, retract, confirm, nogood": LedgerWrittenDocument,
    "relay tune": TuneDocument,
    "relay replay": ReplayDocument,
    "relay replay --list": ReplayListDocument,
    "relay sandbox --show": Inventory,
    "any command that ends with 1": ErrorDocument,
}
"""By the command that prints it with --json."""


def find_faults(kind: Any, value: Any, where: str = "") -> list[str]:
    """Return where a value is not of a kind: a field too many, one too few, another type."""
    if get_origin(kind) in {Union, UnionType}:
        found = [find_faults(one, value, where) for one in get_args(kind)]
        return [] if [] in found else [faults for faults in found if faults][-1]
    if get_origin(kind) is Literal:
        return [] if value in get_args(kind) else [f"{where}: {value!r}"]
    if get_origin(kind) in {list, tuple}:
        inner = get_args(kind)[0]
        return [fault for at, one in enumerate(value) for fault in find_faults(inner, one, f"{where}[{at}]")]
    if get_origin(kind) is not None:  # a mapping
        return [fault for key, one in value.items() for fault in find_faults(get_args(kind)[1], one, f"{where}.{key}")]
    if is_typeddict(kind) or is_dataclass(kind):
        return _find_field_faults(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return [] if value in list(kind) else [f"{where}: {value!r}"]
    wanted = (int, float) if kind is float else kind
    return [] if isinstance(value, wanted) and isinstance(value, bool) == (kind is bool) else [f"{where}: {value!r}"]


def _find_field_faults(kind: Any, value: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {value!r}"]
    hints = get_type_hints(kind)
    needed = kind.__required_keys__ if is_typeddict(kind) else hints.keys()
    wrong = [f"{where}.{name} is missing" for name in sorted(needed - value.keys())]
    wrong += [f"{where}.{name} is not documented" for name in sorted(value.keys() - hints.keys() - {"version"})]
    return wrong + [
        fault
        for name, one in value.items()
        if name in hints
        for fault in find_faults(hints[name], one, f"{where}.{name}")
    ]


def read_document(command: str, text: str) -> Any:
    """Return what a command printed, after it was held against what is documented of it."""
    body = json.loads(text)
    assert body["version"] == JSON_VERSION
    assert find_faults(DOCUMENTS[command], body) == []
    return body

"""What happens in a run, as a closed union.

Events are facts in order. The view draws them, telemetry writes them, figures are computed from them; no reader can
change the run. Texts may hold anything a model or a command printed: whoever shows one makes it safe and keeps it from
markup. The parts of an event that JSON has as objects are typed dicts. A reader of a log checks each line by the
annotations, and the log's JSON Schema is made from them.
"""

from collections.abc import Callable
from typing import NotRequired, TypedDict

from relay.base.values import dataclass
from relay.base.words import BoxState
from relay.session.usage import Usage
from relay.session.values import Number, SessionEnd, Shown, Whole


class ShownItem(TypedDict):
    """An item of a plan."""

    id: str
    text: str
    state: BoxState
    paths: NotRequired[list[str]]
    """The paths that it names."""


class ShownPhase(TypedDict):
    """A phase of a plan."""

    id: str
    title: str
    items: list[ShownItem]


class SizedPart(TypedDict):
    """A part of a first prompt."""

    source: str
    """``system``, ``tools``, ``rules``, ``plan``, ``handoff_note``, ``ledger``, ``preload``, ``environment``,
    ``skills`` or their like."""
    bytes: Whole
    """Size as UTF-8."""
    tokens: Whole
    """An estimate."""
    cut_tokens: NotRequired[Whole]
    """An estimate of what was left out of it; missing for nothing."""
    most_tokens: NotRequired[Whole]
    """The most that the settings allow; missing where its layer says it."""


class HashedFile(TypedDict):
    """A file that steers sessions, as it was when the run began."""

    path: str
    sha256: str


class ShownClaim(TypedDict):
    """A claim of the ledger in a first prompt."""

    id: str
    tokens: Whole
    """Estimated size of its line."""
    paths: list[str]
    """The files that it cites."""


class CheckResult(TypedDict):
    """A verify command that ran."""

    command: str
    status: str
    exit_code: Whole | None
    """None if relay killed it."""
    duration_s: Number
    output: str
    """Its last lines."""
    output_sha256: NotRequired[str]
    """Of all output that relay kept."""
    causes: NotRequired[list[str]]
    """What the sandbox denied it."""


class LeftFile(TypedDict):
    """A file that a gate left."""

    name: str
    size_bytes: Whole
    sha256: str
    """The name of the file that keeps it for a week, below ``.relay/outputs/evidence/``; empty if it is not kept."""
    why: NotRequired[str]
    """Why it is not kept; empty if it is."""


class ChangedFile(TypedDict):
    """What a commit did to a file."""

    path: str
    added: Whole | None
    """Lines; None for a binary file."""
    deleted: Whole | None


class ShownFinding(TypedDict):
    """What a reviewer says is wrong."""

    file: str
    line: Whole
    """1-based; 0 if it is about the whole file."""
    summary: str
    failure_scenario: str
    category: str
    severity: str
    verdict: str
    """``confirmed``, ``refuted`` or ``unexamined``."""
    reason: str
    """The reason for the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A command that may talk to a model began."""

    run_id: str
    command: str
    """``plan`` or ``run``."""
    model: str
    plan_path: str
    branch: str
    sandbox: str
    cap_usd: Number | None
    """None if no cap is set."""
    spent_usd: Number | None
    """What the plan cost before this run; None if unknown."""
    estimated: bool = False
    """Whether `spent_usd` is an upper bound, because some of it was never reported."""
    rehearsed: bool
    """Whether the endpoint said that it is a rehearsal server."""
    context: str = "reset"
    """The context strategy of the run."""
    ablated: tuple[str, ...] = ()
    """relay's own features that were switched off."""
    plan_commit: str = ""
    """The commit on which the plan's work began; it tells plans in the same file apart. Empty where the command
    writes a new plan."""
    skills: tuple[HashedFile, ...] = ()
    """The skills that the sessions are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShown:
    """The plan as it stands; sent at the start and whenever boxes or claims change."""

    phases: tuple[ShownPhase, ...]
    changed_only: bool = False
    """Whether `phases` are only those that changed since this log's last such event."""

    def since(self, before: tuple[ShownPhase, ...]) -> "PlanShown":
        """Return the event that updates a shown plan: only the changed phases, unless phases came, went or moved."""
        if [phase["id"] for phase in before] != [phase["id"] for phase in self.phases]:
            return self
        changed = (new for old, new in zip(before, self.phases, strict=True) if old != new)
        return PlanShown(phases=tuple(changed), changed_only=True)

    def complete(self, before: tuple[ShownPhase, ...]) -> tuple[ShownPhase, ...]:
        """Return all phases; `before` are those that were shown last."""
        changed = {phase["id"]: phase for phase in self.phases}
        return tuple(changed.get(phase["id"], phase) for phase in before) if self.changed_only else self.phases


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """A fresh session on a phase began."""

    session_id: str
    phase_id: str
    title: str
    number: Whole
    """1 for the first session of the phase; one that was cut off does not count."""
    reason: str
    """Why this session starts here, in the words of `relay status --why`."""
    tries: Whole = 1
    """As `number`, but with every session counted, also those that were cut off."""
    runner: str = ""
    """Its runner, as in the settings."""
    model: str = ""
    """The model that it asks, if that is not the run's."""
    effort: str = ""
    """How hard the model is told to think, in the same way."""
    rungs: tuple[str, ...] = ()
    """The changes of model and effort that its phase has had: ``effort=high``, ``fallback=claude-sonnet-5-5``."""
    prompt: tuple[SizedPart, ...] = ()
    """The parts of its first prompt."""
    handoff_note: str = ""
    """What it is told about the session before; empty for nothing."""
    claims: tuple[ShownClaim, ...] = ()
    """The claims that it is shown, the most important first."""
    preloads: tuple[str, ...] = ()
    """The files that relay put into its first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted:
    """A request is about to be sent, or sent again."""

    turn: Whole
    """1-based within the session; the same for every try of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """A request was answered, wholly or in part, or may have been; recorded before any content is looked at."""

    turn: Whole
    """0 for a request that an agent makes beside the session's conversation, such as for a title."""
    model: str
    usage: Usage | None
    """None if the log of another program does not say; unknown is not zero."""
    cost_usd: Number | None
    """None if the price of the model is unknown."""
    fill_tokens: Whole | None
    soft_tokens: Whole
    hard_tokens: Whole
    window_tokens: Whole
    stop_reason: str
    duration_s: Number
    estimated: bool = False
    """Whether some of the usage is an upper bound, because the endpoint did not report it, or not plausibly."""
    streamed: bool = True
    """Whether it came piece by piece; False if it came whole."""
    turns_left: Whole | None = None
    """Turns until the soft line, at the growth so far; None if unknown."""
    query: str = ""
    """``explore`` if an explorer inside the session sent it (its `turn` is 0); empty for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySpoke:
    """relay sent the model a message in mid-session: a reminder, a notice, the report of a red gate."""

    size_bytes: Whole
    """Size as UTF-8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextShown:
    """The model said something; `thinking` marks a summary of its thinking."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call is about to run."""

    call_id: str
    name: str
    summary: str
    """One line: the path, the command, the item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool call was answered."""

    call_id: str
    name: str
    is_error: bool
    result_sha256: str
    """Of the result's UTF-8 and its picture: the same part of a file, shown twice, has the same hash."""
    duration_s: Number
    changed_paths: tuple[str, ...] | None
    """None if unknown (a shell command)."""
    result_bytes: Whole
    """Size of the result as UTF-8, a picture as 4 bytes a token."""
    shown: Shown | None = None
    """The part of a file that the result shows; None for other results."""
    problem: str = ""
    """The first line of an error, shortened; empty for other results."""
    call_sha256: str
    """Of the tool's name and input: the same call has the same hash."""
    cut_bytes: Whole | None = None
    """Size of the output that the cap kept from the model; None if unknown: an agent's own tool."""
    uses: tuple[str, ...] = ()
    """What its input names a path or line of, for the first time: an earlier call by its id, or ``preload PATH``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputShown:
    """The running command (of a tool, a gate, the setup) printed something; sent now and then, not for each line."""

    line: str
    """Its last line so far, shortened; a command may print anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferShown:
    """A fetch from or a push to a remote has come further; sent now and then."""

    line: str
    """Stage, bar, count and amount; empty when it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeCrossed:
    """The fill passed a line."""

    line: str
    """``soft`` or ``hard``; ``consolidate``: the session was told to finish and to record what is done."""
    fill_tokens: Whole
    line_tokens: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """A request failed and will be sent again, or the run waits for a time of day."""

    attempt: Whole
    """0 if nothing failed: relay was asked to wait, or waits for a limit that an earlier run met."""
    wait_s: Number
    """0 if an agent has sent it again already."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBroken:
    """Less was read from the prompt cache than the last response had left there."""

    changed: str
    """The part that changed: ``system``, ``tool <name>``, ``model``, ``messages`` or ``unknown``."""
    expected_tokens: Whole
    read_tokens: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAsked:
    """A command, or an agent with a login, asked relay's proxy for a host."""

    host: str
    """As the command wrote it."""
    refused: str
    """Why the proxy refused it; empty if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStarted:
    """A setup command is about to run."""

    command: str
    network: str
    """The hosts that it reaches, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFinished:
    """A setup command ran."""

    command: str
    exit_code: Whole | None
    """None if relay killed it."""
    duration_s: Number
    output: str
    """The end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStarted:
    """Verify commands are about to run."""

    phase_id: str
    baseline: bool
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinished:
    """Verify commands ran. If a commit hook refused the result afterwards, the hook is the only check."""

    phase_id: str
    baseline: bool
    passed: bool
    summary: str
    duration_s: Number
    expected: str = ""
    """Why a red gate is expected here; empty if it is a real failure."""
    checks: tuple[CheckResult, ...] = ()
    evidence: tuple[LeftFile, ...] = ()
    """The files that the commands left in ``$RELAY_EVIDENCE``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRestored:
    """Something other than relay changed PLAN.md, and relay restored it."""

    tool: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """relay made a commit on the branch."""

    commit: str
    subject: str
    status: str
    """``planned``, ``done``, ``handoff`` or ``amended``."""
    phase_id: str
    """Empty for a commit of the plan alone."""
    items: tuple[str, ...]
    files: tuple[ChangedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """A session on a phase is over."""

    session_id: str
    phase_id: str
    end: SessionEnd
    result: str
    """``done``, ``handoff``, ``blocked``, ``failed`` or ``interrupted``."""
    detail: str
    usage: Usage
    cost_usd: Number | None
    estimated: bool = False
    """Whether usage and cost are upper bounds: not all was reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something a person should know: a file was left out, a rule was cut, a lock was removed."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFinished:
    """Sessions that saw only a change have reported what is wrong with it."""

    phase_id: str
    """Empty if the change belongs to no phase."""
    round: Whole
    """1 for the first review of the phase."""
    findings: tuple[ShownFinding, ...]
    confirmed: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """A session has a question for the user."""

    question: str
    options: tuple[str, ...] = ()
    """Answers that it offers; another answer is possible."""
    assumed: str
    """The assumption it makes if nobody answers."""
    waits: bool = False
    """Whether the session waits for the answer; if not, it goes on with its assumption, and the plan keeps the
    question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsHeard:
    """The session is told the user's words, from another terminal or as the answer to its question."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapMoved:
    """A person raised or lowered the plan's cap while the run was at work."""

    cap_usd: Number | None
    """USD; null: no cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoved:
    """A phase with a work tree and a run of its own has changed its state."""

    phase_id: str
    state: str
    """``started``, ``merging``, ``landed``, ``waiting``, ``stopped``; ``held``: it waits for its turn."""
    detail: str
    """Where it runs, what was landed, what it waits for, or why it stopped; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The command is over."""

    exit_code: Whole
    reason: str
    """One line: what was done, or why it stopped."""
    next_command: str
    """What to type next; empty if nothing is left."""
    spent_usd: Number | None
    estimated: bool = False
    """Whether `spent_usd` is an upper bound."""
    waits_for: str = ""
    """The phase that waits for approval (``run --approve``); empty if none does."""
    questions: tuple[str, ...] = ()
    """Open questions of the plan's sessions, of this run or earlier ones, with what they assumed."""
    unsent_usd: Number | None = None
    """The most that the request held back by a cap of the run can cost; null without such a request, or if its price is
    unknown."""
    unsent_tokens: Whole | None = None
    """The most tokens that this request can use."""


Event = (
    RunStarted | PlanShown | SessionStarted | RequestStarted | ResponseReceived | RelaySpoke
    | TextShown | ToolStarted | ToolFinished | OutputShown | GaugeCrossed | RetryScheduled | CacheBroken
    | HostAsked | SetupStarted | SetupFinished | GateStarted | GateFinished | PlanRestored | Committed | SessionEnded
    | Noticed | TransferShown | ReviewFinished | QuestionAsked | WordsHeard | CapMoved
    | JobMoved | RunEnded
)  # fmt: skip

Observe = Callable[[Event], None]
"""Receives every event, in order, on the thread of the run. Must not raise, and must return soon."""

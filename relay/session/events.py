"""What happens in a run, as a closed union.

Events are facts in order. The view draws them, telemetry writes them, figures are computed from them; no reader can
change the run. Texts may hold anything a model or a command printed: whoever shows one makes it safe and keeps it from
markup. The parts of an event that JSON has as objects are typed dicts; a reader checks each.
"""

from collections.abc import Callable
from typing import Literal, NotRequired, TypedDict

from relay.base.values import dataclass
from relay.session.usage import Usage
from relay.session.values import SessionEnd, Shown

BoxState = Literal["open", "optional", "claimed", "done"]


class ShownItem(TypedDict):
    """An item of a plan."""

    id: str
    text: str
    state: BoxState
    paths: NotRequired[list[str]]
    """Those that it names."""


class ShownPhase(TypedDict):
    """A phase of a plan."""

    id: str
    title: str
    items: list[ShownItem]


class SizedPart(TypedDict):
    """A part of a first prompt."""

    source: str
    """``system``, ``tools``, ``rules``, ``plan``, ``baton``, ``ledger``, ``environment`` or their like."""
    bytes: int
    """Of its UTF-8."""
    tokens: int
    """By estimate."""


class CheckResult(TypedDict):
    """A verify command that ran."""

    command: str
    status: str
    exit_code: int | None
    """None when relay killed it."""
    duration_s: float
    output: str
    """Its last lines."""
    output_sha256: NotRequired[str]
    """Of all that relay kept of the output."""
    causes: NotRequired[list[str]]
    """What the sandbox kept from it."""


class ChangedFile(TypedDict):
    """What a commit did to a file."""

    path: str
    added: int | None
    """Lines; None for a binary file."""
    deleted: int | None


class ShownFinding(TypedDict):
    """What a reviewer says is wrong."""

    file: str
    line: int
    """1-based; 0 where it is about the whole file."""
    summary: str
    failure_scenario: str
    category: str
    severity: str
    verdict: str
    """``confirmed``, ``refuted`` or ``unexamined``."""
    reason: str
    """Of the verdict."""


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
    cap_usd: float | None
    """None when no cap is set."""
    spent_usd: float | None
    """What the plan has cost before this run; None when unknown."""
    estimated: bool = False
    """`spent_usd` is the most that it can have been: some of it was never reported."""
    rehearsed: bool
    """Whether the endpoint said that it is a rehearsal server."""
    context: str = "reset"
    """The context strategy of the run; what logs written before there was a choice mean by leaving it out."""
    ablated: tuple[str, ...] = ()
    """relay's own features that were switched off."""
    plan_commit: str = ""
    """The commit on which the plan's work began, as another in the same file has another; empty in older logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShown:
    """The plan as it stands; sent at the start and whenever boxes or claims change."""

    phases: tuple[ShownPhase, ...]
    changed_only: bool = False
    """`phases` are those that changed since this log's last such event, the others stand; missing in older logs."""

    def since(self, before: tuple[ShownPhase, ...]) -> "PlanShown":
        """Return what it takes to say this of a plan that was shown: all of it where phases came, went or moved."""
        if [phase["id"] for phase in before] != [phase["id"] for phase in self.phases]:
            return self
        changed = (new for old, new in zip(before, self.phases, strict=True) if old != new)
        return PlanShown(phases=tuple(changed), changed_only=True)

    def complete(self, before: tuple[ShownPhase, ...]) -> tuple[ShownPhase, ...]:
        """Return all phases; `before` are those that were shown last."""
        changed = {phase["id"]: phase for phase in self.phases}
        return tuple(changed.get(phase["id"], phase) for phase in before) if self.changed_only else self.phases


@dataclass(frozen=True, slots=True, kw_only=True)
class LegStarted:
    """A fresh session on a phase began."""

    session_id: str
    phase_id: str
    title: str
    leg: int
    """1 for the first leg of the phase."""
    reason: str
    """Why this leg starts here, in the words of `relay status --why`."""
    attempt: int = 1
    """`leg` with every session counted, also those that were cut off; missing in older logs."""
    runner: str = ""
    """Who runs it, as the settings have it; missing in older logs."""
    trial: str = ""
    """The reset line that a trial gave its phase; empty where none did, and in older logs."""
    prompt: tuple[SizedPart, ...] = ()
    """The parts of its first prompt; missing in older logs."""
    baton: str = ""
    """What it is told of the session before it; empty for nothing, and in older logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted:
    """A request is about to be sent, or sent again."""

    turn: int
    """1-based within the session; the same for every try of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """A request was answered, wholly or in part, or may have been; recorded before any content is looked at."""

    turn: int
    """0 for a request of an agent beside the session's conversation, such as for a title."""
    model: str
    usage: Usage | None
    """None when it is unknown, not zero; only in older logs."""
    cost_usd: float | None
    """None when the price of the model is unknown."""
    fill_tokens: int | None
    soft_tokens: int
    hard_tokens: int
    window_tokens: int
    stop_reason: str
    duration_s: float
    estimated: bool = False
    """What the endpoint did not report of the usage, or reported as it cannot be, is the most that it can have been."""
    streamed: bool = True
    """It came piece by piece; False: whole, at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySpoke:
    """relay said something to the model in mid-session: a reminder, a notice, the report of a red gate."""

    size_bytes: int
    """Of its UTF-8."""


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
    """Of the result's UTF-8: the same part of a file, shown twice, has the same."""
    duration_s: float
    changed_paths: tuple[str, ...] | None
    """None when unknown (a shell command)."""
    result_bytes: int | None = None
    """Of the result's UTF-8; None in older logs."""
    shown: Shown | None = None
    """The part of a file that the result is; None when it is none, and in older logs."""
    problem: str = ""
    """The first line of a result that is an error, cut; empty in older logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputShown:
    """The command that runs (of a tool, a gate, the setup) has said something new; told now and then, not for each."""

    line: str
    """Its last line so far, cut; whatever a command printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeCrossed:
    """The fill passed one of its two lines."""

    line: str
    """``soft`` or ``hard``."""
    fill_tokens: int
    line_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """A request failed and will be sent again, or the run waits for an hour."""

    attempt: int
    """0 where nothing failed: it was asked to wait, or waits for a limit that an earlier run met."""
    wait_s: float
    """0 where an agent has sent it again already."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBroken:
    """Less was read from the prompt cache than the last response promised."""

    changed: str
    """The part that changed: ``system``, ``tool <name>``, ``model``, ``messages`` or ``unknown``."""
    expected_tokens: int
    read_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRefreshed:
    """A prompt was sent once more to keep it in the cache; only logs of older versions have it."""

    turn: int
    """Of the request whose prompt it is."""
    model: str
    usage: Usage
    cost_usd: float | None
    duration_s: float
    estimated: bool = False
    """Usage and cost are the most that they can have been: no answer came, or not in time."""
    failure: str = ""
    """Why the prompt is not kept any longer; empty where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAsked:
    """A command, or an agent with a login, asked relay's proxy for a host."""

    host: str
    """As the command wrote it."""
    refused: str
    """Why it was not let through; empty when it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStarted:
    """A setup command is about to run."""

    command: str
    network: str
    """What it reaches, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFinished:
    """A setup command ran."""

    command: str
    exit_code: int | None
    """None when relay killed it."""
    duration_s: float
    output: str
    """Its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStarted:
    """Verify commands are about to run."""

    phase_id: str
    baseline: bool
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinished:
    """Verify commands ran, or a commit hook refused what had passed them: it is the one check then."""

    phase_id: str
    baseline: bool
    passed: bool
    summary: str
    duration_s: float
    expected: str = ""
    """Why it is no failure that it is red; empty where it is one, and in older logs."""
    checks: tuple[CheckResult, ...] = ()
    """Missing in older logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRestored:
    """PLAN.md was changed by something other than relay and was put back."""

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
    """Missing in older logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegEnded:
    """The session of a leg is over."""

    session_id: str
    phase_id: str
    end: SessionEnd
    result: str
    """``done``, ``handoff``, ``blocked``, ``failed`` or ``interrupted``."""
    detail: str
    usage: Usage
    cost_usd: float | None
    estimated: bool = False
    """Usage and cost are the most that they can have been: not all of it was reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something a person should know: a file that was left out, a rule that was cut, a lock that was removed."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFinished:
    """Sessions that saw only a change have said what is wrong with it."""

    phase_id: str
    """Empty for a change that is no phase's."""
    round: int
    """1 for the first review of the phase."""
    findings: tuple[ShownFinding, ...]
    confirmed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """A session has a question for the user."""

    question: str
    options: tuple[str, ...] = ()
    """What it offers; an answer may be another."""
    assumed: str
    """What holds where nobody answers."""
    waits: bool = False
    """Whether it waits for the answer; otherwise it goes on with what is assumed, and the question is in the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsHeard:
    """The session is told what the user said: from another terminal, or as the answer to its question."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaused:
    """The run waits for the user, before the next request."""

    reason: str
    """What it waits for, and how it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """The run goes on after a pause."""

    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoved:
    """A phase that has a work tree and a run of its own has come further."""

    phase_id: str
    state: str
    """``started``, ``merging``, ``landed``, ``waiting``, ``stopped``; ``held``: it waits for its turn."""
    detail: str
    """Where it runs, what was landed, what it waits for, or why it stopped; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The command is over."""

    exit_code: int
    reason: str
    """One line: what was done, or why it stopped."""
    next_command: str
    """What to type next; empty when nothing is left."""
    spent_usd: float | None
    estimated: bool = False
    """`spent_usd` is the most that it can have been."""
    waits_for: str = ""
    """The phase that waits for a yes, of ``run --approve``; empty where nothing does."""
    questions: tuple[str, ...] = ()
    """What sessions of the plan left the user to answer, this run's or earlier ones', and what they assumed."""
    unsent_usd: float | None = None
    """The most that the request can cost that a cap of the run's held back; null where none was, or its price is
    unknown."""
    unsent_tokens: int | None = None
    """The most tokens that it can use."""


Event = (
    RunStarted | PlanShown | LegStarted | RequestStarted | ResponseReceived | RelaySpoke | TextShown | ToolStarted
    | ToolFinished | OutputShown | GaugeCrossed | RetryScheduled | CacheBroken | CacheRefreshed | HostAsked
    | SetupStarted | SetupFinished | GateStarted | GateFinished | PlanRestored | Committed | LegEnded | Noticed
    | ReviewFinished | QuestionAsked | WordsHeard | RunPaused | RunResumed | JobMoved | RunEnded
)  # fmt: skip

Observe = Callable[[Event], None]
"""Receives every event, in order, on the thread of the run. Must not raise and must return soon."""

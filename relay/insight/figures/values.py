"""The figures of a turn, a tool, a session, a phase, a run and a whole log, and the evidence for ticks.

`figures.sql` says how each is made and from where; `relay.insight.figures.read` reads its tables into these values.
None is *unknown* or *does not apply*, never 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from relay.base.values import dataclass
from relay.insight.figures.decay import ClaimUse, Decay, LayerFigures
from relay.session.events import ChangedFile, LeftFile, ShownFinding
from relay.session.gauge import Band
from relay.session.usage import Spent

READ_SHARE = 0.1
"""Price of a cache read relative to input, if no price is known."""
WRITE_SHARE = 1.25
"""The same for a cache write that lives for five minutes."""
DRIFT_WARNING = 0.35
"""A phase with more drift has touched too many files that its items do not name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEvidence:
    """A verify command that ran."""

    command: str
    status: str
    exit_code: int | None
    """None if relay killed it."""
    duration_s: float
    output_sha256: str
    """Of its output; empty if relay kept none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickEvidence:
    """A commit that ticked items, with its gate."""

    at: float
    commit: str
    subject: str
    status: str
    """``done`` or ``handoff``; ``amended`` and ``planned`` for a plan's own commits."""
    phase_id: str
    session_id: str
    """Empty for a commit outside of a session."""
    run_id: str
    items: tuple[str, ...]
    texts: tuple[str, ...]
    """Of the items, as the plan was last shown; empty if it was not."""
    checks: tuple[CheckEvidence, ...]
    """Of the phase's last gate before the commit; empty without one."""
    files: tuple[ChangedFile, ...]
    left: tuple[LeftFile, ...] = ()
    """Files that the phase's gate left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEvidence:
    """The findings of one review round."""

    at: float
    phase_id: str
    """Empty if the change belongs to no phase."""
    round: int
    findings: tuple[ShownFinding, ...]
    """At most `read.MOST_FINDINGS`."""
    confirmed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshStart:
    """The cost and saving of a fresh session after another of the run, of the same phase or the next.

    With a context C, a prefix B (the fresh session's first prompt), an orientation O (files it read that earlier
    sessions of the phase had been shown) and R turns of the fresh session:
    saved = (C - B - O) R read, paid = (B + O) write, break-even R* = (B + O) write / ((C - B - O) read).
    Source: derived from the prices of cache reads and writes: 12.5 (B + O) / (C - B - O) at 0.1 and 1.25.
    """

    phase_id: str
    from_session: str
    to_session: str
    within_phase: bool
    """Both sessions are of one phase: the first handed over, or was stopped."""
    context_tokens: int
    """C: the context of the session before at its end."""
    prefix_tokens: int
    """B."""
    orientation_tokens: int
    """O."""
    turns: int
    """R: turns of the fresh session."""
    break_even_turns: float | None
    """R*; None if no number of turns pays: the fresh session is as large as the old one was."""
    saved_tokens: int
    """Prompt tokens that the fresh session did not have to carry: (C - B - O) R; below 0 if it carried more."""
    saved_usd: float | None
    """Net: saved - paid; None if the price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseWork:
    """A phase's work on the repository, and its gates."""

    items: tuple[str, ...] = ()
    """Ids, as the plan was last shown."""
    ticked: tuple[str, ...] = ()
    """Ids that commits ticked."""
    is_done: bool = False
    gates: int = 0
    """Runs of the gate without baselines."""
    red_gates: int = 0
    first_gate_red: bool | None = None
    """Whether the first gate after the phase's work was red; None if none has run."""
    repairs: int = 0
    """Red gates that the session was told to repair."""
    hand_offs: int = 0
    declared: tuple[str, ...] = ()
    """Paths that its items name."""
    touched: tuple[str, ...] = ()
    """Files that its commits changed, and those that tools changed by name; without plan and ledger."""
    strayed: tuple[str, ...] = ()
    """The `touched` files that no declared path covers, without tests of declared files and rules files."""
    commits: tuple[str, ...] = ()

    @property
    def drift(self) -> float | None:
        """|strayed| / |touched|, 0 to 1; warn above `DRIFT_WARNING`; None if nothing is declared or touched.

        It is the drift of paths, not of meaning.
        """
        return len(self.strayed) / len(self.touched) if self.touched and self.declared else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BandCounts:
    """Counts of one session while its fill was in one band."""

    band: Band
    turns: int = 0
    calls: int = 0
    errors: int = 0
    shown: int = 0
    """Parts of files."""
    duplicates: int = 0
    """As `Totals.duplicate_reads`."""
    changed: int = 0
    """Files changed by name, each once."""
    ghosts: int = 0
    """As `Totals.ghost_edits`."""
    gates: int = 0
    red_gates: int = 0


SESSION_POINTS = 2_000
"""Most points of one session."""
MOST_POINTS = 10_000
"""Most points of all sessions together, turns and tool calls apart; each session has one at least."""
PointT = TypeVar("PointT")


def thin(points: Sequence[PointT], weigh: Callable[[PointT], float], most: int) -> tuple[PointT, ...]:
    """Keep at most so many points: of each two neighbours the one that weighs more, as often as it takes."""
    while len(points) > most:
        points = [max(points[n : n + 2], key=weigh) for n in range(0, len(points), 2)]
    return tuple(points)


HEALTHY_CACHE = 0.8
"""`Totals.cache_hit` above it is healthy. Source: chapter 3 of the Token Wiki."""
MONEY = ("carried_usd", "tax_usd", "explored_usd")
"""Fields of `Totals` that may be unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the turns of a session, the sessions of a phase, the phases of a run, the runs of a plan."""

    spent: Spent = field(default_factory=Spent)
    """Sum over every `ResponseReceived`, those that were cut or lost included: what is billed, as the endpoint counted
    it. `Spent.estimated` where some of it is relay's estimate."""
    turns: int = 0
    """Responses; a request that was sent again because it failed counts where it may be billed."""
    unknown_turns: int = 0
    """The `turns` whose usage is unknown; they are in no sum."""
    retries: int = 0
    retries_s: float = 0.0
    """Seconds of waits before them."""
    answer_s: float = 0.0
    """Seconds spent waiting for answers."""
    tools_s: float = 0.0
    """Seconds that tools ran."""
    gates_s: float = 0.0
    """Seconds that verify commands ran, baselines included."""
    sources: tuple[tuple[str, int], ...] = ()
    """Tokens of all prompts by source, most first: parts of first prompts (`SizedPart.source`), ``tool <name>``,
    ``relay``, ``history``, ``explore``, and ``other`` outside of conversations. They add up to
    ``spent.usage.prompt_tokens`` exactly."""
    carried_tokens: int = 0
    """Tokens of prompts that an earlier prompt of the same session had already: what a session pays to remember."""
    carried_usd: float | None = 0.0
    """The same, at the price of a read from the cache; None when the price is unknown."""
    tax_tokens: int = 0
    """Re-read tax: superseded tokens in each later prompt, summed over prompts."""
    tax_usd: float | None = 0.0
    """The same, at the price of a read from the cache; None when the price is unknown."""
    calls: int = 0
    errors: int = 0
    """Tool calls that were answered with an error."""
    duplicate_reads: int = 0
    """The same part of a file with the same content, shown again in one session: same path, range and hash."""
    duplicate_tokens: int = 0
    """Tokens of those."""
    ghost_edits: int = 0
    """Files that a session changed by name, though it had been shown nothing of them, and an earlier session had."""
    ticks: int = 0
    """Items that commits ticked."""
    records: int = 0
    """Claims recorded in the ledger."""
    amendments: int = 0
    """Changes of the plan that sessions asked for and got."""
    commits: int = 0
    """Commits of work; those of the plan alone are not counted."""
    crossings: int = 0
    """Sessions that passed the soft line."""
    cache_breaks: int = 0
    explored: int = 0
    """Questions that explorers answered."""
    explored_tokens: int = 0
    """Tokens of all requests of explorers, which are in `spent` too."""
    explored_usd: float | None = 0.0
    """Their cost; None if a price is unknown."""

    @property
    def decisions(self) -> int:
        """Explicit decisions: ticks + records + amendments + commits; no words are searched for.

        Source: cost per decision of ContextSpectre, whose keywords ("because") count noise.
        """
        return self.ticks + self.records + self.amendments + self.commits

    @property
    def usd_per_decision(self) -> float | None:
        """Cost per decision; None without a decision (not 0, not infinite) and when the cost is unknown."""
        cost = self.spent.cost_usd
        return None if cost is None or not self.decisions else cost / self.decisions

    @property
    def decision_density(self) -> float | None:
        """Decisions per turn; None without a turn."""
        return self.decisions / self.turns if self.turns else None

    @property
    def cache_hit(self) -> float | None:
        """Read / (read + written + input), 0 to 1; healthy above 0.8; None without a prompt.

        Source: chapter 3 of the Token Wiki has the bands 0.8 and 0.5.
        """
        usage = self.spent.usage
        return usage.cache_read_tokens / usage.prompt_tokens if usage.prompt_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """One response: a point of the saw-tooth."""

    at: float
    turn: int
    """1-based within the session."""
    prompt_tokens: int
    cache_read_tokens: int
    output_tokens: int
    fill_tokens: int | None
    """Prompt and output of the last response and a padded estimate since; as the event has it."""
    soft_tokens: int
    hard_tokens: int
    band: Band | None
    """Of the fill, relative to the soft line; None if that is unknown."""
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpan:
    """One tool call on the time line."""

    at: float
    """When it began; seconds since the epoch."""
    duration_s: float
    name: str
    is_error: bool
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostlyResult:
    """A result that took a large part of a context."""

    tool: str
    summary: str
    """The call in one line; may hold anything."""
    tokens: int
    """In one prompt."""
    session_id: str
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """All calls of one tool."""

    name: str
    calls: int = 0
    errors: int = 0
    duration_s: float = 0.0
    result_tokens: int = 0
    """Tokens of its results, each counted once."""
    duplicates: int = 0
    """Calls with the very same result as the same call before in that session."""
    duplicate_tokens: int = 0
    """Tokens of those results."""
    costliest: tuple[CostlyResult, ...] = ()
    """At most `read.COSTLIEST`, most tokens first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A prompt that was much smaller than the context before it."""

    turn: int
    """Of the smaller prompt."""
    before_tokens: int
    after_tokens: int
    dropped: tuple[tuple[str, int], ...]
    """Tokens by source that went, most first: the results so far, and ``history`` for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """One session."""

    run_id: str
    session_id: str
    phase_id: str
    """Empty for a session without a phase."""
    title: str
    number: int
    reason: str
    """Why it started."""
    model: str
    """The model that answered last; empty before an answer."""
    runner: str
    """As in the settings; empty in the logs of other programs."""
    began: float
    ended: float | None
    """None while it works, and if it was cut off."""
    end: str
    """A `SessionEnd`; empty while there is none."""
    result: str
    """``done``, ``handoff``, ``blocked``, ``failed``, ``interrupted``; empty while there is none."""
    detail: str
    totals: Totals
    handoff_note: str
    """The handoff note that it got, cut at `read.MOST_HANDOFF_NOTE_CHARS`; empty without one."""
    first_tokens: int | None
    """Prompt of its first response; None before one."""
    last_tokens: int | None
    """Its context after its last response."""
    peak_tokens: int | None
    """Its largest context."""
    soft_tokens: int | None
    hard_tokens: int | None
    window_tokens: int | None
    held: tuple[tuple[str, int], ...]
    """Its last context by source, most first; adds up to `last_tokens`."""
    decay: Decay
    layers: tuple[LayerFigures, ...]
    """Of its last context; empty before an answer."""
    compactions: tuple[Compaction, ...]
    series: tuple[TurnFigures, ...]
    """Its turns, thinned to at most `SESSION_POINTS`, or `MOST_POINTS` of all sessions: of neighbours the fuller one is
    kept."""
    spans: tuple[ToolSpan, ...]
    """Its tool calls, thinned in the same way: of neighbours the longer one is kept."""
    bands: tuple[BandCounts, ...]
    """Counts for each band of the fill that it reached."""
    rungs: tuple[str, ...]
    """The changes of model and effort that its phase had had when it began."""
    claims: tuple[ClaimUse, ...]
    """The claims of the ledger that it was shown, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFigures:
    """One phase, over all sessions and runs."""

    phase_id: str
    """Empty for work outside of phases."""
    title: str
    totals: Totals
    sessions: int
    work: PhaseWork

    @property
    def is_done(self) -> bool:
        """Whether a commit closed it."""
        return self.work.is_done


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected cost of the remaining phases, from the finished ones."""

    phases: int
    """Phases to go, as the plan was last shown, with the present one."""
    items: int
    """Open items of those."""
    usd: float | None
    """Cost per ticked item so far x items to go; None if nothing was ticked or the cost is unknown."""
    low_usd: float | None
    """The same with the cheapest finished phase's cost per item."""
    high_usd: float | None
    """The same with the dearest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One run: one process of `relay run` or `relay plan`, or one transcript."""

    run_id: str
    command: str
    model: str
    plan_path: str
    branch: str
    sandbox: str
    context: str
    """The strategy at the reset line."""
    rehearsed: bool
    cap_usd: float | None
    spent_before_usd: float | None
    """Cost of the plan before the run."""
    began: float
    ended: float | None
    """None while it works, and if it was killed."""
    last_at: float
    """Of its last event."""
    exit_code: int | None
    reason: str
    """Why it stopped; empty while it works."""
    next_command: str
    questions: tuple[str, ...]
    """Questions that sessions had left to the user when it ended, with their assumptions."""
    totals: Totals
    """Of its sessions, and of answers outside of any."""
    sessions: tuple[SessionFigures, ...]
    warnings: tuple[str, ...]
    """At most `read.KEPT_WARNINGS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of everything that was read."""

    runs: tuple[RunFigures, ...]
    phases: tuple[PhaseFigures, ...]
    """In the order of their first events, over all runs."""
    tools: tuple[ToolFigures, ...]
    """Most tokens first."""
    totals: Totals
    ticks: tuple[TickEvidence, ...]
    reviews: tuple[ReviewEvidence, ...]
    hand_offs: tuple[FreshStart, ...]
    forecast: Forecast | None
    """None if no plan was shown."""
    yours: tuple[str, ...] = ()
    """Open items for a person, with their ids, in phases whose other items are done."""

    @property
    def sessions(self) -> tuple[SessionFigures, ...]:
        """Sessions of all runs."""
        return tuple(session for run in self.runs for session in run.sessions)

    def charge(self, booked: Spent, by_phase: Mapping[str, Spent]) -> "Figures":
        """Return the figures with the money of commits and refs, which have also what no log tells: requests cut off.

        Tokens stay those of the log, whose parts add up to them.

        Args:
            booked: Of the whole plan.
            by_phase: By the phase's id.
        """

        def pay(totals: Totals, spent: Spent) -> Totals:
            return replace(totals, spent=replace(totals.spent, cost_usd=spent.cost_usd, estimated=spent.estimated))

        phases = (
            replace(phase, totals=pay(phase.totals, by_phase.get(phase.phase_id, phase.totals.spent)))
            for phase in self.phases
        )
        return replace(self, totals=pay(self.totals, booked), phases=tuple(phases))


def add_totals(*found: Totals) -> Totals:
    """Add up; unknown money stays unknown."""
    spent, sources = Spent(), dict[str, int]()
    for totals in found:
        spent += totals.spent
        for name, tokens in totals.sources:
            sources[name] = sources.get(name, 0) + tokens
    summed: dict[str, Any] = {name: sum(getattr(totals, name) for totals in found) for name in NUMBERS}
    for name in MONEY:
        amounts = [getattr(totals, name) for totals in found]
        summed[name] = None if None in amounts else sum(amounts)
    return Totals(spent=spent, sources=rank(sources), **summed)


NUMBERS = tuple(name for name in Totals.__dataclass_fields__ if name not in {"spent", "sources", *MONEY})
"""Fields of `Totals` that add up."""


def rank(sources: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Return tokens by source, most first, then by name; zeros are left out."""
    return tuple(sorted(((name, n) for name, n in sources.items() if n), key=lambda pair: (-pair[1], pair[0])))


def find_break_even(
    context_tokens: int, fresh_tokens: int, *, read: float = READ_SHARE, write: float = WRITE_SHARE
) -> float | None:
    """Return the turns after which a hand-off has paid for itself; None if it never does.

    Args:
        context_tokens: C.
        fresh_tokens: B + O.
        read: Price of a token read from the cache; both in the same unit.
        write: Price of one written to it.
    """
    less = context_tokens - fresh_tokens
    return fresh_tokens * write / (less * read) if less > 0 and read > 0 else None

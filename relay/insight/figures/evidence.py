"""Figures about the work: ticks with their gate and commit, the files of a phase, hand-offs."""

from relay.base.values import dataclass
from relay.session.events import ChangedFile, ShownFinding
from relay.session.gauge import Band

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
    """Of its output; empty in older logs."""


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
    """Empty in older logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEvidence:
    """The findings of one review round."""

    at: float
    phase_id: str
    """Empty if the change belongs to no phase."""
    round: int
    findings: tuple[ShownFinding, ...]
    """At most `fold.MOST_FINDINGS`."""
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

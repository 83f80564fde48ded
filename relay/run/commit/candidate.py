"""Values: a session's work as it is offered for a commit, and the commit step's answer."""

import re
from collections.abc import Mapping
from dataclasses import replace

from relay.base.hints import WHY, Command, Hint
from relay.base.values import dataclass
from relay.gate.model import GateResult
from relay.ledger.model import Ledger
from relay.plan.model import Item, Phase, Plan
from relay.plan.text import encode_text
from relay.store.attempts import OpenAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPlan:
    """HEAD's plan with the changes of an attempt's sessions, and its ledger."""

    head: Plan
    """HEAD's plan."""
    plan: Plan
    """HEAD's plan with amendments, and with a tick for each claim."""
    ledger: Ledger

    @property
    def claims(self) -> tuple[Item, ...]:
        """The items that are ticked here and not in HEAD, in order."""
        done = self.head.done_ids
        return tuple(item for item in self.plan.items if item.done and item.id not in done)

    @property
    def claimed_ids(self) -> tuple[str, ...]:
        return tuple(item.id for item in self.claims)

    def render_files(self, plan_path: str, ledger_path: str) -> Mapping[str, bytes]:
        """Return the bytes of both files by path; an empty ledger gets no file."""
        files = {plan_path: encode_text(self.plan.text)}
        if self.ledger.text:
            files[ledger_path] = encode_text(self.ledger.text)
        return files


_TOOK = re.compile(r"\d[\d.]* ?(?:ms|s|seconds?)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A session's proposal of a commit."""

    subject: str
    """Any text of the session; empty without one."""
    status: str
    """``done`` or ``handoff``."""
    gate_words: str
    """The last refusal of the commit step for the handoff note; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An attempt's work, offered for a commit."""

    phase: Phase
    attempt: OpenAttempt
    number: int
    """The number of the session within the phase."""
    pending: PendingPlan
    evidence: Mapping[str, str]
    """Item id → the session's evidence, for the commit's body."""
    touched: frozenset[str]
    """Paths that the session's file tools wrote."""
    commands: tuple[str, ...]
    """The gate: commands of the settings, the document and the phase."""
    baseline: GateResult | None
    """The gate before the phase; None if unknown, and then nothing red is excused."""
    subject: str
    """Any text of the session."""
    status: str
    """``done`` or ``handoff``."""
    handoff_note: str
    """For the body of a handoff commit; may be empty."""
    in_session: bool = True
    """Whether the author's session is still open: no reviewer is asked then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCommit:
    """The commit was made, and the attempt is closed."""

    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was committed."""

    for_user: str
    for_model: str = ""
    """Empty if no session can repair it."""
    ways: Hint = ""
    """How the user can repair it; shown after ``for_user``."""
    then: Command | None = None
    """The next command; None to look again, or to run again (`again`)."""
    for_review: bool = False
    """The work waits for its review, or for a session that repairs the findings; the attempt may have moved on."""
    once: bool = False
    """A session is asked once to repair it: the same refusal again means that it cannot."""
    again: bool = False
    """Somebody changed files meanwhile, or the machine failed: a second try may succeed."""

    def hold_against(self, earlier: "Refused") -> "Refused":
        """Return the refusal as one that no session can repair, if a session was told the same before."""
        told, before = (_TOOK.sub("#", one.for_model) for one in (self, earlier))
        return replace(self, for_model="") if self.once and told == before else self

    def choose_next(self, again: Command) -> Command:
        """Return the next command; running again only helps if the same refusal is not certain."""
        return self.then or (again if self.again else WHY)

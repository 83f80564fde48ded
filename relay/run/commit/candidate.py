"""What a session offers to be committed, and what the commit step answers. Values only."""

import re
from collections.abc import Mapping
from dataclasses import replace

from relay.base.hints import WHY, Command, Hint
from relay.base.values import dataclass
from relay.gate.model import GateResult
from relay.ledger import Ledger
from relay.plan.model import Item, Phase, Plan
from relay.plan.text import encode_text
from relay.store.legs import OpenLeg


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPlan:
    """HEAD's plan with what the sessions of a leg have changed, and the ledger that goes with it."""

    head: Plan
    """As HEAD has it."""
    plan: Plan
    """The same with amendments, and with a tick in each box that is claimed."""
    ledger: Ledger

    @property
    def claims(self) -> tuple[Item, ...]:
        """The items that are ticked here and not in HEAD, in order."""
        done = self.head.done_ids
        return tuple(item for item in self.plan.items if item.done and item.id not in done)

    @property
    def claimed_ids(self) -> tuple[str, ...]:
        """Their ids."""
        return tuple(item.id for item in self.claims)

    def render_files(self, plan_path: str, ledger_path: str) -> Mapping[str, bytes]:
        """Return the bytes to put at the two paths; no ledger file is made before there is a claim."""
        files = {plan_path: encode_text(self.plan.text)}
        if self.ledger.text:
            files[ledger_path] = encode_text(self.ledger.text)
        return files


_TOOK = re.compile(r"\d[\d.]* ?(?:ms|s|seconds?)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a session says of the commit that it asks for."""

    subject: str
    """May be anything; empty when it proposed none."""
    status: str
    """``done`` or ``handoff``."""
    gate_words: str
    """The last refusal of the commit step; empty without one. The baton of a hand-off says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What a leg wants to have committed."""

    phase: Phase
    leg: OpenLeg
    number: int
    """Of the session within the phase."""
    pending: PendingPlan
    evidence: Mapping[str, str]
    """Item id → what the session gave as evidence; goes into the commit's body."""
    touched: frozenset[str]
    """Paths that the session's file tools wrote."""
    commands: tuple[str, ...]
    """The gate: those of the settings, the document and the phase."""
    baseline: GateResult | None
    """None when it was not run, or is not known any more: then nothing red is excused."""
    subject: str
    """Proposed by the session; may be anything."""
    status: str
    """``done`` or ``handoff``."""
    baton: str
    """Goes into the body of a hand-off; may be empty."""
    in_session: bool = True
    """Whether the session that did it is still open: nothing else is asked of a model then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCommit:
    """The commit was made and the leg is closed."""

    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was committed."""

    for_user: str
    for_model: str = ""
    """Empty when no session can repair it."""
    ways: Hint = ""
    """What the user can do about it, behind ``for_user``."""
    then: Command | None = None
    """What to type next; None where that is to look again, or to run again (`again`)."""
    for_review: bool = False
    """It waits for its review, or for a session that repairs what was found; the leg may have moved on."""
    once: bool = False
    """A session is asked once to repair it: the same words again say that it cannot."""
    again: bool = False
    """Somebody was at work meanwhile, or the machine failed: the same may well be committed after another look."""

    def hold_against(self, earlier: "Refused") -> "Refused":
        """Return it as one that no session can repair, where a session was told the same before."""
        told, before = (_TOOK.sub("#", one.for_model) for one in (self, earlier))
        return replace(self, for_model="") if self.once and told == before else self

    def choose_next(self, again: Command) -> Command:
        """Return what to type next: to run again only where that need not meet the same."""
        return self.then or (again if self.again else WHY)

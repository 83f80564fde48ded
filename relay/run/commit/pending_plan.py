"""The plan and the ledger as the open phase would leave them. Pure.

While a leg runs, PLAN.md in the work tree stays as HEAD has it; claims, amendments and records live in the pending
plan, which every snapshot carries. The commit makes it the file.
"""

from collections.abc import Mapping

from relay.base.values import dataclass
from relay.ledger import Ledger
from relay.plan.files import encode_text
from relay.plan.model import Item, Plan


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

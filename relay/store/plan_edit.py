"""The plan's file compared with the plan at HEAD: which plan a run goes by, and what it commits of the file first.

The user may change everything that is still open, and where it stands. What relay ticked stays: whoever wants to take a
tick back commits that himself, and relay then reads it from HEAD like any other state.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import TYPE_CHECKING

from relay.base.errors import within
from relay.base.values import dataclass
from relay.plan.files import encode_text
from relay.plan.model import Plan, Violation
from relay.plan.parse import parse_plan
from relay.store.texts import find_text

if TYPE_CHECKING:
    from relay.git.repository import Repo


class EditKind(StrEnum):
    """What a run does about the plan's file."""

    NONE = "none"
    """HEAD has it as it is: nothing."""
    NEW = "new"
    """HEAD has no plan there, or one that this one takes the place of: it is committed."""
    AMENDED = "amended"
    """The user changed what is open: it is committed."""
    REFUSED = "refused"
    """What relay ticked was changed: the user has to undo or to commit that himself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEdit:
    """How the plan's file differs from HEAD's."""

    kind: EditKind
    plan: Plan
    """As a run goes by it."""
    before: Plan | None = None
    """As HEAD has it, where the file says something else."""
    violations: tuple[Violation, ...] = ()
    """Of a refused edit."""

    @property
    def is_committed(self) -> bool:
        """Whether a run makes a commit of it."""
        return self.kind in {EditKind.NEW, EditKind.AMENDED}


def find_edit(repo: "Repo", plan_path: str, shown: Plan, *, ticked: Collection[str] = ()) -> PlanEdit:
    """Compare the plan's file with HEAD's; nothing is changed.

    Args:
        plan_path: Relative to the root; an absolute one is of no commit.
        shown: The file as it is.
        ticked: Ids of items whose ticks are still to be put into the file: the commit that made them is not finished.

    Raises:
        PlanError: What HEAD has is no plan.
    """
    committed = find_text(repo, "HEAD", plan_path)
    if committed is None:
        return PlanEdit(kind=EditKind.NEW, plan=shown)
    if committed == shown.text or _is_unchanged(repo, plan_path):
        return PlanEdit(kind=EditKind.NONE, plan=shown)
    from relay.plan.lineage import check_ticks_kept

    before = parse_at(committed, plan_path)
    shown = put_ticks(before, shown, ticked)
    if not (violations := check_ticks_kept(before, shown)):
        return PlanEdit(kind=EditKind.AMENDED, plan=shown, before=before)
    kind = EditKind.NEW if _replaces(repo, plan_path, before, shown) else EditKind.REFUSED
    return PlanEdit(kind=kind, plan=shown, before=before, violations=() if kind is EditKind.NEW else violations)


def put_ticks(committed: Plan, shown: Plan, ticked: Collection[str]) -> Plan:
    """Return a plan that was edited meanwhile with ticks that a commit made; `ticked` are its ids."""
    if not ticked:
        return shown
    from relay.plan.lineage import find_lineage

    heirs = find_lineage(committed, shown).items
    return shown.tick([heirs[item] for item in ticked if item in heirs])


def parse_at(text: str, plan_path: str) -> Plan:
    """Parse a plan whose path an error names.

    Raises:
        PlanError: The plan cannot be used.
    """
    with within(plan_path):
        return parse_plan(text)


def _is_unchanged(repo: "Repo", plan_path: str) -> bool:
    """Return whether git takes the file for the one at HEAD: line endings may differ from the blob's."""
    from relay.git.status import read_status

    return plan_path not in read_status(repo, (plan_path,)).changed


def _is_another(committed: Plan, shown: Plan) -> bool:
    """Say whether a plan is another one, for the most part: one whose boxes were opened again is the same plan."""
    known = {item.text for item in committed.items}
    same = [item for item in shown.items if item.text in known]
    return not any(item.done for item in same) and len(same) * 2 < max(len(committed.items), len(shown.items))


def _replaces(repo: "Repo", plan_path: str, committed: Plan, shown: Plan) -> bool:
    """Say whether the file holds another plan: the old one is done, or relay itself wrote this one."""
    if committed.done and _is_another(committed, shown):
        return True
    from relay.store.planning_cost import read_written_plan

    written = read_written_plan(repo, plan_path)
    return written is not None and written == encode_text(shown.text)

"""The plan's file compared with the plan at HEAD: which plan a run goes by, and what it commits of the file first.

The user may change everything that is still open, and where it stands. What relay ticked stays: whoever wants to take a
tick back commits that himself, and relay then reads it from HEAD like any other state.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from relay.base.errors import within
from relay.base.values import dataclass
from relay.git.message import CommitText, read_texts, walk_texts
from relay.git.trees import find_entries
from relay.plan.edit import list_questions
from relay.plan.lineage import find_lineage
from relay.plan.model import Plan, Violation
from relay.plan.parse import find_plan_in, parse_plan
from relay.plan.text import encode_text
from relay.store import trailers
from relay.store.history import find_text

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.store.history import RelayCommit
    from relay.store.legs import OpenLeg


_MOST_READ = 32
"""Commits that are read one by one, down from HEAD; for more git is asked."""


def find_phases(
    repo: "Repo", plan_path: str, plan: Plan, commits: "Sequence[RelayCommit]", *, before: Plan | None = None
) -> Mapping[str, str]:
    """Return the phase of each of a plan's commits, as the plan calls it now; missing where that phase is gone.

    Args:
        plan: As it is now.
        commits: All of the plan's on the branch, newest first.
        before: The plan at HEAD; None where it has the same phases as `plan`.
    """
    if not any(commit.phase for commit in commits):
        return {}
    way = _Way(plan)
    if before is not None:
        way.go_back(before)
    names = tuple(dict.fromkeys((plan_path, *(commit.plan for commit in commits))))
    found: dict[str, str | None] = {}
    oldest = commits[-1]
    for text in _read_changes(repo, names, oldest):
        if text.get(trailers.PLAN) and text.get(trailers.STATUS) in {*trailers.LEG_STATUSES, trailers.REWOUND}:
            found[text.commit] = way.find(text.get(trailers.PHASE))
        elif text.commit != oldest.commit and text.parents and (earlier := _find_plan(repo, text.parents[0], names)):
            way.go_back(earlier)
    # A commit that did not touch the file is rare, and taken for one of the beginning.
    phases = {commit.commit: found.get(commit.commit, way.find(commit.phase)) for commit in commits}
    return {commit: phase for commit, phase in phases.items() if phase}


class _Way:
    """The way back from the plan as it is now. Mutable: goes from one version of the plan to an earlier one."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._names = {phase.id: phase.id for phase in plan.phases}

    def go_back(self, earlier: Plan) -> None:
        """Go to an earlier version."""
        phases = find_lineage(earlier, self._plan).phases
        self._plan = earlier
        self._names = {old: self._names[new] for old, new in phases.items() if new in self._names}

    def find(self, phase_id: str) -> str | None:
        """Return what a phase of this version is called now; None when it is gone."""
        return self._names.get(phase_id)


def _read_changes(repo: "Repo", names: tuple[str, ...], oldest: "RelayCommit") -> tuple[CommitText, ...]:
    """Return the commits that changed the plan's file, newest first, back to the oldest of relay's."""
    found = []
    for text in walk_texts(repo, repo.head() or "", _MOST_READ):
        parent = next(iter(text.parents), repo.empty_tree)
        now, before = (find_entries(repo, commit, names) for commit in (text.commit, parent))
        if now != before:
            found.append(text)
        if text.commit == oldest.commit:
            return tuple(found)
    below = tuple(f"^{parent}" for parent in oldest.parents)
    return read_texts(repo.git, "--topo-order", "HEAD", *below, "--", *names)


def _find_plan(repo: "Repo", commit: str, names: tuple[str, ...]) -> Plan | None:
    """Return the plan as a commit has it, under the first of its names; None when there is none that can be read."""
    text = next((text for name in names if (text := find_text(repo, commit, name)) is not None), None)
    return None if text is None else find_plan_in(text)


def find_leg_phase(repo: "Repo", leg: "OpenLeg", plan: Plan) -> str:
    """Return the phase that an open leg works on, as the plan calls it now; empty when it is gone."""
    text = find_text(repo, leg.base_head, leg.plan_path)
    before = None if text in {None, plan.text} else find_plan_in(text or "")
    if before is None or before.find_phase(leg.phase_id) is None:
        return leg.phase_id if plan.find_phase(leg.phase_id) else ""
    return find_lineage(before, plan).phases.get(leg.phase_id, "")


def find_claims(repo: "Repo", leg: "OpenLeg", plan_path: str, plan: Plan) -> tuple[str, ...]:
    """Return the items that the open leg claims, as the plan calls them now: those that are as they were, and open."""
    saved = _find_plan(repo, leg.last_wip.commit, (leg.plan_path, plan_path)) if leg.items and leg.last_wip else None
    phase = plan.find_phase(find_leg_phase(repo, leg, plan))
    if saved is None or phase is None:
        return ()
    heirs = find_lineage(saved, plan).items
    claimed = {heirs.get(item) for item in find_ticks_of_leg(repo, leg, saved)}
    return tuple(item.id for item in phase.open_items if item.id in claimed)


def find_ticks_of_leg(repo: "Repo", leg: "OpenLeg", saved: Plan) -> frozenset[str]:
    """Return what the plan in a leg's snapshot has ticked and its start had not, as the snapshot calls it.

    The boxes say it, not the ids that the snapshot lists: an earlier relay called items otherwise.
    """
    start = _find_plan(repo, leg.base_head, (leg.plan_path,)) if leg.base_head else None
    heirs = find_lineage(start, saved).items if start else {}
    return saved.done_ids - {heirs[item] for item in (start.done_ids if start else ()) if item in heirs}


def find_questions(repo: "Repo", leg: "OpenLeg | None", plan_path: str, plan: Plan) -> tuple[str, ...]:
    """Return what sessions left the user to answer: in the plan's notes, and in those that the open leg is to add."""
    asked = [question.text for question in list_questions(plan)]
    if leg is not None and leg.last_wip is not None and leg.plan_path == plan_path:
        start, saved = (_find_plan(repo, at, (plan_path,)) for at in (leg.base_head or "", leg.last_wip.commit))
        known = list_questions(start) if start else ()
        asked += [question.text for question in (list_questions(saved) if saved else ()) if question not in known]
    return tuple(dict.fromkeys(asked))


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
    from relay.store.spend import read_written_plan

    written = read_written_plan(repo, plan_path)
    return written is not None and written == encode_text(shown.text)

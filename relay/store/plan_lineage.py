"""Which phase of the plan as it is now a commit or the open leg worked on: a number in a trailer is of its own time.

The plan's file says what a number meant: each commit holds it. Between two commits of phases numbers stay, because the
guard keeps them; where a person, or a planner, changed the file, its phases are found again by what they say.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from relay.git.message import CommitText, list_loose_texts, read_texts
from relay.git.trees import find_entries
from relay.plan.edit import list_questions
from relay.plan.lineage import find_lineage
from relay.plan.model import Plan
from relay.plan.parse import find_plan_in
from relay.store import trailers
from relay.store.texts import find_text

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
    for text in list_loose_texts(repo, repo.head() or "", _MOST_READ):
        parent = next(iter(text.parents), repo.empty_tree)
        now, before = (find_entries(repo, commit, names) for commit in (text.commit, parent))
        if now is None or before is None:
            break
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

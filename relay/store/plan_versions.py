"""Versions of the plan's file: which plan a run follows, and what it commits of the file first.

The user may change everything that is still open, and its order. Boxes that relay ticked stay: a user who takes a tick
back commits that change, and relay then reads it from HEAD like any other state.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from relay.base.errors import within
from relay.base.values import dataclass
from relay.git.message import read_text
from relay.plan.edit import list_questions
from relay.plan.lineage import find_lineage
from relay.plan.model import Plan, Violation
from relay.plan.operations import Replayed, read_operations, replay
from relay.plan.parse import find_plan_in, parse_plan
from relay.plan.text import decode_text, encode_text
from relay.store import trailers
from relay.store.history import find_text, walk_changes
from relay.store.loose import find_meant, is_loose, read_own, require_versions, take_back_reverted

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.store.attempts import OpenAttempt
    from relay.store.history import RelayCommit


def find_phases(
    repo: "Repo", plan_path: str, plan: Plan, commits: "Sequence[RelayCommit]", *, before: Plan | None = None
) -> Mapping[str, str]:
    """Return the phase of each of a plan's commits, by its present id; a commit whose phase is gone is missing.

    Args:
        plan: As it is now.
        commits: All of the plan's commits on the branch, newest first.
        before: The plan at HEAD; None if it has the same phases as `plan`.
    """
    if not any(commit.phase for commit in commits):
        return {}
    way = _Way(plan)
    if before is not None:
        way.go_back(before)
    names = tuple(dict.fromkeys((plan_path, *(commit.plan for commit in commits))))
    found: dict[str, str | None] = {}
    oldest = commits[-1]
    changes = walk_changes(
        repo, repo.head() or "", names, order="--topo-order", last=oldest.commit, below=oldest.parents
    )
    for text in changes:
        if text.get(trailers.PLAN) and text.get(trailers.STATUS) in trailers.ATTEMPT_STATUSES:
            found[text.commit] = way.find(text.get(trailers.PHASE))
        elif text.commit != oldest.commit and text.parents and (earlier := _find_plan(repo, text.parents[0], names)):
            way.go_back(earlier)
    # A commit that did not touch the file is rare, and taken for one of the beginning.
    phases = {commit.commit: found.get(commit.commit, way.find(commit.phase)) for commit in commits}
    return {commit: phase for commit, phase in phases.items() if phase}


class _Way:
    """The way back through the plan's versions. Mutable: goes from one version to an earlier one."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._names = {phase.id: phase.id for phase in plan.phases}

    def go_back(self, earlier: Plan) -> None:
        """Go to an earlier version."""
        phases = find_lineage(earlier, self._plan).phases
        self._plan = earlier
        self._names = {old: self._names[new] for old, new in phases.items() if new in self._names}

    def find(self, phase_id: str) -> str | None:
        """Return the present id of a phase of this version; None if it is gone."""
        return self._names.get(phase_id)


def _find_plan(repo: "Repo", commit: str, names: tuple[str, ...]) -> Plan | None:
    """Return the plan in a commit, under the first of its names; None if there is none that can be read."""
    text = next((text for name in names if (text := find_text(repo, commit, name)) is not None), None)
    return None if text is None else find_plan_in(text)


def find_attempt_phase(repo: "Repo", attempt: "OpenAttempt", plan: Plan) -> str:
    """Return the present id of the phase that an open attempt works on; empty if it is gone."""
    saved = attempt.last_wip.commit if attempt.last_wip else None
    phase_id = attempt.saved.phase or attempt.phase_id  # as that snapshot's plan has it
    return find_present_phase(repo, phase_id, plan, attempt.plan_path, (saved, attempt.base_head))


def find_present_phase(repo: "Repo", phase_id: str, plan: Plan, plan_path: str, commits: "Iterable[str | None]") -> str:
    """Return the present id of a phase that had `phase_id` in the plan of the first of these commits that has one.

    Empty if it is gone.
    """
    text = next((text for commit in commits if commit and (text := find_text(repo, commit, plan_path))), None)
    before = None if text in {None, plan.text} else find_plan_in(text or "")
    if before is None or before.find_phase(phase_id) is None:
        return phase_id if plan.find_phase(phase_id) else ""
    return find_lineage(before, plan).phases.get(phase_id, "")


def read_versions(repo: "Repo", attempt: "OpenAttempt", plan_path: str) -> tuple[Plan, Plan] | None:
    """Return the plan at the open attempt's start, and in its newest snapshot; None without them."""
    names = (attempt.plan_path, plan_path)
    saved = _find_plan(repo, attempt.last_wip.commit, names) if attempt.last_wip else None
    start = _find_plan(repo, attempt.base_head, names) if attempt.base_head else None
    return (start, saved) if saved and start else None


def replay_attempt(repo: "Repo", attempt: "OpenAttempt", plan_path: str, plan: Plan) -> Replayed:
    """Do what the open attempt's sessions did on `plan`, which may be what they started from or another version."""
    found = read_versions(repo, attempt, plan_path)
    return replay(read_operations(*found), found[1], plan) if found else Replayed(plan=plan)


def find_claims(repo: "Repo", attempt: "OpenAttempt", plan_path: str, plan: Plan) -> tuple[str, ...]:
    """Return the items that the open attempt claims, by their present ids: those that are unchanged and open."""
    phase = plan.find_phase(find_attempt_phase(repo, attempt, plan)) if attempt.items else None
    if phase is None:
        return ()
    replayed = replay_attempt(repo, attempt, plan_path, plan)
    claimed = replayed.plan.done_ids - replayed.reworded.keys()
    return tuple(item.id for item in phase.open_items if item.id in claimed)


def find_questions(repo: "Repo", attempt: "OpenAttempt | None", plan_path: str, plan: Plan) -> tuple[str, ...]:
    """Return the questions that sessions left for the user, in the plan's notes and in the open attempt's new notes."""
    asked = [question.text for question in list_questions(plan)]
    if attempt is not None and attempt.last_wip is not None and attempt.plan_path == plan_path:
        start, saved = (_find_plan(repo, at, (plan_path,)) for at in (attempt.base_head or "", attempt.last_wip.commit))
        known = list_questions(start) if start else ()
        asked += [question.text for question in (list_questions(saved) if saved else ()) if question not in known]
    return tuple(dict.fromkeys(asked))


class EditKind(StrEnum):
    """What a run does about the plan's file."""

    NONE = "none"
    """The file is as in HEAD: nothing."""
    NEW = "new"
    """HEAD has no plan there, or one that this one replaces: a run commits the file."""
    AMENDED = "amended"
    """The user changed what is open: a run commits the file."""
    REFUSED = "refused"
    """What relay ticked was changed: the user must undo or commit that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEdit:
    """How the plan's file differs from HEAD's."""

    kind: EditKind
    plan: Plan
    """The plan that a run follows."""
    before: Plan | None = None
    """HEAD's plan, if the file differs from it."""
    violations: tuple[Violation, ...] = ()
    """Why an edit is refused."""
    is_loose: bool = False
    """Whether no commit holds the plan; said of a refused edit."""

    @property
    def is_committed(self) -> bool:
        """Whether a run commits the edit."""
        return self.kind in {EditKind.NEW, EditKind.AMENDED}


def find_edit(repo: "Repo", plan_path: str, shown: Plan, *, unfinished: str = "") -> PlanEdit:
    """Compare the plan's file with HEAD's; nothing is changed.

    Args:
        plan_path: Relative to the root, or outside (`relay.base.places`).
        shown: The file as it is.
        unfinished: HEAD, if relay was killed before it did in the file what this commit did to the plan; else empty.

    Raises:
        PlanError: HEAD's text is no plan.
    """
    committed = find_text(repo, "HEAD", plan_path)
    if committed is None:
        require_versions(repo, plan_path)
        return PlanEdit(kind=EditKind.NEW, plan=shown)
    loose = is_loose(repo, plan_path)
    if not loose and (committed == shown.text or _is_unchanged(repo, plan_path)):
        return PlanEdit(kind=EditKind.NONE, plan=shown)
    before = parse_at(committed, plan_path)
    before = take_back_reverted(repo, plan_path, before) if loose else before
    if before.text == shown.text == committed:
        return PlanEdit(kind=EditKind.NONE, plan=shown)
    from relay.plan.lineage import check_ticks_kept

    shown = replay_commit(repo, plan_path, unfinished, shown).plan if unfinished else shown
    violations = check_ticks_kept(before, shown)
    if violations and _replaces(repo, plan_path, before, shown):
        return PlanEdit(kind=EditKind.NEW, plan=shown, before=before)
    if loose and (meant := find_meant(repo, plan_path, before, shown)):
        kind = EditKind.NONE if meant.text == committed else EditKind.AMENDED
        return PlanEdit(kind=kind, plan=meant, before=before)
    if not violations:
        return PlanEdit(kind=EditKind.AMENDED, plan=shown, before=before)
    return PlanEdit(kind=EditKind.REFUSED, plan=shown, before=before, violations=violations, is_loose=loose)


def replay_commit(repo: "Repo", plan_path: str, commit: str, shown: Plan) -> Replayed:
    """Do what a commit of relay did to the plan on a version that was edited meanwhile."""
    own = _find_plan(repo, commit, (plan_path,))
    parents = read_text(repo, commit).parents
    start = _find_plan(repo, parents[0], (plan_path,)) if parents else None
    return replay(read_operations(start, own), own, shown) if start and own else Replayed(plan=shown)


def parse_at(text: str, plan_path: str) -> Plan:
    """Parse a plan; an error names its path.

    Raises:
        PlanError: The plan cannot be used.
    """
    with within(plan_path):
        return parse_plan(text)


def _is_unchanged(repo: "Repo", plan_path: str) -> bool:
    """Return whether git takes the file for HEAD's: line endings may differ from the blob's."""
    from relay.git.status import read_status

    return plan_path not in read_status(repo, (plan_path,)).changed


def _is_another(committed: Plan, shown: Plan) -> bool:
    """Return whether most of the plan is new. A plan whose boxes were opened again is the same plan."""
    known = {item.text for item in committed.items}
    same = [item for item in shown.items if item.text in known]
    return not any(item.done for item in same) and len(same) * 2 < max(len(committed.items), len(shown.items))


def holds_another_plan(repo: "Repo", plan_path: str) -> bool:
    """Return whether the file holds another plan than HEAD's, which no commit has yet."""
    before, content = find_text(repo, "HEAD", plan_path), read_own(repo, plan_path)
    if before is None or content is None or content == encode_text(before):
        return False
    committed, shown = find_plan_in(before), find_plan_in(decode_text(content))
    return committed is not None and shown is not None and _replaces(repo, plan_path, committed, shown)


def _replaces(repo: "Repo", plan_path: str, committed: Plan, shown: Plan) -> bool:
    """Return whether the file holds another plan: the old one is done, or relay itself wrote this one."""
    if committed.done and _is_another(committed, shown):
        return True
    from relay.store.spend import read_written_plan

    written = read_written_plan(repo, plan_path)
    return written is not None and written == encode_text(shown.text)

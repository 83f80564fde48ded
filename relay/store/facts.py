"""Reading from git what decides where a run stands: the facts that `relay.store.resume` turns into a deed."""

from dataclasses import replace

from relay.base.tree import find_boot_id, find_stat
from relay.git.config_guard import guard
from relay.git.message import CommitText
from relay.git.names import parse_path
from relay.git.objects import diff_trees, read_entries
from relay.git.repository import Repo
from relay.git.status import ChangeKind
from relay.plan.model import Plan
from relay.plan.text import encode_text, find_ledger_path
from relay.store.completion import find_pending_move, hash_cleaned
from relay.store.history import RelayCommit, find_text, read_relay_commits
from relay.store.legs import OpenLeg, find_leg_changes, find_place_id, find_proposal, read_leg
from relay.store.plan_versions import PlanEdit, find_leg_phase
from relay.store.resume import Facts, Kept, LegFacts
from relay.store.snapshot import TreeSnapshot, find_unheld, write_snapshot_tree
from relay.store.trailers import LEG_STATUSES, PLAN, REVIEWED, REWOUND, STATUS, parse_count


def read_kept(repo: Repo, plan_path: str) -> Kept:
    """Read what relay keeps for the branch, and which commit is not finished."""
    leg = read_leg(repo)
    commit = find_leg_commit(repo, leg) if leg is not None else None
    if leg is not None and commit is None and is_of_another_plan(repo, leg, plan_path):
        return Kept(foreign=leg)
    move = find_pending_move(repo)
    if move is not None and move.get(STATUS) == REWOUND and parse_path(move.get(PLAN)) != plan_path:
        move = None
    unfinished = commit if commit is not None and is_current(repo, commit) else move
    return Kept(leg=leg, leg_commit=commit, move=move, unfinished=unfinished)


def read_facts(repo: Repo, edit: PlanEdit, kept: Kept, plan_path: str) -> Facts:
    """Read where the branch, the open leg and the work tree stand; the caller holds the work tree's lock."""
    own = (plan_path, find_ledger_path(plan_path))
    leg = None
    if kept.leg is not None:
        phase_id = find_leg_phase(repo, kept.leg, edit.plan)
        leg = replace(_read_leg_facts(repo, kept.leg, own), phase_id=phase_id, committed=kept.leg_commit is not None)
    return Facts(plan=edit.plan, head=repo.head(), boot_id=find_boot_id(), leg=leg, is_edited=edit.is_committed)


def _read_leg_facts(repo: Repo, leg: OpenLeg, own: tuple[str, ...]) -> LegFacts:
    """Compare the work tree with how the leg began and with its newest snapshot, but for the files relay drafts."""
    snapshot = write_snapshot_tree(repo)
    now = snapshot.tree
    saved = leg.last_wip.tree if leg.last_wip else leg.base_tree
    since_start = _differs(repo, leg.base_tree, now, own)
    return LegFacts(
        session_id=leg.session_id,
        phase_id=leg.phase_id,
        began_as=leg.phase_id,
        base_head=leg.base_head,
        boot_id=leg.boot_id,
        elsewhere=leg.place not in {"", find_place_id(repo)},
        claims=leg.items,
        handed_over=bool(leg.baton),
        proposed=find_proposal(leg) is not None,
        faults=_count_faults(leg),
        merges=leg.merges,
        touched=since_start or bool(leg.items) or _differs(repo, leg.base_tree, saved, own),
        saved=not _differs(repo, saved, now, own),
        discarded=_find_discarded(repo, leg, snapshot, own),
    )


def _count_faults(leg: OpenLeg) -> int:
    """Return how many faults the newest review of the leg's phase confirmed; 0 where there was none."""
    found = [value.rpartition(" confirmed=")[2] for key, value in leg.carried if key == REVIEWED]
    return parse_count(found[-1], 0) if found else 0


def find_leg_commit(repo: Repo, leg: OpenLeg) -> RelayCommit | None:
    """Return the commit that the leg's session has on the branch; others may be on top of it."""
    if repo.head() == leg.base_head:
        return None
    since = read_relay_commits(repo, leg.plan_path, newer_than=leg.base_head or "")
    return next(
        (commit for commit in since if commit.session == leg.session_id and commit.status in LEG_STATUSES), None
    )


def is_current(repo: Repo, commit: RelayCommit) -> bool:
    """Say whether every file that a commit changed is at HEAD as that commit has it."""
    head = repo.head() or repo.empty_tree
    since = {change.path for change in diff_trees(repo, commit.commit, head)}
    changed = diff_trees(repo, commit.parents[0] if commit.parents else repo.empty_tree, commit.commit)
    return since.isdisjoint(change.path for change in changed)


def find_projected(repo: Repo, plan_path: str, commit: CommitText | RelayCommit, shown: Plan) -> str | None:
    """Return the plan's text in a commit that is not finished, where finishing it puts that into the plan's file.

    None where the file stays as it is: it is not what the commit's parent has.
    """
    if not commit.parents:
        return None
    old = read_entries(repo, commit.parents[0], (plan_path,)).get(plan_path)
    if old is None or hash_cleaned(guard(repo).git, plan_path, encode_text(shown.text), old[1]) != old[1]:
        return None
    return find_text(repo, commit.commit, plan_path)


def _find_discarded(repo: Repo, leg: OpenLeg, now: TreeSnapshot, own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files of the leg's newest snapshot that the work tree has as before the leg, or not at all."""
    if leg.last_wip is None:
        return ()
    since = {change.path: change.kind for change in diff_trees(repo, leg.last_wip.tree, now.tree)}
    work = [c.path for c in find_leg_changes(repo, leg, leg.last_wip) if c.path in since and c.path not in own]
    left_out = find_unheld(repo, leg.base_head, work, now.skipped, leg.last_wip.skipped) if work else ()
    still = {change.path for change in diff_trees(repo, leg.base_tree, now.tree)} if work else set()
    gone = (path for path in work if path not in still or since[path] is ChangeKind.DELETED)
    return tuple(path for path in gone if path not in left_out)


def _differs(repo: Repo, a: str, b: str, own: tuple[str, ...]) -> bool:
    return any(change.path not in own for change in diff_trees(repo, a, b))


def is_of_another_plan(repo: Repo, leg: OpenLeg, plan_path: str) -> bool:
    """Return whether the open leg works on another plan than this; one that is gone got a new name."""
    return leg.plan_path not in {"", plan_path} and find_stat(repo.root, leg.plan_path) is not None

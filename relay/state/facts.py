"""Reading from git what decides where a run stands: the facts that `relay.state.resume` turns into a deed."""

from dataclasses import dataclass

from relay.files.tree import find_stat
from relay.git.objects import diff_trees
from relay.git.repository import Repo
from relay.git.status import ChangeKind
from relay.plan.files import find_ledger_path
from relay.plan.model import Plan
from relay.state.resume import Facts, LegFacts
from relay.store.history import RelayCommit, read_relay_commits
from relay.store.legs import OpenLeg, find_leg_changes, find_place_id, read_leg
from relay.store.snapshot import TreeSnapshot, find_unheld, write_snapshot_tree

LEG_STATUSES = frozenset({"done", "handoff"})
"""Values of ``Relay-Status`` that a leg's own commit has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The facts, and the leg they were read from."""

    facts: Facts
    leg: OpenLeg | None


def read_standing(repo: Repo, plan: Plan, plan_path: str, *, boot_id: str) -> Standing:
    """Read where the branch, the open leg and the work tree stand; the caller holds the work tree's lock.

    Args:
        repo: The repository.
        plan: As HEAD has it.
        plan_path: Relative to the root.
        boot_id: Of the running system.
    """
    head = repo.head()
    leg = read_leg(repo)
    facts = Facts(
        plan=plan,
        head=head,
        boot_id=boot_id,
        leg=_read_leg_facts(repo, leg, (plan_path, find_ledger_path(plan_path))) if leg else None,
    )
    return Standing(facts=facts, leg=leg)


def _read_leg_facts(repo: Repo, leg: OpenLeg, own: tuple[str, ...]) -> LegFacts:
    """Compare the work tree with how the leg began and with its newest snapshot, but for the files relay drafts."""
    snapshot = write_snapshot_tree(repo)
    now = snapshot.tree
    saved = leg.last_wip.tree if leg.last_wip else leg.base_tree
    since_start = _differs(repo, leg.base_tree, now, own)
    return LegFacts(
        session_id=leg.session_id,
        phase_id=leg.phase_id,
        base_head=leg.base_head,
        boot_id=leg.boot_id,
        elsewhere=leg.place not in {"", find_place_id(repo)},
        claims=leg.items,
        handed_over=bool(leg.baton),
        touched=since_start or bool(leg.items) or _differs(repo, leg.base_tree, saved, own),
        saved=not _differs(repo, saved, now, own),
        committed=find_leg_commit(repo, leg) is not None,
        discarded=_find_discarded(repo, leg, snapshot, own),
    )


def find_leg_commit(repo: Repo, leg: OpenLeg) -> RelayCommit | None:
    """Return the commit that the leg's session has on the branch; others may be on top of it."""
    if repo.head() == leg.base_head:
        return None
    since = read_relay_commits(repo, leg.plan_path, newer_than=leg.base_head or "")
    return next(
        (commit for commit in since if commit.session == leg.session_id and commit.status in LEG_STATUSES), None
    )


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

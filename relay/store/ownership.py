"""Whose a changed file is: the sessions' of an open leg, or the user's, which relay never commits."""

from collections.abc import Iterable

from relay.git.names import parse_path
from relay.git.objects import diff_trees
from relay.git.repository import Repo
from relay.git.status import PathChange
from relay.plan.files import find_ledger_path
from relay.store.environment import find_earlier_paths, load_environment
from relay.store.legs import OpenLeg, find_leg_changes
from relay.store.snapshot import TreeSnapshot
from relay.store.trailers import LEFTOVER


def find_owned_paths(repo: Repo, plan_path: str, leg: OpenLeg, now: TreeSnapshot) -> tuple[str, ...]:
    """Return what the sessions of a leg changed: neither the user's dirt nor what only relay writes."""
    changes = find_leg_changes(repo, leg, now)
    environment = load_environment(repo, leg.environment)
    user = find_user_paths(repo, leg) | find_earlier_paths(repo, environment, changes)
    return select_owned(plan_path, leg, user, changes)


def select_owned(plan_path: str, leg: OpenLeg, user: frozenset[str], changes: Iterable[PathChange]) -> tuple[str, ...]:
    """Return the paths of those changes that are neither the user's nor of the files that only relay writes."""
    # A plan that was renamed meanwhile has two names.
    plans = {plan_path, leg.plan_path or plan_path}
    others = {*user, *plans, *map(find_ledger_path, plans)}
    return tuple(change.path for change in changes if change.path not in others and not change.is_submodule)


def find_user_paths(repo: Repo, leg: OpenLeg) -> frozenset[str]:
    """Return what differed from HEAD when the leg began: the user's, and never committed.

    Not among them is what the verify commands left behind just before: a session may change and commit that.
    """
    left = {parse_path(value) for key, value in leg.trailers if key == LEFTOVER}
    changes = diff_trees(repo, leg.base_head or repo.empty_tree, leg.base_tree)
    return frozenset(change.path for change in changes) - left

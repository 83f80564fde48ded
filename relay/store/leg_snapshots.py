"""Saving what an open leg has done: a snapshot on top of its last one, with what its session notes."""

from collections.abc import Mapping
from dataclasses import replace

from relay.base.errors import RepoError
from relay.base.hints import ANOTHER_RELAY
from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.lock_journal import claim_collections
from relay.git.message import Message, make_line
from relay.git.names import render_path
from relay.git.repository import Repo
from relay.session.usage import Spent
from relay.store import trailers
from relay.store.legs import OpenLeg, render_skipped
from relay.store.session_cost import find_spent
from relay.store.snapshot import KnownPaths, Snapshot, TreeSnapshot, write_snapshot_tree
from relay.store.trailers import REPLACED

_COST = frozenset({trailers.USAGE, trailers.COST})


@dataclass(frozen=True, slots=True, kw_only=True)
class WipRecord:
    """What goes into a snapshot besides the files."""

    spend: Spent
    items: tuple[str, ...] = ()
    baton: str = ""
    replace: Mapping[str, bytes] | None = None
    """Bytes to put into the tree in place of the work tree's: the plan with its claims ticked."""
    paths: tuple[str, ...] | None = None
    """The only paths that changed since the last snapshot of this leg; None when unknown."""
    trailers: tuple[tuple[str, str], ...] = ()
    """Further ones, kept and handed back with the open leg."""


def save_wip(repo: Repo, leg: OpenLeg, record: WipRecord) -> OpenLeg:
    """Snapshot the work tree on top of the leg's last snapshot and return the leg as it is now.

    Raises:
        RepoError: The snapshot cannot be stored, or another process moved the leg's snapshot ref.
    """
    last = leg.last_wip
    known = KnownPaths(paths=record.paths, previous=last) if last else None
    with repo.storing_together() as together:
        found = write_snapshot_tree(together, replace=record.replace, known=known)
        if last and _is_noted(repo, leg, record, found):
            return replace(leg, last_wip=Snapshot.of(found, last.commit))
        return save_snapshots(together, leg, record, found)


def _is_noted(repo: Repo, leg: OpenLeg, record: WipRecord, found: TreeSnapshot) -> bool:
    """Return whether the last snapshot says all of this but the cost, which `relay.store.session_cost` has."""
    said = tuple((key, value) for key, value in leg.wip_trailers if key not in _COST)
    lines = _make_lines(_list_trailers(leg, record, found))
    return (
        leg.last_wip is not None
        and (leg.last_wip.tree, leg.baton) == (found.tree, record.baton)
        and said == tuple((key, value) for key, value in lines if key not in _COST)
        and find_spent(repo, leg.session_id) is not None
    )


def save_snapshots(repo: Repo, leg: OpenLeg, record: WipRecord, *snapshots: TreeSnapshot) -> OpenLeg:
    """Store snapshots on top of the leg's last one, in their order: the ref moves once, to the last of them.

    Raises:
        RepoError: Another process moved the leg's snapshot ref.
    """
    last = leg.last_wip
    claim_collections(repo)
    for snapshot in snapshots:
        leg = _write_snapshot(repo, leg, record, snapshot)
    if leg.last_wip and not refs.move_ref(repo, leg.wip_ref, leg.last_wip.commit, last.commit if last else None):
        raise RepoError(f"{leg.wip_ref} was moved by somebody else", hint=ANOTHER_RELAY)
    return leg


def _write_snapshot(repo: Repo, leg: OpenLeg, record: WipRecord, found: TreeSnapshot) -> OpenLeg:
    """Store a snapshot that no ref holds yet."""
    kept = _list_trailers(leg, record, found)
    message = Message(subject=f"relay: snapshot of phase {leg.phase_id}", body=record.baton, trailers=kept)
    parent = leg.last_wip.commit if leg.last_wip else leg.commit
    commit = objects.write_commit(repo, found.tree, (parent,), message)
    return replace(
        leg,
        last_wip=Snapshot.of(found, commit),
        spend=record.spend,
        items=record.items,
        baton=record.baton,
        wip_trailers=_make_lines(kept),
    )


def _list_trailers(leg: OpenLeg, record: WipRecord, found: TreeSnapshot) -> tuple[tuple[str, str], ...]:
    return (
        (trailers.PLAN, render_path(leg.plan_path)),
        (trailers.PHASE, leg.phase_id),
        (trailers.SESSION, leg.session_id),
        (trailers.ITEMS, " ".join(record.items)),
        *trailers.render_spent(record.spend),
        *render_skipped(found.skipped),
        *((REPLACED, render_path(path)) for path in found.replaced),
        *leg.carried,
        *record.trailers,
    )


def _make_lines(kept: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return trailers as they are read back."""
    return tuple((key, line) for key, value in kept if (line := make_line(value)))

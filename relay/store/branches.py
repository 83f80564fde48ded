"""Branches: how the branch, the open leg and the work tree relate, and moves of a branch with index and files.

`relay.store.resume` decides from the facts that this module reads. relay also makes a branch for a plan, where HEAD is,
and puts HEAD on it; no file is touched by that.
"""

import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from shlex import quote

from relay.base.errors import RepoError
from relay.base.hints import RUN
from relay.base.tree import find_boot_id, find_stat
from relay.git import objects, refs
from relay.git.config_guard import guard
from relay.git.message import CommitText
from relay.git.names import parse_ref_part
from relay.git.notes import lock_worktree
from relay.git.objects import RELAY_IDENTITY, diff_trees, read_entries
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange, read_status
from relay.git.trees import find_entries
from relay.plan.model import Plan
from relay.plan.text import encode_text, find_ledger_path
from relay.store.completion import find_pending_move, finish_pending, hash_cleaned, note_pending, withdraw_pending
from relay.store.history import RelayCommit, find_text, read_relay_commits
from relay.store.legs import OpenLeg, find_leg_changes, find_place_id, find_proposal, read_leg
from relay.store.plan_versions import PlanEdit, find_leg_phase
from relay.store.refs import LEGS, find_leg_ref
from relay.store.resume import Facts, Kept, LegFacts
from relay.store.snapshot import TreeSnapshot, find_unheld, write_snapshot_tree
from relay.store.trailers import LEG_STATUSES, REVIEWED, parse_count


def move_branch(
    repo: Repo, branch: str, old: str, new: str, *, reason: str, identity: Mapping[str, str] = RELAY_IDENTITY
) -> tuple[str, ...] | None:
    """Move the branch that HEAD names from one commit to another, by compare-and-swap; index and files follow.

    The move is noted first, so the next run finishes it after a kill. A file that is not exactly as in `old` stays as
    it is and is named in the result, never written over (`find_in_the_way` lists such files beforehand).

    Args:
        repo: The repository; the caller holds the work tree's lock.
        branch: The branch that HEAD must name.
        old: The commit that it must be at.
        new: The commit that it goes to.

    Returns:
        One sentence per file, or for the index, that could not be updated. None if HEAD or the branch was somewhere
            else;
        nothing has changed then.
    """
    # Note it before the branch moves: a note without a move is harmless, a move without a note may leave files behind.
    note_pending(repo, new, old, is_whole=True)
    if repo.branch != branch or not refs.move_ref(
        repo, f"refs/heads/{branch}", new, old, identity=identity, reason=reason
    ):
        withdraw_pending(repo, new)
        return None
    return finish_pending(repo)


def find_in_the_way(repo: Repo, old: str, new: str, *, at: str = "") -> tuple[str, ...]:
    """Return the user's paths that would have to stay as they are when the files move from `old` to `new`.

    These are files with uncommitted changes, and untracked paths where new files or their directories would go.

    Args:
        at: The commit that the work tree is at; empty for `old`.
    """
    changes = objects.diff_trees(repo, old, new)
    changed = set(read_status(repo).changed) if changes else set[str]()
    is_there = changes and at not in {"", old}
    tracked = find_entries(repo, at, [change.path for change in changes]) if is_there else {}
    coming = tuple(change for change in changes if change.kind is ChangeKind.DELETED or change.path not in tracked)
    return tuple(sorted({*(c.path for c in changes if c.path in changed), *_find_untracked(repo, coming)}))


def _find_untracked(repo: Repo, changes: tuple[PathChange, ...]) -> tuple[str, ...]:
    """Return the untracked paths where new files or their directories would go; not those that these changes remove."""
    gone = {change.path for change in changes if change.kind is ChangeKind.DELETED}
    emptied = gone.union(*(_find_parents(path) for path in gone))
    added = [change.path for change in changes if change.kind is ChangeKind.ADDED]
    found = {place for path in added for place in _find_parents(path) if _is_there(repo, place, directory=False)}
    found.update(path for path in added if _is_there(repo, path, directory=False))
    for path in added:
        if _is_there(repo, path, directory=True):
            found.update((path, *(str(place.relative_to(repo.root)) for place in (repo.root / path).rglob("*"))))
    return tuple(sorted(found - emptied))


def _find_parents(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents][:-1]


def _is_there(repo: Repo, path: str, *, directory: bool) -> bool:
    found = find_stat(repo.root, path)
    return found is not None and stat.S_ISDIR(found.st_mode) is directory


PREFIX = "relay/"
_LONGEST_CHARS = 48


def name_branch(title: str, plan_path: str) -> str:
    """Return the name of a plan's branch, from its title, or from its file's name if the title has no letters."""
    words = _slug(title) or _slug(plan_path.rpartition("/")[2].rpartition(".")[0]) or "plan"
    return PREFIX + words


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_CHARS].strip("-")


def begin_branch(repo: Repo, name: str) -> bool:
    """Make the branch of that name at HEAD's commit and put HEAD on it, while no other relay is at work.

    The next run moves an open phase to the new branch (`take_along`).

    Returns:
        False when HEAD is on one of relay's branches already; nothing has changed then.

    Raises:
        RepoError: The branch exists at another commit, a phase is open here that cannot move, or another relay is at
            work.
    """
    with lock_worktree(repo):
        return _begin(repo, name)


def _begin(repo: Repo, name: str) -> bool:
    here, head = repo.branch, repo.head()
    if here is not None and here.startswith(PREFIX):
        return False
    leg = read_leg(repo)
    if leg is not None and not _is_at(repo, leg):
        raise RepoError(f"a phase is open on {here}: it goes on there", hint=RUN)
    ref = f"refs/heads/{name}"
    if refs.find_ref(repo, ref) is not None or (head is not None and not refs.move_ref(repo, ref, head, None)):
        raise RepoError(f"there is a branch {name} already", hint=f"git switch {quote(name)}")
    repo.git.run("symbolic-ref", "-m", "relay: a branch for the plan", "HEAD", ref)
    return True


def take_along(repo: Repo) -> tuple[str, ...]:
    """Move an open phase from another branch to HEAD's branch, if its work is in the files here.

    That happens when somebody made this branch where the phase was open, or renamed the other branch. The caller holds
    the work tree's lock.

    Returns:
        A sentence if a phase was moved.
    """
    for leg in find_along(repo):
        if _is_here(repo, leg) and refs.move_ref(repo, find_leg_ref(repo.branch or ""), leg.commit, None):
            refs.drop_ref(repo, find_leg_ref(leg.branch), leg.commit)
            return (f"phase {leg.phase_id}, open on {leg.branch}, goes on here, on {repo.branch}",)
    return ()


def find_along(repo: Repo) -> tuple[OpenLeg, ...]:
    """Return the phases that are open on other branches, at this commit and in this work tree.

    Empty if a phase is open on this branch.
    """
    refs_of_legs = repo.list_refs(LEGS)
    here = find_leg_ref(repo.branch) if repo.branch else None
    if here is None or here in refs_of_legs:
        return ()
    others = (read_leg(repo, parse_ref_part(ref.removeprefix(LEGS))) for ref in refs_of_legs)
    return tuple(leg for leg in others if leg is not None and _is_at(repo, leg))


def _is_at(repo: Repo, leg: OpenLeg) -> bool:
    return leg.base_head == repo.head() and leg.place == find_place_id(repo)


def _is_here(repo: Repo, leg: OpenLeg) -> bool:
    """Return whether a file of the leg is as in its newest snapshot, or the leg changed no file."""
    if leg.last_wip is None:
        return True
    changed = {change.path for change in find_leg_changes(repo, leg, leg.last_wip)}
    since = {change.path for change in diff_trees(repo, leg.last_wip.tree, write_snapshot_tree(repo).tree)}
    own = {leg.plan_path, find_ledger_path(leg.plan_path)}
    return not changed - own or bool(changed - own - since)


def read_kept(repo: Repo, plan_path: str) -> Kept:
    """Read what relay keeps for the branch, and which commit is unfinished."""
    leg = read_leg(repo)
    commit = find_leg_commit(repo, leg) if leg is not None else None
    if leg is not None and commit is None and is_of_another_plan(repo, leg, plan_path):
        return Kept(foreign=leg)
    move = find_pending_move(repo)
    unfinished = commit if commit is not None and is_current(repo, commit) else move
    return Kept(leg=leg, leg_commit=commit, move=move, unfinished=unfinished)


def read_facts(repo: Repo, edit: PlanEdit, kept: Kept, plan_path: str) -> Facts:
    """Read how the branch, the open leg and the work tree relate; the caller holds the work tree's lock."""
    own = (plan_path, find_ledger_path(plan_path))
    leg = None
    if kept.leg is not None:
        phase_id = find_leg_phase(repo, kept.leg, edit.plan)
        leg = replace(_read_leg_facts(repo, kept.leg, own), phase_id=phase_id, committed=kept.leg_commit is not None)
    return Facts(plan=edit.plan, head=repo.head(), boot_id=find_boot_id(), leg=leg, is_edited=edit.is_committed)


def _read_leg_facts(repo: Repo, leg: OpenLeg, own: tuple[str, ...]) -> LegFacts:
    """Compare the work tree with the leg's start and with its newest snapshot, without the files that relay drafts."""
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
        elsewhere=leg.place != find_place_id(repo),
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
    """Return the number of faults that the newest review of the phase confirmed; 0 without a review."""
    found = [value.rpartition(" confirmed=")[2] for key, value in leg.carried if key == REVIEWED]
    return parse_count(found[-1], 0) if found else 0


def find_leg_commit(repo: Repo, leg: OpenLeg) -> RelayCommit | None:
    """Return the commit of the leg's session on the branch, also below later commits; None without one."""
    if repo.head() == leg.base_head:
        return None
    since = read_relay_commits(repo, leg.plan_path, newer_than=leg.base_head or "")
    return next(
        (commit for commit in since if commit.session == leg.session_id and commit.status in LEG_STATUSES), None
    )


def is_current(repo: Repo, commit: RelayCommit) -> bool:
    """Return whether every file that a commit changed is at HEAD as in that commit."""
    head = repo.head() or repo.empty_tree
    since = {change.path for change in diff_trees(repo, commit.commit, head)}
    changed = diff_trees(repo, commit.parents[0] if commit.parents else repo.empty_tree, commit.commit)
    return since.isdisjoint(change.path for change in changed)


def find_projected(repo: Repo, plan_path: str, commit: CommitText | RelayCommit, shown: Plan) -> str | None:
    """Return the plan's text in an unfinished commit, if finishing that commit writes it to the plan's file.

    None if the file stays as it is, because it differs from the commit's parent.
    """
    if not commit.parents:
        return None
    old = read_entries(repo, commit.parents[0], (plan_path,)).get(plan_path)
    if old is None or hash_cleaned(guard(repo).git, plan_path, encode_text(shown.text), old[1]) != old[1]:
        return None
    return find_text(repo, commit.commit, plan_path)


def _find_discarded(repo: Repo, leg: OpenLeg, now: TreeSnapshot, own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files of the leg's newest snapshot that the user undid: they are as before the leg, or gone."""
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
    """Return whether the open leg works on another plan that still exists; a plan that is gone was renamed."""
    return leg.plan_path not in {"", plan_path} and find_stat(repo.root, leg.plan_path) is not None

"""Branches: how the branch, the open attempt and the work tree relate, and moves of a branch with index and files.

`relay.store.resume` decides from the facts that this module reads. relay also makes a branch for a plan, where HEAD is,
and puts HEAD on it; no file is touched by that.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from shlex import quote

from relay.base.errors import RepoError
from relay.base.tree import find_boot_id
from relay.git import refs
from relay.git.config_guard import guard
from relay.git.message import CommitText
from relay.git.names import SWITCH
from relay.git.notes import lock_worktree
from relay.git.objects import RELAY_IDENTITY, diff_trees, read_entries
from relay.git.repository import Repo
from relay.plan.model import Plan
from relay.plan.text import encode_text, find_ledger_path
from relay.store.attempts import OpenAttempt, find_place_id, read_attempt
from relay.store.completion import (
    drop_pending,
    find_pending_move,
    follow_pending,
    hash_cleaned,
    hold_index,
    note_pending,
    withdraw_pending,
)
from relay.store.history import RelayCommit, find_text, read_relay_commits
from relay.store.loose import read_own
from relay.store.plan_versions import PlanEdit, find_attempt_phase
from relay.store.resume import AttemptFacts, Facts, Kept
from relay.store.snapshot import write_snapshot_tree
from relay.store.trailers import ATTEMPT_STATUSES


def move_branch(
    repo: Repo, branch: str, old: str, new: str, *, reason: str, identity: Mapping[str, str] = RELAY_IDENTITY
) -> tuple[str, ...] | None:
    """Move the branch that HEAD names from one commit to another, by compare-and-swap; index and files follow.

    The move is noted first, so the next run finishes it after a kill. A file that is not exactly as in `old` stays as
    it is and is named in the result, never written over. `relay.store.obstacles.find_in_the_way` lists such files
    beforehand.

    Args:
        repo: The repository; the caller holds the work tree's lock.
        branch: The branch that HEAD must name.
        old: The commit that it must be at.
        new: The commit that it goes to.

    Returns:
        One sentence per file, or for the index, that could not be updated. None if HEAD or the branch was somewhere
            else;
        nothing has changed then.

    Raises:
        LockedError: A git of the user's holds the index; nothing has changed then.
    """
    with hold_index(repo) as held:
        # Note it before the branch moves: a note without a move is harmless, a move without a note may leave files.
        note_pending(repo, new, old, is_whole=True)
        if repo.branch != branch or not refs.move_ref(
            repo, f"refs/heads/{branch}", new, old, identity=identity, reason=reason
        ):
            withdraw_pending(repo, new)
            return None
        left = follow_pending(held)
    if not left:
        drop_pending(repo)
    return left


PREFIX = "relay/"
_LONGEST_CHARS = 48


def name_branch(title: str, plan_path: str) -> str:
    """Return the name of a plan's branch, from its title, or from its file's name if the title has no letters."""
    words = _slug(title) or _slug(plan_path.rpartition("/")[2].rpartition(".")[0]) or "plan"
    return PREFIX + words


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_CHARS].strip("-")


def begin_branch(repo: Repo, name: str, move_jobs: Callable[[str], None]) -> bool:
    """Make the branch of that name at HEAD's commit and put HEAD on it, while no other relay is at work.

    Args:
        move_jobs: Called with the name before HEAD moves: open phases go along.

    Returns:
        False when HEAD is on one of relay's branches already; nothing has changed then.

    Raises:
        RepoError: The branch exists already, or another relay is at work.
    """
    with lock_worktree(repo):
        here, head, ref = repo.branch, repo.head(), f"refs/heads/{name}"
        if here is not None and here.startswith(PREFIX):
            return False
        if refs.find_ref(repo, ref) is not None or (head is not None and not refs.move_ref(repo, ref, head, None)):
            raise RepoError(f"there is a branch {name} already", hint=f"{SWITCH} {quote(name)}")
        move_jobs(name)
        repo.git.run("symbolic-ref", "-m", "relay: a branch for the plan", "HEAD", ref)
        return True


def read_kept(repo: Repo, plan_path: str) -> Kept:
    """Read what relay keeps for the branch, and which commit is unfinished."""
    attempt = read_attempt(repo)
    commit = find_attempt_commit(repo, attempt) if attempt is not None else None
    if attempt is not None and commit is None and is_of_another_plan(repo, attempt, plan_path):
        return Kept(foreign=attempt)
    move = find_pending_move(repo)
    unfinished = commit if commit is not None and is_current(repo, commit) else move
    return Kept(attempt=attempt, attempt_commit=commit, move=move, unfinished=unfinished)


def read_facts(repo: Repo, edit: PlanEdit, kept: Kept, plan_path: str) -> Facts:
    """Read how the branch, the open attempt and the work tree relate; the caller holds the work tree's lock."""
    own = (plan_path, find_ledger_path(plan_path))
    attempt = None
    if kept.attempt is not None:
        phase_id = find_attempt_phase(repo, kept.attempt, edit.plan)
        attempt = replace(
            _read_attempt_facts(repo, kept.attempt, own), phase_id=phase_id, committed=kept.attempt_commit is not None
        )
    return Facts(plan=edit.plan, head=repo.head(), boot_id=find_boot_id(), attempt=attempt, is_edited=edit.is_committed)


def _read_attempt_facts(repo: Repo, attempt: OpenAttempt, own: tuple[str, ...]) -> AttemptFacts:
    """Compare the work tree with the attempt's start and its newest snapshot, without the files that relay drafts."""
    now = write_snapshot_tree(repo).tree
    saved = attempt.last_wip.tree if attempt.last_wip else attempt.base_tree
    since_start = _differs(repo, attempt.base_tree, now, own)
    return AttemptFacts(
        session_id=attempt.session_id,
        phase_id=attempt.phase_id,
        began_as=attempt.phase_id,
        base_head=attempt.base_head,
        boot_id=attempt.begun.boot,
        elsewhere=attempt.place != find_place_id(repo),
        claims=attempt.items,
        handed_over=bool(attempt.handoff_note),
        proposed=attempt.ending.proposed is not None,
        faults=next((review.confirmed for review in reversed(attempt.carried.reviews)), 0),
        merges=attempt.merges,
        touched=since_start or bool(attempt.items) or _differs(repo, attempt.base_tree, saved, own),
        saved=not _differs(repo, saved, now, own),
    )


def find_attempt_commit(repo: Repo, attempt: OpenAttempt) -> RelayCommit | None:
    """Return the commit of the attempt's session on the branch, also below later commits; None without one."""
    if repo.head() == attempt.base_head:
        return None
    since = read_relay_commits(repo, attempt.plan_path, newer_than=attempt.base_head or "")
    return next(
        (commit for commit in since if commit.session == attempt.session_id and commit.status in ATTEMPT_STATUSES), None
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
    if old is None or hash_cleaned(repo, guard(repo).git, plan_path, encode_text(shown.text), old[1]) != old[1]:
        return None
    return find_text(repo, commit.commit, plan_path)


def _differs(repo: Repo, a: str, b: str, own: tuple[str, ...]) -> bool:
    return any(change.path not in own for change in diff_trees(repo, a, b))


def is_of_another_plan(repo: Repo, attempt: OpenAttempt, plan_path: str) -> bool:
    """Return whether the open attempt works on another plan that still exists; a plan that is gone was renamed."""
    return attempt.plan_path not in {"", plan_path} and read_own(repo, attempt.plan_path) is not None

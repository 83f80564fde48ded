"""Moves a plan that is done, with its ledger, to the directory of finished plans, in one commit."""

import json
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from relay.base.errors import PlanError, RepoError
from relay.base.hints import STATUS
from relay.base.tree import find_stat, read_file, remove_file, replace_file
from relay.git.identity import render_signoff
from relay.git.message import Message
from relay.git.names import render_path
from relay.git.notes import drop_note, lock_worktree, read_note, write_note
from relay.git.objects import read_entries
from relay.git.repository import Repo
from relay.git.trees import FILE
from relay.plan.text import find_ledger_path
from relay.run.commit.gates import open_hooks
from relay.run.commit.hooks import explain_hook
from relay.run.commit.plan_commit import list_other_subjects, make_source, render_subject
from relay.setup.context import RunRequest
from relay.setup.open import hold_worktree
from relay.setup.workspace import open_own_workspace
from relay.store import trailers
from relay.store.commit import CommitRequest, commit_paths
from relay.store.plan_state import find_done
from relay.store.refs import get_branch
from relay.store.snapshot import write_snapshot_tree

MOVED = "moved"
"""Status of the commit."""
_NOTE = "moving"


def move_plan(request: RunRequest, folder: str) -> str:
    """Move the plan into a folder of the repository; return its new path.

    The commit holds nothing else, and the file stays where it is unless the commit is made; after a kill `end_move`
    sees to that.

    Raises:
        PlanError: The plan is not done, or not committed as it is.
        RepoError: Another file is there, or the commit could not be made.
    """
    repo, path = request.repo, request.plan_path
    target = posixpath.join(folder, posixpath.basename(path))
    with open_own_workspace(request) as workspace, lock_worktree(repo):
        plan = find_done(make_source(request.files), repo)
        if plan is None:
            raise PlanError("this plan is not done, or was changed since its last commit", path=path, hint=STATUS)
        pairs = {path: target, request.files.ledger_path: find_ledger_path(target)}
        found = {old: data for old in pairs if (data := read_file(repo.root, old)) is not None}
        if taken := [pairs[old] for old in found if find_stat(repo.root, pairs[old])]:
            raise RepoError(f"{render_path(taken[0])} is there already", hint="move or rename one of the two plans")
        words = f"plan done — {plan.title}" if plan.title else "plan done"
        message = Message(
            subject=render_subject(words, request.settings),
            trailers=(
                (trailers.PLAN, render_path(path)),
                (trailers.STATUS, MOVED),
                *render_signoff(repo, wanted=request.settings.signoff),
            ),
        )
        with _moving(repo, pairs, found):
            asked = CommitRequest(
                branch=get_branch(repo),
                head=repo.head(),
                message=message,
                other_subjects=list_other_subjects(words, request.settings),
                paths=(*found, *map(pairs.__getitem__, found)),
                tree=write_snapshot_tree(repo).tree,
                take_in=False,
            )
            with open_hooks(repo, request.settings, workspace) as hooks:
                outcome = commit_paths(repo, asked, hooks=hooks)
            if outcome.commit is None:
                refused = explain_hook(outcome) if outcome.hook else None
                words = refused.for_user if refused else f"{outcome.end}: {outcome.output}"
                raise RepoError(f"{render_path(path)} stays where it is: {words}", hint=refused.ways if refused else "")
    return target


@contextmanager
def _moving(repo: Repo, pairs: Mapping[str, str], found: Mapping[str, bytes]) -> Iterator[None]:
    """Move files in the work tree, and back again unless the commit is made meanwhile."""
    write_note(repo, _NOTE, json.dumps({old: pairs[old] for old in found}))
    try:
        for old, data in found.items():
            _write(repo, pairs[old], data)
            remove_file(repo.root, old)
        yield
    finally:
        _move_back(repo)


def end_move(repo: Repo) -> None:
    """Put a killed move right: finish its commit, or move the files back if there is none.

    Raises:
        RepoError: Somebody else is at work here.
    """
    if read_note(repo, _NOTE):
        with hold_worktree(repo):  # it finishes the commit
            _move_back(repo)


def _move_back(repo: Repo) -> None:
    with suppress(ValueError):  # no text of relay's
        pairs = json.loads(read_note(repo, _NOTE) or "{}")
        committed = read_entries(repo, "HEAD", pairs)
        for old, new in pairs.items():
            data = read_file(repo.root, new) if old in committed else None
            if data is not None and find_stat(repo.root, old) is None:
                replace_file(repo.root, old, data, FILE)
            if data is not None and read_file(repo.root, old) == data:  # else somebody has changed one of the two
                remove_file(repo.root, new)
    drop_note(repo, _NOTE)


def _write(repo: Repo, path: str, data: bytes) -> None:
    try:
        replace_file(repo.root, path, data, FILE)
    except OSError as error:  # a link or a file in the way
        words = f"{render_path(path)} cannot be written: {error.strerror}"
        raise RepoError(words, hint="set done_dir to a directory of this repository") from None

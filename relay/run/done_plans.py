"""Moves a plan that is done, with its ledger, to the directory of finished plans, in one commit."""

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from relay.base.errors import PlanError, RepoError
from relay.base.hints import STATUS
from relay.base.tree import find_stat, read_file, remove_file, replace_file
from relay.git.message import Message
from relay.git.names import render_path
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.git.trees import FILE
from relay.plan.text import find_ledger_path
from relay.run.commit.gates import open_hooks
from relay.run.commit.hooks import explain_hook
from relay.run.commit.plan_commit import list_other_subjects, make_source, render_subject
from relay.setup.context import RunRequest
from relay.setup.workspace import open_own_workspace
from relay.store import trailers
from relay.store.commit import CommitRequest, commit_paths
from relay.store.plan_state import find_done
from relay.store.refs import get_branch
from relay.store.snapshot import write_snapshot_tree

MOVED = "moved"
"""Status of the commit."""


def move_plan(request: RunRequest, folder: str) -> str:
    """Move the plan into a folder of the repository; return its new path.

    The commit holds nothing else, and the file stays where it is unless the commit is made. A killed move leaves the
    file in its old place, in its new one, or in both.

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
            trailers=((trailers.PLAN, render_path(path)), (trailers.STATUS, MOVED)),
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
    """Move files in the work tree, and back again unless HEAD moves meanwhile."""
    head, moved = repo.head(), list[str]()
    try:
        for old, data in found.items():
            _write(repo, pairs[old], data)
            moved.append(old)
            remove_file(repo.root, old)
        yield
    finally:
        if repo.head() == head:
            for old in moved:
                replace_file(repo.root, old, found[old], FILE)
                remove_file(repo.root, pairs[old])


def _write(repo: Repo, path: str, data: bytes) -> None:
    try:
        replace_file(repo.root, path, data, FILE)
    except OSError as error:  # a link or a file in the way
        words = f"{render_path(path)} cannot be written: {error.strerror}"
        raise RepoError(words, hint="set done_dir to a directory of this repository") from None

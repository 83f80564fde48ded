"""The phase commit: hooks, tree, commit object, then one compare-and-swap of the branch. That is the commit point.

Before it nothing of the user's has changed; after it everything else can be repeated (`relay.store.completion`).
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path

from relay.base.tree import find_stat, fsync_paths, read_file, replace_file
from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.command import GitError
from relay.git.config_guard import Guarded, guard
from relay.git.hooks import HookResult, Hooks, has_hook, make_hook_run, only_forbids_branch
from relay.git.identity import get_identity, write_user_commit
from relay.git.lock_journal import storing
from relay.git.message import Message, join_trailers, render_message
from relay.git.names import render_path
from relay.git.repository import Repo
from relay.git.status import ChangeKind
from relay.git.trees import FILE, find_mode
from relay.store import completion, trailers
from relay.store.completion import drop_pending, finish_commit, note_pending, withdraw_pending
from relay.store.history import find_plan_tree
from relay.store.loose import read_own, write_own
from relay.store.refs import name_loose
from relay.store.snapshot import find_unheld, write_snapshot_tree
from relay.store.trailers import PREFIX
from relay.store.worktree_notes import is_checked, note_checked

_ATTEMPTS = 10
"""Phases side by side keep versions of one plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """A commit to be made, and its parent."""

    branch: str
    head: str | None
    """The commit that the branch must be at; None for a branch without commits."""
    merges: str = ""
    """The second parent; empty without one."""
    message: Message
    other_subjects: tuple[str, ...] = ()
    """Subjects to try, in this order, if the user's hooks refuse the message's own."""
    plain_body: str = ""
    """The body without a session's words, to try if the hooks refuse it under each subject; empty without one."""
    paths: tuple[str, ...] = ()
    """The attempt's paths: files changed, added or deleted in the work tree. No other paths are committed."""
    replace: Mapping[str, bytes] = field(default_factory=dict)
    """Files whose new bytes are not in the work tree yet: the ticked plan, the ledger. Written there afterwards."""
    loose: str = ""
    """The plan's path where no commit holds plan and ledger: they are kept beside it (`relay.store.loose`)."""
    based_on: Mapping[str, bytes] = field(default_factory=dict)
    """The work tree's bytes at paths of `replace` when the new bytes were made, where they differ from HEAD."""
    files: str = ""
    """The tree that the gate saw: the commit's, but for `replace`. Empty: it is made of `paths`."""
    keep_out: frozenset[str] = frozenset()
    """The user's paths: not committed even if a hook rewrites them."""
    adopt: Callable[[str, bytes], bool] | None = None
    """Returns whether a hook's version of a file of `replace` is committed instead; None: hooks see the file itself."""


class CommitEnd(StrEnum):
    """How a commit ended. Only `COMMITTED` moved the branch."""

    COMMITTED = "committed"
    HOOK_REFUSED = "a hook refused"
    """`CommitOutcome.output` has the hook's words."""
    RECHECK_REFUSED = "a hook rewrote files"
    """A hook rewrote files, and the gate is red with them."""
    BRANCH_MOVED = "the branch moved"
    """The branch is not where the attempt began, or HEAD names another branch."""
    NOT_STAGED = "git does not take it"
    """Git does not accept a file's content; `CommitOutcome.output` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """How a commit ended, and its result."""

    end: CommitEnd
    commit: str | None = None
    subject: str = ""
    """The message's subject as given to the hooks that accepted it."""
    output: str = ""
    """For the model or the user: a hook's words, or where the branch is."""
    hook: str = ""
    """The hook that refused."""
    hook_s: float = 0.0
    """How long that hook took."""
    is_of_branch: bool = False
    """Whether that hook accepts the commit on another branch."""
    is_plain: bool = False
    """Whether the hooks refused the message's body and accepted `CommitRequest.plain_body`."""
    rewritten: tuple[str, ...] = ()
    """Paths that a hook rewrote and that were committed."""
    not_taken: tuple[str, ...] = ()
    """Paths that a hook rewrote and that were not committed; they stay as the hook left them."""
    replaced: Mapping[str, bytes] = field(default_factory=dict)
    """The files of `CommitRequest.replace` as they were committed."""
    left: tuple[str, ...] = ()
    """One sentence per file, or for the index, that could not be updated after the commit point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A commit about to be written, as the hooks leave it."""

    request: CommitRequest
    """With the hooks' versions of its `replace`, as far as they were adopted."""
    files: str
    """The commit's tree, but for `replace`."""
    paths: tuple[str, ...]
    message: Message
    text: bytes
    author: Mapping[str, str]
    """Environment that names the author, for hooks."""
    rewritten: tuple[str, ...] = ()
    not_taken: tuple[str, ...] = ()

    def end(self, end: CommitEnd, *, output: str = "") -> CommitOutcome:
        return CommitOutcome(
            end=end,
            subject=self.message.subject,
            is_plain=self.message.body != self.request.message.body,
            output=output,
            rewritten=self.rewritten,
            not_taken=self.not_taken,
            replaced=self.request.replace,
        )

    def refuse(self, hook: str, result: HookResult) -> CommitOutcome:
        ended = self.end(CommitEnd.HOOK_REFUSED, output=result.output)
        return replace(ended, hook=hook, hook_s=result.duration_s)


def commit_paths(repo: Repo, request: CommitRequest, *, hooks: Hooks | None = None) -> CommitOutcome:
    """Commit the attempt's paths and the given files on the branch, as the user; the caller holds the lock.

    Args:
        hooks: Runs the user's hooks; None runs none.

    Returns:
        How it ended. Anything but ``COMMITTED`` has changed nothing, except what a hook did to files.

    Raises:
        RepoError: No identity, no signature without a prompt, a filter that relay does not run, a full disk.
    """
    try:
        if not request.loose:
            return _commit_paths(repo, request, hooks)
        first, *rest = request.message.trailers
        pair = trailers.PLAN_TREE, _keep_loose(repo, request)
        message = replace(request.message, trailers=(first, pair, *rest))
        bare = replace(request, message=message, replace={}, based_on={}, adopt=None)
        outcome = replace(_commit_paths(repo, bare, hooks), replaced=request.replace)
    except completion.NotStagedError as error:
        return CommitOutcome(end=CommitEnd.NOT_STAGED, output=str(error))
    for path, data in request.replace.items() if outcome.commit else ():
        # Unless somebody saved one since: a later run does it then.
        if path in request.based_on and read_own(repo, request.loose, path) == request.based_on[path] != data:
            write_own(repo, request.loose, data, path)
    return outcome


@storing
def _keep_loose(repo: Repo, request: CommitRequest) -> str:
    """Keep a version of a loose plan and its ledger under its ref, and return its tree."""
    before = find_plan_tree(repo, request.head, request.loose) if request.head else ""
    tree = objects.write_files_tree(repo, request.replace, start=before or None)
    kept = Message(subject=f"relay: {request.loose}", trailers=((trailers.PLAN, render_path(request.loose)),))
    ref = name_loose(request.loose)
    for _ in range(_ATTEMPTS):
        old = refs.find_ref(repo, ref)
        commit = objects.write_commit(repo, tree, (old,) if old else (), kept)
        objects.sync_objects(repo, commit, old)
        if refs.move_ref(repo, ref, commit, old):
            return tree
    raise GitError(f"{ref} is being moved by somebody else")


def judge_message(repo: Repo, request: CommitRequest, hooks: Hooks) -> CommitOutcome | None:
    """Have the user's hooks judge a message without a commit; return how they refuse it, None if they accept it."""
    text, author, guarded = render_message(request.message), get_identity(repo).begin_commit(), guard(repo)
    files = completion.store_files(repo, guarded, request.head, ())
    ready = _Ready(request=request, files=files, paths=(), message=request.message, text=text, author=author)
    judged = _run_message_hooks(repo, guarded, ready, hooks)
    return judged if isinstance(judged, CommitOutcome) else None


def _finish_text(ready: _Ready) -> bytes:
    """Return the hooks' version of the message, with relay's trailers as relay wrote them: it reads them back."""
    own = tuple(pair for pair in ready.message.trailers if pair[0].startswith(PREFIX))
    given = render_message(replace(ready.message, trailers=()))
    return join_trailers(ready.text, own, before=given, prefix=PREFIX)


def _commit_paths(repo: Repo, request: CommitRequest, hooks: Hooks | None) -> CommitOutcome:
    identity = get_identity(repo).begin_commit()
    guarded = guard(repo)
    paths = tuple(sorted(set(request.paths).difference(request.replace)))
    completion.require_filters(guarded, tuple(request.replace))
    ready = _Ready(
        request=request,
        files=request.files or completion.store_files(repo, guarded, request.head, paths),
        paths=paths,
        message=request.message,
        text=render_message(request.message),
        author=identity,
    )
    judged = _run_hooks(repo, guarded, ready, hooks) if hooks else ready
    return judged if isinstance(judged, CommitOutcome) else _write(repo, guarded, judged, identity)


def _stage(repo: Repo, guarded: Guarded, ready: _Ready) -> Path:
    """Make the index whose copy the hooks see: the commit's files, and those of `replace` that the work tree has.

    A plan that the user edited is staged for the hook. A plan that only relay has ticked is not: it would differ from
    the work tree, and hook frameworks stash such differences before they run, but the plan is read-only. Hooks that get
    copies of the given files see the work tree's version of them.
    """
    git, index = objects.private_git(guarded.git), objects.copy_index(repo, completion.INDEX)
    git.run("read-tree", "--reset", "-i", ready.files, env={"GIT_INDEX_FILE": index})
    request = ready.request
    given = request.replace.items()
    as_is = {path: data for path, data in given if request.adopt or read_file(repo.root, path) == data}
    objects.fill_index(git, index, completion.clean_files(repo, guarded, request.head, as_is))
    return Path(index)


def _run_hooks(repo: Repo, guarded: Guarded, ready: _Ready, hooks: Hooks) -> _Ready | CommitOutcome:
    if _is_wanted(repo, guarded, hooks, "pre-commit"):
        after = _run_pre_commit(repo, guarded, ready, hooks)
        if isinstance(after, CommitOutcome):
            return after
        if after.rewritten and (words := hooks.recheck(after.files, after.rewritten)):
            return after.end(CommitEnd.RECHECK_REFUSED, output=words)
        ready = after
    return _run_message_hooks(repo, guarded, ready, hooks)


def _run_pre_commit(repo: Repo, guarded: Guarded, ready: _Ready, hooks: Hooks) -> _Ready | CommitOutcome:
    """Run the hook. If it rewrites files and these are accepted, it runs once more and must agree.

    Only in a tree of the gates are other files taken in than the given ones: elsewhere no gate checks them.
    """
    tree = hooks.tree or repo
    before = write_snapshot_tree(tree)
    result = _run_hook(repo, guarded, ready, hooks, "pre-commit")
    now = write_snapshot_tree(tree)
    copies = {path: data for path, data in result.copies.items() if data != ready.request.replace[path]}
    adopt = ready.request.adopt
    adopted = {path: data for path, data in copies.items() if adopt and adopt(path, data)}
    changes = objects.diff_trees(repo, before.tree, now.tree)
    paths = [change.path for change in changes]
    unheld = find_unheld(repo, ready.request.head, paths, before.skipped, now.skipped)
    changed = [path for path in paths if path not in unheld]
    rewritten = tuple[str, ...]()
    if hooks.tree:
        keep_out = {*ready.request.keep_out, *ready.request.replace}
        keep_out |= {one.path for one in changes if one.kind is ChangeKind.ADDED and not hooks.may_make(one.path)}
        rewritten = tuple(path for path in changed if path not in keep_out)
    not_taken = tuple(path for path in (*changed, *copies) if path not in {*rewritten, *adopted})
    request = replace(ready.request, replace={**ready.request.replace, **adopted})
    ready = replace(ready, request=request, rewritten=rewritten, not_taken=not_taken)
    if hooks.tree and rewritten:
        files = _take_in(repo, hooks.tree, ready, rewritten)
        ready = replace(ready, files=files, paths=tuple(sorted({*ready.paths, *rewritten})))
    # A formatter refuses because it rewrote files; once these are staged it must agree. A hook that refuses without
    # changing a file does not run twice.
    if not result.ok and (adopted or any(path not in ready.request.replace for path in changed)):
        result = _run_hook(repo, guarded, ready, hooks, "pre-commit")
    if result.ok:
        return ready
    is_named = "branch" in result.output or ready.request.branch in result.output  # else it takes its time for nothing
    return replace(
        ready.refuse("pre-commit", result),
        is_of_branch=is_named
        and only_forbids_branch(hooks, result, lambda others: _run_hook(repo, guarded, ready, others, "pre-commit")),
    )


def _take_in(repo: Repo, tree: Repo, ready: _Ready, paths: tuple[str, ...]) -> str:
    """Stage what a hook rewrote in the tree of the gates, and bring it to the commit's; return the commit's tree."""
    git, names = guard(tree).git, b"".join(os.fsencode(path) + b"\0" for path in paths)
    git.run("update-index", "--add", "--remove", "-z", "--stdin", stdin=names)
    found = {path: read_file(tree.root, path) for path in paths}
    modes = {path: find_mode(find_stat(tree.root, path)) for path in paths}
    new = {path: None if data is None else (modes[path], data) for path, data in found.items()}
    completion.bring_back(repo, ready.files, new)
    return objects.write_tree(git, str(tree.git_dir / "index"))


def _is_wanted(repo: Repo, guarded: Guarded, hooks: Hooks, name: str) -> bool:
    return (hooks.names is None or name in hooks.names) and has_hook(hooks.tree or repo, guarded.config, name)


def _run_message_hooks(repo: Repo, guarded: Guarded, ready: _Ready, hooks: Hooks) -> _Ready | CommitOutcome:
    """Have the hooks judge the message, with one subject after another until they accept one."""
    refused: CommitOutcome | None = None
    subjects = dict.fromkeys((ready.message.subject, *ready.request.other_subjects))
    bodies = dict.fromkeys((ready.message.body, ready.request.plain_body or ready.message.body))
    for message in (replace(ready.message, subject=subject, body=body) for body in bodies for subject in subjects):
        judged = _judge_message(repo, guarded, replace(ready, message=message, text=render_message(message)), hooks)
        if isinstance(judged, _Ready):
            return judged
        refused = refused or judged
    return refused or ready


def _judge_message(repo: Repo, guarded: Guarded, ready: _Ready, hooks: Hooks) -> _Ready | CommitOutcome:
    for name, more in (("prepare-commit-msg", ("message",)), ("commit-msg", ())):
        if not _is_wanted(repo, guarded, hooks, name):
            continue
        file = _make_scratch(hooks) / "COMMIT_EDITMSG"
        replace_file(file.parent, file.name, ready.text, FILE)
        result = _run_hook(repo, guarded, ready, hooks, name, str(file), *more)
        if not result.ok:
            return ready.refuse(name, result)
        # Opened from the parent directory: the hook may have put a link in its directory's place.
        text = read_file(hooks.scratch, f"{file.parent.name}/{file.name}") or b""
        # Git refuses a message that holds a NUL.
        ready = replace(ready, text=text.replace(b"\0", b"")) if text.strip() else ready
    return ready


def _make_scratch(hooks: Hooks) -> Path:
    """Make a new directory, under a name that no leftover of a command can have."""
    hooks.scratch.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="hook-", dir=hooks.scratch))


def _run_hook(repo: Repo, guarded: Guarded, ready: _Ready, hooks: Hooks, name: str, *args: str) -> HookResult:
    """Run one hook on fresh copies of index and given files; links that a hook leaves there are not followed."""
    source = hooks.tree.git_dir / "index" if hooks.tree else _stage(repo, guarded, ready)
    copy = _make_scratch(hooks) / "index"
    found = source.stat()
    replace_file(copy.parent, copy.name, source.read_bytes(), FILE)
    # Git tells by the index's time which entries it must not trust: a copy that looks newer would hide a change made
    # in the same instant as the last write.
    os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)
    copies = {}
    for number, (path, data) in enumerate(ready.request.replace.items() if ready.request.adopt else ()):
        replace_file(copy.parent, f"given-{number}", data, FILE)
        copies[path] = copy.parent / f"given-{number}"
    run = make_hook_run(hooks.tree or repo, guarded.config, name, args, index=copy, author=ready.author)
    result = hooks.run(replace(run, copies=copies))
    left = {path: read_file(hooks.scratch, f"{place.parent.name}/{place.name}") for path, place in copies.items()}
    return replace(result, copies={path: data for path, data in left.items() if data is not None})


@storing
def _write(repo: Repo, guarded: Guarded, ready: _Ready, identity: Mapping[str, str]) -> CommitOutcome:
    """Write tree and commit, sync the files, move the branch (the commit point), then update index and files.

    Raises:
        GitError: ``git gc`` has taken what was staged while hooks were at work, or the disk is full.
        LockedError: A git of the user's holds the index.
    """
    request = ready.request
    given = completion.clean_files(repo, guarded, request.head, request.replace)
    tree = objects.write_paths_tree(repo, given, start=ready.files)
    parents = tuple(filter(None, (request.head, request.merges)))
    text = _finish_text(ready)
    commit = write_user_commit(repo, guarded, tree, parents, text, identity)
    # Sync before the commit point, so that no power cut leaves a commit whose files are empty on the disk.
    fsync_paths(repo.root, ready.paths)
    objects.sync_objects(repo, commit, request.head)
    ref = f"refs/heads/{request.branch}"
    reason = f"relay: {ready.message.subject}"
    with completion.hold_index(repo) as held:
        # Note it before the branch moves: a note without its commit is harmless, a commit without its note may leave
        # index and files behind for good.
        note_pending(repo, commit, request.head)
        if request.head and is_checked(repo, request.head):
            note_checked(repo, commit, request.head)
        if repo.branch != request.branch or not refs.move_ref(
            repo, ref, commit, request.head, identity=identity, reason=reason
        ):
            withdraw_pending(repo, commit)
            where = f"{request.branch} is at {refs.find_ref(repo, ref)}, not at {request.head}"
            words = (
                where
                if repo.branch == request.branch
                else f"{repo.branch or 'no branch'} is checked out, not {request.branch}"
            )
            return ready.end(CommitEnd.BRANCH_MOVED, output=words)
        left = finish_commit(held, commit, dict(request.replace), based_on=request.based_on)
    if not left:
        drop_pending(repo)
    return replace(ready.end(CommitEnd.COMMITTED), commit=commit, left=left)

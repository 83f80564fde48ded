"""What the branch's commits say about a plan: the state that survives everything but the loss of the branch."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.tree import find_stat
from relay.base.values import dataclass
from relay.git.command import GitError
from relay.git.message import CommitText, read_text, read_texts, walk_texts
from relay.git.names import find_plan_branch, name_jobs, parse_path, render_ref_part
from relay.git.object_database import find_marks
from relay.git.repository import Repo, find_id
from relay.git.trees import GITLINK, TREE, find_entries
from relay.plan.lineage import has_heirs
from relay.plan.parse import find_plan_in
from relay.plan.text import decode_text
from relay.session.usage import Spent, Usage, rank_spent
from relay.store import trailers


def find_text(repo: Repo, commit: str | None, path: str) -> str | None:
    """Return a file's text as a commit has it; None when it has none there, or when there is no commit yet.

    Raises:
        GitError: There is a file, or git cannot say whether there is one, and it cannot be read.
    """
    if commit is None:
        return None
    rev = replace(repo, on="").head() if commit == "HEAD" else commit
    if rev is None:
        return None
    mode, blob = find_entries(repo, rev, (path,)).get(path, ("", ""))
    if mode in {"", GITLINK, TREE.decode()}:
        return None
    found = repo.read_object(blob)
    if found is None or found[0] != "blob":
        raise GitError(f"{path} cannot be read as {rev[:10]} has it: git has lost {blob}", hint="git fsck")
    return decode_text(found[1])


_MOST_NEW = 32
"""Commits that are read one by one; more are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayCommit:
    """One commit with relay's trailers."""

    commit: str
    tree: str
    parents: tuple[str, ...]
    subject: str
    body: str
    """Without the trailers."""
    plan: str
    phase: str
    """Empty for a commit that concerns no single phase (``planned``)."""
    status: str
    """``planned``, ``done``, ``handoff`` or ``amended``; whatever stands there."""
    items: tuple[str, ...]
    session: str
    gate: str
    sandbox: str
    usage: Usage | None
    """None when unknown."""
    cost_usd: float | None
    """None when unknown."""
    estimated: bool
    """Usage and cost are the most that they can have been: not all of it was reported."""
    time: int
    """Committer date in seconds since the epoch."""
    found: tuple[tuple[str, str], ...]
    """All trailers in order."""

    @property
    def spent(self) -> Spent:
        """What the sessions behind it used and cost, unknown where that cannot be read.

        One whose trailers name neither was made without a session, or by somebody else.
        """
        if {key for key, _ in self.found}.isdisjoint({trailers.COST, trailers.USAGE}):
            return Spent()
        return Spent(usage=self.usage or Usage(), cost_usd=self.cost_usd, estimated=self.estimated)


_known: dict[tuple[Path, object, str, str], tuple[RelayCommit, ...]] = {}
"""By git directory, how far a shallow clone reaches, plan and commit: all of relay's that can be reached from it.

Those from before the plan was there may be missing; without a plan, which is empty then, none is.
"""
_LONG_BYTES = 1 << 20
"""Of indexes of packed objects, some 35,000 of these: the way through such a history is worth finding a shorter one."""


def read_relay_commits(
    repo: Repo, plan_path: str, *, rev: str = "HEAD", newer_than: str = ""
) -> tuple[RelayCommit, ...]:
    """Return the commits reachable from `rev` whose ``Relay-Plan`` is `plan_path`, newest first, in one git call.

    Args:
        rev: Where to start; an unborn branch has no commits.
        newer_than: A commit at which to stop; empty for the root.
    """
    return tuple(commit for commit in _read_all(repo, rev, newer_than) if commit.plan == plan_path)


def _read_all(repo: Repo, rev: str, newer_than: str = "", *, plan_path: str = "") -> tuple[RelayCommit, ...]:
    """Return all commits with a plan's name, of any plan.

    What is reachable from a commit stays: of a branch that has grown, only what is new is read.

    Args:
        plan_path: Of the plan that is asked about, before which nothing need be read; empty for all of them.
    """
    start = repo.find_commit(rev)
    if start is None:
        return ()
    if newer_than:
        return _ask_for_all(repo, start, newer_than)
    place = (repo.common_dir, find_marks(repo.common_dir), plan_path)
    newer, known = _find_known(repo, place, start)
    if known is None:
        newer, known = [], _ask_for_all(repo, start, *_find_before(repo, plan_path))
    _known.clear()
    _known[*place, start] = (*(commit for commit in map(_parse_commit, newer) if commit.plan), *known)
    return _known[*place, start]


def _find_known(
    repo: Repo, place: tuple[Path, object, str], start: str
) -> tuple[list[CommitText], tuple[RelayCommit, ...] | None]:
    """Return the commits, one on top of the other, down to one whose history is known, or to the first, and that.

    None for what only git can tell.
    """
    newer: list[CommitText] = []
    at, texts = start, walk_texts(repo, start, _MOST_NEW)
    while (*place, at) not in _known:
        text = next(texts, None)
        if text is None:
            return [], None
        newer.append(text)
        if not text.parents:
            return newer, ()
        at = text.parents[0]
    return newer, _known[*place, at]


def _ask_for_all(repo: Repo, start: str, *newer_than: str) -> tuple[RelayCommit, ...]:
    stop = (f"^{commit}" for commit in newer_than if commit)
    args = ("--basic-regexp", f"--grep=^{trailers.PLAN}: ", "--end-of-options", start, *stop, "--")
    return tuple(commit for commit in map(_parse_commit, read_texts(repo.git, *args)) if commit.plan)


def _find_before(repo: Repo, plan_path: str) -> tuple[str, ...]:
    """Return commits below which there is nothing of a plan, in a long history; nothing where that is not sure."""
    packs = (repo.objects_dir / "pack").glob("*.idx") if plan_path else ()
    is_long = sum(pack.stat().st_size for pack in packs) > _LONG_BYTES
    added = _find_fresh(repo, plan_path) if is_long else ""
    return read_text(repo, added).parents if added else ()


def _find_fresh(repo: Repo, plan_path: str) -> str:
    """Return the commit that added the plan's file last; empty where the plan has a past: a tick, or another name."""
    added = find_added(repo, plan_path)
    plan = find_plan_in(find_text(repo, added or None, plan_path) or "")
    return "" if plan is None or plan.done_ids or _find_old_name(repo, plan_path, added) else added


def read_plan_commits(repo: Repo, plan_path: str) -> tuple[RelayCommit, ...]:
    """Return the commits of the plan that the file holds now, newest first: the last ``planned`` one and what followed.

    A plan that took the place of another one in the same file starts with a count of its own; one that was renamed, in
    a commit, takes the commits under its old name along.
    """
    every = _read_all(repo, "HEAD", plan_path=plan_path)
    names = _find_names(repo, plan_path, {commit.plan for commit in every})
    return _drop_earlier(repo, plan_path, tuple(commit for commit in every if commit.plan in names))


def _drop_earlier(repo: Repo, plan_path: str, commits: tuple[RelayCommit, ...]) -> tuple[RelayCommit, ...]:
    """Leave out what was done for plans that the file held before this one."""
    first = next((at for at, commit in enumerate(commits) if commit.status == "planned"), len(commits))
    if first + 1 < len(commits):
        commits = commits[: _find_older(repo, commits, first)]
    if commits and _was_removed(repo, plan_path, commits[-1].commit) and (added := _find_fresh(repo, plan_path)):
        since = {commit.commit for commit in _ask_for_all(repo, "HEAD", *read_text(repo, added).parents)}
        commits = tuple(commit for commit in commits if commit.commit in since)
    text = find_text(repo, "HEAD", plan_path)
    if not commits or text is None or has_heirs(find_text(repo, commits[-1].commit, commits[-1].plan), text):
        return commits
    for at, commit in enumerate(commits):
        then = find_text(repo, commit.commit, commit.plan)
        if not has_heirs(then, text):  # nothing of that plan is left in the one that followed
            return commits[:at]
        text = then or text
    return commits


def _find_older(repo: Repo, commits: tuple[RelayCommit, ...], first: int) -> int:
    """Return where those begin that are below a plan's first commit; what was made on one that was rewritten is not."""
    from relay.git.objects import is_ancestor

    begun = commits[first].commit
    older = (at for at in range(first + 1, len(commits)) if is_ancestor(repo, commits[at].commit, begun))
    return next(older, len(commits))


def _was_removed(repo: Repo, path: str, since: str) -> bool:
    """Return whether a commit on top of `since` lacks a file, as far as HEAD's history shows it."""
    for text in walk_texts(repo, repo.head() or "", _MOST_NEW):
        if text.commit == since:
            return False
        if not find_entries(repo, text.commit, (path,)):
            return True
    return bool(repo.git.run("log", "-1", "--diff-filter=D", "--format=%H", f"{since}..HEAD", "--", path))


def add_spent(commits: Iterable[RelayCommit]) -> Spent:
    """Return what the sessions behind some commits have cost, each once.

    A commit that was amended or rebased says the same as the one before it, and a merge can bring that back.
    """
    found: dict[tuple[str, ...], Spent] = {}
    for commit in commits:
        key = (commit.session, commit.phase, commit.status) if commit.session else (commit.commit,)
        found[key] = max(found.get(key, commit.spent), commit.spent, key=rank_spent)
    return sum(found.values(), start=Spent())


def find_beginning(repo: Repo, plan_path: str) -> str:
    """Return the commit on which the plan's work began: below its first one, else HEAD; empty without any."""
    commits = read_plan_commits(repo, plan_path)
    return next(iter(commits[-1].parents), "") if commits else repo.head() or ""


def read_undone(repo: Repo, commits: Sequence[RelayCommit]) -> frozenset[str]:
    """Return the commits that the reverts among `commits` have undone, whoever made them."""
    undone: set[str] = set()
    for commit in commits:
        target = dict(commit.found).get(trailers.REWOUND_TO, "")
        if commit.status == trailers.REWOUND and commit.parents and target and repo.find_commit(target) == target:
            undone.update(repo.git.run("rev-list", f"{target}..{commit.parents[0]}", "--").decode().split())
    return frozenset(undone)


def list_doubts(commits: Sequence[RelayCommit], undone: frozenset[str]) -> tuple[str, ...]:
    """Return what commits say against boxes that they tick, each sentence once, newest first."""
    return tuple(
        dict.fromkeys(
            words for one in commits if one.commit not in undone for key, words in one.found if key == trailers.DOUBT
        )
    )


def was_made_here(repo: Repo, commit: RelayCommit) -> bool:
    """Return whether relay itself put a commit on HEAD's branch in this repository: no clone and no fetch brings that.

    The reflog says so, by the reason that `relay.store.commit` gives it; one that was brought has another one.
    """
    listed = repo.git.probe("log", "-g", "--format=%H %gs", f"refs/heads/{repo.branch}", "--").out
    return f"{commit.commit} relay: {commit.subject}" in listed.decode(errors="replace").splitlines()


def find_last_move(repo: Repo, branch: str, commit: str) -> str:
    """Return why a branch was last moved, as its reflog says, where that brought it to this commit; else empty."""
    last = repo.git.probe("log", "-g", "-1", "--format=%H %gs", f"refs/heads/{branch}", "--").out
    found, _, reason = last.decode(errors="replace").partition(" ")
    return reason if found == commit else ""


def read_rewound_commits(repo: Repo, plan_path: str, own: Sequence[RelayCommit]) -> tuple[RelayCommit, ...]:
    """Return what `relay rewind` left on other branches of the same plan, newest first: what it cost is spent.

    A rewind by a commit leaves its past on the branch itself, and that is in `own` already.

    Args:
        own: The plan's commits on this branch, as `read_plan_commits` says.
    """
    head = repo.head()
    if head is None or not repo.list_refs("refs/relay/rewound/"):
        return ()
    origin = find_origin(repo, plan_path, own)
    if not origin:
        return ()
    args = ("--basic-regexp", f"--grep=^{trailers.PLAN}: ", "--glob=refs/relay/rewound", "--ancestry-path")
    found = (_parse_commit(text) for text in read_texts(repo.git, *args, f"^{origin}", f"^{head}", "--"))
    return tuple(commit for commit in found if commit.plan == plan_path)


def read_unlanded_commits(repo: Repo, plan_path: str, own: Sequence[RelayCommit]) -> tuple[RelayCommit, ...]:
    """Return what jobs of the branch's have committed that HEAD does not have: what it cost is spent.

    Of a job's own branch it is what the other jobs have, and the branch that they all land on.

    Args:
        own: The plan's commits on this branch, as `read_plan_commits` says.
    """
    head, branch = repo.head(), find_plan_branch(repo.branch or "")
    legs = f"refs/relay/leg/{render_ref_part(name_jobs(branch))}"
    tips = set(repo.list_refs(f"refs/heads/{name_jobs(branch)}").values())
    if head is None or not tips:
        return ()
    # A phase that is being landed is in its leg's history, and on no branch.
    tips.update(commit for ref, commit in repo.list_refs("refs/relay/leg/").items() if ref.startswith(legs))
    tips.update(filter(None, [find_id(repo.common_dir, f"refs/heads/{branch}")]))
    if tips <= {head}:
        return ()
    origin = find_origin(repo, plan_path, own)
    below = (f"^{head}", *((f"^{origin}",) if origin else ()))
    args = ("--basic-regexp", f"--grep=^{trailers.PLAN}: ", "--end-of-options", *sorted(tips), *below, "--")
    found = (_parse_commit(text) for text in read_texts(repo.git, *args))
    return tuple(commit for commit in found if commit.plan == plan_path and commit.status)


def find_origin(repo: Repo, plan_path: str, own: Sequence[RelayCommit]) -> str:
    """Return the commit that brought the plan as the file holds it now; empty when none has.

    Args:
        own: The plan's commits on this branch, as `read_plan_commits` says.
    """
    planned = next((commit.commit for commit in own if commit.status == "planned"), "")
    # Below its first one: the file may have been renamed since, or removed and brought back.
    path, rev = (own[-1].plan, own[-1].commit) if own else (plan_path, "HEAD")
    origin = planned or (find_added(repo, path, rev=rev) if repo.head() else "")
    text = find_text(repo, "HEAD", plan_path)
    if not origin or text is None or has_heirs(find_text(repo, origin, path), text):
        return origin
    changes = repo.git.run("log", "--format=%H", f"{origin}..HEAD", "--", plan_path).decode().split()
    for commit in changes:
        then = find_text(repo, commit, plan_path)
        if not has_heirs(then, text):
            break
        origin, text = commit, then or text
    return origin


def _find_names(repo: Repo, path: str, plans: set[str]) -> set[str]:
    """Return what a plan's file was called, of the names that relay's commits know and that no file has any more."""
    names = {path}
    others = plans - names  # whatever a trailer says: looked at only where git says the same
    while others and (added := find_added(repo, path)):
        path = _find_old_name(repo, path, added)
        if path not in others or find_stat(repo.root, path) is not None:
            break
        others.remove(path)
        names.add(path)
    return names


def _find_old_name(repo: Repo, path: str, commit: str) -> str:
    """Return what a commit renamed a file from; empty where it did not."""
    shown = repo.git.run("diff-tree", "-r", "-M", "--diff-filter=R", "--name-status", "--no-commit-id", "-z", commit)
    parts = [os.fsdecode(part) for part in shown.split(b"\0")]
    return next((old for old, new in zip(parts[1::3], parts[2::3], strict=False) if new == path), "")


def find_added(repo: Repo, path: str, *, rev: str = "HEAD") -> str:
    """Return the last commit below `rev` that added a file; empty when it is not committed."""
    return repo.git.run("log", "-1", "--diff-filter=A", "--format=%H", rev, "--", path).decode().strip()


def _parse_commit(text: CommitText) -> RelayCommit:
    return RelayCommit(
        commit=text.commit,
        tree=text.tree,
        parents=text.parents,
        subject=text.message.subject,
        body=text.message.body,
        plan=parse_path(text.get(trailers.PLAN)),
        phase=text.get(trailers.PHASE),
        status=text.get(trailers.STATUS),
        items=tuple(text.get(trailers.ITEMS).split()),
        session=text.get(trailers.SESSION),
        gate=text.get(trailers.GATE),
        sandbox=text.get(trailers.SANDBOX),
        usage=trailers.parse_usage(text.get(trailers.USAGE)),
        cost_usd=trailers.parse_cost(text.get(trailers.COST)),
        estimated=trailers.parse_spent("", text.get(trailers.COST)).estimated,
        time=text.time,
        found=text.found,
    )

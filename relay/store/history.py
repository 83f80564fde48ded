"""The branch's commits about a plan: the state that survives everything but the loss of the branch."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.tree import find_stat
from relay.base.values import dataclass
from relay.git.command import GitError
from relay.git.message import CommitText, read_text, read_texts, walk_texts
from relay.git.names import find_plan_branch, name_jobs, parse_path
from relay.git.object_database import find_marks
from relay.git.repository import Repo, find_id
from relay.git.trees import GITLINK, TREE, find_entries
from relay.plan.lineage import has_heirs
from relay.plan.parse import find_plan_in
from relay.plan.text import decode_text, find_ledger_path
from relay.session.usage import Spent, Usage, rank_spent
from relay.store import trailers
from relay.store.refs import ATTEMPTS, LOOSE, find_attempt_ref, name_loose, parse_loose


def find_text(repo: Repo, commit: str | None, path: str) -> str | None:
    """Return a file's text in a commit; None if it has none there, or if there is no commit yet.

    Raises:
        GitError: The file is there and cannot be read, or git cannot say whether it is there.
    """
    if commit is None:
        return None
    rev = replace(repo, on="").head() if commit == "HEAD" else commit
    if rev is None:
        return None
    mode, blob = find_held(repo, rev, (path,)).get(path, ("", ""))
    if mode in {"", GITLINK, TREE.decode()}:
        return None
    found = repo.read_object(blob)
    if found is None or found[0] != "blob":
        raise GitError(f"{path} cannot be read as {rev[:10]} has it: git has lost {blob}", hint="git fsck")
    return decode_text(found[1])


def find_held(repo: Repo, rev: str, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return ``path: (mode, object id)`` for those of `paths` in a commit; a loose plan and its ledger as it left them.

    Raises:
        GitError: They cannot be read.
    """
    found = find_entries(repo, rev, paths)
    for path in paths:
        if tree := find_plan_tree(repo, rev, path):
            found |= find_entries(repo, tree, (path,))
    return found


def find_plan_tree(repo: Repo, rev: str, path: str) -> str:
    """Return the tree that has a loose plan, or its ledger, as a commit left them; empty for other files.

    Raises:
        GitError: This repository lacks the tree.
    """
    plans = map(parse_loose, repo.list_refs(LOOSE))
    plan = next((plan for plan in plans if path in {plan, find_ledger_path(plan)}), "")
    made = read_all_plans(repo, rev, plan_path=plan) if plan and not find_entries(repo, rev, (plan,)) else ()
    tree = next((commit.plan_tree for commit in made if commit.plan == plan and commit.status), "")
    if tree and repo.read_object(tree) is None:
        raise GitError(f"{path} cannot be read as {rev[:10]} has it: {tree} is not in this clone", hint=FETCH_LOOSE)
    return tree


FETCH_LOOSE = f"git fetch origin '{LOOSE}*:{LOOSE}*'"
_MOST_NEW = 32
"""Up to this number relay reads commits one by one; for more it asks git."""


HANDOFF_NOTE_TITLE = "Handoff note:"
"""The line above the handoff note in a commit's body."""


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
    """``planned``, ``done``, ``handoff`` or ``amended``, or any other text that stands there."""
    items: tuple[str, ...]
    session: str
    gate: str
    sandbox: str
    usage: Usage | None
    """None when unknown."""
    cost_usd: float | None
    """None when unknown."""
    estimated: bool
    """Usage and cost are upper bounds: not all of it was reported."""
    time: int
    """Committer date in seconds since the epoch."""
    found: tuple[tuple[str, str], ...]
    """All trailers in order."""

    @property
    def handoff_note(self) -> str:
        """The handoff note; empty for a commit of another status."""
        return self.body.partition(f"{HANDOFF_NOTE_TITLE}\n")[2] if self.status == "handoff" else ""

    @property
    def plan_tree(self) -> str:
        """The tree of a loose plan; empty for a plan that commits hold."""
        tree = dict(self.found).get(trailers.PLAN_TREE, "")
        return tree if _ID.fullmatch(tree) else ""

    @property
    def spent(self) -> Spent:
        """Usage and cost of the sessions behind it, unknown where they cannot be read.

        A commit whose trailers name neither was made without a session, or by somebody else.
        """
        if {key for key, _ in self.found}.isdisjoint({trailers.COST, trailers.USAGE}):
            return Spent()
        return Spent(usage=self.usage or Usage(), cost_usd=self.cost_usd, estimated=self.estimated)


_known: dict[tuple[Path, object, str, str], tuple[RelayCommit, ...]] = {}
"""By git directory, reach of a shallow clone, plan and commit: all of relay's commits that are reachable from it.

Commits from before the plan was there may be missing; with an empty plan none is.
"""
_LONG_BYTES = 1 << 20
"""Size of all pack indexes, some 35,000 objects. Beyond it relay looks for a shorter way through the history."""


def read_relay_commits(
    repo: Repo, plan_path: str, *, rev: str = "HEAD", newer_than: str = ""
) -> tuple[RelayCommit, ...]:
    """Return the commits reachable from `rev` whose ``Relay-Plan`` is `plan_path`, newest first, in one git call.

    Args:
        rev: Where to start; an unborn branch has no commits.
        newer_than: A commit at which to stop; empty for the root.
    """
    return tuple(commit for commit in read_all_plans(repo, rev, newer_than) if commit.plan == plan_path)


def read_all_plans(
    repo: Repo, rev: str = "HEAD", newer_than: str = "", *, plan_path: str = ""
) -> tuple[RelayCommit, ...]:
    """Return all commits with a plan's name, of any plan, newest first.

    The commits reachable from a commit never change, so only the new ones of a branch that has grown are read.

    Args:
        plan_path: Commits from before this plan need not be read; empty to read all.
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
    found = (*(commit for commit in map(_parse_commit, newer) if commit.plan), *known)
    _known.clear()  # another thread may do so at any time
    _known[*place, start] = found
    return found


def _find_known(
    repo: Repo, place: tuple[Path, object, str], start: str
) -> tuple[list[CommitText], tuple[RelayCommit, ...] | None]:
    """Return the commits from `start` down to one whose history is known, or to the root, and that history.

    The second value is None if only git can tell.
    """
    newer: list[CommitText] = []
    at, texts = start, walk_texts(repo, start, _MOST_NEW)
    while (known := _known.get((*place, at))) is None:
        text = next(texts, None)
        if text is None:
            return [], None
        newer.append(text)
        if not text.parents:
            return newer, ()
        at = text.parents[0]
    return newer, known


def _ask_for_all(repo: Repo, start: str, *newer_than: str) -> tuple[RelayCommit, ...]:
    stop = (f"^{commit}" for commit in newer_than if commit)
    args = ("--basic-regexp", f"--grep=^{trailers.PLAN}:", "--end-of-options", start, *stop, "--")
    return tuple(commit for commit in map(_parse_commit, read_texts(repo.git, *args)) if commit.plan)


def _find_before(repo: Repo, plan_path: str) -> tuple[str, ...]:
    """Return commits below which a long history has nothing of a plan; empty if that is not certain."""
    packs = (repo.objects_dir / "pack").glob("*.idx") if plan_path else ()
    is_long = sum(pack.stat().st_size for pack in packs) > _LONG_BYTES
    added = _find_fresh(repo, plan_path) if is_long else ""
    return read_text(repo, added).parents if added else ()


def _find_fresh(repo: Repo, plan_path: str) -> str:
    """Return the commit that last added the plan's file; empty if the plan has a past (a tick, another name)."""
    added = find_added(repo, plan_path)
    plan = find_plan_in(find_text(repo, added or None, plan_path) or "")
    return "" if plan is None or plan.done_ids or _find_old_name(repo, plan_path, added) else added


def read_plan_commits(repo: Repo, plan_path: str) -> tuple[RelayCommit, ...]:
    """Return the commits of the plan that the file holds now, newest first.

    These are the last ``planned`` commit and those that followed. A plan that replaced another plan in the same file
    starts anew. A plan that was renamed, in a commit, keeps the commits under its old name.
    """
    every = read_all_plans(repo, "HEAD", plan_path=plan_path)
    names = _find_names(repo, plan_path, {commit.plan for commit in every})
    return _drop_earlier(repo, plan_path, tuple(commit for commit in every if commit.plan in names))


def _drop_earlier(repo: Repo, plan_path: str, commits: tuple[RelayCommit, ...]) -> tuple[RelayCommit, ...]:
    """Leave out the commits for plans that the file held before this one."""
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
        if not has_heirs(then, text):  # the next plan has no item of that one
            return commits[:at]
        text = then or text
    return commits


def _find_older(repo: Repo, commits: tuple[RelayCommit, ...], first: int) -> int:
    """Return the index of the first commit below `first` in history; a commit that was rewritten is not below it."""
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


def walk_changes(
    repo: Repo, at: str, names: Sequence[str], *, order: str, last: str = "", below: Sequence[str] = ()
) -> Iterator[CommitText]:
    """Yield the commits from `at` that changed a file, newest first. A plan's are near HEAD; git would search further.

    Args:
        names: All names that the file has had.
        order: At a merge, ``--topo-order`` for one line of commits after the other, ``--date-order`` for their time.
        last: The last commit to look at; empty for the root.
        below: The parents of `last`.
    """
    for text in walk_texts(repo, at, _MOST_NEW):
        parent = next(iter(text.parents), repo.empty_tree)
        if find_held(repo, text.commit, names) != find_held(repo, parent, names):
            yield text
        if text.commit == last or not text.parents:
            return
        at = parent
    loose = ("--basic-regexp", f"--grep=^{trailers.PLAN_TREE}:") if repo.list_refs(*map(name_loose, names)) else ()
    args = (*loose, at, *(f"^{commit}" for commit in below), "--", *(() if loose else names))
    yield from read_texts(repo.git, order, *args)


def add_spent(commits: Iterable[RelayCommit]) -> Spent:
    """Return the cost of the sessions behind some commits, counting each session once.

    A commit that was amended or rebased says the same as the one before it, and a merge can bring both.
    """
    found: dict[tuple[str, ...], Spent] = {}
    for commit in commits:
        key = (commit.session, commit.phase, commit.status) if commit.session else (commit.commit,)
        found[key] = max(found.get(key, commit.spent), commit.spent, key=rank_spent)
    return sum(found.values(), start=Spent())


def find_beginning(repo: Repo, plan_path: str) -> str:
    """Return the commit on which the plan's work began; HEAD before any work, empty without a commit."""
    commits = read_plan_commits(repo, plan_path)
    return next(iter(commits[-1].parents), "") if commits else repo.head() or ""


_ID = re.compile(r"[0-9a-f]{40,64}")
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40,64})", re.MULTILINE)


def read_undone(repo: Repo, commits: Sequence[RelayCommit], rev: str = "HEAD") -> frozenset[str]:
    """Return the commits that a `git revert` since the oldest of `commits` took back and no later one brought back.

    Args:
        commits: Newest first.
        rev: Where the history begins that is searched.
    """
    start = repo.find_commit(rev) if commits else None
    if start is None:
        return frozenset()
    texts: list[CommitText] = []
    for text in walk_texts(repo, start, _MOST_NEW):
        texts.append(text)
        if text.commit == commits[-1].commit or not text.parents:
            return _find_reverted(texts)
    below = f"^{commits[-1].commit}^@"  # a shallow clone lacks the parents that the commit names
    args = ("--basic-regexp", "--grep=^This reverts commit ", "--end-of-options", start, below, "--")
    return _find_reverted(read_texts(repo.git, *args))


def _find_reverted(reverts: Iterable[CommitText]) -> frozenset[str]:
    """Return the commits that commits of `git revert` took back and no later one brought back.

    Args:
        reverts: Newest first.
    """
    undone: set[str] = set()
    for text in reverts:
        if text.commit not in undone and not text.get(trailers.PLAN):  # the words of a session revert nothing
            undone.update(_REVERTS.findall(text.message.body))
    return frozenset(undone)


def list_doubts(commits: Sequence[RelayCommit], undone: frozenset[str]) -> tuple[str, ...]:
    """Return the ``Relay-Doubt`` sentences of commits that were not undone, each once, newest first."""
    return tuple(
        dict.fromkeys(
            words for one in commits if one.commit not in undone for key, words in one.found if key == trailers.DOUBT
        )
    )


def was_made_here(repo: Repo, commit: RelayCommit) -> bool:
    """Return whether relay itself made this commit of HEAD's branch in this repository, not a clone or fetch.

    The reflog proves it, by the reason that `relay.store.commit` writes.
    """
    listed = repo.git.probe("log", "-g", "--format=%H %gs", f"refs/heads/{repo.branch}", "--").out
    return f"{commit.commit} relay: {commit.subject}" in listed.decode(errors="replace").splitlines()


def read_rewound_commits(repo: Repo, plan_path: str, own: Sequence[RelayCommit]) -> tuple[RelayCommit, ...]:
    """Return the commits that `relay rewind` left on other branches of the same plan, newest first.

    Their cost is spent. A `git revert` leaves its past on the branch itself, so that is in `own` already.

    Args:
        own: The plan's commits on this branch, from `read_plan_commits`.
    """
    head = repo.head()
    if head is None or not repo.list_refs("refs/relay/rewound/"):
        return ()
    origin = find_origin(repo, plan_path, own)
    if not origin:
        return ()
    args = ("--basic-regexp", f"--grep=^{trailers.PLAN}:", "--glob=refs/relay/rewound", "--ancestry-path")
    found = (_parse_commit(text) for text in read_texts(repo.git, *args, f"^{origin}", f"^{head}", "--"))
    return tuple(commit for commit in found if commit.plan == plan_path)


def read_unlanded_commits(repo: Repo, plan_path: str, own: Sequence[RelayCommit]) -> tuple[RelayCommit, ...]:
    """Return the commits of the branch's jobs that HEAD does not have: their cost is spent.

    On a job's own branch these are the commits of the other jobs, and of the branch that they all land on.

    Args:
        own: The plan's commits on this branch, from `read_plan_commits`.
    """
    head, branch = repo.head(), find_plan_branch(repo.branch or "")
    attempts = find_attempt_ref(name_jobs(branch))
    tips = set(repo.list_refs(f"refs/heads/{name_jobs(branch)}").values())
    if head is None or not tips:
        return ()
    # A phase that is being landed is in the history of its attempt and on no branch.
    tips.update(commit for ref, commit in repo.list_refs(ATTEMPTS).items() if ref.startswith(attempts))
    tips.update(filter(None, [find_id(repo.common_dir, f"refs/heads/{branch}")]))
    if tips <= {head}:
        return ()
    origin = find_origin(repo, plan_path, own)
    below = (f"^{head}", *((f"^{origin}",) if origin else ()))
    args = ("--basic-regexp", f"--grep=^{trailers.PLAN}:", "--end-of-options", *sorted(tips), *below, "--")
    found = (_parse_commit(text) for text in read_texts(repo.git, *args))
    return tuple(commit for commit in found if commit.plan == plan_path and commit.status)


def find_origin(repo: Repo, plan_path: str, own: Sequence[RelayCommit]) -> str:
    """Return the commit that brought the plan as the file holds it now; empty if none has.

    Args:
        own: The plan's commits on this branch, from `read_plan_commits`.
    """
    planned = next((commit.commit for commit in own if commit.status == "planned"), "")
    # Look below its first commit: the file may have been renamed since, or removed and brought back.
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
    """Return the names that a plan's file has had, of those that relay's commits name and no file has any more."""
    names = {path}
    others = plans - names  # names from trailers count only if git confirms them
    while others and (added := find_added(repo, path)):
        path = _find_old_name(repo, path, added)
        if path not in others or find_stat(repo.root, path) is not None:
            break
        others.remove(path)
        names.add(path)
    return names


def _find_old_name(repo: Repo, path: str, commit: str) -> str:
    """Return the name from which a commit renamed a file; empty if it did not."""
    from relay.git.objects import find_renames

    return next((old for old, new in find_renames(repo, commit).items() if new == path), "")


def find_added(repo: Repo, path: str, *, rev: str = "HEAD") -> str:
    """Return the last commit below `rev` that added a file; empty if it is not committed."""
    return repo.git.run("log", "-1", "--diff-filter=A", "--format=%H", rev, "--", path).decode().strip()


def find_removed(repo: Repo, path: str) -> str:
    """Return the last commit that removed or renamed a file; empty if none did."""
    if repo.head() is None:
        return ""
    args = ("log", "-1", "--diff-filter=D", "--no-renames", "--format=%H", "HEAD", "--", path)
    return repo.git.run(*args).decode().strip()


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

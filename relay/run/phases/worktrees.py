"""Make the work trees that jobs run in, reuse them for the next phase, and remove them when they are empty.

They lie beside the repository, in ``<its name>.relay/``, by number; a work tree's branch names its phase. relay reads
this from git each time, so the next run finds the work trees of a killed one.
"""

import contextlib
import os
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

from relay.base.errors import LockedError, RelayError, RepoError
from relay.base.tree import find_stat
from relay.base.values import dataclass
from relay.base.walk import open_folder, open_ignored
from relay.config import Settings
from relay.git import refs, worktrees
from relay.git.message import read_text
from relay.git.names import JOB_BRANCHES, find_plan_branch, list_paths, name_jobs
from relay.git.notes import is_locked, lock_worktree
from relay.git.objects import is_ancestor
from relay.git.repository import Repo, leave_work_tree, open_worktree
from relay.git.status import check_state, read_status
from relay.plan.model import Plan
from relay.plan.text import STATE_DIR, find_ledger_path
from relay.run.commit.readiness import find_common
from relay.run.phases.landing import Job, Landing, LandingCase, find_landing, get_tip, reopen
from relay.sandbox.places import GENERATED
from relay.setup.ignored import bring_ignored, drop_packages, find_brought_packages, is_brought, is_copy
from relay.setup.open import hold_worktree
from relay.setup.workspace import get_mechanism
from relay.store.attempts import displace_open_attempt, read_attempt
from relay.store.branches import move_branch
from relay.store.completion import drop_pending
from relay.store.history import read_relay_commits
from relay.store.refs import ATTEMPTS, find_attempt_ref, get_branch
from relay.store.trailers import ATTEMPT_STATUSES, STATUS
from relay.store.worktree_notes import find_home, get_gate_place, get_jobs_place, is_checked, note_checked, note_home

_KEPT = ("outputs", "outputs/evidence", "sessions", "history", "reports")
"""Folders below ``.relay`` whose files move to the main work tree before a work tree is removed."""
_MOST_PLACES = 1_000


def name_job_branch(main: Repo, phase_id: str) -> str:
    """Return the branch of a phase's job.

    Raises:
        RepoError: HEAD is detached.
    """
    return f"{name_jobs(get_branch(main))}{quote(phase_id, safe='.')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """The work trees of a repository, as one look found them."""

    main: Repo
    """The work tree whose branch is the plan's."""
    plan_path: str
    listed: tuple[worktrees.Worktree, ...]
    jobs: tuple[Job, ...]
    """Those of the plan's branch."""


def look_at_trees(main: Repo, plan_path: str, *, repair: bool = False) -> Trees:
    """Look at all work trees.

    Args:
        repair: Whether half-made ones are repaired first; the caller holds the lock of the plan's.
    """
    if repair:
        _finish_half(main)
    listed, branch, found = worktrees.list_worktrees(main), main.branch, []
    prefix = name_jobs(branch) if branch else None
    for tree in listed:
        if not (prefix and tree.branch and tree.branch.startswith(prefix)) or tree.unusable:
            continue
        with contextlib.suppress(RelayError):  # it is nobody's work tree any more
            phase_id = unquote(tree.branch.removeprefix(prefix))
            found.append(Job(phase_id=phase_id, plan_path=plan_path, repo=open_worktree(main, tree.root)))
    return Trees(main=main, plan_path=plan_path, listed=listed, jobs=tuple(found))


def find_jobs(main: Repo, plan_path: str) -> tuple[Job, ...]:
    """Return the jobs of the plan's branch that have a work tree, by its place."""
    return look_at_trees(main, plan_path).jobs


def find_branch_tree(here: Repo, branch: str) -> Repo:
    """Return the work tree that has the plan's branch now; one without files if it is checked out nowhere.

    Args:
        here: Where the user typed the command.

    Raises:
        RepoError: A rebase or the like is under way here, or git would not let anything land there.
    """
    if here.branch == branch:
        return replace(here, on=branch)
    if words := check_state(here):
        raise RepoError(words)  # it may be the branch that is rebased
    others = (tree for tree in worktrees.list_worktrees(here) if tree.branch == branch)
    other = next((tree for tree in others if not tree.unusable.startswith("prunable")), None)
    if other is None:
        return leave_work_tree(here, branch)
    if other.unusable:  # git would show all that lands as undone there
        raise RepoError(
            f"{branch} is checked out in {other.root}, which is {other.unusable}",
            hint=f"git worktree unlock {shlex.quote(str(other.root))}",
        )
    return replace(open_worktree(here, other.root), on=branch)


def follow_branch(here: Repo, branch: str, tip: str) -> str:
    """Return the plan's branch, which the user may have renamed: its open phases go along then.

    Args:
        here: Where the user typed the command; the caller holds its lock.
        tip: The commit that the branch was at when it was there.

    Raises:
        RepoError: The branch or the work tree is gone, or another relay is at work on one of its phases.
    """
    if not ((here.root / ".git").exists() and here.git_dir.exists()):
        hint = "type it again where it is now, or in another work tree of that repository"
        raise RepoError(f"{here.root} is no work tree any more, and everything is kept", hint=hint)
    if refs.find_ref(here, f"refs/heads/{branch}") is not None:
        return branch
    now, head = here.branch, here.head()
    if now is None or head is None or not is_ancestor(here, tip, head):
        raise RepoError(f"the branch {branch} is gone", hint=f"git branch {shlex.quote(branch)} {tip} puts it back")
    move_jobs(here, branch, now)
    return now


def move_jobs(main: Repo, old: str | None, new: str) -> None:
    """Have a plan's open phases go on under another branch; may be repeated after a kill.

    Args:
        main: The caller holds its lock.
        old: The branch that was the plan's; None for a detached HEAD.
        new: The branch that will be.

    Raises:
        RepoError: Another relay is at work on one of them.
    """
    if old is None:
        return
    if taken := _find_taken(main, old, new):
        raise RepoError(f"phase {', '.join(taken)} is open on {old} and on {new}", hint="finish one of them first")
    trees = {tree.branch: tree for tree in worktrees.list_worktrees(main)}
    for ref, commit in main.list_refs(f"refs/heads/{name_jobs(old)}").items():
        own = ref.removeprefix("refs/heads/")
        other = f"{name_jobs(new)}{own.removeprefix(name_jobs(old))}"
        with contextlib.ExitStack() as stack:
            tree = trees.get(own)
            if tree is not None and tree.unusable.startswith("locked"):  # a person did that: it stays where it is
                continue
            repo = open_worktree(main, tree.root) if tree is not None and not tree.unusable else None
            if repo is not None:
                stack.enter_context(lock_worktree(repo))
            refs.move_ref(main, f"refs/heads/{other}", commit, None)
            if attempt := refs.find_ref(main, find_attempt_ref(own)):
                refs.move_ref(main, find_attempt_ref(other), attempt, None)
            if repo is not None:
                worktrees.put_on_branch(repo, other)
            if attempt:
                refs.drop_ref(main, find_attempt_ref(own), attempt)
            refs.drop_ref(main, ref, commit)


def _find_taken(main: Repo, old: str, new: str) -> tuple[str, ...]:
    """Return the phases that both branches have, each with work of its own."""
    taken = []
    for ref in main.list_refs(f"refs/heads/{name_jobs(old)}"):
        own = ref.removeprefix("refs/heads/")
        name = own.removeprefix(name_jobs(old))
        other = f"{name_jobs(new)}{name}"
        pairs = (ref, f"refs/heads/{other}"), (find_attempt_ref(own), find_attempt_ref(other))
        for here, there in pairs:  # after a kill both are at the same commit, or only one is
            mine, his = refs.find_ref(main, here), refs.find_ref(main, there)
            if mine and his and mine != his and unquote(name) not in taken:
                taken.append(unquote(name))
    return tuple(taken)


def adopt_jobs(main: Repo) -> tuple[str, ...]:
    """Have the open phases of a branch that was renamed to HEAD's go on here; return a sentence for each branch."""
    here, refs_of_jobs = get_branch(main), main.list_refs(f"refs/heads/{JOB_BRANCHES}")
    olds = dict.fromkeys(find_plan_branch(ref.removeprefix("refs/heads/")) for ref in refs_of_jobs)
    said = []
    for old in olds:
        if refs.find_ref(main, f"refs/heads/{old}") is not None or not _stands_here(main, old):
            continue
        gone = f"{old}, which is no branch any more"
        if taken := _find_taken(main, old, here):
            said.append(f"open phases of {gone}, stay as they are, because phase {', '.join(taken)} is open here too")
            continue
        move_jobs(main, old, here)
        said.append(f"open phases of {gone}, go on here, on {here}")
    return tuple(said)


def _stands_here(main: Repo, branch: str) -> bool:
    """Return whether a branch has open phases, and each of its phases began at a commit that HEAD has."""
    tip, is_any_open = get_tip(main), False
    for ref, commit in main.list_refs(f"refs/heads/{name_jobs(branch)}").items():
        is_any_open |= read_attempt(main, ref.removeprefix("refs/heads/")) is not None
        while not is_ancestor(main, commit, tip):
            text, is_any_open = read_text(main, commit), True
            if text.get(STATUS) not in ATTEMPT_STATUSES or not text.parents:
                return False
            commit = text.parents[0]  # noqa: PLW2901  # below the phase's own
    return is_any_open


def find_lost(trees: Trees, plan: Plan) -> tuple[str, ...]:
    """Return the open phases with work that has not landed, and without a work tree here."""
    main = trees.main
    if main.branch is None:
        return ()
    places = {tree.branch: tree.root for tree in trees.listed}
    commits, tip = main.list_refs(f"refs/heads/{name_jobs(main.branch)}"), get_tip(main)
    attempts = main.list_refs(ATTEMPTS)
    found = []
    for phase_id in (phase.id for phase in plan.phases if not phase.done):
        branch = name_job_branch(main, phase_id)
        commit, place = commits.get(f"refs/heads/{branch}"), places.get(branch)
        if place is not None and (place / ".git").exists():
            continue
        if find_attempt_ref(branch) in attempts or (commit is not None and not is_ancestor(main, commit, tip)):
            found.append(phase_id)
    return tuple(found)


def is_free(main: Repo, job: Job) -> bool:
    """Return whether a job has landed and its work tree is clean and unused."""
    return find_uncommitted(main, job) == ()


def find_uncommitted(main: Repo, job: Job) -> tuple[str, ...] | None:
    """Return the files of a landed job's work tree that no commit has; None where it is at work or has not landed."""
    if is_locked(job.repo) or find_landing(main, job).case is not LandingCase.LANDED:
        return None
    status = read_status(job.repo)
    packages = set(find_brought_packages(job.repo, status))
    return (*status.nested, *status.changed, *(path for path in status.untracked if path not in packages))


def ensure_job(
    trees: Trees,
    phase_id: str,
    *,
    settings: Settings,
    busy: Collection[str],
    start: str = "",
    hold: Callable[[Repo], AbstractContextManager[object]] = hold_worktree,
) -> Job | None:
    """Return a phase's work tree, moved to `start` where nothing has been done in it yet; None: another relay has it.

    It is the phase's own, else a free one, else a new one.

    Args:
        trees: As a look has just found them; half-made ones are repaired.
        settings: Say which ignored files each work tree gets, whatever they are, and whether setup installs packages.
        busy: Ids of phases whose work trees are not free, whatever git says.
        start: The commit that the phase begins at; empty for the plan's tip.
        hold: Takes the work tree's lock, and may keep it.

    Raises:
        RelayError: It cannot be made.
    """
    main = trees.main
    start = start or get_tip(main)
    job = next((job for job in trees.jobs if job.phase_id == phase_id), None)
    if job is None:
        branch = name_job_branch(main, phase_id)
        if held := next((tree for tree in trees.listed if tree.branch == branch), None):
            if held.unusable.startswith("prunable"):  # its relay is still at work
                return None
            act = "unlock" if held.unusable else "repair"
            words = f"{branch} is checked out in {held.root}, which is {held.unusable or 'broken'}"
            raise RepoError(words, hint=f"git worktree {act} {shlex.quote(str(held.root))}")
        kept = _find_kept(main, branch)
        free = (job for job in trees.jobs if job.phase_id not in busy and is_free(main, job))
        # A branch without its work tree may have anything.
        job = (None if kept else next(free, None)) or _make_job(trees, phase_id, "" if kept else start)
    try:
        with hold(job.repo):
            if job.phase_id != phase_id:
                job = _hand_on(main, job, phase_id)
            if find_home(job.repo) != main.root:
                note_home(job.repo, main.root)
            if (landing := find_landing(main, job)).case in {LandingCase.WORKING, LandingCase.MERGING}:
                catch_up(job, landing)
            worktrees.follow_sparse(main, job.repo)
            if _bring_up(main, job, start) or not is_brought(job.repo):
                named = (*settings.copy, *([settings.env_file] if settings.env_file else []))
                has_packages = not settings.setup and get_mechanism(settings).confines
                bring_ignored(main, job.repo, named=named, has_packages=has_packages)
    except LockedError:
        return None
    return job


def _find_kept(main: Repo, branch: str) -> str | None:
    """Return the commit of a job's branch that has no work tree; None without one."""
    ref = f"refs/heads/{branch}"
    kept = refs.find_ref(main, ref)
    attempt = read_attempt(main, branch) if kept is None else None
    if attempt is not None and attempt.base_head and main.find_commit(attempt.base_head):
        refs.move_ref(main, ref, attempt.base_head, None)  # a clone that has only relay's refs of an open phase
        return attempt.base_head
    return kept


def _make_job(trees: Trees, phase_id: str, start: str) -> Job:
    """Make a work tree for a phase, whose branch begins at `start`; the branch is there where that is empty."""
    main = trees.main
    folder, branch = get_jobs_place(main.root), name_job_branch(main, phase_id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "move that away, or set XDG_DATA_HOME to a directory that you can write to"
        raise RepoError(f"relay cannot make its work trees in {folder}: {error.strerror}", hint=hint) from error
    if start and not refs.move_ref(main, f"refs/heads/{branch}", start, None):
        raise RepoError(f"there is a branch {branch} since a moment ago", hint="run this again")
    displace_open_attempt(main, branch)
    place = next((folder / str(n) for n in range(1, _MOST_PLACES) if not os.path.lexists(folder / str(n))), None)
    if place is None:
        raise RepoError(f"{folder} is full of work trees", hint="git worktree list")
    return Job(phase_id=phase_id, plan_path=trees.plan_path, repo=worktrees.add_worktree(main, place, branch))


def _hand_on(main: Repo, free: Job, phase_id: str) -> Job:
    """Give a free work tree, whose lock is held, to another phase."""
    branch, old, own = name_job_branch(main, phase_id), get_branch(free.repo), get_tip(free.repo)
    note_checked(free.repo)  # of the phase that has landed
    refs.move_ref(main, f"refs/heads/{branch}", own, None)
    worktrees.put_on_branch(free.repo, branch)
    refs.drop_ref(main, f"refs/heads/{old}", own)
    return replace(free, phase_id=phase_id)


def catch_up(job: Job, landing: Landing) -> None:
    """Put a phase that has begun on the plan's tip: others have landed, or the user committed, amended or rebased.

    Its run merges that with what its sessions and commits did (`relay.run.carry.carry_over`).

    Args:
        job: The caller holds its work tree.
        landing: As `find_landing` said; its tip may be another commit.

    Raises:
        RepoError: See `relay.run.phases.landing.reopen`.
    """
    repo, attempt, own, tip = job.repo, read_attempt(job.repo), get_tip(job.repo), landing.tip
    if own == tip or (attempt and own not in {attempt.base_head, attempt.joined} and not is_ancestor(repo, own, tip)):
        return
    if landing.case is LandingCase.WORKING:
        made = next(iter(read_relay_commits(repo, job.plan_path, rev=own, newer_than=tip)), None)
        if (made and made.status != "handoff") or not (made or attempt):
            return
    is_own_checked = is_checked(repo, own)
    stands_on_others = attempt is not None and attempt.joined and own == attempt.base_head
    if not stands_on_others and find_common(repo, job.plan_path, tip, own) != own:  # it has commits of its own
        reopen(job, tip)
        note_checked(repo, tip, *([own] if is_own_checked else []))  # its attempt says what nobody has checked
    elif is_own_checked:  # else others made what it has, and it is checked again when it lands
        note_checked(repo, tip, own)
    move_branch(repo, get_branch(repo), own, tip, reason=f"relay run: phase {job.phase_id} is put on what is new")
    drop_pending(repo)  # files that stayed are the sessions'


def bring_together(job: Job, landing: Landing) -> tuple[str, ...]:
    """Put a phase, done or at work, on the plan's tip; return what was left of a run before.

    Raises:
        RepoError: See `catch_up`.
    """
    with hold_worktree(job.repo) as told:
        catch_up(job, landing)
    return told


def _bring_up(main: Repo, job: Job, start: str) -> bool:
    """Move a work tree to the commit at which its phase begins; False where the phase has begun already."""
    own, tip = get_tip(job.repo), get_tip(main)
    if read_attempt(job.repo) is not None or not (own == start or is_ancestor(main, own, tip)):
        return False
    if own != start:
        move_branch(job.repo, get_branch(job.repo), own, start, reason=f"relay run: phase {job.phase_id} begins")
    if start == tip:
        note_checked(job.repo, start)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTree:
    """A work tree that stays although its phase has landed."""

    place: Path
    why: str
    """As the user is told."""


def remove_free(main: Repo, plan_path: str) -> Iterator[KeptTree]:
    """Remove empty work trees with their branches; yield those that hold something."""
    for job in look_at_trees(main, plan_path, repair=True).jobs:
        with contextlib.suppress(RepoError), hold_worktree(job.repo):
            pass  # repairs the state that a killed run left
        if uncommitted := find_uncommitted(main, job):
            yield KeptTree(place=job.repo.root, why=f"no commit has {list_paths(uncommitted)} in it")
        if uncommitted != ():
            continue
        with lock_worktree(job.repo):
            _bring_home(job.repo.root, main.root)
            branch, own = get_branch(job.repo), get_tip(job.repo)
            loose = (plan_path, find_ledger_path(plan_path))
            found = (path for path in worktrees.list_ignored(job.repo) if path not in loose)
            ignored = tuple(path for path in found if _is_only_there(main, job, path))
            worktrees.drop_worktree(main, get_gate_place(job.repo))
            if not ignored:
                drop_packages(job.repo)
            if ignored or not _take_away(main, job.repo.root):
                held = f"git ignores {list_paths(ignored)} in it" if ignored else "git does not let it go"
                yield KeptTree(place=job.repo.root, why=held)
                continue
        refs.drop_ref(main, f"refs/heads/{branch}", own)
    _drop_landed(main)
    for place in get_jobs_place(main.root).glob("*.gate"):
        if place.stem.isdecimal() and not os.path.lexists(place.with_suffix("")):
            worktrees.drop_worktree(main, place)
    with contextlib.suppress(OSError):  # something is left in it, or it never was
        get_jobs_place(main.root).rmdir()


def _is_only_there(main: Repo, job: Job, path: str) -> bool:
    """Return whether an ignored file is a session's: no cache, no package, and not as the user has it, or had it."""
    parts = path.split("/")
    if parts[0] == STATE_DIR or not GENERATED.isdisjoint(parts) or is_copy(job.repo, path):
        return False
    his, own = find_stat(main.root, path), find_stat(job.repo.root, path)
    return his is None or own is None or (his.st_size, his.st_mtime_ns) != (own.st_size, own.st_mtime_ns)


def _finish_half(main: Repo) -> None:
    """Repair half-made work trees; without an ignore file relay's own folder would count as a user's files."""
    for half in worktrees.forget_gone(main, get_jobs_place(main.root)):
        if branch := open_worktree(main, half).branch:
            displace_open_attempt(main, branch)
    place = worktrees.finish_half(main, get_jobs_place(main.root))
    if place is not None and (place / STATE_DIR).is_dir():
        with contextlib.suppress(OSError), open_ignored(place, (STATE_DIR,)):
            pass


def _take_away(main: Repo, place: Path) -> bool:
    """Remove a work tree, with a second try where git was killed; False when git refuses."""
    for _ in range(2):
        if worktrees.remove_worktree(main, place):
            return True
        _finish_half(main)
        if not place.exists():
            return True
    return False


def _drop_landed(main: Repo) -> None:
    """Drop landed branches whose relay was killed after it had removed the work tree."""
    if not (left := main.list_refs(f"refs/heads/{name_jobs(get_branch(main))}")):
        return
    tip, attempts = get_tip(main), main.list_refs(ATTEMPTS)
    kept = {tree.branch for tree in worktrees.list_worktrees(main)}
    for ref, commit in left.items():
        branch = ref.removeprefix("refs/heads/")
        is_open = find_attempt_ref(branch) in attempts
        if branch not in kept and not is_open and is_ancestor(main, commit, tip):
            refs.drop_ref(main, ref, commit)


def _bring_home(root: Path, home: Path) -> None:
    """Link relay's own session files into the main work tree; existing files stay."""
    for kind in _KEPT:
        with contextlib.suppress(OSError):
            names = [
                entry.name for entry in os.scandir(root / STATE_DIR / kind) if entry.is_file(follow_symlinks=False)
            ]
            for name in names:
                with (
                    contextlib.suppress(OSError),
                    open_folder(root, (STATE_DIR, *kind.split("/"))) as here,
                    open_folder(home, (STATE_DIR, *kind.split("/")), create=True, permissions=0o700) as there,
                ):
                    os.link(name, name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)

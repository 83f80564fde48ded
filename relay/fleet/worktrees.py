"""Make the work trees that jobs run in, reuse them for the next phase, and remove them when they are empty.

They lie beside the repository, in ``<its name>.relay/``, by number; a work tree's branch names its phase. relay reads
this from git each time, so the next run finds the work trees of a killed one.
"""

import contextlib
import os
import shlex
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

from relay.base.errors import LockedError, RelayError, RepoError
from relay.base.values import dataclass
from relay.base.walk import open_folder, open_ignored, open_parent, open_regular
from relay.fleet.landing import Job, LandingCase, find_landing, get_tip
from relay.git import refs, worktrees
from relay.git.names import name_jobs
from relay.git.notes import is_locked, lock_worktree
from relay.git.objects import is_ancestor
from relay.git.repository import Repo, open_repo
from relay.git.status import read_status
from relay.plan.model import Plan
from relay.plan.text import STATE_DIR
from relay.setup.open import hold_worktree
from relay.store.attempts import displace_attempt, read_attempt
from relay.store.branches import move_branch
from relay.store.environment import find_changed, watch_sessions
from relay.store.refs import ATTEMPTS, find_attempt_ref, get_branch
from relay.store.worktree_notes import find_home, get_jobs_place, note_checked, note_home

_KEPT = ("outputs", "outputs/evidence", "sessions", "history", "reports")
"""Folders below ``.relay`` whose files move to the main work tree before a work tree is removed."""
_CHUNK_BYTES = 1 << 20
_MOST_PLACES = 1_000


def name_job_branch(main: Repo, phase_id: str) -> str:
    """Return the branch of a phase's job.

    Raises:
        RepoError: HEAD is detached.
    """
    return f"{name_jobs(get_branch(main))}{quote(phase_id, safe='.')}"


def find_jobs(main: Repo, plan_path: str) -> tuple[Job, ...]:
    """Return the jobs of the plan's branch that have a work tree, by its place."""
    if (branch := main.branch) is None:
        return ()
    prefix = name_jobs(branch)
    found = []
    for tree in worktrees.list_worktrees(main):
        if tree.branch is None or tree.unusable or not tree.branch.startswith(prefix):
            continue
        with contextlib.suppress(RelayError):  # it is nobody's work tree any more
            repo = replace(open_repo(tree.root), hidden=main.hidden)
            phase_id = unquote(tree.branch.removeprefix(prefix))
            found.append(Job(phase_id=phase_id, plan_path=plan_path, repo=repo))
    return tuple(found)


def find_lost(main: Repo, plan: Plan) -> tuple[str, ...]:
    """Return the open phases whose branch has work that has not landed, and whose work tree is gone."""
    if main.branch is None:
        return ()
    places = {tree.branch: tree.root for tree in worktrees.list_worktrees(main)}
    commits, tip = main.list_refs(f"refs/heads/{name_jobs(main.branch)}"), get_tip(main)
    found = []
    for phase_id in (phase.id for phase in plan.phases if not phase.done):
        branch = name_job_branch(main, phase_id)
        commit, place = commits.get(f"refs/heads/{branch}"), places.get(branch)
        if commit is None or (place is not None and (place / ".git").exists()):
            continue
        if read_attempt(main, branch) is not None or not is_ancestor(main, commit, tip):
            found.append(phase_id)
    return tuple(found)


def is_free(main: Repo, job: Job) -> bool:
    """Return whether a job has landed and its work tree is clean and unused."""
    if is_locked(job.repo) or find_landing(main, job).case is not LandingCase.LANDED:
        return False
    status = read_status(job.repo)
    return not status.entries and not status.nested


def ensure_job(
    main: Repo, phase_id: str, plan_path: str, *, copied: Collection[str], busy: Collection[str], start: str = ""
) -> Job | None:
    """Return a phase's work tree, moved to `start` where nothing has been done in it yet; None: another relay has it.

    It is the phase's own, else a free one, else a new one.

    Args:
        main: The work tree whose branch is the plan's.
        copied: Ignored files and folders that a new work tree gets.
        busy: Ids of phases whose work trees are not free, whatever git says.
        start: The commit that the phase begins at; empty for the plan's tip.

    Raises:
        RelayError: It cannot be made.
    """
    _finish_half(main)
    start = start or get_tip(main)
    jobs = find_jobs(main, plan_path)
    job = next((job for job in jobs if job.phase_id == phase_id), None)
    if job is None:
        free = (job for job in jobs if job.phase_id not in busy and is_free(main, job))
        job = _hand_on(main, next(free, None), phase_id, plan_path, start)
    if job is None:
        return None
    if find_home(job.repo) != main.root:  # it is new, or its maker was killed
        for path in copied:
            copy_ignored(main, job.repo, path)
        note_home(job.repo, main.root)
    try:
        with hold_worktree(job.repo):
            _bring_up(main, job, start)
    except LockedError:
        return None
    return job


def _hand_on(main: Repo, free: Job | None, phase_id: str, plan_path: str, start: str) -> Job | None:
    branch = name_job_branch(main, phase_id)
    if held := next((tree for tree in worktrees.list_worktrees(main) if tree.branch == branch), None):
        if held.unusable.startswith("prunable"):  # its relay is still at work
            return None
        act = "unlock" if held.unusable else "repair"
        words = f"{branch} is checked out in {held.root}, which is {held.unusable or 'broken'}"
        raise RepoError(words, hint=f"git worktree {act} {shlex.quote(str(held.root))}")
    ref = f"refs/heads/{branch}"
    kept = refs.find_ref(main, ref)
    if free is None or kept is not None:  # a branch without its work tree may have anything
        if kept is None and not refs.move_ref(main, ref, start, None):
            raise RepoError(f"there is a branch {branch} since a moment ago", hint="run this again")
        displace_attempt(main, branch)
        folder = get_jobs_place(main.root)
        folder.mkdir(exist_ok=True)
        place = next((folder / str(n) for n in range(1, _MOST_PLACES) if not os.path.lexists(folder / str(n))), None)
        if place is None:
            raise RepoError(f"{folder} is full of work trees", hint="git worktree list")
        worktrees.add_worktree(main, place, branch)
        repo = open_repo(place)
        return Job(phase_id=phase_id, plan_path=plan_path, repo=replace(repo, hidden=main.hidden))
    with hold_worktree(free.repo):
        old, own = get_branch(free.repo), get_tip(free.repo)
        note_checked(free.repo)  # of the phase that has landed
        refs.move_ref(main, ref, own, None)
        worktrees.put_on_branch(free.repo, branch)
        refs.drop_ref(main, f"refs/heads/{old}", own)
    return replace(free, phase_id=phase_id)


def _bring_up(main: Repo, job: Job, start: str) -> None:
    """Move an untouched work tree to the commit at which its phase begins."""
    own, tip = get_tip(job.repo), get_tip(main)
    if read_attempt(job.repo) is not None or not (own == start or is_ancestor(main, own, tip)):
        return
    if own != start:
        move_branch(job.repo, get_branch(job.repo), own, start, reason=f"relay run: phase {job.phase_id} begins")
    if start == tip:
        note_checked(job.repo, start)


def copy_ignored(main: Repo, job: Repo, path: str) -> None:
    """Copy ignored files at or below `path` that the job lacks; links out of the work tree are left out."""
    names = [name for name in worktrees.list_ignored(main, path) if name.partition("/")[0] not in {STATE_DIR, ".git"}]
    by_sessions = find_changed(main, names)
    _copy_all(main, job, frozenset(names) - frozenset(by_sessions))
    if by_sessions:
        with watch_sessions(job, ()):  # a copy has a date of its own
            _copy_all(main, job, by_sessions)


def _copy_all(main: Repo, job: Repo, names: Collection[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):  # it is there already, or went meanwhile
            _copy(main.root, job.root, name)


def _copy(source: Path, target: Path, path: str) -> None:
    with open_parent(source, path) as (here, name), open_parent(target, path, create=True) as (there, _):
        if stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            leads = os.readlink(name, dir_fd=here)
            inside = os.path.normpath((source / path).parent / leads)
            if not leads.startswith("/") and Path(inside).is_relative_to(source):
                os.symlink(leads, name, dir_fd=there)
            return
        fd = open_regular(name, here)
        with os.fdopen(fd, "rb") as file:
            mode = os.fstat(fd).st_mode & 0o777
            made = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=there
            )
            with os.fdopen(made, "wb") as copy:
                shutil.copyfileobj(file, copy, _CHUNK_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTree:
    """A work tree that stays although its phase has landed."""

    place: Path
    ignored: tuple[str, ...]
    """Ignored files that exist only there; empty where git itself refuses to remove the work tree."""


def remove_free(main: Repo, plan_path: str) -> Iterator[KeptTree]:
    """Remove empty work trees with their branches; yield those that hold something."""
    _finish_half(main)
    for job in find_jobs(main, plan_path):
        with contextlib.suppress(RepoError), hold_worktree(job.repo):
            pass  # repairs the state that a killed run left
        if not is_free(main, job):
            continue
        with lock_worktree(job.repo):
            _bring_home(job.repo.root, main.root)
            branch, own = get_branch(job.repo), get_tip(job.repo)
            ignored = tuple(path for path in worktrees.list_ignored(job.repo) if path.partition("/")[0] != STATE_DIR)
            if ignored or not _take_away(main, job.repo.root):
                yield KeptTree(place=job.repo.root, ignored=ignored)
                continue
        refs.drop_ref(main, f"refs/heads/{branch}", own)
    _drop_landed(main)
    with contextlib.suppress(OSError):  # something is left in it, or it never was
        get_jobs_place(main.root).rmdir()


def _finish_half(main: Repo) -> None:
    """Repair half-made work trees; without an ignore file relay's own folder would count as a user's files."""
    for half in worktrees.forget_gone(main, get_jobs_place(main.root)):
        if branch := open_repo(half).branch:
            displace_attempt(main, branch)
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
    tip, attempts = get_tip(main), main.list_refs(ATTEMPTS)
    kept = {tree.branch for tree in worktrees.list_worktrees(main)}
    for ref, commit in main.list_refs(f"refs/heads/{name_jobs(get_branch(main))}").items():
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

"""Land the commits of a job's branch: move the plan's branch there, or merge both first.

Nothing is remembered between two steps: `find_landing` reads git each time, so a parent that was killed and one that
goes on take the same path. A merge becomes the job's open attempt. relay writes objects first, then its ref, the
checkpoint's, the branch and the files, and finds each step again after a crash.
"""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from msgspec import structs

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git import objects
from relay.git.identity import get_identity
from relay.git.message import CommitText, read_text, read_texts
from relay.git.names import JOB_BRANCHES, parse_path, render_ref_part
from relay.git.objects import find_base, is_ancestor
from relay.git.refs import move_ref
from relay.git.repository import Repo, is_checked_out
from relay.git.status import ChangeKind
from relay.git.trees import ABSENT
from relay.plan.lineage import find_lineage
from relay.plan.model import Plan
from relay.plan.text import find_ledger_path
from relay.run.attempt.start import read_carried, read_earlier_sessions
from relay.run.carry import is_here, save_found
from relay.run.commit.readiness import find_common
from relay.session.usage import Spent
from relay.setup.context import PlanFiles
from relay.setup.open import new_id
from relay.store import trailers
from relay.store.attempts import AttemptStart, OpenAttempt, displace_attempt, open_attempt, read_attempt
from relay.store.branches import move_branch
from relay.store.checkpoints import WipRecord, save_snapshots
from relay.store.history import find_text
from relay.store.obstacles import find_in_the_way
from relay.store.plan_versions import find_attempt_phase, parse_at
from relay.store.ref_notes import Course, Ending, read_notes
from relay.store.refs import get_branch
from relay.store.snapshot import TreeSnapshot, write_snapshot_tree
from relay.store.spend import give_up_attempt
from relay.store.worktree_notes import is_checked


class LandingCase(StrEnum):
    """What a job's phase needs to land on the plan's branch."""

    LANDED = "landed"
    """The plan's branch has all commits of the job; its work tree is free."""
    WORKING = "working"
    """The phase is not done on the job's branch: a run in its work tree goes on with it."""
    MERGING = "merging"
    """The phase is done, and a run in its work tree has to commit it on top of landed phases."""
    FORWARD = "forward"
    """The plan's branch can fast-forward: relay checked the commits here, and nothing else has landed since."""
    APART = "apart"
    """Other phases have landed since it began, or it has commits that relay did not check here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A phase with a work tree of its own."""

    phase_id: str
    plan_path: str
    repo: Repo
    """The job's own work tree; its branch is the job's."""

    @property
    def is_there(self) -> bool:
        """Whether its work tree and git directory are still there: somebody may remove either."""
        return (self.repo.root / ".git").exists() and self.repo.git_dir.exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A job's phase on its way to the plan's branch."""

    case: LandingCase
    tip: str
    """The tip of the plan's branch."""
    own: str
    """The tip of the job's branch."""
    done: str = ""
    """The commit in which the phase is done; empty while it is not."""


def find_landing(main: Repo, job: Job) -> Landing:
    """Return what a job's phase needs to land on the plan's branch; nothing is changed.

    Args:
        main: The work tree whose branch is the plan's.

    Raises:
        RepoError: One of the two branches has no commit.
    """
    tip, own = get_tip(main), get_tip(job.repo)
    case, attempt = _find_case(main, job, tip, own), read_attempt(job.repo)
    done = "" if case is LandingCase.WORKING else attempt.merges if attempt is not None and attempt.merges else own
    return Landing(case=case, tip=tip, own=own, done=done)


def is_open(case: LandingCase, attempt: OpenAttempt | None) -> bool:
    """Return whether a job has work that has not landed; `attempt` is its open attempt."""
    return case is not LandingCase.LANDED and (case is not LandingCase.WORKING or attempt is not None)


def find_phase_id(job: Job) -> str:
    """Return the id of a job's phase in its work tree's plan: others may have renumbered it."""
    attempt, text = read_attempt(job.repo), find_text(job.repo, job.repo.head(), job.plan_path)
    now = find_attempt_phase(job.repo, attempt, parse_at(text, job.plan_path)) if attempt and text else ""
    return now or (attempt.phase_id if attempt else job.phase_id)


def require_unmoved(main: Repo, job: Job, plan: Plan) -> None:
    """Refuse a plan that has another file, or has renumbered or removed a phase, while work on it has not landed.

    Args:
        main: The work tree whose branch is the plan's.
        plan: As that branch has it.

    Raises:
        RepoError: Somebody has changed the plan so.
    """
    tip = get_tip(job.repo)
    text = find_text(job.repo, tip, job.plan_path)
    was = parse_path(read_text(job.repo, tip).get(trailers.PLAN)) if text is None else None
    if was and not is_ancestor(main, tip, get_tip(main)):
        here, there = shlex.quote(job.plan_path), shlex.quote(was)
        raise RepoError(
            f"{job.plan_path} was {was} when phase {job.phase_id} was worked on in {job.repo.root}, not landed yet",
            hint=f"git mv {here} {there} && git commit -m 'the former name' -- {here} {there}; then relay run {there}",
        )
    own = parse_at(text, job.plan_path) if text is not None else plan
    phase = own.find_phase(job.phase_id)
    now = find_lineage(own, plan).phases.get(job.phase_id)
    if phase is None or now == job.phase_id:
        return
    is_begun = read_attempt(job.repo) is not None or not is_ancestor(main, tip, get_tip(main))
    if not is_begun or find_landing(main, job).case is LandingCase.LANDED:
        return
    words = f"is phase {now}" if now else "is gone"
    raise RepoError(
        f"phase {job.phase_id}, {phase.title!r}, {words} in the plan, and its work in {job.repo.root} has not landed",
        hint=f"put it back as {phase.heading!r} and give the new phases other numbers, then run this again",
    )


def _find_case(main: Repo, job: Job, tip: str, own: str) -> LandingCase:
    if open_case := find_open_case(job, own):
        return open_case
    if is_ancestor(main, own, tip):
        return LandingCase.LANDED
    return LandingCase.FORWARD if is_checked(job.repo, own) and is_ancestor(main, tip, own) else LandingCase.APART


def find_open_case(job: Job, own: str) -> LandingCase | None:
    """Return what its run has to do, `WORKING` or `MERGING`; None where the phase is done at `own`, its tip."""
    attempt = read_attempt(job.repo)
    if (
        attempt is not None and attempt.merges != own
    ):  # equal: a landing attempt whose branch has not gone to its start yet
        return LandingCase.MERGING if attempt.merges else LandingCase.WORKING
    text = find_text(job.repo, own, job.plan_path)
    phase = parse_at(text, job.plan_path).find_phase(job.phase_id) if text is not None else None
    return None if phase is not None and phase.done else LandingCase.WORKING


def get_tip(repo: Repo) -> str:
    """Return the commit at HEAD.

    Raises:
        RepoError: There is none yet.
    """
    if (head := repo.head()) is None:
        branch, last = repo.branch or "", repo.find_logged_head()
        if last and branch.startswith(JOB_BRANCHES):
            hint = f"git update-ref {shlex.quote(f'refs/heads/{branch}')} {last} puts it back"
            raise RepoError(f"the branch {branch} of {repo.root} is gone", hint=hint)
        raise RepoError("there is no commit yet that a phase could begin from", hint="git commit")
    return head


def find_obstacles(main: Repo, landing: Landing) -> tuple[str, ...]:
    """Return the user's changed files that the landing would touch; it waits until they are committed or put away."""
    # For a merge, other phases' landed files are here already.
    base = find_base(main, landing.tip, landing.own) or landing.tip
    return find_in_the_way(main, base, landing.own, at=landing.tip)


def land(main: Repo, job: Job, landing: Landing) -> tuple[str, ...] | None:
    """Take the plan's branch and its work tree to the job's commit.

    Args:
        main: The work tree whose branch is the plan's; the caller holds its lock.
        landing: `LandingCase.FORWARD`, as `find_landing` said.

    Returns:
        A sentence for each file, or for the index, that could not be updated; the next run tries again. None if the
        branch moved meanwhile; nothing was changed then.

    Raises:
        RepoError: Git has no name for the user; nothing was changed.
    """
    branch, identity = get_branch(main), get_identity(main).environment
    reason = f"relay: phase {job.phase_id} lands"
    if not is_checked_out(main):  # no files follow
        ref = f"refs/heads/{branch}"
        return () if move_ref(main, ref, landing.own, landing.tip, identity=identity, reason=reason) else None
    return move_branch(main, branch, landing.tip, landing.own, reason=reason, identity=identity)


def list_changes(repo: Repo, old: str, new: str) -> Iterator[tuple[str, str, str]]:
    """Return the difference of two trees as entries for a tree, removals first."""
    changes = sorted(objects.diff_trees(repo, old, new), key=lambda change: bool(change.object_id))
    return ((c.path, c.mode, c.object_id) if c.object_id else (c.path, ABSENT, repo.zero_id) for c in changes)


def reopen(job: Job, tip: str) -> None:
    """Have a phase that has commits begin again where it left the plan's branch, with all its work.

    Then it can be put on what is new there (`relay.run.carry.carry_over`). Its next commit has the others as a parent;
    it is proposed already where the phase is done. May be repeated after a kill.

    Args:
        job: Nobody else is at work in its work tree.
        tip: The tip of the plan's branch.

    Raises:
        RepoError: The plan has lost the phase, or there is none where it began.
    """
    repo, plan_path, own = job.repo, job.plan_path, get_tip(job.repo)
    base, attempt, is_unchecked = find_common(repo, plan_path, tip, own), read_attempt(repo), not is_checked(repo, own)
    files = PlanFiles(repo=repo, plan_path=plan_path, ledger_path=find_ledger_path(plan_path))
    if attempt is not None and not attempt.joined:
        if is_here(repo, attempt):
            attempt = save_found(files, attempt)
        elif attempt.last_wip is None:
            begun_at = TreeSnapshot(tree=attempt.base_tree, skipped=attempt.skipped)
            attempt = save_snapshots(repo, attempt, WipRecord(spend=attempt.spend), begun_at)
        tree = objects.write_paths_tree(repo, list_changes(repo, own, attempt.base_tree), start=base)
        carried = structs.replace(attempt.begun.carried, joins=own, is_unchecked=is_unchecked)
        course = structs.replace(attempt.course, baseline="") if is_unchecked else attempt.course
        begun = structs.replace(attempt.begun, base=base, carried=carried, course=course)
        displace_attempt(repo, replace(attempt, base_tree=tree, begun=begun))
        return
    if attempt is not None and attempt.merges and attempt.base_head != base:
        give_up_attempt(repo, attempt)  # it stood on others, and was taken off them
        attempt = None
    _, plan, now = (read_plan(repo, commit, plan_path) for commit in (base, own, tip))  # the run reads all three
    if job.phase_id not in find_lineage(plan, now).phases:
        words = f"phase {job.phase_id} has commits on {repo.branch}, and is not in the plan any more"
        raise RepoError(words, hint=f"its newest one is {own[:12]}")
    phase, text = plan.find_phase(job.phase_id), read_text(repo, own)
    is_done = phase is not None and phase.done
    number, note, earlier = (0, "", ()) if is_done else read_earlier_sessions(files, plan, job.phase_id)
    if attempt is None:
        commits = {"merges": own} if is_done else {"joins": own}
        start = AttemptStart(
            session_id=new_id(),
            phase_id=job.phase_id,
            plan_path=plan_path,
            # What somebody says was red before excuses nothing: the run looks for itself.
            course=Course(
                number=max(1, number), tries=number, baseline="" if is_unchecked else _find_baseline(repo, text)
            ),
            carried=structs.replace(read_carried(earlier), is_unchecked=is_unchecked, **commits),
            onto=base,
        )
        there = write_snapshot_tree(repo)
        new = {change.path for change in objects.diff_trees(repo, own, there.tree) if change.kind is ChangeKind.ADDED}
        others = (entry for entry in list_changes(repo, own, there.tree) if entry[0] in new)  # such as setup's
        tree = objects.write_paths_tree(repo, others, start=base)
        attempt = open_attempt(repo, start, base=TreeSnapshot(tree=tree, skipped=there.skipped))
    if attempt.last_wip is None:
        tree = objects.write_paths_tree(repo, list_changes(repo, base, own), start=attempt.base_tree)
        record = WipRecord(
            spend=Spent(),
            items=tuple(item.id for item in phase.items) if phase and is_done else (),
            handoff_note=note,
            ending=Ending(proposed=text.message.subject if is_done else None),
        )
        save_snapshots(repo, attempt, record, TreeSnapshot(tree=tree, skipped=attempt.skipped))


def read_plan(repo: Repo, commit: str, plan_path: str) -> Plan:
    """Return the plan of a commit.

    Raises:
        RepoError: There is none.
    """
    text = find_text(repo, commit or None, plan_path)
    if text is None:
        raise RepoError(f"{plan_path} is not in {commit[:12] or 'any commit that both have'}")
    return parse_at(text, plan_path)


def _find_baseline(repo: Repo, own: CommitText) -> str:
    """Return the gate's state before the phase, from the attempt of its last commit; empty where unknown."""
    session = own.get(trailers.SESSION)
    attempts = repo.list_refs(f"refs/relay/wip/{render_ref_part(get_branch(repo))}/").values()
    last = ((tip, read_notes(read_text(repo, tip))) for tip in attempts)
    tips = [tip for tip, notes in last if session and notes and notes.session == session]
    # No text inside a JSON value has these quotes as they are.
    grep = ("--fixed-strings", '--grep="baseline":', "--max-count=1", "--first-parent")
    found = (read_notes(text) for tip in tips for text in read_texts(repo.git, *grep, tip, "--"))
    return next((notes.course.baseline for notes in found if notes), "")

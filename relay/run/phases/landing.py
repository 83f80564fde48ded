"""Land the commits of a job's branch: move the plan's branch there, or merge both first.

Nothing is remembered between two steps: `find_landing` reads git each time, so a parent that was killed and one that
goes on take the same path. A merge becomes the job's open attempt. relay writes objects first, then its ref, the
checkpoint's, the branch and the files, and finds each step again after a crash.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

from msgspec import structs

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.git import objects
from relay.git.config_guard import guard
from relay.git.identity import get_identity
from relay.git.lock_journal import hold_collections
from relay.git.message import CommitText, read_text, read_texts
from relay.git.names import JOB_BRANCHES, list_paths, render_ref_part
from relay.git.objects import Merge, find_base, is_ancestor, merge_commits, read_patch
from relay.git.refs import move_ref
from relay.git.repository import Repo, is_checked_out
from relay.git.trees import ABSENT, FILE, find_tree
from relay.ledger.model import merge_entries, parse_ledger
from relay.plan.lineage import find_lineage
from relay.plan.model import Phase, Plan
from relay.plan.operations import check_change, describe_reworded, read_operations, replay
from relay.plan.parse import find_plan_in
from relay.plan.text import encode_text, find_ledger_path
from relay.run.attempt.start import read_carried, read_earlier_sessions
from relay.run.commit.readiness import find_common, list_landed
from relay.run.resume import is_here, save_found
from relay.session.usage import Spent
from relay.session.values import SessionEnd
from relay.setup.context import PlanFiles
from relay.setup.open import hold_worktree, new_id
from relay.store import trailers
from relay.store.attempts import AttemptStart, OpenAttempt, displace_attempt, make_ending, open_attempt, read_attempt
from relay.store.branches import move_branch
from relay.store.checkpoints import WipRecord, save_snapshots
from relay.store.history import find_text, read_relay_commits
from relay.store.obstacles import find_in_the_way
from relay.store.plan_versions import parse_at
from relay.store.ref_notes import Carried, Course, read_notes
from relay.store.refs import get_branch
from relay.store.snapshot import TreeSnapshot, write_snapshot_tree
from relay.store.spend import give_up_attempt
from relay.store.worktree_notes import is_checked, note_checked


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
    attempt = read_attempt(job.repo)
    return attempt.phase_id if attempt is not None else job.phase_id


def require_unmoved(main: Repo, job: Job, plan: Plan) -> None:
    """Refuse a plan that has renumbered or removed a phase whose work has not landed.

    Args:
        main: The work tree whose branch is the plan's.
        plan: As that branch has it.

    Raises:
        RepoError: Somebody has changed the plan so.
    """
    text = find_text(job.repo, job.repo.head(), job.plan_path)
    own = parse_at(text, job.plan_path) if text is not None else plan
    phase = own.find_phase(job.phase_id)
    now = find_lineage(own, plan).phases.get(job.phase_id)
    if phase is None or now == job.phase_id:
        return
    is_begun = read_attempt(job.repo) is not None or not is_ancestor(main, get_tip(job.repo), get_tip(main))
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


_PATCH_BYTES = 6_000
"""The most bytes of each side's patch to conflicting files, for the session that repairs them."""
_MOST_WORDS = 20
"""The most sentences of git about conflicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A phase merged onto landed phases."""

    phase: Phase
    """As the merged plan has it."""
    plan: Plan
    before: Plan
    """The plan with the landed phases."""
    files: Mapping[str, bytes]
    """Plan and ledger: path → bytes."""
    merge: Merge
    base: str
    left: tuple[str, ...]
    """A sentence for each of the phase's plan changes that was left out, or found an item with other words."""

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The files that git could not merge, without plan and ledger, which relay merges by meaning."""
        return tuple(path for path in self.merge.conflicts if path not in self.files)

    @property
    def ticked(self) -> tuple[str, ...]:
        """The ids of the items that it has done."""
        return tuple(item.id for item in self.phase.items if item.done and item.id not in self.before.done_ids)

    def write_tree(self, repo: Repo, tip: str, start: str, *, kept_for: str = "") -> str:
        """Return a tree with what the merge, its plan and its ledger change in the landed phases; `start` has these.

        Args:
            kept_for: The phase's commit, for a snapshot of the work tree: files that neither commit has are as a
                checkout writes them.
        """
        entries = [*list_changes(repo, tip, self.merge.tree)]
        if kept_for:
            new = {change.path for change in objects.diff_trees(repo, kept_for, self.merge.tree)}
            found = objects.check_out_entries(repo, guard(repo).git, [one for one in entries if one[0] in new])
            written = {entry[0]: entry for entry in found}
            entries = [written.get(entry[0], entry) for entry in entries]
        blobs = zip(self.files, objects.store_blobs(repo, tuple(self.files.values())), strict=True)
        return objects.write_paths_tree(repo, [*entries, *((path, FILE, blob) for path, blob in blobs)], start=start)


def prepare(job: Job, landing: Landing) -> tuple[str, ...]:
    """Open the landing attempt of a phase and move its work tree onto the landed phases.

    A run in that work tree then commits it. May be repeated after a kill at any time.

    Args:
        job: Nobody else is at work in its work tree.
        landing: `LandingCase.APART`, as `find_landing` said.

    Returns:
        A sentence for each conflict and each change that was left out.

    Raises:
        RepoError: Files in the job's work tree are in the way, its branch moved, or the plan has lost the phase.
    """
    repo, branch = job.repo, get_branch(job.repo)
    with hold_worktree(repo) as told, hold_collections(repo):
        merged = merge(job, landing)
        attempt = _ensure_attempt(job, landing, merged)
        if attempt.last_wip is None:
            _save(repo, attempt, landing, merged)
        left = move_branch(
            repo, branch, landing.own, landing.tip, reason=f"relay run: phase {merged.phase.id} is put on others"
        )
    if left is None:
        raise RepoError(f"{branch} moved meanwhile; nothing was changed", hint="run this again")
    marks = (f"git could not merge {list_paths(merged.conflicts)}: a session has to",) if merged.conflicts else ()
    return (*told, *left, *marks, *merged.left)


def merge(job: Job, landing: Landing) -> Merged:
    """Merge a phase's own commit onto a tip by objects alone: plan and ledger by meaning, the rest by git.

    Raises:
        RepoError: A commit has no plan, or the plan has lost the phase.
    """
    repo, plan_path, ledger_path = job.repo, job.plan_path, find_ledger_path(job.plan_path)
    base = find_common(repo, plan_path, landing.tip, landing.own)
    before, tip, own = (_read_plan(repo, commit, plan_path) for commit in (base, landing.tip, landing.own))
    merged = replay(read_operations(before, own), own, tip)
    # Whoever wrote the commits, changes that no session can make are not taken: gates, settings, other phases.
    others = check_change(before, own, may_tick=own.done_ids)
    words = f"of the plan as {landing.own[:12]} has it, only ticks, added items and notes are taken"
    left = (*merged.left, *([words] if others else []), *describe_reworded(own, merged.plan, merged.reworded))
    ledgers = [parse_ledger(find_text(repo, commit, ledger_path) or "") for commit in (base, landing.tip, landing.own)]
    phase_id = find_lineage(own, merged.plan).phases.get(job.phase_id, "")
    if (phase := merged.plan.find_phase(phase_id)) is None:
        words = f"phase {job.phase_id} is done on {job.repo.branch}, and is not in the plan any more"
        raise RepoError(words, hint=f"its commit is {landing.own[:12]}")
    words = f"the branch was rewritten since this phase began; its former commits come back with it: {base[:10]}"
    rewritten = (words,) if base != find_base(repo, landing.tip, landing.own) else ()
    elsewhere = merged.plan.done_ids - tip.done_ids - {item.id for item in phase.items}
    if elsewhere:  # a person moved them: relay ticks in one commit the items of one phase
        words = f"{list_some(sorted(elsewhere))} was done in phase {phase.id} and stands in another one now: it is open"
        left, merged = (*left, words), replace(merged, plan=merged.plan.untick(elsewhere))
    known = set(ledgers[0].entries)
    ledger = merge_entries(ledgers[1], [entry for entry in ledgers[2].entries if entry not in known])
    files, found = {plan_path: encode_text(merged.plan.text)}, merge_commits(repo, landing.tip, landing.own, base=base)
    if back := sorted(_find_taken_out(repo, plan_path, landing.tip, base) - {*found.conflicts, ledger_path}):
        kept = objects.read_entries(repo, landing.own, back)
        entries = [(path, *kept.get(path, (ABSENT, repo.zero_id))) for path in back]
        found = replace(found, tree=objects.write_paths_tree(repo, entries, start=found.tree))
        left = (*left, f"{list_paths(back)} was taken out of the branch, and is ticked there: it comes back")
    return Merged(
        phase=phase,
        plan=merged.plan,
        before=tip,
        files={**files, ledger_path: encode_text(ledger.text)} if ledger.text else files,
        merge=found,
        base=base,
        left=(*rewritten, *left),
    )


def _find_taken_out(repo: Repo, plan_path: str, tip: str, base: str) -> frozenset[str]:
    """Return the files of relay's commits that a rewritten branch has as before them, while its plan keeps their ticks.

    Args:
        base: The newest commit that was on the branch before.
    """
    below = find_base(repo, tip, base)
    if not below or below == base:
        return frozenset()
    at_tip, paths = find_plan_in(find_text(repo, tip, plan_path) or ""), set[str]()
    ticked = {item.text for item in at_tip.items if item.done} if at_tip else set[str]()
    for commit in read_relay_commits(repo, plan_path, rev=base, newer_than=below):
        plan = find_plan_in(find_text(repo, commit.commit, plan_path) or "")
        own = [item.text for item in plan.items if item.id in commit.items] if plan else []
        if own and ticked.issuperset(own):
            paths |= {change.path for change in objects.diff_trees(repo, commit.parents[0], commit.commit)}
    before, now = (objects.read_entries(repo, at, sorted(paths - {plan_path})) for at in (below, tip))
    return frozenset(path for path in paths - {plan_path} if before.get(path) == now.get(path))


def _read_plan(repo: Repo, commit: str, plan_path: str) -> Plan:
    text = find_text(repo, commit or None, plan_path)
    if text is None:
        raise RepoError(f"{plan_path} is not in {commit[:12] or 'any commit that both have'}")
    return parse_at(text, plan_path)


def _ensure_attempt(job: Job, landing: Landing, merged: Merged) -> OpenAttempt:
    """Open the attempt, or find the one of a killed parent; give any other one up."""
    repo, attempt = job.repo, read_attempt(job.repo)
    if (
        attempt is not None
        and is_checked(repo, landing.tip)
        and (attempt.merges, attempt.base_head) == (landing.own, landing.tip)
    ):
        return attempt
    now = write_snapshot_tree(repo)
    touched = {change.path for change in objects.diff_trees(repo, landing.tip, merged.merge.tree)}
    dirty = {change.path for change in objects.diff_trees(repo, landing.own, now.tree)}
    if found := sorted({*find_in_the_way(repo, landing.own, landing.tip), *(touched & dirty)}):
        raise RepoError(
            f"files that are not committed are in the way in {repo.root}: {list_paths(found)}",
            hint="put them away, and run this again",
        )
    if attempt is not None:
        give_up_attempt(repo, attempt)
    checked = is_checked(repo, landing.own)
    baseline = _find_baseline(repo, landing) if checked else ""
    note_checked(repo, landing.tip, *([landing.own] if checked else []))  # an attempt from now on was opened here
    others = list_changes(repo, landing.own, now.tree)
    start = AttemptStart(
        session_id=new_id(),
        phase_id=merged.phase.id,
        plan_path=job.plan_path,
        course=Course(baseline=baseline),
        carried=Carried(merges=landing.own, is_unchecked=not checked, unmerged=merged.conflicts),
        onto=landing.tip,
    )
    base = TreeSnapshot(tree=objects.write_paths_tree(repo, others, start=landing.tip), skipped=now.skipped)
    return open_attempt(repo, start, base=base)


def list_changes(repo: Repo, old: str, new: str) -> Iterator[tuple[str, str, str]]:
    """Return the difference of two trees as entries for a tree, removals first."""
    changes = sorted(objects.diff_trees(repo, old, new), key=lambda change: bool(change.object_id))
    return ((c.path, c.mode, c.object_id) if c.object_id else (c.path, ABSENT, repo.zero_id) for c in changes)


def reopen(job: Job, tip: str) -> None:
    """Have a phase that has commits and is not done begin again where it left the plan's branch, with all its work.

    Then it can be put on what is new there (`relay.run.resume.carry_over`). Its next commit has the others as a parent.
    May be repeated after a kill.

    Args:
        job: Nobody else is at work in its work tree.
        tip: The tip of the plan's branch.
    """
    repo, plan_path, own = job.repo, job.plan_path, get_tip(job.repo)
    base, attempt, is_unchecked = find_common(repo, plan_path, tip, own), read_attempt(repo), not is_checked(repo, own)
    files = PlanFiles(repo=repo, plan_path=plan_path, ledger_path=find_ledger_path(plan_path))
    if attempt is not None and not attempt.carried.joins:
        if is_here(repo, attempt):
            attempt = save_found(files, attempt)
        elif attempt.last_wip is None:
            begun_at = TreeSnapshot(tree=attempt.base_tree, skipped=attempt.skipped)
            attempt = save_snapshots(repo, attempt, WipRecord(spend=attempt.spend), begun_at)
        tree = objects.write_paths_tree(repo, list_changes(repo, own, attempt.base_tree), start=base)
        carried = structs.replace(attempt.begun.carried, joins=own, is_unchecked=is_unchecked)
        begun = structs.replace(attempt.begun, base=base, carried=carried)
        displace_attempt(repo, replace(attempt, base_tree=tree, begun=begun))
        return
    number, note, earlier = read_earlier_sessions(files, _read_plan(repo, own, plan_path), job.phase_id)
    if attempt is None:
        baseline = _find_baseline(repo, Landing(case=LandingCase.WORKING, tip=tip, own=own))
        start = AttemptStart(
            session_id=new_id(),
            phase_id=job.phase_id,
            plan_path=plan_path,
            course=Course(number=number, tries=number, baseline=baseline),
            carried=structs.replace(read_carried(earlier), joins=own, is_unchecked=is_unchecked),
            onto=base,
        )
        attempt = open_attempt(repo, start, base=TreeSnapshot(tree=find_tree(repo, base)))
    if attempt.last_wip is None:
        record = WipRecord(spend=Spent(), handoff_note=note)
        save_snapshots(repo, attempt, record, TreeSnapshot(tree=find_tree(repo, own)))


def _find_baseline(repo: Repo, landing: Landing) -> str:
    """Return the gate's state before the phase, from the attempt of its last commit; empty where unknown."""
    session = read_text(repo, landing.own).get(trailers.SESSION)
    attempts = repo.list_refs(f"refs/relay/wip/{render_ref_part(get_branch(repo))}/").values()
    last = ((tip, read_notes(read_text(repo, tip))) for tip in attempts)
    tips = [tip for tip, notes in last if session and notes and notes.session == session]
    # No text inside a JSON value has these quotes as they are.
    grep = ("--fixed-strings", '--grep="baseline":', "--max-count=1", "--first-parent")
    found = (read_notes(text) for tip in tips for text in read_texts(repo.git, *grep, tip, "--"))
    return next((notes.course.baseline for notes in found if notes), "")


def _save(repo: Repo, attempt: OpenAttempt, landing: Landing, merged: Merged) -> None:
    """Save the merge as the attempt's checkpoint, proposed for the commit if no session has anything left to do."""
    own = read_text(repo, landing.own)
    tree = merged.write_tree(repo, landing.tip, attempt.base_tree, kept_for=landing.own)
    ending = make_ending(SessionEnd.INTERRUPTED, item="", error="")
    if not (merged.conflicts or merged.phase.open_items):
        ending = structs.replace(ending, proposed=own.message.subject)
    record = WipRecord(
        spend=Spent(),
        items=merged.ticked,
        handoff_note=_render_note(repo, attempt, landing, own, merged),
        ending=ending,
    )
    save_snapshots(
        repo, attempt, record, TreeSnapshot(tree=tree, skipped=attempt.skipped, replaced=tuple(merged.files))
    )


def _render_note(repo: Repo, attempt: OpenAttempt, landing: Landing, own: CommitText, merged: Merged) -> str:
    """Return the handoff note for a session that has to repair the merge; one paragraph."""
    landed = list_landed(repo, attempt, merged.before)
    lines = [
        f"This phase is done: {own.commit[:12]} {own.message.subject}. Others landed meanwhile: {landing.tip[:12]}.",
        "Both are merged in the work tree, and all is ticked; make the whole pass, and take back nothing of either.",
        *(f"Landed meanwhile, phase {phase.id}: {phase.heading}" for phase in landed),
        *(f"- {item.text}" for phase in landed for item in phase.items),
        *merged.left,
    ]
    if not merged.conflicts:
        return "\n".join(lines)
    lines += [
        f"Git could not merge {list_paths(merged.conflicts)}; its marks stand there.",
        *merged.merge.words.splitlines()[:_MOST_WORDS],
        "What the others changed there:",
        *_read_patches(repo, merged.base, landing.tip, merged.conflicts),
        "What this phase changed there:",
        *_read_patches(repo, merged.base, landing.own, merged.conflicts),
    ]
    return "\n".join(lines)


def _read_patches(repo: Repo, base: str, commit: str, paths: tuple[str, ...]) -> list[str]:
    patch = read_patch(repo, base, commit, most_bytes=_PATCH_BYTES, only=paths)
    return [line for line in patch.splitlines() if line.strip()]

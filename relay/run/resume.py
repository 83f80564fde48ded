"""Settles what a killed run, a power loss or a busy user left, before a session starts.

`relay.store.plan_state.ask` finds out what to do and changes nothing; only `settle` acts.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from msgspec import structs

from relay.base.errors import RepoError
from relay.base.hints import RUN
from relay.git.lock_journal import hold_collections
from relay.git.names import list_paths
from relay.git.objects import (
    diff_trees,
)
from relay.git.repository import Repo
from relay.git.status import ChangeKind
from relay.git.trees import find_tree
from relay.plan.model import Plan
from relay.plan.text import find_ledger_path
from relay.run.attempt.start import (
    get_attempt_phase,
    read_baseline,
    read_pending,
    render_plan,
)
from relay.run.carry import carry_over, make_record, save_found
from relay.run.commit.candidate import Candidate, PhaseCommit, Refused
from relay.run.commit.plan_commit import (
    change_edited_plan,
    commit_ledger_edit,
    ensure_plan_committed,
    make_source,
    put_back,
)
from relay.run.commit.readiness import is_untouched, list_commands
from relay.run.commit.step import commit_attempt
from relay.session.events import Noticed, Observe
from relay.setup.context import PlanFiles, RunContext
from relay.store.attempts import (
    OpenAttempt,
    close_attempt,
    find_owned_paths,
    has_ended_with,
    keep_snapshot,
)
from relay.store.branches import is_current
from relay.store.checkpoints import Restoration, plan_restoration, run_restoration, save_snapshots, save_wip
from relay.store.completion import finish_commit
from relay.store.history import RelayCommit
from relay.store.plan_state import PlanState, ask, find_obstacle
from relay.store.resume import AttemptFacts, ResumeCase, ResumePoint
from relay.store.snapshot import TreeSnapshot, write_snapshot_tree
from relay.store.spend import give_up_attempt
from relay.store.steering_files import find_strange, require_known
from relay.store.worktree_notes import find_home, is_own_tree

_MOST_TYPED = 10
"""Most files that a command in a hint names; beyond them it names all."""


def withdraw_proposal(files: PlanFiles, attempt: OpenAttempt, words: str) -> OpenAttempt:
    """Add the reason to the handoff note why an attempt's work was not committed, and drop the proposal."""
    record = make_record(files, attempt)
    note, ending = f"{attempt.handoff_note}\n\n{words}".strip(), structs.replace(record.ending, proposed=None)
    return save_wip(files.repo, attempt, replace(record, handoff_note=note, ending=ending))


def restore_saved(files: PlanFiles, attempt: OpenAttempt, observe: Observe, *, was_lost: bool) -> OpenAttempt:
    """Take a snapshot of the work tree, then put it back to the newest checkpoint.

    After a power loss, files that were not synced may be empty or torn, while checkpoints were synced with their refs.
    In another work tree, none of the session's files exist yet. What was found stays below the checkpoint's ref.

    The ref moves before a file is written, and to the future state of the work tree: if relay is killed meanwhile, the
    next run finds that snapshot as the newest one, and writes the rest.
    """
    wanted = attempt.last_wip or TreeSnapshot(tree=attempt.base_tree, skipped=attempt.skipped)
    record = make_record(files, attempt)
    with hold_collections(files.repo):
        found = write_snapshot_tree(files.repo, replace=record.replace)
        restoration = plan_restoration(files.repo, found=found, wanted=wanted)
        restored = TreeSnapshot(tree=restoration.tree, skipped=found.skipped, replaced=found.replaced)
        # One move of the ref for both: the found state stays reachable as the parent of the restored one.
        kept = save_snapshots(files.repo, attempt, record, found, restored)
    run_restoration(files.repo, restoration, attempt.base_head, attempt.joined)
    for words in _describe_restoration(restoration, kept, was_lost=was_lost):
        observe(Noticed(text=words, warning=True))
    return kept


def _describe_restoration(restoration: Restoration, kept: OpenAttempt, *, was_lost: bool) -> Iterator[str]:
    commit = kept.last_wip.commit[:12] if kept.last_wip else ""
    if restoration.changes and was_lost:
        names = list_paths([change.path for change in restoration.changes])
        words = f"restored from the last checkpoint of session {kept.session_id}: {names}"
        yield f"{words}; as they were found: git show {commit}~1:<file>"
    if restoration.blocked:
        names = list_paths(restoration.blocked)
        words = f"not restored, since an ignored file is in the way: {names}"
        yield f"{words}; as the checkpoint has it: git show {commit}~2:<file>"


def clear_tree(repo: Repo, observe: Observe) -> TreeSnapshot:
    """Make a work tree of relay's own as HEAD has it, before a phase begins there; return it as it is then.

    What lies there is no open phase's: somebody deleted the refs of one, or a setup command was refused for what it
    changed. Nobody knows whose it is, so no commit takes it. It is kept.
    """
    head = repo.head()
    committed = find_tree(repo, head) if head else repo.empty_tree
    with hold_collections(repo):
        found = write_snapshot_tree(repo)
        if found.tree == committed or not is_own_tree(repo):
            return found
        added = [change.path for change in diff_trees(repo, committed, found.tree) if change.kind is ChangeKind.ADDED]
        brought = tuple(path for path in added if os.path.lexists(find_home(repo) / path))  # and these stay
        wanted = TreeSnapshot(tree=committed, replaced=brought)
        restoration = plan_restoration(repo, found=found, wanted=wanted)
        if not restoration.changes:
            return found
        ref, _ = keep_snapshot(repo, found, "relay: what was found in relay's tree before a phase began")
    run_restoration(repo, restoration, head)
    names = list_paths([change.path for change in restoration.changes])
    words = f"no open phase has the changes to {names} in {repo.root}: they were put aside"
    observe(Noticed(text=f"{words}; as they were found: git show {ref}:<file>", warning=True))
    return TreeSnapshot(tree=restoration.tree, skipped=found.skipped)


def settle(ctx: RunContext) -> PlanState:
    """Settle everything before a session; ask git again after a commit or the end of an attempt.

    `relay.setup.open.hold_worktree` has settled the rest when it took the lock, for planning and landing too: processes
    and locks of a killed relay, refs to lost objects, and interrupted updates of files, index and branch.

    Returns:
        The state of the plan, with the attempt as the next session gets it. The run can go on from there.

    Raises:
        RelayError: The user has to change something first.
    """
    is_own = is_own_tree(ctx.repo)
    if is_own:
        for words in put_back(ctx.files):
            ctx.observe(Noticed(text=words, warning=True))
    plan_state = ask(make_source(ctx.files), ctx.repo, is_locked=True)
    kept, point = plan_state.kept, require_point(plan_state, ctx.plan_path)
    # First: until that commit is finished, outdated files and index look like the user's changes.
    if kept.attempt is not None and kept.attempt_commit is not None:
        _finish(ctx, kept.attempt, kept.attempt_commit)
        return settle(ctx)
    if kept.foreign is not None:
        give_up_attempt(ctx.repo, kept.foreign)
        return settle(ctx)
    if not is_own:
        require_known(ctx.repo, find_strange(ctx.repo, frozenset({ctx.plan_path, ctx.ledger_path})))
        if ensure_plan_committed(ctx).text != plan_state.plan.text:
            return settle(ctx)  # the user edited the plan a moment ago
        if commit_ledger_edit(ctx):
            return settle(ctx)
    if kept.attempt is None or plan_state.facts is None:
        return plan_state
    if point.case is ResumeCase.MOVED_ON and not plan_state.goes_on:
        _give_up(ctx, kept.attempt, point)
        return settle(ctx)
    attempt = _take_up(ctx, plan_state.plan, kept.attempt, plan_state.facts, point)
    return replace(plan_state, kept=replace(kept, attempt=attempt))


def require_point(plan_state: PlanState, plan_path: str) -> ResumePoint:
    """Return the point where a run goes on.

    Raises:
        RelayError: There is none until the user has changed something.
    """
    if plan_state.point is not None:
        return plan_state.point
    raise find_obstacle(plan_state, plan_path) or RepoError(plan_state.running)


def _take_up(ctx: RunContext, plan: Plan, attempt: OpenAttempt, facts: AttemptFacts, point: ResumePoint) -> OpenAttempt:
    """Return the attempt for the next session, with the whole work tree in a snapshot."""
    if point.case is ResumeCase.MOVED_ON:
        ctx.observe(Noticed(text=f"{point.why} Its work is kept."))
        with hold_collections(ctx.repo):
            attempt = carry_over(ctx.files, plan, attempt, ctx.observe)
        return restore_saved(ctx.files, attempt, ctx.observe, was_lost=False)
    if point.case is ResumeCase.POWER_LOSS:
        return restore_saved(ctx.files, attempt, ctx.observe, was_lost=not is_untouched(attempt))
    if facts.saved or point.case is ResumeCase.UNTOUCHED:
        return attempt
    return save_found(ctx.files, attempt)


def _finish(ctx: RunContext, attempt: OpenAttempt, commit: RelayCommit) -> None:
    """Finish a commit of an earlier process that was killed after it."""
    replaced = {attempt.plan_path: None, find_ledger_path(attempt.plan_path): None}
    if is_current(ctx.repo, commit):
        left = finish_commit(ctx.repo, commit.commit, replaced)
        for words in (*left, *change_edited_plan(ctx.files, commit.commit)):
            ctx.observe(Noticed(text=words, warning=True))
    close_attempt(ctx.repo, attempt)
    ctx.meter.record()


def _give_up(ctx: RunContext, attempt: OpenAttempt, point: ResumePoint) -> None:
    """Close an attempt whose phase is done or gone; its work must not end up in the next phase.

    Raises:
        RepoError: Its uncommitted work is still in the work tree.
    """
    # Save first: the user may clear the work tree after the refusal.
    kept = save_found(ctx.files, attempt)
    if owned := _find_uncommitted(ctx.files, kept):
        shown = list_paths(owned)
        files = " ".join(quote(f":(top,literal){path}") for path in owned) if len(owned) <= _MOST_TYPED else ":/"
        away = f"git stash push -u -- {files}"
        raise RepoError(
            f"{point.why} Phase {attempt.phase_id} cannot go on, and its uncommitted work is in {shown}",
            hint=(
                "commit it or put it away, then ",
                RUN,
                f"; all of it is kept under {attempt.wip_ref}, and its cost. {away}",
            ),
        )
    ctx.observe(Noticed(text=f"{point.why} What its sessions did is kept under {attempt.wip_ref}.", warning=True))
    give_up_attempt(ctx.repo, kept)
    ctx.meter.record()  # a ref of its own keeps the cost


def _find_uncommitted(files: PlanFiles, attempt: OpenAttempt) -> list[str]:
    """Return the attempt's own files that differ from HEAD; its newest snapshot is the current work tree."""
    if attempt.last_wip is None:
        return []
    changes = diff_trees(files.repo, files.repo.head() or files.repo.empty_tree, attempt.last_wip.tree)
    open_paths = {change.path for change in changes}
    return [
        path for path in find_owned_paths(files.repo, files.plan_path, attempt, attempt.last_wip) if path in open_paths
    ]


def commit_proposed(ctx: RunContext, plan: Plan, attempt: OpenAttempt) -> PhaseCommit | Refused | None:
    """Commit the work that the attempt's last session proposed; None without a proposal, or if items are open.

    Args:
        plan: HEAD's plan.
        attempt: With its newest snapshot, which is the current work tree.
    """
    subject = attempt.ending.proposed
    if subject is None:
        return None
    pending = read_pending(ctx.files, plan, attempt)
    phase = get_attempt_phase(ctx.files, pending, attempt)
    if phase.open_items:
        return None
    then = "its work is checked again, without another session" if ctx.settings.review == "off" else "now its review"
    words = f"session {attempt.author} has finished phase {phase.id}; {then}"
    if is_untouched(attempt):
        whose = "was done elsewhere and" if attempt.carried.is_unchecked else "is"
        words = (
            f"phase {phase.id} {whose} merged with the branch's newer commits; its gate and theirs run on the result"
        )
    ctx.observe(Noticed(text=words))
    candidate = Candidate(
        phase=phase,
        attempt=attempt,
        number=attempt.course.number,
        pending=pending,
        evidence={},
        touched=frozenset(),
        commands=list_commands(ctx.repo, ctx.settings, attempt, plan, phase),
        baseline=read_baseline(attempt),
        subject=subject,
        status="done",
        handoff_note="",
        in_session=False,
    )
    made = _commit_twice(ctx, candidate)
    if isinstance(made, PhaseCommit):
        ctx.observe(render_plan(ctx.files, pending.plan, committed=pending.plan))
        return made
    if is_untouched(attempt) and made.for_model and not made.again:
        # Tell the next session what to repair; it has not seen this gate.
        withdraw_proposal(ctx.files, attempt, made.for_model)
        ctx.observe(Noticed(text=f"phase {phase.id}, merged: {made.for_user}", warning=True))
        return replace(made, for_review=True)
    if made.once and has_ended_with(attempt, "gate", made.for_user):
        return replace(made, for_model="")  # a session was told the same without success
    return made


def _commit_twice(ctx: RunContext, candidate: Candidate) -> PhaseCommit | Refused:
    """Commit, with a second try after a failure of the machine; no session is asked to repair that."""
    made = commit_attempt(ctx, candidate)
    if isinstance(made, PhaseCommit) or not made.again or ctx.interrupts.finish_turn:
        return made
    if ctx.repo.head() != candidate.attempt.base_head:
        return made
    ctx.observe(Noticed(text=f"{made.for_user}; relay tries once more", warning=True))
    made = commit_attempt(ctx, candidate)
    return replace(made, for_model="") if isinstance(made, Refused) and made.again else made

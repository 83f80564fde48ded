"""Finished phases that land together: merged onto each other, checked once at their joint tip, pushed at once.

The phase that has the turn to land takes those along that wait for it. Each gets its commit, below the phase's own
landing, which then goes its usual way: a run in its work tree checks the whole with the gates of all, and one push
takes the plan's branch there. A red check, or a push that comes too late, takes the phase back to its own commit, and
each lands alone. Nothing has to be remembered: a commit says that it was made so.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from relay.base.errors import RelayError
from relay.base.secrecy import is_covered
from relay.config import Settings
from relay.git import objects
from relay.git.config_guard import find_tree_files, guard
from relay.git.hooks import has_hook
from relay.git.identity import get_identity, render_signoff, write_user_commit
from relay.git.lock_journal import hold_collections
from relay.git.message import Message, read_text, render_message
from relay.git.names import render_path
from relay.git.objects import find_base, is_ancestor
from relay.git.repository import Repo
from relay.plan.lineage import find_lineage
from relay.plan.text import find_ledger_path, find_protected
from relay.run.carry import merge_work
from relay.run.commit.disclosures import describe_autoruns, find_disclosures
from relay.run.commit.readiness import find_common, get_commands, render_merge
from relay.run.phases.landing import Job, Landing, list_changes, read_plan
from relay.setup.context import PlanFiles
from relay.setup.open import hold_worktree, new_id
from relay.store import trailers
from relay.store.attempts import keep_snapshot, read_attempt
from relay.store.branches import move_branch
from relay.store.checkpoints import plan_restoration, run_restoration
from relay.store.refs import get_branch
from relay.store.snapshot import write_snapshot_tree
from relay.store.steering_files import find_persons

_TOGETHER = "together"
"""In a commit's ``Relay-Merge``, where a digest of its gate stands otherwise: its gate runs at the joint tip."""

_PASSED = re.compile(r"pass [0-9a-f]{64}")


def take_along(
    job: Job, tip: str, riders: Mapping[str, str], settings: Settings, secrets: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Merge finished phases onto a tip; return the commit, and the ids of those that could be merged.

    A phase that has to be looked at, by a session or by a person, is left out: it says so when it lands alone.

    Args:
        job: Lands with them; nothing is changed in its work tree.
        riders: Phase → its commit, as anybody may have pushed it.
        secrets: Values that no commit may hold.
    """
    at, taken = tip, []
    config = guard(job.repo).config
    if settings.review != "off" or any(has_hook(job.repo, config, name) for name in settings.hooks):
        return tip, ()  # both look at one commit after the other
    for phase_id, own in riders.items():
        with suppress(RelayError):
            at = _merge_rider(replace(job, phase_id=phase_id), at, own, settings, secrets)
            taken.append(phase_id)
    if taken:
        objects.sync_objects(job.repo, at, tip)
    return at, tuple(taken)


def _merge_rider(job: Job, tip: str, own: str, settings: Settings, secrets: Sequence[str]) -> str:
    """Return the commit of a phase on top of a tip.

    Raises:
        RelayError: It cannot be merged, or not unseen.
    """
    repo, plan_path, text = job.repo, job.plan_path, read_text(job.repo, own)
    files = PlanFiles(repo=repo, plan_path=plan_path, ledger_path=find_ledger_path(plan_path))
    base = find_common(repo, plan_path, tip, own)
    before, done, now = (read_plan(repo, commit, plan_path) for commit in (base, own, tip))
    merged = merge_work(files, base, own, tip, (before, done, now), text.tree)
    phase = merged.pending.plan.find_phase(find_lineage(done, merged.pending.plan).phases.get(job.phase_id, ""))
    given, ticked = merged.pending.render_files(plan_path, files.ledger_path), merged.pending.claimed_ids
    tree = objects.write_files_tree(repo, given, start=merged.merge.tree)
    paths = [change.path for change in objects.diff_trees(repo, tip, tree)]
    protected = (*find_protected(job.plan_path), *find_tree_files(repo))
    # What the commit step asks of each file, since it looks at the files of the phase that lands alone.
    if (
        phase is None
        or (merged.merge.conflicts or merged.left or merged.reworded or not ticked)
        or not (phase.done and {item.id for item in phase.items}.issuperset(ticked))
        or base != find_base(repo, tip, own)
        or not (get_commands(settings, phase) and _PASSED.fullmatch(text.get(trailers.GATE)))
        or find_persons(paths)
        or any(is_covered(path, protected) for path in paths if path not in given)
        or describe_autoruns(repo, tip, tree)
        or find_disclosures(repo, tip, tree, paths, secrets)
    ):
        raise RelayError(f"phase {job.phase_id} lands alone")
    message = Message(
        subject=text.message.subject,
        body=text.message.body,
        trailers=(
            (trailers.PLAN, render_path(job.plan_path)),
            (trailers.PHASE, phase.id),
            (trailers.STATUS, "done"),
            (trailers.ITEMS, " ".join(ticked)),
            (trailers.SESSION, new_id()),
            (trailers.GATE, text.get(trailers.GATE)),
            *render_merge(text, _TOGETHER),
            *render_signoff(repo, wanted=settings.signoff),
        ),
    )
    identity = get_identity(repo).begin_commit()
    return write_user_commit(repo, guard(repo), tree, (tip, own), render_message(message), identity)


def is_joint(main: Repo, job: Job, landing: Landing) -> bool:
    """Return whether a job's phase stands, or is to be committed, on phases that have not landed."""
    attempt, parents = read_attempt(job.repo), read_text(job.repo, landing.own).parents
    if attempt and attempt.merges in {"", landing.own}:  # it works, or has not left its own commit yet
        return False
    has_merged = parents[1:] and (attempt is None or attempt.merges in parents)
    below = parents[0] if has_merged else landing.own if attempt else None
    if not below or is_ancestor(main, below, landing.tip):
        return False
    return read_text(job.repo, below).get(trailers.MERGE).endswith(f" {_TOGETHER}")


def leave(job: Job) -> None:
    """Take a phase off the others: its branch and work tree go back to its own commit; may be repeated.

    Raises:
        RelayError: Somebody is at work in its work tree, or its branch moved.
    """
    repo = job.repo
    with hold_worktree(repo), hold_collections(repo):
        attempt, head = read_attempt(repo), repo.head() or ""
        own = attempt.merges if attempt else read_text(repo, head).parents[1]
        if attempt and attempt.last_wip and attempt.base_head == head:  # else its run has not begun
            now = write_snapshot_tree(repo)
            since = objects.diff_trees(repo, attempt.last_wip.tree, now.tree)
            if any(change.path not in attempt.last_wip.replaced for change in since):
                keep_snapshot(repo, now, f"relay: phase {job.phase_id} as its check with others left it")
            undone = list_changes(repo, attempt.last_wip.tree, attempt.base_tree)
            tree = objects.write_paths_tree(repo, undone, start=now.tree)
            run_restoration(
                repo,
                plan_restoration(repo, found=now, wanted=replace(now, tree=tree)),
                attempt.base_head,
            )
        move_branch(repo, get_branch(repo), head, own, reason=f"relay: phase {job.phase_id} lands alone")

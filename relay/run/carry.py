"""Put the work of a phase on another commit: what was done since it left the plan's branch is done again there.

Plan and ledger are merged by meaning, all other files by git. Only objects and refs are written; the work tree follows
when the phase's attempt is restored (`relay.run.resume`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from relay.base.tree import find_boot_id
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.git import objects
from relay.git.config_guard import guard
from relay.git.message import read_text
from relay.git.names import list_paths
from relay.git.objects import Merge, diff_trees, find_base, is_ancestor, read_entries, write_paths_tree
from relay.git.repository import Repo
from relay.git.status import PathChange
from relay.git.trees import ABSENT, EXECUTABLE, FILE
from relay.ledger.model import merge_entries
from relay.plan.model import Plan
from relay.plan.operations import check_change, describe_reworded, read_operations, replay
from relay.plan.parse import find_plan_in
from relay.plan.text import find_ledger_path
from relay.run.attempt.start import MAX_LEFTOVERS
from relay.run.commit.candidate import PendingPlan
from relay.run.commit.plan_commit import read_ledger
from relay.run.commit.readiness import is_untouched, list_landed
from relay.session.events import Noticed, Observe
from relay.setup.context import PlanFiles
from relay.store.attempts import OpenAttempt, displace_attempt, find_attempt_changes, find_place_id
from relay.store.checkpoints import WipRecord, save_snapshots, save_wip
from relay.store.completion import hash_cleaned
from relay.store.history import find_text, read_relay_commits
from relay.store.plan_versions import find_attempt_phase, read_versions
from relay.store.ref_notes import Carried, Ending
from relay.store.snapshot import TreeSnapshot

_PATCH_BYTES = 6_000
"""The most bytes of each side's patch to conflicting files, for the session that repairs them."""
_MOST_WORDS = 20
"""The most sentences of git about conflicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What was done since one commit, merged onto another."""

    pending: PendingPlan
    """That commit's plan, with what was done to it; the ledger of both."""
    reworded: Mapping[str, str]
    """Items that were ticked, and have other words there: present id → the text that was done."""
    merge: Merge
    """All other files; plan and ledger are as in the commit."""
    left: tuple[str, ...]
    """A sentence for each change of the plan that was left out, and each file that comes back."""


def merge_work(files: PlanFiles, base: str, own: str, tip: str, plans: tuple[Plan, Plan, Plan], tree: str) -> Merged:
    """Merge what was done since `base` onto `tip`, by objects alone.

    Args:
        own: The commit whose ledger the work has.
        plans: Those of `base`, of the work, and of `tip`.
        tree: The work's files, as git has them.

    Raises:
        GitError: Git could not merge them at all.
        LedgerError: A ledger is not valid.
    """
    repo, own_files = files.repo, (files.plan_path, files.ledger_path)
    before, saved, now = plans
    replayed = replay(read_operations(before, saved), saved, now)
    left = list(replayed.left)
    if check_change(before, saved, may_tick=saved.done_ids):  # gates, settings, other phases: no session can do that
        left.append("of what was done to the plan, only ticks, added items and notes are taken")
    known, drafted = set(read_ledger(files, base).entries), read_ledger(files, own).entries
    ledger = merge_entries(read_ledger(files, tip), [entry for entry in drafted if entry not in known])
    work = write_paths_tree(repo, _read_all(repo, tip, own_files), start=tree)
    commit = objects.write_commit(repo, work, (base,), b"relay: what a phase has done")
    found = objects.merge_commits(repo, tip, commit, base=base)
    if back := sorted(_find_taken_out(repo, files.plan_path, tip, base) - {*found.conflicts, *own_files}):
        found = replace(found, tree=write_paths_tree(repo, _read_all(repo, commit, back), start=found.tree))
        left.append(f"{list_paths(back)} was taken out of the branch, and is ticked there: it comes back")
    return Merged(
        pending=PendingPlan(head=now, plan=replayed.plan, ledger=ledger),
        reworded=replayed.reworded,
        merge=found,
        left=tuple(left),
    )


def _read_all(repo: Repo, commit: str, paths: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the entries of a commit at these paths; absent ones where it has none."""
    found = read_entries(repo, commit, paths)
    return [(path, *found.get(path, (ABSENT, repo.zero_id))) for path in paths]


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
            paths |= {change.path for change in diff_trees(repo, commit.parents[0], commit.commit)}
    before, now = (read_entries(repo, at, sorted(paths - {plan_path})) for at in (below, tip))
    return frozenset(path for path in paths - {plan_path} if before.get(path) == now.get(path))


def save_found(files: PlanFiles, attempt: OpenAttempt) -> OpenAttempt:
    """Take a snapshot of the work tree on top of the attempt's snapshots; the record of the session's end is kept."""
    return save_wip(files.repo, attempt, make_record(files, attempt))


def make_record(files: PlanFiles, attempt: OpenAttempt) -> WipRecord:
    """Return everything but the files of the attempt's last snapshot, for the next snapshot."""
    last = attempt.last_wip
    paths = (files.plan_path, files.ledger_path) if last else ()
    drafts = ((path, objects.read_blob(files.repo, last.commit, path)) for path in paths if last)
    return WipRecord(
        spend=attempt.spend,
        items=attempt.items,
        replace={path: blob for path, blob in drafts if blob is not None},
        handoff_note=attempt.handoff_note,
        ending=attempt.ending,
    )


def is_here(repo: Repo, attempt: OpenAttempt) -> bool:
    """Return whether an attempt's work is in this work tree as its session left it."""
    return (attempt.place, attempt.begun.boot) == (find_place_id(repo), find_boot_id())


def carry_over(files: PlanFiles, plan: Plan, attempt: OpenAttempt, observe: Observe) -> OpenAttempt:
    """Move an open attempt onto the current HEAD, with its work, claims, amendments and handoff note.

    All that the attempt's sessions, or the phase's own commits, changed stays the attempt's, merged with what others
    did; everything else in the work tree becomes the new start.

    Args:
        plan: HEAD's.
    """
    repo, head = files.repo, files.repo.head()
    attempt = save_found(files, attempt) if is_here(repo, attempt) or attempt.last_wip is None else attempt
    begun, last = attempt.base_head, attempt.last_wip
    if head is None or begun is None or last is None:
        return attempt
    before, saved = read_versions(repo, attempt, files.plan_path) or (plan, plan)
    own_files, former = (files.plan_path, files.ledger_path), {attempt.plan_path, find_ledger_path(attempt.plan_path)}
    # Of a plan that got another name the file is gone, and that is no session's.
    mine = tuple(one for one in find_attempt_changes(repo, attempt, last) if one.path not in former)
    work = _write_work(repo, attempt, mine, head)
    merged = merge_work(files, begun, last.commit, head, (before, saved, plan), work)
    changes = diff_trees(repo, work, merged.merge.tree)
    changes = tuple(one for one in changes if not (one.is_submodule or one.path in own_files))
    written = [(one.path, one.mode, one.object_id) for one in changes if one.object_id]
    entries = [(one.path, ABSENT, repo.zero_id) for one in changes if not one.object_id]
    entries += objects.check_out_entries(repo, guard(repo).git, written)
    now = write_paths_tree(repo, entries, start=last.tree)
    added = diff_trees(repo, head, merged.merge.tree)
    own = {*own_files, *(change.path for change in (*mine, *changes, *added))}
    base = write_paths_tree(repo, _read_all(repo, head, sorted(own)), start=now)
    phase_id = find_attempt_phase(repo, attempt, plan)
    carried = replace(attempt, base_tree=base, begun=structs.replace(attempt.begun, base=head, phase=phase_id))
    pending, left = _settle_claims(carried, saved, merged)
    if attempt.joined and is_ancestor(repo, begun, attempt.joined) and not is_ancestor(repo, begun, head):
        words = f"the branch was rewritten since this phase began; its former commits come back with it: {begun[:10]}"
        left.insert(0, words)
    if merged.merge.conflicts:
        which = list_paths(merged.merge.conflicts)
        left.append(f"Git could not merge {which} with what is on the branch now: its marks stand there")
    for said in left:
        observe(Noticed(text=f"phase {attempt.phase_id}: {said}", warning=True))
    left += merged.merge.words.splitlines()[:_MOST_WORDS]
    drafts = pending.render_files(*own_files)
    tree = objects.write_files_tree(repo, drafts, start=now)
    is_landing = is_untouched(attempt)
    record = WipRecord(
        spend=attempt.spend,
        items=pending.claimed_ids,
        handoff_note=_render_note(repo, carried, begun, merged, left) if is_landing else attempt.handoff_note,
        carried=Carried(unmerged=merged.merge.conflicts),
        ending=Ending(
            # A session has to mend what git could not merge; the gate judges all else.
            proposed=None if merged.merge.conflicts else attempt.ending.proposed,
            left=() if is_landing else tuple(left[:MAX_LEFTOVERS]),
        ),
    )
    found = TreeSnapshot(tree=tree, skipped=last.skipped, replaced=tuple(drafts))
    return displace_attempt(repo, save_snapshots(repo, carried, record, found))


def _settle_claims(attempt: OpenAttempt, saved: Plan, merged: Merged) -> tuple[PendingPlan, list[str]]:
    """Return the merged plan with the claims that stay, and what is to be said of all that was done to it.

    An item that a person reworded is not claimed any more, unless its phase is done: the next session reads the words.
    """
    drafted, before, left = merged.pending.plan, merged.pending.head, list(merged.left)
    phase = drafted.find_phase(attempt.phase_id)
    claimed = {item.id for item in phase.items} if phase else set[str]()
    if attempt.merges:
        left += describe_reworded(saved, drafted, merged.reworded)
    else:
        claimed -= merged.reworded.keys()
        words = (f"item {item} was claimed as `{text}`" for item, text in merged.reworded.items())
        left += [f"{said}, and was reworded since: it is open" for said in words]
    lost = drafted.done_ids - before.done_ids - claimed
    if moved := sorted(lost - merged.reworded.keys()):  # by a person: a commit ticks the items of one phase
        whose = f"was done in phase {attempt.phase_id} and stands in another one now: it is open"
        left.append(f"{list_some(moved)} {whose}")
    return replace(merged.pending, plan=drafted.untick(lost)), left


def _write_work(repo: Repo, attempt: OpenAttempt, mine: tuple[PathChange, ...], head: str) -> str:
    """Return the tree of an attempt's start with its changes; files that others changed too are as git has them."""
    begun = attempt.base_head or ""
    theirs = {change.path for change in diff_trees(repo, begun, head)}
    both = [change.path for change in mine if change.path in theirs]
    git, before = guard(repo).git, read_entries(repo, begun, both)
    # A file of the phase's own commits may have been in no work tree yet; most that others changed are there by now.
    known = {pair for at in (head, attempt.joined) if at for pair in read_entries(repo, at, both).items()}
    entries = []
    for change in mine:
        path, mode, blob = change.path, change.mode, change.object_id
        if path in theirs and mode in {FILE, EXECUTABLE} and (path, (mode, blob)) not in known:
            blob = hash_cleaned(repo, git, path, objects.load_blob(repo, blob), before.get(path, ("", ""))[1])
        entries.append((path, mode, blob) if blob else (path, ABSENT, repo.zero_id))
    return write_paths_tree(repo, sorted(entries, key=lambda entry: entry[1] != ABSENT), start=begun)


def _render_note(repo: Repo, attempt: OpenAttempt, begun: str, merged: Merged, left: list[str]) -> str:
    """Return the handoff note for a session that has to repair the merge of a finished phase; one paragraph.

    Args:
        attempt: On the commit that it is merged onto.
        begun: The commit that it was on before.
        left: What is to be said besides.
    """
    own, tip = read_text(repo, attempt.merges), attempt.base_head or ""
    landed = list_landed(repo, attempt, merged.pending.head)
    lines = [
        f"This phase is done: {own.commit[:12]} {own.message.subject}. Others landed meanwhile: {tip[:12]}.",
        "Both are merged in the work tree, and all is ticked; make the whole pass, and take back nothing of either.",
        *(f"Landed meanwhile, phase {phase.id}: {phase.heading}" for phase in landed),
        *(f"- {item.text}" for phase in landed for item in phase.items),
        *left,
    ]
    conflicts = merged.merge.conflicts
    for whose, commit in (("the others", tip), ("this phase", own.commit)) if conflicts else ():
        patch = objects.read_patch(repo, begun, commit, most_bytes=_PATCH_BYTES, only=conflicts)
        lines += [f"What {whose} changed there:", *(line for line in patch.splitlines() if line.strip())]
    return "\n".join(lines)

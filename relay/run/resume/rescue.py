"""Keeping and taking along the work of a leg that was found open: killed, interrupted, or behind the branch.

Each function stores what it finds before it changes anything, and can be done again by a run that was killed in it.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from relay.git.names import list_paths, render_path
from relay.git.objects import diff_trees, read_blob, read_entries, write_paths_tree
from relay.git.trees import ABSENT
from relay.ledger import Ledger, merge_entries
from relay.plan.files import decode_text, encode_text
from relay.plan.merge import merge_plans
from relay.plan.model import Plan
from relay.plan.parse import parse_plan
from relay.run.commit.landing_leg import is_untouched
from relay.run.commit.pending_plan import PendingPlan
from relay.run.commit.plan_commit import find_plan, read_ledger
from relay.run.leg.start import MAX_LEFTOVERS
from relay.session.events import Noticed, Observe
from relay.setup.context import PlanFiles
from relay.store.leg_snapshots import WipRecord, save_snapshots, save_wip
from relay.store.legs import OpenLeg
from relay.store.ownership import find_owned_paths
from relay.store.plan_lineage import find_claims, find_leg_phase, find_ticks_of_leg
from relay.store.restore import Restoration, plan_restoration, run_restoration
from relay.store.snapshot import TreeSnapshot, write_snapshot_tree
from relay.store.trailers import DISCARDED, ENDED, ERROR, PROPOSED, WAIT_UNTIL


def save_found(files: PlanFiles, leg: OpenLeg, *, discarded: tuple[str, ...] = ()) -> OpenLeg:
    """Snapshot the work tree as it is, on top of what the leg had saved; how its session ended is kept.

    Args:
        discarded: Files of the leg's that were taken out of the work tree. All its claims are dropped then: which item
            a file belonged to is not known.
    """
    record = _make_record(files, leg)
    if discarded:
        drafts = dict(record.replace or {})
        if saved := drafts.get(files.plan_path):
            plan = parse_plan(decode_text(saved))
            drafts[files.plan_path] = encode_text(plan.untick(find_ticks_of_leg(files.repo, leg, plan)).text)
        marks = tuple((DISCARDED, render_path(path)) for path in discarded[:MAX_LEFTOVERS])
        record = replace(record, items=(), replace=drafts, trailers=(*record.trailers, *marks))
    return save_wip(files.repo, leg, record)


def _make_record(files: PlanFiles, leg: OpenLeg) -> WipRecord:
    """Return what the leg's last snapshot says besides the files, for the next snapshot."""
    draft = {}
    if leg.last_wip is not None:
        paths = (files.plan_path, files.ledger_path)
        draft = {path: blob for path in paths if (blob := read_blob(files.repo, leg.last_wip.commit, path)) is not None}
    ended = tuple(pair for pair in leg.wip_trailers if pair[0] in {ENDED, ERROR, WAIT_UNTIL, DISCARDED, PROPOSED})
    return WipRecord(spend=leg.spend, items=leg.items, replace=draft, baton=leg.baton, trailers=ended)


def withdraw_proposal(files: PlanFiles, leg: OpenLeg, words: str) -> OpenLeg:
    """Keep with the baton why a leg's work was not committed; it is proposed no more."""
    record = _make_record(files, leg)
    marks = tuple(pair for pair in record.trailers if pair[0] != PROPOSED)
    return save_wip(files.repo, leg, replace(record, baton=f"{leg.baton}\n\n{words}".strip(), trailers=marks))


def restore_saved(files: PlanFiles, leg: OpenLeg, observe: Observe) -> OpenLeg:
    """Keep what is found, then put back what is missing of the newest snapshot.

    After a power loss files that were not synced may be empty or torn, while the snapshots were synced with their
    refs; in another work tree there is nothing of the session's yet. What was written since then stays.

    The ref moves before a file is written, and to what the work tree is going to be: if relay is killed meanwhile,
    the next run finds that snapshot as the newest one, and does the rest.
    """
    wanted = leg.last_wip or TreeSnapshot(tree=leg.base_tree, skipped=leg.skipped)
    record = _make_record(files, leg)
    found = write_snapshot_tree(files.repo, replace=record.replace)
    restoration = plan_restoration(files.repo, found=found, wanted=wanted, base=leg.base_tree)
    restored = TreeSnapshot(tree=restoration.tree, skipped=found.skipped, replaced=found.replaced)
    # Both in one move of the ref: what was found stays reachable as the parent of what is restored.
    kept = save_snapshots(files.repo, leg, record, found, restored)
    run_restoration(files.repo, restoration, leg.base_head, leg.merges)
    for words in _describe_restoration(restoration, kept, was_lost=not is_untouched(leg)):
        observe(Noticed(text=words, warning=True))
    return kept


def _describe_restoration(restoration: Restoration, kept: OpenLeg, *, was_lost: bool) -> Iterator[str]:
    commit = kept.last_wip.commit[:12] if kept.last_wip else ""
    if restoration.changes and was_lost:
        names = list_paths([change.path for change in restoration.changes])
        words = (
            f"{len(restoration.changes)} file(s) put back to the last checkpoint of session {kept.session_id}: {names}"
        )
        yield f"{words}; as they were found: git show {commit}~1:<file>"
    if restoration.left:
        names = list_paths(restoration.left)
        yield f"left as found, since somebody may have written it after that checkpoint: {names}"
    if restoration.blocked:
        names = list_paths(restoration.blocked)
        words = f"not put back, since something that git ignores stands there: {names}"
        yield f"{words}; as the checkpoint has it: git show {commit}~2:<file>"


def carry_over(
    files: PlanFiles, plan: Plan, leg: OpenLeg, observe: Observe, *, discarded: tuple[str, ...] = ()
) -> OpenLeg:
    """Put an open leg on the commit that HEAD is at now, with the work, claims, amendments and baton it had.

    What the leg's sessions changed and HEAD does not have stays theirs; everything else in the work tree becomes the
    new start. Claims are taken over where the phase, wherever it stands by now, still has the item in the same words,
    and unless work of the leg's was `discarded`, as `save_found` says.
    """
    leg = save_found(files, leg, discarded=discarded)
    head, last = files.repo.head(), leg.last_wip
    if head is None or last is None:
        return leg
    gone = (ABSENT, files.repo.zero_id)
    own = (files.plan_path, files.ledger_path)  # drafts in the snapshot; a leg starts from the files themselves
    reset = (*find_owned_paths(files.repo, files.plan_path, leg, last), *own)
    entries = read_entries(files.repo, head, reset)
    base = write_paths_tree(files.repo, [(path, *entries.get(path, gone)) for path in reset], start=last.tree)
    plan = _amend_again(files, plan, leg, last.commit, observe)
    kept = find_claims(files.repo, leg, files.plan_path, plan)
    pending = PendingPlan(head=plan, plan=plan.tick(kept), ledger=_take_along(files, leg, head, last.commit))
    drafts = pending.render_files(files.plan_path, files.ledger_path)
    marks = tuple(pair for pair in leg.wip_trailers if pair[0] in {DISCARDED, PROPOSED})
    if _meets(files, leg, head, reset):
        marks = tuple(pair for pair in marks if pair[0] != PROPOSED)
    record = WipRecord(spend=leg.spend, items=kept, replace=drafts, baton=leg.baton, trailers=marks)
    carried = replace(leg, base_head=head, base_tree=base, phase_id=find_leg_phase(files.repo, leg, plan))
    return save_wip(files.repo, carried, record)


def _amend_again(files: PlanFiles, plan: Plan, leg: OpenLeg, last: str, observe: Observe) -> Plan:
    """Return HEAD's plan with the items, notes and questions that the leg's sessions added; no claim is ticked."""
    before, drafted = find_plan(files, leg.base_head), find_plan(files, last)
    if before is None or drafted is None:
        return plan
    merged = merge_plans(before, plan, drafted.untick(find_ticks_of_leg(files.repo, leg, drafted)))
    for words in merged.left:
        observe(Noticed(text=f"phase {leg.phase_id} was amended, and so was its plan: {words}", warning=True))
    return merged.plan


def _take_along(files: PlanFiles, leg: OpenLeg, head: str, last: str) -> Ledger:
    """Return HEAD's ledger with what the leg's sessions recorded: others may have written there meanwhile."""
    before = read_ledger(files, leg.base_head).entries
    drafted = read_ledger(files, last).entries
    return merge_entries(read_ledger(files, head), [entry for entry in drafted if entry not in before])


def _meets(files: PlanFiles, leg: OpenLeg, head: str, paths: Collection[str]) -> bool:
    """Return whether others' commits changed a file that the leg has changed otherwise: a session has to look at it."""
    last = leg.last_wip.tree if leg.last_wip else leg.base_tree
    theirs = {change.path for change in diff_trees(files.repo, leg.base_head or files.repo.empty_tree, head)}
    still_open = {change.path for change in diff_trees(files.repo, head, last)}
    return bool(theirs & still_open & set(paths) - {files.plan_path, files.ledger_path})

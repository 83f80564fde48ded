"""What a session of a phase starts from: plan, draft, baton, baseline. Nothing else reaches it from the session before.

A phase has at most one open leg ref, from its first session (or its last commit) to its next commit; the sessions in
between share its base, so that what is committed in the end is what they did together and nothing of the user's.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from relay.config import Settings
from relay.errors import PlanError, within
from relay.gate.model import CommandCheck, GateResult, Outcome
from relay.git.modes import ABSENT
from relay.git.names import list_paths, parse_path, render_path
from relay.git.objects import diff_trees, read_blob, read_entries, write_paths_tree
from relay.git.refs import drop_ref
from relay.ledger import Ledger, parse_ledger, render_snapshot
from relay.plan.check import find_obscurity
from relay.plan.encoding import decode_text, encode_text
from relay.plan.model import Phase, Plan
from relay.plan.parse import parse_plan
from relay.prompts.texts import PhaseBriefing
from relay.run.commit_step import BATON_TITLE
from relay.run.gates import run_phase_gate
from relay.run.pending_plan import PendingPlan
from relay.session.events import Noticed
from relay.session.usage import Spent
from relay.setup.context import PlanFiles, RunContext
from relay.state.session_ends import is_refunded
from relay.state.staleness import find_stale
from relay.store.history import read_plan_commits
from relay.store.legs import (
    LegStart,
    OpenLeg,
    WipRecord,
    continue_leg,
    keep_snapshot,
    open_leg,
    save_snapshots,
    save_wip,
)
from relay.store.ownership import find_owned_paths
from relay.store.restore import Restoration, plan_restoration, run_restoration
from relay.store.snapshot import TreeSnapshot, write_snapshot_tree
from relay.store.texts import find_text
from relay.store.trailers import BASELINE, CLAIMED, DISCARDED, ENDED, ERROR, LEFTOVER, LEG, NO_PROGRESS, WAIT_UNTIL

MAX_LEFTOVERS = 200
MAX_STALE_SHOWN = 20
"""Files that changed since the plan was made, named to the user and to a session; more say that it needs a revision."""
LEDGER_TOKENS = 1_500
"""Budget of the ledger's snapshot in the first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What one session starts from."""

    leg: OpenLeg
    phase_id: str
    number: int
    """1 for the first session of the phase; one that was cut off and the one after it have the same."""
    no_progress: int
    """Sessions of this phase in a row, before this one, that passed the line without ticking anything."""
    reason: str
    """Why this session starts, for the user."""
    pending: PendingPlan
    """Plan and ledger as the phase's earlier sessions would leave them."""
    commands: tuple[str, ...]
    """The gate."""
    baseline: GateResult | None
    """The gate as it was before the phase; None when that is not known any more."""
    briefing: PhaseBriefing


def begin_phase(ctx: RunContext, plan: Plan, phase: Phase, *, reason: str) -> Handover | None:
    """Open a leg on a phase that has none; None when a stop was asked for during the baseline.

    The gate runs first, so that what it leaves behind is not the leg's. It is not the user's either: a session may
    change such a file and have it committed. What had changes of the user's before stays the user's, and is kept.
    """
    head, before = ctx.repo.head(), write_snapshot_tree(ctx.repo)
    number, baton = _read_earlier_sessions(ctx.files, phase.id)
    commands = get_commands(ctx.settings, phase)
    dirty = {change.path for change in diff_trees(ctx.repo, head or ctx.repo.empty_tree, before.tree)}
    kept = (
        keep_snapshot(ctx.repo, before, f"relay: before the gate of phase {phase.id}") if dirty and commands else None
    )
    baseline, _ = run_phase_gate(ctx, phase.id, commands, baseline=None, is_baseline=True)
    if ctx.interrupts.stop_now or any(check.status is Outcome.INTERRUPTED for check in baseline.commands):
        return None
    pending = PendingPlan(head=plan, plan=plan, ledger=_read_ledger(ctx.files, head))  # before a leg is open
    base = write_snapshot_tree(ctx.repo)
    changed = [change.path for change in diff_trees(ctx.repo, before.tree, base.tree)]
    left = [path for path in changed if path not in dirty]
    if kept is not None:
        _settle_kept(ctx, *kept, [path for path in changed if path in dirty])
    marks = (*_render_marks(number, 0), (BASELINE, _render_baseline(baseline)))
    marks += tuple((LEFTOVER, render_path(path)) for path in left[:MAX_LEFTOVERS])
    start = LegStart(session_id=ctx.new_id(), phase_id=phase.id, plan_path=ctx.plan_path, trailers=marks)
    leg = open_leg(ctx.repo, start, base=base)
    return _make_handover(ctx, leg, pending, reason=reason, baton=baton, baseline=baseline)


def _settle_kept(ctx: RunContext, ref: str, commit: str, rewritten: list[str]) -> None:
    """Say where the user's bytes are that the verify commands wrote over; without any, nothing has to be kept."""
    if not rewritten:
        drop_ref(ctx.repo, ref, commit)
        return
    words = f"the verify commands rewrote what you had not committed: {list_paths(rewritten)}"
    ctx.observe(Noticed(text=f"{words}; as it was before, it is kept under {ref}", warning=True))


def continue_phase(ctx: RunContext, plan: Plan, leg: OpenLeg, *, reason: str) -> Handover:
    """Put a fresh session on an open leg, with what its newest snapshot holds."""
    found = dict(leg.trailers)
    # A session that was cut off, by whatever, says nothing about the size of the phase: it is not counted.
    counts = not is_refunded(leg)
    number = _read_count(found.get(LEG, ""), 1) + counts
    ticked = len(leg.items) > _read_count(found.get(CLAIMED, ""), 0)
    no_progress = 0 if ticked else _read_count(found.get(NO_PROGRESS, ""), 0) + counts
    baseline = _parse_baseline(found.get(BASELINE, ""))
    discarded = _describe_discarded(leg)
    baton = f"{leg.baton}\n\n{discarded}".strip() if leg.baton else ""
    interruption = "" if leg.baton else _describe_interruption(leg) + (f" {discarded}" if discarded else "")
    marks = (*_render_marks(number, no_progress), (CLAIMED, str(len(leg.items))), (BASELINE, found.get(BASELINE, "")))
    marks += tuple(mark for mark in leg.trailers if mark[0] == LEFTOVER)
    start = LegStart(session_id=ctx.new_id(), phase_id=leg.phase_id, plan_path=ctx.plan_path, trailers=marks)
    leg = continue_leg(ctx.repo, leg, start)
    tip = leg.last_wip.commit if leg.last_wip else ctx.repo.head()
    pending = PendingPlan(head=plan, plan=_read_plan(ctx.files, tip) or plan, ledger=_read_ledger(ctx.files, tip))
    return _make_handover(ctx, leg, pending, reason=reason, baton=baton, baseline=baseline, interruption=interruption)


def get_commands(settings: Settings, phase: Phase) -> tuple[str, ...]:
    """Return the gate of a phase: the settings' commands, then the document's, then its own.

    Raises:
        PlanError: One of them does more than a person sees who reads it; none is run then.
    """
    commands = tuple(dict.fromkeys((*settings.verify, *phase.verify)))
    for command in commands:
        if words := find_obscurity(command):
            raise PlanError(f"a verify command of phase {phase.id} {words}", hint="relay check names the line")
    return commands


def save_found(ctx: RunContext, leg: OpenLeg, *, discarded: tuple[str, ...] = ()) -> OpenLeg:
    """Snapshot the work tree as it is, on top of what the leg had saved; how its session ended is kept.

    Args:
        ctx: The collaborators.
        leg: The open leg.
        discarded: Files of the leg's that somebody took out of the work tree: then it claims nothing any more. Which
            item a file belonged to nobody knows.
    """
    record = _make_record(ctx.files, leg)
    if discarded:
        files = dict(record.replace or {})
        if saved := files.get(ctx.plan_path):
            files[ctx.plan_path] = encode_text(parse_plan(decode_text(saved)).untick(leg.items).text)
        marks = tuple((DISCARDED, render_path(path)) for path in discarded[:MAX_LEFTOVERS])
        record = replace(record, items=(), replace=files, trailers=(*record.trailers, *marks))
    return save_wip(ctx.repo, leg, record)


def _make_record(files: PlanFiles, leg: OpenLeg) -> WipRecord:
    """Return what the leg's last snapshot says beside the files, for another one."""
    draft = {}
    if leg.last_wip is not None:
        paths = (files.plan_path, files.ledger_path)
        draft = {path: blob for path in paths if (blob := read_blob(files.repo, leg.last_wip.commit, path)) is not None}
    ended = tuple(pair for pair in leg.wip_trailers if pair[0] in {ENDED, ERROR, WAIT_UNTIL, DISCARDED})
    return WipRecord(spend=leg.spend, items=leg.items, replace=draft, baton=leg.baton, trailers=ended)


def restore_saved(ctx: RunContext, leg: OpenLeg) -> OpenLeg:
    """Keep what is found, then put back what is missing of the newest snapshot.

    After a power loss files that were not synced may be empty or torn, while the snapshots were synced with their
    refs; in another work tree there is nothing of the session's yet. What somebody wrote since stays.

    The ref moves before a file is written, and to what the work tree is going to be: if relay is killed meanwhile,
    the next run finds that snapshot as the newest one, and does the rest.
    """
    wanted = leg.last_wip or TreeSnapshot(tree=leg.base_tree, skipped=leg.skipped)
    record = _make_record(ctx.files, leg)
    found = write_snapshot_tree(ctx.repo, replace=record.replace)
    restoration = plan_restoration(ctx.repo, found=found, wanted=wanted, base=leg.base_tree)
    restored = TreeSnapshot(tree=restoration.tree, skipped=found.skipped, replaced=found.replaced)
    kept = save_snapshots(ctx.repo, leg, record, found, restored)
    run_restoration(ctx.repo, restoration, head=leg.base_head)
    for words in _describe_restoration(restoration, kept):
        ctx.observe(Noticed(text=words, warning=True))
    return kept


def _describe_restoration(restoration: Restoration, kept: OpenLeg) -> Iterator[str]:
    commit = kept.last_wip.commit[:12] if kept.last_wip else ""
    if restoration.changes:
        names = list_paths([change.path for change in restoration.changes])
        words = (
            f"{len(restoration.changes)} file(s) put back to the last snapshot of session {kept.session_id}: {names}"
        )
        yield f"{words}; as they were found: git show {commit}~1:<file>"
    if restoration.left:
        names = list_paths(restoration.left)
        yield f"left as found, since somebody may have written it after that snapshot: {names}"
    if restoration.blocked:
        names = list_paths(restoration.blocked)
        words = f"not put back, since something that git ignores stands there: {names}"
        yield f"{words}; as the snapshot has it: git show {commit}~2:<file>"


def carry_over(ctx: RunContext, plan: Plan, leg: OpenLeg, *, discarded: tuple[str, ...] = ()) -> OpenLeg:
    """Put an open leg on the commit that HEAD is at now, with the work, the claims and the baton it had.

    What the leg's sessions changed and HEAD does not have stays theirs; everything else in the work tree becomes the
    new start. Claims are taken over where the plan still has the item in the same words, and unless work of the leg's
    was `discarded`, as `save_found` says.
    """
    leg = save_found(ctx, leg, discarded=discarded)
    head, last = ctx.repo.head(), leg.last_wip
    if head is None or last is None:
        return leg
    gone = (ABSENT, ctx.repo.zero_id)
    own = (ctx.plan_path, ctx.ledger_path)  # drafts in the snapshot; a leg starts from the files themselves
    reset = (*find_owned_paths(ctx.repo, ctx.plan_path, leg, last), *own)
    entries = read_entries(ctx.repo, head, reset)
    base = write_paths_tree(ctx.repo, [(path, *entries.get(path, gone)) for path in reset], start=last.tree)
    old = _read_plan(ctx.files, last.commit) or plan
    texts = {item.id: item.text for item in old.items if item.id in leg.items}
    kept = tuple(item.id for item in plan.items if texts.get(item.id) == item.text and not item.done)
    pending = PendingPlan(head=plan, plan=plan.tick(kept), ledger=_read_ledger(ctx.files, last.commit))
    files = pending.render_files(ctx.plan_path, ctx.ledger_path)
    marks = tuple(pair for pair in leg.wip_trailers if pair[0] == DISCARDED)
    record = WipRecord(spend=leg.spend, items=kept, replace=files, baton=leg.baton, trailers=marks)
    return save_wip(ctx.repo, replace(leg, base_head=head, base_tree=base), record)


def _make_handover(  # noqa: PLR0913  # one private caller for each way to begin
    ctx: RunContext,
    leg: OpenLeg,
    pending: PendingPlan,
    *,
    reason: str,
    baton: str,
    baseline: GateResult | None,
    interruption: str = "",
) -> Handover:
    phase = pending.plan.find_phase(leg.phase_id) or pending.head.find_phase(leg.phase_id)
    if phase is None:
        raise LookupError(leg.phase_id)  # the resume point named it a moment ago
    found = dict(leg.trailers)
    stale = find_stale(ctx.repo, ctx.plan_path, phase)
    if stale:
        words = "; ".join(stale[:MAX_STALE_SHOWN])
        ctx.observe(Noticed(text=f"changed since phase {phase.id} was planned: {words}", warning=True))
    return Handover(
        leg=leg,
        phase_id=leg.phase_id,
        number=_read_count(found.get(LEG, ""), 1),
        no_progress=_read_count(found.get(NO_PROGRESS, ""), 0),
        reason=reason,
        pending=pending,
        commands=get_commands(ctx.settings, phase),
        baseline=baseline,
        briefing=PhaseBriefing(
            plan=pending.plan,
            phase=phase,
            plan_path=ctx.plan_path,
            environment=_describe_environment(ctx, leg.branch),
            claimed=tuple(item.id for item in pending.claims if item in phase.items),
            baton=baton,
            interruption=interruption,
            baseline=_describe_red(baseline),
            ledger="" if "ledger" in ctx.settings.ablate else render_snapshot(pending.ledger, LEDGER_TOKENS),
            stale=tuple(f"- {words}" for words in stale[:MAX_STALE_SHOWN]),
        ),
    )


def _read_plan(files: PlanFiles, commit: str | None) -> Plan | None:
    text = find_text(files.repo, commit, files.plan_path)
    return parse_plan(text) if text else None


def _read_ledger(files: PlanFiles, commit: str | None) -> Ledger:
    """Read the ledger of a commit; the error names its file.

    Raises:
        LedgerError: It cannot be read as one.
    """
    with within(render_path(files.ledger_path)):
        return parse_ledger(find_text(files.repo, commit, files.ledger_path) or "")


def _read_earlier_sessions(files: PlanFiles, phase_id: str) -> tuple[int, str]:
    """Return the number of the next session of a phase and the baton in its last hand-off commit."""
    commits = (c for c in read_plan_commits(files.repo, files.plan_path) if c.status != "amended")
    last = next(commits, None)
    if last is None or (last.phase, last.status) != (phase_id, "handoff"):
        return 1, ""
    number = _read_count(dict(last.found).get(LEG, ""), 1)
    _, _, baton = last.body.partition(f"{BATON_TITLE}\n")
    return number + 1, baton


def read_phase_spent(files: PlanFiles, phase_id: str) -> Spent:
    """Return what the hand-off commits of an unfinished phase record."""
    commits = read_plan_commits(files.repo, files.plan_path)
    unfinished = takewhile(lambda commit: commit.status != "done", commits)
    return sum((commit.spent for commit in unfinished if commit.phase == phase_id), start=Spent())


def _render_marks(number: int, no_progress: int) -> tuple[tuple[str, str], ...]:
    return (LEG, str(number)), (NO_PROGRESS, str(no_progress))


def _read_count(text: str, default: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else default  # noqa: PLR2004  # a sane counter


def _render_baseline(result: GateResult) -> str:
    return json.dumps([[check.command, check.status, check.exit_code] for check in result.commands])


def _parse_baseline(text: str) -> GateResult | None:
    try:
        rows = json.loads(text)
        checks = tuple(
            CommandCheck(command=str(command), status=Outcome(status), exit_code=code, duration_s=0.0, output_tail="")
            for command, status, code in rows
        )
    except (ValueError, TypeError):
        return None
    return GateResult(commands=checks)


def _describe_red(baseline: GateResult | None) -> str:
    red = [check for check in baseline.commands if check.status is not Outcome.PASSED] if baseline else []
    return "\n".join(f"- `{check.command}` ({check.status})" for check in red)


def _describe_environment(ctx: RunContext, branch: str) -> tuple[str, ...]:
    network = "with network" if ctx.settings.network else "without network"
    held = ctx.workspace.sandbox.mechanism
    return (
        f"Branch {branch}; your working directory is the repository's root.",
        f"Commands run in a sandbox ({held}), {network}, without a terminal and without input.",
    )


def _describe_discarded(leg: OpenLeg) -> str:
    paths = [parse_path(value) for key, value in leg.wip_trailers if key == DISCARDED]
    if not paths:
        return ""
    return (
        f"Since then somebody took work of this phase out of the work tree: {list_paths(paths)}. Nothing that was "
        "ticked counts any more: look at what is there, and tick again what holds."
    )


def _describe_interruption(leg: OpenLeg) -> str:
    ticked = f" It had ticked: {', '.join(leg.items)}." if leg.items else ""
    return (
        f"The session before you ({leg.session_id}) was interrupted at an unknown point; its files are in the work "
        f"tree as it left them.{ticked} Look at what is there before you go on."
    )

"""The commit step: a claim of a session becomes true here or nowhere.

The order is fixed: find the attempt's own files, run the gate, check the change of the plan and of the files, have it
reviewed, then make one commit with code, ticks and trailers. Each refusal is a value with words for the model and for
the user.
"""

from collections.abc import Iterable
from dataclasses import replace

from relay.base.errors import ConfigError, RepoError
from relay.base.hints import RUN, Command
from relay.base.redaction import redact
from relay.base.secrecy import is_covered
from relay.base.values import dataclass
from relay.base.words import list_some, name_item
from relay.config import Settings
from relay.gate.model import MOST_FLAKY, Outcome, compare_gate, find_flaky
from relay.git.command import GitError
from relay.git.config_guard import guard
from relay.git.identity import render_signoff
from relay.git.message import LINE_CHARS, Message, disarm
from relay.git.names import list_paths, render_path
from relay.git.objects import count_lines
from relay.git.status import ChangeKind, PathChange, check_state
from relay.git.trees import find_tree
from relay.ledger.belief import judge
from relay.plan.edit import list_notes
from relay.plan.model import Item, Phase
from relay.plan.operations import check_change, describe_reworded
from relay.plan.parse import parse_plan
from relay.run.commit.candidate import Candidate, PendingPlan, PhaseCommit, Refused
from relay.run.commit.changed_checks import describe_changed_checks
from relay.run.commit.disclosures import describe_autoruns, find_disclosures, render_refusal
from relay.run.commit.gates import GateRun, GateTask, find_content, open_gate_hooks, run_phase_gate
from relay.run.commit.hooks import explain_hook, render_hook_gate
from relay.run.commit.omissions import (
    MAX_ABSENT,
    Delivery,
    Doubts,
    check_phantom,
    describe_installed,
    describe_unseen,
    doubt_daemons,
    find_doubts,
    find_ignored_files,
    find_left_out,
    find_moved_gates,
    render_left_out,
)
from relay.run.commit.plan_commit import (
    SUBJECT_CHARS,
    change_edited_plan,
    find_plan,
    list_other_subjects,
    read_ledger,
    render_subject,
)
from relay.run.commit.readiness import check_marks, find_merged, list_own, render_merge, settle_in
from relay.run.commit.review import review_work
from relay.sandbox.policy import PROTECTED_NAMES
from relay.session.events import Committed, Noticed
from relay.session.usage import Spent, Usage
from relay.setup.context import GateFiles, PlanFiles, RunContext
from relay.store import trailers
from relay.store.attempts import close_attempt, find_attempt_changes, find_brought_paths, select_owned
from relay.store.commit import CommitEnd, CommitOutcome, CommitRequest, commit_paths
from relay.store.completion import NotStagedError, bring_back, store_files
from relay.store.history import HANDOFF_NOTE_TITLE
from relay.store.loose import is_loose
from relay.store.outdated import find_outdated, is_amended
from relay.store.snapshot import TreeSnapshot, write_snapshot_tree
from relay.store.staleness import describe_left, find_newly_changed, has_moved
from relay.store.steering_files import describe_strange, find_all_strange, find_persons, name_file
from relay.store.trailers import AMENDED, LEG
from relay.store.worktree_notes import is_own_tree

MAX_LEFT = 20
"""Most claims that a commit names as left in doubt."""
MAX_GATE_RUNS = 3
"""A gate may format the files once, and somebody may save a file meanwhile once; then the gate must agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """An attempt's work, and its gate."""

    owned: tuple[str, ...]
    """The paths of the commit."""
    user: frozenset[str]
    """Paths that no session's commit takes: git ignored them when the phase began, or only a person writes them."""
    changes: tuple[PathChange, ...]
    """From the attempt's start."""
    after: TreeSnapshot
    """The work tree of the sessions."""
    tree: str
    """The commit's files, which the gate saw; plan and ledger are as in the parent."""
    run: GateRun


def commit_attempt(ctx: RunContext, candidate: Candidate) -> PhaseCommit | Refused:
    """Check an attempt's work and commit it; an error of git or the disk is a refusal too."""
    try:
        return commit_phase(ctx, candidate)
    except RepoError as error:
        again = isinstance(error, GitError)
        return Refused(for_user=f"not committed: {error}", ways=error.hint or "", again=again)


def commit_phase(ctx: RunContext, candidate: Candidate) -> PhaseCommit | Refused:
    """Check an attempt's work and commit it.

    Raises:
        RepoError: A snapshot or the commit could not be stored.
    """
    rewritten = tuple[str, ...]()
    for _ in range(MAX_GATE_RUNS):
        found = _find_work(ctx, candidate)
        if isinstance(found, Refused):
            return found
        run = found.run
        if flaky := find_flaky(run.flaky, least=MOST_FLAKY):
            return Refused(for_user="; ".join(flaky), ways="make it deterministic, or leave it out of the gate")
        if not run.verdict.green:
            return _refuse_red(ctx, candidate, found)
        if not run.rewritten:
            return _show_refusal(ctx, candidate, _commit_checked(ctx, candidate, found))
        bring_back(ctx.repo, found.tree, run.rewritten)
        rewritten = tuple(sorted(run.rewritten))
    words = f"the gate itself keeps changing the files that it checks: {list_paths(rewritten)}"
    return Refused(for_user=words, for_model=f"{words}. Make the verify command only check.")


def _show_refusal(ctx: RunContext, candidate: Candidate, made: PhaseCommit | Refused) -> PhaseCommit | Refused:
    """Show why a session works on although its gate is green."""
    if isinstance(made, Refused) and made.for_model and candidate.in_session and not made.for_review:
        first = made.for_user.partition("\n")[0]
        ctx.observe(Noticed(text=f"the session is told: {first}"))
    return made


def _find_work(ctx: RunContext, candidate: Candidate) -> _Work | Refused:
    """Run the gate on what a commit would hold now."""
    repo, attempt, after = ctx.repo, candidate.attempt, write_snapshot_tree(ctx.repo)
    changes = find_attempt_changes(repo, attempt, after)
    # A session cannot write existing files of this kind; the author of commits from elsewhere could.
    user = find_persons(c.path for c in changes if attempt.carried.is_unchecked or c.kind is ChangeKind.ADDED)
    user |= find_brought_paths(repo, (c.path for c in changes if c.kind is ChangeKind.ADDED))
    owned = select_owned(ctx.plan_path, attempt, changes, user)
    try:
        tree = store_files(repo, guard(repo), attempt.base_head, owned)
    except NotStagedError as error:
        return _explain(CommitOutcome(end=CommitEnd.NOT_STAGED, output=str(error)))
    try:
        run = _run_gate(ctx, candidate, tree, owned)
    except ConfigError as error:  # what the commit's lock files name cannot be installed
        words = str(error)
        return Refused(for_user=words.partition("\n")[0], for_model=words, ways=error.hint or "", once=True)
    return _Work(owned=owned, user=user, changes=changes, after=after, tree=tree, run=run)


def _refuse_red(ctx: RunContext, candidate: Candidate, work: _Work) -> Refused:
    """Return a red gate's refusal, with the files that the gate did not see: it may need them."""
    verdict, run = work.run.verdict, work.run
    again = not candidate.in_session and any(check.was_cut_off for check in run.result.commands)
    then = None if again else Command(words=("gate", candidate.phase.id))
    place = f" in {ctx.repo.root}" if is_own_tree(ctx.repo) else ""
    ways = (f"repair it by hand{place}, and ", RUN, " commits it without another session, or change its Verify: line")
    red = Refused(for_user=verdict.for_user, for_model=verdict.for_model, ways=ways, again=again, then=then)
    if left_out := _check_left_out(ctx, candidate, work):
        return left_out
    if not (left := describe_unseen(ctx.repo, run, work.user, work.after)):
        return red
    unseen = f"Not shown to the gate, because the commit would not hold it: {left}."
    return replace(red, for_user=f"{verdict.for_user}\n{unseen}", for_model=f"{verdict.for_model}\n\n{unseen}")


def _commit_checked(ctx: RunContext, candidate: Candidate, work: _Work) -> PhaseCommit | Refused:
    """Commit work that has passed the gate, unless another check refuses it."""
    added = [change.path for change in work.changes if change.old_object_id == "" and change.path in work.owned]
    doubts = find_doubts(ctx.repo, _make_delivery(ctx.files, candidate, work), work.run, candidate.baseline)
    if candidate.pending.claims:
        doubts = replace(doubts, others=doubts.others + _find_left_claims(ctx, candidate, work.owned))
    doubts = replace(
        doubts, others=(*doubts.others, *doubt_daemons(ctx.settings, ctx.workspace.sandbox.policy, work.run))
    )
    if not candidate.attempt.merges:  # else its own commits said it
        own = [change for change in work.changes if change.path in work.owned]
        changed = describe_changed_checks(ctx.repo, candidate.phase, ctx.plan_path, own, candidate.commands)
        moved = find_moved_gates(ctx.files, candidate, work.after)
        doubts = replace(doubts, others=(*doubts.others, *filter(None, (changed,)), *moved))
    elif done := find_plan(ctx.files, candidate.attempt.merges):
        reworded = describe_reworded(done, candidate.pending.plan, candidate.pending.claimed_ids)
        doubts = replace(doubts, others=(*doubts.others, *reworded))
    if refusal := (
        check_marks(ctx.repo, candidate.attempt, work.after.tree)
        or _check_plan(candidate)
        or _check_left_out(ctx, candidate, work)
        or _check_strange(ctx.files)
        or _check_planted(ctx.workspace.protected, added)
        or _check_phantom(ctx, candidate, doubts)
        or _check_secrets(ctx, candidate, work.owned, work.tree)
    ):
        return refusal
    if words := check_state(ctx.repo):  # a merge or the like that the user began meanwhile
        return Refused(for_user=f"not committed, because {words}")
    reviewed = review_work(ctx, candidate, work.owned, work.after.tree, work.run.result)
    if isinstance(reviewed, Refused):
        _remember(ctx, work.tree, work.run)
        return reviewed
    candidate = replace(candidate, attempt=reviewed.attempt)
    for words in doubts.sentences:
        ctx.observe(Noticed(text=f"ticked anyway: {words}", warning=True))
    _report_left_out(ctx, work)
    said = (*doubts.sentences, *_report_outdated(ctx, candidate, work), *describe_installed(work.run))
    marks = tuple((trailers.DOUBT, words) for words in said) + reviewed.trailers
    outcome = _commit(ctx, candidate, work, make_commit_message(ctx, candidate, work.run, marks))
    if outcome.commit is None:
        return _explain(outcome)
    _remember(ctx, find_tree(ctx.repo, outcome.commit), work.run)  # also if hooks rewrote files
    _finish(ctx, candidate, outcome)
    return PhaseCommit(commit=outcome.commit)


def _report_outdated(ctx: RunContext, candidate: Candidate, work: _Work) -> list[str]:
    """Return the later items that the work made wrong and the session left so."""
    pending, attempt = candidate.pending, candidate.attempt
    if attempt.merges:  # its own commits said it
        return []
    settled = settle_in(ctx.repo, ctx.plan_path, pending.plan, attempt.base_head)
    later = [phase for phase in settled.phases if phase.id != candidate.phase.id]
    found = find_outdated(ctx.repo, attempt.base_tree, work.after.tree, later)
    left = [one.words for one in found if not is_amended(one, pending.head, pending.plan)][:MAX_ABSENT]
    for words in left:
        ctx.observe(Noticed(text=f"left as it is in the plan: {words}", warning=True))
    return left


def _find_left_claims(ctx: RunContext, candidate: Candidate, owned: tuple[str, ...]) -> tuple[str, ...]:
    """Return a doubt for each claim that the phase made stale, and each contradiction that it recorded, and left so."""
    head, pending = candidate.attempt.base_head, candidate.pending
    before = read_ledger(ctx.files, head)
    changed = find_newly_changed(ctx.repo, pending.ledger, before, head, owned)
    left = describe_left(pending.ledger, judge(pending.ledger, changed), before)
    return tuple(_make_harmless(candidate, words, ctx.secret_values) for words in left[:MAX_LEFT])


def _remember(ctx: RunContext, tree: str, run: GateRun) -> None:
    if not run.installed:
        ctx.memory.remember(find_content(ctx.repo, tree, (ctx.plan_path, ctx.ledger_path)), run.result)


def _check_left_out(ctx: RunContext, candidate: Candidate, work: _Work) -> Refused | None:
    """Refuse a phase whose files could not be in its commit: a box would be ticked without its code."""
    delivery = _make_delivery(ctx.files, candidate, work)
    ignored = find_ignored_files(ctx.repo, delivery)
    if found := find_left_out(ctx.repo, delivery, ignored):
        words, ways = render_left_out(found)
        for_model = f"{words}. Do the work in other files, or call block and say this."
        return Refused(for_user=words, for_model=for_model, ways=ways)
    for path in sorted(ignored & candidate.touched):
        ctx.observe(Noticed(text=f"{path} was written by the session, is ignored by git and is not committed"))
    return None


def _make_delivery(files: PlanFiles, candidate: Candidate, work: _Work) -> Delivery:
    settled = settle_in(files.repo, files.plan_path, candidate.pending.plan, candidate.attempt.base_head)
    return Delivery(
        attempt=candidate.attempt,
        items=replace(candidate.pending, plan=settled).claims,
        touched=candidate.touched,
        changed=frozenset(change.path for change in work.changes),
        owned=work.owned,
        user=work.user,
        after=work.after,
        notes=list_notes(candidate.pending.plan)[candidate.phase.id],
    )


def _check_phantom(ctx: RunContext, candidate: Candidate, doubts: Doubts) -> Refused | None:
    """Refuse ticks without evidence, unless the work was committed before the session."""
    refused = None if candidate.attempt.merges else check_phantom(doubts)
    return None if refused and has_moved(ctx.repo, ctx.plan_path, candidate.phase) else refused


def _run_gate(ctx: RunContext, candidate: Candidate, tree: str, owned: tuple[str, ...]) -> GateRun:
    return run_phase_gate(
        ctx,
        GateTask(
            phase_id=candidate.phase.id,
            commands=candidate.commands,
            files=GateFiles(head=candidate.attempt.base_head, tree=tree, paths=owned),
            baseline=candidate.baseline,
            own=list_own(candidate.phase, candidate.commands),
            is_unfinished=candidate.status == "handoff",
        ),
    )


def _check_plan(candidate: Candidate) -> Refused | None:
    """Refuse illegal changes of the plan, whoever made them; checks the text of the future file."""
    pending, phase_id = candidate.pending, candidate.phase.id
    drafted = parse_plan(pending.plan.text)
    phase = drafted.find_phase(phase_id)
    in_phase = {item.id for item in phase.items} if phase else set[str]()
    violations = check_change(pending.head, drafted, may_tick=in_phase & set(pending.claimed_ids))
    if not violations:
        return None
    words = "; ".join(f"line {violation.line}: {violation.message}" for violation in violations)
    return Refused(for_user=f"the plan would change in a way that is not allowed: {words}")


def _check_planted(protected: tuple[str, ...], added: Iterable[str]) -> Refused | None:
    """Refuse new files that steer relay or another agent later: no sandbox can protect a file that does not exist."""
    names = (*protected, *(f"**/{name}" for name in PROTECTED_NAMES))
    planted = [path for path in added if is_covered(path, names)]
    if not planted:
        return None
    words = f"the session made files that only the user writes: {list_paths(planted)}"
    return Refused(for_user=words, for_model=f"Nothing was committed: {words}. Remove them.")


def _check_strange(files: PlanFiles) -> Refused | None:
    """Refuse to commit beside steering files that a session, the gate or a hook may have made or written.

    In relay's own tree it was one of those, and the session that made a file can still remove it; for the next one it
    is read-only.
    """
    strange = find_all_strange(files.repo, files.plan_path)
    if not strange:
        return None
    words, ways = describe_strange(files.repo, strange)
    paths = list_paths([name_file(entry) for entry in strange])
    told = f"Nothing was committed: {paths} would steer relay or an agent later. Remove what you made."
    return Refused(for_user=words, for_model=told if is_own_tree(files.repo) else "", ways=ways, once=True)


def _check_secrets(ctx: RunContext, candidate: Candidate, owned: tuple[str, ...], tree: str) -> Refused | None:
    """Refuse a commit that would add a secret; the message names the lines without their content."""
    found = find_disclosures(ctx.repo, candidate.attempt.base_head, tree, owned, ctx.secret_values)
    refused = [one for one in found if not one.allowed]
    if refused:
        words = list_some([one.words for one in refused], 3, joint="; ")
        return Refused(for_user=f"not committed: {words}", for_model=render_refusal(refused))
    for one in found:
        ctx.observe(Noticed(text=f"{one.words}, and is committed because the line says so", warning=True))
    return None


def _report_left_out(ctx: RunContext, work: _Work) -> None:
    for words in describe_installed(work.run):
        ctx.observe(Noticed(text=words, warning=True))
    mixed = [change.path for change in work.changes if change.path in work.user]
    if persons := find_persons(mixed):
        words = f"not committed, because only you write such a file: {list_paths(sorted(persons))}"
        ctx.observe(Noticed(text=words))
    if mixed := [path for path in mixed if path not in persons]:
        words = f"not committed, because git ignored it when the phase began: {list_paths(mixed)}"
        ctx.observe(Noticed(text=words, warning=True))
    if work.after.skipped:
        words = list_some([f"{entry.path} ({entry.reason})" for entry in work.after.skipped])
        ctx.observe(Noticed(text=f"not committed and not kept in checkpoints: {words}", warning=True))


def _commit(ctx: RunContext, candidate: Candidate, work: _Work, message: Message) -> CommitOutcome:
    request = CommitRequest(
        branch=candidate.attempt.branch,
        head=candidate.attempt.base_head,
        merges=candidate.attempt.joined,
        message=message,
        other_subjects=list_subjects(ctx, candidate),
        plain_body="" if candidate.attempt.merges else _render_body(ctx, candidate, with_evidence=False),
        paths=work.owned,
        replace=candidate.pending.render_files(ctx.plan_path, ctx.ledger_path),
        loose=ctx.plan_path if is_loose(ctx.repo, ctx.plan_path) else "",
        files=work.tree,
        keep_out=work.user,
    )

    def may_make(path: str) -> bool:
        return not (find_persons([path]) or _check_planted(ctx.workspace.protected, [path]))

    def recheck(tree: str, paths: tuple[str, ...]) -> str | None:
        if refused := _check_secrets(ctx, candidate, paths, tree):
            return refused.for_model
        run = _run_gate(ctx, candidate, tree, tuple(dict.fromkeys((*work.owned, *paths))))
        if run.rewritten:
            return f"the verify commands rewrite files that a commit hook rewrote: {list_paths(tuple(run.rewritten))}"
        if run.verdict.green and not run.result.green >= work.run.result.green:  # the hook made a command red again
            return compare_gate(None, run.result).for_model
        return run.verdict.for_model or None

    files = GateFiles(head=candidate.attempt.base_head, tree=work.tree, paths=work.owned)
    with open_gate_hooks(ctx, files, may_make=may_make, recheck=recheck) as hooks:
        outcome = commit_paths(ctx.repo, request, hooks=hooks)
    ctx.memory.knows_hooks |= hooks is not None and outcome.commit is not None
    if outcome.hook:
        ctx.observe(render_hook_gate(candidate.phase.id, outcome))
    return outcome


def _explain(outcome: CommitOutcome) -> Refused:
    match outcome.end:
        case CommitEnd.HOOK_REFUSED:
            return explain_hook(outcome)
        case CommitEnd.RECHECK_REFUSED:
            words = "a commit hook rewrote files and the checks do not pass with them"
            first = (outcome.output.splitlines() or [""])[0]
            return Refused(for_user=f"{words}: {first}", for_model=f"{words}:\n{outcome.output}")
        case CommitEnd.NOT_STAGED:
            words = "git does not take the files into a commit"
            last = (outcome.output.strip().splitlines() or [""])[-1]
            return Refused(for_user=f"{words}: {last}", for_model=f"{words}:\n{outcome.output}")
        case _:
            return Refused(for_user=f"the branch moved while the session ran: {outcome.output}", again=True)


def _finish(ctx: RunContext, candidate: Candidate, outcome: CommitOutcome) -> None:
    # After the commit: if relay is killed before the attempt closes, the next run finds the commit and does the rest.
    lost = change_edited_plan(ctx.files, outcome.commit or "")
    close_attempt(ctx.repo, candidate.attempt)
    ctx.meter.record()
    ctx.observe(
        Committed(
            commit=outcome.commit or "",
            subject=outcome.subject,
            status=candidate.status,
            phase_id=candidate.phase.id,
            items=candidate.pending.claimed_ids,
            files=count_lines(ctx.repo, outcome.commit or ctx.repo.zero_id),
        )
    )
    for words in (
        *outcome.left,
        *lost,
        *describe_autoruns(ctx.repo, candidate.attempt.base_head, outcome.commit or ""),
    ):
        ctx.observe(Noticed(text=words, warning=True))
    if outcome.is_plain:
        ctx.observe(
            Noticed(text="a commit hook refused the session's evidence; the commit is without it", warning=True)
        )
    if outcome.not_taken:
        words = f"a commit hook rewrote files that are not the phase's; not committed: {list_paths(outcome.not_taken)}"
        ctx.observe(Noticed(text=words, warning=True))
    if outcome.rewritten:
        ctx.observe(
            Noticed(text=f"a commit hook rewrote {list_paths(outcome.rewritten)}; relay included and checked this")
        )


def make_commit_message(
    ctx: RunContext, candidate: Candidate, run: GateRun, doubts: tuple[tuple[str, str], ...]
) -> Message:
    """Return the message of a phase's commit: subject, ticked items with their evidence, handoff note, trailers.

    Args:
        doubts: Trailers with doubts about ticks.
    """
    pending, runner = candidate.pending, ctx.sessions.find_runner(candidate.phase.runner)
    merged = find_merged(ctx.repo, candidate.attempt)
    spent = ctx.meter.unrecorded
    return Message(
        subject=merged.message.subject if merged else choose_subject(ctx, candidate),
        body=merged.message.body if merged else _render_body(ctx, candidate),
        trailers=(
            (trailers.PLAN, render_path(ctx.plan_path)),
            (trailers.PHASE, candidate.phase.id),
            (trailers.STATUS, candidate.status),
            (trailers.ITEMS, " ".join(pending.claimed_ids)),
            *_render_amended(pending),
            (trailers.SESSION, candidate.attempt.session_id),
            (LEG, str(candidate.number)),
            (trailers.GATE, _render_gate(run)),
            *(render_merge(merged, run.result.digest) if merged else ()),
            *doubts,
            (trailers.REPAIRS, str(sum(candidate.attempt.carried.repairs.values()))),
            *((trailers.RUNG, change) for change in candidate.attempt.carried.rungs),
            (trailers.SANDBOX, ctx.workspace.sandbox.mechanism),
            *trailers.render_hooks(ctx.settings.hooks),
            *(trailers.render_said(candidate.attempt.carried.said) if candidate.status == "handoff" else ()),
            *trailers.render_agent(runner.agent, runner.metering),
            *trailers.render_models(ctx.meter.models),
            *trailers.render_spent(spent),
            *render_signoff(ctx.repo, wanted=ctx.settings.signoff),
        ),
    )


def _render_body(ctx: RunContext, candidate: Candidate, *, with_evidence: bool = True) -> str:
    """Return the body of a phase's commit: the ticked items, and the handoff note of a hand-off."""
    earlier = candidate.attempt.carried.evidence
    ticked = "\n".join(
        _render_tick(item, (candidate.evidence.get(item.id) or earlier.get(item.text, "")) if with_evidence else "")
        for item in candidate.pending.claims
    )
    # One paragraph: when the handoff note is read back, it ends at an empty line.
    noted = "\n".join(map(_wrap, candidate.handoff_note.split("\n")))
    handoff_note = f"{HANDOFF_NOTE_TITLE}\n{noted}" if candidate.handoff_note and candidate.status == "handoff" else ""
    return _make_harmless(candidate, "\n\n".join(part for part in (ticked, handoff_note) if part), ctx.secret_values)


def make_sample(files: PlanFiles, settings: Settings, phase: Phase, mechanism: str) -> CommitRequest:
    """Return a phase's commit for hooks to judge before its session: each line that relay will write, in its length."""
    words = f"phase {phase.id} — {phase.title}"
    usage = Usage(input_tokens=10**6, output_tokens=10**6, cache_read_tokens=10**7, cache_write_5m_tokens=10**6)
    message = Message(
        subject=render_subject(words, settings),
        body="\n".join(_render_tick(item, "") for item in phase.open_items),
        trailers=(
            (trailers.PLAN, render_path(files.plan_path)),
            (trailers.PHASE, phase.id),
            (trailers.STATUS, "done"),
            (trailers.ITEMS, " ".join(item.id for item in phase.open_items)),
            (trailers.SESSION, "0" * 8),
            (LEG, "1"),
            (trailers.GATE, f"pass {'0' * 64}"),
            (trailers.REPAIRS, "0"),
            (trailers.SANDBOX, mechanism),
            *trailers.render_hooks(settings.hooks),
            *trailers.render_models((settings.model,)),
            *trailers.render_spent(Spent(usage=usage, cost_usd=1.0)),
            *render_signoff(files.repo, wanted=settings.signoff),
        ),
    )
    others = list_other_subjects(words, settings)
    return CommitRequest(branch="", head=None, message=message, other_subjects=others)


def _render_amended(pending: PendingPlan) -> tuple[tuple[str, str], ...]:
    """Return the trailer with the phases that sessions changed beyond their boxes; empty without any."""
    done = pending.head.done_ids
    before, after = (plan.untick({item.id for item in plan.items} - done) for plan in (pending.head, pending.plan))
    texts = {phase.id: before.text[phase.start : phase.end].rstrip() for phase in before.phases}
    amended = [p.id for p in after.phases if texts.get(p.id) != after.text[p.start : p.end].rstrip()]
    return ((AMENDED, " ".join(amended)),) if amended else ()


def _render_tick(item: Item, evidence: str) -> str:
    words = " ".join(evidence.split())
    lines = [
        f"- [x] {name_item(item.id, item.text)}",
        *([f"  evidence: {words[: trailers.EVIDENCE_CHARS]}"] if words else []),
    ]
    return "\n".join(_wrap(line) for line in lines)


def _wrap(line: str) -> str:
    """Break a line that commit message hooks would refuse."""
    if len(line) <= LINE_CHARS:
        return line
    import textwrap

    return textwrap.fill(line, LINE_CHARS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _render_gate(run: GateRun) -> str:
    """Return ``pass <digest>``, or ``none`` if the gate proved nothing or saw too much, and the numbers that are not 0.

    ``red-before`` counts commands that were red before the phase and still are; ``seen`` counts paths that the gate
    could see and the commit lacks.
    """
    gate = run.result
    if not gate.commands:
        return "none"
    red = sum(check.status is not Outcome.PASSED for check in gate.commands)
    word = "none" if run.verdict.is_unproven or run.installed else "pass"
    return f"{word} {gate.digest}" + (f" red-before={red}" if red else "")


def choose_subject(ctx: RunContext, candidate: Candidate) -> str:
    """Return the session's subject if it is one short printable line, else relay's own; secrets are removed."""
    subject = candidate.subject.strip()
    if not subject or len(subject) > SUBJECT_CHARS or not subject.isprintable():
        subject = render_subject(_name(candidate), ctx.settings)
    return _make_harmless(candidate, subject, ctx.secret_values)


def list_subjects(ctx: RunContext, candidate: Candidate) -> tuple[str, ...]:
    """Return alternative subjects for a hook that refuses the first: the session's in another form, then relay's."""
    subject = candidate.subject.strip()
    words = [subject] if subject and len(subject) <= SUBJECT_CHARS and subject.isprintable() else []
    found = (other for text in (*words, _name(candidate)) for other in list_other_subjects(text, ctx.settings))
    return tuple(_make_harmless(candidate, other, ctx.secret_values) for other in found)


def _name(candidate: Candidate) -> str:
    return f"phase {candidate.phase.id} — {candidate.phase.title}"


def _make_harmless(candidate: Candidate, text: str, secret_values: tuple[str, ...]) -> str:
    """Remove secrets from a session's text, and commands to a forge that the plan does not have."""
    return disarm(redact(text, environ_values=secret_values), given=candidate.pending.plan.text)

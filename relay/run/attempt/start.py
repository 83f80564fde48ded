"""The start of a session: plan, pending plan, handoff note and baseline gate; nothing else of the session before.

A phase has at most one open attempt, from its first session (or its last commit) to its next commit. All sessions in
between share its base, so that the commit holds their work together, and nothing of the user's.
"""

from collections.abc import Mapping
from itertools import takewhile

from relay.base.errors import within
from relay.base.tree import FileState
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.config import Settings
from relay.config.model import OWN_LOOP
from relay.gate.model import GateResult, Outcome, parse_baseline, render_baseline
from relay.gate.places import describe_places, open_ground, settle_phase
from relay.git.names import render_path
from relay.git.repository import Repo
from relay.git.trees import find_tree
from relay.ledger.belief import DOUBTFUL, judge
from relay.ledger.snapshot import Topic, render_snapshot
from relay.plan.edit import list_notes
from relay.plan.excerpt import cut_excerpt
from relay.plan.model import Item, Phase, Plan
from relay.prompts.texts import PartLimit, PhaseBriefing, render_text
from relay.run.attempt.preload import Preload, read_preload, reads_first
from relay.run.commit.candidate import PendingPlan
from relay.run.commit.gates import GateTask, run_phase_gate
from relay.run.commit.hooks import require_hooks
from relay.run.commit.plan_commit import read_ledger
from relay.run.commit.readiness import (
    find_note,
    get_commands,
    is_untouched,
    list_commands,
    list_own,
    require_programs,
    require_room,
    settle_in,
)
from relay.run.commit.review import read_rounds
from relay.run.commit.step import make_sample
from relay.run.review import render_numbered
from relay.sandbox.run import Sandbox
from relay.session.events import Noticed, PlanShown, ShownItem, ShownPhase
from relay.session.layers import NOTE, describe_note
from relay.session.usage import Spent, estimate_size_tokens, estimate_tokens
from relay.setup.context import GateFiles, PlanFiles, RunContext
from relay.setup.rules import MAX_BYTES, load_folder_rules
from relay.setup.skills import render_skills
from relay.store.attempts import (
    AttemptStart,
    OpenAttempt,
    continue_attempt,
    is_refunded,
    open_attempt,
)
from relay.store.history import (
    add_spent,
    list_doubts,
    read_plan_commits,
    read_relay_commits,
    read_undone,
    was_made_here,
)
from relay.store.outdated import OUTDATED
from relay.store.plan_versions import find_phases, replay_attempt
from relay.store.ref_notes import Carried, Course
from relay.store.snapshot import TreeSnapshot
from relay.store.staleness import find_changed_sources, find_stale
from relay.store.steering_files import find_strange
from relay.store.trailers import (
    LEG,
    RUNG,
    SAID,
    parse_count,
    parse_said,
)
from relay.tools.workspace import cut_middle


def render_plan(files: PlanFiles, plan: Plan, *, committed: Plan) -> PlanShown:
    """Return the event that shows a plan; its paths count from the root.

    Args:
        plan: The draft, with a tick for each claim.
        committed: HEAD's plan; its ticks are done.
    """
    done = committed.done_ids
    plan = settle_in(files.repo, files.plan_path, plan, files.repo.head())
    phases = tuple(
        ShownPhase(id=phase.id, title=phase.title, items=[_render_item(item, done) for item in phase.items])
        for phase in plan.phases
    )
    return PlanShown(phases=phases)


def _render_item(item: Item, done: frozenset[str]) -> ShownItem:
    state = "claimed" if item.done and item.id not in done else item.state
    return ShownItem(id=item.id, text=item.text, state=state, paths=list(item.paths))


MAX_LEFTOVERS = 200
LEDGER_TOKENS = 1_500
"""Of the ledger in a session's first message, by estimate; each request pays for them."""
WHOLE_LEDGER_TOKENS = 10**9
"""A budget that no ledger reaches."""
MAX_AMENDED_SHOWN = 20
"""Most items and notes shown that earlier sessions of the phase added to other phases."""
MAX_STALE_SHOWN = 20
"""Most files shown that changed since planning; more mean that the plan needs a revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The start of one session."""

    attempt: OpenAttempt
    phase_id: str
    number: int
    """1 for the first session of the phase; a session that was cut off does not count."""
    tries: int
    """The same, with every session counted."""
    no_progress: int
    """Consecutive sessions of this phase, before this one, that passed the reset line without a tick."""
    reason: str
    """Why this session starts, for the user."""
    pending: PendingPlan
    """Plan and ledger with the changes of the phase's earlier sessions."""
    commands: tuple[str, ...]
    """The gate's commands."""
    baseline: GateResult | None
    """The gate before the phase; None if unknown."""
    briefing: PhaseBriefing
    seen: Mapping[str, FileState]
    """State of the files in the first message, by path."""


def begin_phase(ctx: RunContext, plan: Plan, phase: Phase, found: TreeSnapshot, *, reason: str) -> Handover | None:
    """Open an attempt on a phase that has none; None if a stop was requested during the baseline gate.

    Args:
        found: The work tree as it is.

    Raises:
        PlanError: The gate can never be green, or no commit could hold the files of the phase.
    """
    head = ctx.repo.head()
    number, handoff_note, earlier = read_earlier_sessions(ctx.files, plan, phase.id)
    settled = settle_in(ctx.repo, ctx.plan_path, plan, head)
    phase = settled.find_phase(phase.id) or phase
    commands = get_commands(ctx.settings, phase)
    require_room(ctx, settled, phase, found)
    gate = run_phase_gate(ctx, _make_baseline_task(ctx.repo, phase, commands, head))
    if ctx.interrupts.stop_now or any(check.status is Outcome.INTERRUPTED for check in gate.result.commands):
        return None
    require_programs(ctx, settled, phase, gate)
    sample = make_sample(ctx.files, ctx.settings, phase, ctx.workspace.sandbox.mechanism)
    require_hooks(ctx, phase.id, sample)
    if ctx.workspace.should_stop():
        return None
    pending = PendingPlan(
        head=plan, plan=plan, ledger=read_ledger(ctx.files, head)
    )  # may raise: before an attempt is open
    start = AttemptStart(
        session_id=ctx.new_id(),
        phase_id=phase.id,
        plan_path=ctx.plan_path,
        course=Course(number=number, tries=number, baseline=render_baseline(gate.result)),
        carried=read_carried(earlier),
    )
    attempt = open_attempt(ctx.repo, start, base=found)  # nobody wrote since: gate and hooks have a tree of their own
    return _make_handover(ctx, attempt, pending, reason=reason, handoff_note=handoff_note, baseline=gate.result)


def _make_baseline_task(repo: Repo, phase: Phase, commands: tuple[str, ...], head: str | None) -> GateTask:
    """Return the gate on a commit's files."""
    tree = find_tree(repo, head) if head else repo.empty_tree
    files = GateFiles(head=head, tree=tree, is_baseline=True)
    return GateTask(phase_id=phase.id, commands=commands, files=files, own=list_own(phase, commands))


def ensure_baseline(ctx: RunContext, plan: Plan, attempt: OpenAttempt) -> OpenAttempt:
    """Return a landing attempt with the baseline gate on the landed phases; run it if nobody has run it here.

    Args:
        plan: HEAD's plan.
    """
    phase = settle_in(ctx.repo, ctx.plan_path, plan, attempt.base_head).find_phase(attempt.phase_id)
    if phase is None or not is_untouched(attempt) or attempt.course.baseline:
        return attempt
    commands = list_commands(ctx.repo, ctx.settings, attempt, plan, phase)
    gate = run_phase_gate(ctx, _make_baseline_task(ctx.repo, phase, commands, attempt.base_head))
    if any(check.status is Outcome.INTERRUPTED for check in gate.result.commands):
        return attempt
    start = AttemptStart(
        session_id=attempt.session_id,
        phase_id=attempt.phase_id,
        plan_path=attempt.plan_path,
        course=Course(baseline=render_baseline(gate.result)),
    )
    return continue_attempt(ctx.repo, attempt, start)


def continue_phase(ctx: RunContext, plan: Plan, attempt: OpenAttempt, *, reason: str) -> Handover:
    """Put a fresh session on an open attempt, with the state of its newest checkpoint."""
    course = attempt.course
    # A session that was cut off says nothing about the size of the phase: it does not count.
    counts = not is_refunded(attempt)
    number = course.number + counts
    ticked = len(attempt.items) > course.claimed
    baseline, former = read_baseline(attempt), attempt.session_id
    left = list_some(attempt.ending.left, MAX_LEFTOVERS, joint="; ")
    edited = f"Since then a person worked on the branch. {left}." if left else ""
    note = find_note(ctx.repo, attempt)
    noted = f"{note}\n\n{attempt.handoff_note}".strip() if note not in attempt.handoff_note else attempt.handoff_note
    handoff_note = f"{noted}\n\n{edited}".strip() if attempt.handoff_note else note
    course = Course(
        number=number,
        tries=max(number, max(course.tries, 1) + 1),
        no_progress=0 if ticked else course.no_progress + counts,
        claimed=len(attempt.items),
        baseline=course.baseline,
    )
    start = AttemptStart(session_id=ctx.new_id(), phase_id=attempt.phase_id, plan_path=ctx.plan_path, course=course)
    attempt = continue_attempt(ctx.repo, attempt, start)
    pending = read_pending(ctx.files, plan, attempt)
    interrupted = _describe_interruption(former, pending.claimed_ids) + (f" {edited}" if edited else "")
    interruption = "" if attempt.handoff_note else interrupted
    return _make_handover(
        ctx, attempt, pending, reason=reason, handoff_note=handoff_note, baseline=baseline, interruption=interruption
    )


def read_pending(files: PlanFiles, plan: Plan, attempt: OpenAttempt) -> PendingPlan:
    """Return plan and ledger with the changes of an open attempt's sessions; `plan` is HEAD's."""
    tip = attempt.last_wip.commit if attempt.last_wip else files.repo.head()
    replayed = replay_attempt(files.repo, attempt, files.plan_path, plan)
    return PendingPlan(head=plan, plan=replayed.plan, ledger=read_ledger(files, tip))


def get_attempt_phase(files: PlanFiles, pending: PendingPlan, attempt: OpenAttempt) -> Phase:
    """Return the phase of an attempt, with the directories of its commands and paths.

    Raises:
        LookupError: The plan has no such phase; the resume point excludes that.
        PlanError: A directory that the plan names is out of the repository.
    """
    phase = pending.plan.find_phase(attempt.phase_id) or pending.head.find_phase(attempt.phase_id)
    if phase is None:
        raise LookupError(attempt.phase_id)
    with within(files.plan_path):
        return settle_phase(open_ground(files.repo.root, files.repo, files.plan_path, attempt.base_head), phase)


def read_baseline(attempt: OpenAttempt) -> GateResult | None:
    """Return the gate before the phase; None if unknown."""
    return parse_baseline(attempt.course.baseline)


def _find_left_wrong(files: PlanFiles, phase: Phase) -> tuple[str, ...]:
    """Return the doubts of earlier phases' commits about names in this phase's open items that still stand there."""
    commits = read_plan_commits(files.repo, files.plan_path)
    doubts = list_doubts(commits, read_undone(files.repo, commits))
    texts = {item.id: " ".join((item.text, *item.paths)) for item in phase.open_items}
    found = [(words, match) for words in doubts if (match := OUTDATED.match(words))]
    return tuple(words for words, match in found if match["name"] in texts.get(match["item"], ""))


def _make_handover(  # noqa: PLR0913  # two private callers
    ctx: RunContext,
    attempt: OpenAttempt,
    pending: PendingPlan,
    *,
    reason: str,
    handoff_note: str,
    baseline: GateResult | None,
    interruption: str = "",
) -> Handover:
    phase = get_attempt_phase(ctx.files, pending, attempt)
    stale = (*_find_left_wrong(ctx.files, phase), *find_stale(ctx.repo, ctx.plan_path, phase))
    if stale:
        words = "; ".join(stale[:MAX_STALE_SHOWN])
        ctx.observe(Noticed(text=f"changed since phase {phase.id} was planned: {words}", warning=True))
    preload = _read_files(ctx, phase)
    handoff_note, cut_note = _fit_note(ctx, attempt, phase, handoff_note)
    ledger, cut_ledger = _render_ledger(ctx, pending, phase)
    return Handover(
        attempt=attempt,
        seen=preload.seen,
        phase_id=attempt.phase_id,
        number=attempt.course.number,
        tries=max(attempt.course.tries, 1),
        no_progress=attempt.course.no_progress,
        reason=reason,
        pending=pending,
        commands=list_commands(ctx.repo, ctx.settings, attempt, pending.head, phase),
        baseline=baseline,
        briefing=PhaseBriefing(
            plan=pending.plan,
            phase=phase,
            plan_path=ctx.plan_path,
            environment=(
                *_describe_environment(ctx.workspace.sandbox, ctx.settings),
                *describe_places(phase),
            ),
            claimed=tuple(item.id for item in pending.claims if item in phase.items),
            files=preload.files,
            handoff_note=handoff_note,
            interruption=interruption,
            amended=_list_amended(pending, phase),
            baseline=_describe_red(baseline, phase),
            ledger=ledger,
            rules=_read_folder_rules(ctx, phase),
            skills=render_skills(ctx.rules.skills) if ctx.settings.runner_for(phase.runner) == OWN_LOOP else "",
            stale=tuple(f"- {words}" for words in stale[:MAX_STALE_SHOWN]),
            said=attempt.carried.said,
            review=_render_review(attempt),
            limits=_list_limits(ctx, pending, phase, cut_note, cut_ledger),
        ),
    )


def _list_limits(
    ctx: RunContext, pending: PendingPlan, phase: Phase, cut_note: int, cut_ledger: int
) -> tuple[PartLimit, ...]:
    cut_plan = estimate_size_tokens(cut_excerpt(pending.plan, phase, ()).left_chars)
    return (
        ("rules", estimate_size_tokens(ctx.rules.cut_bytes), 0),
        ("plan", cut_plan, 0),
        ("handoff_note", cut_note, 0),
        ("ledger", cut_ledger, LEDGER_TOKENS),
    )


def _fit_note(ctx: RunContext, attempt: OpenAttempt, phase: Phase, handoff_note: str) -> tuple[str, int]:
    """Cut the middle of a handoff note that is too large for its layer; return the note, and the tokens left out."""
    line_tokens = ctx.sessions.soft_tokens
    words = describe_note(phase.id, handoff_note, line_tokens)
    if not words:
        return handoff_note, 0
    where = (
        f"`git log -1 --format=%B {attempt.last_wip.commit if attempt.last_wip else attempt.base_head}` shows all of it"
    )
    ctx.observe(Noticed(text=f"{words}; {where}", warning=True))
    cut = cut_middle(handoff_note, where, cap_tokens=NOTE.find_most(line_tokens))
    return cut, max(0, estimate_tokens(handoff_note) - estimate_tokens(cut))


def _render_review(attempt: OpenAttempt) -> str:
    rounds = read_rounds(attempt)
    confirmed = rounds[-1].confirmed if rounds else ()
    return render_text("review_report", findings=render_numbered(confirmed)) if confirmed else ""


def _render_ledger(ctx: RunContext, pending: PendingPlan, phase: Phase) -> tuple[str, int]:
    """Return the ledger for a session, its phase's topic first, and the tokens left out; warn of stale claims."""
    ledger = pending.ledger
    if "ledger" in ctx.settings.ablate or not ledger.entries:
        return "", 0
    changed = find_changed_sources(ctx.repo, ledger.sources)
    judgement = judge(ledger, changed)
    doubtful = [name for name, belief in judgement.beliefs.items() if belief.status in DOUBTFUL]
    if doubtful or judgement.contradictions:
        words = [f"{name} {judgement[name].status} ({judgement[name].because})" for name in doubtful]
        words += [f"{nogood.id} contradiction of {', '.join(nogood.claims)}" for nogood in judgement.contradictions]
        hint = "`relay ledger list` shows all"
        ctx.observe(Noticed(text=f"claims to look at again: {list_some(words, 5, joint='; ')}; {hint}", warning=True))
    topic = Topic(paths=frozenset(path.rstrip("/") for path in phase.open_paths), phase=phase.id)
    shown = render_snapshot(ledger, judgement, LEDGER_TOKENS, topic=topic)
    whole = render_snapshot(ledger, judgement, WHOLE_LEDGER_TOKENS, topic=topic)
    return shown, max(0, estimate_tokens(whole) - estimate_tokens(shown))


def _read_files(ctx: RunContext, phase: Phase) -> Preload:
    """Return the small files that a phase names, for a runner that can use them."""
    if "preload" in ctx.settings.ablate or reads_first(ctx.settings.runner_for(phase.runner)):
        return Preload()
    return read_preload(ctx.workspace, ctx.repo, phase.open_paths, (*ctx.secret_values, *ctx.sessions.handed))


def _read_folder_rules(ctx: RunContext, phase: Phase) -> str:
    """Return the rules of the folders that a phase names; show their warnings."""
    settings = ctx.settings
    if "rules" in settings.ablate:
        return ""
    rules = load_folder_rules(
        ctx.repo.root,
        (path for item in phase.items for path in item.paths),
        max_bytes=max(0, MAX_BYTES - ctx.rules.project_bytes),
        fallback_names=settings.rules_fallback_names,
        hidden=ctx.repo.hidden,
        find_strange=lambda paths: find_strange(ctx.repo, paths),
    )
    for words in rules.warnings:
        ctx.observe(Noticed(text=words, warning=True))
    return rules.text


def read_earlier_sessions(files: PlanFiles, plan: Plan, phase_id: str) -> tuple[int, str, tuple[tuple[str, str], ...]]:
    """Return the number of the next session of a phase, and handoff note and trailers of its last handoff commit."""
    commits = read_plan_commits(files.repo, files.plan_path)
    last = next((commit for commit in commits if commit.status != "amended"), None)
    if last is None or last.status != "handoff":
        return 1, "", ()
    if find_phases(files.repo, files.plan_path, plan, commits).get(last.commit) != phase_id:
        return 1, "", ()
    number = parse_count(dict(last.found).get(LEG, ""), 1)
    handoff_note, said = last.handoff_note, parse_said(last.found)
    if not said or was_made_here(files.repo, last):
        return number + 1, handoff_note, last.found
    # The author of a commit from elsewhere may not be this user: quote the words, since they are no order.
    quoted = "\n".join(f"- {' '.join(text.split())}" for text in said)
    told = f"{handoff_note}\n\nIts commit came from elsewhere, and says that somebody told it:\n{quoted}"
    return number + 1, told, tuple(pair for pair in last.found if pair[0] != SAID)


def read_carried(earlier: tuple[tuple[str, str], ...]) -> Carried:
    """Return what a phase's next attempt keeps of the trailers of its last handoff commit."""
    rungs = tuple(value for key, value in earlier if key == RUNG)
    return Carried(said=parse_said(earlier), rungs=rungs)


def read_phase_spent(files: PlanFiles, plan: Plan, attempt: OpenAttempt) -> Spent:
    """Return the spend that the handoff commits of an attempt's unfinished phase record."""
    repo, joins, phase_id = files.repo, attempt.carried.joins, attempt.phase_id
    commits = read_plan_commits(repo, files.plan_path)
    unfinished = tuple(takewhile(lambda commit: commit.status != "done", commits))
    phases = find_phases(repo, files.plan_path, plan, unfinished)
    own = [commit for commit in unfinished if phases.get(commit.commit) == phase_id]
    joined = read_relay_commits(repo, files.plan_path, rev=joins, newer_than=repo.head() or "") if joins else ()
    return add_spent((*own, *(commit for commit in joined if commit.phase == phase_id)))


def _describe_red(baseline: GateResult | None, phase: Phase) -> str:
    """Return the red commands; that the phase's own fail before its work is no news."""
    checks = baseline.commands if baseline else ()
    usual = {(command, Outcome.FAILED) for command in phase.own_verify}
    red = [
        check for check in checks if check.status is not Outcome.PASSED and (check.command, check.status) not in usual
    ]
    return "\n".join(f"- `{check.command}` ({check.status})" for check in red)


def _list_amended(pending: PendingPlan, own: Phase) -> tuple[str, ...]:
    """Return what earlier sessions of the phase added to other phases; its own phase is shown as it is now."""
    before = {text for texts in _list_texts(pending.head).values() for text in texts}
    added = [(name, text) for name, texts in _list_texts(pending.plan).items() for text in texts if text not in before]
    return tuple(f"- phase {name}: {text}" for name, text in added if name != own.id)[:MAX_AMENDED_SHOWN]


def _list_texts(plan: Plan) -> Mapping[str, tuple[str, ...]]:
    """Return the texts of items and notes, by phase id."""
    notes = list_notes(plan)
    return {phase.id: (*(item.text for item in phase.items), *notes[phase.id]) for phase in plan.phases}


def _describe_environment(sandbox: Sandbox, settings: Settings) -> tuple[str, ...]:
    hosts = ", ".join(settings.network.names)
    shared = [render_path(str(place.relative_to(sandbox.policy.shown_root))) for place in sandbox.policy.lent]
    network = "with network" if settings.network.whole else f"with HTTPS to {hosts}" if hosts else "without network"
    confined = f"in a sandbox {network}; they write only here and in $TMPDIR, home is empty"
    return (
        f"Commands run {confined if sandbox.mechanism.confines else 'without a sandbox'}.",
        *([f"What they write in {list_some(shared)} is gone when they end."] if shared else []),
    )


def _describe_interruption(session_id: str, claimed: tuple[str, ...]) -> str:
    ticked = f" It had ticked: {', '.join(claimed)}." if claimed else ""
    return (
        f"The session before you ({session_id}) was interrupted at an unknown point; its files are in the work "
        f"tree as it left them.{ticked} Look at what is there before you go on."
    )

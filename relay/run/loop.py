"""The loop: ask git for the state and settle it, run a session, decide. Each outcome of a session is a value.

The loop remembers nothing between rounds: each begins by asking git for the state. So a run that was killed and one
that goes on take the same path.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from relay.base.errors import ExitCode, PlanError, within
from relay.base.hints import DOCTOR, REVISE, RUN, TELL, Command, Hint
from relay.base.words import count, list_some, name_item, render_moment, render_span
from relay.config import Settings
from relay.git.lock_journal import clear_stale_locks
from relay.git.notes import lock_worktree
from relay.git.repository import BranchError, Repo
from relay.git.status import check_state
from relay.ledger.model import Claim, Record
from relay.plan.check import list_conditions
from relay.plan.model import Phase, Plan
from relay.prompts.texts import render_system
from relay.run.attempt.keeper import Keeper
from relay.run.attempt.session import Attempt, AttemptKind, AttemptParts, AttemptResult
from relay.run.attempt.start import Handover, begin_phase, continue_phase, ensure_baseline, read_phase_spent
from relay.run.commit.candidate import Candidate, PhaseCommit, Proposal, Refused
from relay.run.commit.plan_commit import make_source, take_edit
from relay.run.commit.readiness import require_gates
from relay.run.commit.step import commit_attempt
from relay.run.explore import find_explorer
from relay.run.resume import clear_tree, commit_proposed, settle
from relay.run.rungs import choose_model, climb
from relay.run.selection import Selection, choose_phase
from relay.session.events import Noticed, RetryScheduled
from relay.session.usage import Spent
from relay.session.values import SessionEnd
from relay.setup.context import PlanFiles, RunContext, RunEnd, RunRequest
from relay.setup.workspace import ensure_set_up
from relay.store.attempts import OpenAttempt, find_repeated_error, read_attempt
from relay.store.completion import finish_pending
from relay.store.history import list_doubts, read_plan_commits, read_undone
from relay.store.loose import is_behind
from relay.store.plan_state import PlanState, find_done, read_plan_cost
from relay.store.plan_versions import EditKind
from relay.store.refs import list_beside
from relay.store.resume import ResumeCase
from relay.store.staleness import drop_settled
from relay.tools.claims import AttemptNotes
from relay.tools.toolbox import build_runner_tools, refuse_secrets

_SHOWN_DOUBTS = 3


def needs_session(plan_state: PlanState, selection: Selection, plan_path: str) -> bool:
    """Return whether a run needs a session, or has something to settle first.

    Args:
        plan_path: The plan's path in error messages.

    Raises:
        PlanError: The requested phase cannot be run, or no phase can begin.
    """
    if plan_state.point is None:
        return True
    if selection.phase_id:
        selection.get_named(plan_state.plan)
    if plan_state.point.case is not ResumeCase.NOTHING_OPEN:
        return True
    return choose_phase(plan_state, selection, plan_path) is not None or plan_state.edit.kind is not EditKind.NONE


def end_without_session(request: RunRequest, plan_state: PlanState, selection: Selection) -> RunEnd | None:
    """Return the end of a run that needs no session; None if it needs one, or has something to settle first.

    This needs no key and no sandbox. It removes what a killed relay left.

    Raises:
        PlanError: The requested phase cannot be run, or no phase can begin.
    """
    if needs_session(plan_state, selection, request.plan_path) or is_behind(request.repo, request.plan_path):
        return None
    with lock_worktree(request.repo):
        if clear_stale_locks(request.repo) or finish_pending(request.repo):
            return None
    spent = read_plan_cost(request.repo, request.plan_path).spent
    return finish_run(request.files, plan_state, spent, selection)


def find_done_plan(files: PlanFiles) -> Plan | None:
    """Return the plan if a further run would find nothing to do; else None."""
    try:
        return find_done(make_source(files), files.repo)
    except PlanError:
        return None  # somebody is editing the plan; the next command reports the error


def finish_run(files: PlanFiles, plan_state: PlanState, spent: Spent, selection: Selection) -> RunEnd:
    """Return the end of a run in which nothing requested is left."""
    if plan_state.plan.done:
        return end_done(files, plan_state.plan, spent)
    words = f"phases {selection.text} are done" if selection.last_id else "the phase was done already"
    return RunEnd(exit_code=ExitCode.DONE, reason=words, next_command=RUN, spent=spent)


def end_done(files: PlanFiles, plan: Plan, spent: Spent) -> RunEnd:
    """Return the end of a run whose plan is done, with doubts about its boxes and conditions for the user to check."""
    phases = len(plan.phases)
    words = add_doubts(files, f"{phases} of {count(phases, 'phase')}")
    if items := plan.left_to_person:
        named = list_some([name_item(item.id, item.text) for item in items], _SHOWN_DOUBTS, joint="; ")
        words += f", {count(len(items), 'item')} for you: {named}"
    if left := list_conditions(plan.outline):
        words += f", for you to check: {list_some([section.title for section in left], _SHOWN_DOUBTS)}"
    return RunEnd(exit_code=ExitCode.DONE, reason=words, next_command=None, spent=spent)


def add_doubts(files: PlanFiles, words: str) -> str:
    """Return `words` with the doubts that the plan's commits record about its boxes."""
    commits = read_plan_commits(files.repo, files.plan_path)
    doubts = drop_settled(files.repo, files.plan_path, list_doubts(commits, read_undone(files.repo, commits)))
    return f"{words}, doubtful: {list_some(doubts, _SHOWN_DOUBTS, joint='; ')}" if doubts else words


MAX_SESSIONS_WITHOUT_PROGRESS = 3
"""Consecutive sessions over the reset line without a new tick before the phase counts as too big.

Three, as in Claude Code's breaker for a context that is full again right after it was compacted.
"""
MAX_SAME_ERRORS = 3
"""Consecutive sessions that end at the same item with the same error before the phase counts as stuck."""


def run(ctx: RunContext, selection: Selection) -> RunEnd:
    """Run phases until the request is done or something stops it; the caller holds the lock.

    Raises:
        RelayError: The user has to change something first.
    """
    ctx = replace(ctx, unchecked=selection.unchecked)
    branch = ctx.repo.branch
    while True:
        if ctx.interrupts.finish_turn:
            return _end_interrupted(ctx)
        require_branch(ctx.repo, branch)
        plan_state = settle(ctx)
        phase = choose_phase(plan_state, selection, ctx.plan_path)
        if phase is None:
            return finish_run(ctx.files, plan_state, ctx.meter.total, selection)
        own = choose_model(ctx, phase, plan_state.kept.attempt)
        if end := _wait_for_reset(own, plan_state.kept.attempt) or _work_on(own, selection, phase, plan_state):
            return end


def require_branch(repo: Repo, branch: str | None) -> None:
    """Stop if the user has checked out another branch: there the session's files would look like the user's.

    Raises:
        BranchError: HEAD names another branch than at the start of the run, or none.
    """
    now = repo.branch
    if branch is not None and now != branch and not check_state(repo):  # another check reports a rebase
        raise BranchError(now or "", branch)


def _work_on(ctx: RunContext, selection: Selection, phase: Phase, plan_state: PlanState) -> RunEnd | None:
    """Commit finished work, or run a session; return the end of the run, None to go on."""
    # Somebody may have made a file since that no session may read or write.
    workspace = replace(ctx.workspace, sandbox=ctx.workspace.sandbox.look_again())
    ctx = replace(ctx, get_workspace=lambda: workspace)
    plan_state = _prepare_landing(ctx, plan_state)
    plan, attempt = plan_state.plan, plan_state.kept.attempt
    made = commit_proposed(ctx, plan, attempt) if attempt else None
    if isinstance(made, PhaseCommit):
        return _end_phase(ctx, selection, f"phase {phase.id} is done")
    if selection.lands_only:
        return ctx.end(ExitCode.STOPPED, f"phase {phase.id}: {made.for_user if made else 'it needs a session'}", RUN)
    if made is not None and ctx.interrupts.finish_turn:
        return _end_interrupted(ctx)
    if made is not None and made.for_review:
        return None  # the attempt has moved on; its next session gets the findings
    if made is not None and not made.for_model:  # no session could repair this
        words = _add_ways(f"phase {phase.id}: {made.for_user}", made.ways)
        return ctx.end(ExitCode.STOPPED, words, made.choose_next(RUN))
    with within(ctx.plan_path):
        require_gates(plan, ctx.settings, (phase,), unchecked=selection.unchecked)
        ctx.sessions.find_runner(phase.runner)  # an edit of the plan may have named a new runner
    served = ask_for_tools(ctx, phase)
    handover = _begin(ctx, phase, plan_state)
    if handover is None:
        return None
    ctx = choose_model(ctx, phase, handover.attempt)
    ctx.meter.open_phase(read_phase_spent(ctx.files, plan, handover.attempt))
    result = Attempt(handover, make_parts(ctx, handover, served), ctx.sessions, ctx.interrupts).run()
    take_edit(ctx, handover.attempt.base_head)
    return _decide(ctx, selection, result, handover)


def _prepare_landing(ctx: RunContext, plan_state: PlanState) -> PlanState:
    """Prepare a landing for its gate: install packages in a new work tree, and run the gate on landed phases."""
    attempt = plan_state.kept.attempt
    if attempt is None or not attempt.merges:
        return plan_state
    ensure_set_up(ctx.repo, ctx.settings, ctx.workspace, ctx.observe)
    attempt = ensure_baseline(ctx, plan_state.plan, attempt)
    return replace(plan_state, kept=replace(plan_state.kept, attempt=attempt))


def _wait_for_reset(ctx: RunContext, attempt: OpenAttempt | None) -> RunEnd | None:
    """Wait for the usage limit of an earlier run; return the end of the run if the wait is too long or interrupted."""
    now, most_s = time.time(), ctx.settings.max_wait_s
    until = attempt.ending.wait_until if attempt and attempt.ending.limited == ctx.settings.model else 0
    if until <= now or not most_s:
        return None  # with max_wait_s = 0 relay never waits but sends the request
    words = f"the usage limit of the last session resets at {render_moment(until, now=now)}"
    if until - now > most_s:
        words = f"{words}, in {render_span(until - now)}; relay waits {render_span(most_s)} at most (max_wait_s)"
        later = time.strftime("%Y-%m-%dT%H:%M", time.localtime(until + 60))
        then = Command(words=("run", "--not-before", later))
        return ctx.end(ExitCode.STOPPED, f"{words}. RELAY_MAX_WAIT_S=0 tries at once", then)
    ctx.observe(RetryScheduled(attempt=0, wait_s=until - now, reason=words))
    if ctx.interrupts.wait(until - now):
        return ctx.end(ExitCode.INTERRUPTED, "interrupted while waiting; everything is kept", RUN)
    return None


def _begin(ctx: RunContext, phase: Phase, plan_state: PlanState) -> Handover | None:
    """Return the start of the next session; None if a stop was requested."""
    plan, attempt, point = plan_state.plan, plan_state.kept.attempt, plan_state.get_point()
    if attempt is None:
        found = clear_tree(ctx.repo, ctx.observe)  # setup leaves it so, or is refused
        reason = point.why if point.phase_id == phase.id else f"Phase {phase.id} was asked for."
        return begin_phase(ctx, plan, phase, found, reason=reason) if _set_up(ctx) else None
    if not _set_up(ctx):
        return None
    if not attempt.handoff_note and point.case is ResumeCase.MID_ATTEMPT and not attempt.ending.end:
        ctx.observe(Noticed(text="a request was cut off; it counts with its highest possible cost"))
    return continue_phase(ctx, plan, attempt, reason=point.why)


def _set_up(ctx: RunContext) -> bool:
    """Run the setup commands; return False if a stop was requested."""
    ensure_set_up(ctx.repo, ctx.settings, ctx.workspace, ctx.observe)
    return not ctx.workspace.should_stop()


def _end_phase(ctx: RunContext, selection: Selection, words: str) -> RunEnd | None:
    ctx.after_phase()
    if selection.last_id or (selection.all and not selection.phase_id):
        return None
    if plan := find_done_plan(ctx.files):
        return end_done(ctx.files, plan, ctx.meter.total)
    return ctx.end(ExitCode.DONE, add_doubts(ctx.files, words), RUN)


def _decide(ctx: RunContext, selection: Selection, result: AttemptResult, handover: Handover) -> RunEnd | None:
    """Return the end of the run; None to go on, where it would stop with another model or effort if there is one."""
    end = _find_end(ctx, selection, result, handover)
    is_stop = end is not None and end.exit_code is ExitCode.STOPPED and handover.number < ctx.settings.max_sessions
    phase, head = handover.briefing.phase, handover.pending.head
    return None if end and is_stop and climb(ctx, phase, head, result, end) else end


def _find_end(ctx: RunContext, selection: Selection, result: AttemptResult, handover: Handover) -> RunEnd | None:
    """Return the end of the run; None to go on."""
    named = selection.phase_id or not selection.all
    again = Command(words=("run", "--phase", selection.text or handover.phase_id)) if named else RUN
    match result.kind:
        case AttemptKind.DONE:
            return _end_phase(ctx, selection, result.detail)
        case AttemptKind.REVIEW:
            return None
        case AttemptKind.INTERRUPTED:
            return ctx.end(ExitCode.INTERRUPTED, f"{result.detail}; everything is kept", again)
        case AttemptKind.HANDOFF | AttemptKind.FAILED if stuck := _check_stuck(ctx.repo):
            return ctx.end(ExitCode.STOPPED, f"phase {handover.phase_id} is stuck: {stuck}", REVISE)
        case AttemptKind.HANDOFF | AttemptKind.FAILED if result.kind is AttemptKind.HANDOFF or result.can_go_on:
            if not (words := _check_size(ctx.settings.max_sessions, result, handover)):
                return None
            split = Command(words=("plan", "--split", handover.phase_id))
            return ctx.end(ExitCode.STOPPED, f"phase {handover.phase_id} is too big: {words}", split)
        case _:
            code = ExitCode.USER if result.end is SessionEnd.DENIED else ExitCode.STOPPED
            why = _add_ways(f"phase {handover.phase_id}: {result.detail}", result.ways)
            if result.end is not SessionEnd.BUDGET:
                return ctx.end(code, why, _choose_next(result, again))
            unsent = ctx.meter.unsent
            then = raise_cap(again, ctx.settings, ctx.meter.cap_usd, ctx.meter.total, unsent)
            return replace(ctx.end(code, why, then), unsent=unsent)


def _choose_next(result: AttemptResult, again: Command) -> Command:
    """Return the next command for the user; not one that would end in the same way."""
    if result.refused:
        return result.refused.choose_next(again)
    if result.kind is AttemptKind.BLOCKED:
        return TELL
    return {SessionEnd.DENIED: DOCTOR, SessionEnd.REFUSED: REVISE}.get(result.end, again)


def raise_cap(
    again: Command, settings: Settings, cap: float | None, spent: Spent, unsent: Spent | None
) -> Command | None:
    """Return the command with at least twice the cap; None if more money would not let the request through.

    Args:
        cap: That of the plan, in USD.
        unsent: The request that was held back, as in `RunEnd`.
    """
    tokens = settings.max_tokens_total
    needed = (spent + unsent) if unsent else Spent(cost_usd=None)
    if cap is None or needed.cost_usd is None or (tokens is not None and needed.tokens > tokens):
        return None
    return Command(words=(*again.words, "--max-cost", f"{max(2 * cap, math.ceil(100 * needed.cost_usd) / 100):g}"))


def _check_stuck(repo: Repo) -> str:
    """Return a message if consecutive sessions fail at the same place, even with ticks elsewhere; else empty."""
    attempt = read_attempt(repo)
    times, error = find_repeated_error(repo, attempt) if attempt else (0, "")
    return f"{times} sessions in a row ended with the same error at {error}" if times >= MAX_SAME_ERRORS else ""


def _check_size(max_sessions: int, result: AttemptResult, handover: Handover) -> str:
    """Return a message if a phase had too many sessions, or several over the line without a tick; else empty."""
    no_progress = 0 if result.new_claims else handover.no_progress + 1
    if no_progress >= MAX_SESSIONS_WITHOUT_PROGRESS:
        return f"{no_progress} sessions in a row handed over without ticking anything"
    return (
        f"{count(handover.number, 'session')} and still not done (max_sessions)"
        if handover.number >= max_sessions
        else ""
    )


def _end_interrupted(ctx: RunContext) -> RunEnd:
    """End the run between two sessions; the last one may have finished the plan."""
    if not ctx.interrupts.stop_now and (plan := find_done_plan(ctx.files)):
        return end_done(ctx.files, plan, ctx.meter.total)
    return ctx.end(ExitCode.INTERRUPTED, "interrupted; everything is kept", RUN)


def _add_ways(words: str, ways: Hint) -> Hint:
    return (words.removesuffix("."), "; ", ways) if ways else words


if TYPE_CHECKING:
    from relay.tools.servers import Served


def make_parts(ctx: RunContext, handover: Handover, served: "Served | None") -> AttemptParts:
    """Return the parts of a session: tools, keeper and commit step; `served` has the tools of servers."""
    notes = AttemptNotes(
        plan=handover.briefing.plan,
        phase=handover.briefing.phase,
        ledger=handover.pending.ledger,
        find_beside=partial(list_beside, ctx.repo),
        seen=dict(handover.seen),
    )

    def keep_findings(records: Sequence[Record]) -> Sequence[Claim]:
        return keeper.keep_findings(records)  # made below, since it needs the tools

    plan, phase = handover.briefing.plan, handover.briefing.phase
    explorer = find_explorer(ctx, keep_findings, phase=phase, task=plan.text[phase.start : phase.end].strip())
    own = build_runner_tools(ctx.workspace, notes, *([explorer.tool] if explorer else []))
    toolbox = served.add_to(own, ctx.workspace) if served else own
    keeper = Keeper(ctx, handover, notes, is_busy=toolbox.is_busy)
    return AttemptParts(
        system=render_system("runner", ctx.rules.text),
        notes=notes,
        toolbox=replace(toolbox, run=refuse_secrets(toolbox.run, ctx.secret_values)),
        keeper=keeper,
        commit=_make_commit(ctx, handover, notes, keeper),
    )


def ask_for_tools(ctx: RunContext, phase: Phase) -> "Served | None":
    """Return the tools of the servers that a phase names; None if it names none.

    Raises:
        PlanError: A server is missing, and the user has not typed --unchecked.
    """
    if not phase.tools:
        return None
    from relay.tools.servers import ask_servers

    served = ask_servers(phase.tools, ctx.settings.mcp_servers, ctx.workspace, ctx.environ)
    if served.missing and not ctx.unchecked:
        raise PlanError(
            f"no session was started for phase {phase.id}: {'; '.join(served.missing)}",
            path=ctx.plan_path,
            line=phase.line,
            hint=(DOCTOR, " starts each server; --unchecked works without those that are missing"),
        )
    for words in served.notes:
        ctx.observe(Noticed(text=words))
    for words in served.missing:
        ctx.observe(Noticed(text=f"{words}; this phase works without it", warning=True))
    return served


def _make_commit(
    ctx: RunContext, handover: Handover, notes: AttemptNotes, keeper: Keeper
) -> Callable[[Proposal], PhaseCommit | Refused]:
    def commit(proposal: Proposal) -> PhaseCommit | Refused:
        candidate = Candidate(
            phase=handover.briefing.phase,
            attempt=keeper.attempt,
            number=handover.number,
            pending=keeper.pending,
            evidence=notes.claims,
            touched=frozenset(notes.touched_paths),
            commands=handover.commands,
            baseline=handover.baseline,
            subject=proposal.subject,
            status=proposal.status,
            handoff_note=keeper.render_handoff_note(proposal.gate_words) if proposal.status == "handoff" else "",
        )
        made = commit_attempt(ctx, candidate)
        if isinstance(made, PhaseCommit):
            keeper.show_plan(committed=True)
        return made

    return commit

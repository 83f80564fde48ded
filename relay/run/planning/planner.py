"""Planning: a session that can read everything and change nothing, and the proof that it changed nothing.

The session returns the plan as the input of a tool. relay checks the plan, sends violations back a bounded number of
times, and writes the file itself. A fingerprint of the repository before and after rejects the plan on a difference.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from relay.base.errors import ExitCode, PlanError, within
from relay.base.hints import DOCTOR, RUN, STATUS, Command
from relay.base.places import find_place
from relay.base.redaction import redact
from relay.base.values import dataclass
from relay.base.words import count, count_questions, list_some
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.insight.transcripts.library import Transcript
from relay.ledger.model import Ledger, Stamp, parse_ledger
from relay.plan.check import check_plan
from relay.plan.edit import NO_HEADING, split_at_headings
from relay.plan.model import Phase, Plan, Violation
from relay.plan.parse import parse_plan
from relay.plan.text import STATE_DIR, decode_text, encode_text, require_utf8
from relay.prompts.package_data import is_example
from relay.prompts.texts import (
    render_correction_message,
    render_feature_message,
    render_revise_message,
    render_system,
    render_text,
)
from relay.run.attempt.keeper import ClaimWatch
from relay.run.commit.review import ReviewCap, find_reviewers
from relay.run.explore import find_explorer
from relay.run.planning.marathon import read_marathon
from relay.run.planning.submission import (
    ASSUMPTIONS,
    Interview,
    JudgeSubmission,
    PhaseSize,
    RejectedPlan,
    Submissions,
    judge_appended,
    judge_plan,
    judge_split,
    knowing_models,
    measure_phases,
)
from relay.run.reader import Incomplete
from relay.run.review import criticize, list_confirmed, render_finding, render_numbered, show_findings
from relay.runners.base import Callbacks, Session
from relay.session.events import Noticed, ReviewFinished
from relay.session.usage import Spent
from relay.session.values import SessionEnd, ToolResult
from relay.setup.context import RunContext, RunEnd
from relay.setup.session import SessionTask
from relay.store.attempts import drop_spent
from relay.store.fingerprint import list_differences, take_fingerprint
from relay.store.history import find_text
from relay.store.loose import read_own, write_own
from relay.store.spend import PlanningRecord, begin_planning, save_plan_usage, save_rejected_plan
from relay.store.steering_files import note_own
from relay.store.worktree_notes import drop_words, read_words
from relay.tools.claims import Findings, read_turned
from relay.tools.toolbox import ASK, RECORD_TURNS, SUBMIT_PLAN, OwnTool, build_reader_tools, refuse_secrets

_SHOWN_FAULTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTask:
    """The user's request to the planner."""

    feature: str = ""
    """A feature for a new plan."""
    revise: str = ""
    """A change of the existing plan."""
    split: str = ""
    """The id of a phase to split."""
    converge: bool = False
    """Compare the finished plan with the repository."""
    force: bool = False
    """Overwrite an unfinished plan."""
    is_piped: bool = False
    """The feature came from the standard input."""
    session: Transcript | None = None
    """A session of another agent, of whose rest the plan is made; `feature` says what the user adds."""
    is_criticized: bool = False
    """Two fresh sessions look at the plan, one for faults, one to refute them; the planner corrects it once."""

    @property
    def issue(self) -> str:
        """The issue that the feature names in its first line, or as gh and glab print it; empty for none."""
        return find_issue(self.feature)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningEnd:
    """The end of a planning session."""

    kind: str
    """``done`` if a plan was accepted, else ``failed``."""
    end: SessionEnd
    detail: str


def plan_feature(ctx: RunContext, task: PlanTask) -> RunEnd:
    """Have a plan written and checked, and put it into the work tree without a commit.

    Raises:
        PlanError: There is an unfinished plan already, or none to revise or split.
    """
    before = read_existing(ctx.repo, ctx.plan_path, task)
    marathon = read_marathon(ctx, task.session) if task.session else None
    message, judge = _prepare(ctx, task, before)
    message = marathon.render_message(task.feature) if marathon else message
    findings = Findings(ledger=_read_ledger(ctx), cite=marathon.cite if marathon else None)
    interview = Interview(ctx.ask, ctx.observe, partial(redact, environ_values=ctx.secret_values), issue=task.issue)
    judge = knowing_models(judge, ctx.settings)
    judge = judge if task.converge else interview.noting(judge)
    leave_out, sitting = (STATE_DIR,), Sitting(ctx)
    session_id = sitting.open()
    found = take_fingerprint(ctx.repo, leave_out=leave_out)
    asked, submissions = None if task.converge else interview, Submissions(judge=judge)
    ended = run_planning_session(ctx, session_id, message, submissions, asked, findings)
    if task.is_criticized and submissions.accepted:
        correct = partial(run_planning_session, ctx, interview=interview, findings=findings)
        asked_for = message if marathon else task.feature or task.revise
        submissions = _criticize(ctx, sitting, asked_for, submissions, correct)
    begun = sitting.begun
    changed = list_differences(found, take_fingerprint(ctx.repo, leave_out=leave_out))
    reject = partial(_reject, ctx, begun, task, submissions.last)
    if changed:
        return reject("the repository changed while it was planned: " + "; ".join(changed))
    if task.converge and ended.end is SessionEnd.FINISHED and not submissions.tries:
        _keep_cost(ctx.repo, begun, ctx.meter.session, before.text if before else "")
        words = f"converged: the repository has everything that {ctx.plan_path} asks for"
        return ctx.end(ExitCode.DONE, words)
    if submissions.accepted is None:
        code = ExitCode.USER if ended.end is SessionEnd.DENIED else ExitCode.STOPPED
        code = ExitCode.INTERRUPTED if ctx.interrupts.finish_turn else code
        words = f"no plan was accepted: {_describe_refusal(submissions, ended)}"
        return _name_next(reject(words, code), ended.end)
    _keep_overwritten(ctx, session_id)
    write_own(ctx.repo, ctx.plan_path, encode_text(submissions.accepted.text))
    if findings.records:
        note_own(ctx.repo, ctx.ledger_path)
        write_own(ctx.repo, ctx.plan_path, encode_text(findings.ledger.text), ctx.ledger_path)
    _keep_cost(ctx.repo, begun, ctx.meter.session, submissions.accepted.text)
    drop_words(ctx.repo, tuple(interview.left))
    if marathon:
        cost = marathon.describe_cost(ctx, submissions.accepted, _measure(ctx, submissions.accepted))
        for words in filter(None, (cost, marathon.describe_left())):
            ctx.observe(Noticed(text=words))
    return _finish(ctx, submissions.accepted, interview.assumed, findings)


class Sitting:
    """The sessions of one command that plans. Mutable: each is noted as it begins, so that a kill loses no cost."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self.begun = PlanningRecord(plan_path=ctx.plan_path, session_id="", spend=Spent())
        """The newest session, with the cost of those before it."""

    def open(self) -> str:
        """Note that a session begins; return its id."""
        session_id = self._ctx.new_id()
        self.begun = begin_planning(self._ctx.repo, self._ctx.plan_path, session_id)
        return session_id


def _criticize(
    ctx: RunContext,
    sitting: Sitting,
    request: str,
    submissions: Submissions,
    correct: Callable[[str, str, Submissions], PlanningEnd],
) -> Submissions:
    """Have an accepted plan criticized, and corrected once; return the submissions with the better plan."""
    text = submissions.accepted.text if submissions.accepted else ""
    readers = find_reviewers(ctx, ctx.workspace, phase_id="", new_id=sitting.open, cap=ReviewCap(ctx))
    found = criticize(readers, request, text)
    if isinstance(found, Incomplete):
        ctx.observe(Noticed(text=f"the plan was not criticized: {found.detail}", warning=True))
        return submissions
    confirmed = list_confirmed(found)
    shown = ReviewFinished(phase_id="", round=1, findings=show_findings(found), confirmed=len(confirmed))
    ctx.observe(shown)
    if not confirmed:
        return submissions
    again = Submissions(judge=submissions.judge)
    correct(sitting.open(), render_correction_message(render_numbered(confirmed), text), again)
    if again.accepted:
        return again
    words = list_some([render_finding(one) for one in confirmed], _SHOWN_FAULTS, joint="; ")
    ctx.observe(Noticed(text=f"both critics confirm, and no session corrected: {words}", warning=True))
    return submissions


def split_at_file(repo: Repo, plan_path: str, task: PlanTask) -> RunEnd | None:
    """Split a phase whose sub-headings have boxes of their own, without a model; None if a session has to split it.

    Raises:
        PlanError: The plan has no such open phase.
        LockedError: Another relay is at work there.
    """
    with lock_worktree(repo):
        before = read_existing(repo, plan_path, task) if task.split else None
        split = split_at_headings(before, task.split) if before else None
        if before is None or split is None:
            return None
        write_own(repo, plan_path, encode_text(split.text))
    made = len(split.phases) - len(before.phases) + 1
    words = f"phase {task.split} of {plan_path} is {made} phases now, at the headings that it has; no model was asked"
    return RunEnd(exit_code=ExitCode.DONE, reason=words, next_command=RUN, spent=Spent())


_ISSUE = re.compile(r"(?<![\w/&])\#(\d{1,9})\b|\bhttps?://[^\s/]+/([\w.-]+(?:/[\w.-]+)+?)(?:/-)?/issues/(\d{1,9})\b")
_NUMBER_LINE = re.compile(r"number:[ \t]+(\d{1,9})")
_HEAD_LINES = 20


def find_issue(text: str) -> str:
    """Return the issue that a text is about, as forges close it: ``#12``, ``owner/name#12``; empty for none.

    Its first line names one, or its head has a line ``number: 12``, as the head of `gh issue view` does.
    """
    lines = text.strip().splitlines()[:_HEAD_LINES]
    if number := next((found[1] for line in lines if (found := _NUMBER_LINE.fullmatch(line.strip()))), ""):
        return f"#{number}"
    found = _ISSUE.search(lines[0]) if lines else None
    return "" if found is None else f"#{found[1]}" if found[1] else f"{found[2]}#{found[3]}"


def _describe_refusal(submissions: Submissions, ended: PlanningEnd) -> str:
    judgement = submissions.judgement
    faults = "; ".join(judgement.faults) if isinstance(judgement, RejectedPlan) else ""
    if ended.end in {SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL} or not ended.detail:
        return faults or ended.detail or "the session submitted no plan"
    return f"{ended.detail}; of the last one: {faults}" if faults else ended.detail


def read_existing(repo: Repo, plan_path: str, task: PlanTask) -> Plan | None:
    """Return the plan in the work tree; None if there is none or it does not matter.

    Commands call this before they open anything: an unfinished plan is an error without any request.

    Raises:
        PlanError: The plan is unfinished and would be overwritten, or it is needed and missing or unfit.
    """
    data = read_own(repo, plan_path)
    needed = bool(task.revise or task.split or task.converge)
    if data is None:
        if os.path.lexists(find_place(repo.root, plan_path)):
            raise PlanError("this is not a regular file", path=plan_path)
        if needed:
            hint = ("`", Command(words=("plan",)), ' "what you want"` writes one')
            raise PlanError("there is no such plan", path=plan_path, hint=hint)
        return None
    if not needed and task.force:
        return None
    try:
        with within(plan_path):
            plan = parse_plan(require_utf8(data))
    except PlanError as error:
        if not needed:
            error.hint = (error.hint, "; " if error.hint else "", "--force replaces the plan")
        raise
    if not needed and not plan.done and not is_example(plan):
        raise PlanError(
            f"{plan_path} has open items: an unfinished plan is not overwritten",
            hint=(Command(words=("plan", "--revise", "what to change")), " changes it, --force replaces it"),
        )
    _require_fit(plan, plan_path, task)
    return plan if needed else None


def _require_fit(plan: Plan, plan_path: str, task: PlanTask) -> None:
    """Refuse to compare an open plan with the repository, and to split a phase that is not open."""
    if task.converge and not plan.done:
        raise PlanError(f"{plan_path} has open phases; only a finished plan is compared with the repository", hint=RUN)
    if task.split:
        _get_open_phase(plan, task.split)


def _get_open_phase(plan: Plan, phase_id: str) -> Phase:
    phase = plan.find_phase(phase_id)
    if phase is None:
        known = ", ".join(phase.id for phase in plan.phases)
        raise PlanError(f"there is no phase {phase_id!r} to split", hint=f"phases: {known}")
    if phase.done:
        raise PlanError(f"phase {phase.id} is done; only open phases are split", hint=STATUS)
    if phase.in_list:
        raise PlanError(f"phase {phase.id} {NO_HEADING}", line=phase.line)
    return phase


def _prepare(ctx: RunContext, task: PlanTask, before: Plan | None) -> tuple[str, JudgeSubmission]:
    """Return the session's first message and the judge of its submissions."""
    measure = partial(_measure, ctx)
    if before is None:
        return render_feature_message(task.feature), lambda text, sizes: judge_plan(text, measure if sizes else None)
    if task.revise:
        message = render_revise_message(task.revise, before.text)
        return message, lambda text, sizes: judge_plan(text, measure if sizes else None, before=before)
    if task.converge:
        message = render_text("converge", plan=before.text.strip())
        return message, lambda text, sizes: judge_appended(text, measure if sizes else None, before=before)
    phase = _get_open_phase(before, task.split)
    message = render_text(
        "split",
        phase_id=phase.id,
        phase=before.text[phase.start : phase.end].strip(),
        plan=before.text.strip(),
    )
    return message, lambda text, sizes: judge_split(text, measure if sizes else None, before=before, phase=phase)


def _measure(ctx: RunContext, plan: Plan) -> tuple[PhaseSize, ...]:
    rules_bytes = len(ctx.rules.text.encode("utf-8", "replace"))
    return measure_phases(ctx.repo.root, plan, find_line=lambda _: ctx.sessions.soft_tokens, rules_bytes=rules_bytes)


def _read_ledger(ctx: RunContext) -> Ledger:
    with within(ctx.ledger_path):
        return parse_ledger(decode_text(read_own(ctx.repo, ctx.plan_path, ctx.ledger_path) or b""))


def run_planning_session(
    ctx: RunContext,
    session_id: str,
    message: str,
    submissions: Submissions,
    interview: Interview | None,
    findings: Findings,
) -> PlanningEnd:
    """Run a session until a plan is accepted or it gives up; without an interview it may submit none."""

    def hear() -> str:
        ctx.hear_cap()
        new = interview.take_words(read_words(ctx.repo, "")) if interview else ()
        return render_text("said", text="\n\n".join(new)) if new else ""

    keep = ClaimWatch(ctx.files, findings, Stamp(session=session_id)).keep_found

    def record(given: Mapping[str, Any]) -> ToolResult:
        found = read_turned(ctx.workspace, findings, given)
        if found in findings.records:
            return ToolResult(text="Already recorded; nothing changed.")
        return ToolResult(text=f"Recorded as {', '.join(claim.id for claim in keep([found]))}.")

    explorer = find_explorer(ctx, keep)
    own: list[OwnTool] = [(ASK, interview.take)] if interview else []
    own += [(SUBMIT_PLAN, lambda given: submissions.submit(given["markdown"]))]
    own += [explorer.tool] if explorer else []
    own += [(RECORD_TURNS, record)] if findings.cite else []
    toolbox = build_reader_tools(ctx.workspace, *own)
    said = hear()
    message = f"{message}\n\n{said}" if said else message
    task = SessionTask(
        session_id=session_id,
        title="planning",
        system=render_system("planner", ctx.rules.text, line_tokens=ctx.sessions.soft_tokens),
        tools=toolbox.specs,
        message_parts=(("plan", message),),
        callbacks=Callbacks(
            run_tool=refuse_secrets(toolbox.run, ctx.secret_values),
            render_soft_notice=lambda fill, room: render_text("planner_notice", fill=fill, room=room),
            hear=hear,
        ),
    )
    reminder = render_text("no_plan") if interview else ""
    planner = ctx.settings.roles.plan
    sessions = ctx.sessions.ask_model(planner, "") if planner else ctx.sessions
    return sessions.run(task, lambda session: _drive(session, message, submissions, reminder))


def _drive(session: Session, message: str, submissions: Submissions, reminder: str) -> PlanningEnd:
    outcome = session.advance(message)
    if outcome.end is SessionEnd.FINISHED and submissions.is_open and reminder:
        outcome = session.advance(reminder)
    is_complete = not reminder and outcome.end is SessionEnd.FINISHED and not submissions.tries  # nothing is missing
    kind = "failed" if submissions.accepted is None and not is_complete else "done"
    return PlanningEnd(kind=kind, end=outcome.end, detail=outcome.detail)


def _name_next(end: RunEnd, why: SessionEnd) -> RunEnd:
    """Remove the next command if it would end in the same way."""
    match why:
        case SessionEnd.DENIED:
            return replace(end, next_command=DOCTOR)
        case SessionEnd.BUDGET:
            return replace(end, next_command=None)
        case _:
            return end


def make_command(task: PlanTask) -> Command:
    """Return the command that requests a task again."""
    if task.converge:
        return Command(words=("review", "--whole-plan"))
    if task.split:
        words = ["--split", task.split]
    elif task.revise:
        words = ["--revise", " ".join(task.revise.split())]
    elif task.session:
        words = ["--from-session", task.session.session or str(task.session.path)]
        words = [
            *(["--force"] if task.force else []),
            *words,
            *([" ".join(task.feature.split())] if task.feature else []),
        ]
    else:
        asked = ["-"] if task.is_piped else ["--", " ".join(task.feature.split())]
        words = [*(["--force"] if task.force else []), *asked]
    if words[-2:-1] == ["--"] and not words[-1].startswith("-"):
        del words[-2]
    return Command(words=("plan", *words))


def _reject(  # one private caller
    ctx: RunContext, begun: PlanningRecord, task: PlanTask, last: str, reason: str, code: ExitCode = ExitCode.STOPPED
) -> RunEnd:
    """Keep the last submission and the session's cost under refs; return the end of the run."""
    record = replace(begun, spend=ctx.meter.session, is_open=False)
    where = save_rejected_plan(ctx.repo, record, encode_text(last))
    _keep_cost(ctx.repo, begun, ctx.meter.session, "")
    if last:
        ctx.observe(Noticed(text=f"the last plan is kept: git show {where}:{ctx.plan_path}", warning=True))
    return ctx.end(code, reason, make_command(task))


def _keep_overwritten(ctx: RunContext, session_id: str) -> None:
    """Keep an uncommitted plan under a ref before it is overwritten."""
    disk = read_own(ctx.repo, ctx.plan_path)
    if disk is None or decode_text(disk) == find_text(ctx.repo, ctx.repo.head(), ctx.plan_path):
        return
    record = PlanningRecord(plan_path=ctx.plan_path, session_id=session_id, spend=Spent())
    where = save_rejected_plan(ctx.repo, record, disk)
    ctx.observe(Noticed(text=f"the uncommitted plan that was there is kept: git show {where}:{ctx.plan_path}"))


def _keep_cost(repo: Repo, begun: PlanningRecord, spend: Spent, text: str) -> None:
    """Keep the cost of planning, this session and earlier ones, until a commit's trailers have it."""
    save_plan_usage(repo, replace(begun, spend=begun.spend + spend, is_open=False), encode_text(text))
    drop_spent(repo, begun.session_id)


def _finish(ctx: RunContext, plan: Plan, assumed: Collection[str], findings: Findings) -> RunEnd:
    single = len(plan.phases) == 1
    if single:
        words = "one session will do: the plan has a single phase. You may as well do it in one sitting."
        ctx.observe(Noticed(text=words))
    warnings: Sequence[Violation] = [violation for violation in check_plan(plan) if violation.warning]
    for violation in warnings:
        ctx.observe(Noticed(text=f"{ctx.plan_path}:{violation.line}: {violation.message}", warning=True))
    items = sum(len(phase.items) for phase in plan.phases)
    made = f"{count(len(plan.phases), 'phase')}, {count(items, 'item')}"
    words = f"{ctx.plan_path} is written, {made}; read it, change what you like"
    words += f"; {count_questions(assumed)}, see {ASSUMPTIONS} in it" if assumed else ""
    found = len(findings.records)
    words += f"; {ctx.ledger_path} has {count(found, 'finding')} for its sessions" if found else ""
    return ctx.end(ExitCode.DONE, words, RUN)

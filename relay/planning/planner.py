"""Planning: a session that can look at everything and change nothing, and the proof that it did not.

The session returns the plan as the input of a tool; relay checks it, sends violations back a bounded number of times,
and writes the file itself. Before and after, the repository is fingerprinted: a difference rejects the plan.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relay.errors import ExitCode, PlanError
from relay.files.tree import read_file, replace_file
from relay.gate.shell_line import check_command
from relay.hints import Caller
from relay.meters.gauge import open_gauge
from relay.plan.check import check_plan
from relay.plan.edit import replace_phase
from relay.plan.encoding import decode_text, encode_text
from relay.plan.files import STATE_DIR
from relay.plan.lines import BOM
from relay.plan.model import Phase, Plan, Violation
from relay.plan.parse import parse_plan
from relay.plan.ticks import check_ticks_kept
from relay.planning.measurement import measure_phases
from relay.planning.sizes import suggest_parts
from relay.prompts.texts import (
    render_feature_message,
    render_no_plan_reminder,
    render_planner_notice,
    render_planner_system,
    render_revise_message,
    render_split_message,
)
from relay.runners.base import Session
from relay.session.events import LegEnded, LegStarted, Noticed, RunEnded
from relay.session.usage import Spent
from relay.session.values import SessionEnd, SessionOutcome
from relay.setup.context import RunContext
from relay.setup.equipment import make_spec, make_workspace
from relay.store.fingerprint import compare, take_fingerprint
from relay.store.planning_cost import PlanningRecord, read_plan_usage, save_plan_usage, save_rejected_plan
from relay.store.texts import find_text
from relay.tools.discretion import refuse_secrets
from relay.tools.toolbox import build_planner_tools

MAX_SUBMISSIONS = 6
"""Plans a session may submit before relay gives up: a plan that six corrections did not mend will not be mended."""

MAX_COMMAND_CHARS = 380
"""Longest command that is shown to be typed again; the live view cuts lines at 400."""

_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\r\n"

SIZE_TRIES = 2
"""Submissions that are sent back because of a phase's estimated size; an estimate does not block a plan for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTask:
    """What the user asked the planner for."""

    feature: str = ""
    """A new plan for this."""
    revise: str = ""
    """A change to the existing plan."""
    split: str = ""
    """Id of the one phase to split."""
    force: bool = False
    """Overwrite an unfinished plan."""


_Check = Callable[[str, bool], str | tuple[str, ...]]
"""Given a submission and whether sizes count: the whole new plan's text, or what is wrong with the submission."""


@dataclass(slots=True, kw_only=True)
class _Desk:
    """Takes what the session submits."""

    check: _Check
    tries: int = 0
    accepted: str | None = None
    last: str = ""
    faults: tuple[str, ...] = field(default=())

    def submit(self, markdown: str) -> str | None:
        """Judge a submission; None accepts it."""
        self.tries += 1
        self.last = markdown
        if self.tries > MAX_SUBMISSIONS:
            return "relay takes no further submission in this session."
        result = self.check(markdown, self.tries <= SIZE_TRIES)
        if isinstance(result, str):
            self.accepted, self.faults = result, ()
            return None
        self.faults = result
        left = MAX_SUBMISSIONS - self.tries
        listed = "\n".join(f"- {fault}" for fault in result)
        return f"The plan is not accepted ({left} tries left). Correct this and submit the whole text again:\n{listed}"


def plan_feature(ctx: RunContext, task: PlanTask) -> RunEnded:
    """Have a plan written, checked and put into the work tree; nothing is committed.

    Raises:
        PlanError: There is an unfinished plan already, or none to revise or split.
    """
    before = read_existing(ctx.repo.root, ctx.plan_path, task, ctx.caller)
    message, check = _prepare(ctx, task, before)
    desk = _Desk(check=check)
    leave_out = (STATE_DIR,)
    found = take_fingerprint(ctx.repo, leave_out=leave_out)
    session_id = ctx.new_id()
    outcome = _run_session(ctx, session_id, message, desk)
    changed = compare(found, take_fingerprint(ctx.repo, leave_out=leave_out))
    spent = ctx.meter.session
    if changed:
        return _reject(
            ctx, session_id, desk, task, "the repository changed while it was planned: " + "; ".join(changed)
        )
    if desk.accepted is None:
        detail = "; ".join(desk.faults) if desk.faults else outcome.detail or "the session submitted no plan"
        code = ExitCode.USER if outcome.end is SessionEnd.DENIED else ExitCode.STOPPED
        code = ExitCode.INTERRUPTED if ctx.interrupts.finish_turn else code
        return _reject(ctx, session_id, desk, task, f"no plan was accepted: {detail}", code)
    _keep_overwritten(ctx, session_id)
    replace_file(ctx.repo.root, ctx.plan_path, encode_text(desk.accepted), "100644")
    _keep_cost(ctx, session_id, desk.accepted, spent)
    return _finish(ctx, parse_plan(desk.accepted))


def read_existing(root: Path, plan_path: str, task: PlanTask, caller: Caller) -> Plan | None:
    """Return the plan in the work tree; None when there is none or it does not matter.

    Commands call it before anything is opened: an unfinished plan is no reason to ask an endpoint anything.

    Raises:
        PlanError: It is unfinished and would be overwritten, or it is needed and not there.
    """
    data = read_file(root, plan_path)
    needed = bool(task.revise or task.split)
    if data is None:
        if needed:
            raise PlanError(f"{plan_path}: there is no plan to change", hint=f'{caller.render("plan")} "what you want"')
        return None
    if not needed and task.force:
        return None
    try:
        plan = parse_plan(decode_text(data))
    except PlanError:
        if needed:
            raise
        words = f"{plan_path} exists and relay cannot read it as a plan"
        raise PlanError(words, hint="--force replaces it") from None
    if not needed and not plan.done:
        raise PlanError(
            f"{plan_path} has open items: an unfinished plan is not overwritten",
            hint=f"{caller.render('plan', '--revise', 'what to change')} changes it, --force replaces it",
        )
    return plan if needed else None


def _prepare(ctx: RunContext, task: PlanTask, before: Plan | None) -> tuple[str, _Check]:
    """Return the session's first message and how its submissions are judged."""
    if before is None:
        return render_feature_message(task.feature), lambda text, sizes: _judge(ctx, text, sizes=sizes)
    if task.revise:
        message = render_revise_message(task.revise, before.text)
        return message, lambda text, sizes: _judge(ctx, text, before=before, sizes=sizes)
    phase = before.find_phase(task.split)
    if phase is None:
        known = ", ".join(phase.id for phase in before.phases)
        raise PlanError(f"there is no phase {task.split!r} to split", hint=f"phases: {known}")
    if phase.done:
        raise PlanError(f"phase {phase.id} is done; only open phases are split", hint=ctx.caller.render("status"))
    return render_split_message(before, phase), lambda text, sizes: _judge_split(ctx, before, phase, text, sizes=sizes)


def _judge_split(ctx: RunContext, before: Plan, phase: Phase, text: str, *, sizes: bool) -> str | tuple[str, ...]:
    try:
        parse_plan(text)
    except PlanError as error:
        return (error.message,)
    try:
        result = _judge(ctx, replace_phase(before.text, phase.id, text), before=before, sizes=sizes)
    except PlanError as error:
        result = (error.message,)
    if isinstance(result, str):
        return result
    return (*_describe_numbering(before, phase, text), *(_find_submitted_line(phase, text, fault) for fault in result))


def _find_submitted_line(phase: Phase, text: str, fault: str) -> str:
    """Name a line as it was submitted: the fault was found in the whole plan, where the old phase stood."""
    found = _LINE.match(fault)
    if found is None:
        return fault
    written = text.removeprefix(BOM).strip(_BLANK)
    above = len(_LINE_END.findall(text[: text.index(written)]))
    line = int(found[1]) - phase.line
    if 0 <= line <= len(_LINE_END.findall(written)):
        return f"line {line + 1 + above}: {found[2]}"
    return f"in the rest of the plan: {found[2]}"


def _describe_numbering(before: Plan, phase: Phase, text: str) -> Iterator[str]:
    """Say what the submitted phases are called in the whole plan, where that is not what they are called alone."""
    whole = f"{before.text[: phase.start]}{text.strip(_BLANK)}\n\n{before.text[phase.end :]}"
    try:
        alone, inside = parse_plan(text).phases, parse_plan(whole).phases
    except PlanError:
        return  # the fault says it
    first = sum(other.start < phase.start for other in before.phases)
    named = inside[first : first + len(alone)]
    if [one.id for one in named] != [one.id for one in alone]:
        names = "; ".join(f"{one.id} is `{one.title}`" for one in named)
        yield f"phases and items are named here as the whole plan will number them: {names}"


def _judge(ctx: RunContext, text: str, *, sizes: bool, before: Plan | None = None) -> str | tuple[str, ...]:
    """Return the text when it can be a plan, else what is wrong with it."""
    text = text if text.endswith("\n") else f"{text}\n"
    try:
        plan = parse_plan(text)
    except PlanError as error:
        return (error.message,)
    faults = [_describe(violation) for violation in check_plan(plan) if not violation.warning]
    faults += _check_new(plan) if before is None else _check_change(before, plan)
    faults += _check_sizes(ctx, plan) if sizes else []
    return tuple(faults) if faults else text


def _describe(violation: Violation) -> str:
    return f"line {violation.line}: {violation.message}" if violation.line else violation.message


def _check_new(plan: Plan) -> list[str]:
    """A new plan claims nothing, and each of its phases can be checked."""
    faults = [
        f"line {i.line}: item {i.id} is ticked; nothing is done yet" for p in plan.phases for i in p.items if i.done
    ]
    faults += [f"line {p.line}: phase {p.id} has no `Verify:` line with a command" for p in plan.phases if not p.verify]
    faults += [
        f"line {phase.line}: `{command}` {words}"
        for phase in plan.phases
        for command in phase.verify
        if (words := check_command(command))
    ]
    faults += [
        f"line {item.line}: item {item.id} names no file or folder; end it with ` — path`"
        for phase in plan.phases
        for item in phase.items
        if not item.paths
    ]
    return faults


def _check_change(before: Plan, after: Plan) -> list[str]:
    return [_describe(violation) for violation in check_ticks_kept(before, after)]


def _check_sizes(ctx: RunContext, plan: Plan) -> list[str]:
    rules_bytes = len(ctx.rules.text.encode("utf-8", "replace"))
    sizes = measure_phases(ctx.repo.root, plan, line_tokens=_find_line(ctx), rules_bytes=rules_bytes)
    return [
        f"phase {size.phase_id} is too big for one session (about {size.context_tokens:,} tokens, the line is "
        f"{size.line_tokens:,}): split it into {suggest_parts(size)} phases"
        for size in sizes
        if size.too_big and suggest_parts(size) > 1
    ]


def _run_session(ctx: RunContext, session_id: str, message: str, desk: _Desk) -> SessionOutcome:
    toolbox = build_planner_tools(make_workspace(ctx), desk.submit)
    ctx.observe(LegStarted(session_id=session_id, phase_id="", title="planning", leg=1, reason=""))
    ctx.meter.open_session()
    spec = make_spec(
        ctx,
        session_id,
        system=render_planner_system(ctx.rules.text, line_tokens=_find_line(ctx)),
        tools=toolbox.specs,
        run_tool=refuse_secrets(toolbox.run, ctx.secret_values),
        render_soft_notice=render_planner_notice,
    )
    with ctx.runner.open_session(spec) as session:
        outcome = _drive(session, message, desk)
    spent = ctx.meter.session
    ctx.observe(
        LegEnded(
            session_id=session_id,
            phase_id="",
            end=outcome.end,
            result="done" if desk.accepted is not None else "failed",
            detail=outcome.detail,
            usage=spent.usage,
            cost_usd=spent.cost_usd,
        )
    )
    return outcome


def _drive(session: Session, message: str, desk: _Desk) -> SessionOutcome:
    outcome = session.advance(message)
    if outcome.end is SessionEnd.FINISHED and desk.accepted is None and desk.tries <= MAX_SUBMISSIONS:
        outcome = session.advance(render_no_plan_reminder())
    return outcome


def _find_line(ctx: RunContext) -> int:
    """Return the soft line, in tokens, of a session with this model."""
    reset_at = ctx.settings.reset_at_for(ctx.settings.model)
    return open_gauge(window_tokens=ctx.model.window_tokens, reset_at=reset_at).soft_tokens


def render_command(task: PlanTask, caller: Caller) -> str:
    """Return the command line that asks for a task again; the help's where the task is too long for a screen."""
    if task.split:
        words = ["--split", task.split]
    elif task.revise:
        words = ["--revise", " ".join(task.revise.split())]
    else:
        words = [*(["--force"] if task.force else []), "--", " ".join(task.feature.split())]
    if words[-2:-1] == ["--"] and not words[-1].startswith("-"):
        del words[-2]
    command = caller.render("plan", *words)
    return command if len(command) <= MAX_COMMAND_CHARS and command.isprintable() else "relay plan --help"


def _reject(
    ctx: RunContext, session_id: str, desk: _Desk, task: PlanTask, reason: str, code: ExitCode = ExitCode.STOPPED
) -> RunEnded:
    """Keep the plan and what it cost out of the way, and say why it was not taken."""
    record = PlanningRecord(plan_path=ctx.plan_path, session_id=session_id, spend=ctx.meter.session)
    where = save_rejected_plan(ctx.repo, record, encode_text(desk.last))
    _keep_cost(ctx, session_id, None, ctx.meter.session)
    if desk.last:
        ctx.observe(Noticed(text=f"the last plan is kept: git show {where}:{ctx.plan_path}", warning=True))
    return RunEnded(
        exit_code=code,
        reason=reason,
        next_command=render_command(task, ctx.caller),
        spent_usd=ctx.meter.total.cost_usd,
    )


def _keep_overwritten(ctx: RunContext, session_id: str) -> None:
    """Keep a plan that is about to be written over and that no commit has."""
    disk = read_file(ctx.repo.root, ctx.plan_path)
    if disk is None or decode_text(disk) == find_text(ctx.repo, ctx.repo.head(), ctx.plan_path):
        return
    record = PlanningRecord(plan_path=ctx.plan_path, session_id=session_id, spend=Spent())
    where = save_rejected_plan(ctx.repo, record, disk)
    ctx.observe(Noticed(text=f"the uncommitted plan that was there is kept: git show {where}:{ctx.plan_path}"))


def _keep_cost(ctx: RunContext, session_id: str, text: str | None, spent: Spent) -> None:
    """Keep what planning has cost until a commit's trailers carry it."""
    earlier = read_plan_usage(ctx.repo)
    if earlier is not None and earlier.plan_path == ctx.plan_path:
        spent += earlier.spend
    record = PlanningRecord(plan_path=ctx.plan_path, session_id=session_id, spend=spent)
    save_plan_usage(ctx.repo, record, encode_text(text or ""))


def _finish(ctx: RunContext, plan: Plan) -> RunEnded:
    single = len(plan.phases) == 1
    if single:
        words = "one session will do: the plan has a single phase. You may as well do it in one sitting."
        ctx.observe(Noticed(text=words))
    warnings: Sequence[Violation] = [violation for violation in check_plan(plan) if violation.warning]
    for violation in warnings:
        ctx.observe(Noticed(text=f"{ctx.plan_path}:{violation.line}: {violation.message}", warning=True))
    items = sum(len(phase.items) for phase in plan.phases)
    phases = f"{len(plan.phases)} phase{'' if single else 's'}"
    return RunEnded(
        exit_code=ExitCode.DONE,
        reason=f"{ctx.plan_path} is written, {phases}, {items} items; read it, change what you like",
        next_command=ctx.caller.render("run"),
        spent_usd=ctx.meter.total.cost_usd,
    )

"""Committing the plan alone: a new one before the first phase, and the user's own edits between legs.

The user may change everything that is still open. What relay ticked stays: whoever wants to take a tick back commits
that himself, and relay then reads it from HEAD like any other state.
"""

import shlex

from relay.errors import PlanError, RepoError, within
from relay.files.tree import read_file, replace_file
from relay.git.message import Message
from relay.git.names import list_paths, render_path
from relay.git.status import read_status
from relay.plan.encoding import encode_text, require_utf8
from relay.plan.model import Plan, Violation
from relay.plan.parse import parse_plan
from relay.plan.ticks import check_ticks_kept
from relay.run.gates import make_hooks
from relay.session.events import Committed, Noticed
from relay.session.usage import Spent
from relay.setup.context import RunContext
from relay.store import trailers
from relay.store.commit import CommitRequest, commit_paths
from relay.store.legs import get_branch
from relay.store.planning_cost import drop_plan_usage, read_plan_usage, read_written_plan
from relay.store.texts import find_text


def ensure_plan_committed(ctx: RunContext) -> Plan:
    """Commit the plan file by itself where it differs from HEAD; return it as HEAD has it then.

    Raises:
        PlanError: There is no plan, it cannot be read, or what relay has ticked was changed.
        RepoError: The commit could not be made.
    """
    disk = read_file(ctx.repo.root, ctx.plan_path)
    if disk is None:
        hint = f'{ctx.caller.render("plan")} "what you want"'
        raise PlanError("there is no such plan", path=ctx.plan_path, hint=hint)
    with within(ctx.plan_path):
        plan = parse_plan(require_utf8(disk))
    text = find_text(ctx.repo, ctx.repo.head(), ctx.plan_path)
    if text is None:
        _commit_new(ctx, plan, disk)
        return plan
    if ctx.plan_path not in read_status(ctx.repo).changed:
        return plan  # line endings may differ from the blob's; git says that it is the same file
    committed = parse_committed(text, ctx.plan_path)
    merged, violations = _merge(committed, plan)
    if merged.text == text:
        replace_file(ctx.repo.root, ctx.plan_path, disk if plan.text == text else encode_text(text), "100644")
        return merged
    if violations and not _replaces(ctx, committed, plan):
        raise _refuse(violations, ctx)
    if violations:
        _commit_new(ctx, plan, disk)
        return plan
    spent = _take_planning_cost(ctx)
    _commit(ctx, merged, disk=disk, status="amended", subject="relay: plan amended", spent=spent)
    drop_plan_usage(ctx.repo)
    return merged


def parse_committed(text: str, plan_path: str) -> Plan:
    """Parse a plan whose path an error names.

    Raises:
        PlanError: The plan cannot be used.
    """
    with within(plan_path):
        return parse_plan(text)


def _commit_new(ctx: RunContext, plan: Plan, disk: bytes) -> None:
    subject = f"relay: plan — {plan.title}" if plan.title else "relay: plan"
    _commit(ctx, plan, disk=disk, status="planned", subject=subject[:72], spent=_take_planning_cost(ctx))
    drop_plan_usage(ctx.repo)


def _take_planning_cost(ctx: RunContext) -> Spent:
    record = read_plan_usage(ctx.repo)
    return record.spend if record and record.plan_path == ctx.plan_path else Spent()


def _replaces(ctx: RunContext, committed: Plan, plan: Plan) -> bool:
    """Say whether the file holds another plan: the old one is done, or relay itself wrote this one."""
    if committed.done:
        return True
    written = read_written_plan(ctx.repo, ctx.plan_path)
    return written is not None and written == encode_text(plan.text)


def _merge(committed: Plan, edited: Plan) -> tuple[Plan, tuple[Violation, ...]]:
    """Return the user's plan with the ticks that relay made since it was opened, and what relay does not commit."""
    texts = {item.id: item.text for item in edited.items if not item.done}
    merged = edited.tick([item.id for item in committed.items if item.done and texts.get(item.id) == item.text])
    return merged, check_ticks_kept(committed, merged)


def _refuse(violations: tuple[Violation, ...], ctx: RunContext) -> PlanError:
    path = ctx.plan_path
    places = (f"{path}:{violation.line}" if violation.line else path for violation in violations)
    words = "\n  ".join(f"{place}: {violation.message}" for place, violation in zip(places, violations, strict=True))
    again = f"git commit {shlex.quote(ctx.caller.find_typed(path))}"
    return PlanError(
        f"{path} was edited in a way that relay does not commit by itself:\n  {words}",
        hint=f"undo that part, or, if you mean it, commit it yourself: {again}",
    )


def _commit(ctx: RunContext, plan: Plan, *, disk: bytes, status: str, subject: str, spent: Spent) -> None:
    message = Message(
        subject=subject,
        trailers=(
            (trailers.PLAN, render_path(ctx.plan_path)),
            (trailers.STATUS, status),
            (trailers.SANDBOX, ctx.workspace.sandbox.mechanism),
            (trailers.USAGE, trailers.render_usage(spent.usage)),
            (trailers.COST, trailers.render_cost(spent.cost_usd)),
        ),
    )
    request = CommitRequest(
        branch=get_branch(ctx.repo),
        head=ctx.repo.head(),
        message=message,
        replace={ctx.plan_path: encode_text(plan.text)},
        based_on={ctx.plan_path: disk},
        take_in=False,
    )
    outcome = commit_paths(ctx.repo, request, hooks=make_hooks(ctx))
    if outcome.commit is None:
        raise RepoError(f"the plan could not be committed ({outcome.end}): {outcome.output}")
    ctx.observe(Committed(commit=outcome.commit, subject=subject, status=status, phase_id="", items=()))
    for words in outcome.left:
        ctx.observe(Noticed(text=words, warning=True))
    if others := [path for path in outcome.not_taken if path != ctx.plan_path]:
        words = f"a commit hook rewrote files, which are not committed with the plan: {list_paths(others)}"
        ctx.observe(Noticed(text=words, warning=True))

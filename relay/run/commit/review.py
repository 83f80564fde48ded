"""The review before the commit, and `relay review` of a phase or any range.

A round begins only without an open session: the author's session has ended, and its work is in a checkpoint and
proposed. The attempt's next checkpoint holds the round's findings, so that a killed run does not pay for the
round twice. A fresh session repairs confirmed faults, as it repairs a red gate; reviewers never tick or repair.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from relay.base.errors import ExitCode, PlanError, RepoError
from relay.base.hints import STATUS
from relay.base.redaction import redact
from relay.base.values import dataclass
from relay.base.words import count
from relay.gate.model import GateResult
from relay.git.message import read_text, read_texts
from relay.git.names import list_paths
from relay.git.objects import diff_trees, read_entries, read_patch, write_paths_tree
from relay.git.repository import Repo
from relay.git.trees import ABSENT
from relay.prompts.texts import ReviewBriefing
from relay.run.commit.candidate import Candidate, Refused
from relay.run.commit.plan_commit import find_plan
from relay.run.commit.readiness import find_merged, is_untouched
from relay.run.reader import Incomplete, Readers
from relay.run.review import (
    ReviewFinding,
    compute_digest,
    list_confirmed,
    parse_finding_json,
    render_finding,
    render_finding_json,
    render_numbered,
    review,
    show_findings,
)
from relay.session.events import Noticed, Observe, ReviewFinished
from relay.session.prices import Price, worst_cost_usd
from relay.session.usage import Spent
from relay.session.values import SessionEnd, SessionKind
from relay.setup.context import PlanFiles, RunContext, RunEnd
from relay.setup.rules import Rules
from relay.store import trailers
from relay.store.attempts import AttemptStart, OpenAttempt, continue_attempt, note_wait
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.history import RelayCommit, read_plan_commits
from relay.store.ref_notes import Carried, Ending, ReviewNote
from relay.store.spend import keeping_spent
from relay.store.trailers import ATTEMPT_STATUSES, REVIEW
from relay.tools.workspace import Workspace

MAX_ROUNDS = 2
"""Reviews of one phase: the second sees the changes after the first. Source: ralphctl's and gsd's reviews converge by
then or not at all.
"""
MAX_PATCH_BYTES = 200_000
"""About 50,000 tokens; the patch names files that do not fit."""
_CAP_PART = 0.25
"""The part of the phase's cap (or the plan's, if a phase has none) for one review: it is worth less than the work."""
_ITS_OWN = frozenset({
    SessionEnd.FINISHED, SessionEnd.ENDED_BY_TOOL, SessionEnd.HARD_LINE, SessionEnd.OVERFLOW, SessionEnd.STUCK,
    SessionEnd.REFUSED, SessionEnd.TRUNCATED,
})  # fmt: skip
"""Ends of a reviewer that a second try would repeat: they delay no phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One review of a phase, from the attempt's notes."""

    number: int
    tree: str
    """The reviewed tree: HEAD's with the attempt's files."""
    findings: tuple[ReviewFinding, ...]

    @property
    def confirmed(self) -> tuple[ReviewFinding, ...]:
        """The findings to be repaired."""
        return list_confirmed(self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """The work may be committed."""

    attempt: OpenAttempt
    trailers: tuple[tuple[str, str], ...] = ()
    """For the commit; empty without a review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """The change to review."""

    base: str
    """The tree or commit to compare with."""
    tree: str
    gate: GateResult


def read_rounds(attempt: OpenAttempt) -> tuple[Round, ...]:
    """Return the reviews of the attempt's phase, oldest first."""
    return tuple(
        Round(
            number=review.number,
            tree=review.tree,
            findings=tuple(filter(None, map(parse_finding_json, review.findings))),
        )
        for review in attempt.carried.reviews
    )


def review_work(
    ctx: RunContext, candidate: Candidate, owned: Sequence[str], after: str, gate: GateResult
) -> Reviewed | Refused:
    """Review work that has passed the gate, if the settings ask for it and it has not been reviewed.

    Args:
        after: The work tree's tree after the gate.

    Returns:
        Refused if faults were confirmed, a session is still open, or no reviewer could be asked.
    """
    attempt, base = candidate.attempt, _find_base(ctx, candidate)
    if is_untouched(attempt) and not attempt.carried.is_unchecked and (merged := find_merged(ctx.repo, attempt)):
        return Reviewed(
            attempt=attempt, trailers=tuple((REVIEW, words) for words in merged.get_all(REVIEW))
        )  # reviewed before
    if base is None:
        return Reviewed(attempt=attempt)
    rounds = read_rounds(attempt)
    entries = read_entries(ctx.repo, after, owned)
    files = [(path, *entries.get(path, (ABSENT, ctx.repo.zero_id))) for path in owned]
    tree = write_paths_tree(ctx.repo, files, start=attempt.base_head or ctx.repo.empty_tree)
    if rounds and (rounds[-1].tree == tree or len(rounds) >= MAX_ROUNDS):
        return _pass(ctx.observe, attempt, rounds, is_same=rounds[-1].tree == tree)
    if candidate.in_session:
        return Refused(for_user="finished; its review comes first", for_review=True)
    change = _Change(base=rounds[-1].tree if rounds else base, tree=tree, gate=gate)
    return _hold_round(ctx, candidate, rounds, change)


def _find_base(ctx: RunContext, candidate: Candidate) -> str | None:
    """Return the base of the change; None if nothing is to be reviewed."""
    head = candidate.attempt.base_head
    match ctx.settings.review:
        case "phase" if candidate.status == "done":
            return head or ctx.repo.empty_tree
        case "plan" if candidate.status == "done" and candidate.pending.plan.done:
            worked = [c for c in read_plan_commits(ctx.repo, ctx.plan_path) if c.status in trailers.ATTEMPT_STATUSES]
            return next(iter(worked[-1].parents), ctx.repo.empty_tree) if worked else head or ctx.repo.empty_tree
        case _:
            return None


def _pass(observe: Observe, attempt: OpenAttempt, rounds: Sequence[Round], *, is_same: bool) -> Reviewed:
    """Accept the work: no fault was confirmed, nothing has changed since, or there were enough rounds."""
    last, found = rounds[-1], sum(len(one.findings) for one in rounds)
    confirmed = sum(len(one.confirmed) for one in rounds)
    left = last.confirmed if is_same else ()
    for finding in left:
        words = f"confirmed by review, and not changed by the session: {render_finding(finding)}"
        observe(Noticed(text=words, warning=True))
    every = tuple(finding for one in rounds for finding in one.findings)
    last_seen = "" if is_same else " repair=unreviewed"
    counts = f"rounds={last.number} found={found} confirmed={confirmed} open={len(left)}"
    return Reviewed(attempt=attempt, trailers=((REVIEW, f"{counts}{last_seen} {compute_digest(every)}"),))


def _hold_round(ctx: RunContext, candidate: Candidate, rounds: Sequence[Round], change: _Change) -> Reviewed | Refused:
    attempt, number, author = candidate.attempt, len(rounds) + 1, candidate.attempt.author
    cap = ReviewCap(ctx)

    def begin_session() -> str:
        nonlocal attempt
        session_id = ctx.new_id()
        attempt = _put_session(ctx.repo, attempt, session_id, ctx.meter.unrecorded)
        return session_id

    with ctx.open_reading(SessionKind.REVIEW) as workspace:
        phase = candidate.phase
        reviewers = find_reviewers(
            ctx, workspace, phase_id=phase.id, new_id=begin_session, runner=phase.runner, cap=cap
        )
        found = review(reviewers, _brief(ctx, candidate, rounds, change))
    attempt = _put_session(ctx.repo, attempt, author, ctx.meter.unrecorded)
    if isinstance(found, Incomplete):
        return _end_incomplete(ctx, candidate, attempt, found, is_capped=cap.met)
    held = Round(number=number, tree=change.tree, findings=found)
    ctx.observe(
        ReviewFinished(
            phase_id=candidate.phase.id,
            round=number,
            findings=show_findings(found),
            confirmed=len(held.confirmed),
        )
    )
    attempt = _save(ctx, candidate, attempt, held)
    if not held.confirmed:
        return _pass(ctx.observe, attempt, (*rounds, held), is_same=True)
    words = f"a review confirmed {count(len(held.confirmed), 'fault')}"
    first = render_finding(held.confirmed[0])
    return Refused(for_user=f"{words}: {first}", for_model=render_numbered(held.confirmed), for_review=True)


def _brief(ctx: RunContext, candidate: Candidate, rounds: Sequence[Round], change: _Change) -> ReviewBriefing:
    plan, phase = candidate.pending.plan, candidate.phase
    task = plan.text if ctx.settings.review == "plan" else plan.text[phase.start : phase.end]
    checks = [f"- `{check.command}` ({check.status})" for check in change.gate.commands]
    patch = read_patch(ctx.repo, change.base, change.tree, most_bytes=MAX_PATCH_BYTES)
    return ReviewBriefing(
        task=task.strip(),
        patch=redact(patch, environ_values=ctx.secret_values),
        gate="\n".join(checks),
        earlier=render_numbered(rounds[-1].confirmed) if rounds else "",
    )


def find_reviewers(
    ctx: RunContext,
    workspace: Workspace,
    *,
    phase_id: str,
    new_id: Callable[[], str],
    runner: str = "",
    cap: "ReviewCap | None" = None,
) -> Readers:
    """Return the reviewers of the settings.

    Args:
        workspace: Read-only.
        phase_id: May be empty.
        new_id: Called when one of the sessions begins.
        runner: The runner for sessions without a reviewer's runner in the settings; may be empty.
        cap: The cap of the round; None where the review is all that is paid for: the plan's cap holds alone.

    Raises:
        RelayError: The runner, or its key, is missing.
    """
    roles = ctx.settings.roles
    wish = roles.review_runner or runner
    asked = ctx.sessions.ask_model(roles.review or ctx.settings.model, wish)
    return Readers(
        ctx=ctx,
        sessions=replace(
            asked,
            check_budget=partial(cap.check, price=asked.price) if cap else asked.check_budget,
            sandbox=workspace.sandbox,
        ),
        workspace=workspace,
        runner=wish,
        new_id=new_id,
        phase_id=phase_id,
    )


class ReviewCap:
    """The cap of one round. Mutable: it remembers whether it was reached."""

    def __init__(self, ctx: RunContext) -> None:
        settings = ctx.settings
        whole = settings.max_phase_cost_usd if settings.max_phase_cost_usd is not None else settings.max_cost_usd
        self._cap = None if whole is None else whole * _CAP_PART
        self._ctx = ctx
        self._before = ctx.meter.total.cost_usd
        self.met = False

    def check(self, prompt_tokens: int, output_tokens: int, *, price: Price | None) -> str | None:
        """Return why a request must not be sent; None if this cap and those of phase and plan hold."""
        now = self._ctx.meter.total.cost_usd
        if self._cap is not None and price is not None and now is not None and self._before is not None:
            worst = worst_cost_usd(prompt_tokens, output_tokens, price)
            if now - self._before + worst > self._cap:
                self.met = True
                return f"the review may cost {self._cap:.2f} USD"
        return self._ctx.sessions.check_budget(prompt_tokens, output_tokens)


def _end_incomplete(
    ctx: RunContext, candidate: Candidate, attempt: OpenAttempt, found: Incomplete, *, is_capped: bool
) -> Reviewed | Refused:
    """Accept the work if a further review would end in the same way; else it waits for another run."""
    if is_capped or found.end in _ITS_OWN:
        ctx.observe(Noticed(text=f"not reviewed: {found.detail}", warning=True))
        # Leave out the detail: it may be an endpoint's text, and forges obey some words.
        return Reviewed(attempt=attempt, trailers=((REVIEW, f"none: {'its cap was met' if is_capped else found.end}"),))
    if found.retry_at is not None:
        _save(ctx, candidate, attempt, None, note_wait(found.retry_at, ctx.settings.model))
    return Refused(for_user=found.detail)


def _put_session(repo: Repo, attempt: OpenAttempt, session_id: str, spend: Spent) -> OpenAttempt:
    """Put another session's id on the attempt, so that its spend is found after a kill."""
    start = AttemptStart(
        session_id=session_id,
        phase_id=attempt.phase_id,
        plan_path=attempt.plan_path,
        course=attempt.course,
    )
    return continue_attempt(repo, replace(attempt, spend=spend), start)


def _save(
    ctx: RunContext,
    candidate: Candidate,
    attempt: OpenAttempt,
    held: Round | None,
    wait: Mapping[str, Any] | None = None,
) -> OpenAttempt:
    """Save a round's findings; work with confirmed faults is no longer proposed."""
    last, reviews = attempt.ending, tuple[ReviewNote, ...]()
    ending = Ending(end=last.end, error=last.error, proposed=last.proposed, **(wait or {}))
    if held is not None:
        lines = (redact(render_finding_json(finding), environ_values=ctx.secret_values) for finding in held.findings)
        confirmed = len(held.confirmed)
        reviews = (ReviewNote(number=held.number, tree=held.tree, confirmed=confirmed, findings=tuple(lines)),)
        ending = structs.replace(ending, proposed=None) if confirmed else ending
    record = WipRecord(
        spend=ctx.meter.unrecorded,
        items=candidate.pending.claimed_ids,
        handoff_note=attempt.handoff_note,
        replace=candidate.pending.render_files(ctx.plan_path, ctx.ledger_path),
        carried=Carried(reviews=reviews),
        ending=ending,
    )
    return save_wip(ctx.repo, attempt, record)


MAX_TASK_CHARS = 20_000
"""Most characters of the messages of a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The commits to review."""

    name: str
    """For the user."""
    phase_id: str
    """Empty for a range that is no phase."""
    base: str
    """A commit, or the empty tree."""
    tip: str
    task: str
    """The task of the commits, for the model."""


def get_range(files: PlanFiles, what: str) -> Range:
    """Return the commits of a phase or a range; with an empty `what`, those of the last finished phase.

    Raises:
        PlanError: No phase is done, or the phase is not.
        RepoError: Git knows no such range.
    """
    commits = [c for c in read_plan_commits(files.repo, files.plan_path) if c.status in ATTEMPT_STATUSES and c.phase]
    phase_id = what or next((commit.phase for commit in commits if commit.status == "done"), "")
    own = [commit for commit in commits if commit.phase == phase_id]
    plan = find_plan(files, "HEAD") if what and not own else None
    if own or (plan and plan.find_phase(phase_id)):
        return _get_phase_range(files, phase_id, own)
    if not what:
        raise PlanError("no phase of the plan is done yet", hint="relay review main..HEAD reviews any range")
    return _read_range(files, what)


def _get_phase_range(files: PlanFiles, phase_id: str, own: list[RelayCommit]) -> Range:
    if not any(commit.status == "done" for commit in own):
        raise PlanError(f"phase {phase_id} is not done", hint=STATUS)
    plan = find_plan(files, own[0].commit)
    phase = plan.find_phase(phase_id) if plan else None
    task = plan.text[phase.start : phase.end].strip() if plan and phase else own[0].subject
    base = next(iter(own[-1].parents), files.repo.empty_tree)
    return Range(name=f"phase {phase_id}", phase_id=phase_id, base=base, tip=own[0].commit, task=task)


def _read_range(files: PlanFiles, what: str) -> Range:
    first, dots, last = what.partition("..")
    tip = _get_commit(files, (last.removeprefix(".") if dots else what) or "HEAD", what)
    if dots:
        base = _get_commit(files, first or "HEAD", what)
    else:  # one commit, as for `git show`
        base = next(iter(read_text(files.repo, tip).parents), files.repo.empty_tree)
    below = () if base == files.repo.empty_tree else (f"^{base}",)
    messages = (text.message for text in read_texts(files.repo.git, tip, *below, "--"))
    said = "\n\n".join(f"{message.subject}\n{message.body}".strip() for message in messages)[:MAX_TASK_CHARS]
    # Quoted: the author of the commits must not write another part of the message.
    task = "\n".join(f"> {line}" for line in ("The messages of its commits:", "", *said.splitlines()))
    return Range(name=what, phase_id="", base=base, tip=tip, task=task)


def _get_commit(files: PlanFiles, name: str, what: str) -> str:
    found = files.repo.git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found is None:
        raise RepoError(f"{what!r} is neither a phase of the plan nor a range", hint="relay review 2, or main..HEAD")
    return found.decode()


def review_range(
    ctx: RunContext, chosen: Range, *, turned: bool = False
) -> tuple[RunEnd, tuple[ReviewFinding, ...] | None]:
    """Review a range; return the end of the command, and the findings, None if the review has no result.

    Args:
        turned: Show the changed files in the opposite order.
    """
    patch = read_patch(ctx.repo, chosen.base, chosen.tip, most_bytes=MAX_PATCH_BYTES, turned=turned)
    changed = frozenset(change.path for change in diff_trees(ctx.repo, chosen.base, chosen.tip))
    if not changed:
        return ctx.end(ExitCode.DONE, f"{chosen.name} changes nothing"), ()
    ctx = _without_changed_rules(ctx, changed)
    briefing = ReviewBriefing(task=chosen.task, patch=redact(patch, environ_values=ctx.secret_values), gate="")
    with ExitStack() as kept:

        def begin_session() -> str:
            kept.close()
            session_id = ctx.new_id()
            kept.enter_context(keeping_spent(ctx.repo, ctx.plan_path, session_id, lambda: ctx.meter.session))
            return session_id

        reviewers = find_reviewers(ctx, ctx.workspace, phase_id=chosen.phase_id, new_id=begin_session)
        found = review(reviewers, briefing)
    if isinstance(found, Incomplete):
        code = ExitCode.USER if found.end is SessionEnd.DENIED else ExitCode.STOPPED
        code = ExitCode.INTERRUPTED if ctx.interrupts.finish_turn else code
        return ctx.end(code, found.detail), None
    confirmed = len(list_confirmed(found))
    ctx.observe(
        ReviewFinished(
            phase_id=chosen.phase_id,
            round=1,
            findings=show_findings(found),
            confirmed=confirmed,
        )
    )
    code = ExitCode.STOPPED if confirmed else ExitCode.DONE
    return ctx.end(code, f"{chosen.name}: {count(len(found), 'finding')}, {confirmed} confirmed"), found


def _without_changed_rules(ctx: RunContext, changed: frozenset[str]) -> RunContext:
    """Remove rules that the range changes: they are under review, and must not steer their reviewers."""
    root = ctx.repo.root.resolve()
    real = {os.path.relpath((root / file.path).resolve(), root) for file in ctx.rules.files}
    if found := sorted(changed & (real | {file.path for file in ctx.rules.files})):
        words = f"the range changes {list_paths(found)}: its reviewers do not get these rules"
        ctx.observe(Noticed(text=words))
        return replace(ctx, rules=Rules())
    return ctx

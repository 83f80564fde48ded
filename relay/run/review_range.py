"""A review that somebody asks for by hand: of a phase that is committed, or of any range. Nothing is changed."""

import os
from contextlib import ExitStack
from dataclasses import replace

from relay.base.errors import ExitCode, PlanError, RepoError
from relay.base.hints import STATUS
from relay.base.redaction import redact
from relay.base.values import dataclass
from relay.base.words import count
from relay.git.message import read_text, read_texts
from relay.git.names import list_paths
from relay.git.objects import diff_trees, read_patch
from relay.prompts.texts import ReviewBriefing
from relay.run.commit.plan_commit import find_plan
from relay.run.commit.review import MAX_PATCH_BYTES, find_reviewers
from relay.run.review import Incomplete, ReviewFinding, list_confirmed, review, show_findings
from relay.session.events import Noticed, ReviewFinished
from relay.session.values import SessionEnd
from relay.setup.context import PlanFiles, RunContext, RunEnd
from relay.setup.rules import Rules
from relay.store.history import RelayCommit, read_plan_commits
from relay.store.spend_records import keeping_spent
from relay.store.trailers import LEG_STATUSES

MAX_TASK_CHARS = 20_000
"""Of the messages of a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What is reviewed."""

    name: str
    """For the user."""
    phase_id: str
    """Empty for what is no phase's."""
    base: str
    tip: str
    """Commits; `base` may be the empty tree."""
    task: str
    """What was to be done, for the model."""


def get_range(files: PlanFiles, what: str) -> Range:
    """Return the commits that a phase's id or a range names; without either those of the phase that was done last.

    Raises:
        PlanError: No phase is done, or that one is not.
        RepoError: Git knows no such range.
    """
    commits = [c for c in read_plan_commits(files.repo, files.plan_path) if c.status in LEG_STATUSES and c.phase]
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
    else:  # one commit, as of `git show`; the first one has none before it
        base = next(iter(read_text(files.repo, tip).parents), files.repo.empty_tree)
    below = () if base == files.repo.empty_tree else (f"^{base}",)
    messages = (text.message for text in read_texts(files.repo.git, tip, *below, "--"))
    said = "\n\n".join(f"{message.subject}\n{message.body}".strip() for message in messages)[:MAX_TASK_CHARS]
    # Quoted: whoever made the commits is not to write another part of the message.
    task = "\n".join(f"> {line}" for line in ("The messages of its commits:", "", *said.splitlines()))
    return Range(name=what, phase_id="", base=base, tip=tip, task=task)


def _get_commit(files: PlanFiles, name: str, what: str) -> str:
    found = files.repo.git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found is None:
        raise RepoError(f"{what!r} is neither a phase of the plan nor a range", hint="relay review 2, or main..HEAD")
    return found.decode()


def review_range(ctx: RunContext, chosen: Range) -> tuple[RunEnd, tuple[ReviewFinding, ...] | None]:
    """Have it reviewed; return how the command ends, and what was found, None where the review came to no end."""
    patch = read_patch(ctx.repo, chosen.base, chosen.tip, most_bytes=MAX_PATCH_BYTES)
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
    """Leave out rules that the change brings: they are what is reviewed, and no word of it is an order."""
    root = ctx.repo.root.resolve()
    real = {os.path.relpath((root / file.path).resolve(), root) for file in ctx.rules.files}
    if found := sorted(changed & (real | {file.path for file in ctx.rules.files})):
        words = f"{list_paths(found)} is changed by what is reviewed: it is no rule of its reviewers"
        ctx.observe(Noticed(text=words))
        return replace(ctx, rules=Rules())
    return ctx

"""Committing once more what a session has finished, where nothing but the commit failed: no other session is paid for.

The branch had moved, files were saved while they were checked, git or a signature said no. What the session claimed is
in its last snapshot, marked as proposed; the gate runs again on what is there now.
"""

from dataclasses import replace

from relay.plan.model import Plan
from relay.run.commit.candidate import Candidate, PhaseCommit, Refused
from relay.run.commit.landing_leg import is_untouched, list_commands
from relay.run.commit.review import find_author
from relay.run.commit.step import commit_leg
from relay.run.leg.plan_view import render_plan
from relay.run.leg.start import get_leg_phase, read_baseline, read_number, read_pending
from relay.run.resume.rescue import withdraw_proposal
from relay.session.events import Noticed
from relay.setup.context import RunContext
from relay.store.legs import OpenLeg
from relay.store.session_changes import watch_sessions
from relay.store.session_ends import find_proposal, has_ended_with


def commit_proposed(ctx: RunContext, plan: Plan, leg: OpenLeg) -> PhaseCommit | Refused | None:
    """Commit what the leg's last session proposed; None when it proposed nothing, or work of the phase is left.

    Args:
        plan: As HEAD has it.
        leg: With its newest snapshot, which is the work tree as it is.
    """
    subject = find_proposal(leg)
    if subject is None:
        return None
    pending = read_pending(ctx.files, plan, leg)
    phase = get_leg_phase(pending, leg)
    if phase.open_items:
        return None
    then = "its work is checked again, without another session" if ctx.settings.review == "off" else "now its review"
    words = f"session {find_author(leg)} has finished phase {phase.id}; {then}"
    if is_untouched(leg):
        whose = "was done elsewhere and" if leg.is_unchecked else "is"
        words = f"phase {phase.id} {whose} merged with what others have landed; its gate, and theirs, are run on that"
    ctx.observe(Noticed(text=words))
    candidate = Candidate(
        phase=phase,
        leg=leg,
        number=read_number(leg),
        pending=pending,
        evidence={},
        touched=frozenset(),
        commands=list_commands(ctx.repo, ctx.settings, leg, plan, phase),
        baseline=read_baseline(leg),
        subject=subject,
        status="done",
        baton="",
        in_session=False,
    )
    with watch_sessions(ctx.repo, ctx.workspace.sandbox.guarded):
        made = _commit_twice(ctx, candidate)
    if isinstance(made, PhaseCommit):
        ctx.observe(render_plan(pending.plan, committed=pending.plan))
        return made
    if is_untouched(leg) and made.for_model and not made.again:
        # Its next session is to know what it has to repair: it did not see this gate.
        withdraw_proposal(ctx.files, leg, made.for_model)
        ctx.observe(Noticed(text=f"phase {phase.id}, merged: {made.for_user}", warning=True))
        return replace(made, for_review=True)
    if made.once and has_ended_with(leg, "gate", made.for_user):
        return replace(made, for_model="")  # its session was told, and so would the next one be
    return made


def _commit_twice(ctx: RunContext, candidate: Candidate) -> PhaseCommit | Refused:
    """Commit, and once more where that may well help; then a session is not asked to repair what is the machine's."""
    made = commit_leg(ctx, candidate)
    if isinstance(made, PhaseCommit) or not made.again or ctx.interrupts.finish_turn:
        return made
    if ctx.repo.head() != candidate.leg.base_head:
        return made
    ctx.observe(Noticed(text=f"{made.for_user}; it is tried once more", warning=True))
    made = commit_leg(ctx, candidate)
    return replace(made, for_model="") if isinstance(made, Refused) and made.again else made

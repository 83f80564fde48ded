"""The message of a phase's commit."""

from relay.base.redaction import redact
from relay.base.words import name_item
from relay.gate.model import Outcome
from relay.git.message import Message, disarm
from relay.git.names import render_path
from relay.plan.model import Item
from relay.run.commit.candidate import Candidate, PendingPlan
from relay.run.commit.gates import GateRun
from relay.run.commit.plan_commit import SUBJECT_CHARS, list_other_subjects, render_subject
from relay.run.commit.readiness import find_merged, render_merge
from relay.setup.context import RunContext
from relay.store import trailers
from relay.store.trailers import AMENDED, LEG

BATON_TITLE = "Baton:"
"""Line of a hand-off commit's body after which the baton stands."""
LINE_CHARS = 100
"""Of a line of the body. Source: @commitlint/config-conventional, body-max-line-length."""


def make_commit_message(
    ctx: RunContext, candidate: Candidate, run: GateRun, doubts: tuple[tuple[str, str], ...]
) -> Message:
    """Return the message of a phase's commit: subject, ticked items with their evidence, baton, trailers.

    Args:
        doubts: Trailers that say what speaks against a tick.
    """
    pending, runner = candidate.pending, ctx.sessions.find_runner(candidate.phase.runner)
    merged = find_merged(ctx.repo, candidate.leg)
    earlier = trailers.parse_evidence(candidate.leg.carried)
    ticked = "\n".join(
        _render_tick(item, candidate.evidence.get(item.id) or earlier.get(item.text, "")) for item in pending.claims
    )
    # One paragraph: what follows an empty line would not be the baton any more when it is read back.
    baton = f"{BATON_TITLE}\n{candidate.baton}" if candidate.baton and candidate.status == "handoff" else ""
    spent = ctx.meter.unrecorded
    return Message(
        subject=merged.message.subject if merged else choose_subject(ctx, candidate),
        body=merged.message.body
        if merged
        else _make_harmless(candidate, "\n\n".join(part for part in (ticked, baton) if part), ctx.secret_values),
        trailers=(
            (trailers.PLAN, render_path(ctx.plan_path)),
            (trailers.PHASE, candidate.phase.id),
            (trailers.STATUS, candidate.status),
            (trailers.ITEMS, " ".join(pending.claimed_ids)),
            *_render_amended(pending),
            (trailers.SESSION, candidate.leg.session_id),
            (LEG, str(candidate.number)),
            (trailers.GATE, _render_gate(run)),
            *(render_merge(merged, run.result.digest) if merged else ()),
            *doubts,
            (trailers.SANDBOX, ctx.workspace.sandbox.mechanism),
            *trailers.render_hooks(ctx.settings.hooks),
            *(_render_carried(candidate) if candidate.status == "handoff" else ()),
            *trailers.render_agent(runner.agent, runner.metering),
            *trailers.render_spent(spent),
        ),
    )


def _render_carried(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    """Return what the phase's next session takes along."""
    trial = tuple(mark for mark in candidate.leg.trailers if mark[0] == trailers.TRIAL)
    return (*trailers.render_said(candidate.leg.said), *trial)


def _render_amended(pending: PendingPlan) -> tuple[tuple[str, str], ...]:
    """Return the trailer that names the phases which sessions changed beyond their boxes; nothing without one."""
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
    """Break a line that is longer than hooks for commit messages take."""
    if len(line) <= LINE_CHARS:
        return line
    import textwrap

    return textwrap.fill(line, LINE_CHARS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _render_gate(run: GateRun) -> str:
    """Return ``pass <digest>``, or ``none`` where it proved nothing, with two numbers where they are not 0.

    ``red-before`` counts the commands that stayed red as they were before the phase, ``seen`` the paths that the gate
    could see and the commit does not hold.
    """
    gate = run.result
    if not gate.commands:
        return "none"
    red = sum(check.status is not Outcome.PASSED for check in gate.commands)
    seen = 0 if run.is_hidden else len(run.surplus.paths)
    word = "none" if run.verdict.is_unproven else "pass"
    return f"{word} {gate.digest}" + (f" red-before={red}" if red else "") + (f" seen={seen}" if seen else "")


def choose_subject(ctx: RunContext, candidate: Candidate) -> str:
    """Return the session's subject, made harmless, when it is one short printable line, else relay's own."""
    subject = candidate.subject.strip()
    if not subject or len(subject) > SUBJECT_CHARS or not subject.isprintable():
        subject = render_subject(_name(candidate), ctx.settings)
    return _make_harmless(candidate, subject, ctx.secret_values)


def list_subjects(ctx: RunContext, candidate: Candidate) -> tuple[str, ...]:
    """Return what else the subject may be where a hook refuses the chosen one: its words in another form, then ours."""
    subject = candidate.subject.strip()
    words = [subject] if subject and len(subject) <= SUBJECT_CHARS and subject.isprintable() else []
    found = (other for text in (*words, _name(candidate)) for other in list_other_subjects(text, ctx.settings))
    return tuple(_make_harmless(candidate, other, ctx.secret_values) for other in found)


def _name(candidate: Candidate) -> str:
    return f"phase {candidate.phase.id} — {candidate.phase.title}"


def _make_harmless(candidate: Candidate, text: str, secret_values: tuple[str, ...]) -> str:
    """Take secrets out of a session's text, and orders to a forge that the plan does not give."""
    return disarm(redact(text, environ_values=secret_values), given=candidate.pending.plan.text)

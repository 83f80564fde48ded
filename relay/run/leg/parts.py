"""What a run gives to a leg: tools in a sandbox, a keeper that stores in git, the commit step."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from relay.prompts.texts import render_runner_system
from relay.run.commit.candidate import Candidate, PhaseCommit, Proposal, Refused
from relay.run.commit.step import commit_leg
from relay.run.leg.keeper import Keeper
from relay.run.leg.session import LegParts
from relay.run.leg.start import Handover
from relay.session.events import Noticed
from relay.setup.context import RunContext
from relay.store.presence import list_beside
from relay.tools.notes import LegNotes
from relay.tools.secret_check import refuse_secrets
from relay.tools.toolbox import Toolbox, build_runner_tools


def make_parts(ctx: RunContext, handover: Handover) -> LegParts:
    """Return what the leg works with that starts from `handover`."""
    notes = LegNotes(
        plan=handover.briefing.plan,
        phase=handover.briefing.phase,
        ledger=handover.pending.ledger,
        find_beside=partial(list_beside, ctx.repo),
    )

    def keep(path: str) -> bool:
        return keeper.keep_found(path)  # made below: it asks what the tools run in the background

    def look() -> Callable[[], None]:
        return keeper.begin_look()

    toolbox = _add_servers(ctx, handover, build_runner_tools(ctx.workspace, notes, keep, look))
    keeper = Keeper(ctx, handover, notes, is_busy=toolbox.is_busy)
    return LegParts(
        system=render_runner_system(ctx.rules.text),
        notes=notes,
        toolbox=replace(toolbox, run=refuse_secrets(toolbox.run, ctx.secret_values)),
        keeper=keeper,
        commit=_make_commit(ctx, handover, notes, keeper),
    )


def _add_servers(ctx: RunContext, handover: Handover, toolbox: Toolbox) -> Toolbox:
    """Return the tools with those of the servers that the phase names."""
    phase = handover.briefing.phase
    if not phase.tools:
        return toolbox
    from relay.tools.servers import ask_servers

    served = ask_servers(phase.tools, ctx.settings.mcp_servers, ctx.workspace, ctx.environ)
    for words in served.notes:
        ctx.observe(Noticed(text=words, warning=" adds " not in words))
    return served.add_to(toolbox, ctx.workspace)


def _make_commit(
    ctx: RunContext, handover: Handover, notes: LegNotes, keeper: Keeper
) -> Callable[[Proposal], PhaseCommit | Refused]:
    def commit(proposal: Proposal) -> PhaseCommit | Refused:
        candidate = Candidate(
            phase=handover.briefing.phase,
            leg=keeper.leg,
            number=handover.number,
            pending=keeper.pending,
            evidence=notes.claims,
            touched=frozenset(notes.touched_paths),
            commands=handover.commands,
            baseline=handover.baseline,
            subject=proposal.subject,
            status=proposal.status,
            baton=keeper.render_baton(proposal.gate_words) if proposal.status == "handoff" else "",
        )
        made = commit_leg(ctx, candidate)
        if isinstance(made, PhaseCommit):
            keeper.show_plan(committed=True)
        return made

    return commit

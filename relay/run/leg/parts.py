"""What a run gives to a leg: tools in a sandbox, a keeper that stores in git, the commit step."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from relay.base.errors import PlanError
from relay.base.hints import DOCTOR
from relay.plan.model import Phase
from relay.prompts.texts import render_runner_system
from relay.run.commit.candidate import Candidate, PhaseCommit, Proposal, Refused
from relay.run.commit.step import commit_leg
from relay.run.leg.keeper import Keeper
from relay.run.leg.session import LegParts
from relay.run.leg.start import Handover
from relay.session.events import Noticed
from relay.setup.context import RunContext
from relay.store.refs import list_beside
from relay.tools.claims import LegNotes
from relay.tools.toolbox import build_runner_tools, refuse_secrets

if TYPE_CHECKING:
    from relay.tools.servers import Served


def make_parts(ctx: RunContext, handover: Handover, served: "Served | None") -> LegParts:
    """Return what the leg works with that starts from `handover`; of servers what `ask_for_tools` has found."""
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

    own = build_runner_tools(ctx.workspace, notes, keep, look)
    toolbox = served.add_to(own, ctx.workspace) if served else own
    keeper = Keeper(ctx, handover, notes, is_busy=toolbox.is_busy)
    return LegParts(
        system=render_runner_system(ctx.rules.text),
        notes=notes,
        toolbox=replace(toolbox, run=refuse_secrets(toolbox.run, ctx.secret_values)),
        keeper=keeper,
        commit=_make_commit(ctx, handover, notes, keeper),
    )


def ask_for_tools(ctx: RunContext, phase: Phase) -> "Served | None":
    """Return the tools of the servers that a phase names; None where it names none.

    Raises:
        PlanError: One of them is not there, and the user has not typed that phases go on all the same.
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

"""What a session leaves to the commit step, without a session."""

from collections.abc import Callable, Iterable, Iterator

from relay.ledger.model import Ledger
from relay.plan.model import Plan
from relay.plan.parse import parse_plan
from relay.run.attempt.start import begin_phase
from relay.run.commit.candidate import Candidate, PendingPlan, PhaseCommit, Refused
from relay.run.commit.step import commit_phase
from relay.setup.context import RunContext
from relay.store.snapshot import write_snapshot_tree

WHOLE = """
sessions:
  - name: whole
    turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep"}}]
      - {text: "Commit: Say hello", repeat: 5}
"""
"""The script of a phase that is done in its first session."""


def commit_claims(
    stage, ctx: RunContext, claim: Callable[[Plan], Plan], do: Callable[[], object] = lambda: None
) -> PhaseCommit | Refused:
    """Say hello as a session of phase 1 would, `do` more, and commit it with the plan that `claim` makes of HEAD's."""
    return next(commit_each(stage, ctx, [claim], do))


def commit_each(
    stage, ctx: RunContext, claims: Iterable[Callable[[Plan], Plan]], do: Callable[[], object] = lambda: None
) -> Iterator[PhaseCommit | Refused]:
    """Do the same for one plan after the other, until one is committed."""
    head = parse_plan((stage.root / "PLAN.md").read_text())
    handover = begin_phase(ctx, head, head.phases[0], write_snapshot_tree(ctx.repo), reason="")
    assert handover is not None
    stage.write("hello.txt", "hello\n")
    do()
    for claim in claims:
        candidate = Candidate(
            phase=head.phases[0],
            attempt=handover.attempt,
            number=1,
            pending=PendingPlan(head=head, plan=claim(head), ledger=Ledger()),
            evidence={},
            touched=frozenset(),
            commands=handover.commands,
            baseline=handover.baseline,
            subject="",
            status="done",
            handoff_note="",
        )
        yield commit_phase(ctx, candidate)

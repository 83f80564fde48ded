"""What `relay report` says of the ledger of the plan that was run, as it stands now."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.cli.screen import complain
from relay.errors import LedgerError, RepoError
from relay.plan.files import find_ledger_path

if TYPE_CHECKING:
    from relay.figures.values import Figures
    from relay.git.repository import Repo
    from relay.ledger import Judgement, Ledger


def read_ledger(repo: "Repo", figures: "Figures") -> "tuple[Ledger, Judgement] | None":
    """Read and judge the ledger of the plan that was run last; None where there is none that can be read."""
    from relay.files.tree import read_file
    from relay.ledger import judge, parse_ledger
    from relay.plan.encoding import decode_text
    from relay.state.staleness import find_stale_claims

    plans = [run.plan_path for run in figures.runs if Path(run.plan_path).name]
    if not plans:
        return None
    path = find_ledger_path(plans[-1])
    try:
        data = read_file(repo.root, path)
        ledger = parse_ledger(decode_text(data)) if data is not None else None
    except (LedgerError, RepoError, ValueError) as error:
        complain(f"{path} is not in the report: {error}")
        return None
    return None if ledger is None else (ledger, judge(ledger, find_stale_claims(repo, ledger)))


def render_ledger(ledger: "Ledger", judgement: "Judgement", figures: "Figures") -> dict[str, Any]:
    """Return what a ledger comes to, for machines: decisions and their cost, half-life, uses, contradictions."""
    from relay.ledger import Kind
    from relay.ledger.lives import find_half_life, find_lives, find_uses

    costs = {leg.session_id: leg.totals.usd_per_decision for leg in figures.legs}
    uses = find_uses(ledger)
    return {
        "half_life_s": find_half_life(find_lives(ledger, datetime.now(UTC)).values()),
        "claims": {name: str(judgement[name].status) for name in ledger.claims},
        "decisions": [
            {"id": claim.id, "phase": claim.stamp.phase, "usd": costs.get(claim.stamp.session)}
            for claim in ledger.claims.values()
            if claim.kind is Kind.DECISION
        ],
        "used_again": {name: list(users) for name, users in uses.items()},
        "contradictions": [{"id": n.id, "claims": list(n.claims)} for n in judgement.contradictions],
    }

"""`relay report` as a page, of one run or plan or of two side by side; and what it says of the plan's ledger."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.base.errors import LedgerError, RelayError, RepoError
from relay.cli.screen import clean_line, complain
from relay.config.extras import advise_extra
from relay.plan.files import find_ledger_path

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.insight.figures.values import Figures
    from relay.insight.report.beliefs import Beliefs
    from relay.insight.report.blocks import Page
    from relay.ledger import Judgement, Ledger

LIBRARIES = ("jinja2", "lets_plot")


def require_libraries(names: Sequence[str] = LIBRARIES) -> None:
    """Look for what draws the page, before any log is read.

    Raises:
        RelayError: Some of it is not installed.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise RelayError(
            f"the page is drawn by {' and '.join(missing)}, which relay is installed without",
            hint=f"{advise_extra('report')}; relay report --text needs none",
        )


def build_page(repo: "Repo", found: "Sequence[Figures]") -> "Page":
    """Return what is said of one run or plan, or of the two that stand side by side."""
    from relay.insight.report.contents import make_comparison, make_page

    one, *others = found
    return make_comparison(one, others[0]) if others else make_page(one, _read_beliefs(repo, one))


def write_page(repo: "Repo", found: "Sequence[Figures]", page: "Page", output: str | None) -> Path:
    """Draw a page and put it where it belongs; return where.

    Args:
        repo: Whose logs and ledger they are.
        found: What the page is of, for its name.
        output: The file that the user named; None for relay's own folder.

    Raises:
        RelayError: It cannot be written.
    """
    from relay.insight.report.destination import save_page, save_page_as
    from relay.insight.report.page import render_page

    html = render_page(page, clean=clean_line)
    if output is not None:
        return save_page_as(Path(output), html)
    return save_page(repo.root, "-".join(map(_name, found)), html)


def _name(figures: "Figures") -> str:
    """Return a run's id, or the plan's name for all of its runs."""
    last = figures.runs[-1] if figures.runs else None
    return "" if last is None else last.run_id if len(figures.runs) == 1 else last.plan_path


def _read_beliefs(repo: "Repo", figures: "Figures") -> "Beliefs | None":
    from relay.insight.report.beliefs import Beliefs

    found = find_last_ledger(repo, figures)
    return Beliefs(ledger=found[0], judgement=found[1], now=datetime.now(UTC)) if found else None


def find_last_ledger(repo: "Repo", figures: "Figures") -> "tuple[Ledger, Judgement] | None":
    """Read and judge the ledger of the plan that was run last; None where there is none that can be read."""
    from relay.base.tree import read_file
    from relay.ledger import judge, parse_ledger
    from relay.plan.files import decode_text
    from relay.store.staleness import find_stale_claims

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
    from relay.ledger.belief import find_half_life, find_lives, find_uses

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

"""The section on beliefs: what decisions cost, how long claims hold, what was used again, what contradicts what."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from relay.base.values import dataclass
from relay.base.words import count, list_some, render_span
from relay.insight.figures.values import Figures, LegFigures
from relay.insight.report import blocks
from relay.insight.report.blocks import Chapter, make_table
from relay.insight.report.wording import NOTHING, cut_id, render_per_decision
from relay.ledger import Belief, Claim, ClaimStatus, Judgement, Kind, Ledger, Nogood
from relay.ledger.belief import find_half_life, find_lives, find_uses


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """The ledger of a plan as it stands."""

    ledger: Ledger
    judgement: Judgement
    now: datetime
    """With a time zone."""


def find_worries(beliefs: Beliefs) -> Iterator[str]:
    """Yield the contradictions that somebody has to settle; that claims are stale, the run itself has warned of."""
    for nogood in beliefs.judgement.contradictions:
        held = _find_held_constraints(nogood, beliefs)
        against = f" (against the constraint {', '.join(held)}, which holds)" if held else ""
        yield f"{nogood.id}: {' and '.join(nogood.claims)} cannot both hold{against}: {nogood.because}"


def _find_held_constraints(nogood: Nogood, beliefs: Beliefs) -> tuple[str, ...]:
    claims = beliefs.ledger.claims
    return tuple(
        name
        for name in nogood.claims
        if name in claims
        and claims[name].kind is Kind.CONSTRAINT
        and beliefs.judgement[name].status is not ClaimStatus.OUT
    )


def show_beliefs(beliefs: Beliefs, figures: Figures) -> Chapter:
    """Show decisions and what became of them."""
    claims = list(beliefs.ledger.claims.values())
    lives = find_lives(beliefs.ledger, beliefs.now)
    uses = find_uses(beliefs.ledger)
    half_life = find_half_life(lives.values())
    held = sum(beliefs.judgement[claim.id].status is ClaimStatus.IN for claim in claims)
    age = "unknown, since fewer than half were ever taken back or replaced"
    if half_life is not None:
        age = f"{render_span(half_life)}: by then half of them are out"
    lead = (
        f"{count(len(claims), 'claim')}, {held} of them hold; {len(uses)} were used again, by another session or a "
        f"person. Belief half-life: {age}."
    )
    legs = {leg.session_id: leg for leg in figures.legs}
    decisions = [claim for claim in claims if claim.kind is Kind.DECISION]
    others = [claim for claim in claims if claim.kind is not Kind.DECISION]
    tables = [
        _list_claims("Decisions and what they cost", decisions, beliefs, legs, uses),
        _list_claims("Constraints, warnings, observations, dead ends", others, beliefs, legs, uses),
        _list_contradictions(beliefs),
    ]
    return Chapter(name="beliefs", title="Beliefs", lead=lead, tables=tuple(tables))


def _list_claims(
    caption: str,
    claims: Sequence[Claim],
    beliefs: Beliefs,
    legs: Mapping[str, LegFigures],
    uses: Mapping[str, tuple[str, ...]],
) -> blocks.Table:
    columns = "`Id`, Kind, Claim, Because, Stands, Phase, #Cost, Used again by"
    rows = (
        (
            claim.id,
            str(claim.kind),
            claim.claim,
            claim.because,
            _say(beliefs.judgement[claim.id]),
            claim.stamp.phase or NOTHING,
            _cost(claim, legs),
            list_some([cut_id(user) or "a person" for user in uses.get(claim.id, ())], 4) or NOTHING,
        )
        for claim in claims
    )
    return make_table(caption, columns, rows)


def _say(belief: Belief) -> str:
    return f"{belief.status}: {belief.because}" if belief.because else str(belief.status)


def _cost(claim: Claim, legs: Mapping[str, LegFigures]) -> str:
    """Write what a decision of the session that said it cost; a dash where this log has no such session."""
    leg = legs.get(claim.stamp.session)
    return NOTHING if leg is None else render_per_decision(leg.totals)


def _list_contradictions(beliefs: Beliefs) -> blocks.Table:
    columns = "`Id`, `Cannot all hold`, Because, `Constraints that hold`"
    rows = (
        (n.id, ", ".join(n.claims), n.because, ", ".join(_find_held_constraints(n, beliefs)) or NOTHING)
        for n in beliefs.judgement.contradictions
    )
    return make_table("Contradictions that nobody has settled", columns, rows)

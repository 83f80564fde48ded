"""What sessions did with what they were shown, and what went wrong by how full they were, over all logs."""

from collections.abc import Iterable, Iterator

from relay.insight.database import Row
from relay.insight.figures import Figures, sum_retrieved
from relay.lab.statistics import find_rate
from relay.session.gauge import Band
from relay.session.usage import add_usd


def measure_use(found: Iterable[Figures]) -> list[Row]:
    """Return the use of each kind but the ledger, which `measure_ledger` has: a rate with its interval.

    ``history`` is of the tokens behind the first message, which are no sample: superseded and unused ones were of none.
    """
    sessions = [session for figures in found for session in figures.sessions]
    known = [one for one in sum_retrieved(sessions) if one.kind != "ledger"]
    uses = [Row(**vars(one), rate=find_rate(one.used, one.shown)) for one in known]
    measured = [session for session in sessions if session.signal is not None]
    if history := sum(session.history_tokens for session in measured):
        rest = max(0, history - sum(session.superseded_tokens + session.unused_tokens for session in measured))
        uses.append(Row(kind="history", shown=history, used=rest, rate=None, tokens=history))
    return uses


_RATES = {
    "errors": ("errors", "calls"),
    "duplicates": ("duplicates", "shown"),
    "ghosts": ("ghosts", "changed"),
    "repairs": ("red_gates", "gates"),
}
"""Columns of ``faults`` that are a part of others: failed calls, unchanged parts of files among all that were shown,
files edited from forgotten memory among all that were changed, red gates."""


def measure_bands(found: Iterable[Figures]) -> Iterator[Row]:
    """Yield the rates of faults by fill; `sessions`: those that reached the band.

    They cannot advise a line: only a part that was shown can be shown again, and tests run when something is changed.
    So both rates rise with the fill even if nothing depends on it.
    """
    counts = [vars(row) for figures in found for session in figures.sessions for row in session.bands]
    for band in Band:
        own = [row for row in counts if row["band"] == band]
        rates = {
            name: find_rate(sum(row[part] for row in own), sum(row[of] for row in own))
            for name, (part, of) in _RATES.items()
        }
        yield Row(band=band.value, sessions=len(own), turns=sum(row["turns"] for row in own), **rates)


def count_rungs(found: Iterable[Figures]) -> list[Row]:
    """Return what each change of model or effort in mid-phase led to; each figures are of one plan.

    A `rung` is as in the setting `escalate`, or ``fallback=ID``. `phases` had it; `done`: those of them that are done,
    with no further change; the cost is that of their sessions from this change to the next.
    """
    rungs: dict[str, Row] = {}
    held: dict[tuple[int, str, str], bool] = {}
    for plan, figures in enumerate(found):
        done = {phase.phase_id for phase in figures.phases if phase.is_done}
        for session in (session for session in figures.sessions if session.rungs):
            for rung in session.rungs:
                rungs.setdefault(rung, Row(rung=rung, cost_usd=0.0, estimated=False))
                held[plan, session.phase_id, rung] = rung == session.rungs[-1] and session.phase_id in done
            last = rungs[session.rungs[-1]]
            last.cost_usd = add_usd(last.cost_usd, session.cost_usd)
            last.estimated |= session.estimated
    for name, row in rungs.items():
        of_rung = [is_done for (_, _, rung), is_done in held.items() if rung == name]
        row.phases, row.done = len(of_rung), sum(of_rung)
    return [*rungs.values()]

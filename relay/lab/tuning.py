"""Where sessions of this repository should be reset, as far as its logs can tell."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from relay.base.values import dataclass
from relay.insight.figures.values import Figures, SessionFigures
from relay.lab.statistics import Interval, find_rate
from relay.session.gauge import Band
from relay.session.usage import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRates:
    """Rates of faults in one band of the fill, over all sessions."""

    band: Band
    sessions: int
    """Sessions that reached it."""
    turns: int
    errors: Interval | None
    """Share of failed calls."""
    duplicates: Interval | None
    """Share of unchanged parts of files among all that were shown."""
    ghosts: Interval | None
    """Share of files edited from forgotten memory among all that were changed."""
    repairs: Interval | None
    """Share of red gates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRate:
    """How much of what sessions were shown was of use, over all sessions whose logs say so."""

    kind: str
    """As `decay.Retrieved.kind`; ``history`` for the tokens behind the first message, of which the rest was superseded
    or unused."""
    shown: int
    used: int
    rate: Interval | None
    """Used / shown; None for tokens, which are no sample."""
    tokens: int


def measure_use(found: Iterable[Figures]) -> tuple[UseRate, ...]:
    """Return the use of each kind but the ledger, which `measure_ledger` has."""
    decays = [session.decay for figures in found for session in figures.sessions]
    known = [one for decay in decays for one in decay.retrieved if one.kind != "ledger"]
    rates = [
        UseRate(
            kind=kind,
            shown=(shown := sum(one.shown for one in known if one.kind == kind)),
            used=(used := sum(one.used for one in known if one.kind == kind)),
            rate=find_rate(used, shown),
            tokens=sum(one.tokens for one in known if one.kind == kind),
        )
        for kind in dict.fromkeys(one.kind for one in known)
    ]
    measured = [decay for decay in decays if decay.signal is not None]
    history = sum(decay.history_tokens or 0 for decay in measured)
    noise = sum(decay.superseded_tokens + decay.unused_tokens for decay in measured)
    rest = max(0, history - noise)
    of_history = UseRate(kind="history", shown=history, used=rest, rate=None, tokens=history)
    return (*rates, *([of_history] if history else []))


def measure_bands(found: Iterable[Figures]) -> tuple[BandRates, ...]:
    """Return the rates of faults by fill.

    They cannot advise a line: only a part that was shown can be shown again, and tests run when something is changed.
    So both rates rise with the fill even if nothing depends on it.
    """
    sessions = [session for figures in found for session in figures.sessions if session.bands]
    return tuple(_measure(band, sessions) for band in Band)


def _measure(band: Band, sessions: Sequence[SessionFigures]) -> BandRates:
    found = [counts for session in sessions for counts in session.bands if counts.band is band]

    def add(name: str) -> int:
        return sum(attrgetter(name)(counts) for counts in found)

    return BandRates(
        band=band,
        sessions=len(found),
        turns=add("turns"),
        errors=find_rate(add("errors"), add("calls")),
        duplicates=find_rate(add("duplicates"), add("shown")),
        ghosts=find_rate(add("ghosts"), add("changed")),
        repairs=find_rate(add("red_gates"), add("gates")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RungFigures:
    """One change of model or effort in mid-phase, over all plans."""

    rung: str
    """As in the setting `escalate`, or ``fallback=ID``."""
    phases: int
    """Phases that had it."""
    done: int
    """Those of them that are done, with no further change."""
    spent: Spent
    """The cost of their sessions from this change to the next."""


def count_rungs(found: Iterable[Figures]) -> tuple[RungFigures, ...]:
    """Return what each change of model or effort led to; each figures are of one plan."""
    phases: dict[str, dict[tuple[int, str], bool]] = {}
    spent: dict[str, Spent] = {}
    for plan, figures in enumerate(found):
        done = {phase.phase_id for phase in figures.phases if phase.is_done}
        for session in (session for run in figures.runs for session in run.sessions if session.rungs):
            for rung in session.rungs:
                is_last = rung == session.rungs[-1]
                phases.setdefault(rung, {})[plan, session.phase_id] = is_last and session.phase_id in done
            spent[session.rungs[-1]] = spent.get(session.rungs[-1], Spent()) + session.totals.spent
    return tuple(
        RungFigures(rung=rung, phases=len(held), done=sum(held.values()), spent=spent.get(rung, Spent()))
        for rung, held in phases.items()
    )

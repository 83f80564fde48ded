"""The figures of runs, sessions, phases and tools: rows of the tables of `figures.sql`, joined and added up.

`figures.sql` says what each figure counts, and where its definition is from. None is *unknown* or *does not apply*,
never 0.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from msgspec import to_builtins

from relay.base.values import dataclass
from relay.base.words import name_item
from relay.insight.database import Database, Row
from relay.plan.text import find_ledger_path
from relay.session.layers import LAYERS, sum_layers
from relay.session.records import LoggedEvent
from relay.session.usage import Spent, add_usd

DRIFT_WARNING = 0.35
"""A phase with more drift has touched too many files that its items do not name."""
HEALTHY_CACHE = 0.8
"""`cache_hit` above it is healthy. Source: chapter 3 of the Token Wiki, which has the bands 0.8 and 0.5."""
SESSION_POINTS = 2_000
"""Most points of one session."""
MOST_POINTS = 10_000
"""Most points of all sessions together; each session has one at least."""
RULES_FILES = frozenset({"AGENTS.md", "AGENTS.override.md", "CLAUDE.md"})
_LEAST_STEM = 3
"""A declared file with a shorter name has no recognisable tests."""
_COUNTS = (
    "turns", "unknown_turns", "input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens",
    "output_tokens", "thinking_tokens", "retries", "retries_s", "answer_s", "tools_s", "gates_s", "carried_tokens",
    "tax_tokens", "calls", "errors", "duplicate_reads", "duplicate_tokens", "ghost_edits", "ticks", "records",
    "amendments", "commits", "crossings", "cache_breaks", "explored", "explored_tokens",
)  # fmt: skip
_MONEY = ("cost_usd", "carried_usd", "tax_usd", "explored_usd")
"""Columns that add up, and those that may be unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of everything that was read; each row is of the table of that name, with its sums."""

    runs: tuple[Row, ...]
    """Each with its `sessions`, and what was outside of these in its sums."""
    phases: tuple[Row, ...]
    tools: tuple[Row, ...]
    """Most tokens first."""
    totals: Row
    ticks: tuple[Row, ...]
    """Rows of ``proofs``."""
    reviews: tuple[Row, ...]
    """Of each round: `findings`, and how many were `confirmed`."""
    forecast: Row | None
    """None if no plan was shown."""
    yours: tuple[str, ...] = ()
    """Open items for a person, with their ids, in phases whose other items are done."""

    @property
    def sessions(self) -> tuple[Row, ...]:
        """Sessions of all runs."""
        return tuple(session for run in self.runs for session in run.sessions)

    def charge(self, booked: Spent, by_phase: Mapping[str, Spent]) -> "Figures":
        """Return the figures with the money of commits and refs, which have also what no log tells: requests cut off.

        Tokens stay those of the log, whose parts add up to them.

        Args:
            booked: Of the whole plan.
            by_phase: By the phase's id.
        """

        def pay(row: Row, spent: Spent | None) -> Row:
            return row if spent is None else _derive(vars(row), cost_usd=spent.cost_usd, estimated=spent.estimated)

        phases = (pay(phase, by_phase.get(phase.phase_id)) for phase in self.phases)
        return replace(self, totals=pay(self.totals, booked), phases=tuple(phases))


def read_figures(records: Iterable[LoggedEvent]) -> Figures:
    """Return the figures of a stream of events, of one run or of several one after the other."""
    with Database() as database:
        database.add(records)
        database.compute()
        return collect(database)


def collect(database: Database) -> Figures:
    """Return the figures of the tables, which `Database.compute` has made."""
    sessions = _read_sessions(database)
    outside = database.read("SELECT * FROM outside")
    runs = tuple(_read_runs(database, sessions, outside))
    phases = _read_phases(database, sessions, outside)
    costliest = _group(database.read("SELECT *, tool AS name FROM costliest"), "name")
    tools = database.read("SELECT * FROM tools")
    return Figures(
        runs=runs,
        phases=tuple(phases),
        tools=tuple(_add(tool, costliest=costliest.get(tool.name, [])) for tool in tools),
        totals=add_up(runs),
        ticks=tuple(database.read("SELECT * FROM proofs")),
        reviews=tuple(database.read("SELECT * FROM ReviewFinished ORDER BY seq")),
        forecast=_find_forecast(database, phases),
        yours=tuple(name_item(row.item, row.text) for row in database.read(_YOURS)),
    )


def add_up(rows: Iterable[Row]) -> Row:
    """Return the sums of rows; what a row lacks is 0, and unknown money stays unknown.

    `sources` are tokens of all prompts by source, most first, which add up to `prompt_tokens` exactly: parts of first
    prompts (`SizedPart.source`), ``tool <name>``, ``relay``, ``history``, ``explore``, and ``other`` outside of
    conversations. `decisions` are ticks, records, amendments and commits: no words are searched for, as by
    ContextSpectre, whose keywords ("because") count noise.
    """
    found = [vars(row) for row in rows]
    summed: dict[str, Any] = {name: sum(row.get(name) or 0 for row in found) for name in _COUNTS}
    for name in _MONEY:
        amounts = [row.get(name, 0.0) for row in found]
        summed[name] = None if None in amounts else sum(amounts, 0.0)
    sources = Counter[str]()
    for row in found:
        sources.update(row.get("sources", {}))
    return _derive(summed, estimated=any(row.get("estimated") for row in found), sources=_rank(sources))


def _derive(sums: Mapping[str, Any], **more: Any) -> Row:
    """Return sums with the figures that follow from them; None without a prompt, a turn or a decision."""
    row = Row(**{**sums, **more})
    written = row.cache_write_5m_tokens + row.cache_write_1h_tokens
    row.prompt_tokens = row.input_tokens + row.cache_read_tokens + written
    row.decisions = row.ticks + row.records + row.amendments + row.commits
    row.cache_hit = row.cache_read_tokens / row.prompt_tokens if row.prompt_tokens else None
    row.usd_per_decision = None if row.cost_usd is None or not row.decisions else row.cost_usd / row.decisions
    row.decision_density = row.decisions / row.turns if row.turns else None
    return row


def _rank(sources: Mapping[str, int]) -> dict[str, int]:
    """Return tokens by source, most first, then by name; zeros are left out."""
    return dict(sorted(((name, n) for name, n in sources.items() if n), key=lambda pair: (-pair[1], pair[0])))


def _add(row: Row, **more: Any) -> Row:
    vars(row).update(more)
    return row


def _group(rows: Iterable[Row], by: str) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(vars(row).pop(by), []).append(row)
    return groups


_OF_SESSIONS = {
    "parts": "SELECT session, source, tokens, held FROM sources",
    "bands": "SELECT * FROM faults ORDER BY session, turns",
    "claims": "SELECT * FROM claims ORDER BY session, place",
    "retrieved": "SELECT * FROM retrieved ORDER BY session, kind",
    "fell": "SELECT session, turn, before, prompt, epoch FROM turns WHERE fell ORDER BY session, n",
    "gone": "SELECT session, epoch, source, sum(tokens) AS tokens FROM parts WHERE NOT fixed GROUP BY 1, 2, 3",
    "series": """
        WITH sized AS (SELECT session, max(n) AS last FROM turns GROUP BY session), thinned AS (
            SELECT *, max(coalesce(fill_tokens, 0)) FROM turns JOIN sized USING (session)
            GROUP BY session, (n - 1) * :most / max(:most, last)
        )
        SELECT session, at, turn, prompt AS prompt_tokens, cache_read AS cache_read_tokens, output AS output_tokens,
               fill_tokens, soft_tokens, hard_tokens, band, cost_usd
        FROM thinned ORDER BY session, n
    """,
}
"""Of `series` at most so many rows of each session: of neighbours the fuller one."""


def _read_sessions(database: Database) -> dict[int, Row]:
    """Return the rows of sessions by number, with their rows of other tables.

    `held` is the last context by source, and adds up to `last_tokens`. `layers` are those of the last context; empty
    before an answer.
    """
    rows = database.read("SELECT * FROM sessions")
    most = max(1, min(SESSION_POINTS, MOST_POINTS // max(1, len(rows))))
    tables = {name: _group(database.read(query, most=most), "session") for name, query in _OF_SESSIONS.items()}
    found = {}
    for row in rows:
        own = {name: groups.get(row.session, []) for name, groups in tables.items()}
        parts = own.pop("parts")
        row.sources = {part.source: part.tokens for part in parts}
        row.held = _rank({part.source: part.held for part in parts}) if row.measured else {}
        row.layers = list(_list_layers(row)) if row.measured else []
        row.compactions = list(_list_compactions(own.pop("fell"), own.pop("gone")))
        if row.result == "compacted":  # another agent's: what follows is a context of its own
            cut = Row(turn=row.turns, before_tokens=row.last_tokens, after_tokens=None, dropped=row.held)
            row.compactions.append(cut)
        found[row.session] = _add(row, **own, **vars(add_up([row])))
    return found


def _list_layers(row: Row) -> Iterator[Row]:
    """Yield the layers (`relay.session.layers`) of a session's last context; `most_tokens` at its reset line."""
    mosts = {part["source"]: most for part in row.prompt if (most := part.get("most_tokens"))}
    cuts: dict[str, int | None] = dict(sum_layers((part["source"], part.get("cut_tokens", 0)) for part in row.prompt))
    cuts["results"] = row.cut_tokens
    tokens, whole = sum_layers(row.held), sum(row.held.values())
    for layer in LAYERS:
        yield Row(
            name=layer.name,
            tokens=tokens[layer.name],
            share=tokens[layer.name] / whole if whole else 0.0,
            most_tokens=mosts.get(layer.name) or layer.find_most(row.soft_tokens or 0),
            cut_tokens=cuts[layer.name],
        )


def _list_compactions(turns: Iterable[Row], parts: Sequence[Row]) -> Iterator[Row]:
    """Yield the prompts that were much smaller than the context before; `dropped`: results so far, and ``history``."""
    for turn in turns:
        went = turn.before - turn.prompt
        results = {part.source: part.tokens for part in parts if part.epoch == turn.epoch - 1}
        most = max(went, sum(results.values()))
        dropped = {source: tokens * went // most for source, tokens in results.items()}
        dropped["history"] = went - sum(dropped.values())
        yield Row(turn=turn.turn, before_tokens=turn.before, after_tokens=turn.prompt, dropped=_rank(dropped))


def _read_runs(database: Database, sessions: Mapping[int, Row], outside: Sequence[Row]) -> Iterator[Row]:
    billed = {row.run: row for row in database.read("SELECT * FROM billed WHERE session IS NULL")}
    for run in database.read("SELECT * FROM runs"):
        own = [session for session in sessions.values() if session.run == run.run]
        beside = [billed[run.run]] if run.run in billed else []
        for row in beside:
            row.sources = {"other": add_up([row]).prompt_tokens}
        sums = add_up([*own, *beside, *(row for row in outside if row.run == run.run)])
        yield _add(run, sessions=own, **vars(sums))


def _read_phases(database: Database, sessions: Mapping[int, Row], outside: Sequence[Row]) -> list[Row]:
    """Return phases; `touched` is without plan and ledger.

    `drift` is strayed / touched, the drift of paths and not of meaning; None if nothing is declared or touched.
    """
    plans = {row.plan_path for row in database.read("SELECT DISTINCT plan_path FROM RunStarted WHERE plan_path <> ''")}
    own_files = {PurePosixPath(path).name for plan in plans for path in (plan, find_ledger_path(plan))}
    found = []
    for row in database.read("SELECT * FROM phases"):
        row.touched = [path for path in row.touched if PurePosixPath(path).name not in own_files]
        row.strayed = find_strayed(row.touched, row.declared)
        row.drift = len(row.strayed) / len(row.touched) if row.touched and row.declared else None
        parts = [part for part in (*sessions.values(), *outside) if part.phase_id == row.phase_id]
        found.append(_add(row, **vars(add_up(parts))))
    return found


def find_strayed(touched: Iterable[str], declared: Iterable[str]) -> list[str]:
    """Return the touched files that no declared path covers, in order.

    A declared path covers itself, the paths below it, its matches as a pattern, and tests that carry its name.
    Rules files never stray.
    """
    paths = {str(PurePosixPath(path)) for path in declared}
    stems = {PurePosixPath(path).stem.lower() for path in paths}

    def is_covered(path: str) -> bool:
        name = PurePosixPath(path).name
        is_test = "test" in path.lower() and any(s in name.lower() for s in stems if len(s) >= _LEAST_STEM)
        return name in RULES_FILES or is_test or any(
            known in {path, "."} or path.startswith(f"{known}/") or ("*" in known and fnmatchcase(path, known))
            for known in paths
        )  # fmt: skip

    return [path for path in touched if not is_covered(path)]


def _find_forecast(database: Database, phases: Iterable[Row]) -> Row | None:
    """Forecast the cost of a plan's open items from the cost of ticked ones in these events; None without a plan.

    The cost of an item is that of its phase by the number of its items; the range is that of finished phases.
    """
    shown = database.read(
        "SELECT phase_id, sum(state IN ('open', 'claimed')) AS open FROM plan_items WHERE in_plan GROUP BY phase_id"
    )
    if not shown:
        return None
    by_id, ticked, each = {phase.phase_id: phase for phase in phases}, 0, list[float]()
    known: float | None = 0.0
    for row in shown:
        spent, done = by_id[row.phase_id].cost_usd, len(by_id[row.phase_id].ticked)
        if done:
            ticked, known = ticked + done, add_usd(known, spent)
            each += [spent / done] if spent is not None and not row.open else []
    items = sum(row.open or 0 for row in shown)
    each = [] if known is None else each
    return Row(
        phases=sum(bool(row.open) for row in shown),
        items=items,
        usd=known / ticked * items if known is not None and ticked else None,
        low_usd=min(each) * items if each else None,
        high_usd=max(each) * items if each else None,
    )


_YOURS = """
SELECT item, text FROM plan_items WHERE state = 'yours' AND in_plan
AND phase_id NOT IN (SELECT phase_id FROM plan_items WHERE state IN ('open', 'claimed')) ORDER BY rowid
"""


def sum_retrieved(sessions: Iterable[Row]) -> list[Row]:
    """Return the sums of the sessions' rows of ``retrieved``, by kind."""
    found = _group((Row(**vars(one)) for session in sessions for one in session.retrieved), "kind")
    return [
        Row(kind=kind, **{name: sum(vars(row)[name] for row in rows) for name in ("shown", "used", "tokens")})
        for kind, rows in sorted(found.items())
    ]


def measure_ledger(found: Iterable[Figures]) -> Row:
    """Return what sessions used of the ledger that they were shown, and what it cost; claims are each session's anew.

    `paid_tokens`: of the ledger in all prompts of these sessions. `largest_tokens`: the most that one was shown.
    `needed_tokens`: the least budget that would have shown each session every claim that it used.
    """
    sessions = [session for figures in found for session in figures.sessions if session.claims]
    claims = [claim for session in sessions for claim in session.claims]
    needed = [0]
    for session in sessions:
        last = max((place for place, claim in enumerate(session.claims, 1) if claim.used), default=0)
        needed.append(sum(claim.tokens for claim in session.claims[:last]))
    return Row(
        sessions=len(sessions),
        shown=len(claims),
        **{name: sum(bool(vars(claim)[name]) for claim in claims) for name in ("named", "read", "changed", "used")},
        shown_tokens=sum(claim.tokens for claim in claims),
        used_tokens=sum(claim.tokens for claim in claims if claim.used),
        paid_tokens=sum(session.sources.get("ledger", 0) for session in sessions),
        largest_tokens=max((sum(claim.tokens for claim in session.claims) for session in sessions), default=0),
        needed_tokens=max(needed),
    )


def render_document(figures: Figures, *, skipped_lines: int = 0) -> Mapping[str, Any]:
    """Return all figures as JSON; derived figures stand beside their sources.

    Args:
        skipped_lines: Lines of the logs that could not be read.
    """
    document: Mapping[str, Any] = to_builtins(figures, enc_hook=vars)
    return {**document, "log": {"skipped_lines": skipped_lines}}

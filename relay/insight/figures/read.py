"""Read the tables of `figures.sql` into the figures of runs, sessions, phases and tools; write them as a document."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any

from msgspec import to_builtins

from relay.base.words import name_item
from relay.insight.database import Database, find_table_rates
from relay.insight.figures.decay import ClaimUse, Decay, LayerFigures, Retrieved
from relay.insight.figures.values import (
    MOST_POINTS,
    NUMBERS,
    READ_SHARE,
    SESSION_POINTS,
    WRITE_SHARE,
    BandCounts,
    CheckEvidence,
    Compaction,
    CostlyResult,
    Figures,
    Forecast,
    FreshStart,
    PhaseFigures,
    PhaseWork,
    ReviewEvidence,
    RunFigures,
    SessionFigures,
    TickEvidence,
    ToolFigures,
    ToolSpan,
    Totals,
    TurnFigures,
    add_totals,
    find_break_even,
    rank,
)
from relay.session.gauge import Band
from relay.session.layers import LAYERS, sum_layers
from relay.session.records import LoggedEvent
from relay.session.usage import Spent, Usage, add_usd

COSTLIEST = 10
"""Results that are named of a tool."""
KEPT_WARNINGS = 100
MOST_FINDINGS = 100
"""Of one round of reviews."""
MOST_HANDOFF_NOTE_CHARS = 4_000
MOST_SUMMARY_CHARS = 200
RULES_FILES = frozenset({"AGENTS.md", "AGENTS.override.md", "CLAUDE.md"})
_LEAST_STEM = 3
"""A declared file with a shorter name has no recognisable tests."""
_IN_FRONT = ("system", "tools", "rules")
_TWO_POINTS = 2
_MILLION = 1_000_000
_Row = Mapping[str, Any]


def read_figures(records: Iterable[LoggedEvent]) -> Figures:
    """Return the figures of a stream of events, of one run or of several one after the other."""
    with Database() as database:
        database.add(records)
        database.compute()
        return collect(database)


def collect(database: Database) -> Figures:
    """Return the figures of the tables, which `Database.compute` has made."""
    sessions = _list_sessions(database)
    numbers = {number: figures for number, (figures, _) in sessions.items()}
    outside = database.read(_OUTSIDE)
    phases = _list_phases(database, numbers, outside)
    runs = _list_runs(database, sessions, outside)
    return Figures(
        runs=runs,
        phases=tuple(phases),
        tools=_list_tools(database),
        totals=add_totals(*(run.totals for run in runs)),
        ticks=tuple(_list_ticks(database, numbers)),
        reviews=tuple(
            ReviewEvidence(
                at=row["at"],
                phase_id=row["phase_id"],
                round=row["round"],
                findings=tuple(json.loads(row["findings"])[:MOST_FINDINGS]),
                confirmed=row["confirmed"],
            )
            for row in database.read("SELECT * FROM ReviewFinished ORDER BY seq")
        ),
        hand_offs=tuple(_list_hand_offs(sessions)),
        forecast=_find_forecast(database, phases),
        yours=tuple(name_item(row["item"], row["text"]) for row in database.read(_YOURS)),
    )


_Sessions = dict[int, tuple[SessionFigures, _Row]]
"""By number, with the row of ``sessions``."""

_THINNED = """
WITH sized AS (SELECT session, max(n) AS last FROM {table} GROUP BY session)
SELECT {columns}, max({weight}) AS weight
FROM {table} JOIN sized USING (session) GROUP BY session, (n - 1) * :most / max(:most, last) ORDER BY session, n
"""
"""At most so many rows of each session: of neighbours the one with the greatest weight."""
_OF_SESSIONS = {
    "billed": "SELECT * FROM billed WHERE session IS NOT NULL ORDER BY session, run",
    "sources": "SELECT * FROM sources ORDER BY session, tokens DESC",
    "faults": "SELECT * FROM faults ORDER BY session, turns",
    "claims": "SELECT * FROM claims ORDER BY session, place",
    "retrieved": "SELECT * FROM retrieved ORDER BY session, kind",
    "fell": "SELECT session, turn, before, prompt, epoch FROM turns WHERE fell ORDER BY session, n",
    "dropped": "SELECT session, epoch, source, sum(tokens) AS tokens FROM parts WHERE NOT fixed GROUP BY 1, 2, 3",
    "turns": _THINNED.format(
        table="turns",
        columns="session, at, turn, prompt AS prompt_tokens, cache_read AS cache_read_tokens, output AS output_tokens,"
        " fill_tokens, soft_tokens, hard_tokens, band, cost_usd",
        weight="coalesce(fill_tokens, 0)",
    ),
    "calls": _THINNED.format(
        table="calls", columns="session, began AS at, duration_s, name, is_error, turn", weight="duration_s"
    ),
}


def _iterate_sessions(database: Database) -> Iterator[tuple[_Row, Mapping[str, list[_Row]]]]:
    """Yield the row of each session, and its rows of the other tables; those of one session at a time are held."""
    sizes = database.read("SELECT count(*) AS n FROM sessions")
    most = max(1, min(SESSION_POINTS, MOST_POINTS // max(1, sizes[0]["n"])))
    tables = {name: groupby(database.iterate(query, most=most), _GET_SESSION) for name, query in _OF_SESSIONS.items()}
    waiting = {name: next(groups, None) for name, groups in tables.items()}
    for row in database.iterate("SELECT * FROM sessions ORDER BY session"):
        own: dict[str, list[_Row]] = {name: [] for name in tables}
        for name, group in waiting.items():
            if group and group[0] == row["session"]:
                own[name] = [*group[1]]
                waiting[name] = next(tables[name], None)
        yield row, own


_GET_SESSION = itemgetter("session")


def _list_sessions(database: Database) -> _Sessions:
    starts = {row["run"]: row["run_id"] for row in database.read("SELECT run, run_id FROM RunStarted")}
    return {
        row["session"]: (_make_session(row, own, starts.get(row["run"], "")), row)
        for row, own in _iterate_sessions(database)
    }


def _make_session(row: _Row, own: Mapping[str, list[_Row]], run_id: str) -> SessionFigures:
    held = {source["source"]: source["held"] for source in own["sources"]} if row["measured"] else {}
    claims = tuple(
        ClaimUse(
            id=c["id"], tokens=c["tokens"], named=bool(c["named"]), read=bool(c["read"]), changed=bool(c["changed"])
        )
        for c in own["claims"]
    )
    return SessionFigures(
        **{name: row[name] for name in _COPIED},
        run_id=run_id,
        model=row["model"] or "",
        end=row["ending"] or "",
        result=row["result"] or "",
        detail=row["detail"] or "",
        handoff_note=row["handoff_note"][:MOST_HANDOFF_NOTE_CHARS],
        totals=_make_totals([row, *own["billed"]], {one["source"]: one["tokens"] for one in own["sources"]}),
        held=rank(held),
        decay=_make_decay(row, held, own["retrieved"], claims),
        layers=tuple(_list_layers(row, held)) if row["measured"] else (),
        compactions=tuple(_list_compactions(own["fell"], own["dropped"])),
        series=tuple(map(_make_turn, own["turns"])),
        spans=tuple(
            ToolSpan(
                at=call["at"],
                duration_s=call["duration_s"],
                name=call["name"],
                is_error=bool(call["is_error"]),
                turn=call["turn"],
            )
            for call in own["calls"]
        ),
        bands=tuple(
            BandCounts(**{name: n for name, n in counts.items() if name != "session"} | {"band": Band(counts["band"])})
            for counts in own["faults"]
        ),
        rungs=tuple(json.loads(row["rungs"])),
        claims=claims,
    )  # fmt: skip


_COPIED = (
    "session_id", "phase_id", "title", "number", "reason", "runner", "began", "ended", "first_tokens", "last_tokens",
    "peak_tokens", "soft_tokens", "hard_tokens", "window_tokens",
)  # fmt: skip


def _make_totals(rows: Iterable[_Row], sources: Mapping[str, int]) -> Totals:
    """Return the totals of rows whose columns are fields of `Totals` and `Usage`; a missing number is 0."""
    merged: dict[str, Any] = {}
    for row in rows:
        merged |= row
    usage = Usage(**{name: merged.get(name) or 0 for name in Usage.__dataclass_fields__})
    known = {name: merged[name] or 0 for name in NUMBERS if name in merged}
    money = {name: merged[name] for name in ("carried_usd", "tax_usd", "explored_usd") if name in merged}
    spent = Spent(usage=usage, cost_usd=merged.get("cost_usd", 0.0), estimated=bool(merged.get("estimated")))
    return Totals(spent=spent, sources=rank(dict(sources)), **known, **money)


def _make_turn(row: _Row) -> TurnFigures:
    copied = {name: value for name, value in row.items() if name not in {"session", "weight", "band"}}
    return TurnFigures(**copied, band=Band(row["band"]) if row["band"] else None)


def _make_decay(row: _Row, held: Mapping[str, int], files: Sequence[_Row], claims: Sequence[ClaimUse]) -> Decay:
    context, first, line = row["last_tokens"], row["first_tokens"], row["soft_tokens"] or 0
    noise = (row["superseded_tokens"] or 0) + (row["unused_tokens"] or 0)
    history = None if context is None or first is None else max(0, context - first)
    growth = (context - first) / row["measured"] if history and row["measured"] >= _TWO_POINTS else None
    found = [Retrieved(**{name: one[name] for name in ("kind", "shown", "used", "tokens")}) for one in files]
    if claims:
        used, tokens = sum(claim.used for claim in claims), sum(claim.tokens for claim in claims)
        found.append(Retrieved(kind="ledger", shown=len(claims), used=used, tokens=tokens))
    return Decay(
        history_tokens=history,
        history_share=None if history is None or line <= first else history / (line - first),
        distance_tokens=None if context is None else context - sum(held.get(source, 0) for source in _IN_FRONT),
        growth_tokens=growth,
        turns_left=None if growth is None else int(max(0, line - context) // growth),
        superseded_tokens=row["superseded_tokens"] or 0,
        unused_tokens=row["unused_tokens"] or 0,
        cut_tokens=row["cut_tokens"] if row["calls"] else 0,
        signal=1 - min(1.0, noise / history) if history else None,
        retrieved=tuple(sorted(found, key=lambda one: ("file", "ledger", "preload").index(one.kind))),
    )


def _list_layers(row: _Row, held: Mapping[str, int]) -> Iterator[LayerFigures]:
    parts = json.loads(row["prompt"])
    mosts = {part["source"]: most for part in parts if (most := part.get("most_tokens"))}
    cuts: dict[str, int | None] = dict(sum_layers((part["source"], part.get("cut_tokens", 0)) for part in parts))
    cuts["results"] = row["cut_tokens"] if row["calls"] else 0
    tokens, whole = sum_layers(held), sum(held.values())
    for layer in LAYERS:
        yield LayerFigures(
            name=layer.name,
            tokens=tokens[layer.name],
            share=tokens[layer.name] / whole if whole else 0.0,
            most_tokens=mosts.get(layer.name) or layer.find_most(row["soft_tokens"] or 0),
            cut_tokens=cuts[layer.name],
        )


def _list_compactions(turns: Iterable[_Row], parts: Sequence[_Row]) -> Iterator[Compaction]:
    for turn in turns:
        went = turn["before"] - turn["prompt"]
        results = {part["source"]: part["tokens"] for part in parts if part["epoch"] == turn["epoch"] - 1}
        most = max(went, sum(results.values()))
        dropped = {source: tokens * went // most for source, tokens in results.items()}
        dropped["history"] = went - sum(dropped.values())
        yield Compaction(
            turn=turn["turn"], before_tokens=turn["before"], after_tokens=turn["prompt"], dropped=rank(dropped)
        )


def _list_tools(database: Database) -> tuple[ToolFigures, ...]:
    """Return the figures of each tool, most tokens first."""
    costliest: dict[str, list[CostlyResult]] = {}
    for row in database.read(
        "WITH ranked AS (SELECT session, seq, row_number() OVER (PARTITION BY name ORDER BY tokens DESC, seq) AS place"
        " FROM calls WHERE tokens > 0)"
        " SELECT c.name, c.summary, c.tokens, c.turn, s.session_id FROM ranked"
        " JOIN calls c USING (session, seq) JOIN sessions s USING (session) WHERE place <= :most ORDER BY place",
        most=COSTLIEST,
    ):
        costliest.setdefault(row["name"], []).append(
            CostlyResult(
                tool=row["name"],
                summary=row["summary"][:MOST_SUMMARY_CHARS],
                tokens=row["tokens"],
                session_id=row["session_id"],
                turn=row["turn"],
            )
        )
    rows = database.read(
        "SELECT name, count(*) AS calls, sum(is_error) AS errors, sum(duration_s) AS duration_s,"
        " sum(tokens) AS result_tokens, sum(repeats) AS duplicates, sum(repeats * tokens) AS duplicate_tokens"
        " FROM calls GROUP BY name ORDER BY result_tokens DESC, calls DESC, name"
    )
    return tuple(ToolFigures(**row, costliest=tuple(costliest.get(row["name"], ()))) for row in rows)


_OUTSIDE = """
WITH found AS (
    SELECT run, phase_id, 'gates_s' AS what, duration_s AS n FROM GateFinished
    UNION ALL SELECT run, phase_id, 'ticks', json_array_length(items) FROM Committed WHERE session IS NULL
    UNION ALL SELECT run, phase_id, 'commits', phase_id <> '' FROM Committed WHERE session IS NULL
    UNION ALL SELECT run, '', 'retries', attempt > 0 FROM RetryScheduled WHERE session IS NULL
    UNION ALL SELECT run, '', 'retries_s', wait_s FROM RetryScheduled WHERE session IS NULL
) SELECT run, phase_id, what, sum(n) AS n FROM found GROUP BY run, phase_id, what
"""
"""What no session has: the time of gates, which is the phase's, and what happened outside of sessions."""


def _add_up(rows: Iterable[_Row]) -> dict[str, float]:
    """Return the sums of rows of `_OUTSIDE` by what they count."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["what"]] = sums.get(row["what"], 0) + row["n"]
    return sums


def _list_runs(database: Database, sessions: _Sessions, outside: Sequence[_Row]) -> tuple[RunFigures, ...]:
    starts = {row["run"]: row for row in database.read("SELECT * FROM RunStarted")}
    ends = {row["run"]: row for row in database.read("SELECT * FROM RunEnded ORDER BY seq")}
    billed = {row["run"]: row for row in database.read("SELECT * FROM billed WHERE session IS NULL")}
    caps = {row["run"]: row["cap_usd"] for row in database.read("SELECT run, cap_usd FROM CapMoved ORDER BY seq")}
    warnings: dict[int, dict[str, None]] = {}
    for row in database.read("SELECT run, text FROM Noticed WHERE warning ORDER BY seq"):
        warnings.setdefault(row["run"], {})[row["text"]] = None
    found = []
    for number, (began, last) in database.spans.items():
        begun, ended, beside = (found_rows.get(number, {}) for found_rows in (starts, ends, billed))
        own = tuple(figures for figures, row in sessions.values() if row["run"] == number)
        extra = _add_up(row for row in outside if row["run"] == number)
        prompts = sum(beside.get(name, 0) for name in _PROMPT)
        found.append(
            RunFigures(
                run_id=begun.get("run_id", ""),
                **{
                    name: begun.get(name, "")
                    for name in ("command", "model", "plan_path", "branch", "sandbox", "context")
                },
                rehearsed=bool(begun.get("rehearsed")),
                cap_usd=caps.get(number, begun.get("cap_usd")),
                spent_before_usd=begun.get("spent_usd"),
                began=began,
                ended=ended.get("at"),
                last_at=last,
                exit_code=ended.get("exit_code"),
                reason=ended.get("reason", ""),
                next_command=ended.get("next_command", ""),
                questions=tuple(json.loads(ended.get("questions", "[]"))),
                totals=add_totals(
                    *(session.totals for session in own), _make_totals([beside, extra], {"other": prompts})
                ),
                sessions=own,
                warnings=tuple(warnings.get(number, ()))[:KEPT_WARNINGS],
            )
        )
    return tuple(found)


_PROMPT = ("input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")


_PHASES = """
WITH named AS (
    SELECT phase.value ->> 'id' AS phase_id, seq, phase.key AS place FROM PlanShown, json_each(phases) AS phase
    UNION ALL SELECT phase_id, seq, 0 FROM SessionStarted
    UNION ALL SELECT phase_id, seq, 0 FROM GateFinished
    UNION ALL SELECT phase_id, seq, 0 FROM Committed WHERE phase_id <> ''
), first AS (SELECT phase_id, min(seq * 1e6 + place) AS place FROM named GROUP BY phase_id)
SELECT f.phase_id,
       coalesce((SELECT max(title) FROM plan_items i WHERE i.phase_id = f.phase_id AND title <> ''),
                (SELECT title FROM SessionStarted s WHERE s.phase_id = f.phase_id AND title <> '' ORDER BY seq LIMIT 1),
                '') AS title,
       (SELECT count(*) FROM SessionStarted s WHERE s.phase_id = f.phase_id) AS sessions,
       (SELECT count(*) FROM SessionEnded e JOIN SessionStarted s ON s.session = e.session
        WHERE s.phase_id = f.phase_id AND e.result = 'handoff') AS hand_offs,
       count(g.seq) AS gates, coalesce(sum(g.red), 0) AS red_gates, coalesce(sum(g.repaired), 0) AS repairs,
       (SELECT red FROM gates h WHERE h.phase_id = f.phase_id ORDER BY seq LIMIT 1) AS first_gate_red
FROM first f LEFT JOIN gates g ON g.phase_id = f.phase_id GROUP BY f.phase_id ORDER BY f.place
"""
"""Phases in the order of their first events."""


def _list_phases(
    database: Database, sessions: Mapping[int, SessionFigures], outside: Sequence[_Row]
) -> list[PhaseFigures]:
    items: dict[str, list[_Row]] = {}
    for row in database.read("SELECT * FROM plan_items WHERE item IS NOT NULL"):
        items.setdefault(row["phase_id"], []).append(row)
    commits: dict[str, list[_Row]] = {}
    for row in database.read("SELECT * FROM Committed WHERE phase_id <> '' ORDER BY seq"):
        commits.setdefault(row["phase_id"], []).append(row)
    plans = database.read("SELECT DISTINCT plan_path FROM RunStarted")
    own_files = {name for row in plans for name in _name_own_files(PurePosixPath(row["plan_path"]))}
    files: dict[str, list[str]] = {}
    for row in database.read("SELECT * FROM touched ORDER BY file"):
        if PurePosixPath(row["file"]).name not in own_files:
            files.setdefault(row["phase_id"], []).append(row["file"])
    found = []
    for row in database.read(_PHASES):
        name = row["phase_id"]
        own = items.get(name, [])
        declared = tuple(dict.fromkeys(path for item in own for path in json.loads(item["paths"] or "[]")))
        touched, made = tuple(files.get(name, ())), commits.get(name, [])
        beside = _add_up(n for n in outside if n["phase_id"] == name and (name or n["what"] == "gates_s"))
        totals = [session.totals for session in sessions.values() if session.phase_id == name]
        red = row["first_gate_red"]
        work = PhaseWork(
            items=tuple(item["item"] for item in own),
            ticked=tuple(dict.fromkeys(item for commit in made for item in json.loads(commit["items"]))),
            is_done=any(commit["status"] == "done" for commit in made),
            first_gate_red=None if red is None else bool(red),
            declared=declared,
            touched=touched,
            strayed=find_strayed(touched, declared),
            commits=tuple(commit["commit"] for commit in made),
            **{count: row[count] for count in ("gates", "red_gates", "repairs", "hand_offs")},
        )
        summed = add_totals(*totals, _make_totals([beside], {}))
        found.append(
            PhaseFigures(phase_id=name, title=row["title"], totals=summed, sessions=row["sessions"], work=work)
        )
    return found


def _name_own_files(plan: PurePosixPath) -> tuple[str, ...]:
    return (plan.name, f"{plan.stem}.ledger.yaml", f"{plan.stem}.ledger.jsonl")


def find_strayed(touched: Iterable[str], declared: Iterable[str]) -> tuple[str, ...]:
    """Return the touched files that no declared path covers, in order.

    A declared path covers itself, the paths below it, its matches as a pattern, and tests that carry its name.
    Rules files never stray.
    """
    paths = tuple({str(PurePosixPath(path)) for path in declared})
    stems = {PurePosixPath(path).stem.lower() for path in paths}
    stems = {stem for stem in stems if len(stem) >= _LEAST_STEM}
    return tuple(path for path in touched if not _is_covered(path, paths, stems))


def _is_covered(path: str, declared: tuple[str, ...], stems: set[str]) -> bool:
    name = PurePosixPath(path).name
    if name in RULES_FILES:
        return True
    if "test" in path.lower() and any(stem in name.lower() for stem in stems):
        return True
    return any(
        known in {path, "."} or path.startswith(f"{known}/") or ("*" in known and fnmatchcase(path, known))
        for known in declared
    )


def _find_forecast(database: Database, phases: Iterable[PhaseFigures]) -> Forecast | None:
    """Forecast the cost of a plan's open items from the cost of ticked ones in these events; None without a plan.

    The cost of an item is that of its phase by the number of its items; the range is that of finished phases.
    """
    shown = database.read(
        "SELECT phase_id, sum(state IN ('open', 'claimed')) AS open FROM plan_items WHERE in_plan GROUP BY phase_id"
    )
    if not shown:
        return None
    by_id, ticked, cost, each = {phase.phase_id: phase for phase in phases}, 0, 0.0, list[float]()
    known: float | None = cost
    for row in shown:
        phase = by_id[row["phase_id"]]
        spent, done = phase.totals.spent.cost_usd, len(phase.work.ticked)
        if done:
            ticked += done
            known = add_usd(known, spent)
            each += [spent / done] if spent is not None and not row["open"] else []
    items = sum(row["open"] or 0 for row in shown)
    has_cost = known is not None and ticked > 0
    return Forecast(
        phases=sum(bool(row["open"]) for row in shown),
        items=items,
        usd=known / ticked * items if known is not None and ticked else None,
        low_usd=min(each) * items if has_cost and each else None,
        high_usd=max(each) * items if has_cost and each else None,
    )


_YOURS = """
SELECT item, text FROM plan_items WHERE state = 'yours' AND in_plan
AND phase_id NOT IN (SELECT phase_id FROM plan_items WHERE state IN ('open', 'claimed')) ORDER BY rowid
"""


def _list_ticks(database: Database, sessions: Mapping[int, SessionFigures]) -> Iterator[TickEvidence]:
    texts = {
        (row["phase_id"], row["item"]): row["text"]
        for row in database.read("SELECT phase_id, item, text FROM plan_items")
    }
    runs = {row["run"]: row["run_id"] for row in database.read("SELECT run, run_id FROM RunStarted")}
    for row in database.read(
        "SELECT c.*, g.checks, g.evidence FROM Committed c LEFT JOIN gates g ON g.seq ="
        " (SELECT max(seq) FROM gates h WHERE h.phase_id = c.phase_id AND h.seq < c.seq)"
        " WHERE c.items <> '[]' ORDER BY c.seq"
    ):
        items, session = json.loads(row["items"]), sessions.get(row["session"])
        yield TickEvidence(
            **{name: row[name] for name in ("at", "commit", "subject", "status", "phase_id")},
            session_id=session.session_id if session else "",
            run_id=runs.get(row["run"], ""),
            items=tuple(items),
            texts=tuple(texts.get((row["phase_id"], item), "") for item in items) if row["phase_id"] else (),
            checks=tuple(
                CheckEvidence(
                    **{name: check[name] for name in ("command", "status", "exit_code", "duration_s")},
                    output_sha256=check.get("output_sha256", ""),
                )
                for check in json.loads(row["checks"] or "[]")
            ),
            left=tuple(json.loads(row["evidence"] or "[]")),
            files=tuple(json.loads(row["files"])) if row["phase_id"] else (),
        )


def _list_hand_offs(sessions: _Sessions) -> Iterator[FreshStart]:
    """Yield the cost and saving of each step between two sessions of a run that both answered."""
    for (before, old), (after, new) in pairwise(sessions.values()):
        if old["run"] != new["run"] or before.last_tokens is None or after.first_tokens is None:
            continue
        rates = find_table_rates(after.model, after.began) if after.model else None
        read, write = (rates.read, rates.write_5m) if rates else (READ_SHARE, WRITE_SHARE)
        orientation, turns = new["orientation_tokens"] or 0, after.totals.turns
        fresh = after.first_tokens + orientation
        saved = (before.last_tokens - fresh) * turns
        yield FreshStart(
            phase_id=after.phase_id,
            from_session=before.session_id,
            to_session=after.session_id,
            within_phase=before.phase_id == after.phase_id,
            context_tokens=before.last_tokens,
            prefix_tokens=after.first_tokens,
            orientation_tokens=orientation,
            turns=turns,
            break_even_turns=find_break_even(before.last_tokens, fresh, read=read, write=write),
            saved_tokens=saved,
            saved_usd=None if rates is None else (saved * read - fresh * write) / _MILLION,
        )


def render_document(figures: Figures, *, skipped_lines: int = 0) -> Mapping[str, Any]:
    """Return all figures as JSON; derived figures stand beside their sources.

    Args:
        skipped_lines: Lines of the logs that could not be read.
    """
    return {
        "totals": _render_totals(figures.totals),
        "runs": [_render_run(run) for run in figures.runs],
        "phases": [_render_phase(phase) for phase in figures.phases],
        "tools": [to_builtins(tool) for tool in figures.tools],
        "ticks": [to_builtins(tick) for tick in figures.ticks],
        "reviews": [to_builtins(review) for review in figures.reviews],
        "hand_offs": [to_builtins(step) for step in figures.hand_offs],
        "forecast": to_builtins(figures.forecast) if figures.forecast else None,
        "log": {"skipped_lines": skipped_lines},
    }


def _render_totals(totals: Totals) -> Mapping[str, Any]:
    return {
        **to_builtins(totals),
        "sources": dict(totals.sources),
        "prompt_tokens": totals.spent.usage.prompt_tokens,
        "cache_hit": totals.cache_hit,
        "decisions": totals.decisions,
        "usd_per_decision": totals.usd_per_decision,
        "decision_density": totals.decision_density,
    }


def _render_run(run: RunFigures) -> Mapping[str, Any]:
    return {
        **to_builtins(replace(run, sessions=())),
        "totals": _render_totals(run.totals),
        "sessions": [
            {**to_builtins(session), "totals": _render_totals(session.totals), "held": dict(session.held)}
            for session in run.sessions
        ],
    }


def _render_phase(phase: PhaseFigures) -> Mapping[str, Any]:
    work = {**to_builtins(phase.work), "drift": phase.work.drift}
    return {**to_builtins(phase), "totals": _render_totals(phase.totals), "work": work}

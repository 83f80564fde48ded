"""Figures of whole streams, with numbers that can be checked by hand; and what holds of any stream."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.insight import figures
from relay.insight.database import Row
from relay.insight.figures import (
    SESSION_POINTS,
    Figures,
    find_strayed,
    read_figures,
    render_document,
)
from relay.lab.tuning import measure_use
from relay.session.events import (
    CacheBroken,
    CapMoved,
    ChangedFile,
    Event,
    GaugeCrossed,
    Noticed,
    PlanShown,
    RelaySpoke,
    ResponseReceived,
    RetryScheduled,
    ReviewFinished,
    ShownFinding,
)
from relay.session.usage import Spent, Usage
from tests.any_event import any_event
from tests.figures.streams import call, commit, end, gate, log, over, parts, plan, session, start, turn


def fold(*events: Event) -> Figures:
    return read_figures(log(events))


def fold_session(*events: Event, **begun: Any) -> Row:
    """Return the one session of these events."""
    (only,) = fold(start(), session(**begun), *events, over(), end()).sessions
    return only


AGAIN: Any = {"call_sha256": "same"}
SAME: Any = {"call_sha256": "read", "lines": (1, 9)}
PROMPT = parts(system=1_500, tools=1_000, rules=500, plan=1_000)
SESSIONS: dict[str, tuple[Sequence[Event], dict[str, Any]]] = {
    # The prompt is 4,000, of which 1,000 stand behind the rules; three turns later 10,000 stand in the context.
    "history, distance and growth": (
        (session(prompt=PROMPT), *turn(1, 4_000, 200), *call("bash", "make", 2_000), *turn(2, 6_200, 300),
         *turn(3, 9_900, 100)),
        {"history_tokens": 6_000, "history_share": 6_000 / 76_000, "distance_tokens": 7_000, "growth_tokens": 2_000,
         "turns_left": 35},
    ),
    "before an answer nothing is known": (
        (session(),),
        {"history_tokens": None, "history_share": None, "distance_tokens": None, "growth_tokens": None,
         "turns_left": None, "signal": None, "superseded_tokens": 0, "unused_tokens": 0, "cut_tokens": 0,
         "retrieved": [], "layers": [], "held": {}},
    ),
    "a room without size": (
        (session(), *turn(1, 4_000, soft_tokens=4_000), *turn(2, 5_000, soft_tokens=4_000)),
        {"history_share": None, "turns_left": 0},
    ),
    "a context that shrinks": (
        (session(), *turn(1, 4_000), *turn(2, 3_000)), {"turns_left": None, "growth_tokens": None},
    ),
    "the same part shown again": (
        (session(), *turn(1, 1_000), *call("read", "a.py", 100, lines=(1, 50)),
         *turn(2, 1_100), *call("read", "a.py", 100, lines=(51, 90), content="second page"),
         *turn(3, 1_200), *call("read", "a.py", 100, lines=(1, 50)),
         *turn(4, 1_300), *turn(5, 1_300)),  # it was noise in the fourth prompt and in the fifth
        {"duplicate_reads": 1, "duplicate_tokens": 100, "superseded_tokens": 100, "tax_tokens": 200,
         "tax_usd": 200 * 0.5e-6, "signal": 1 - 100 / 300},
    ),
    "a file that was changed in between is no duplicate": (
        (session(), *turn(1, 1_000), *call("read", "a.py", 100, lines=(1, 50)),
         *turn(2, 1_100), *call("read", "a.py", 200, lines=(1, 60), content="longer"), *turn(3, 1_300)),
        {"duplicate_reads": 0, "superseded_tokens": 100},
    ),
    "a failed call that is made again": (
        (session(), *turn(1, 1_000), *call("bash", "make", 300, is_error=True),
         *turn(2, 1_300), *call("bash", "make", 10, content="ok"), *turn(3, 1_310)),
        {"superseded_tokens": 300, "errors": 1, "calls": 2},
    ),
    "a file read again by the same call": (
        (session(), *turn(1, 1_000), *call("read", "a.py", 3_000, **SAME), *turn(2, 4_000),
         *call("read", "a.py", 3_000, **SAME), *turn(3, 7_000)),
        {"superseded_tokens": 3_000, "unused_tokens": 3_000},
    ),
    "large results that no call names": (
        (session(), *turn(1, 4_000, 100), *call("bash", "yes", 9_000),
         *turn(2, 13_100, 100), *call("bash", "yes again", 9_000, cut_bytes=60_000),
         *turn(3, 22_200, 100), *call("bash", "yes more", 4_000), *turn(4, 26_300, 149)),
        {"unused_tokens": 22_000, "superseded_tokens": 0, "cut_tokens": 15_000, "history_tokens": 22_449,
         "signal": 449 / 22_449},
    ),
    "a result that a call names is used, and one made again is superseded": (
        (session(), *turn(1, 1_000), *call("bash", "log", 3_000),
         *turn(2, 4_000), *call("edit", "a.py", 10, uses=("log",)),
         *turn(3, 4_010), *call("bash", "make", 5_000, **AGAIN),
         *turn(4, 9_010), *call("bash", "make", 2_500, content="passed", **AGAIN), *turn(5, 11_510)),
        {"unused_tokens": 2_500, "superseded_tokens": 5_000, "signal": 1 - 7_500 / 10_510},
    ),
    "thinking that the endpoint takes out is not charged to a tool": (
        (session(), *turn(1, 1_000, 5_000, thinking=4_000), *call("read", "a", 100, lines=(1, 2)), *turn(2, 2_100)),
        {"held": {"history": 2_050, "tool read": 50}},
    ),
    "responses that were lost are billed but not measured": (
        (session(), *turn(1, 4_000, 100), *turn(2, 4_100, 100), *turn(3, 4_200, usage=None, cost_usd=None),
         *turn(3, 6_000, 1_000, stop_reason="lost", estimated=True)),
        {"prompt_tokens": 14_100, "estimated": True, "cost_usd": None, "turns": 4, "unknown_turns": 1,
         "last_tokens": 4_200},
    ),
    "a first answer that is lost is of no known source": (
        (session(), *turn(1, 500, 10, stop_reason="cut"), *turn(1, 0, stop_reason="lost")),
        {"sources": {"history": 500}, "held": {}},
    ),
    "prices that nobody knows": (
        (session(), *turn(1, 4_000, model="qwen3-coder")),
        {"carried_usd": None, "tax_usd": None, "model": "qwen3-coder"},
    ),
    "what relay says has a source of its own": (
        (session(), *turn(1, 1_000), RelaySpoke(size_bytes=400), *turn(2, 1_100)),
        {"sources": {"history": 2_000, "relay": 100}},
    ),
    # A title of 900 tokens is no compaction of 30,000.
    "what an agent asks beside the conversation is paid for and no turn of it": (
        (session(), *turn(1, 30_000), turn(0, 900)[1], turn(0, 900, usage=None)[1], *turn(2, 31_000)),
        {"compactions": [], "input_tokens": 61_900, "turns": 4},
    ),
}  # fmt: skip


def test_a_session_s_figures_are_those_that_can_be_checked_by_hand() -> None:
    wrong = {}
    for name, (events, known) in SESSIONS.items():
        (one,) = fold(start(), *events, over(), end()).sessions
        found = {column: vars(one)[column] for column in known}
        plain = {column: pytest.approx(value) if isinstance(value, float) else value for column, value in known.items()}
        if found != plain:
            wrong[name] = found
    assert wrong == {}


def test_money_is_the_books_and_tokens_are_the_logs() -> None:
    """A phase that the book does not know keeps its own sum."""
    found = fold(start(), session(), *turn(1, 5_000, cost_usd=0.25), over(), end())
    charged = found.charge(Spent(cost_usd=0.65, estimated=True), {"1": Spent(cost_usd=0.5)})
    assert (charged.totals.cost_usd, charged.totals.estimated) == (0.65, True)
    assert [phase.cost_usd for phase in charged.phases if phase.phase_id == "1"] == [0.5]
    assert charged.totals.prompt_tokens == found.totals.prompt_tokens == 5_000
    assert found.charge(Spent(), {}).phases == found.phases


def test_a_session_tells_where_its_tokens_went() -> None:
    """The first prompt by its parts, later ones by what was added: tool results, answers, and what is not explained."""
    ls = call("bash", "ls", 50)
    found = fold(
        start(), session(prompt=parts(system=1_000, tools=500, plan=500)),
        *turn(1, 4_000, 200, thinking=50), *call("read", "a.py", 1_000, lines=(1, 9)),
        *turn(2, 5_400, 100), *call("bash", "make", 100),
        *turn(3, 8_000, 100), over(), session("s2"), *turn(1, 1_000), *ls, *turn(2, 1_050), *ls, *turn(3, 1_100), end(),
    )  # fmt: skip
    one = found.sessions[0]
    # 4,000 counted for an estimated 2,000: twice as much is believed, so each part is doubled.
    # Turn 2: 4,200 were there, 1,200 more came: the file. Turn 3: 5,500 + 2,500, of which the tool can have made 200.
    assert one.held == {
        "system": 2_000, "tools": 1_000, "plan": 1_000, "tool read": 1_200, "tool bash": 200, "history": 2_700,
    }  # fmt: skip
    assert [*one.held][:3] == ["history", "system", "tool read"]  # most first
    assert sum(one.sources.values()) == 4_000 + 5_400 + 8_000
    assert one.sources["tool read"] == 2 * 1_200
    assert (one.first_tokens, one.last_tokens, one.peak_tokens) == (4_000, 8_100, 8_100)
    tools = [(one.name, one.calls, one.result_tokens, one.duplicates, one.duplicate_tokens) for one in found.tools]
    assert tools == [("read", 1, 1_200, 0, 0), ("bash", 3, 300, 1, 50)]
    assert found.tools[0].costliest[0].summary == "a.py"
    # 4,200 of the second prompt and 5,500 of the third were paid for again, at half a dollar a million.
    assert (one.carried_tokens, one.carried_usd) == (9_700, pytest.approx(9_700 * 0.5e-6))


def test_a_session_s_layers_add_up_to_its_context() -> None:
    """2,400 in the first prompt, 3,000 of a result and 600 of answers; the cap and the budget cut something."""
    prompt: tuple[dict[str, object], ...] = parts(system=600, tools=600, rules=300, plan=400, phase=300, ledger=200)
    prompt = tuple(
        {**part, "cut_tokens": 70, "most_tokens": 250} if part["source"] == "ledger" else part for part in prompt
    )
    steps = (*turn(1, 2_400, 500), *call("bash", "make", 3_000, cut_bytes=400), *turn(2, 5_900, 100))
    found = {layer.name: layer for layer in fold_session(*steps, prompt=prompt).layers}
    assert {name: layer.tokens for name, layer in found.items()} == {
        "rules": 1_500, "plan": 400, "phase": 300, "handoff note": 0, "ledger": 200, "preload": 0, "results": 3_000,
        "history": 600,
    }  # fmt: skip
    assert sum(layer.share for layer in found.values()) == pytest.approx(1)
    assert (found["results"].share, found["results"].most_tokens) == (0.5, 24_000)
    assert (found["ledger"].most_tokens, found["ledger"].cut_tokens, found["results"].cut_tokens) == (250, 70, 100)
    unknown = fold_session(*turn(1, 9), *call("bash", "x", 1, cut_bytes=None), *turn(2, 19))
    assert {layer.name: layer.cut_tokens for layer in unknown.layers}["results"] is None


def test_what_was_retrieved_and_used() -> None:
    """Two of four files, one of two claims, the preload; `relay lab tune` adds up several sessions."""
    claims: Any = tuple({"id": f"c{n}", "tokens": 45, "paths": [f"{n}.py"]} for n in (1, 2))
    steps = (
        *turn(1, 1_000),
        *(e for n in "abcd" for e in call("read", f"{n}.py", 100, content=n, lines=(1, 9))),
        *turn(2, 1_400), *call("edit", "b.py", 5, changed_paths=("b.py", "2.py")),
        *call("bash", "pytest d.py", 5, uses=("d.py", "preload app.py")), *turn(3, 1_410),
    )  # fmt: skip
    begun: Any = {"claims": claims, "preloads": ("app.py",), "prompt": parts(preload=700)}
    rows = fold_session(*steps, **begun).retrieved
    assert [(one.kind, one.shown, one.used, one.tokens) for one in rows] == [
        ("file", 4, 2, 400), ("ledger", 2, 1, 90), ("preload", 1, 1, 700),
    ]  # fmt: skip
    again = fold(start(), session("s1", **begun), *steps, over("s1"), session("s2"), *steps, over("s2"))
    files, preloads, history = measure_use([again])
    assert (files.shown, files.used, files.rate is None) == (8, 4, False)
    assert (preloads.kind, preloads.shown) == ("preload", 1)
    assert (history.kind, history.shown, history.used, history.rate) == ("history", 820, 820, None)
    assert measure_use([read_figures([])]) == []


def test_a_result_counts_as_unused_one_answer_after_the_model_saw_it() -> None:
    """While the session works nobody knows yet whether the newest will be used."""
    events = [start(), session(), *turn(1, 1_000), *call("bash", "a", 3_000), *turn(2, 4_000), *turn(3, 4_010)]
    assert [read_figures(log(events[:n])).sessions[0].unused_tokens for n in (7, 8, 9, 10)] == [0, 0, 0, 3_000]


def test_an_explorer_stands_apart() -> None:
    beside = [
        replace(event, turn=0, query="explore")
        for event in (*turn(1, 3_000, 100), *turn(2, 11_000, 200))
        if isinstance(event, ResponseReceived)
    ]
    failed = [*beside, *call("explore", "why?", 10, is_error=True), *call("explore", "its requests are lost", 10)]
    one = fold_session(
        *turn(1, 4_000, 10), *beside, *call("explore", "where?", 100), *failed, *turn(2, 4_110, 10), *turn(3, 4_130, 10)
    )
    assert (one.explored, one.explored_tokens) == (2, 2 * 14_300)
    assert one.explored_usd == pytest.approx(2 * sum(event.cost_usd or 0 for event in beside))
    assert one.sources["explore"] == 2 * 14_000
    assert (one.last_tokens, len(one.series), one.peak_tokens) == (4_140, 3, 4_140)


def test_a_compaction_is_seen_by_what_is_missing() -> None:
    """By the share of the context: in a small window too."""
    one = fold_session(
        *turn(1, 10_000), *call("read", "a.py", 30_000, lines=(1, 9)),
        *turn(2, 40_000), *call("read", "a.py", 30_000, lines=(1, 9)), *turn(3, 20_000), *turn(4, 20_000),
    )  # fmt: skip
    (fall,) = one.compactions
    assert (fall.turn, fall.before_tokens, fall.after_tokens) == (3, 40_000, 20_000)
    assert sum(fall.dropped.values()) >= 20_000
    assert one.superseded_tokens == 0
    falls = {(40_000, 20_000): True, (100_000, 80_000): False, (12_000, 4_000): False, (9, 90): False}
    assert {fall: bool(fold_session(*turn(1, fall[0]), *turn(2, fall[1])).compactions) for fall in falls} == falls


def test_files_that_no_item_names_have_strayed() -> None:
    declared = ("api/keys.py", "docs/", "conf/*.toml", "db.py")
    touched = (
        "api/keys.py", "docs/a/b.md", "conf/x.toml", "AGENTS.md", "tests/test_keys.py", "api/keys_test.go",
        "api/other.py", "tests/test_other.py", "tests/test_db.py", "docsy.md",
    )  # fmt: skip
    assert find_strayed(touched, declared) == ["api/other.py", "tests/test_other.py", "tests/test_db.py", "docsy.md"]
    assert find_strayed(touched, (".",)) == []


def two_sessions() -> tuple[Event, ...]:
    return (
        start(), plan(p1={"1.1": "open a.py", "1.2": "open b.py"}, p2={"2.1": "open c.py"}), session("s1"),
        *turn(1, 20_000, write=20_000), *call("read", "a.py", 40_000, lines=(1, 9)),
        *turn(2, 100_000), GaugeCrossed(line="soft", fill_tokens=100_000, line_tokens=80_000),
        over("s1", "1", "handoff"), session("s2", number=2),
        *turn(1, 20_000, read=20_000), *call("read", "a.py", 15_000, lines=(1, 9)),
        *turn(2, 35_000), *call("edit", "a.py", 10, changed_paths=("a.py",)),
        *turn(3, 35_010), *call("edit", "b.py", 10, changed_paths=("b.py",)), *call("record", "x", 5),
        gate(passed=False), *turn(4, 35_020), gate(passed=True),
        commit(
            items=("1.1", "1.2"),
            files=(
                ChangedFile(path="a.py", added=3, deleted=1), ChangedFile(path="z", added=None, deleted=None)
            ),
        ),
        over("s2"),
        session("s3", "2"), *turn(1, 20_000), *call("edit", "a.py", 10, changed_paths=("a.py",)), *turn(2, 20_010),
    )  # fmt: skip


def test_phases_runs_and_what_proves_a_tick() -> None:
    found = fold(*two_sessions(), over("s3", "2"), end())
    one, two = found.phases
    assert (one.title, one.sessions, one.is_done, one.hand_offs, two.is_done) == ("Phase p1", 2, True, 1, False)
    assert (one.gates, one.red_gates, one.first_gate_red, one.repairs) == (2, 1, True, 1)
    assert (one.touched, one.strayed, one.drift) == (["a.py", "b.py", "z"], ["z"], pytest.approx(1 / 3))
    assert (two.strayed, two.drift) == (["a.py"], 1.0)
    # Phase 2 changed what only phase 1 had been shown; in phase 1 `b.py` was new, and `a.py` was read again.
    assert (one.ghost_edits, two.ghost_edits) == (0, 1)
    assert (one.decisions, one.crossings, one.gates_s) == (2 + 1 + 1, 1, 6.0)
    assert one.usd_per_decision == pytest.approx(0.06 / 4)
    (tick,) = found.ticks
    assert (tick.items, tick.texts, tick.session_id, tick.run_id) == (
        ["1.1", "1.2"], ["Item 1.1", "Item 1.2"], "s2", "r",
    )  # fmt: skip
    (check,) = tick.checks
    assert (check["command"], check["exit_code"], check["output_sha256"]) == ("make test", 0, "ab")
    assert [tuple(file.values()) for file in tick.files] == [("a.py", 3, 1), ("z", None, None)]
    # The plan was shown once, all boxes open: two ticked for six cents, so three to go cost nine.
    assert found.forecast
    assert (found.forecast.phases, found.forecast.items, found.forecast.low_usd) == (2, 3, None)
    assert found.forecast.usd == pytest.approx(0.09)
    gates = (gate(passed=False, baseline=True), session(), gate(passed=False, expected="not finished"))
    (only,) = fold(start(), plan(p1={"1.1": "open"}), *gates, over()).phases
    assert (only.gates, only.red_gates, only.gates_s) == (1, 0, 6.0)


def test_the_forecast_has_the_range_of_finished_phases() -> None:
    done = {"p1": {"1.1": "done"}, "p2": {"2.1": "done", "2.2": "done"}, "p3": {"3.1": "open"}}
    found = fold(
        start(), session("s1", "1"), *turn(1, 10, cost_usd=1.0), commit("1"), over("s1", "1"),
        session("s2", "2"), *turn(1, 10, cost_usd=8.0), commit("2", ("2.1", "2.2")), over("s2", "2"), plan(**done),
    ).forecast  # fmt: skip
    assert found
    assert (found.usd, found.low_usd, found.high_usd) == (pytest.approx(3.0), 1.0, 4.0)
    nothing = fold(start(), plan(p1={"1.1": "open"})).forecast
    assert nothing
    assert (nothing.phases, nothing.items, nothing.usd) == (1, 1, None)
    free = fold(start(), session(), *turn(1, 9, cost_usd=None), commit(), over(), plan(p1={"1.1": "done"})).forecast
    assert free
    assert (free.usd, free.low_usd) == (None, None)


def test_what_happened_outside_of_a_session_is_the_run_s() -> None:
    finding = ShownFinding(
        file="a.py", line=7, summary="s", failure_scenario="f", category="tests", severity="important",
        verdict="confirmed", reason="r",
    )  # fmt: skip
    reviewed = ReviewFinished(phase_id="1", round=2, findings=(finding,) * 3, confirmed=1)
    told = [Noticed(text=f"warning {n % 2}", warning=n > 0) for n in range(4)]
    found = fold(start(), *told, turn(1, 4_000, 10)[-1], reviewed, end())
    (run,) = found.runs
    assert (run.turns, run.sources, run.warnings) == (1, {"other": 4_000}, ["warning 1", "warning 0"])
    assert [(one.phase_id, one.round, one.confirmed, len(one.findings)) for one in found.reviews] == [("1", 2, 1, 3)]


def test_several_runs_are_one_after_the_other() -> None:
    """One that was killed has no end, and a log may have lost its beginning."""
    found = fold(
        start("r1"), session("s1"), *turn(1, 100), start("r2"), Noticed(text="w", warning=True), Noticed(text="n"),
        RetryScheduled(attempt=1, wait_s=4.0, reason=""), session("s2"),
        RetryScheduled(attempt=1, wait_s=2.0, reason=""), RetryScheduled(attempt=0, wait_s=0.0, reason=""),
        CacheBroken(changed="system", expected_tokens=1, read_tokens=0), *turn(1, 100), over("s2"), end(exit_code=3),
    )  # fmt: skip
    assert [(run.run_id, len(run.sessions), run.exit_code, run.warnings) for run in found.runs] == [
        ("r1", 1, None, []), ("r2", 1, 3, ["w"]),
    ]  # fmt: skip
    assert (found.runs[1].retries, found.runs[1].retries_s, found.totals.cache_breaks) == (2, 6.0, 1)
    now = fold(*two_sessions())
    assert (now.sessions[-1].session_id, now.sessions[-1].ended, now.runs[0].exit_code) == ("s3", None, None)
    torn = fold(*turn(3, 500), *turn(4, 0, usage=None), *call("read", "a", 5), gate(passed=True), over(), end())
    assert (torn.totals.prompt_tokens, torn.totals.sources, torn.totals.turns) == (500, {"other": 500}, 2)
    assert (torn.runs[0].run_id, torn.runs[0].command) == ("", "")


def test_points_and_what_is_kept_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "SESSION_POINTS", 50)
    monkeypatch.setattr(figures, "MOST_POINTS", 200)
    one = fold_session(*(event for n in range(60) for event in turn(n + 1, n + 1)))
    assert 25 <= len(one.series) <= 50
    assert one.series[-1].prompt_tokens == one.peak_tokens == 60
    turns = 17
    several = [[session(f"s{n}"), *(event for at in range(turns) for event in turn(at + 1, at + 1))] for n in range(20)]
    kept = [len(found.series) for found in fold(start(), *chain.from_iterable(several)).sessions]
    assert kept == [10] * 20
    calls = (event for n in range(20) for event in call("t", f"{n}", n))
    many = fold(start(), session(), *turn(1, 9), *calls, *turn(2, 199))
    assert [result.tokens for result in many.tools[0].costliest] == sorted(range(10, 20), reverse=True)


def test_the_plan_as_it_was_shown_last_counts() -> None:
    """Also where a log has the changes alone; what is left to a person is named once its phase is done."""
    first, then = plan(p1={"1.1": "open"}, p2={"2.1": "open"}), plan(p1={"1.1": "done"}, p2={"2.1": "open"})
    work = (session(), *turn(1, 9, cost_usd=2.0), commit(), over())
    assert fold(start(), first, *work, then.since(first.phases)) == fold(start(), first, *work, then)

    def shown(state: str) -> PlanShown:
        return plan(p1={"1.1": state, "1.2": "yours"}, p2={"2.1": "open", "2.2": "yours"})

    assert fold(start(), shown("open"), end()).yours == ()
    assert fold(start(), shown("open"), shown("done"), end()).yours == ("1.2 Item 1.2",)


def test_a_cap_that_a_person_moved_is_the_run_s() -> None:
    capped, moves = start(cap_usd=5.0), (CapMoved(cap_usd=9.0), CapMoved(cap_usd=None))
    assert [fold(capped, *moves[:n], end()).runs[0].cap_usd for n in (0, 1, 2)] == [5.0, 9.0, None]


def test_the_plan_s_own_files_are_nobodys_drift() -> None:
    ledger = call("edit", "PLAN.ledger.yaml", 1, changed_paths=("PLAN.ledger.yaml", "PLAN.md", "x.py"))
    of_plan = commit("", (), status="amended")
    found = fold(start(), plan(p1={"1.1": "open x.py"}), session(), *ledger, of_plan, over())
    assert found.phases[0].touched == ["x.py"]
    assert (found.ticks, found.totals.commits) == ((), 0)


def test_a_commit_that_joins_a_phase_and_the_branch_ticks_no_box_again() -> None:
    """A person committed meanwhile; it is no decision either, but one of the commits that ticked."""
    work = (start(), session(), *turn(1, 9, cost_usd=2.0), commit(), over())
    found = fold(*work, commit(commit="beef"), end())
    assert [tick.commit for tick in found.ticks] == ["c0ffee", "beef"]
    assert (found.totals.ticks, found.totals.decisions, found.phases[0].decisions) == (1, 2, 2)
    assert fold(*work, commit(items=("1.2",)), end()).totals.ticks == 2


def test_figures_as_one_document() -> None:
    """What is derived stands beside what it is derived from; nothing that is unknown becomes 0."""
    found = json.loads(json.dumps(render_document(fold(*two_sessions(), over("s3", "2"), end()), skipped_lines=3)))
    assert found["totals"]["decisions"] == 4
    assert found["totals"]["usd_per_decision"] == pytest.approx(0.02)
    assert found["phases"][0]["drift"] == pytest.approx(1 / 3)
    assert sum(found["runs"][0]["sessions"][0]["held"].values()) == 100_000
    assert found["log"]["skipped_lines"] == 3
    nothing = render_document(read_figures([]))
    assert (nothing["forecast"], nothing["totals"]["cache_hit"], nothing["runs"]) == (None, None, ())


_KINDS = st.one_of(*(any_event(kind) for kind in get_args(Event)))


@given(st.lists(_KINDS, max_size=40))
def test_sums_add_up_whatever_happened(events: list[Event]) -> None:
    found = fold(*events)
    answers = [event for event in events if isinstance(event, ResponseReceived)]
    used = sum((event.usage for event in answers if event.usage), start=Usage())
    assert {name: vars(found.totals)[name] for name in asdict(used)} == asdict(used)
    assert found.totals.turns == len(answers)
    assert sum(found.totals.sources.values()) == used.prompt_tokens
    for one in found.sessions:
        assert sum(one.sources.values()) == one.prompt_tokens
        assert sum(one.held.values()) == (one.last_tokens or 0)
        assert all(tokens >= 0 for tokens in one.held.values())
        assert len(one.series) <= SESSION_POINTS
    assert all(sum(one.turns for one in run.sessions) <= run.turns for run in found.runs)
    assert all(set(phase.strayed) <= set(phase.touched) for phase in found.phases)
    json.dumps(render_document(found))

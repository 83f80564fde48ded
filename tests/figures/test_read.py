"""Figures of whole streams, with numbers that can be checked by hand; and what holds of any stream."""

import json
from dataclasses import asdict, replace
from itertools import chain
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.insight.database import Row
from relay.insight.figures import (
    MOST_POINTS,
    SESSION_POINTS,
    Figures,
    add_up,
    find_break_even,
    read_figures,
    render_document,
)
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
    RunStarted,
    ShownFinding,
    ToolFinished,
)
from relay.session.gauge import Band
from relay.session.usage import Spent, Usage
from tests.any_event import any_event
from tests.figures import streams
from tests.figures.streams import call, commit, end, gate, log, over, parts, plan, session, start, turn


def fold(*events: Event) -> Figures:
    return read_figures(log(events))


def fold_session(*events: Event) -> Row:
    """Return the one session of these events."""
    (only,) = fold(start(), session(), *events, over(), end()).sessions
    return only


def test_no_events_are_no_figures() -> None:
    nothing = read_figures([])
    assert (nothing.runs, nothing.phases, nothing.tools, nothing.forecast) == ((), (), (), None)
    assert nothing.totals == add_up([])
    assert (nothing.totals.cache_hit, nothing.totals.usd_per_decision, nothing.totals.decision_density) == (
        None, None, None,
    )  # fmt: skip


def test_money_is_the_books_and_tokens_are_the_logs() -> None:
    """A phase that the book does not know keeps its own sum."""
    figures = fold(start(), session(), *turn(1, 5_000, cost_usd=0.25), over(), end())
    charged = figures.charge(Spent(cost_usd=0.65, estimated=True), {"1": Spent(cost_usd=0.5)})
    assert (charged.totals.cost_usd, charged.totals.estimated) == (0.65, True)
    assert [phase.cost_usd for phase in charged.phases if phase.phase_id == "1"] == [0.5]
    assert charged.totals.prompt_tokens == figures.totals.prompt_tokens == 5_000
    assert figures.charge(Spent(), {}).phases == figures.phases


def test_a_session_tells_where_its_tokens_went() -> None:
    """The first prompt by its parts, later ones by what was added: tool results, answers, and what is not explained."""
    begun = session(prompt=parts(system=1_000, tools=500, plan=500))
    found = fold(
        start(), begun,
        *turn(1, 4_000, 200, thinking=50), *call("read", "a.py", 1_000, lines=(1, 9)),
        *turn(2, 5_400, 100), *call("bash", "make", 100),
        *turn(3, 8_000, 100),
        over(), end(),
    )  # fmt: skip
    (one,) = found.sessions
    # 4,000 counted for an estimated 2,000: twice as much is believed, so each part is doubled.
    # Turn 2: 4,200 were there, 1,200 more came: the file. Turn 3: 5,500 + 2,500, of which the tool can have made 200.
    assert one.held == {
        "system": 2_000, "tools": 1_000, "plan": 1_000, "tool read": 1_200, "tool bash": 200, "history": 2_700,
    }  # fmt: skip
    assert sum(one.sources.values()) == 4_000 + 5_400 + 8_000
    assert one.sources["tool read"] == 2 * 1_200
    assert (one.first_tokens, one.last_tokens, one.peak_tokens) == (4_000, 8_100, 8_100)
    assert [(tool.name, tool.calls, tool.result_tokens) for tool in found.tools] == [
        ("read", 1, 1_200),
        ("bash", 1, 200),
    ]
    assert found.tools[0].costliest[0].summary == "a.py"
    # 4,200 of the second prompt and 5,500 of the third were paid for again, at half a dollar a million.
    assert one.carried_tokens == 9_700
    assert one.carried_usd == pytest.approx(9_700 * 0.5e-6)


@pytest.mark.parametrize(
    ("first", "last", "turns", "soft", "growth", "left"),
    [
        (40_000, 100_000, 30, 165_000, 2_000, 32),
        (0, 82_000, 40, 165_000, 2_050, 40),
        (9_000, 99_000, 10, 80_000, 9_000, 0),
    ],
)
def test_turns_left_until_the_line(first: int, last: int, turns: int, soft: int, growth: float, left: int) -> None:
    """ContextSpectre's vectors, with the prefix left out; past the line none are left."""
    steps = (last - first) // turns
    one = fold_session(
        *(event for n in range(turns) for event in turn(n + 1, first + n * steps, steps, soft_tokens=soft))
    )
    assert one.growth_tokens == pytest.approx(growth)
    assert one.turns_left == left


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
    assert one.prompt_tokens + one.output_tokens == 2 * 14_300 + 4_010 + 4_120 + 4_140


def test_what_happened_outside_of_a_session_is_the_run_s() -> None:
    answer = turn(1, 4_000, 10)[-1]
    told = [Noticed(text=f"warning {n % 2}", warning=n > 0) for n in range(4)]
    (run,) = fold(start(), *told, answer, end()).runs
    assert (run.turns, run.sources) == (1, {"other": 4_000})
    assert run.warnings == ["warning 1", "warning 0"]


def test_reviews_are_evidence_each_with_its_findings() -> None:
    finding = ShownFinding(
        file="a.py", line=7, summary="s", failure_scenario="f", category="tests", severity="important",
        verdict="confirmed", reason="r",
    )  # fmt: skip
    found = fold(ReviewFinished(phase_id="1", round=2, findings=(finding,) * 3, confirmed=1)).reviews
    assert [(one.phase_id, one.round, one.confirmed, len(one.findings)) for one in found] == [("1", 2, 1, 3)]


def test_one_turn_or_a_shrinking_context_forecasts_nothing() -> None:
    assert fold_session(*turn(1, 4_000, 10)).turns_left is None
    assert fold_session(*turn(1, 4_000), *turn(2, 3_000)).turns_left is None
    assert fold_session().turns_left is None


def test_the_same_part_shown_again_is_a_duplicate_and_the_first_is_noise() -> None:
    one = fold_session(
        *turn(1, 1_000), *call("read", "a.py", 100, lines=(1, 50)),
        *turn(2, 1_100), *call("read", "a.py", 100, lines=(51, 90), content="second page"),
        *turn(3, 1_200), *call("read", "a.py", 100, lines=(1, 50)),
        *turn(4, 1_300),
        *turn(5, 1_300),
    )  # fmt: skip
    assert (one.duplicate_reads, one.duplicate_tokens, one.superseded_tokens) == (1, 100, 100)
    # It was noise in the fourth prompt and in the fifth.
    assert one.tax_tokens == 200
    assert one.tax_usd == pytest.approx(200 * 0.5e-6)
    assert one.signal == pytest.approx(1 - 100 / 300)


def test_a_file_that_was_changed_in_between_is_noise_but_no_duplicate() -> None:
    one = fold_session(
        *turn(1, 1_000), *call("read", "a.py", 100, lines=(1, 50)),
        *turn(2, 1_100), *call("read", "a.py", 200, lines=(1, 60), content="longer"),
        *turn(3, 1_300),
    )  # fmt: skip
    assert (one.duplicate_reads, one.superseded_tokens) == (0, 100)


def test_a_failed_call_is_noise_once_it_is_made_again() -> None:
    failed = call("bash", "make", 300, is_error=True)
    one = fold_session(
        *turn(1, 1_000), *failed, *turn(2, 1_300), *call("bash", "make", 10, content="ok"), *turn(3, 1_310)
    )
    assert (one.superseded_tokens, one.errors, one.calls) == (300, 1, 2)


def test_the_same_call_with_the_same_answer_is_a_duplicate_of_its_tool() -> None:
    ls = call("bash", "ls", 50)
    found = fold(
        start(), session(),
        *turn(1, 1_000), *ls, *turn(2, 1_050), *ls, *turn(3, 1_100), *call("bash", "ls", 50, content="y")
    )  # fmt: skip
    assert [(tool.calls, tool.duplicates, tool.duplicate_tokens) for tool in found.tools] == [(3, 1, 50)]


def test_thinking_that_the_endpoint_takes_out_is_not_charged_to_a_tool() -> None:
    one = fold_session(*turn(1, 1_000, 5_000, thinking=4_000), *call("read", "a", 100, lines=(1, 2)), *turn(2, 2_100))
    held = one.held
    assert 50 <= held["tool read"] <= 100
    assert sum(held.values()) == 2_100


def test_what_an_agent_asks_beside_the_conversation_is_paid_for_and_no_turn_of_it() -> None:
    """A title of 900 tokens is no compaction of 30,000."""
    one = fold_session(*turn(1, 30_000), turn(0, 900)[1], *turn(2, 31_000))
    assert [point.turn for point in one.series] == [1, 2]
    assert one.compactions == []
    assert one.input_tokens == 61_900
    unknown = fold_session(*turn(1, 30_000), turn(0, 900, usage=None)[1], *turn(2, 31_000))
    assert unknown.input_tokens == 61_000
    assert [point.turn for point in unknown.series] == [1, 2]


def test_a_compaction_is_seen_by_what_is_missing() -> None:
    """By the share of the context: in a small window too."""
    one = fold_session(
        *turn(1, 10_000), *call("read", "a.py", 30_000, lines=(1, 9)),
        *turn(2, 40_000), *call("read", "a.py", 30_000, lines=(1, 9)),
        *turn(3, 20_000), *turn(4, 20_000),
    )  # fmt: skip
    (fall,) = one.compactions
    assert (fall.turn, fall.before_tokens, fall.after_tokens) == (3, 40_000, 20_000)
    assert sum(fall.dropped.values()) >= 20_000
    assert one.superseded_tokens == 0
    assert fold_session(*turn(1, 10_000), *turn(2, 4_000)).compactions == []


@pytest.mark.parametrize(
    ("before", "after", "fallen"),
    [(40_000, 20_000, True), (40_000, 31_000, False), (12_000, 4_000, False), (9, 90, False)],
)
def test_a_fall_is_relative_and_not_tiny(before: int, after: int, *, fallen: bool) -> None:
    assert bool(fold_session(*turn(1, before), *turn(2, after)).compactions) is fallen


def test_responses_that_were_lost_are_billed_but_not_measured() -> None:
    lost = turn(2, 6_000, 1_000, stop_reason="lost", estimated=True)
    one = fold_session(*turn(1, 4_000, 100), *lost, *turn(2, 4_100, 100), *turn(3, 4_200, usage=None, cost_usd=None))
    assert one.prompt_tokens == 4_000 + 6_000 + 4_100
    assert sum(one.sources.values()) == 14_100
    assert one.estimated
    assert one.cost_usd is None
    assert (one.turns, one.unknown_turns) == (4, 1)
    assert one.last_tokens == 4_200


def test_a_first_answer_that_is_lost_is_of_no_known_source() -> None:
    one = fold_session(*turn(1, 500, 10, stop_reason="cut"), *turn(1, 0, stop_reason="lost"))
    assert one.sources == {"history": 500}
    assert one.held == {}


def test_prices_that_nobody_knows_are_unknown() -> None:
    one = fold_session(*turn(1, 4_000, model="qwen3-coder"))
    assert (one.carried_usd, one.tax_usd, one.model) == (None, None, "qwen3-coder")


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


def test_a_hand_off_costs_and_saves() -> None:
    """The published vector: C = 100k, B = 20k, O = 15k pay after 6.7 turns; with C = 50k after 29."""
    assert find_break_even(100_000, 35_000) == pytest.approx(6.73, abs=0.01)
    assert find_break_even(50_000, 35_000) == pytest.approx(29.17, abs=0.01)
    assert find_break_even(35_000, 35_000) is None
    first, second = fold(*two_sessions(), over("s3", "2")).hand_offs
    assert (first.within_phase, first.context_tokens, first.prefix_tokens, first.orientation_tokens) == (
        True, 100_000, 20_000, 15_000,
    )  # fmt: skip
    assert first.break_even_turns == pytest.approx(6.73, abs=0.01)
    assert (first.turns, first.saved_tokens) == (4, 65_000 * 4)
    assert first.saved_usd == pytest.approx((65_000 * 4 * 0.5 - 35_000 * 6.25) * 1e-6)
    assert not second.within_phase


def test_phases_runs_and_what_proves_a_tick() -> None:
    found = fold(*two_sessions(), over("s3", "2"), end())
    one, two = found.phases
    assert (one.title, one.sessions, one.is_done, one.hand_offs, two.is_done) == ("Phase p1", 2, True, 1, False)
    assert (one.gates, one.red_gates, one.first_gate_red, one.repairs) == (2, 1, True, 1)
    assert (one.touched, one.strayed) == (["a.py", "b.py", "z"], ["z"])
    assert one.drift == pytest.approx(1 / 3)
    assert (two.strayed, two.drift) == (["a.py"], 1.0)
    # Phase 2 changed what only phase 1 had been shown; in phase 1 `b.py` was new, and `a.py` was read again.
    assert (one.ghost_edits, two.ghost_edits) == (0, 1)
    assert (one.decisions, one.crossings) == (2 + 1 + 1, 1)
    assert one.usd_per_decision == pytest.approx(0.06 / 4)
    assert one.gates_s == 6.0
    (tick,) = found.ticks
    assert (tick.items, tick.texts, tick.session_id, tick.run_id) == (
        ["1.1", "1.2"],
        ["Item 1.1", "Item 1.2"],
        "s2",
        "r",
    )
    (check,) = tick.checks
    assert (check["command"], check["exit_code"], check["output_sha256"]) == ("make test", 0, "ab")
    assert [tuple(file.values()) for file in tick.files] == [("a.py", 3, 1), ("z", None, None)]
    # The plan was shown once, all boxes open: two ticked for six cents, so three to go cost nine.
    assert found.forecast
    assert (found.forecast.phases, found.forecast.items, found.forecast.low_usd) == (2, 3, None)
    assert found.forecast.usd == pytest.approx(0.09)


def test_a_baseline_takes_time_and_is_no_gate_of_the_work() -> None:
    (one,) = fold(start(), plan(p1={"1.1": "open"}), gate(passed=False, baseline=True), session(), over(), end()).phases
    assert (one.gates, one.red_gates, one.gates_s) == (0, 0, 3.0)


def test_what_relay_says_in_a_session_has_a_source_of_its_own() -> None:
    one = fold_session(*turn(1, 1_000), RelaySpoke(size_bytes=400), *turn(2, 1_100))
    assert one.sources["relay"] == 100


def test_the_forecast_has_the_range_of_finished_phases() -> None:
    done = {"p1": {"1.1": "done"}, "p2": {"2.1": "done", "2.2": "done"}, "p3": {"3.1": "open"}}
    found = fold(
        start(), session("s1", "1"), *turn(1, 10, cost_usd=1.0), commit("1"), over("s1", "1"),
        session("s2", "2"), *turn(1, 10, cost_usd=8.0), commit("2", ("2.1", "2.2")), over("s2", "2"), plan(**done),
    ).forecast  # fmt: skip
    assert found
    assert found.usd == pytest.approx(3.0)
    assert (found.low_usd, found.high_usd) == (1.0, 4.0)
    nothing = fold(start(), plan(p1={"1.1": "open"})).forecast
    assert nothing
    assert (nothing.phases, nothing.items, nothing.usd) == (1, 1, None)
    free = fold(start(), session(), *turn(1, 9, cost_usd=None), commit(), over(), plan(p1={"1.1": "done"})).forecast
    assert free
    assert (free.usd, free.low_usd) == (None, None)


def test_a_session_that_works_is_in_the_figures() -> None:
    now = fold(*two_sessions())
    assert (now.sessions[-1].session_id, now.sessions[-1].ended) == ("s3", None)
    assert [one.session_id for one in now.sessions] == ["s1", "s2", "s3"]
    assert now.totals.turns == sum(phase.turns for phase in now.phases) == 8
    assert (now.runs[0].ended, now.runs[0].exit_code, now.runs[0].reason) == (None, None, "")


def test_several_runs_are_one_after_the_other() -> None:
    found = fold(
        start("r1"), session("s1"), *turn(1, 100), start("r2"), Noticed(text="w", warning=True), Noticed(text="n"),
        RetryScheduled(attempt=1, wait_s=4.0, reason=""), session("s2"),
        RetryScheduled(attempt=1, wait_s=2.0, reason=""),
        CacheBroken(changed="system", expected_tokens=1, read_tokens=0), *turn(1, 100), over("s2"), end(exit_code=3),
    )  # fmt: skip
    assert [(run.run_id, len(run.sessions), run.exit_code, run.warnings) for run in found.runs] == [
        ("r1", 1, None, []), ("r2", 1, 3, ["w"]),
    ]  # fmt: skip
    assert (found.runs[1].retries, found.runs[1].retries_s, found.totals.cache_breaks) == (2, 6.0, 1)
    assert found.hand_offs == ()


def test_a_log_whose_beginning_is_lost_is_counted_as_far_as_it_goes() -> None:
    found = fold(*turn(3, 500), *turn(4, 0, usage=None), *call("read", "a", 5), gate(passed=True), over(), end())
    assert found.totals.prompt_tokens == 500
    assert found.totals.sources == {"other": 500}
    assert (found.runs[0].run_id, found.runs[0].command, found.totals.turns) == ("", "", 2)


def test_points_and_what_is_kept_have_bounds() -> None:
    one = fold_session(*(event for n in range(SESSION_POINTS + 10) for event in turn(n + 1, n + 1)))
    assert SESSION_POINTS / 2 <= len(one.series) <= SESSION_POINTS
    assert one.series[-1].prompt_tokens == one.peak_tokens == SESSION_POINTS + 10
    turns = MOST_POINTS // 20 + 7
    several = [[session(f"s{n}"), *(event for at in range(turns) for event in turn(at + 1, at + 1))] for n in range(20)]
    kept = [len(found.series) for found in fold(start(), *chain.from_iterable(several)).sessions]
    assert kept == [MOST_POINTS // 20] * 20
    calls = (event for n in range(20) for event in call("t", f"{n}", n))
    many = fold(
        start(),
        session(),
        *turn(1, 9),
        *calls,
        *turn(2, 199),
    )
    assert [result.tokens for result in many.tools[0].costliest] == sorted(range(10, 20), reverse=True)


def test_a_plan_of_which_a_log_has_the_changes_counts_as_a_whole_one() -> None:
    first, then = plan(p1={"1.1": "open"}, p2={"2.1": "open"}), plan(p1={"1.1": "done"}, p2={"2.1": "open"})
    work = (session(), *turn(1, 9, cost_usd=2.0), commit(), over())
    assert fold(start(), first, *work, then.since(first.phases)) == fold(start(), first, *work, then)


def test_what_is_left_to_a_person_is_named_once_its_phase_is_done() -> None:
    def shown(state: str) -> PlanShown:
        return plan(p1={"1.1": state, "1.2": "yours"}, p2={"2.1": "open", "2.2": "yours"})

    assert fold(start(), shown("open"), end()).yours == ()
    assert fold(start(), shown("open"), shown("done"), end()).yours == ("1.2 Item 1.2",)


def test_a_cap_that_a_person_moved_is_the_run_s() -> None:
    capped = start(cap_usd=5.0)
    assert [fold(capped, *moved, end()).runs[0].cap_usd for moved in ((), (CapMoved(cap_usd=9.0),))] == [5.0, 9.0]
    assert fold(capped, CapMoved(cap_usd=9.0), CapMoved(cap_usd=None), end()).runs[0].cap_usd is None


def test_the_plan_s_own_files_are_nobodys_drift() -> None:
    ledger = call("edit", "PLAN.ledger.yaml", 1, changed_paths=("PLAN.ledger.yaml", "PLAN.md", "x.py"))
    of_plan = commit("", (), status="amended")
    found = fold(start(), plan(p1={"1.1": "open x.py"}), session(), *ledger, of_plan, over())
    assert found.phases[0].touched == ["x.py"]
    assert (found.ticks, found.totals.commits) == ((), 0)


def test_a_session_that_never_answered_has_no_hand_off() -> None:
    assert fold(start(), session("s1"), over("s1"), session("s2"), *turn(1, 9), over("s2")).hand_offs == ()
    assert fold(start(), session("s1"), *turn(1, 9), over("s1"), session("s2"), over("s2")).hand_offs == ()


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


def test_bands_follow_the_soft_line() -> None:
    one = fold_session(*turn(1, 1_000), *turn(2, 39_999), *turn(3, 80_000), *turn(4, 9, fill_tokens=None))
    assert [point.band for point in one.series] == [Band.ORIENT, Band.EXPLORE, Band.HAND_OFF, None]


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
    for run in found.runs:
        inside = sum((one.turns for one in run.sessions), start=0)
        assert inside <= run.turns
    for phase in found.phases:
        assert set(phase.strayed) <= set(phase.touched)
    json.dumps(render_document(found))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**5)), max_size=12))
def test_totals_of_parts_are_the_totals_of_the_whole(answers: list[tuple[int, int, int]]) -> None:
    """Sessions add up to their phases, phases to the run, runs to all."""
    events: list[Event] = [start()]
    for n, (prompt, output, tokens) in enumerate(answers):
        events += [session(f"s{n}", str(n % 3)), *turn(1, prompt, output), *call("read", "a", tokens, lines=(1, 2))]
        events += [*turn(2, prompt + output + tokens), over(f"s{n}", str(n % 3))]
    found = fold(*events)
    summed = add_up(found.sessions)
    assert summed.prompt_tokens == found.totals.prompt_tokens
    assert summed.sources == found.totals.sources
    assert add_up(found.phases).sources == summed.sources


def test_every_event_of_a_story_is_of_a_known_kind() -> None:
    """The helper of these tests makes what a run makes."""
    made: tuple[Any, ...] = (streams.start(), *two_sessions())
    assert {RunStarted, ToolFinished} <= {type(event) for event in made} <= set(get_args(Event))

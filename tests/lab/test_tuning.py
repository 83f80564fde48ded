"""What logs say of reset lines: rates with intervals, paired differences, and silence where there is too little."""

from statistics import fmean, stdev

import pytest

from relay.insight.database import Row
from relay.insight.figures import Figures, measure_ledger, read_figures
from relay.lab.statistics import count_needed, find_mean_difference, find_rate
from relay.lab.tuning import count_rungs, measure_bands
from relay.session.events import Event, ShownClaim, TextShown
from tests.figures.streams import call, commit, end, gate, log, over, parts, session, start, turn


def test_a_rate_has_wilson_s_interval() -> None:
    """The published example: 10 of 20 are between 0.2993 and 0.7007."""
    rate = find_rate(10, 20)
    assert rate
    assert rate.low == pytest.approx(0.2993, abs=1e-4)
    assert rate.high == pytest.approx(0.7007, abs=1e-4)
    none = find_rate(0, 10)
    assert none
    assert none.low == 0.0
    assert none.high == pytest.approx(0.2775, abs=1e-4)
    assert find_rate(0, 0) is None


def test_differences_of_pairs_have_student_s_interval_once_there_are_enough() -> None:
    """Tables of t: 2.776 for five pairs, 2.365 for eight, 4.604 and 3.499 where all of five hold at once."""
    assert find_mean_difference([1.5] * 2) is find_mean_difference([]) is None
    for n, among, t in ((5, 1, 2.776), (8, 1, 2.365), (5, 5, 4.604), (8, 5, 3.499), (2_000, 1, 1.962)):
        values = [0.5 + 1.5 * (-1) ** k for k in range(n)]
        found = find_mean_difference([value + 0.25 for value in values], among=among)
        assert found
        assert found.estimate == pytest.approx(fmean(values) + 0.25)
        assert (found.high - found.low) / 2 == pytest.approx(t * stdev(values) / n**0.5, rel=1e-3)
        assert found.high - found.estimate == pytest.approx(found.estimate - found.low)


def test_counts_that_are_all_alike_do_not_say_that_the_next_one_is_too() -> None:
    """Eight times nothing is at most about one in three: the rule of three says 3 / 8."""
    none, always = find_mean_difference([0.0] * 8), find_mean_difference([1.0] * 8)
    assert none
    assert always
    assert (none.estimate, none.excludes_zero, always.excludes_zero) == (0, False, True)
    assert 0.3 < none.high < 0.5
    assert always.low < 0.7


def test_how_many_pairs_it_takes() -> None:
    """(1.96 + 0.84)² sd² / mean²: a mean of half a spread takes 32."""
    differences = [0.5 - 2**0.5 / 2, 0.5 + 2**0.5 / 2]  # mean 0.5, sd 1
    assert count_needed(differences) == 32
    assert (count_needed([1.0]), count_needed([1.0, -1.0]), count_needed([1.0, 1.0])) == (None, None, 3)
    assert count_needed([1e-9, 1.0, -1.0]) == 1_000_000
    assert count_needed(differences, among=18) == 59  # (2.991 + 0.842)² x 4


def work(n: int, *, late_errors: int) -> tuple[Event, ...]:
    """A session of calls that fail more often once it is fuller than half of its line."""
    early = (event for m in range(10) for event in call("read", f"{n}.{m}", 5, lines=(1, 2)))
    late = (
        event
        for m in range(10)
        for event in call("bash", f"x{m}", 5, is_error=m < late_errors, changed_paths=(f"{m}.py",))
    )
    return (
        session(f"s{n}", str(n)), *turn(1, 10_000), *early, *turn(2, 50_000), *late,
        gate(str(n), passed=False), *turn(3, 70_000), gate(str(n), passed=True), over(f"s{n}", str(n)),
    )  # fmt: skip


def fold(*events: Event) -> Figures:
    return read_figures(log((start(), *events, end())))


def test_what_went_wrong_is_told_by_how_full_sessions_were() -> None:
    trouble = fold(*(event for n in range(20) for event in work(n, late_errors=6)))
    rates = {rates.band: rates for rates in measure_bands([trouble])}
    assert rates["orient"].errors
    assert rates["orient"].errors.estimate == 0
    assert rates["execute"].errors
    assert rates["execute"].errors.estimate == pytest.approx(0.6)
    assert rates["execute"].repairs
    assert rates["execute"].repairs.estimate == 1.0
    assert (rates["execute"].sessions, rates["explore"].sessions, rates["hand-off"].sessions) == (20, 0, 20)


def shown(**claims: str) -> tuple[ShownClaim, ...]:
    """Claims of 60 tokens each, with the files that each cites."""
    return tuple(ShownClaim(id=name, tokens=60, paths=paths.split()) for name, paths in claims.items())


def reads_one(n: int) -> tuple[Event, ...]:
    """A session that is shown ten claims, and uses the first two in four ways."""
    claims = shown(c0="a.py b.py", c1="c.py", **{f"c{k}": "z.py" for k in range(2, 10)})
    return (
        session(f"s{n}", str(n), claims=claims, prompt=parts(system=400, ledger=600)),
        *turn(1, 1_000, 50),
        TextShown(text="c1 says so; c10 and (c11) are none"),
        *call("read", "a.py", 100, lines=(1, 9)),
        *call("write", "c.py", 10, changed_paths=("c.py",)),
        *call("record", "confirms c0: read again", 10),
        *turn(2, 1_200, 50),
        over(f"s{n}", str(n)),
    )


def test_what_sessions_used_of_the_ledger_and_what_they_paid_for_it() -> None:
    """Each of ten claims is 60 of 600 tokens, in two prompts; 120 would have shown the two that were used."""
    worth = measure_ledger([read_figures(log((start(), *(event for n in range(5) for event in reads_one(n)))))])
    assert worth == Row(
        sessions=5, shown=50, named=10, read=5, changed=5, used=10, shown_tokens=3_000, used_tokens=600,
        paid_tokens=5 * 2 * 600, largest_tokens=600, needed_tokens=120,
    )  # fmt: skip


def test_the_budget_that_the_ledger_needed_is_that_of_the_last_claim_used_in_any_plan() -> None:
    few = read_figures(log((start(), *(event for n in range(4) for event in reads_one(n)))))
    last = (session("t", "9", claims=shown(**{f"c{k}": f"{k}.py" for k in range(6)})), *turn(1, 900))
    used = read_figures(log((start(), *last, *call("read", "5.py", 9, lines=(1, 2)), *turn(2, 950), over("t", "9"))))
    both = measure_ledger([few, used])
    assert (both.sessions, both.needed_tokens) == (5, 360)
    assert measure_ledger([few, read_figures(log((start(), session("u"), over("u"))))]).sessions == 4
    idle = [read_figures(log((start(), *last, *turn(2, 950), over("t", "9")))) for _ in range(5)]
    assert (measure_ledger(idle).used, measure_ledger(idle).needed_tokens) == (0, 0)


def test_each_change_of_model_or_effort_is_counted_with_what_it_led_to() -> None:
    """A phase that needed the next change was not done by this one; its sessions until then are what it cost."""
    high, both = ("effort=high",), ("effort=high", "model=m")
    first = (
        start(),
        *(session("a", "1"), *turn(1, 900), over("a", "1", "failed")),
        *(session("b", "1", rungs=high), *turn(1, 900), over("b", "1", "failed")),
        *(session("c", "1", rungs=both), *turn(1, 900), commit("1"), over("c", "1")),
        *(session("d", "2", rungs=high), *turn(1, 900), *turn(2, 950), commit("2"), over("d", "2")),
    )
    second = (start(), session("e", "1", rungs=high), *turn(1, 900), over("e", "1", "failed"))
    found = count_rungs([read_figures(log(first)), read_figures(log(second))])
    assert [(one.rung, one.phases, one.done, round(one.cost_usd or 0, 2)) for one in found] == [
        ("effort=high", 3, 1, 0.04),
        ("model=m", 1, 1, 0.01),
    ]
    assert count_rungs([read_figures(log((start(), session("u"), over("u"))))]) == []

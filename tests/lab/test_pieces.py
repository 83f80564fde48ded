"""The arms of an experiment, the order of its trials, and what is counted in a trial."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.interrupts import Interrupts
from relay.config import Settings, load_settings
from relay.config.model import Paths
from relay.git.repository import open_repo
from relay.lab.arms import parse_arm, parse_arms
from relay.lab.experiment import Experiment
from relay.lab.judging import count_tests, match_faults
from relay.lab.trial import Bench, make_environ


def make(**given):
    known = {"plan_path": "PLAN.md", "base": "0" * 40, "branch": "main", "arms": ("reset", "none"), "repeats": 3}
    return Experiment(**{**known, "seed": 1, "cap_usd": 30.0, **given})


def test_an_arm_is_a_strategy_with_a_line_a_setting_or_several():
    arm = parse_arm("none@60k+model=claude-haiku-5-5+ablate=rules+ablate=ledger")
    assert dict(arm.options) == {"--reset-at": "60k", "--model": "claude-haiku-5-5"}
    assert arm.environ == {"RELAY_ARM": "none+ablate=rules+ablate=ledger"}
    assert [one.name for one in parse_arms("reset@min(45%,100k), edit")] == ["reset@min(45%,100k)", "edit"]
    lines = parse_arms("30%,60k,min(45%,100k),none")
    assert [dict(one.options).get("--reset-at") for one in lines] == ["30%", "60k", "min(45%,100k)", None]


def test_what_is_no_list_of_arms_is_refused():
    wrong = ("reset", "reset,reset", "reset,", "reset,model=", "reset,jobs=3", "reset,none@", "reset,none+compact")
    for text in (*wrong, "reset,turbo"):
        with pytest.raises(ValueError, match=r"allowed|the same|twice"):
            parse_arms(text)


@given(st.integers(), st.integers(1, 8), st.lists(st.sampled_from("abcdefgh"), min_size=2, unique=True))
def test_each_repeat_has_each_arm_once_and_the_seed_decides_the_order(seed, repeats, arms):
    trials = make(seed=seed, repeats=repeats, arms=tuple(arms)).list_trials()
    assert trials == make(seed=seed, repeats=repeats, arms=tuple(arms)).list_trials()
    assert [trial.number for trial in trials] == list(range(1, len(arms) * repeats + 1))
    assert [trial.repeat for trial in trials] == [n for n in range(1, repeats + 1) for _ in arms]
    assert all({one.arm for one in trials if one.repeat == n} == set(arms) for n in range(1, repeats + 1))
    assert len({tuple(trial.arm for trial in make(seed=n).list_trials()) for n in range(20)}) > 4


def test_the_cap_is_divided_and_another_cap_is_no_other_experiment():
    one = make()
    assert one.share_usd * 6 == pytest.approx(30)
    assert one.run_usd < one.share_usd == make(reviews=False).run_usd
    assert one.id == make(cap_usd=5.0).id != make(seed=2).id


COUNTED = (
    ("..F.\nRan 4 tests in 0.1s\n\nFAILED (failures=1)", False, (3, 4)),
    ("Ran 4 tests in 0.1s\n\nOK", True, (4, 4)),
    ("Ran 4 tests in 0.1s\n\nFAILED (failures=1, errors=2)", False, (1, 4)),
    ("== 1 failed, 8 passed, 2 errors in 0.32s ==", False, (8, 11)),
    ("3 passed in 0.1s", True, (3, 3)),
    ("whatever", True, (1, 1)),
    ("whatever", False, (0, 1)),
    ("Ran 4 tests in 0.1s\n\nOK", False, (3, 4)),  # the code under test can print
    (f"{'9' * 5_000} passed in 1s\nRan {'9' * 5_000} tests in 1s\n\nOK", True, (1, 1)),  # no number for Python
)


def test_held_out_tests_are_counted_and_the_exit_code_has_the_last_word():
    assert [row for row in COUNTED if count_tests(row[0], green=row[1]) != row[2]] == []


def test_a_trial_hides_what_is_hidden_from_it_whatever_the_path(stage):
    """A colon in a path splits nothing."""
    bench = Bench(
        main=open_repo(stage.root), experiment=make(hidden_dir="/a:b/hidden"), flags={}, environ={},
        settings=Settings(paths=Paths(hide=("~/c,/d",))), interrupts=Interrupts(), tell=lambda *_: None,
        say=lambda _: None,
    )  # fmt: skip
    given = {"RELAY_PATHS": make_environ(bench, {})["RELAY_PATHS"]}
    found = load_settings(flags={}, environ=given, plan_settings={}, repo_root=None, user_dir=None)
    assert found.paths.hide == ("~/c,/d", str(stage.root), "/a:b/hidden")


def test_two_reviews_agree_where_file_and_place_do():
    here, near, far = ({"file": "a.py", "line": line} for line in (10, 15, 90))
    other = {"file": "b.py", "line": 10}
    assert match_faults([here, far], [near, other]) == (1, 2)
    assert match_faults([], []) == (0, 0)
    assert match_faults([here, here], [near]) == (1, 1)

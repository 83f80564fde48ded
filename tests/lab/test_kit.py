"""The tasks of examples/compare: references pass, wrong solutions fail, and their plans and scripts can be used."""

import importlib.util
from pathlib import Path

import pytest

from relay.plan.check import check_plan
from relay.plan.parse import parse_plan
from tests.endpoint.script import parse_script

ROOT = Path(__file__).parents[2] / "examples/compare"


def load_kit():
    spec = importlib.util.spec_from_file_location("kit", ROOT / "kit.py")
    assert spec
    assert spec.loader
    kit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kit)
    return kit


KIT = load_kit()


@pytest.mark.nightly
@pytest.mark.parametrize("task", KIT.TASKS)
def test_held_out_tests_tell_right_from_wrong(task):
    assert KIT.check(task) == []


@pytest.mark.parametrize("task", KIT.TASKS)
def test_the_plan_is_one_and_the_script_plays_all_of_it(task):
    plan = parse_plan((ROOT / task / "project/PLAN.md").read_text())
    assert list(check_plan(plan)) == []
    assert [phase.id for phase in plan.phases] == list(KIT.load(task)["phases"])
    script = parse_script(KIT.write_script(task, 20_000))
    ticked = KIT.write_script(task, 0).count('"evidence"')
    assert ticked == sum((n + 1) * len(phase.items) for n, phase in enumerate(plan.phases))
    assert len(script.sessions) == len(plan.phases) + 2


def test_a_task_is_a_repository_with_its_filler_and_without_its_held_out_tests(tmp_path):
    KIT.make("parser", tmp_path / "task", 20_000)
    filler = sorted((tmp_path / "task/docs/examples").iterdir())
    assert 19_000 <= sum(path.stat().st_size for path in filler) / 4 <= 22_000
    assert not any("test_filters" in path.name for path in (tmp_path / "task").rglob("*"))
    assert (tmp_path / "task.hidden/test_filters.py").is_file()

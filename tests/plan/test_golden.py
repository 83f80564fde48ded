"""relay reads the plans of other tools as it did when `golden.txt` was written, and has few objections."""

from relay.plan.check import check_plan
from relay.plan.parse import parse_plan
from tests.plan.golden import FILE, ROOT, list_plans, render


def test_every_plan_is_read_as_golden_txt_has_it():
    """`python -m tests.plan.golden` writes the file anew; the commit names each difference and why it is better."""
    blocks = FILE.read_text(encoding="utf-8").removeprefix("== ").split("\n== ")
    kept = dict(block.partition("\n")[::2] for block in blocks)
    read = {name: "\n".join(render(text)) for name, text in list_plans()}
    assert read.keys() == kept.keys()
    different = [name for name, said in read.items() if said.strip() != kept[name].strip()]
    assert different == []


def test_plans_of_other_tools_have_no_error_and_the_shipped_example_has_nothing():
    plans = {path.stem: path.read_bytes().decode() for path in (ROOT / "tests/plan/formats").glob("*.md")}
    errors = {
        name: [one.line for one in check_plan(parse_plan(text)) if not one.warning] for name, text in plans.items()
    }
    assert len(plans) >= 8
    assert [name for name, lines in errors.items() if lines] == []
    assert check_plan(parse_plan((ROOT / "examples/PLAN.md").read_text(encoding="utf-8"))) == ()

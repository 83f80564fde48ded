"""relay reads the plans of other tools as it did when `golden.txt` was written."""

from tests.plan.golden import FILE, list_plans, render


def test_every_plan_is_read_as_golden_txt_has_it():
    """`python -m tests.plan.golden` writes the file anew; the commit names each difference and why it is better."""
    blocks = FILE.read_text(encoding="utf-8").removeprefix("== ").split("\n== ")
    kept = dict(block.partition("\n")[::2] for block in blocks)
    read = {name: "\n".join(render(text)) for name, text in list_plans()}
    assert read.keys() == kept.keys()
    different = [name for name, said in read.items() if said.strip() != kept[name].strip()]
    assert different == []

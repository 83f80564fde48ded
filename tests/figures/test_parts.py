"""The pieces that figures are made of."""

from relay.insight.figures import find_strayed
from relay.insight.report.plots import thin


def test_files_that_no_item_names_have_strayed() -> None:
    declared = ("api/keys.py", "docs/", "conf/*.toml", "db.py")
    touched = (
        "api/keys.py", "docs/a/b.md", "conf/x.toml", "AGENTS.md", "tests/test_keys.py", "api/keys_test.go",
        "api/other.py", "tests/test_other.py", "tests/test_db.py", "docsy.md",
    )  # fmt: skip
    assert find_strayed(touched, declared) == ["api/other.py", "tests/test_other.py", "tests/test_db.py", "docsy.md"]
    assert find_strayed(touched, (".",)) == []


def test_a_thinned_series_keeps_its_peaks() -> None:
    points = thin([1_000 if n == 50 else n for n in range(100)], float, most=8)
    assert 1_000 in points
    assert len(points) <= 8
    assert points[-1] == 99

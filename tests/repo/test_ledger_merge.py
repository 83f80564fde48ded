"""Two branches that both append to the ledger, joined by git itself."""

import subprocess
from pathlib import Path

import pytest

from relay.ledger.model import Claim, Ledger, Retraction, Stamp, append_entry, parse_ledger
from relay.prompts.package_data import get_shipped

PATH = "PLAN.ledger.yaml"
OLD = '- event: "claim"\n  id: "c1"\n  claim: "as a person wrote it"\n  because: "so"\n'


def git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True).stdout


def record(folder: Path, branch: str, count: int) -> None:
    """Append claims on a branch, one commit each, all that a session of that branch would write."""
    git(folder, "switch", "-q", branch)
    for number in range(count):
        ledger = parse_ledger((folder / PATH).read_text()) if (folder / PATH).exists() else Ledger()
        words = f"claim {number}"
        name = ledger.make_id("c", (branch, words))
        claim = Claim(id=name, claim=words, because="the same words on each", stamp=Stamp(phase="1", session=branch))
        ledger = append_entry(ledger, claim, Retraction(of=name, because="the same words on each"))
        (folder / PATH).write_text(ledger.text)
        git(folder, "add", PATH)
        git(folder, "commit", "-q", "-m", words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a person's ledger and two branches."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitattributes").write_bytes((get_shipped("templates") / ".gitattributes").read_bytes())
    (tmp_path / PATH).write_text(OLD)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "start")
    for branch in ("one", "two"):
        git(tmp_path, "branch", branch)
    return tmp_path


@pytest.mark.parametrize("how", [("merge", "-q", "-m", "x"), ("rebase", "-q"), ("cherry-pick", "..")])
def test_both_branches_entries_are_there_once_whatever_joins_them(folder: Path, how: tuple[str, ...]) -> None:
    record(folder, "one", 3)
    record(folder, "two", 2)
    branches = {git(folder, "show", f"{branch}:{PATH}") for branch in ("one", "two")}
    args = ["two..one" if arg == ".." else arg for arg in how]
    git(folder, *args, *(() if ".." in how else ("one",)))
    joined = parse_ledger((folder / PATH).read_text())
    assert (folder / PATH).read_text().startswith(OLD)
    assert set(joined.entries) == {entry for text in branches for entry in parse_ledger(text).entries}
    assert len(joined.claims) == 6

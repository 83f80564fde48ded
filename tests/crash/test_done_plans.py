"""A plan that is done moves by a commit: killed at any call that touches it, the next run puts it right by itself."""

import shutil
from pathlib import Path

import pytest

from rigs.crash.scenario import git, make_environ
from rigs.crash.tracer import Fault, Start, Starter, find_obstacle
from tests.effort import NIGHTLY, take_turns

OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
DONE = "# a\n\n## Phase 1 — Only\nVerify: `true`\n- [x] Write it — a.txt\n"
PARTS = 60
"""A move is cut into so many parts; a test's number picks the call at the end of one of them."""


class Move:
    def __init__(self, starter: Starter, place: Path) -> None:
        self.starter, self.home, self.root = starter, place / "home", place / "project"
        self.environ = make_environ(self.home, "", sandbox="off")

    def make(self) -> None:
        (self.root / "plans").mkdir(parents=True)
        git(self.root, "init", "-q", "-b", "main", environ=self.environ)
        (self.root / "relay.toml").write_text('done_dir = "plans/done"\n')
        (self.root / "plans/a.md").write_text(DONE)
        (self.root / "plans/a.ledger.yaml").write_text("")
        git(self.root, "add", ".", environ=self.environ)
        git(self.root, "commit", "-qm", "plan", environ=self.environ)

    def run(self, *args: str, fault: Fault | None = None, log: Path | None = None):
        output = self.root.parent / "output"
        start = Start(root=self.root, output=output, environ=self.environ, args=args, fault=fault, log=log)
        return self.starter.run(start), output.read_text()

    def count(self, on: str = "") -> int:
        """Return the calls of a whole move, the repository as new before it and after it."""
        shutil.copytree(self.root, self.root.parent / "origin", symlinks=True)
        count = 0
        for _ in range(2):  # the first one makes files at home too
            whole, output = self.run("run", "plans/a.md", fault=Fault(at=0, on=on))
            assert whole.code == 0, output
            count = whole.count
            shutil.rmtree(self.root)
            shutil.copytree(self.root.parent / "origin", self.root, symlinks=True)
        return count


@pytest.fixture
def move(starter: Starter, tmp_path: Path) -> Move:
    (tmp_path / "home").mkdir()
    made = Move(starter, tmp_path)
    made.make()
    return made


@pytest.mark.parametrize(("part", "mode"), take_turns(range(1, PARTS, 1 if NIGHTLY else 9), "ba"))
def test_a_killed_move_is_put_right_by_the_next_run(move, part, mode):
    """Either the plan has moved and its commit is there, or it is where it was; nothing else is left behind."""
    killed, _ = move.run("run", "plans/a.md", fault=Fault(at=1 + move.count() * part // PARTS, mode=mode))
    assert killed.reached
    moved = "plan done" in git(move.root, "log", "-1", "--format=%s", environ=move.environ)
    # The option moves no plan: so what a killed move has left is seen to be put back.
    ended, output = move.run("run", "--plan", "plans/a.md")
    assert ended.code == int(moved), (killed, output)
    status = git(move.root, "status", "--porcelain", environ=move.environ)
    assert status == "", (killed, moved, status, output)
    found = {path.relative_to(move.root).as_posix(): path.read_text() for path in (move.root / "plans").rglob("a.*")}
    folder = "plans/done" if moved else "plans"
    assert found == {f"{folder}/a.md": DONE, f"{folder}/a.ledger.yaml": ""}, killed


def test_what_somebody_has_changed_meanwhile_stays(move):
    """The file at the new place is the user's now; the old one comes back, and both are kept if they differ."""
    move.run("run", "plans/a.md", fault=Fault(at=move.count("/plans/"), on="/plans/", mode="b"))
    new, old = move.root / "plans/done/a.md", move.root / "plans/a.md"
    assert new.exists()
    assert not old.exists()
    new.write_text("mine\n")
    old.write_text("also mine\n")
    move.run("run", "--plan", "plans/a.md")
    assert (new.read_text(), old.read_text()) == ("mine\n", "also mine\n")

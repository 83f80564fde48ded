"""Killed while a plan that git ignores is worked on: the next run goes on, and the file is ticked as commits are."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest

from relay.base.errors import ExitCode
from relay.plan.text import find_ledger_path
from rigs.crash.invariants import find_ticked
from rigs.crash.scenario import PLAN, git, make_environ, make_script
from rigs.crash.tracer import Fault, Start, find_obstacle
from tests.copied import FSCK
from tests.effort import NIGHTLY
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
PARTS = 40
KEPT = Fault(at=12, on="refs/relay/plan", mode="a")
"""The phase is committed nowhere yet, and its version of the plan is kept."""
LANDED = Fault(at=1, on="main/.planning/.relay-")
"""The phase, which is the last one, is on the branch, and the file has no tick."""
NAME = ".planning/PLAN.md"
WANTED = (["1.1", "1.2"], {"Write the app — app.txt", "Extra — extra.txt"}, "")
"""Boxes that commits tick, boxes that the plan has ticked, and what git says of the user's work tree."""


class Rig:
    """A repository that ignores its plan, copied for each trial."""

    def __init__(self, place, home, starter, url):
        self.place, self.home, self.starter = place, home, starter
        self.environ = make_environ(home, url, sandbox="off")
        self.root = place / "origin/main"
        (self.root / ".planning").mkdir(parents=True)
        (self.root / NAME).write_text(PLAN.partition("\n## Phase 2")[0])
        (self.root / ".gitignore").write_text(".planning/\n")
        for args in (("init", "-q"), ("add", "."), ("commit", "-qm", "start")):
            git(self.root, *args, environ=self.environ)

    def count(self):
        """Return how many calls change files when nobody kills it."""
        with self.copy() as root:
            ended = self.run(root, Fault())
            assert (ended.code, self.look(root)) == (ExitCode.DONE, WANTED), self.read()
            return ended.count

    def read(self):
        return (self.home / "out").read_text()

    @contextlib.contextmanager
    def copy(self):
        top = self.place / "trial"
        shutil.copytree(self.place / "origin", top)
        try:
            yield top / "main"
        finally:
            shutil.rmtree(top)

    def run(self, root, fault=None):
        start = Start(root=root, output=self.home / "out", environ=self.environ, args=("run", NAME), fault=fault)
        return self.starter.run(start)

    def look(self, root):
        """Return what must be the same in the end, however often relay was killed."""

        def say(*args):
            return git(root, *args, environ=self.environ)

        tree = say("log", "-1", "--format=%(trailers:key=Relay-Plan-Tree,valueonly)").strip()
        kept = say("cat-file", "blob", f"{tree}:{NAME}")
        assert kept == (root / NAME).read_text()
        ledger = str(find_ledger_path(NAME))
        assert say("cat-file", "blob", f"{tree}:{ledger}") == (root / ledger).read_text()
        assert (root / "app.txt").read_text() == "two\n"
        assert not list(root.parent.glob("main.relay/*"))
        assert say("for-each-ref", "refs/relay/leg", "refs/heads/relay-jobs") == ""
        assert say(*FSCK) == ""
        assert "PLAN" not in say("log", "--format=", "--name-only")
        done = say("log", "--reverse", "--format=%(trailers:key=Relay-Items,valueonly,separator=%x2C)").split()
        return sorted(done), set(find_ticked(kept)), say("status", "--porcelain")


@pytest.fixture(scope="module")
def rig(starter):
    with (
        tempfile.TemporaryDirectory(prefix="relay-loose-", dir="/dev/shm") as place,
        tempfile.TemporaryDirectory(prefix="relay-loose-home-") as home,
        serve(parse_script(make_script()), keeps_bodies=False) as server,
    ):
        yield Rig(Path(place).resolve(), Path(home).resolve(), starter, server.base_url)


@pytest.fixture(scope="module")
def count(rig):
    return rig.count() if NIGHTLY else 0


@pytest.mark.parametrize("fault", [LANDED, KEPT, *range(PARTS)] if NIGHTLY else [LANDED])
def test_killed_with_a_plan_that_git_ignores(rig, count, fault):
    """The ref with the new version moves first, then the phase's branch, then the user's, then the file."""
    with rig.copy() as root:
        ended = rig.run(root, fault if isinstance(fault, Fault) else Fault(at=1 + count * fault // PARTS))
        assert ended.reached, ended
        shutil.rmtree(root / ".relay", ignore_errors=True)
        again = rig.run(root)
        assert again.code == ExitCode.DONE, (ended.where, rig.read())
        assert rig.look(root) == WANTED, (ended.where, rig.read())

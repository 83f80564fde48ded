"""What users do between two runs, in any order: relay loses nothing of it and ticks no box that it did not check."""

import contextlib
import json
import re
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from relay.base.errors import RelayError
from relay.base.interrupts import Interrupts
from relay.config import load_settings
from relay.git.repository import open_repo
from relay.run.loop import run
from relay.run.selection import Selection
from relay.session.values import SessionKind
from relay.setup.context import RunRequest
from relay.setup.open import open_run
from rigs.crash.invariants import find_lost, find_ticked, find_versions, read_trailers
from rigs.crash.scenario import git, make_environ
from tests.copied import FSCK
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

PLAN = """\
# Three words

## Phase 1 — One
Verify: `grep -q one one.txt`
- [ ] Say one — one.txt

## Phase 2 — Two
Verify: `grep -q two two.txt`
- [ ] Say two — two.txt

## Phase 3 — Three
Verify: `grep -q three three.txt`
- [ ] Say three — three.txt
"""
FILES = strategies.sampled_from(["mine.txt", "other.txt", "one.txt", "two.txt"])


def make_script(*, whole: bool) -> str:
    """Return a model that does one phase a session, or says half way that it cannot go on."""
    sessions = []
    for phase, word in (("1", "one"), ("2", "two"), ("3", "three")):
        write = {"name": "write", "input": {"path": f"{word}.txt", "content": f"{word}\n" if whole else "half\n"}}
        tick = {"name": "tick", "input": {"item": f"{phase}.1", "evidence": "seen"}}
        block = {"name": "block", "input": {"reason": "half way"}}
        rest = [{"tools": [tick]}, {"text": f"Commit: {word}"}] if whole else [{"tools": [block]}]
        when = {"first_message_contains": f"Carry out phase {phase} now"}
        sessions.append({"name": word, "when": when, "repeat": True, "turns": [{"tools": [write]}, *rest]})
    return json.dumps({"sessions": sessions})


class BetweenSessions(RuleBasedStateMachine):
    """A repository, a user with two hands, and relay in between."""

    def __init__(self):
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="relay-between-")).resolve()
        self.root = self.place / "repo"
        self.environ = make_environ(self.place / "home", "", sandbox="off")
        self.count = 0

    def teardown(self):
        shutil.rmtree(self.place)

    def git(self, *args, check=True):
        return git(self.root, *args, environ=self.environ, check=check)

    @initialize()
    def begin(self):
        self.root.mkdir()
        self.git("init", "-q")
        (self.root / "mine.txt").write_text("mine\n")
        (self.root / "PLAN.md").write_text(PLAN)
        self.git("add", ".")
        self.git("commit", "-qm", "start")

    @rule(whole=strategies.booleans())
    def run_relay(self, whole):
        """One phase, or half of one; what was there is there afterwards, or in a commit, or under refs/relay."""
        seen, head = find_versions(self.root, self.environ), self.git("rev-parse", "HEAD").strip()
        others, stash = self.read_other_refs(), self.git("stash", "list")
        self.play(make_script(whole=whole))
        lost = find_lost(self.root, self.environ, seen)
        assert not lost, {blob: seen[blob] for blob in lost}
        assert (others, stash) == (self.read_other_refs(), self.git("stash", "list"))
        assert not self.git(*FSCK, check=False)
        assert not list((self.root / ".git").rglob("*.lock"))
        self.require_commits(head)

    def read_other_refs(self):
        """Every ref but relay's own and the branch that is worked on."""
        branch = self.git("symbolic-ref", "HEAD").strip()
        refs = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return [ref for ref in refs if not ref.startswith(("refs/relay/", f"{branch} "))]

    def require_commits(self, head):
        """New commits stand on the old ones; each box that they tick is named in them and has passed a gate.

        Without a sandbox the gate sees files of the user's, which the commit counts, and is no ``pass`` then.
        """
        assert head in self.git("rev-list", "HEAD").split()
        for commit in self.git("rev-list", f"{head}..HEAD").split():
            before, after = (find_ticked(self.git("show", f"{at}:PLAN.md")) for at in (f"{commit}^", commit))
            trailers = read_trailers(self.git("show", "-s", "--format=%B", commit))
            assert before <= after
            assert len(after - before) == len(trailers.get("Relay-Items", "").split())
            assert after == before or re.match(r"pass |none \w+ .*seen=[1-9]", trailers["Relay-Gate"])

    def play(self, script):
        """Run one phase; relay may also say that the user has to act first."""
        interrupts = Interrupts(sleep=lambda _: None)
        repo = open_repo(self.root)
        loaded = load_settings(
            flags={"sandbox": "off"}, environ={}, plan_settings={}, repo_root=repo.root, user_dir=None
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(RelayError))
            stack.callback(interrupts.close)
            with serve(parse_script(script)) as server:
                environ = make_environ(self.place / "home", server.base_url, sandbox="off")
                request = RunRequest(
                    kind=SessionKind.RUN,
                    repo=repo,
                    settings=loaded,
                    plan_path="PLAN.md",
                    environ=environ,
                )
                with open_run(request, lambda _: None, interrupts) as ctx:
                    run(ctx, Selection(all=False))

    @rule(name=FILES)
    def edit_a_file(self, name):
        self.count += 1
        (self.root / name).write_text(f"edit {self.count}\n")

    @rule(name=FILES)
    def delete_a_file(self, name):
        (self.root / name).unlink(missing_ok=True)

    @rule()
    def edit_the_plan(self):
        """An amendment of an open phase."""
        self.count += 1
        self.change_plan("\n- [ ] ", f"\n- [ ] (v{self.count}) ")

    @rule()
    def untick_a_box(self):
        self.change_plan("- [x]", "- [ ]")

    def change_plan(self, old, new):
        plan = self.root / "PLAN.md"
        plan.write_text(plan.read_text().replace(old, new, 1))

    @rule()
    def undo_what_was_done_to_the_plan(self):
        (self.root / "PLAN.md").write_text(self.git("show", "HEAD:PLAN.md"))

    @rule()
    def commit_everything(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "by hand", check=False)

    @rule()
    def amend_the_last_commit(self):
        self.git("commit", "-q", "--amend", "-m", "reworded by hand")

    @rule()
    def go_to_a_new_branch(self):
        self.count += 1
        self.git("checkout", "-q", "-b", f"branch-{self.count}")

    @rule()
    def go_back_to_main(self):
        self.git("checkout", "-q", "main", check=False)

    @rule(name=FILES)
    def stage_a_file(self, name):
        self.git("add", "--", name, check=False)

    @precondition(lambda self: self.git("status", "--porcelain"))
    @rule()
    def stash(self):
        self.git("stash", "-q", "--include-untracked", check=False)

    @rule()
    def unstash(self):
        if self.git("stash", "list") and not self.git("status", "--porcelain"):
            self.git("stash", "pop", "-q")


TestBetweenSessions = BetweenSessions.TestCase
TestBetweenSessions.settings = settings(
    max_examples=max(2, settings().max_examples // 5), stateful_step_count=10, deadline=None
)

"""One git child dies, wherever it is: relay stops with an error or goes on rightly, and the next run is right.

A killed git, and one without memory, says nothing; what it did not say must never pass for "there is none". Every child
of a run dies in turn, before its work, after it, and with git's own words for it; `make test` takes a part of
them, `make test-nightly` all.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.base.errors import ExitCode, RelayError
from relay.git.command import GitError
from relay.git.repository import open_repo
from relay.setup.place import get_place
from relay.store.plan_state import read_plan_cost
from tests.effort import NIGHTLY
from tests.scripted import ScriptedRunner

REAL = shutil.which("git")
GIT = f"""\
#!/bin/sh
place=${{0%/*}}
echo >> "$place/calls"
read -r at how < "$place/at"
test "$(wc -l < "$place/calls")" = "$at" || exec {REAL} "$@"
case $how in
    before) kill -9 $$ ;;
    after) {REAL} "$@"; kill -9 $$ ;;
    memory) echo 'fatal: Out of memory, malloc failed (tried to allocate 65536 bytes)' >&2; exit 128 ;;
    disk) echo "fatal: sha1 file 'index' write error. Out of diskspace" >&2; exit 128 ;;
esac
"""
WAYS = ("before", "after", "memory", "disk")
TRIALS = 3
PLAN = """\
# A word

## Phase 1 — Say it
Verify: `grep -q word said.txt`
- [ ] Say it — said.txt
"""
TICK = ("tick", {"item": "1.1", "evidence": "seen"})
PLANNED = """\
Plan it

Relay-Plan: PLAN.md
Relay-Status: planned
Relay-Usage: input=10 output=20 cache_read=0 cache_write=0
Relay-Cost: 0.500000 USD
"""


@dataclass
class Mortal:
    """A git on PATH, one call of which dies."""

    place: Path

    def arm(self, at: int, how: str) -> None:
        """Let call `at` die, from 1; 0 for none."""
        (self.place / "at").write_text(f"{at} {how}\n")
        (self.place / "calls").write_text("")

    def count(self) -> int:
        """Return how many calls there were."""
        return (self.place / "calls").read_text().count("\n")


@pytest.fixture
def mortal(tmp_path, monkeypatch):
    """The first git on PATH."""
    made = Mortal(tmp_path / "bin")
    made.place.mkdir()
    (made.place / "git").write_text(GIT)
    (made.place / "git").chmod(0o755)
    made.arm(0, "none")
    monkeypatch.setenv("PATH", f"{made.place}:{os.environ['PATH']}")
    return made


def make_runner():
    """Return a runner that does the phase."""
    return ScriptedRunner([[[("write", {"path": "said.txt", "content": "word\n"}), TICK], []]])


def look(stage):
    """Return all that a user sees of how it ended."""
    repo = open_repo(stage.root)
    return (
        [(commit.phase, commit.status, commit.items) for commit in stage.commits()],
        read_plan_cost(repo, "PLAN.md").spent,
        stage.git("ls-tree", "-r", "HEAD"),
        stage.git("status", "--porcelain"),
        stage.git("for-each-ref", "refs/relay/leg"),
    )


def sweep(stage, mortal, act):
    """Let each call of `act` die in a fresh copy of the repository, and demand what an undisturbed one leaves."""
    kept = stage.root.with_name("kept")
    subprocess.run(["cp", "-a", str(stage.root), str(kept)], check=True)
    mortal.arm(0, "none")
    assert act() == ExitCode.DONE
    trials, wanted = mortal.count() * len(WAYS), look(stage)
    step = 1 if NIGHTLY else trials // TRIALS - (trials // TRIALS % len(WAYS) == 0)  # each way has its turn
    for trial in range(0, trials if NIGHTLY else TRIALS * step, step):
        at, how = 1 + trial // len(WAYS), WAYS[trial % len(WAYS)]
        shutil.rmtree(stage.root)
        subprocess.run(["cp", "-a", str(kept), str(stage.root)], check=True)
        mortal.arm(at, how)
        ended, told = None, ""
        try:
            ended = act()
        except RelayError as error:
            told = str(error)
        mortal.arm(0, "none")
        assert ended != ExitCode.DONE or look(stage) == wanted, (at, how)
        assert act() == ExitCode.DONE
        assert look(stage) == wanted, (at, how, told)
    return wanted


@pytest.mark.parametrize("how", ["before", "memory"])
def test_when_relay_looks_for_a_repository(stage, mortal, monkeypatch, how):
    """No command takes it for a folder without one, not even one that works without.

    From a folder of it: at the root of an ordinary one, git is not asked.
    """
    (stage.root / "src").mkdir()
    monkeypatch.chdir(stage.root / "src")
    mortal.arm(1, how)
    with pytest.raises(GitError):
        get_place(plan=None, environ=os.environ, needs_repo=False)


def test_in_a_run(stage, mortal):
    """The plan is written down once, and what it has cost stays known."""
    stage.write("PLAN.md", PLAN)
    stage.commit(PLANNED)
    stage.write("PLAN.md", PLAN.replace("Say it —", "Say it once —"))

    def act():
        return stage.play(make_runner()).exit_code

    commits, spent, *_ = sweep(stage, mortal, act)
    assert [status for _, status, _ in commits] == ["done", "amended", "planned"]
    assert spent.cost_usd == 0.5


FULL = f"""\
#!/bin/sh
case " $* " in
    *" update-index --ignore-skip-worktree-entries "*) test -e "$0.failed" || {{
        touch "$0.failed"
        echo "fatal: sha1 file 'index.lock' write error. Out of diskspace" >&2
        exit 128
    }} ;;
esac
exec {REAL} "$@"
"""
"""Git's words for the index. Source: git 2.47, csum-file.c."""


def test_a_full_disk_as_a_commit_is_staged_is_told_to_no_session(stage, mortal):
    stage.write("PLAN.md", PLAN)
    stage.commit()
    (mortal.place / "git").write_text(FULL)
    runner = make_runner()

    ended = stage.play(runner)

    assert (mortal.place / "git.failed").exists()
    assert not [told for told in runner.told if "write error" in told]
    assert ended.exit_code == ExitCode.DONE or "Out of diskspace" in ended.reason
    assert stage.play(make_runner()).exit_code == ExitCode.DONE

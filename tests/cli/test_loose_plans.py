"""Plans that git ignores, or that lie outside of the repository: commits hold code alone, and the file is ticked."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.effort import NIGHTLY
from tests.scripts import serving

PLAN = """\
# Words

## Phase 1 — One
Verify: `grep -q one one.txt`
- [ ] Say one — one.txt

## Phase 2 — Two
After: none
Verify: `grep -q two two.txt`
- [ ] Say two — two.txt
"""
ONE, DONE = PLAN.replace("[ ] Say one", "[x] Say one"), PLAN.replace("[ ]", "[x]")
IGNORED, BELOW_HOME, ELSEWHERE = ".planning/PLAN.md", "~/.claude/plans/x.md", "../elsewhere/x.md"
FETCH = ("fetch", "-q", "origin", "refs/relay/plan/*:refs/relay/plan/*")


def make_script(*words, before=()):
    """Return a model that does the phases of these words, each in a session that first runs commands."""
    sessions = []
    for word in words:
        number = {"one": 1, "two": 2}[word]
        tools = [
            *({"name": "bash", "input": {"command": command}} for command in before),
            {"name": "write", "input": {"path": f"{word}.txt", "content": f"{word}\n"}},
            {"name": "record", "input": {"claim": f"it is {word}", "because": "read it", "sources": []}},
            {"name": "tick", "input": {"item": f"{number}.1", "evidence": "seen"}},
        ]
        when = {"first_message_contains": f"Carry out phase {number} now"}
        turns = [{"tools": tools}, {"text": f"Commit: Say {word}", "repeat": 4}]
        sessions.append({"name": word, "when": when, "repeat": True, "turns": turns})
    return json.dumps({"sessions": sessions})


@pytest.fixture
def put(project, environ, git):
    """Write a plan at a place, and have git ignore it where that is inside; return its file."""

    def write(name, text=PLAN):
        file = Path(os.path.normpath(project / name.replace("~", environ["HOME"])))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        (project / ".gitignore").write_text(".planning/\n")
        git("add", "-A")
        git("commit", "-qm", "start")
        return file

    return write


@pytest.fixture
def work(relay):
    """Run the phases of a plan on a rehearsed model, as far as there are words; return how it ended."""

    def run(name, *args, words=("one", "two"), cwd=None, before=()):
        with serving(make_script(*words, before=before)) as (server, env):
            ran = relay("run", name, *args, env=env, **({"cwd": cwd} if cwd else {}))
            assert not (words and server.errors)
        return ran

    return run


def read_state(relay, name, **where):
    told = json.loads(relay("status", "--plan", name, "--json", **where).out)
    return [phase["done"] for phase in told["phases"]], told


@pytest.mark.parametrize("name", [IGNORED, BELOW_HOME, ELSEWHERE] if NIGHTLY else [IGNORED])
def test_a_loose_plan_is_ticked_and_no_commit_holds_it(relay, project, git, put, work, name):
    file = put(name)
    assert relay("check", name).code == 0
    ran = work(name)
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert file.read_text() == DONE
    assert "it is one" in file.with_name(f"{file.stem}.ledger.yaml").read_text()
    assert git("log", "--format=", "--name-only").split() == ["two.txt", "one.txt", ".gitignore"]
    assert git("status", "--porcelain") == ""
    assert git("for-each-ref", "--format=%(refname)", "refs/heads", "refs/relay/leg") == "refs/heads/main"
    assert not project.with_name("project.relay").exists()
    shutil.rmtree(project / ".relay")
    done, told = read_state(relay, name)
    assert done == [True, True]
    assert told["spent"]["usd"] > 0
    assert "nothing is left" in relay("run", name, env={"ANTHROPIC_API_KEY": "k"}).out or done


@pytest.mark.nightly
def test_phases_side_by_side_tick_one_loose_plan(git, put, work):
    file = put(IGNORED)
    ran = work(IGNORED, "--jobs", "2")
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert file.read_text() == DONE
    assert git("ls-tree", "-r", "--name-only", "HEAD").split() == [".gitignore", "one.txt", "two.txt"]


def test_a_loose_plan_follows_git_and_keeps_its_users_edits(relay, git, put, work):
    """What the file is like is what a kill, a switch, a stale editor or a person may leave of it."""
    file = put(BELOW_HOME)
    assert work(BELOW_HOME, "--phase", "1").code == 0
    assert file.read_text() == ONE
    edited = PLAN.replace("Say two", "Say two, loudly")
    cases = {
        "as before the landing: relay was killed, or an editor saved what it had": (PLAN, [True, False], ONE),
        "edited before the landing": (edited, [True, False], edited.replace("[ ] Say one", "[x] Say one")),
        "removed": (None, [True, False], edited.replace("[ ] Say one", "[x] Say one")),
    }
    for what, (text, done, after) in cases.items():
        file.write_text(text) if text else file.unlink()
        assert read_state(relay, BELOW_HOME)[0] == done, what
        shown = file.read_text() if file.exists() else None
        assert shown == text, f"{what}: status writes nothing"
        ran = work(BELOW_HOME, "--phase", "2", words=())  # no session is there: only what comes before one is done
        assert ran.code != 0, what
        assert file.read_text() == after, what
    file.write_text(DONE)
    ran = work(BELOW_HOME, words=())
    assert "x.md:10: item 2.1" in ran.err, "by hand"
    assert "`git revert` of a phase's commit" in ran.err
    file.write_text(ONE)
    assert work(BELOW_HOME).code == 0
    git("switch", "-q", "-c", "back", "HEAD~1")
    assert read_state(relay, BELOW_HOME)[0] == [True, False], "on another branch"


@pytest.mark.nightly
def test_a_reverted_commit_opens_its_phase_in_a_loose_plan(relay, git, put, work):
    file = put(IGNORED)
    assert work(IGNORED).code == 0
    git("revert", "--no-edit", "HEAD~1")
    assert read_state(relay, IGNORED)[0] == [False, True]
    assert work(IGNORED).code == 0
    assert file.read_text() == DONE
    assert read_state(relay, IGNORED)[0] == [True, True]


def test_a_clone_goes_on_with_a_loose_plan_once_it_has_the_ref(project, environ, put, work, tmp_path):
    file = put(IGNORED)
    assert work(IGNORED, "--phase", "1").code == 0
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", project, clone], check=True, env=environ)
    for text in (None, PLAN):
        if text:
            (clone / IGNORED).parent.mkdir()
            (clone / IGNORED).write_text(text)
        ran = work(IGNORED, words=(), cwd=clone)
        assert (ran.code, "git fetch origin 'refs/relay/plan/*:refs/relay/plan/*'" in ran.err) == (1, True), ran.err
    shutil.rmtree(clone / ".planning")
    subprocess.run(["git", *FETCH], check=True, env=environ, cwd=clone)
    ran = work(IGNORED, words=["two"], cwd=clone)
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert (clone / IGNORED).read_text() == DONE
    assert file.read_text() == ONE


@pytest.mark.nightly
def test_a_persons_claim_beside_a_loose_plan_is_kept_with_it(relay, git, put, work):
    file = put(BELOW_HOME)
    assert work(BELOW_HOME, "--phase", "1").code == 0
    assert relay("ledger", "add", "mine", "--because", "I know", "--plan", BELOW_HOME).code == 0
    assert work(BELOW_HOME).code == 0
    told = relay("ledger", "list", "--plan", BELOW_HOME).out
    assert all(claim in told for claim in ("mine", "it is one", "it is two"))
    ledger = file.with_name("x.ledger.yaml")
    kept = git("log", "-1", "--format=%(trailers:key=Relay-Plan-Tree,valueonly)").strip()
    assert git("cat-file", "blob", f"{kept}:~/.claude/plans/x.ledger.yaml") == ledger.read_text().strip()
    ledger.unlink()
    assert relay("run", BELOW_HOME, env={"ANTHROPIC_API_KEY": "k"}).code == 0


def test_nothing_that_a_session_makes_leads_relay_to_another_file(git, put, work, tmp_path):
    """Neither a file or a link of the plan's name in relay's tree, nor a rule that ignores it no more."""
    name = "~/plans/x.md"
    file = put(name)
    (victim := tmp_path / "victim.md").write_text(PLAN)
    commands = [
        f"mkdir -p '~/plans'; ln -sf {victim} '~/plans/x.md'",
        "mkdir -p .planning; echo '# Mine' > .planning/PLAN.md; true",
    ]
    ran = work(name, before=commands)
    assert ran.code == 0, ran.out
    assert (file.read_text(), victim.read_text()) == (DONE, PLAN)
    assert "x.md" not in git("ls-tree", "-r", "--name-only", "HEAD")


def test_where_a_loose_plan_is_refused(relay, project, put):
    """Through a link, where sessions write, and where machines share a plan by its commits."""
    file = put(BELOW_HOME)
    file.with_name("link.md").symlink_to(file)
    env = {"ANTHROPIC_API_KEY": "k"}
    writes = {**env, "RELAY_PATHS": json.dumps({"write": [str(file.parent)]})}
    (project / "~").mkdir()
    (project / "~/x.md").write_text(PLAN)
    cases = (
        (("run", "~/.claude/plans/link.md"), env, "~/.claude/plans/link.md is a symbolic link to"),
        (("run", BELOW_HOME), writes, "is where sessions write (paths.write)"),
        (("run", "./~/x.md"), env, "would be taken for one in your home directory"),
        (("fleet", "submit", BELOW_HOME, "--database", "postgresql://x.invalid/x"), env, "is in no commit"),
        (
            ("lab", "compare", "--arms", "30%,45%", "--max-cost", "1"),
            {**env, "RELAY_PLAN": BELOW_HOME},
            "is in no commit",
        ),
    )
    for args, given, words in cases:
        ran = relay(*args, env=given)
        assert (ran.code, words in ran.err) == (1, True), (args, ran)
    assert file.read_text() == PLAN

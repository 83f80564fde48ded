"""Plans that git ignores, or that lie outside of the repository: commits hold code alone, and the file is ticked."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from relay.base.errors import PlanError
from relay.base.hints import AT_ROOT
from relay.run.commit.plan_commit import ensure_plan_committed, make_source
from relay.session.values import SessionKind
from relay.store.plan_state import summarize_plan
from tests.scripted import ScriptedRunner
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


def test_a_loose_plan_is_ticked_no_commit_holds_it_and_a_clone_goes_on_once_it_has_the_ref(
    relay, project, environ, put, work, tmp_path
):
    """A link that the session makes at the plan's path leads to no other file."""
    file = put(IGNORED)
    (victim := tmp_path / "victim.md").write_text(PLAN)
    commands = [f"mkdir -p .planning; ln -sf {victim} .planning/PLAN.md"]
    assert relay("check", IGNORED).code == 0
    assert work(IGNORED, "--phase", "1", before=commands).code == 0
    assert (file.read_text(), victim.read_text()) == (ONE, PLAN)
    assert "it is one" in file.with_name("PLAN.ledger.yaml").read_text()
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
    assert ((clone / IGNORED).read_text(), file.read_text()) == (DONE, ONE)
    check_done(relay, clone, IGNORED)


def check_done(relay, root, name):
    """Commits hold code alone, nothing of the work is left over, and the ticks are found again from git."""

    def say(*args):
        return subprocess.run(["git", *args], cwd=root, check=True, capture_output=True, text=True).stdout

    assert say("log", "--format=", "--name-only").split() == ["two.txt", "one.txt", ".gitignore"]
    assert say("status", "--porcelain") == ""
    assert say("for-each-ref", "--format=%(refname)", "refs/heads", "refs/relay/leg") == "refs/heads/main\n"
    assert not root.with_name(f"{root.name}.relay").exists()
    shutil.rmtree(root / ".relay")
    done, told = read_state(relay, name, cwd=root)
    assert done == [True, True]
    assert told["spent"]["usd"] > 0
    assert "2 of 2 phases" in relay("run", name, cwd=root, env={"ANTHROPIC_API_KEY": "k"}).out


@pytest.mark.nightly
def test_phases_side_by_side_tick_one_loose_plan(git, put, work):
    file = put(IGNORED)
    ran = work(IGNORED, "--jobs", "2")
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert file.read_text() == DONE
    assert git("ls-tree", "-r", "--name-only", "HEAD").split() == [".gitignore", "one.txt", "two.txt"]


def do(number, word, *before):
    """Return the turns of a session that does a phase."""
    written = ("write", {"path": f"{word}.txt", "content": f"{word}\n"})
    return [*before, written, ("tick", {"item": f"{number}.1", "evidence": "seen"})]


def test_a_loose_plan_follows_git_and_keeps_its_users_edits(stage, tmp_path, monkeypatch):
    """What the file is like is what a kill, a switch, a stale editor or a person may leave of it.

    A link of its name in relay's tree leads no write to another file.
    """
    stage.git("rm", "-q", "PLAN.md")
    stage.commit()
    stage.plan_path = "~/plans/x.md"
    file = tmp_path / "home/plans/x.md"
    file.parent.mkdir(parents=True)
    file.write_text(PLAN)
    shutil.copy(Path.home() / ".gitconfig", tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (victim := tmp_path / "victim.md").write_text(PLAN)
    link = ("bash", {"command": f"mkdir -p '~/plans'; ln -sf {victim} '~/plans/x.md'"})

    def show():
        """Return what status says is done; it writes nothing."""
        before = file.read_text() if file.exists() else None
        with stage.enter(SessionKind.RUN, runner=ScriptedRunner([])) as ctx:
            told = [phase.done for phase in summarize_plan(make_source(ctx.files), ctx.repo).plan_state.plan.phases]
        assert (file.read_text() if file.exists() else None) == before
        return told

    def begin():
        """Do what comes before a session."""
        with stage.enter(SessionKind.RUN, runner=ScriptedRunner([])) as ctx:
            ensure_plan_committed(ctx)

    assert stage.play(ScriptedRunner([[do(1, "one", link)]]), phase="1").exit_code == 0
    assert (file.read_text(), victim.read_text()) == (ONE, PLAN)
    assert "x.md" not in stage.git("ls-tree", "-r", "--name-only", "HEAD")
    edited = PLAN.replace("Say two", "Say two, loudly")
    for what, text, after in (
        ("as before the landing: relay was killed, or an editor saved what it had", PLAN, ONE),
        ("edited before the landing", edited, edited.replace("[ ] Say one", "[x] Say one")),
        ("removed", None, edited.replace("[ ] Say one", "[x] Say one")),
    ):
        file.write_text(text) if text else file.unlink()
        assert show() == [True, False], what
        begin()
        assert file.read_text() == after, what
    file.write_text(DONE)
    with pytest.raises(PlanError, match=r"item 2\.1") as by_hand:
        begin()
    assert "`git revert` of a phase's commit" in AT_ROOT.write(by_hand.value.hint)
    file.write_text(ONE)
    assert stage.play(ScriptedRunner([[do(2, "two")]]), phase="2").exit_code == 0
    assert file.read_text() == DONE
    stage.git("switch", "-q", "-c", "back", "HEAD~1")
    assert show() == [True, False], "on another branch"


@pytest.mark.nightly
def test_a_reverted_commit_opens_its_phase_in_a_loose_plan(relay, git, put, work):
    file = put(IGNORED)
    assert work(IGNORED).code == 0
    git("revert", "--no-edit", "HEAD~1")
    assert read_state(relay, IGNORED)[0] == [False, True]
    assert work(IGNORED).code == 0
    assert file.read_text() == DONE
    assert read_state(relay, IGNORED)[0] == [True, True]


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
    assert work(BELOW_HOME).code == 0
    assert "mine" in ledger.read_text()


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

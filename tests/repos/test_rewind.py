"""`relay rewind`: the tree before a phase comes back, and what came after stays where it can be found."""

import json
import subprocess

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.git.repository import open_repo
from relay.run.rewind import get_rewind, rewind_to_branch
from relay.store.plan_state import read_plan_cost
from tests.effort import take_each, take_turns
from tests.scripts import HELLO

SECOND = """
  - name: world
    turns:
      - tools:
        - {name: write, input: {path: world.txt, content: "world\\nworld\\n"}}
        - {name: write, input: {path: hello.txt, content: "hello, world\\n"}}
      - tools:
        - {name: tick, input: {item: "2.1", evidence: "grep"}}
        - {name: tick, input: {item: "2.2", evidence: "grep"}}
      - text: "Commit: Say world"
"""


@pytest.fixture
def done(stage):
    """Both phases are committed."""
    commit_both_phases(stage)
    return stage


def commit_both_phases(stage):
    stage.arrange("both phases", lambda: require_done(stage.run(HELLO + SECOND)))


def require_done(ended):
    assert ended.exit_code == ExitCode.DONE


def files(stage):
    return {p.name: p.read_text() for p in stage.root.iterdir() if p.is_file()}


def test_a_branch_is_made_before_the_phase_and_nothing_else_moves(done):
    """HEAD, branch, index and files are as before; the run on the new branch does the phase again."""
    before, head = files(done), done.git("rev-parse", "HEAD")
    repo = open_repo(done.root)

    name = rewind_to_branch(repo, get_rewind(repo, "PLAN.md", "2"))

    assert name == "main-before-2"
    assert (files(done), done.git("rev-parse", "HEAD"), done.git("status", "--porcelain")) == (before, head, "")
    assert done.git("rev-parse", name) == done.git("rev-parse", "main~1")
    assert done.git("rev-parse", "refs/relay/rewound/main/000001") == head
    done.git("switch", "-q", name)
    assert done.run("sessions:" + SECOND).exit_code == ExitCode.DONE
    assert [commit.phase for commit in done.commits()] == ["2", "1"]


def revert(stage, phase):
    """Do what `relay rewind` prints for going back on this branch."""
    words = get_rewind(open_repo(stage.root), "PLAN.md", phase).revert.split()
    stage.git(*words[1:])
    return words[3:]


@pytest.mark.nightly
def test_the_revert_that_is_printed_brings_tree_and_boxes_back(done):
    """A range where all of it is relay's. The boxes are open, and a run does the phase again; then commit by commit."""
    done.write("mine.txt", "untracked\n")
    old = done.git("rev-parse", "--short=12", "HEAD").strip()

    assert revert(done, "2") == [f"{done.git('rev-parse', '--short=12', 'HEAD~2').strip()}..{old}"]

    assert files(done).keys() == {"AGENTS.md", "PLAN.md", "hello.txt", "mine.txt"}
    assert files(done)["PLAN.md"].count("- [x]") == 1
    assert done.git("diff", "--stat", "HEAD", "HEAD~2") == ""
    assert [len(phase["commits"]) for phase in json.loads(done.relay("status", "--json").stdout)["phases"]] == [1, 0]
    with pytest.raises(RepoError, match="no commit of phase 2"):
        get_rewind(open_repo(done.root), "PLAN.md", "2")
    assert done.run("sessions:" + SECOND).exit_code == ExitCode.DONE
    assert len(revert(done, "1")) == 2  # not the revert, nor what it took back
    assert files(done).keys() == {"AGENTS.md", "PLAN.md", "mine.txt"}


def test_others_commits_are_never_reverted(done):
    """Between relay's own, and by a merge: only relay's are named, one by one."""
    own = done.git("rev-parse", "--short=12", "HEAD").strip()
    done.git("switch", "-qc", "side", "HEAD~1")
    done.write("side.txt", "side\n")
    done.commit("aside")
    done.git("switch", "-q", "main")
    done.git("merge", "-q", "--no-edit", "side")
    done.write("user.txt", "user\n")
    done.commit("by hand")

    assert revert(done, "2") == [own]

    assert {"user.txt", "side.txt", "hello.txt"} < files(done).keys()
    assert "world.txt" not in files(done)


def test_the_command_shows_asks_and_does(done):
    """Without an answer nothing is done; with --yes it is."""
    refs = done.git("for-each-ref")
    asked = done.relay("rewind", "1")
    assert asked.returncode == ExitCode.USER
    assert asked.stderr == "Error: nobody can be asked whether to go on\nHint: relay rewind 1 --yes\n"
    assert "leaves" in asked.stdout
    assert "Say world" in asked.stdout
    assert done.git("for-each-ref") == refs

    ran = done.relay("rewind", "1", "--yes")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1] == "next   git switch --no-overwrite-ignore main-before-1 && relay run"
    instead = "to undo it on this branch instead: "
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith(instead)]
    done.git(*line.removeprefix(instead).split()[1:])
    assert "0 of 2 phases done" in done.relay("status").stdout

    missing = done.relay("rewind", "9", "--yes")
    assert missing.returncode == ExitCode.USER
    assert "no commit of phase 9" in missing.stderr


def test_the_command_that_it_names_writes_over_no_ignored_file(done):
    """What the tree before the phase tracks may be ignored now, and another file."""
    done.write("local.yaml", "a default\n")
    done.git("add", "local.yaml")
    done.git("commit", "-q", "--amend", "--no-edit")
    done.git("rm", "-q", "local.yaml")
    done.write(".gitignore", "local.yaml\n")
    done.commit("everybody has their own")
    done.write("local.yaml", "a secret\n")
    named = done.relay("rewind", "2", "--yes").stdout.splitlines()[-1].removeprefix("next   ").split(" && ")[0]
    done.git("branch", "-f", named.split()[-1], "HEAD~1")  # with that file
    switched = subprocess.run(named.split(), cwd=done.root, capture_output=True, text=True, check=False)
    assert "local.yaml" in switched.stderr
    assert (done.root / "local.yaml").read_text() == "a secret\n"


@pytest.mark.parametrize(("phase", "planned"), take_each(2, take_turns(["1", "2"], [False, True])))
def test_money_that_was_spent_is_spent_whichever_way_one_goes_back(stage, phase, planned):
    """On the new branch the cap and the status count what stays behind, once; so does a revert."""
    if planned:
        stage.git("rm", "-q", "--cached", "PLAN.md")
        stage.git("commit", "-q", "-m", "no plan yet")
    commit_both_phases(stage)
    repo = open_repo(stage.root)
    spent = read_plan_cost(repo, "PLAN.md").spent
    assert spent.cost_usd
    name = rewind_to_branch(repo, get_rewind(repo, "PLAN.md", phase))
    assert read_plan_cost(repo, "PLAN.md").spent == spent
    revert(stage, phase)
    assert read_plan_cost(repo, "PLAN.md").spent == spent
    stage.git("switch", "-q", name)

    assert read_plan_cost(repo, "PLAN.md").spent == spent
    status = stage.relay("status", "--json")
    body = json.loads(status.stdout)
    assert body["spent"]["usd"] == pytest.approx(spent.cost_usd)
    phases = sum(known["spent"]["usd"] for known in body["phases"])
    assert body["rewound"]["usd"] == pytest.approx(spent.cost_usd - phases)
    ended = stage.run("sessions:" + SECOND, max_cost_usd=spent.cost_usd)
    assert (ended.exit_code, ended.spent_usd) == (ExitCode.STOPPED, pytest.approx(spent.cost_usd)), ended
    assert "of the run's cap" in ended.reason
    assert [request.path for request in stage.server.requests if request.method == "POST"] == []

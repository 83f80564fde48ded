"""`relay rewind`: the tree before a phase comes back, and what came after stays where it can be found."""

import json
import os
import shutil
import signal

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.base.hints import AT_ROOT
from relay.git.repository import open_repo
from relay.run.rewind import get_rewind, require_revert, rewind_by_commit, rewind_to_branch
from relay.session.usage import Spent
from relay.store.completion import finish_pending, note_pending
from relay.store.plan_state import read_plan_cost
from tests.effort import take_turns
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


MORE = "\n## Phase 3 — More\nVerify: `test -e more.txt`\n- [ ] More — more.txt\n"


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


def test_where_nobody_answers_it_says_how_to_go_on_without_an_answer(done):
    """A no is one."""
    ran = done.relay("rewind", "2", "--revert")
    assert ran.stderr == "Error: nobody answered whether to go on\nHint: relay rewind 2 --revert --yes\n"
    assert "nobody" not in done.relay("rewind", "2", answer="n\n").stderr
    assert len(done.commits()) == 2


def test_a_second_branch_gets_another_name(done):
    """A branch that is there is never moved."""
    repo = open_repo(done.root)
    names = [rewind_to_branch(repo, get_rewind(repo, "PLAN.md", "2")) for _ in range(2)]

    assert names == ["main-before-2", "main-before-2-2"]


def test_a_revert_brings_tree_index_and_boxes_back(done):
    """The plan keeps its text, the boxes are open, and the phase is done again by a run."""
    done.write("mine.txt", "untracked\n")
    repo = open_repo(done.root)
    old = done.git("rev-parse", "HEAD")

    commit, left = rewind_by_commit(repo, get_rewind(repo, "PLAN.md", "2"))

    assert left == ()
    assert done.git("rev-parse", "HEAD~1") == old
    assert files(done).keys() == {"AGENTS.md", "PLAN.md", "hello.txt", "mine.txt"}
    assert files(done)["hello.txt"] == "hello\n"
    assert files(done)["PLAN.md"].count("- [x]") == 1
    assert done.git("status", "--porcelain") == "?? mine.txt\n"
    assert done.git("diff", "--stat", commit, "HEAD~2") == ""
    assert [commit.status for commit in done.commits()] == ["rewound", "done", "done"]
    assert done.run("sessions:" + SECOND).exit_code == ExitCode.DONE
    assert files(done)["hello.txt"] == "hello, world\n"
    # And again: only what came since the first revert is undone.
    rewind_by_commit(repo, get_rewind(repo, "PLAN.md", "1"))
    assert files(done).keys() == {"AGENTS.md", "PLAN.md", "mine.txt"}
    done.git("fsck", "--strict", "--no-dangling", "--no-progress")


def test_a_second_rewind_of_the_same_phase_has_nothing_to_undo(done):
    """What a revert has undone is not undone again."""
    repo = open_repo(done.root)
    rewind_by_commit(repo, get_rewind(repo, "PLAN.md", "2"))

    with pytest.raises(RepoError, match="no commit of phase 2"):
        get_rewind(repo, "PLAN.md", "2")


def test_a_revert_keeps_amendments_of_the_plan(done):
    """What the user wrote into the plan since stays written."""
    done.write("PLAN.md", (done.root / "PLAN.md").read_text() + MORE)
    done.run("sessions: [{name: none, turns: [{text: Done}, {text: Done}]}]")
    repo = open_repo(done.root)

    rewind_by_commit(repo, get_rewind(repo, "PLAN.md", "2"))

    text = (done.root / "PLAN.md").read_text()
    assert (text.count("- [x]"), text.count("- [ ]")) == (1, 3)


def test_others_commits_are_never_reverted(done):
    """The words name them and the way that keeps them."""
    done.write("user.txt", "user\n")
    done.commit("by hand")
    repo = open_repo(done.root)
    rewind = get_rewind(repo, "PLAN.md", "2")

    with pytest.raises(RepoError, match="by hand") as caught:
        require_revert(repo, rewind)

    assert AT_ROOT.write(caught.value.hint) == "relay rewind 2 makes a branch instead"


def test_a_dirty_tree_and_files_in_the_way_are_refused(done):
    """Nothing of the user's is written over."""
    repo = open_repo(done.root)
    done.write("hello.txt", "mine\n")
    with pytest.raises(RepoError, match=r"hello\.txt"):
        get_rewind(repo, "PLAN.md", "2")
    done.git("restore", "hello.txt")
    done.git("rm", "-q", "AGENTS.md")
    done.git("commit", "-q", "-m", "x", "-m", "Relay-Plan: PLAN.md\nRelay-Phase: 2\nRelay-Status: done")
    done.write("AGENTS.md", "an untracked file of the user\n")

    with pytest.raises(RepoError, match=r"AGENTS\.md"):
        rewind_by_commit(repo, get_rewind(repo, "PLAN.md", "2"))

    assert files(done)["AGENTS.md"] == "an untracked file of the user\n"


@pytest.fixture
def turned(stage):
    """Phase 1 made one file executable, a file a directory and a directory a file, and links of files."""
    for path in ("run.sh", "file", "directory/a", "name"):
        stage.write(path, f"{path}\n")
    (stage.root / "link").symlink_to("name")
    stage.commit()
    (stage.root / "run.sh").chmod(0o755)
    for path in ("file", "directory/a", "name", "link"):
        (stage.root / path).unlink()
    (stage.root / "directory").rmdir()
    for path, text in {"file/b": "b\n", "directory": "file\n", "link": "name"}.items():
        stage.write(path, text)
    (stage.root / "name").symlink_to("link")
    stage.git("add", "-A")
    stage.git("commit", "-q", "-m", "turn", "-m", "Relay-Plan: PLAN.md\nRelay-Phase: 1\nRelay-Status: done")
    return stage


def test_a_revert_brings_modes_and_kinds_of_files_back(turned):
    """A directory of the phase's own files is no untracked file; the executable bit comes back without the bytes."""
    repo = open_repo(turned.root)

    _, left = rewind_by_commit(repo, get_rewind(repo, "PLAN.md", "1"))

    assert left == ()
    assert turned.git("status", "--porcelain") == ""
    assert turned.git("diff", "HEAD~2", "HEAD") == ""
    assert (turned.root / "link").readlink().name == "name"


def test_what_is_in_the_way_of_a_directory_or_in_one_is_named(turned):
    """Of a directory that a file takes the place of, the user's own files; of a directory, the file in its place."""
    turned.write("file/mine.txt", "mine\n")
    repo = open_repo(turned.root)
    with pytest.raises(RepoError, match=r"are in the way: file/mine\.txt$"):
        require_revert(repo, get_rewind(repo, "PLAN.md", "1"))
    (turned.root / "file/mine.txt").unlink()
    turned.git("rm", "-q", "directory")
    turned.git("commit", "-q", "-m", "more", "-m", "Relay-Plan: PLAN.md\nRelay-Phase: 1\nRelay-Status: done")
    turned.write("directory", "mine\n")

    with pytest.raises(RepoError, match=r"are in the way: directory$"):
        require_revert(repo, get_rewind(repo, "PLAN.md", "1"))


def test_what_got_in_the_way_since_is_left_when_a_revert_is_finished(turned):
    """The note of a revert that was killed is there, and so are a directory and a file of the user's by now."""
    repo = open_repo(turned.root)
    commit, _ = rewind_by_commit(repo, get_rewind(repo, "PLAN.md", "1"))
    note_pending(repo, commit, None)
    (turned.root / "file").unlink()
    turned.write("file/mine.txt", "mine\n")
    shutil.rmtree(turned.root / "directory")
    turned.write("directory", "mine\n")

    left = finish_pending(repo)

    assert sorted(words.split()[0] for words in left) == ["directory", "directory/a", "file"]
    assert (turned.root / "file/mine.txt").read_text() == (turned.root / "directory").read_text() == "mine\n"


@pytest.fixture
def relay(done):
    """Run a command in a process of its own; `dying` is what a shell does when git is asked to move main."""

    def run(*args, dying="", answer=""):
        path, left = "", None
        if dying:
            (done.root / ".git/logs/HEAD").unlink()  # else no git is asked
            place = done.root.parent / "bin"
            place.mkdir()
            os.mkfifo(place / "alive")
            left = os.open(place / "alive", os.O_RDONLY | os.O_NONBLOCK)
            script = place / "git"
            dies = f"exec 3>{place}/alive; {dying}; kill -9 $PPID; exit"
            script.write_text(
                f"#!/bin/sh\ncase \" $* \" in *' update-ref '*' refs/heads/main '*) {dies};; esac\n"
                f'exec {shutil.which("git")} "$@"\n'
            )
            script.chmod(0o755)
            path = f"{place}:{os.environ['PATH']}"
        ended = done.relay(*args, answer=answer, path=path, environ={"ANTHROPIC_API_KEY": "k"})
        if left is not None:
            wait_for_end(left)
        return ended

    return run


def wait_for_end(fd):
    """Wait until nobody can write into a pipe any more: a git outlives the relay that started it by a moment."""
    os.set_blocking(fd, True)
    with os.fdopen(fd, "rb") as pipe:
        assert pipe.read() == b""


AFTER_THE_MOVE = f'{shutil.which("git")} "$@"'


def test_a_revert_that_was_killed_is_finished_by_the_next_run(done, relay):
    """The branch has moved, the files have not; status says so, and no hint leads to undoing the rewind."""
    assert relay("rewind", "2", "--revert", "--yes", dying=AFTER_THE_MOVE).returncode == -signal.SIGKILL
    assert done.git("log", "-1", "--format=%s") == "relay: back to before phase 2\n"
    assert "world.txt" in files(done)

    said = relay("status", "--why").stdout
    assert "1 of 2 phases done" in said
    assert "The rewind to before phase 2 was cut off." in said
    assert "relay run finishes the rewind to before phase 2, then begins phase 2" in said
    assert relay("run", "--dry-run").returncode == 0
    assert "world.txt" in files(done)
    assert done.run("sessions:" + SECOND).exit_code == ExitCode.DONE
    assert [commit.status for commit in done.commits()] == ["done", "rewound", "done", "done"]
    assert done.git("status", "--porcelain") == ""


def test_a_revert_that_was_killed_is_finished_by_the_next_rewind_and_leaves_the_users_files(done, relay):
    """What is as the phase left it is brought in step; a file of the user's is not, and is in the way."""
    relay("rewind", "2", "--revert", "--yes", dying=AFTER_THE_MOVE)
    done.write("hello.txt", "the user's\n")

    said = relay("rewind", "1", answer="n\n")

    assert "hello.txt was changed by somebody else and was left as it is" in said.stdout
    assert "uncommitted changes: hello.txt." in said.stderr
    assert files(done)["hello.txt"] == "the user's\n"
    assert "world.txt" not in files(done)
    assert files(done)["PLAN.md"].count("- [x]") == 1


def test_a_lock_that_a_killed_rewind_left_is_removed_by_the_next_one(done, relay):
    """And one that is not relay's is named before anything is shown or done."""
    lock = done.root / ".git/refs/heads/main.lock"
    dead = relay("rewind", "2", "--revert", "--yes", dying="touch .git/refs/heads/main.lock")
    assert (dead.returncode, lock.exists()) == (-signal.SIGKILL, True)

    again = relay("rewind", "2", "--revert", "--yes")

    assert (again.returncode, again.stderr, lock.exists()) == (0, "", False)
    assert done.run("sessions:" + SECOND).exit_code == ExitCode.DONE
    lock.touch()
    refused = relay("rewind", "2", "--revert", "--yes")
    assert (refused.returncode, refused.stdout) == (ExitCode.USER, "")
    assert "main.lock exists" in refused.stderr


def test_a_file_that_came_back_after_a_revert_stays(done, relay):
    """The revert was finished; what the user takes out of the history then, and stages, is his."""
    relay("rewind", "2", "--revert", "--yes")
    done.git("checkout", "HEAD~1", "--", "world.txt")

    said = relay("rewind", "1", answer="n\n")

    assert "uncommitted changes: world.txt." in said.stderr
    assert done.git("status", "--porcelain") == "A  world.txt\n"


def test_the_command_shows_asks_and_does(done, relay):
    """Without an answer nothing is done; with --yes it is."""
    refs = done.git("for-each-ref")
    asked = relay("rewind", "1")
    assert asked.returncode == ExitCode.USER
    assert "leaves" in asked.stdout
    assert "Say world" in asked.stdout
    assert done.git("for-each-ref") == refs

    ran = relay("rewind", "1", "--revert", "--yes")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1] == "next   relay run"
    assert "0 of 2 phases done" in relay("status").stdout

    missing = relay("rewind", "9", "--yes")
    assert missing.returncode == ExitCode.USER
    assert "no commit of phase 9" in missing.stderr


@pytest.mark.parametrize(("phase", "planned"), take_turns(["1", "2"], [False, True]))
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
    rewind_by_commit(repo, get_rewind(repo, "PLAN.md", phase))
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


def test_what_another_plan_cost_is_not_this_ones(done):
    """A plan that came into the repository after the rewind has a count of its own."""
    repo = open_repo(done.root)
    done.git("switch", "-q", rewind_to_branch(repo, get_rewind(repo, "PLAN.md", "1")))
    done.git("rm", "-q", "PLAN.md")
    done.git("commit", "-q", "-m", "away with it")
    done.write("PLAN.md", "## Phase 1\n- [ ] Other — other.txt\n")
    done.commit("another plan")

    assert read_plan_cost(repo, "PLAN.md").spent == Spent()

"""The tree of the gates: nothing of an earlier gate helps the next one, and nothing of the user's is in its way."""

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.git.repository import open_repo
from relay.git.worktrees import drop_worktree
from relay.run.phases.worktrees import move_jobs
from tests.effort import NIGHTLY
from tests.phases.bench import Bench, make_plan, write_session


def play(stage, gate, *commands, ends=ExitCode.DONE, args=(), ignored="*.gen\n", files=()):
    """Run a phase whose session runs a command and ticks, for each of them, or only writes its file."""
    bench = Bench(stage, make_plan(f"test -s 1.txt && {{ {gate}; }}"), **{".gitignore": ignored})
    for path, text in files:
        stage.write(path, text)
    first, *more = commands or ("echo 1 > 1.txt",)
    session = write_session(1, first)
    for command in more:
        session["turns"] += write_session(1, command)["turns"]
    out = bench.play([session], "run", *args, ends=ends)
    assert (ends == ExitCode.DONE) == ("Write one" in stage.git("log", "--format=%s"))
    return bench, out


def test_what_a_gate_leaves_in_a_directory_of_the_user_s_helps_no_later_gate(stage):
    """In an ignored directory of which the gate has a copy, however far down; and an empty one is gone.

    Directories of the user's that are called as relay's are nothing to it.
    """
    left = ("build/helper.txt", "build/a/b/c/d/helper.txt")
    copy = "; ".join(f"cp helper.txt {path}" for path in left)
    gate = f"mkdir out || exit 1; {copy}; test ! -e {left[0]} && test ! -e {left[1]} && grep -q 2 1.txt"
    files = [("build/old", "x"), ("build/a/b/c/d/old", "x")]
    kept = [stage.root.with_name(f"{stage.root.name}.relay") / name for name in ("garden.gate/file", "door.gate")]
    for file in kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    first = "echo h > helper.txt; echo 1 > 1.txt"
    play(stage, gate, first, "rm helper.txt; echo 2 > 1.txt", ignored="/build/\n", files=files)
    assert [file.read_text() for file in kept] == ["mine", "mine"]


@pytest.mark.parametrize("args", [(), ("--jobs", "2")][: 1 + NIGHTLY], ids=str)
def test_what_a_session_makes_where_git_ignores_it_is_in_no_gate(stage, args, monkeypatch):
    """Whether its phase is worked on in this process or in one of its own; what the user mends there is in it."""
    monkeypatch.setenv("RELAY_MAX_REPAIRS", "0")
    bench, _ = play(stage, "test -e made.gen", "echo 1 > 1.txt; echo made > made.gen", ends=ExitCode.STOPPED, args=args)
    stage.write("made.gen", "the user's")
    bench.play([write_session(1)])


def test_the_second_try_of_a_red_command_sees_nothing_of_the_first(stage):
    """Its red is unexplained, since it was green before: the command runs once more, on the commit's files alone."""
    script = "[ -e 1.txt ] || exit 0; [ -e made.txt ] || { echo m > made.txt; exit 1; }\n"
    plan = "# P\nVerify: `sh check.sh`\n\n## Phase 1 — P\n- [ ] Write one — 1.txt\n"
    bench = Bench(stage, plan, **{"check.sh": script})
    bench.play([write_session(1, "echo 1 > 1.txt")], ends=ExitCode.STOPPED)


def test_a_gate_that_another_ignored_file_makes_green_is_not_flaky(stage):
    """The user mends it while the session is at work."""
    mend = f"echo 1 > 1.txt; echo good > {stage.root}/v.gen"
    _, out = play(stage, "grep -q good v.gen", mend, args=("--sandbox", "off"), files=[("v.gen", "bad\n")])
    assert "flaky" not in out


def test_a_directory_of_the_user_s_in_the_place_of_the_gates_stays_and_is_named(stage):
    stage.commit("start")
    place = stage.root.with_name(f"{stage.root.name}.relay") / "1.gate"
    place.mkdir(parents=True)
    (place / "file").write_text("mine")
    with pytest.raises(RepoError, match=r"1\.gate is no work tree of relay's"):
        drop_worktree(open_repo(stage.root), place)
    assert (place / "file").read_text() == "mine"


def test_phases_that_both_branches_have_open_stay_where_they_are(stage):
    stage.commit("start")
    repo = open_repo(stage.root)
    own = stage.git("commit-tree", "-m", "work", "-p", "HEAD", "HEAD^{tree}").strip()
    stage.git("update-ref", "refs/heads/relay-jobs/dev/1", own)
    stage.git("update-ref", "refs/heads/relay-jobs/main/1", "HEAD")
    with pytest.raises(RepoError, match="phase 1 is open on dev and on main"):
        move_jobs(repo, "dev", "main")
    assert stage.git("rev-parse", "refs/heads/relay-jobs/dev/1").strip() == own


def test_what_is_outside_of_a_sparse_checkout_is_named_and_committed_once_the_user_widens_it(stage):
    """What a gate does not see is no phase's; the trees of both follow, and no session is paid again."""
    bench = Bench(stage, make_plan("test -s out/1.txt && grep -q new out/b.txt"), **{"in/a": "a", "out/b.txt": "b\n"})
    stage.git("sparse-checkout", "set", "in")
    commands = "mkdir -p out; echo 1 > out/1.txt; echo new > out/b.txt"
    out = bench.play([write_session(1, commands)], ends=ExitCode.STOPPED)
    assert "outside of your sparse checkout, where no gate sees it: out/1.txt, out/b.txt; git sparse-checkout" in out
    stage.git("sparse-checkout", "add", "out")
    bench.play([])
    assert stage.git("show", "main:out/1.txt", "main:out/b.txt") == "1\nnew\n"
    assert stage.git("status", "--porcelain") == ""

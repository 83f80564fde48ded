"""`relay run` on several plan files, or on a range of phases; a plan that is done moves where the user wants that."""

import json

import pytest

from relay.base.errors import ExitCode
from tests.scripts import serving

PLAN = "# {title}\n\n## Phase 1 — Only\nVerify: `test -f {title}.txt`\n- [ ] Write it — {title}.txt\n"
OFF = ("--sandbox", "off")


def write(path, item):
    call = {"name": "write", "input": {"path": path, "content": "x\n"}}
    tick = {"name": "tick", "input": {"item": item, "evidence": "seen"}}
    return {"turns": [{"tools": [call]}, {"tools": [tick]}, {"text": f"Commit: Write {path}", "repeat": 3}]}


def make(*sessions):
    return json.dumps({"sessions": sessions})


@pytest.fixture
def plans(project, commit):
    (project / "plans").mkdir()
    for title in ("a", "b"):
        (project / "plans" / f"{title}.md").write_text(PLAN.format(title=title))
    commit()
    return project / "plans"


def test_plans_are_worked_through_one_after_the_other(relay, plans, git):
    with serving(make(write("a.txt", "1.1"), write("b.txt", "1.1"))) as (server, endpoint):
        ran = relay("run", "plans/a.md", "plans/b.md", "plans/a.md", *OFF, env=endpoint)
    assert (ran.code, server.errors) == (ExitCode.DONE, [])
    assert ran.out.index("plans/a.md") < ran.out.index("plans/b.md")
    assert git("log", "-2", "--format=%s").splitlines() == ["Write b.txt", "Write a.txt"]
    assert sorted(path.name for path in plans.iterdir()) == ["a.md", "b.md"]


def test_a_plan_that_is_done_moves_by_a_commit_of_its_own(relay, plans, project, git, commit):
    """With its ledger, also where an earlier run had done it; its bytes stay as they are."""
    (project / "relay.toml").write_text('done_dir = "plans/done"\n')
    (plans / "b.md").write_text(PLAN.format(title="b").replace("[ ]", "[x]"))
    (plans / "b.ledger.yaml").write_text("")
    commit()
    with serving(make(write("a.txt", "1.1"))) as (server, endpoint):
        ran = relay("run", "plans/a.md", "plans/b.md", *OFF, env=endpoint)
    assert (ran.code, server.errors) == (ExitCode.DONE, []), ran.err
    assert "moved to plans/done/a.md" in ran.out
    assert "moved to plans/done/b.md" in ran.out
    assert [path.name for path in plans.iterdir()] == ["done"]
    assert "[x]" in (plans / "done" / "a.md").read_text()
    assert git("log", "-1", "--format=%s") == "relay: plan done — b"
    changes = git("show", "--format=", "--name-status", "-M100%", "HEAD").splitlines()
    assert [line.split("\t")[1:] for line in changes] == [
        ["plans/b.ledger.yaml", "plans/done/b.ledger.yaml"],
        ["plans/b.md", "plans/done/b.md"],
    ]
    assert git("status", "--porcelain") == ""


@pytest.mark.nightly
def test_a_plan_that_is_typed_twice_is_one_plan(relay, plans, project, commit):
    """Whatever its spellings: after it has moved it is not looked for again, and the next plan has its turn."""
    (project / "relay.toml").write_text('done_dir = "plans/done"\n')
    for title in ("a", "b"):
        (plans / f"{title}.md").write_text(PLAN.format(title=title).replace("[ ]", "[x]"))
    commit()
    ran = relay("run", "plans/a.md", "./plans/a.md", "plans/../plans/a.md", "plans/b.md", *OFF)
    assert (ran.code, ran.err) == (ExitCode.DONE, "")
    assert sorted(path.name for path in (plans / "done").iterdir()) == ["a.md", "b.md"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("link", "link/a.md cannot be written: "),
        ("keep.txt", "keep.txt/a.md cannot be written: Not a directory"),
        (".git/x", "done_dir: found '.git/x'; allowed: a path relative to the repository, without .. and .git"),
        ("x/.GIT", "without .. and .git"),
    ],
)
def test_a_plan_never_moves_through_a_link_over_a_file_or_out_of_gits_sight(
    relay, plans, project, git, commit, folder, said
):
    (project / "relay.toml").write_text(f'done_dir = "{folder}"\n')
    (project / "keep.txt").write_text("mine\n")
    (project / "link").symlink_to("plans")
    (plans / "a.md").write_text(PLAN.format(title="a").replace("[ ]", "[x]"))
    commit()
    head = git("rev-parse", "HEAD")
    ran = relay("run", "plans/a.md", *OFF)
    assert ran.code == ExitCode.USER
    assert said in ran.err
    assert (git("rev-parse", "HEAD"), git("status", "--porcelain")) == (head, "")


@pytest.mark.nightly
def test_a_plan_that_cannot_move_stays_where_it_is(relay, plans, project, git, commit):
    """Whether another file is there or a hook refuses: the file, the index and the branch are as before."""
    (project / "relay.toml").write_text('done_dir = "plans/done"\n')
    (plans / "a.md").write_text(PLAN.format(title="a").replace("[ ]", "[x]"))
    (plans / "done").mkdir()
    (plans / "done" / "a.md").write_text("mine\n")
    commit()
    head = git("rev-parse", "HEAD")
    ran = relay("run", "plans/a.md", *OFF)
    assert ran.code == ExitCode.USER
    assert "plans/done/a.md is there already" in ran.err
    (plans / "done" / "a.md").unlink()
    commit()
    head = git("rev-parse", "HEAD")
    hook = project / ".git" / "hooks" / "commit-msg"
    hook.write_text("#!/bin/sh\necho no plan today\nexit 1\n")
    hook.chmod(0o755)
    ran = relay("run", "plans/a.md", *OFF)
    assert ran.code == ExitCode.USER
    assert "plans/a.md stays where it is: " in ran.err
    assert "no plan today" in ran.err
    assert (git("rev-parse", "HEAD"), git("status", "--porcelain")) == (head, "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("plans/a.md", "plans/b.md", "--phase", "1"), ExitCode.USAGE, "--phase is for one plan"),
        (("plans/a.md", "--plan", "plans/b.md"), ExitCode.USAGE, "--plan is for one plan"),
        (("plans/a.md", "plans/c.md"), ExitCode.USER, "plans/c.md: there is no such plan"),
        (("--phase", "3-1"), ExitCode.USER, "--phase 3-1: phase 1 stands before phase 3"),
        (("--phase", "1-9"), ExitCode.USER, "there is no phase '9' in the plan"),
        (("--phase", "2-"), ExitCode.USAGE, "--phase: found '2-'; allowed: next, all"),
    ],
)
@pytest.mark.usefixtures("plans")
def test_what_cannot_be_run_runs_nothing(relay, project, commit, words, code, said):
    (project / "PLAN.md").write_text(THREE)
    commit()
    ran = relay("run", *words, *OFF)
    assert ran.code == code
    assert said in ran.err
    assert ran.out == ""


THREE = "# T\n\n" + "".join(
    f"## Phase {n}\nVerify: `test -f {n}.txt`\n- [ ] Write {n} — {n}.txt\n\n" for n in (1, 2, 3, 4)
)


@pytest.mark.nightly
def test_a_range_of_phases_is_worked_on_and_no_more(relay, project, commit, git):
    """A phase of it that is done is passed over; a second run of the same range sends nothing."""
    (project / "PLAN.md").write_text(THREE.replace("[ ] Write 1", "[x] Write 1"))
    commit()
    with serving(make(write("2.txt", "2.1"), write("3.txt", "3.1"))) as (server, endpoint):
        ran = relay("run", "--phase", "1-3", *OFF, env=endpoint)
    assert (ran.code, server.errors) == (ExitCode.DONE, [])
    assert "phases 1-3 are done" in ran.out
    assert git("log", "-2", "--format=%s").splitlines() == ["Write 3.txt", "Write 2.txt"]
    assert relay("run", "--phase", "1-3", *OFF).code == ExitCode.DONE
    dry = relay("run", "--phase", "3-4", "--dry-run", *OFF, env={"ANTHROPIC_API_KEY": "k"}).out
    assert "phase  4" in dry


@pytest.mark.nightly
def test_a_range_that_waits_for_another_phase_says_so(relay, project, commit):
    (project / "PLAN.md").write_text(THREE)
    commit()
    ran = relay("run", "--phase", "2-3", *OFF)
    assert ran.code == ExitCode.USER
    assert "phase 2 comes after 1, which is not done" in ran.err

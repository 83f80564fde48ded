"""`relay run` on several plan files, or on a range of phases."""

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


@pytest.mark.usefixtures("plans")
def test_what_cannot_be_run_runs_nothing(relay, project, commit):
    (project / "PLAN.md").write_text(THREE)
    commit()
    for words, code, said in (
        ("plans/a.md plans/b.md --phase 1", ExitCode.USAGE, "--phase is for one plan"),
        ("plans/a.md --plan plans/b.md", ExitCode.USAGE, "--plan is for one plan"),
        ("plans/a.md plans/c.md", ExitCode.USER, "plans/c.md: there is no such plan"),
        ("--phase 3-1", ExitCode.USER, "--phase 3-1: phase 1 stands before phase 3"),
        ("--phase 1-9", ExitCode.USER, "there is no phase '9' in the plan"),
        ("--phase 2-", ExitCode.USAGE, "--phase: found '2-'; allowed: next, all"),
    ):
        ran = relay("run", *words.split(), *OFF)
        assert (ran.code, ran.out, said in ran.err) == (code, "", True), ran


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

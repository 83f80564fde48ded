"""What models, plans, hooks and users do to a run; each ends with the right words and nothing lost."""

import pytest

from relay.base.errors import ExitCode, PlanError
from relay.base.interrupts import Urgency
from relay.run.commit.candidate import PhaseCommit, Refused
from relay.session.events import Committed, Noticed, PlanRestored
from relay.session.values import SessionKind
from tests.commit.candidate import commit_claims
from tests.scripted import ScriptedRunner
from tests.scripts import HELLO

FORMAT = "#!/bin/sh\nfor f in *.txt; do grep -q formatted $f || echo formatted >> $f; done\n"


def install_hook(stage, script):
    hook = stage.root / ".git/hooks/pre-commit"
    hook.write_text(script)
    hook.chmod(0o755)


def test_a_plan_without_a_phase_is_an_error_and_changes_nothing(stage):
    """Prose is never a silent success."""
    stage.write("PLAN.md", "# Notes\nNothing to tick here.\n")
    stage.commit("prose")

    with pytest.raises(PlanError, match=r"PLAN\.md"):
        stage.run(HELLO)


def test_a_command_cannot_tick_the_plan(stage):
    """In the sandbox the plan is read-only, whatever the shell does; the file tools write it no more than that."""
    before = (stage.root / "PLAN.md").read_text()
    script = """
sessions:
  - name: cheat
    turns:
      - tools: [{name: bash, input: {command: "sed -i 's/\\\\[ \\\\]/[x]/' PLAN.md"}}]
      - expect: {last_result_contains: "exit"}
        tools: [{name: write, input: {path: PLAN.md, content: "- [x] all"}}]
      - expect: {last_result_is_error: true}
        tools: [{name: block, input: {reason: "no way"}}]
"""
    ended = stage.run(script)

    assert ended.exit_code == ExitCode.STOPPED
    assert (stage.root / "PLAN.md").read_text() == before
    assert stage.server.errors == []


@pytest.mark.nightly
def test_without_a_sandbox_a_changed_plan_is_put_back_and_the_model_told(stage):
    """The guard does not rest on the sandbox alone; the change is kept in a snapshot."""
    before = (stage.root / "PLAN.md").read_text()
    script = """
sessions:
  - name: cheat
    turns:
      - tools: [{name: bash, input: {command: "sed -i 's/\\\\[ \\\\]/[x]/' PLAN.md"}}]
      - expect: {last_result_contains: "put back"}
        text: "Done"
      - text: "Done"
"""
    ended = stage.run(script, sandbox="off")

    assert ended.exit_code == ExitCode.STOPPED
    assert (stage.root / "PLAN.md").read_text() == before
    (restored,) = stage.seen(PlanRestored)
    where = restored.summary.rpartition("git show ")[2].partition(":")[0]
    assert restored.tool == "bash"
    assert "- [x] Say hello" in stage.git("show", f"{where}:PLAN.md")
    assert stage.server.errors == []


def commit_hello(stage):
    """Do the work of phase 1 and commit it."""
    with stage.enter(SessionKind.RUN, runner=ScriptedRunner([])) as ctx:
        return commit_claims(stage, ctx, lambda head: head.tick(["1.1"]))


def test_a_gate_that_collects_no_tests_is_not_green(stage):
    """Zero tests prove nothing; the box stays open and the work stays in the tree."""
    stage.write("PLAN.md", "## Phase 1\nVerify: `python3 -m unittest discover -s empty`\n- [ ] Say hello — hello.txt\n")
    stage.write("empty/__init__.py", "")
    stage.commit("plan")

    made = commit_hello(stage)

    assert isinstance(made, Refused)
    assert "no tests" in made.for_user
    assert "- [ ]" in stage.git("show", "HEAD:PLAN.md")
    assert (stage.root / "hello.txt").read_text() == "hello\n"


def test_a_hook_that_writes_a_secret_is_stopped(stage):
    """What a commit hook puts into files is looked at like what the session wrote."""
    token = "gh" + "p_" + "0Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx"
    install_hook(stage, f"#!/bin/sh\ntest ! -e hello.txt || grep -q gh hello.txt || echo token {token} >> hello.txt\n")
    before = stage.git("rev-parse", "HEAD")

    made = commit_hello(stage)

    assert isinstance(made, Refused)
    assert "hello.txt:2 looks like a GitHub token" in made.for_model
    assert stage.git("rev-parse", "HEAD") == before


def test_a_hook_that_rewrites_the_users_files_at_the_plans_commit_commits_none(stage):
    """A new plan is committed by itself, whatever a formatter finds in the work tree."""
    stage.write("dirty.txt", "one\n")
    stage.git("rm", "-q", "--cached", "PLAN.md")
    stage.git("add", "dirty.txt")
    stage.git("commit", "-q", "-m", "no plan")
    stage.write("dirty.txt", "one\nunfinished\n")
    stage.write("untracked.txt", "mine\n")
    install_hook(stage, FORMAT)

    stage.run("sessions: [{name: none, turns: [{tools: [{name: block, input: {reason: enough}}]}]}]")

    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["PLAN.md"]
    assert stage.git("status", "--porcelain").splitlines() == [" M dirty.txt", "?? untracked.txt"]
    told = [event.text for event in stage.seen(Noticed) if "not committed with the plan" in event.text]
    assert [text.rpartition(": ")[2] for text in told] == ["dirty.txt, untracked.txt"]


PLANT = "mkdir -p sub; echo evil > sub/CLAUDE.md; echo 'max_cost_usd = 1000' > relay.toml\n"


def test_a_hook_that_plants_files_at_a_phases_commit_commits_none_of_them(stage):
    """Neither settings nor rules: a session may not make them either."""
    stage.write("untracked.txt", "mine\n")
    install_hook(stage, FORMAT + PLANT)

    assert isinstance(commit_hello(stage), PhaseCommit)

    assert sorted(stage.git("show", "--name-only", "--format=", "HEAD").split()) == ["PLAN.md", "hello.txt"]
    assert stage.git("status", "--porcelain").splitlines() == ["?? untracked.txt"]
    told = [event.text for event in stage.seen(Noticed) if "a commit hook rewrote" in event.text]
    assert told[0].endswith(": relay.toml, sub/CLAUDE.md")


@pytest.mark.nightly
def test_a_hook_that_rewrites_half_done_work_at_an_amendment_commits_none(stage):
    """What no gate has seen is in no commit, and stays the open phase's."""
    half = """
sessions:
  - name: first
    turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hel\\n"}}]
"""
    stage.on_tool = lambda: stage.interrupts.request(Urgency.NOW)
    stage.run(half)
    stage.calm()
    stage.write("PLAN.md", (stage.root / "PLAN.md").read_text() + "\nMore prose.\n")
    install_hook(stage, FORMAT)

    ended = stage.run(HELLO, all_=False)

    assert ended.exit_code == ExitCode.DONE, ended
    assert stage.git("show", "--name-only", "--format=%s", "HEAD~1").split() == ["relay:", "plan", "amended", "PLAN.md"]
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["PLAN.md", "hello.txt"]


@pytest.mark.nightly
def test_the_users_edit_of_an_open_phase_is_committed_by_itself(stage):
    """An amendment between attempts is taken; relay says so in a commit of its own."""
    stage.run(HELLO, all_=False)
    stage.edit("Say it twice", "Say it three times")

    stage.run("sessions: [{name: none, turns: [{text: Done}, {text: Done}]}]")

    assert [(event.status, event.phase_id) for event in stage.seen(Committed)] == [("amended", "")]
    assert "three times" in stage.git("show", "HEAD:PLAN.md")


def test_spending_stops_before_the_request_that_could_cross_the_cap(stage):
    """A cap of a cent lets no request through whose worst case is more."""
    ended = stage.run(HELLO, max_cost_usd=0.01)

    assert ended.exit_code == ExitCode.STOPPED
    assert "0.01 USD" in ended.reason
    assert [request for request in stage.server.requests if request.path == "/v1/messages"] == []


@pytest.mark.nightly
def test_rules_that_do_not_fit_are_said(stage):
    """What was cut of AGENTS.md is never cut in silence."""
    stage.write("AGENTS.md", "x" * 40_000)
    stage.commit("rules")

    stage.run(HELLO)

    said = [notice.text for notice in stage.seen(Noticed) if notice.warning]
    assert any("AGENTS.md is cut to 32,768 of 40,000 bytes" in text for text in said), said

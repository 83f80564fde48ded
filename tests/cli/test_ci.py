"""`relay init --ci`: the workflows, and their commands as a forge's runner starts them."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from relay.base.errors import ExitCode
from relay.cli.init import WORKFLOWS
from tests.effort import take_turns
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

TEMPLATES = Path(__file__).parents[2] / "templates/ci"
PLAN = "# Words\n\n## Phase 1 — One\nVerify: `grep -q one one.txt`\n- [ ] Say one — one.txt\n"
DONE = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: one.txt, content: "one"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: x}}]
      - text: "Commit: Say one"
"""
BLOCKED = "sessions: [{turns: [{tools: [{name: block, input: {reason: not so}}]}]}]"


@pytest.fixture
def forge(project, environ, program, tmp_path):
    """Run a job's commands, one script for each step, with what a runner has; return the exit codes."""
    programs, origin = tmp_path / "programs", tmp_path / "origin.git"
    programs.mkdir()
    for name in ("pip", "sudo", "apt-get"):
        (programs / name).write_text('#!/bin/sh\ntest -n "$2"\n')
    (programs / "relay").write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
    for path in programs.iterdir():
        path.chmod(0o755)
    (project / "PLAN.md").write_text(PLAN)
    for words in (
        ("add", "."),
        ("commit", "-qm", "plan"),
        ("init", "-q", "--bare", str(origin)),
        ("remote", "add", "origin", "x"),
    ):
        subprocess.run(["git", *words], cwd=project, env=environ, check=True)

    def run(steps, script, **variables):
        with serve(parse_script(script)) as server:
            given = {
                **environ,
                "PATH": f"{programs}:{environ['PATH']}",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": f"url.{origin}.insteadOf",
                "ANTHROPIC_BASE_URL": server.base_url,
                "ANTHROPIC_API_KEY": "k",
                **variables,
            }
            codes = [
                subprocess.run(["bash", "-e", "-c", step], cwd=project, env=given, check=False, timeout=60).returncode
                for step in steps
            ]
            assert server.errors == []
        done = subprocess.run(
            ["git", "--git-dir", str(origin), "log", "--format=%s", "work"],
            capture_output=True, text=True, check=False, env=environ,
        )  # fmt: skip
        return codes, done.stdout.splitlines()[:1]

    return run


def load(forge_name):
    return yaml.safe_load((TEMPLATES / f"{forge_name}.yml").read_text())


def list_steps(job):
    return [step["run"] for step in load("github")["jobs"][job]["steps"] if "run" in step]


def list_gitlab():
    whole = load("gitlab")
    return [*whole[".relay"]["before_script"], *whole["relay-run"]["script"]]


GITHUB = {
    "INSTALL_RELAY": "relay",
    "RUNNER_TEMP": "..",
    "PHASE": "next",
    "RELAY_MAX_COST_USD": "20",
    "TOKEN": "t",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "you/words",
    "GITHUB_REF_NAME": "work",
    "GITHUB_SHA": "HEAD~1",
    "GITHUB_STEP_SUMMARY": "../summary",
    "APPROVE_SETUP": "",
    "ASIDE": "relay/run-7-1",
    "GIT_CONFIG_VALUE_0": "https://x-access-token:t@github.com/you/words",
}
GITLAB = {
    "INSTALL_RELAY": "relay",
    "PHASE": "next",
    "PUSH_TOKEN": "t",
    "CI_COMMIT_BRANCH": "work",
    "CI_COMMIT_SHA": "HEAD~1",
    "CI_JOB_ID": "7-1",
    "APPROVE_SETUP": "",
    "CI_SERVER_HOST": "gitlab.com",
    "CI_PROJECT_URL": "https://gitlab.com/you/words",
    "CI_PROJECT_DIR": "../words",
    "GIT_CONFIG_VALUE_0": "https://relay:t@gitlab.com/you/words.git",
}


def test_github_ends_as_relay_did_and_pushes_what_is_committed(forge):
    assert forge(list_steps("run"), BLOCKED, **GITHUB) == ([0, ExitCode.STOPPED, 0], ["plan"])


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "refuses"), take_turns(["github", "gitlab"], ["this branch", "all"]))
def test_a_push_that_is_refused_loses_no_phase(forge, project, environ, tmp_path, name, refuses):
    """The branch has moved on, or is protected: the commits are on another one, or in the artifact."""
    origin = tmp_path / "origin.git"
    hook = origin / "hooks/pre-receive"
    which = "grep -q ' refs/heads/work$' && exit 1; exit 0" if refuses == "this branch" else "exit 1"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{which}\n")
    hook.chmod(0o755)
    subprocess.run(["git", "--git-dir", str(origin), "config", "receive.advertisePushOptions", "true"], check=True)
    if name == "github":
        codes, _ = forge(list_steps("run"), DONE, **GITHUB)
    else:
        codes, _ = forge(["\n".join(list_gitlab())], DONE, **GITLAB)
    assert codes[-1] == (0 if refuses == "this branch" else 1)
    bundle = project / ".relay/sessions/relay.bundle"
    words = ["log", "-1", "--format=%s"]
    if refuses == "this branch":
        words = ["--git-dir", str(origin), *words, "relay/run-7-1"]
        assert not bundle.exists()
    else:
        subprocess.run(["git", "switch", "-q", "-c", "later", "HEAD~1"], cwd=project, env=environ, check=True)
        subprocess.run(["git", "pull", "-q", str(bundle), "HEAD"], cwd=project, env=environ, check=True)
    done = subprocess.run(["git", *words], cwd=project, env=environ, check=True, capture_output=True, text=True)
    assert done.stdout == "Say one\n"
    assert name == "gitlab" or refuses == "all" or "## What was done" in (tmp_path / "summary").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_a_phase_is_pushed_and_setup_runs_where_whoever_starts_the_job_says_so(forge, project, name):
    """And only then: what is to run with network stands in the repository."""
    (project / "relay.toml").write_text('setup = ["true"]\n')
    steps, given = (list_steps("run"), GITHUB) if name == "github" else (["\n".join(list_gitlab())], GITLAB)
    refused, _ = forge(steps, "sessions: []", **given)
    assert ExitCode.USER in refused
    allowed, top = forge(steps, DONE, **{**given, "APPROVE_SETUP": "--approve-setup"})
    assert (set(allowed), top) == ({0}, ["Say one"])


def test_only_logs_without_known_secrets_are_kept_for_everybody():
    upload = next(step for step in load("github")["jobs"]["run"]["steps"] if "upload" in step.get("uses", ""))
    assert (upload["with"]["path"], upload["with"]["include-hidden-files"]) == (".relay/sessions", True)
    assert load("gitlab")["relay-run"]["artifacts"]["paths"] == [".relay/sessions"]
    for text in (*list_steps("run"), *load("gitlab")["relay-run"]["script"]):
        assert "--json" not in text
        assert "relay run" not in text or re.search(r' >"\$[\w/.]+"', text)


def test_a_plan_is_checked_and_what_is_to_be_installed_has_to_be_said(forge, project):
    check = [*load("gitlab")[".relay"]["before_script"], *load("gitlab")["relay-check"]["script"]]
    assert forge(check, BLOCKED, **GITLAB)[0] == [0, 0]
    (project / "PLAN.md").write_text("# No plan\n")
    assert forge(list_steps("check"), BLOCKED, **GITHUB)[0] == [0, ExitCode.USER]
    assert forge(list_steps("check")[:1], BLOCKED, **{**GITHUB, "INSTALL_RELAY": ""})[0] != [0]


def test_no_text_of_a_repository_becomes_a_command_and_no_session_has_a_token():
    """Expressions stand in `env` and `with` alone; the check has no secret; no checkout keeps the token."""
    text = (TEMPLATES / "github.yml").read_text()
    whole = load("github")
    assert whole["permissions"] == {}
    assert whole["jobs"]["check"]["permissions"] == {"contents": "read"}
    assert "secrets." not in str(whole["jobs"]["check"])
    for job in whole["jobs"].values():
        assert all("${{" not in step.get("run", "") for step in job["steps"])
        checkout = next(step for step in job["steps"] if "checkout" in step.get("uses", ""))
        assert checkout["with"]["persist-credentials"] is False
    assert re.findall(r"uses: (\S+)@(?![0-9a-f]{40} # v)", text) == []
    setting = next(i for i, line in enumerate(load("gitlab")["relay-run"]["script"]) if "set-url" in line)
    running = next(i for i, line in enumerate(load("gitlab")["relay-run"]["script"]) if "relay run" in line)
    assert setting < running


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_written_once_and_never_over_anything(relay, project, name):
    place = project / WORKFLOWS[name]
    assert f"wrote {WORKFLOWS[name]}" in relay("init", "--ci", name).out
    assert place.read_bytes() == (TEMPLATES / f"{name}.yml").read_bytes()
    assert f"kept {WORKFLOWS[name]}" in relay("init", "--ci", name).out
    place.write_text("mine")
    ran = relay("init", "--ci", name)
    assert place.read_text() == "mine"
    if name == "gitlab":
        assert "wrote .gitlab/relay.yml" in ran.out
        assert "include: [{local: .gitlab/relay.yml}]" in ran.out
        assert "set it as the stage: of .relay in that file" in ran.out
    assert not (project / "PLAN.md").exists()

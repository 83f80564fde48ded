"""What has to hold before a session: looked at once, shown by the doctor and required by a run."""

import inspect
import os
import re
import shutil
from pathlib import Path

import pytest

from relay.base.errors import ConfigError, RunnerError
from relay.base.tree import make_temporary_name
from relay.config import Settings, load_settings
from relay.git.repository import open_repo
from relay.runners.registry import get_kind, list_runners
from relay.session.values import SessionKind
from relay.setup import open as opening
from relay.setup import preconditions
from relay.setup.context import RunRequest
from relay.setup.preconditions import (
    State,
    check_all,
    check_key,
    check_repository,
    check_rules,
    require,
)
from relay.setup.project import render_project_rules
from relay.setup.rules import load_repository_rules
from tests.effort import take_each
from tests.scripted import ScriptedRunner


def test_a_key_is_named_and_never_shown_and_what_is_missing_is_one_error_with_the_words_that_are_shown():
    """The doctor shows the finding, a run stops with the error; they cannot say different things."""
    api = list_runners(Settings())["api"]
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        finding = check_key((api,), {"ANTHROPIC_API_KEY": "", name: "k"}, Settings())
        assert (finding.state, finding.words, finding.error) == (State.OK, f"{name} is set", None)
    assert check_key((ScriptedRunner([]).kind,), {}, Settings()).words == "this runner needs none"
    finding = check_key((api,), {}, Settings())
    with pytest.raises(RunnerError) as raised:
        require(finding)
    assert finding.state is State.MISSING
    assert (raised.value.message, raised.value.hint) == (finding.words, finding.hint)


def test_the_key_of_one_vendor_is_not_given_to_an_agent_of_another():
    """The variable for it is named."""
    mine = {"mine": {"program": "/bin/true", "endpoints": ["openai"]}}
    flags = {"provider": "bedrock", "agents": mine}
    settings = load_settings(flags=flags, environ={}, plan_settings={}, repo_root=None, user_dir=None)
    with pytest.raises(RunnerError, match="no API key: OPENAI_API_KEY is not set"):
        list_runners(settings)["mine"].get_key({"ANTHROPIC_API_KEY": "k"})


def test_an_unknown_runner_is_named_with_all_that_are_known():
    own = list_runners(Settings())["api"]
    with pytest.raises(ConfigError) as raised:
        get_kind("magic", origin="relay.toml:3", known={"api": own, "other": own})
    assert raised.value.message == "relay.toml:3: runner: found 'magic'; allowed: api, other"


def test_a_runner_that_cannot_start_any_session_says_so_when_it_is_asked_for_the_model(stage):
    """Nothing was begun."""

    class Refusing(ScriptedRunner):
        def get_model(self, model: str):
            raise RunnerError(f"{model} is not known here")

    with pytest.raises(RunnerError, match="is not known here"):
        stage.play(Refusing([]), phase="1")
    assert stage.git("for-each-ref", "refs/relay") == ""


def test_what_is_there_stops_nothing(stage):
    found = check_repository(open_repo(stage.root))
    require(found)
    assert (found.state, found.words) == (State.OK, f"{stage.root} on main")


@pytest.mark.nightly
def test_what_stood_in_the_work_tree_for_a_moment_is_gone_before_a_session(stage):
    stage.write(f"deep/{make_temporary_name()}", "half")
    with stage.enter(SessionKind.RUN, runner=ScriptedRunner([]), flags={"sandbox": "off"}):
        assert not (stage.root / "deep").exists()


def test_rules_that_are_cut_or_not_read_are_a_warning(tmp_path: Path):
    """A run goes on with what there is of them."""
    (tmp_path / ".git").mkdir()

    def look(**files: str) -> tuple[State, str, str, str]:
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        found = check_rules(load_repository_rules(tmp_path, Settings()))
        require(found)
        return found.state, found.words, str(found.hint), "".join(found.details)

    assert look() == (State.INFO, "no AGENTS.md here", "relay init writes one to start from", "")
    *cut, _ = look(AGENTS__md="x" * 40_000)
    assert cut == [State.WARNING, "AGENTS.md (32,768 of 40,000 bytes)", "shorten them"]
    assert look(AGENTS__md="x" * 100)[0] is State.OK
    *_, hint, said = look(AGENTS__override__md=" ")
    assert (hint, said) == ("", "AGENTS.override.md is blank; no other file of its directory is read")
    (tmp_path / "AGENTS.override.md").unlink()
    assert "has places to fill in" in look(AGENTS__md=render_project_rules(tmp_path))[-1]
    (tmp_path / "AGENTS.md").unlink()
    state, words, hint, said = look(__cursorrules="x")
    assert (state, words, hint) == (State.WARNING, "no AGENTS.md here", "")
    assert 'rules_fallback_names = [".cursorrules"]' in said


def age_git(stage):
    (folder := stage.root.with_name("bin")).mkdir()
    (script := folder / "git").touch(mode=0o755)
    says = 'for word; do [ "$word" = version ] && echo git version 2.30.0 && exit; done'
    script.write_text(f'#!/bin/sh\nunset GIT_TRACE2_EVENT\n{says}\nexec {shutil.which("git")} "$@"\n')
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def configure(stage, text):
    """Have the user's own configuration of git say no more than that."""
    (config := stage.root.with_name("gitconfig")).write_text(text)
    return {"GIT_CONFIG_GLOBAL": str(config)}


def ask_for_setup(stage):
    stage.write("relay.toml", 'setup = ["uv sync"]\n')
    stage.commit()


def lead_elsewhere(stage):
    (stage.root / "LINK.md").symlink_to("PLAN.md")
    return {"RELAY_PLAN": "LINK.md"}


SIGNING = "[user]\nname = T\nemail = t@example.invalid\n[commit]\ngpgSign = true\n[gpg]\nprogram = /bin/false\n"
BROKEN = {
    "runner": (lambda _: {"RELAY_RUNNER": "claude"}, "relay starts no agent without its sandbox"),
    "relay": (lambda stage: {"PYTHONPATH": str(stage.root)}, "the next relay would load a session's code"),
    "setup": (ask_for_setup, "this repository wants to run with network before its first session: uv sync"),
    "key": (lambda _: {"ANTHROPIC_API_KEY": ""}, "no API key"),
    "git": (age_git, "git 2.30.0 is too old"),
    "repository": (lambda stage: stage.git("update-ref", "--no-deref", "CHERRY_PICK_HEAD", "HEAD"), "a cherry-pick is"),
    "plan": (lead_elsewhere, "LINK.md leads through a symbolic link"),
    "identity": (lambda stage: configure(stage, ""), "git does not know who you are"),
    "signing": (lambda stage: configure(stage, SIGNING), "commit.gpgSign is on, but the commit cannot be signed"),
    "caps": (lambda _: {"RELAY_MODEL": "claude-opus-55"}, "claude-opus-55 (did you mean claude-opus-5-5"),
}
"""How each thing is made missing, which may return variables, and what is said then."""


@pytest.mark.parametrize("name", take_each(4, BROKEN))
def test_what_stops_a_run_stops_its_dry_run_in_the_same_words_and_the_doctor_shows_it(stage, name):
    """Nothing is changed by the two that only look: not even a signature is left."""
    make, words = BROKEN[name]
    made = make(stage)
    environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "RELAY_SANDBOX": "off"}
    environ |= made if isinstance(made, dict) else {}
    objects = sorted((stage.root / ".git/objects").rglob("*"))

    dry, doctor, run = (
        stage.relay(*typed, environ=environ, path=environ.get("PATH", ""))
        for typed in (("run", "--dry-run"), ("doctor",), ("run",))
    )

    assert (dry.returncode, doctor.returncode, run.returncode) == (1, 1, 1)
    assert words in " ".join(run.stderr.split())
    assert (dry.stdout, dry.stderr) == ("", run.stderr)
    line = next(line for line in doctor.stdout.splitlines() if line.startswith(f"PROBLEM  {name} "))
    assert words in line
    assert sorted((stage.root / ".git/objects").rglob("*")) == objects


def test_a_run_requires_the_list_alone_and_each_thing_of_it_is_tried_above(stage):
    repo, environ = open_repo(stage.root), {"ANTHROPIC_API_KEY": "k"}
    request = RunRequest(kind=SessionKind.RUN, repo=repo, settings=Settings(), plan_path="PLAN.md", environ=environ)
    assert [finding.name for finding in check_all(request)] == [*BROKEN]

    known = vars(preconditions)
    parts, *required = (
        {name for name in re.findall(r"\bcheck_\w+", inspect.getsource(code)) if name in known}
        for code in (check_all, opening)
    )
    assert set.union(*required) | {"check_all"} == parts

"""What commands are shown beyond toolchains: environments that a plan names, and what the user's settings name."""

from collections.abc import Sequence

import pytest

from relay.config import load_settings
from relay.errors import ConfigError, ExitCode
from relay.git.repository import open_repo
from relay.sandbox.virtualenvs import find_environments
from relay.session.values import SessionOutcome
from relay.setup.policy import make_policy
from tests.scripted import Act, ScriptedRunner


def make_environment(place):
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text("")
    return place


@pytest.mark.parametrize("start", ["~", "$HOME", "${HOME}", ""])
def test_an_environment_that_a_command_names_is_shown(tmp_path, start):
    """However its home directory is written."""
    place = make_environment(tmp_path / "envs/x")
    text = f"Verify: `cd a && {start or tmp_path}/envs/x/bin/pytest -q`"
    assert find_environments(text, tmp_path, {"HOME": str(tmp_path)}) == (place / "pyvenv.cfg", place / "bin")


def test_of_a_directory_that_is_no_environment_or_more_than_one_nothing_else_is_shown(tmp_path):
    """A plan may be anybody's."""
    (tmp_path / ".ssh/bin").mkdir(parents=True)
    make_environment(tmp_path / "work")
    (tmp_path / "work/diary").write_text("private")
    text = "~/.ssh/bin/x ~/work/bin/x ~/work/../work/bin/y /nowhere/bin/z ~nobody/bin/x"
    found = find_environments(text, tmp_path, {"HOME": str(tmp_path)})
    assert found == (tmp_path / "work/pyvenv.cfg", tmp_path / "work/bin")


def test_an_environment_that_the_repository_links_to_is_shown(tmp_path):
    """Its real place: the link is the repository's own."""
    place = make_environment(tmp_path / "envs/x")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/.venv").symlink_to(place)
    assert find_environments("", tmp_path / "repo", {}) == (place / "pyvenv.cfg", place / "bin")


def load(environ):
    return load_settings(flags={}, environ=environ, plan_settings={}, repo_root=None, user_dir=None)


@pytest.mark.parametrize("joint", [":", ",", " , "])
def test_directories_of_the_user_are_listed_as_path_is_or_as_other_lists_are(stage, tmp_path, joint):
    """And may begin with ``~/``."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    words = f"~/a{joint}{tmp_path}/b"
    settings = load({"RELAY_WRITABLE_DIRS": words, "RELAY_READABLE_DIRS": words})
    policy = make_policy(open_repo(stage.root), settings, (), {"HOME": str(tmp_path)})
    assert policy.writable == (tmp_path / "a", tmp_path / "b")
    assert policy.readable[1:] == policy.writable


def test_a_home_directory_that_is_not_known_is_said(stage):
    """Instead of a path that nobody meant."""
    with pytest.raises(ConfigError, match="RELAY_READABLE_DIRS: readable_dirs: ~/c: HOME is not set"):
        make_policy(open_repo(stage.root), load({"RELAY_READABLE_DIRS": "~/c"}), (), {})


WORK: list[list[Sequence[Act | SessionOutcome]]] = [
    [
        [
            ("bash", {"command": "cat .env"}),
            ("bash", {"command": "python3 -c 'import os; os.environ[\"TOKEN_URL\"]'"}),
            ("bash", {"command": "echo hello > hello.txt"}),
            ("tick", {"item": "1.1", "evidence": "made"}),
        ]
    ]
]


def test_a_hidden_file_is_named_where_a_command_misses_it_and_shown_to_a_gate_only(stage):
    """By the user's word; a gate without it is red, and relay says in the result what a command was not shown."""
    stage.write(".gitignore", ".env*\n")
    stage.write(
        "PLAN.md", "# P\n\n## Phase 1 — One\nVerify: `grep -q dsn .env && test -s hello.txt`\n- [ ] Hello — hello.txt\n"
    )
    stage.commit()
    stage.write(".env", "dsn\n")
    stage.write(".env.other", "secret\n")

    refused = stage.play(ScriptedRunner(sessions=[*WORK]), sandbox="auto")
    assert refused.exit_code == ExitCode.STOPPED
    runner = ScriptedRunner(sessions=[*WORK])
    ended = stage.play(runner, sandbox="auto", env_file=".env")

    assert ended.exit_code == ExitCode.DONE
    told = [".env: hidden from commands" in result.text for result in runner.results]
    assert told == [True, True, False, False]
    assert "dsn" not in runner.results[0].text


def test_without_a_plan_there_is_a_sandbox_all_the_same(stage):
    """A first plan is written in one."""
    stage.git("rm", "-q", "PLAN.md")
    with stage.enter("plan", runner=ScriptedRunner(sessions=[])) as ctx:
        assert ctx.workspace.sandbox.policy.root == stage.root

"""What commands are shown beyond toolchains: environments that a plan names, and what the user's settings name."""

import base64
import json
import re
from collections.abc import Sequence
from urllib.parse import unquote_plus

import pytest

from relay.base.errors import ConfigError, ExitCode
from relay.config import load_settings
from relay.git.repository import open_repo
from relay.sandbox.places import find_environments
from relay.session.values import SessionKind, SessionOutcome
from relay.setup.workspace import make_policy
from tests.effort import NIGHTLY
from tests.scripted import Act, ScriptedRunner


def make_environment(place):
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text("")
    return place


def test_an_environment_that_a_command_names_or_the_repository_links_to_is_shown(tmp_path):
    """However its home directory is written. Of other directories and files nothing is: a plan may be anybody's."""
    place, home = make_environment(tmp_path / "envs/x"), {"HOME": str(tmp_path)}
    shown = (place / "pyvenv.cfg", place / "bin")
    for start in ("~", "$HOME", "${HOME}", tmp_path):
        assert find_environments(f"Verify: `cd a && {start}/envs/x/bin/pytest -q`", tmp_path, home) == shown, start
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/.venv").symlink_to(place)  # its real place: the link is the repository's own
    assert find_environments("", tmp_path / "repo", {}) == shown
    other = make_environment(tmp_path / "main/.venv")  # a copy of it names it: each tree of relay's gets one
    assert find_environments("", tmp_path / "job", {}, [tmp_path / "main"]) == (other / "pyvenv.cfg", other / "bin")
    (tmp_path / ".ssh/bin").mkdir(parents=True)
    (tmp_path / "envs/x/diary").write_text("private")
    text = "~/.ssh/bin/x ~/envs/x/bin/x ~/envs/../envs/x/bin/y /nowhere/bin/z ~nobody/bin/x"
    assert find_environments(text, tmp_path, home) == shown


def load(environ):
    return load_settings(flags={}, environ=environ, plan_settings={}, repo_root=None, user_dir=None)


def test_directories_of_the_user_are_shown_and_may_begin_at_home(stage, tmp_path):
    """Where that is not known it is said, instead of a path that nobody meant."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    listed = ["~/a", f"{tmp_path}/b"]
    settings = load({"RELAY_PATHS": json.dumps({"write": listed, "read": listed})})
    policy = make_policy(open_repo(stage.root), settings, (), {"HOME": str(tmp_path)})
    assert policy.writable == (tmp_path / "a", tmp_path / "b")
    assert policy.readable[1:] == policy.writable
    with pytest.raises(ConfigError, match=r"RELAY_PATHS: paths\.read: ~/c: HOME is not set"):
        make_policy(open_repo(stage.root), load({"RELAY_PATHS": '{"read": ["~/c"]}'}), (), {})


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

    runner = ScriptedRunner(sessions=[*WORK])
    refused = stage.play(runner, sandbox="auto", max_repairs=0)
    assert refused.exit_code == ExitCode.STOPPED
    ended = stage.play(ScriptedRunner(sessions=[]), sandbox="auto", env_file=".env")  # no further session is paid for

    assert ended.exit_code == ExitCode.DONE
    told = [".env: hidden from commands" in result.text for result in runner.results]
    assert told == [True, True, False, False]
    assert "dsn" not in runner.results[0].text


def test_without_a_plan_there_is_a_sandbox_all_the_same(stage):
    """A first plan is written in one."""
    stage.git("rm", "-q", "PLAN.md")
    with stage.enter(SessionKind.PLAN, runner=ScriptedRunner(sessions=[])) as ctx:
        assert ctx.workspace.sandbox.policy.root == stage.root


HANDED = "DB_PASSWORD=c4nary/'of' dépôt+x\nOWNER='c4nary under any name'\nUSER_NAME=somebody\n"
PRINTS = """\
cat .env
base64 -w 0 .env; for n in 11 12; do cut -c $n- .env | base64 -w 0; done
python3 -c "import json; print(json.dumps([open('.env').read()]))"
python3 -c "from urllib.parse import quote_plus as q; print(q(open('.env').read()))"
od -An -tx1 -v .env | tr -d ' \\n'
cp .env seen.txt; mkdir -p left; cp .env left/x
echo somebody; exit 1
"""
"""As it is, in base64, JSON, an address and hex, and into files, which stay in the gate's own tree."""


def find_told(text):
    """Return what of the value is in a text, however it is written."""
    words = [word[at:] for word in re.findall(r"[A-Za-z0-9+/]{8,}", text) for at in range(4)]
    decoded = [base64.b64decode(word[: len(word) // 4 * 4]) for word in words]
    return [
        found
        for found in (
            text,
            unquote_plus(text),
            bytes.fromhex("".join(re.findall("[0-9a-f]{40,}", text)) or "00").decode("utf-8", "replace"),
            *(data.decode("utf-8", "replace") for data in decoded),
        )
        if "c4nary" in found
    ]


@pytest.mark.parametrize("more", ["", "seq 200000\n"] if NIGHTLY else [""], ids=lambda more: more.strip() or "alone")
def test_what_a_gate_is_handed_no_session_is_told(stage, more):
    """A session writes the test that the gate runs, and looks at what is left; nothing else is taken out."""
    stage.write(".gitignore", ".env*\nleft/\n")
    stage.write("PLAN.md", "# P\n\n## Phase 1 — One\nVerify: `sh t.sh`\n- [ ] Hello — hello.txt, t.sh\n")
    stage.commit()
    stage.write(".env", HANDED)
    test = ("bash", {"command": f"cat > t.sh <<'END'\n{more}{PRINTS}END\necho x > hello.txt"})
    look = ("bash", {"command": "cat left/x seen.txt; grep -h -v '^[0-9]*$' .relay/outputs/*"})
    runner = ScriptedRunner(sessions=[[[test, WORK[0][0][-1]], [look]]])

    ended = stage.play(runner, sandbox="auto", env_file=".env", max_repairs=1)

    assert ended.exit_code == ExitCode.STOPPED
    seen = "\n".join((*runner.told, *(result.text for result in runner.results)))
    kept = "\n".join(path.read_text() for path in stage.root.glob(".relay/*/*.*"))
    assert "somebody" in runner.told[1]
    assert "cat: left/x: No such file or directory\ncat: seen.txt: No such file" in runner.results[-1].text
    assert find_told(seen) == []
    assert find_told(kept) == []

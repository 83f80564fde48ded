"""The setup step: what sessions need is installed before the first, and again when a lock file changed."""

import json
import re
import shutil
import socket
from collections.abc import Sequence

import pytest

from relay.base.errors import ConfigError, ExitCode, RepoError
from relay.config import Settings
from relay.session.events import GateStarted, SetupFinished, SetupStarted
from relay.session.values import SessionKind, SessionOutcome
from relay.setup.preconditions import find_unapproved, require_approval, save_approval
from relay.setup.workspace import LOCK_FILES, ensure_set_up, is_lock_file
from tests.effort import take_each
from tests.phases.bench import Bench, write_session
from tests.scripted import Act, ScriptedRunner

INSTALL = "mkdir -p node_modules && cat package-lock.json >> node_modules/installed"
WORK: list[list[Sequence[Act | SessionOutcome]]] = [
    [[("write", {"path": "hello.txt", "content": "hello\n"}), ("tick", {"item": "1.1", "evidence": "made"})]],
    [
        [
            ("bash", {"command": "cat node_modules/installed > world.txt; echo world >> world.txt"}),
            ("tick", {"item": "2.1", "evidence": "made"}),
            ("tick", {"item": "2.2", "evidence": "made"}),
        ]
    ],
]


@pytest.fixture
def locked(stage):
    stage.write("package-lock.json", "one\n")
    stage.write(".gitignore", "node_modules/\n")
    stage.commit()
    return stage


def play(stage, *, phase="", **flags):
    return stage.play(ScriptedRunner(sessions=list(WORK)), phase=phase, sandbox="auto", **flags)


def test_setup_runs_before_the_first_session_and_not_again(locked):
    """What it makes is there for sessions and for gates, in a tree each; it is logged with its network and its end."""
    ended = play(locked, setup=(INSTALL, "echo second"))

    assert ended.exit_code is ExitCode.DONE, ended.reason
    started = [event.command for event in locked.seen(SetupStarted)]
    assert started == 2 * [INSTALL, "echo second"]  # in the tree of the sessions, and in the gates'
    assert {event.network for event in locked.seen(SetupStarted)} == {"every public host"}
    assert [(event.exit_code, event.output) for event in locked.seen(SetupFinished)] == 2 * [(0, ""), (0, "second")]
    kinds = [type(event) for event in locked.events]
    assert kinds.index(SetupFinished) < kinds.index(GateStarted)
    assert locked.git("show", "HEAD:world.txt") == "one\nworld\n"
    assert "node_modules" not in locked.git("log", "--name-only", "--format=")


@pytest.mark.nightly
def test_setup_runs_again_for_another_lock_file_other_commands_and_a_lost_environment(locked):
    def count(*commands):
        with locked.enter(
            SessionKind.RUN, flags={"setup": commands, "sandbox": "auto"}, runner=ScriptedRunner(sessions=[])
        ) as ctx:
            ensure_set_up(ctx.repo, ctx.settings, ctx.workspace, ctx.observe)
        return len(locked.seen(SetupStarted))

    assert [count(INSTALL), count(INSTALL)] == [1, 0]
    locked.write("package-lock.json", "two\n")
    locked.commit("locked anew")
    assert [count(INSTALL), count(INSTALL)] == [1, 0]
    locked.write("docs/requirements-dev.txt", "pytest==9\n")
    assert count(INSTALL) == 1
    assert [count(INSTALL, "true"), count(INSTALL, "true")] == [2, 0]
    shutil.rmtree(locked.root / "node_modules")
    assert count(INSTALL, "true") == 2
    assert count() == 0


def test_a_setup_that_fails_stops_before_anything_is_paid(locked):
    with pytest.raises(ConfigError) as refusal:
        play(locked, setup=("echo what went wrong; exit 3", "echo second"))
    assert "failed with exit 3\nwhat went wrong" in str(refusal.value)
    assert [event.exit_code for event in locked.seen(SetupFinished)] == [3]
    assert not locked.seen(GateStarted)


def test_a_session_is_told_that_its_lock_file_does_not_install(locked):
    """The setup commands of its commit fail in the tree of the gate; it mends that, and the phase ends.

    A red gate says nothing of the packages that setup installed in both trees: they are the same, at another time.
    """
    bad = ("write", {"path": "package-lock.json", "content": "two\n"})
    work = [("write", {"path": "hello.txt", "content": "no\n"}), ("tick", {"item": "1.1", "evidence": "x"})]
    locked.write(".gitignore", "node_modules/\n*.log\n")
    locked.commit("logs")
    leaves = ("bash", {"command": "echo x > made.log"})
    mended = ("write", {"path": "package-lock.json", "content": "one\nmore\n"})
    runner = ScriptedRunner(
        sessions=[[[bad, *work, leaves], [mended], [("write", {"path": "hello.txt", "content": "hello\n"})]]]
    )
    checks = f"grep one package-lock.json || {{ echo wrong; exit 5; }}; {INSTALL}"
    ended = locked.play(runner, phase="1", sandbox="auto", setup=(checks,))

    assert ended.exit_code is ExitCode.DONE, ended.reason
    assert ["failed with exit 5\nwrong" in words for words in runner.told] == [False, True, False]
    told = [words for words in runner.told if "Not shown to the gate" in words]
    assert [("made.log" in words, "node_modules" in words) for words in told] == [(True, False)]
    assert locked.git("show", "HEAD:package-lock.json") == "one\nmore\n"


@pytest.mark.nightly
@pytest.mark.parametrize("command", take_each(2, ["echo two > package-lock.json", "echo x > new.txt", "rm .gitignore"]))
def test_a_setup_that_changes_what_git_knows_is_not_taken_for_work(locked, command):
    with pytest.raises(RepoError) as refusal:
        play(locked, setup=(command,))
    assert "would take for work of a phase" in str(refusal.value)


def test_what_a_setup_changed_is_put_aside_before_the_phase_begins(stage):
    """As all that relay finds in its tree and no open phase has: no session sees it, and it is kept."""
    setup = {"relay.toml": 'setup = ["rm kept.txt; echo x > new.txt"]\n', "kept.txt": "kept\n"}
    bench = Bench(stage, "# P\nVerify: `test -e 1.txt`\n\n## Phase 1 — P\n- [ ] Write one — 1.txt\n", **setup)
    write = "cat kept.txt own.local > 1.txt; ls new.txt >> 1.txt; true"
    sessions, words = [write_session(1, write)], ("run", "--approve-setup")
    assert "kept.txt, new.txt" in bench.play(sessions, *words, ends=ExitCode.USER)
    stage.write("relay.toml", 'setup = ["true"]\n')
    stage.commit("mend")
    stage.write(".gitignore", "*.local\n")  # in no commit: git does not ignore it in relay's tree
    stage.write("own.local", "own\n")
    (ref,) = re.findall(r"kept.txt, new.txt in .* put aside; .*: git show (\S+):<file>", bench.play(sessions, *words))
    assert stage.git("show", "--name-only", "--format=", "HEAD").split() == ["1.txt", "PLAN.md"]
    assert stage.git("show", "HEAD:1.txt") == "kept\nown\n"
    assert stage.git("show", f"{ref}:new.txt") == "x\n"
    assert "kept.txt" not in stage.git("ls-tree", "--name-only", ref)


def test_a_setup_is_confined_as_a_session_is(locked, tmp_path):
    """It writes nothing outside, not the plan and not `.git`, and reaches no service of this machine."""
    (tmp_path / "kept").write_text("kept\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = (
            f"echo x > {tmp_path}/kept; echo x > .git/config; echo x >> PLAN.md; "
            f"(echo > /dev/tcp/127.0.0.1/{server.getsockname()[1]}) && echo REACHED; "
            "curl -sS --max-time 5 https://127.0.0.1/ https://10.0.0.1/; true"
        )
        assert play(locked, phase="1", setup=(script,)).exit_code is ExitCode.DONE
    assert [one for one in locked.seen(SetupFinished) if "REACHED" in one.output] == []
    assert (tmp_path / "kept").read_text() == "kept\n"
    assert "[core]" in (locked.root / ".git/config").read_text()


def test_lock_files_are_known(subtests):
    for name in LOCK_FILES:
        with subtests.test(name=name):
            assert is_lock_file(name)
            assert is_lock_file(f"packages/app/{name}")
            assert not is_lock_file(f"{name}.bak")


def test_approval_is_for_a_text_in_a_repository(tmp_path):
    environ = {"HOME": str(tmp_path)}
    root, other = tmp_path / "one", tmp_path / "two"
    wanted = Settings(
        setup=("npm ci", "make deps"), of_repository=frozenset({"setup"}), origins={"setup": "relay.toml:1"}
    )

    with pytest.raises(ConfigError, match=r"relay.toml:1: .* npm ci; make deps"):
        require_approval(root, wanted, environ)
    save_approval(root, ["npm ci"], environ)
    assert find_unapproved(root, wanted, environ) == ("make deps",)
    save_approval(root, ["make deps"], environ)
    require_approval(root, wanted, environ)
    assert find_unapproved(other, wanted, environ) == wanted.setup
    changed = Settings(setup=("npm ci && curl evil",), of_repository=frozenset({"setup"}))
    assert find_unapproved(root, changed, environ) == changed.setup
    assert find_unapproved(root, Settings(setup=("anything",)), {}) == ()


@pytest.mark.parametrize("garbage", ["", "[]", '{"/r": 3}', '{"/r": {"npm ci": 1}}', "{", "\xff"])
def test_an_approval_that_makes_no_sense_approves_nothing(tmp_path, garbage):
    folder = tmp_path / ".config/relay"
    folder.mkdir(parents=True)
    (folder / "approved-setup.json").write_bytes(garbage.encode("latin-1"))
    wanted = Settings(setup=("x",), of_repository=frozenset({"setup"}), origins={"setup": "relay.toml:1"})
    assert find_unapproved(tmp_path, wanted, {"HOME": str(tmp_path)}) == ("x",)
    save_approval(tmp_path, ["x"], {"HOME": str(tmp_path)})
    assert find_unapproved(tmp_path, wanted, {"HOME": str(tmp_path)}) == ()
    assert json.loads((folder / "approved-setup.json").read_text())[str(tmp_path)] == ["x"]


def test_an_approval_that_cannot_be_kept(tmp_path):
    with pytest.raises(ConfigError, match="HOME is not set"):
        save_approval(tmp_path, ["x"], {})


@pytest.mark.nightly
def test_a_repository_that_wants_a_setup_is_asked_about(locked):
    """Refused unattended, with nothing run; approved by one word, and then kept."""
    locked.write("relay.toml", f"setup = [{json.dumps(INSTALL)}]\n")
    locked.commit("settings")
    refused = locked.relay("run")
    assert refused.returncode == 1
    assert (
        f"relay.toml:1: this repository wants to run with network before its first session: {INSTALL}" in refused.stderr
    )
    assert "relay run --approve-setup" in refused.stderr
    assert not (locked.root / "node_modules").exists()
    assert "ANTHROPIC_API_KEY" in locked.relay("run", "--approve-setup").stderr
    assert "ANTHROPIC_API_KEY" in locked.relay("run").stderr

"""A sandbox is proven before it is used, and refused when nothing holds."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from relay.base.errors import SandboxError
from relay.base.tree import is_temporary
from relay.sandbox.bwrap import find_bwrap
from relay.sandbox.child import start_child
from relay.sandbox.places import scan_repository
from relay.sandbox.policy import Level, Limits, Mechanism
from relay.sandbox.process import ATTEMPTS, Launch
from relay.sandbox.run import holds, open_sandbox, probe, require_container

ROOT = Path(__file__).parents[2]
LIMITS = Limits(timeout_s=20)


def test_probe_names_each_act_and_leaves_nothing(place: Any) -> None:
    """Every act says what was tried, what was expected and what happened; the repository is as before."""
    if find_bwrap() is None:
        pytest.skip("bwrap is not installed")
    before = place.git("status", "--porcelain", "--ignored")
    acts = probe(place.policy)
    assert {act.level for act in acts} == {Level.WORKSPACE_WRITE, Level.READ_ONLY}
    assert len(acts) == 24
    assert probe(place.policy) == acts
    assert not holds(())
    assert all(act.holds and act.act and act.happened.startswith(act.expected) for act in acts)
    assert place.git("status", "--porcelain", "--ignored") == before
    assert not [path for path in place.root.parent.rglob("*") if is_temporary(path.name)]


def test_off_needs_the_user(place: Any) -> None:
    """Only the flag opens an unprotected sandbox, and it stays visible."""
    with open_sandbox(place.policy, Level.READ_ONLY, mechanism=Mechanism.OFF) as opened:
        assert opened.mechanism is Mechanism.OFF
        assert opened.gaps
    with place.open(Level.READ_ONLY) as box:
        assert box.sandbox.mechanism is Mechanism.BWRAP


def test_a_container_is_the_wall_where_the_user_says_so(place: Any) -> None:
    """The user typed it, and the machine has to say that it is one; it stays visible, and holds no level."""
    inside = replace(place.policy, env={**place.policy.env, "container": "podman"})
    with open_sandbox(inside, Level.READ_ONLY, mechanism=Mechanism.CONTAINER) as opened:
        assert opened.mechanism is Mechanism.CONTAINER
        assert not opened.mechanism.confines
        assert opened.gaps[0].startswith("this container alone protects")
        assert b"sk-secret" not in opened.run(("/bin/sh", "-c", "env"), limits=LIMITS).output


def test_a_container_leaves_a_mark(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="nothing says that this machine is a container"):
        require_container({}, top=tmp_path)
    require_container({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, top=tmp_path)
    for mark in (".dockerenv", "run/.containerenv", "run/systemd/container"):
        (tmp_path / mark).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / mark).touch()
        require_container({}, top=tmp_path)
        (tmp_path / mark).unlink()


def test_off_still_scrubs_the_environment(bare: Any) -> None:
    """Without protection the key still does not reach a command."""
    output = bare.sh("env").output
    assert b"sk-secret" not in output
    assert b"GIT_DIR" not in output
    assert b"PYTHONDONTWRITEBYTECODE=1" in output


def test_bwrap_is_taken_from_the_system_only() -> None:
    """A program of that name in the current directory or on PATH is never used."""
    assert find_bwrap(()) is None
    assert find_bwrap(("/nowhere/bwrap", "/bin/sh")) == Path("/bin/sh")


def test_git_link_is_refused(place: Any) -> None:
    """A `.git` that is a symbolic link cannot be protected, so nothing runs."""
    (place.root / ".git").rename(place.outside / "git")
    (place.root / ".git").symlink_to(place.outside / "git")
    with place.open(Level.WORKSPACE_WRITE) as box, pytest.raises(SandboxError, match="symbolic link"):
        box.sh("true")


def test_scan_finds_what_needs_protection(place: Any) -> None:
    """Nested git directories, rules files and secrets are found; links lead to their text; templates stay readable."""
    (place.root / "CLAUDE.md").symlink_to("docs/AGENTS.md")
    (place.root / "sub").mkdir()
    (place.root / "sub" / "GEMINI.md").symlink_to("/etc/passwd")
    (place.root / "node_modules" / "x").mkdir(parents=True)
    (place.root / "node_modules" / "x" / "AGENTS.md").write_text("not ours")
    found = scan_repository(place.root)
    names = {str(path.relative_to(place.root)) for path in found.protected}
    assert names == {".git", "AGENTS.md", "docs/AGENTS.md", "vendor/lib/.git"}
    assert found.secrets == (place.root / ".env",)


def test_repository_with_too_much_to_protect_is_refused(place: Any) -> None:
    """A repository cannot exhaust the sandbox with rules files."""
    for number in range(399):
        (place.root / f"d{number}").mkdir()
        (place.root / f"d{number}" / "AGENTS.md").touch()
    with pytest.raises(SandboxError, match="403 nested git directories"):
        scan_repository(place.root)


def test_a_work_tree_that_is_removed_meanwhile_does_not_fail_the_next_command(place: Any) -> None:
    """It was kept apart when the sandbox was opened, where nothing is hidden otherwise."""
    arenas = os.environ.get("TESTS_ARENAS", "/opt")
    if not os.access(arenas, os.W_OK):
        pytest.skip("no directory is ours that a sandbox would show")
    with tempfile.TemporaryDirectory(dir=arenas) as top:
        other = Path(os.path.realpath(top), "other")
        other.mkdir()
        (other / "file").write_text("private")
        look = f"ls {top} && ls {other} && ! cat {other}/file"
        with place.open(Level.WORKSPACE_WRITE, apart=(other,)) as box:
            assert box.sh(look).output.startswith(b"other\ncat")
            shutil.rmtree(other)
            assert (box.sh(f"ls {top}").exit_code, box.sh(f"ls {top}").output) == (0, b"")


@dataclass(slots=True)
class Late:
    """A sandbox whose first launches name a path that has vanished by the time they start. Mutable: it counts."""

    inner: Any
    left: int

    def build_launch(self, command: tuple[str, ...], **more: Any) -> Launch:
        launch: Launch = self.inner.build_launch(command, **more)
        if self.left == 0:
            return launch
        self.left -= 1
        return replace(launch, argv=(launch.argv[0], "--ro-bind", "/nowhere", "/nowhere", *launch.argv[1:]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("vanished", [1, 3])
def test_path_that_vanishes_before_the_start_has_it_laid_out_anew(place: Any, writer: Any, vanished: int) -> None:
    """A command and a program that lives on start at the next try; what stays wrong is told."""
    spool: Path = place.outside / "spool"

    def run() -> bytes:
        output: bytes = late().run(("/bin/echo", "here"), limits=LIMITS).output
        return output

    def run_in_the_background() -> bytes:
        limits = replace(LIMITS, keep_bytes=0)
        late().run(("/bin/true",), limits=limits, spool=spool)
        return b"here\n" + spool.read_bytes()

    def speak() -> bytes:
        errors = place.outside / "errors"
        child = start_child(late(), ("/bin/cat",), limits=LIMITS, cwd=place.root, extra_env={}, errors=errors)
        with contextlib.closing(child.output), contextlib.ExitStack() as stack:
            stack.callback(child.end)
            child.send(b"here\n")
            return child.output.read(5)

    def late() -> Any:
        return replace(writer.sandbox, bwrap=Late(writer.sandbox.bwrap, vanished))

    for start in (run, run_in_the_background, speak):
        with pytest.raises(SandboxError, match="nowhere") if vanished == ATTEMPTS else contextlib.nullcontext():
            assert start() == b"here\n"


def test_prepared_process_is_closed_to_its_user(tmp_path: Path) -> None:
    """After `prepare_process` the environment of relay cannot be read by another process of the user."""
    script = """
import os, sys, subprocess
from relay.sandbox.process import prepare_process
if sys.argv[1] == "yes": prepare_process()
me = str(os.getpid())
sys.exit(subprocess.run(["cat", "/proc/" + me + "/environ"], capture_output=True).returncode != 0)
"""
    if os.geteuid() == 0:
        script = "import os; os.setgroups([]); os.setresgid(65534, 65534, 65534)\n" + script.replace(
            "me = str", "os.setresuid(65534, 65534, 65534)\nme = str"
        )
        # A change of user closes a process by itself: only the prepared case says something here.
        cases = [("yes", 1)]
    else:
        cases = [("yes", 1), ("no", 0)]
    for prepared, wanted in cases:
        argv = (sys.executable, "-c", script, prepared)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        assert subprocess.run(argv, env=env, cwd=tmp_path, check=False).returncode == wanted

"""A run that dies at a tool, and the one that goes on."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from relay.base.errors import ExitCode
from tests.scripts import HELLO

HALF = """
sessions:
  - name: half
    turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hel"}}]
      - tools: [{name: write, input: {path: notes/a.txt, content: "a\\n"}}]
      - text: never reached
"""
REST = """
sessions:
  - name: rest
    turns:
      - expect: {first_message_contains: "hello.txt"}
        tools: [{name: edit, input: {path: hello.txt, old: "hel", new: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello"
"""

LUNCH = "sessions: [{turns: [{tools: [{name: block, input: {reason: lunch}}]}]}]"


class Killed(BaseException):
    """Stands for the end of the process: nothing in relay may catch it."""


def die_with(path: Path) -> None:
    """Die once a file is there."""
    if path.exists():
        raise Killed


@pytest.fixture
def cut_off(stage) -> Callable[[], None]:
    """Run phase 1 and die after its second tool."""

    def run() -> None:
        stage.on_tool = lambda: die_with(stage.root / "notes/a.txt")
        with pytest.raises(Killed):
            stage.run(HALF, all_=False)

    def cut() -> None:
        stage.arrange("cut off", run)
        stage.calm()

    return cut


@pytest.fixture
def ask(stage) -> Callable[[], Mapping[str, Any]]:
    """Ask `relay status` in the stage's repository what a run would do."""

    def status() -> Mapping[str, Any]:
        done = stage.relay("status", "--json", path="/usr/bin:/bin")
        assert done.returncode == 0, done.stderr
        answer: Mapping[str, Any] = json.loads(done.stdout)["next"]
        return answer

    return status


@pytest.fixture
def finish(stage) -> Callable[..., None]:
    """Run phase 1 to its end; work of both sessions is in one commit, and nothing stays open."""

    def run(script: str = REST, files: tuple[str, ...] = ("PLAN.md", "hello.txt", "notes/a.txt")) -> None:
        ended = stage.run(script, all_=False)
        assert ended.exit_code == ExitCode.DONE, ended
        assert stage.server is not None
        assert stage.server.errors == []
        assert tuple(stage.git("show", "--name-only", "--format=", "HEAD").split()) == files
        assert stage.git("show", "HEAD:hello.txt") == "hello\n"
        assert [commit.phase for commit in stage.commits() if commit.status == "done"] == ["1"]
        assert stage.git("for-each-ref", "refs/relay/leg") == ""
        stage.git("fsck", "--strict", "--no-dangling", "--no-progress")

    return run


@pytest.fixture
def clone(stage) -> Callable[..., None]:
    """Go on in a fresh clone, with relay's refs or without."""

    def make(*, refs: bool) -> None:
        root = stage.root.parent / "clone"
        stage.git("clone", "-q", str(stage.root), str(root))
        shutil.move(stage.root, stage.root.parent / "gone")
        stage.root = root
        if refs:
            stage.git("fetch", "-q", str(root.parent / "gone"), "refs/relay/*:refs/relay/*")

    return make


@pytest.fixture
def landed(stage):
    """Phase 1 as it is in the instant after the branch has moved: attempt's ref, index and plan's file are behind."""
    kept = {}

    def keep():
        kept["attempt"] = stage.git("for-each-ref", "--format=%(objectname)", "refs/relay/leg").strip()
        kept["index"] = (stage.root / ".git/index").read_bytes()
        kept["plan"] = (stage.root / "PLAN.md").read_text()

    def land():
        stage.on_tool = keep
        ended = stage.run(HELLO, all_=False)
        assert ended.exit_code == ExitCode.DONE
        stage.git("update-ref", "refs/relay/leg/main", kept["attempt"])
        (stage.root / ".git/index").write_bytes(kept["index"])
        stage.write("PLAN.md", kept["plan"])
        return ended

    ended = stage.arrange("landed", land)
    stage.calm()
    return ended

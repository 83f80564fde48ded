"""What a one-phase run does to a repository, whatever the repository is like."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.base.errors import ExitCode
from tests.copied import FSCK
from tests.scripts import HELLO


@pytest.fixture
def finish(stage) -> Callable[..., list[str]]:
    """Run phase 1 to its commit and return the paths in it; objects are sound and nothing stays open."""

    def run(script: str = HELLO, **options: Any) -> list[str]:
        ended = stage.run(script, all_=False, **options)
        assert ended.exit_code == ExitCode.DONE, ended
        assert stage.server is not None
        assert stage.server.errors == []
        assert [commit.phase for commit in stage.commits()][:1] == ["1"]
        assert stage.git("for-each-ref", "refs/relay/leg") == ""
        stage.git(*FSCK)
        shown = subprocess.run(
            ["git", "show", "-z", "--name-only", "--format=", "HEAD"], cwd=stage.root, check=True, capture_output=True
        ).stdout
        return [os.fsdecode(path) for path in shown.split(b"\0") if path]

    return run


@pytest.fixture
def make_repo(tmp_path: Path) -> Callable[..., Path]:
    """Make a small repository beside the stage's."""

    def make(name: str, *args: str) -> Path:
        root = tmp_path / name
        root.mkdir()
        git = ["git", "-C", str(root)]
        subprocess.run([*git, "init", "-q", *args], check=True)
        (root / "inner.txt").write_text("inner\n")
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "inner"], check=True)
        return root

    return make

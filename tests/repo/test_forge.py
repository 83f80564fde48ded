"""A forge's program that does not end, or whose children hold its output."""

import os
from pathlib import Path

import pytest

from relay.git.forge import Forge, ForgeError
from relay.git.repository import open_repo
from tests.waiting import wait_until


def make_forge(stage, place: Path, script: str) -> Forge:
    program = place / "gh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Forge(repo=open_repo(stage.root), name="gh", path=str(program), environ=os.environ, limit_s=0.5)


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.timeout(60)
def test_at_the_limit_it_is_killed_with_what_it_has_started(stage, tmp_path):
    pid = tmp_path / "pid"
    forge = make_forge(stage, tmp_path, f"sleep 600 &\necho $! >{pid}\nwait")
    with pytest.raises(ForgeError, match=r"gh did not end in 0\.5 s and was killed"):
        forge.put_comment("7", "text", mark="mark")
    wait_until(lambda: is_gone(int(pid.read_text())))


@pytest.mark.parametrize("output", ["", ">/dev/null 2>&1"])
def test_nobody_waits_for_what_it_leaves_behind(stage, tmp_path, output):
    """As a credential helper's daemon, which may hold the output open."""
    pid = tmp_path / "pid"
    forge = make_forge(stage, tmp_path, f"sleep 600 {output} &\necho $! >{pid}")
    assert forge.put_comment("7", "text", mark="mark") == "commented on 7"
    left = int(pid.read_text())
    assert not is_gone(left)
    os.kill(left, 9)

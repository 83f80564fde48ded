"""Repositories that are not like the one in the tutorial: each ends in a commit, or in words that name the way out."""

import os
import shutil
import subprocess

import pytest

from relay.base.errors import RepoError
from relay.git.command import GitError
from tests.scripts import run_commands


def test_a_detached_head_is_refused_with_the_way_out(stage, finish):
    """Relay commits on a branch; the hint makes one."""
    stage.git("checkout", "-q", "--detach")

    with pytest.raises(RepoError, match="detached") as caught:
        finish()

    assert caught.value.hint == "git switch -c NAME, or relay run --branch"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a small file system")
def test_a_full_disk_stops_the_run_and_loses_nothing(stage, finish, tmp_path):
    """The run says that the disk is full; with room again it goes on to the same end."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], check=True)
    try:
        shutil.copytree(stage.root, small / "repo", symlinks=True)
        stage.root = small / "repo"
        try:
            words = stage.run(run_commands("head -c 40000000 /dev/zero > big.bin; true"), all_=False).reason
        except (RepoError, GitError, OSError) as error:
            words = str(error)
        assert "No space left" in words or "full" in words or "write" in words, words
        (stage.root / "big.bin").unlink(missing_ok=True)
        stage.calm()
        finish()
        assert stage.git("status", "--porcelain") == ""
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)

"""Files are replaced whole or not at all, and never through a link."""

import os
import stat

import pytest

from relay.base.errors import RepoError
from relay.base.tree import find_stat, fsync_paths, open_file, read_file, remove_file, replace_file, replace_with_file
from relay.base.walk import open_parent


def test_permission_bits_are_kept_but_for_the_executable_ones(tmp_path):
    for before, mode, after in ((0o640, "100755", 0o750), (0o755, "100644", 0o644), (0o600, "100644", 0o600)):
        (tmp_path / "f").write_bytes(b"old")
        (tmp_path / "f").chmod(before)
        replace_file(tmp_path, "f", b"new", mode)
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == after, (oct(before), mode)


def test_a_hard_link_elsewhere_keeps_the_old_content(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    os.link(tmp_path / "f", tmp_path / "other")
    replace_file(tmp_path, "f", b"new", "100644")
    assert (tmp_path / "other").read_bytes() == b"old"


def test_a_link_in_a_file_s_place_is_replaced_not_followed(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "f").symlink_to("victim")
    replace_file(tmp_path, "f", b"new", "100644")
    assert ((tmp_path / "victim").read_bytes(), (tmp_path / "f").read_bytes()) == (b"precious", b"new")


def test_a_link_in_a_directory_s_place_stops_everything(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/f").write_bytes(b"precious")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/d").symlink_to("../out")
    root = tmp_path / "root"
    with pytest.raises(OSError, match="d"):
        replace_file(root, "d/f", b"new", "100644")
    remove_file(root, "d/f")
    fsync_paths(root, ("d/f",))
    assert (read_file(root, "d/f"), find_stat(root, "d/f")) == (None, None)
    assert read_file(root / "d", "f") is None  # nor is a root that is a link entered
    assert (tmp_path / "out/f").read_bytes() == b"precious"


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "p")
    assert read_file(tmp_path, "p") is None
    fsync_paths(tmp_path, ("p",))


def test_removal_takes_empty_directories_along_and_no_others(tmp_path):
    replace_file(tmp_path, "a/b/c", b"", "100644")
    replace_file(tmp_path, "a/keep", b"", "100644")
    remove_file(tmp_path, "a/b/c")
    remove_file(tmp_path, "a/b/c")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "keep"]


def test_a_path_that_is_not_below_the_root_is_nothing(tmp_path):
    (tmp_path / "out").write_bytes(b"precious")
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "d").mkdir()
    for path in ("../out", "a/../../out", "/etc/hostname", "..", "/", "d/.."):
        assert (read_file(root, path), find_stat(root, path), open_file(root, path)) == (None, None, None), path
        with pytest.raises(OSError, match=r"root|directory in this one"):
            replace_file(root, path, b"new", "100644")
    assert (tmp_path / "out").read_bytes() == b"precious"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner_and_a_new_one_gets_its_directory_s_group(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    os.chown(tmp_path / "f", 1234, 1235)
    (tmp_path / "d").mkdir()
    os.chown(tmp_path / "d", 0, 1236)
    (tmp_path / "d").chmod(0o2755)
    replace_file(tmp_path, "f", b"new", "100644")
    replace_file(tmp_path, "d/f", b"new", "100644")
    assert ((tmp_path / "f").stat().st_uid, (tmp_path / "f").stat().st_gid) == (1234, 1235)
    assert (tmp_path / "d/f").stat().st_gid == 1236


def test_a_replacement_that_is_stopped_leaves_nothing(tmp_path):
    (tmp_path / "f").write_bytes(b"old")

    def stop():
        raise KeyboardInterrupt

    with open_parent(tmp_path, "f") as (parent, name), pytest.raises(KeyboardInterrupt):
        replace_with_file(parent, name, b"new", check=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_nothing_is_written_into_a_git_directory(box):
    """A snapshot of relay's may come from somebody else's repository, with any path in it."""
    for path in (".git/hooks/pre-commit", "sub/.git/config", ".GIT/x"):
        with pytest.raises(RepoError, match="in a git directory"):
            replace_file(box.root, path, b"#!/bin/sh\n", "100755")
        with pytest.raises(RepoError, match="in a git directory"):
            remove_file(box.root, path)
        assert not (box.root / path).exists(), path

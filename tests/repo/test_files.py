"""Files are replaced whole or not at all, and never through a link."""

import os
import stat

import pytest

from relay.errors import RepoError
from relay.files.safe import find_stat, fsync_paths, read_file, remove_file, replace_file


def test_a_new_file_gets_its_directories(tmp_path):
    replace_file(tmp_path, "a/b/c", b"x", "100644")
    assert (tmp_path / "a/b/c").read_bytes() == b"x"
    assert [p.name for p in (tmp_path / "a/b").iterdir()] == ["c"]


@pytest.mark.parametrize(
    ("before", "mode", "after"), [(0o640, "100755", 0o750), (0o755, "100644", 0o644), (0o600, "100644", 0o600)]
)
def test_permission_bits_are_kept_but_for_the_executable_ones(tmp_path, before, mode, after):
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(before)
    replace_file(tmp_path, "f", b"new", mode)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == after


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


def test_syncing_passes_over_what_is_gone(tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    fsync_paths(tmp_path, ("f", "gone", "no/such/dir", "f/below"))


def test_an_unreadable_file_is_an_error_in_words(tmp_path):
    if os.getuid() == 0:
        pytest.skip("root reads everything")
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "f").chmod(0)
    with pytest.raises(RepoError, match="cannot be read"):
        read_file(tmp_path, "f")

"""Snapshots hold the work tree exactly and touch nothing of the user's."""

import os
import subprocess

import pytest

from relay.git.objects import diff_trees, find_blob_id, store_files
from relay.git.status import ChangeKind
from relay.store import snapshot
from relay.store.checkpoints import plan_restoration, run_restoration
from relay.store.snapshot import TreeSnapshot, find_crowded, write_snapshot_tree


def snap(repo, **kwargs):
    return write_snapshot_tree(repo, **kwargs)


def test_everything_that_differs_is_held(box):
    box.write("src/app.py", b"dirty\r\n\xff")
    box.write("untracked/deep/file", "new")
    box.write("staged.txt", "staged")
    box.git("add", "staged.txt")
    box.write("staged.txt", "staged, then edited")
    (box.root / "src/old.py").unlink()
    (box.root / "link").symlink_to("../outside\n")
    box.write("tool", "#!").chmod(0o755)
    box.write("debug.log", "ignored")
    found = snap(box.open("src"))
    expected = box.files()
    del expected["debug.log"]
    assert box.tree(found.tree) == expected
    assert (box.modes(found.tree)["link"], box.modes(found.tree)["tool"]) == ("120000", "100755")
    assert found.skipped == ()


def test_a_name_that_is_spelt_anew_is_held_where_the_repository_comes_from_another_file_system(box):
    box.git("config", "core.ignorecase", "true")
    (box.root / "src/app.py").rename(box.root / "src/App.py")
    assert box.tree(snap(box.open()).tree) == box.files()


def test_user_s_index_stash_and_files_are_left_alone(box):
    box.write("src/app.py", "staged\n")
    box.git("add", "src/app.py")
    box.git("stash", "-q")
    box.write("src/app.py", "staged again\n")
    box.git("add", "src/app.py")
    box.write("src/app.py", "and edited\n")
    watched = (box.root / ".git/index").read_bytes(), box.text("for-each-ref"), box.files(), box.text("stash", "list")
    snap(box.open())
    now = (box.root / ".git/index").read_bytes(), box.text("for-each-ref"), box.files(), box.text("stash", "list")
    assert now == watched


def test_a_change_in_the_same_instant_as_the_last_add_is_seen(box):
    """A copy of the index that is newer than the files would hide it: same size, same time."""
    box.git("config", "core.checkStat", "minimal")
    box.git("config", "core.trustCtime", "false")
    then = 1_600_000_000_000_000_000
    file, index = box.root / "src/app.py", box.root / ".git/index"
    os.utime(file, ns=(then, then))
    box.git("update-index", "--refresh")
    os.utime(index, ns=(then, then))
    file.write_bytes(b"PRINT(1)\n")
    os.utime(file, ns=(then, then))
    assert box.tree(snap(box.open()).tree)["src/app.py"] == b"PRINT(1)\n"


def test_raw_bytes_are_kept_under_autocrlf(box):
    box.git("config", "core.autocrlf", "true")
    box.write("src/app.py", "one\ntwo\r\nthree\n")
    assert box.tree(snap(box.open()).tree)["src/app.py"] == b"one\ntwo\r\nthree\n"


def test_large_and_odd_files_are_left_out_and_named(box):
    """A pipe is not even listed by git as untracked; one in a tracked file's place does not hang."""
    with box.write("huge.bin", "").open("wb") as file:
        file.truncate(snapshot.MAX_UNTRACKED_BYTES + 1)
    (box.root / "run.sh").unlink()
    for name in ("pipe", "run.sh"):
        os.mkfifo(box.root / name)
    (box.root / "nested").mkdir()
    box.git("init", "-q", cwd=box.root / "nested")
    box.write("nested/file")
    found = snap(box.open())
    named = {s.path: s.reason for s in found.skipped if s.path != "run.sh"}
    assert named == {"huge.bin": "10.0 MB, too large", "nested": "a repository of its own"}
    assert set(box.tree(found.tree)) - {"run.sh"} == {"PLAN.md", "src/app.py", "src/old.py", ".gitignore"}


def test_nothing_outside_is_read_through_a_planted_link(box, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/app.py").write_text("secret")
    (box.root / "src/app.py").unlink()
    (box.root / "src/old.py").unlink()
    (box.root / "src").rmdir()
    (box.root / "src").symlink_to(tmp_path / "outside")
    tree = box.tree(snap(box.open()).tree)
    assert tree["src"] == os.fsencode(tmp_path / "outside")
    assert "src/app.py" not in tree


def test_a_directory_with_too_many_files_is_left_out():
    paths = [f"modules/p{n}/{m}" for n in range(30) for m in range(4)] + ["modules/x", "src/new.py", "top"]
    assert find_crowded(paths, limit=100) == {"modules": 121}
    deep = [f"data/a/{n}" for n in range(101)] + [f"data/b/{n}" for n in range(99)]
    assert find_crowded(deep, limit=100) == {"data/a": 101}
    assert find_crowded([str(n) for n in range(101)], limit=100) == {".": 101}
    assert find_crowded([f"d{n}/f" for n in range(200)], limit=100) == {}


def test_differences_name_what_happened(box):
    repo = box.open()
    before = snap(repo)
    box.write("src/app.py", "edited\n")
    box.write("é\n", "new")
    (box.root / "src/old.py").unlink()
    (box.root / "run.sh").unlink()
    (box.root / "run.sh").symlink_to("PLAN.md")
    changes = {c.path: (c.kind, c.old_mode, c.mode) for c in diff_trees(repo, before.tree, snap(repo).tree)}
    assert changes == {
        "run.sh": (ChangeKind.TYPE_CHANGED, "100755", "120000"),
        "src/app.py": (ChangeKind.MODIFIED, "100644", "100644"),
        "src/old.py": (ChangeKind.DELETED, "100644", "000000"),
        "é\n": (ChangeKind.ADDED, "000000", "100644"),
    }


@pytest.mark.parametrize("autocrlf", ["false", "true"])
def test_restoring_brings_back_every_byte(box, autocrlf):
    box.git("config", "core.autocrlf", autocrlf)
    box.git("rm", "-q", "--cached", "-r", ".")
    box.git("reset", "-q", "--hard")
    repo = box.open()
    box.write("user.txt", "mixed\r\nends\n")
    box.write("src/old.py", "old, edited\n")
    wanted, files = snap(repo), box.files()
    box.write("src/app.py", "")
    box.write("src/old.py", "")
    (box.root / "user.txt").unlink()
    (box.root / "run.sh").unlink()
    (box.root / "run.sh").symlink_to("/etc/passwd")
    box.write("new/deep/file", "x")
    found = snap(repo)
    restoration = plan_restoration(repo, found=found, wanted=wanted)
    run_restoration(repo, restoration, repo.head())
    restored = {change.path for change in restoration.changes}
    assert restored == {"src/app.py", "src/old.py", "user.txt", "run.sh", "new/deep/file"}
    assert box.files() == files
    assert snap(repo).tree == restoration.tree == wanted.tree
    assert not (box.root / "new").exists()
    assert (box.root / "run.sh").stat().st_mode & 0o111


def test_restoring_does_not_write_through_links(box, tmp_path):
    repo = box.open()
    box.write("src/app.py", "mine\n")
    wanted = snap(repo)
    (tmp_path / "outside").mkdir()
    for name in ("app.py", "old.py"):
        (box.root / "src" / name).unlink()
    (box.root / "src").rmdir()
    (box.root / "src").symlink_to(tmp_path / "outside")
    found = snap(repo)
    run_restoration(repo, plan_restoration(repo, found=found, wanted=wanted), repo.head())
    assert list((tmp_path / "outside").iterdir()) == []
    assert (box.root / "src/app.py").read_bytes() == b"mine\n"


@pytest.mark.parametrize("name", [".git", ".GIT", ".g\u200cit"])
def test_git_directories_of_a_snapshot_are_not_put_back(box, name):
    """A snapshot that was fetched may hold what git itself never stores."""
    repo = box.open()
    base = snap(repo)
    hook = box.git("hash-object", "-w", "--stdin", stdin=b"#!/bin/sh\n").decode().strip()
    tree = box.git("mktree", stdin=f"100755 blob {hook}\tpost-commit\n".encode()).decode().strip()
    evil = box.git("mktree", stdin=f"040000 tree {tree}\t{name}\n100644 blob {hook}\tfile\n".encode()).decode().strip()
    restoration = plan_restoration(repo, found=base, wanted=TreeSnapshot(tree=evil))
    assert [change.path for change in restoration.changes if change.kind != ChangeKind.DELETED] == ["file"]
    (box.root / f".git/objects/{evil[:2]}/{evil[2:]}").unlink()  # git-fsck(1) would complain


def test_nothing_is_restored_over_what_no_snapshot_holds(box):
    """An ignored file at the path, in a directory's place, or below a directory that has to be a file again."""
    repo = box.open()
    for path in ("local.txt", "out/a.txt", "place", "fine.txt"):
        box.write(path, "work\n")
    wanted = snap(repo)
    for path in ("out/a.txt", "place", "fine.txt"):
        (box.root / path).unlink()
    (box.root / "out").rmdir()
    box.write(".git/info/exclude", "/local.txt\n/out\n*.o\n")
    for path in ("local.txt", "out", "place/x.o"):
        box.write(path, "ignored\n")
    restoration = plan_restoration(repo, found=snap(repo), wanted=wanted)
    run_restoration(repo, restoration, repo.head())
    assert restoration.blocked == ("local.txt", "out/a.txt", "place")
    assert {(box.root / path).read_text() for path in ("local.txt", "out", "place/x.o")} == {"ignored\n"}
    assert (box.root / "fine.txt").read_text() == "work\n"
    assert snap(repo).tree == restoration.tree


def test_files_that_come_and_go_all_the_time_stop_no_snapshot(box):
    """A watcher beside a session makes and removes files as fast as it can."""
    box.write("src/app.py", "edited\n")
    loop = "i=0; while :; do i=$((i+1)); echo x > j$((i % 7)); rm -f j$(((i + 3) % 7)); done"
    watcher = subprocess.Popen(["bash", "-c", loop], cwd=box.root)
    try:
        trees = [box.tree(snap(box.open()).tree) for _ in range(8)]
    finally:
        watcher.kill()
        watcher.wait()
    assert {tree["src/app.py"] for tree in trees} == {b"edited\n"}
    assert set().union(*trees) - {f"j{number}" for number in range(7)} == set(trees[0]) - {f"j{n}" for n in range(7)}


def test_a_link_in_a_file_s_place_is_not_followed_into_the_repository(box, tmp_path):
    """What another program puts there between look and read would be the user's key, for all to see."""
    (tmp_path / "key").write_bytes(b"SECRET\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/key").write_bytes(b"SECRET TOO\n")
    box.write("plain", "plain\n")
    (box.root / "file").symlink_to(tmp_path / "key")
    (box.root / "folder").symlink_to(tmp_path / "home")
    os.mkfifo(box.root / "fifo")
    repo = box.open()

    stored = store_files(repo, ["plain", "file", "folder/key", "fifo", "gone"])

    assert stored == {"plain": find_blob_id(repo, b"plain\n")}
    assert box.git("cat-file", "blob", stored["plain"]) == b"plain\n"
    for secret in (b"SECRET\n", b"SECRET TOO\n"):
        assert box.git("cat-file", "-t", find_blob_id(repo, secret), check=False) == b""

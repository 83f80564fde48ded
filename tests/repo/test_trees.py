"""The objects that relay has git store are, byte for byte, those that git makes of the same files by itself."""

import os
import signal
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.git.command import GitError
from relay.git.message import Message
from relay.git.objects import (
    find_blob_id,
    read_entries,
    store_blobs,
    store_files,
    write_commit,
    write_paths_tree,
)
from relay.git.repository import open_repo
from relay.git.trees import ABSENT
from tests.effort import take_each, take_turns

NAMES = st.sampled_from(["a", "a.b", "a-", "a/b", "a/b/c", "a/c", "b", "b/a", "é/ü", "sp ace/x\n", "\udcff/z", "Z"])
MODES = st.sampled_from(["100644", "100755", "120000", "160000", ABSENT])
BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    root = tmp_path_factory.mktemp("trees")
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    subprocess.run(["git", "hash-object", "-w", "--stdin"], cwd=root, input=b"", check=True, capture_output=True)
    return open_repo(root)


def write_by_index(repo, entries, start):
    """Return the tree that git makes of an index file."""
    index = repo.make_relay_dir() / "index-of-a-test"
    index.unlink(missing_ok=True)
    env = {"GIT_INDEX_FILE": str(index)}
    repo.git.run("read-tree", start, env=env)
    lines = b"".join(os.fsencode(f"{mode} {blob}\t{path}") + b"\0" for path, mode, blob in entries)
    repo.git.run("update-index", "-z", "--index-info", stdin=lines, env=env)
    return repo.git.run("write-tree", env=env).decode().strip()


@given(st.lists(st.lists(st.tuples(NAMES, MODES), max_size=6), min_size=1, max_size=3))
def test_a_changed_tree_is_the_one_that_git_makes_of_an_index(repo, rounds):
    by_index = by_trees = repo.empty_tree
    for changes in rounds:
        entries = [(path, mode, repo.zero_id if mode == ABSENT else BLOB) for path, mode in changes]
        entries.sort(key=lambda entry: entry[1] != ABSENT)
        by_index = write_by_index(repo, entries, by_index)
        by_trees = write_paths_tree(repo, entries, start=by_trees)
        assert by_trees == by_index


def plant_tree(box, data):
    """Return the id of a tree that git itself would not write."""
    return box.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=data).decode().strip()


def test_the_modes_of_old_trees_are_read_as_git_reads_them(box):
    repo = box.open()
    blob = store_blobs(repo, [b"x"])[0]
    modes = (b"100644", b"100664", b"100700", b"0100644", b"120777")
    for mode, folder in take_turns(modes, (b"40000", b"040000")):
        inner = plant_tree(box, b"".join(b"%s %s\0" % (mode, name) + bytes.fromhex(blob) for name in (b"a", b"b")))
        tree = plant_tree(box, b"%s d\0" % folder + bytes.fromhex(inner) + b"%s e\0" % mode + bytes.fromhex(blob))
        added = [("d/new", "100644", blob)]
        assert write_paths_tree(repo, added, start=tree) == write_by_index(repo, added, tree), (mode, folder)
        listed = {path: (box.text("ls-tree", tree, path)[:6], blob) for path in ("d/a", "e")}
        assert read_entries(repo, tree, ("d", "d/a", "e")) == listed, (mode, folder)
    box.git("prune", "--expire=now")


def test_a_damaged_tree_is_no_start_for_another(box):
    repo = box.open()
    start = b"100644 a\0" + bytes.fromhex(store_blobs(repo, [b""])[0])
    for rest in (b"100644 short\0" + b"x" * 19, b"100644 no end", b"100648 x\0" + b"x" * 20, b"\n"):
        tree = plant_tree(box, start + rest)
        with pytest.raises(GitError, match="damaged"):
            write_paths_tree(repo, [("b", "100644", BLOB)], start=tree)
        with pytest.raises(GitError, match="damaged"):
            read_entries(repo, tree, ("b",))
    box.git("prune", "--expire=now")


@pytest.mark.parametrize("args", take_each(2, [("--object-format=sha256",), ()]))
def test_blobs_and_commits_are_what_git_makes(new_box, args):
    box = new_box(*args)
    repo = box.open()
    for data in (b"", b"x\n", b"\0" * 5000, os.urandom(2_000_000)):
        (box.root / "file").write_bytes(data)
        blob = box.git("hash-object", "--no-filters", "file").decode().strip()
        assert store_files(repo, ["file"]) == {"file": blob}
        assert box.git("cat-file", "blob", blob) == data
    for message in (Message(subject="ü", body="b", trailers=(("Key", "v"),)), b"gr\xfc\xdfe: \xc3\xa9\n"):
        commit = write_commit(repo, repo.empty_tree, (), message)
        date = box.text("show", "-s", "--format=%ad", "--date=raw", commit)
        who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
               for part, value in (("NAME", "relay"), ("EMAIL", "relay@localhost"), ("DATE", date))}  # fmt: skip
        text = message if isinstance(message, bytes) else box.git("cat-file", "commit", commit).partition(b"\n\n")[2]
        git = ("commit-tree", repo.empty_tree, "-F", "-")
        assert repo.git.run(*git, stdin=text, env=who).decode().strip() == commit
    assert box.text("fsck", "--strict", "--no-dangling") == ""


def _find_file(repo, content):
    blob = find_blob_id(repo, content)
    return repo.objects_dir / blob[:2] / blob[2:]


def test_a_damaged_object_is_written_anew(box):
    repo, content = box.open(), b"whole\n"
    (blob,) = store_blobs(repo, [content])
    file = _find_file(repo, content)
    whole = file.read_bytes()
    for damage in (b"", b"garbage", whole[:-3]):
        file.chmod(0o644)
        file.write_bytes(damage)
        assert store_blobs(repo, [content]) == (blob,)
        assert file.read_bytes() == whole


def test_a_tree_with_a_linked_gitignore_is_stored(box):
    """`git add` takes it, and git 2.40 calls it malformed where it is asked to store the tree as it is."""
    repo = box.open()
    (target,) = store_blobs(repo, [b"elsewhere"])
    tree = write_paths_tree(repo, [(".gitignore", "120000", target), ("a", "100644", target)], start=None)
    assert box.text("ls-tree", "--name-only", tree).split() == [".gitignore", "a"]


def test_an_object_that_cannot_be_stored_is_an_error_that_says_why(box):
    repo = box.open()
    away = repo.objects_dir.rename(repo.common_dir / "away")
    with pytest.raises(GitError, match="not a git repository"):
        store_blobs(repo, [b"x"])
    away.rename(repo.objects_dir)


@pytest.mark.parametrize("kill", [True, False])
def test_objects_are_stored_by_one_process_that_may_end(box, tmp_path, kill):
    log, shim = tmp_path / "calls", tmp_path / "git-that-counts"
    repo = box.open()
    shim.write_text(f'#!/bin/sh\necho $$ "$@" >>{log}\nexec {repo.git.program} "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    repo = replace(repo, git=replace(repo.git, program=str(shim)))
    for n in range(5):
        (blob,) = store_blobs(repo, [b"%d\n" % n])
        assert box.git("cat-file", "blob", blob) == b"%d\n" % n
        if kill and n == 1:
            os.kill(int(log.read_text().split()[0]), signal.SIGKILL)
    started = [line for line in log.read_text().splitlines() if "hash-object" in line]
    assert len(started) == (3 if kill else 1)  # the killed one, one alone that stores what it left, and the next


def test_a_path_that_git_refuses_is_not_put_into_a_tree(box):
    """One that looks like git's own is, where git takes it."""
    repo = box.open()
    (blob,) = store_blobs(repo, [b"x"])
    kept = write_paths_tree(repo, [("b", "100644", blob)])
    for path in ("a/.git/config", "a/.GIT/x", "../a", "a//b"):
        assert write_paths_tree(repo, [("b", "100644", blob), (path, "100644", blob)]) == kept, path
    assert list(repo.relay_dir.glob("*index*")) == []
    tree = write_paths_tree(repo, [(".gitmodules", "100644", blob)], start=repo.empty_tree)
    assert box.text("ls-tree", tree) == f"100644 blob {blob}\t.gitmodules"

"""Objects that relay stores itself are, byte for byte, those that git would store."""

import os
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.git.command import GitError
from relay.git.message import Message
from relay.git.object_database import write_loose
from relay.git.objects import (
    find_blob_id,
    read_entries,
    store_blobs,
    store_files,
    write_commit,
    write_paths_tree,
)
from relay.git.repository import open_repo
from relay.git.trees import ABSENT, is_plain_entry, write_changed_tree
from tests.effort import take_turns

NAMES = st.sampled_from(["a", "a.b", "a-", "a/b", "a/b/c", "a/c", "b", "b/a", "é/ü", "sp ace/x\n", "\udcff/z", "Z"])
MODES = st.sampled_from(["100644", "100755", "120000", "160000", ABSENT])
BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    root = tmp_path_factory.mktemp("trees")
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    subprocess.run(["git", "hash-object", "-w", "--stdin"], cwd=root, input=b"", check=True, capture_output=True)
    return open_repo(root)


@given(st.lists(st.lists(st.tuples(NAMES, MODES), max_size=6), min_size=1, max_size=3))
def test_a_changed_tree_is_the_one_that_git_makes_of_an_index(repo, rounds):
    by_index = by_trees = repo.empty_tree
    for changes in rounds:
        entries = [(path, mode, repo.zero_id if mode == ABSENT else BLOB) for path, mode in changes]
        entries.sort(key=lambda entry: entry[1] != ABSENT)
        by_index = write_paths_tree(repo, entries, start=by_index)
        by_trees = write_changed_tree(repo, by_trees, entries)
        assert by_trees == by_index


def test_a_packed_tree_is_read_too(box):
    box.write("deep/er/file", "1\n")
    box.commit()
    box.git("gc", "-q")
    repo, tree = box.open(), box.text("rev-parse", "HEAD^{tree}")
    blob = store_blobs(repo, [b"2\n"])[0]
    found = write_changed_tree(repo, tree, [("deep/er/other", "100644", blob)])
    assert found == write_paths_tree(repo, [("deep/er/other", "100644", blob)], start=tree)
    assert write_changed_tree(repo, found, [("deep/er/other", ABSENT, repo.zero_id)]) == tree


def test_a_commit_of_nothing_has_its_tree(new_box):
    box = new_box()
    repo = box.open()
    box.git("update-ref", "HEAD", write_commit(repo, write_changed_tree(repo, repo.empty_tree, ()), (), b"nothing\n"))
    box.fsck()


def plant_tree(box, data):
    """Return the id of a tree that git itself would not write."""
    return box.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=data).decode().strip()


@pytest.mark.parametrize(
    ("mode", "folder"),
    take_turns([b"100644", b"100664", b"100700", b"0100644", b"120777"], (b"40000", b"040000")),
)
def test_the_modes_of_old_trees_are_read_as_git_reads_them(box, folder, mode):
    repo = box.open()
    blob = store_blobs(repo, [b"x"])[0]
    inner = plant_tree(box, b"".join(b"%s %s\0" % (mode, name) + bytes.fromhex(blob) for name in (b"a", b"b")))
    tree = plant_tree(box, b"%s d\0" % folder + bytes.fromhex(inner) + b"%s e\0" % mode + bytes.fromhex(blob))
    added = [("d/new", "100644", blob)]
    assert write_changed_tree(repo, tree, added) == write_paths_tree(repo, added, start=tree)
    listed = {path: (box.text("ls-tree", tree, path)[:6], blob) for path in ("d/a", "e")}
    assert read_entries(repo, tree, ("d", "d/a", "e")) == listed
    box.git("prune", "--expire=now")


@pytest.mark.parametrize("rest", [b"100644 short\0" + b"x" * 19, b"100644 no end", b"100648 x\0" + b"x" * 20, b"\n"])
def test_a_damaged_tree_is_no_start_for_another(box, rest):
    repo = box.open()
    tree = plant_tree(box, b"100644 a\0" + bytes.fromhex(store_blobs(repo, [b""])[0]) + rest)
    with pytest.raises(GitError, match="damaged"):
        write_changed_tree(repo, tree, [("b", "100644", BLOB)])
    with pytest.raises(GitError, match="damaged"):
        read_entries(repo, tree, ("b",))
    box.git("prune", "--expire=now")


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "a/.GIT/x",
        ".gitmodules/x",
        ".gitmodules",
        "a//b",
        "../a",
        "/a",
        "./a",
        "a/.git",
        "d/" * 101 + "x",
    ],
)
def test_names_that_git_may_refuse_are_left_to_git(path):
    assert not is_plain_entry(path, "100644")


@pytest.mark.parametrize("path", ["a", ".gitignore", "d/.gitattributes", ".github/workflows/ci.yml", "a\nb", "\udcff"])
def test_ordinary_names_are_not(path):
    assert is_plain_entry(path, "100644")
    assert not is_plain_entry(".gitignore", "120000")


@pytest.mark.parametrize("args", [(), ("--object-format=sha256",)])
def test_blobs_and_commits_are_what_git_makes(new_box, args):
    box = new_box(*args)
    repo = box.open()
    for data in (b"", b"x\n", b"\0" * 5000, os.urandom(2_000_000)):
        (box.root / "file").write_bytes(data)
        blob = box.git("hash-object", "--no-filters", "file").decode().strip()
        assert store_files(repo, ["file"]) == {"file": blob}
        assert box.git("cat-file", "blob", blob) == data
    commit = write_commit(repo, repo.empty_tree, (), Message(subject="ü", body="b", trailers=(("Key", "v"),)))
    date = box.text("show", "-s", "--format=%ad", "--date=raw", commit)
    who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
           for part, value in (("NAME", "relay"), ("EMAIL", "relay@localhost"), ("DATE", date))}  # fmt: skip
    text = box.git("cat-file", "commit", commit).partition(b"\n\n")[2]
    git = ("commit-tree", repo.empty_tree, "-F", "-")
    assert repo.git.run(*git, stdin=text, env=who).decode().strip() == commit
    assert box.text("fsck", "--strict", "--no-dangling") == ""


def test_an_object_has_the_permissions_that_git_gives_and_leaves_nothing_beside_it(box):
    repo = box.open()
    own = store_blobs(repo, [b"by relay\n"])[0]
    theirs = box.git("hash-object", "-w", "--stdin", stdin=b"by git\n").decode().strip()
    places = [box.root / ".git/objects" / blob[:2] / blob[2:] for blob in (own, theirs)]
    assert places[0].stat().st_mode == places[1].stat().st_mode
    assert [file.name for file in places[0].parent.iterdir()] == [own[2:]]


def test_an_object_that_is_there_is_made_to_look_new(box):
    repo = box.open()
    blob = store_blobs(repo, [b"twice\n"])[0]
    file = box.root / ".git/objects" / blob[:2] / blob[2:]
    os.utime(file, (1, 1))
    assert store_blobs(repo, [b"twice\n"]) == (blob,)
    assert file.stat().st_mtime > 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has objects that another user may not touch")
def test_another_user_s_object_that_cannot_be_made_to_look_new_is_written_anew():
    with tempfile.TemporaryDirectory() as folder:
        objects = Path(folder)
        blob = write_loose(objects, "sha1", "blob", b"root's\n")
        file = objects / blob[:2] / blob[2:]
        os.utime(file, (1, 1))
        for place in (objects, file.parent):
            place.chmod(0o777)
        try:
            os.seteuid(65534)
            assert write_loose(objects, "sha1", "blob", b"root's\n") == blob
        finally:
            os.seteuid(0)
        assert (file.stat().st_uid, file.stat().st_mtime > 1) == (65534, True)
        assert list(file.parent.iterdir()) == [file]


def test_a_damaged_object_is_written_anew():
    with tempfile.TemporaryDirectory() as folder:
        objects = Path(folder)
        blob = write_loose(objects, "sha1", "blob", b"whole\n")
        file = objects / blob[:2] / blob[2:]
        file.chmod(0o644)
        for damage in (b"", b"garbage", file.read_bytes()[:-3]):
            file.write_bytes(damage)
            assert write_loose(objects, "sha1", "blob", b"whole\n") == blob
            assert zlib.decompress(file.read_bytes()) == b"blob 6\0whole\n"
            file.chmod(0o644)


def test_an_object_that_cannot_be_stored_is_an_error_that_says_why(tmp_path):
    shutil.rmtree(tmp_path)
    with pytest.raises(GitError, match="No such file or directory"):
        write_loose(tmp_path, "sha1", "blob", b"x")


def test_objects_that_wait_for_the_disk_together_are_there_when_the_block_ends(box):
    """More than fit into one wait, one of them twice; until then none has its name."""
    repo = box.open()
    contents = [b"again\n", b"again\n", *(b"%d\n" % n for n in range(100))]
    with repo.storing_together() as together, together.storing_together() as same:
        assert same is together
        (first,) = store_blobs(together, contents[:1])
        assert repo.read_object(first) is None
        blobs = (first, *store_blobs(together, contents[1:]))
        tree = write_changed_tree(together, repo.empty_tree, [("a", "100644", first)])
    assert [repo.read_object(blob) for blob in blobs] == [("blob", data) for data in contents]
    assert box.text("ls-tree", tree) == f"100644 blob {first}\ta"
    assert list(repo.objects_dir.glob("*/tmp_obj_*")) == []


def test_what_git_makes_of_waiting_objects_finds_them(box):
    """A name that only git may judge has git make the tree."""
    repo = box.open()
    with repo.storing_together() as together:
        blobs = store_blobs(together, [b"one\n", b"two\n"])
        tree = write_paths_tree(together, [(".gitmodules", "100644", blobs[0])], start=repo.empty_tree)
    assert box.text("ls-tree", tree) == f"100644 blob {blobs[0]}\t.gitmodules"
    assert repo.read_object(blobs[1]) == ("blob", b"two\n")


def _find_folder(repo, content):
    """Return the folder of a blob's object; objects of the box's commits, whose ids hang on the clock, may share it."""
    return repo.objects_dir / find_blob_id(repo, content)[:2]


@pytest.mark.parametrize("obstacle", ["file", "folder"])
def test_nothing_is_left_of_objects_of_which_one_cannot_be_stored(box, obstacle):
    """Neither where it cannot be written nor where it cannot get its name; later they can be stored."""
    repo = box.open()
    refused = next(text for text in (b"refused %d\n" % n for n in range(256)) if not _find_folder(repo, text).exists())
    blob = find_blob_id(repo, refused)
    place = _find_folder(repo, refused)
    if obstacle == "file":
        place.write_bytes(b"")
    else:
        (place / blob[2:] / "full").mkdir(parents=True)
    with pytest.raises(GitError, match="an object cannot be stored"), repo.storing_together() as together:
        store_blobs(together, [refused, b"behind it\n"])
    assert repo.read_object(find_blob_id(repo, b"behind it\n")) is None
    assert list(repo.objects_dir.glob("*/tmp_obj_*")) == []
    place.unlink() if obstacle == "file" else shutil.rmtree(place)
    assert store_blobs(repo, [refused]) == (blob,)

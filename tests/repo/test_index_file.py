"""The user's index as relay reads it itself: what git says of it, or nothing."""

import os

import pytest

from relay.git.index import read_index_file


def leave(_box):
    """Change nothing."""


def intend(box):
    box.write("meant", "to be added\n")
    box.git("add", "-N", "meant")


def skip(box):
    box.git("update-index", "--skip-worktree", "src/app.py")


def assume(box):
    box.git("update-index", "--assume-unchanged", "src/app.py")


def conflict(box):
    box.git("checkout", "-qb", "other")
    box.write("src/app.py", "theirs\n")
    box.commit("theirs")
    box.git("checkout", "-q", "main")
    box.write("src/app.py", "ours\n")
    box.commit("ours")
    box.git("merge", "other", check=False)


def name_oddly(box):
    for name in ("with\nnewline", "a" * 7, "b" * 5000, "\udcff", "\u00fc"):
        (box.root / name[:200]).write_bytes(b"x")
    box.git("add", "-A")


@pytest.mark.parametrize("change", [leave, intend, skip, assume, conflict, name_oddly])
@pytest.mark.parametrize("args", [(), ("--object-format=sha256",)])
def test_an_index_holds_what_git_lists(new_box, args, change):
    box = new_box(*args)
    box.write("src/app.py", "one\n")
    box.write("run.sh", "#!\n").chmod(0o755)
    (box.root / "link").symlink_to("run.sh")
    box.commit()
    change(box)
    found = read_index_file(box.open())
    assert found is not None
    records = [r.partition(b"\t") for r in box.git("ls-files", "-z", "-v", "--stage").split(b"\0")[:-1]]
    heads = [(head.decode().split(), os.fsdecode(name)) for head, _, name in records]
    assert found.entries == {name: (mode, blob) for (_, mode, blob, stage), name in heads if stage == "0"}
    assert found.has_flags == any(tag in "Shs" for (tag, *_), _ in heads)
    assert found.has_conflicts == any(tag in "Mm" for (tag, *_), _ in heads)


@pytest.mark.parametrize("change", [("--index-version=4",), ("--split-index",)])
def test_an_index_of_another_form_is_left_to_git(box, change):
    box.git("update-index", *change)
    box.git("update-index", "--force-write-index")
    assert read_index_file(box.open()) is None


def test_what_is_cut_off_or_no_index_is_left_to_git(box):
    repo, index = box.open(), box.root / ".git/index"
    whole = index.read_bytes()
    for end in range(0, len(whole), 3):
        index.write_bytes(whole[:end])
        assert read_index_file(repo) is None
    for other in (b"FREE" + whole[4:], whole[:8] + b"\xff" * 4 + whole[12:], whole + b"odd\0" * 9):
        index.write_bytes(other)
        assert read_index_file(repo) is None
    index.unlink()
    assert read_index_file(repo) is None
    index.mkdir()
    assert read_index_file(repo) is None
    index.rmdir()
    index.write_bytes(whole)


def test_a_sparse_index_is_left_to_git(box):
    box.write("other/deep/file", "x\n")
    box.commit()
    box.git("sparse-checkout", "set", "--cone", "--sparse-index", "src")
    assert read_index_file(box.open()) is None

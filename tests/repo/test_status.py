"""How the work tree differs from HEAD."""

import os

from relay.git.status import read_status
from relay.git.trees import GITLINK

STRANGE = [
    "with\nnewline",
    'quo"te',
    "back\\slash",
    "-leading",
    "tab\there",
    "\udcff\udcfe",
    "sp ace ",
    "ünï",
    ":(glob)*",
    "cr\r",
]


def test_each_kind_of_change_is_seen(box):
    box.write("src/app.py", "print(2)\n")
    box.write("new.txt")
    box.write("staged.txt")
    (box.root / "src/old.py").unlink()
    box.git("add", "staged.txt")
    box.git("mv", "run.sh", "moved.sh")
    box.write("x.log")
    status = read_status(box.open("src"))
    assert set(status.changed) == {"src/app.py", "src/old.py", "staged.txt", "run.sh", "moved.sh"}
    assert set(status.staged) == {"staged.txt", "run.sh", "moved.sh"}
    assert status.untracked == ("new.txt",)


def test_strange_names_arrive_whole(box):
    for name in STRANGE:
        (box.root / name).write_bytes(b"x")
    assert sorted(read_status(box.open()).untracked) == sorted(STRANGE)
    for name in STRANGE:
        assert read_status(box.open(), (name,)).untracked == (name,)


def test_a_moved_submodule_is_reported_and_a_dirty_one_is_not(box, new_box):
    inner = new_box()
    inner.write("lib.c")
    inner.commit()
    box.git("submodule", "add", "-q", inner.root, "lib")
    box.commit()
    box.write("lib/lib.c", "dirty\n")
    assert read_status(box.open()).entries == ()
    box.git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qam", "in", cwd=box.root / "lib")
    assert [(entry.path, entry.mode) for entry in read_status(box.open()).entries] == [("lib", GITLINK)]


def test_nested_repositories_are_named_and_not_entered(box):
    (box.root / "nested").mkdir()
    box.git("init", "-q", cwd=box.root / "nested")
    box.write("nested/file")
    status = read_status(box.open())
    assert (status.nested, status.untracked) == (("nested",), ())


def test_reading_does_not_write_the_index(box):
    index = box.root / ".git/index"
    os.utime(box.root / "src/app.py")
    before = (index.read_bytes(), index.stat().st_mtime_ns)
    read_status(box.open())
    assert (index.read_bytes(), index.stat().st_mtime_ns) == before

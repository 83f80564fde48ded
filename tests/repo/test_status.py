"""How the work tree differs from HEAD."""

from relay.git.status import find_ignored, read_status
from relay.git.trees import GITLINK


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


def test_a_directory_is_ignored_if_all_that_is_in_it_is(box):
    for path in ("build/one", "logs/a.log", "logs/b.txt", "c.log"):
        box.write(path)
    assert find_ignored(box.open(), ["build/", "logs", "c.log", "gone.log"]) == ("build/", "c.log")

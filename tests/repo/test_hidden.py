"""Index entries that keep git from looking at their files."""

import pytest

from relay.git.message import Message
from relay.git.status import read_status
from relay.store.commit import CommitEnd, CommitRequest, commit_paths
from relay.store.snapshot import KnownPaths, write_snapshot_tree
from tests.effort import take_turns

FLAGS = ("--assume-unchanged", "--skip-worktree")
CASES = [FLAGS[:1], FLAGS[1:], FLAGS]


def hide(box, path, flags):
    for flag in flags:
        box.git("update-index", flag, f"./{path}")


def test_status_sees_them_and_says_so(box):
    """For the whole tree and for paths; the user's index is left as it is."""
    hide(box, "src/app.py", FLAGS[:1])
    hide(box, "src/old.py", FLAGS)
    hide(box, "run.sh", FLAGS[1:])
    for path in ("src/app.py", "run.sh"):
        box.write(path, "local\n")
    index = (box.root / ".git/index").read_bytes()
    for status in (read_status(box.open()), read_status(box.open(), ("src/app.py", "run.sh", "PLAN.md"))):
        assert status.changed == status.hidden == ("run.sh", "src/app.py")
    assert read_status(box.open(), ("PLAN.md",)).changed == ()
    assert (box.root / ".git/index").read_bytes() == index
    assert list((box.root / ".git/relay").iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "setting"), take_turns(CASES, ("core.splitIndex", "core.ignoreStat", "core.untrackedCache"))
)
def test_a_snapshot_holds_them(box, flags, setting):
    """Also the next one, made of known paths only."""
    box.git("config", setting, "true")
    hide(box, "src/app.py", flags)
    box.write("src/app.py", "local\n")
    repo = box.open()

    first = write_snapshot_tree(repo)
    box.write("src/app.py", "later\n")
    second = write_snapshot_tree(repo, known=KnownPaths(previous=first, paths=("src/app.py",)))

    assert box.tree(first.tree)["src/app.py"] == b"local\n"
    assert box.tree(second.tree)["src/app.py"] == b"later\n"


def test_a_flag_that_is_set_between_two_snapshots_is_seen(box):
    """What git said is remembered for one state of the index, no longer."""
    repo = box.open()
    first = write_snapshot_tree(repo)
    hide(box, "src/app.py", FLAGS[1:])
    box.write("src/app.py", "local\n")

    assert box.tree(write_snapshot_tree(repo).tree)["src/app.py"] == b"local\n"
    known = KnownPaths(previous=first, paths=("src/app.py",))
    assert box.tree(write_snapshot_tree(repo, known=known).tree)["src/app.py"] == b"local\n"


@pytest.mark.parametrize(("name", "flags"), take_turns(["-dash", ":(top)x", "with\nnewline", "a,b", "\udcff"], CASES))
def test_a_commit_moves_the_index_and_keeps_the_flags(box, flags, name):
    """Whatever the file is called, and beside one with the other flag."""
    box.write(name, "one\n")
    box.write("other", "one\n")
    start = box.commit()
    hide(box, name, flags)
    hide(box, "other", FLAGS[1:])
    before = box.git("ls-files", "-v", "-z")
    box.write(name, "two\n")
    box.write("other", "two\n")
    box.write("src/app.py", "print(2)\n")
    request = CommitRequest(
        branch="main", head=start, message=Message(subject="s"), paths=(name, "other", "src/app.py")
    )

    outcome = commit_paths(box.open(), request)

    assert (outcome.end, outcome.left) == (CommitEnd.COMMITTED, ())
    tree = box.tree("HEAD")
    assert (tree[name], tree["other"], tree["src/app.py"]) == (b"two\n", b"two\n", b"print(2)\n")
    assert box.git("ls-files", "-v", "-z") == before
    assert box.git("diff", "--cached", "--name-only") == b""

"""Index entries that keep git from looking at their files."""

import pytest

from relay.git.message import Message
from relay.git.status import read_status
from relay.store.commit import CommitEnd, CommitRequest, commit_paths
from relay.store.snapshot import write_snapshot_tree
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
        assert status.changed == ("run.sh", "src/app.py")
    assert read_status(box.open(), ("PLAN.md",)).changed == ()
    assert (box.root / ".git/index").read_bytes() == index
    assert list((box.root / ".git/relay").iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "setting"), take_turns(CASES, ("core.splitIndex", "core.ignoreStat", "core.untrackedCache"))
)
def test_a_snapshot_holds_them(box, flags, setting):
    box.git("config", setting, "true")
    hide(box, "src/app.py", flags)
    box.write("src/app.py", "local\n")
    repo = box.open()

    first = write_snapshot_tree(repo)
    box.write("src/app.py", "later\n")
    second = write_snapshot_tree(repo)

    assert box.tree(first.tree)["src/app.py"] == b"local\n"
    assert box.tree(second.tree)["src/app.py"] == b"later\n"


def test_a_commit_moves_the_index_and_keeps_the_flags(box):
    """Whatever a file is called, beside others with the other flag."""
    flags = dict(zip(("-dash", ":(top)x", "with\nnewline", "a,b", "\udcff", "other"), [*CASES, *CASES], strict=True))
    for name in flags:
        box.write(name, "one\n")
    start = box.commit()
    for name, own in flags.items():
        hide(box, name, own)
    before = box.git("ls-files", "-v", "-z")
    for name in (*flags, "src/app.py"):
        box.write(name, "two\n")
    request = CommitRequest(branch="main", head=start, message=Message(subject="s"), paths=(*flags, "src/app.py"))

    outcome = commit_paths(box.open(), request)

    assert (outcome.end, outcome.left) == (CommitEnd.COMMITTED, ())
    tree = box.tree("HEAD")
    assert {name: tree[name] for name in (*flags, "src/app.py")} == dict.fromkeys((*flags, "src/app.py"), b"two\n")
    assert box.git("ls-files", "-v", "-z") == before
    assert box.git("diff", "--cached", "--name-only") == b""

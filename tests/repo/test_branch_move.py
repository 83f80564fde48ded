"""Following a branch that was made elsewhere: files and index go along, and nothing of the user's does."""

import pytest

from relay.base.errors import RepoError
from relay.git.refs import move_ref
from relay.plan.parse import parse_plan
from relay.store.branches import begin_branch, move_branch, read_kept
from relay.store.completion import finish_pending, note_pending
from relay.store.obstacles import find_in_the_way
from relay.store.plan_state import PlanSource, ask
from tests.effort import take_turns


def make_pair(box):
    """Two commits: the second adds, changes and removes, and puts a directory in a file's place and the other way."""
    box.write("a.txt", "a\n")
    box.write("gone.txt", "gone\n")
    box.write("place", "a file\n")
    box.write("mine.txt", "mine\n")
    box.write("tool", "as it was\n")
    box.write("folder/in.txt", "in\n")
    old = box.commit("old")
    (box.root / "gone.txt").unlink()
    (box.root / "place").unlink()
    (box.root / "folder/in.txt").unlink()
    (box.root / "folder").rmdir()
    box.write("folder", "a file\n")
    box.write("a.txt", "b\n")
    box.write("place/in.txt", "below\n")
    for path, content in (("new.sh", "#!/bin/sh\n"), ("tool", "as it was\n")):
        box.write(path, content).chmod(0o755)
    new = box.commit("new")
    box.git("reset", "-q", "--hard", old)
    return old, new


def test_files_and_index_go_along(box):
    old, new = make_pair(box)
    assert move_branch(box.open(), "main", old, new, reason="relay: lands") == ()
    assert box.text("rev-parse", "HEAD") == new
    assert box.text("status", "--porcelain") == ""
    assert (box.root / "place/in.txt").read_text() == "below\n"
    assert all((box.root / path).stat().st_mode & 0o111 for path in ("new.sh", "tool"))
    assert "relay: lands" in box.text("reflog", "-1", "main")
    assert finish_pending(box.open()) == ()


@pytest.mark.parametrize(
    ("attributes", "comes"),
    take_turns(["", "* text=auto\n", "*.txt text eol=crlf\n", "*.txt ident\n"], (False, True)),
)
def test_files_look_as_git_checks_them_out(box, attributes, comes):
    """Also where what is said of them comes with them."""
    box.write(".gitattributes", "" if comes else attributes)
    box.write("a.txt", "a\n")
    old = box.commit("old")
    box.write(".gitattributes", attributes)
    box.write("a.txt", "$Id$\n")
    (box.root / "b.txt").write_bytes(b"b\r\n")
    new = box.commit("new")
    files, looks = (".gitattributes", "a.txt", "b.txt"), []
    for take in (
        lambda: box.git("reset", "-q", "--hard", new),
        lambda: move_branch(box.open(), "main", old, new, reason="relay"),
    ):
        box.git("reset", "-q", "--hard", old)
        assert not take()
        assert box.text("status", "--porcelain") == ""
        looks.append([(box.root / name).read_bytes() for name in files])
    assert looks[0] == looks[1]


def test_what_a_kill_cut_off_is_finished_later(box):
    """The branch has moved, nothing else: the note says so to whoever asks, and the next run does the rest."""
    old, new = make_pair(box)
    repo = box.open()
    note_pending(repo, new, old, is_whole=True)
    assert move_ref(repo, "refs/heads/main", new, old)
    (box.root / "gone.txt").unlink()  # it was at it when it was killed
    source = PlanSource(plan_name="PLAN.md", load=lambda: parse_plan((box.root / "PLAN.md").read_text()))
    point = ask(source, repo).point
    assert point is not None
    assert point.why.startswith(f"The move of the files to {new[:10]} was cut off.")
    assert point.then.startswith("finishes the move of the files")
    moved = read_kept(repo, "PLAN.md").move
    assert moved is not None
    assert (moved.commit, moved.parents) == (new, (old,))
    assert finish_pending(repo) == ()
    assert box.text("status", "--porcelain") == ""
    assert read_kept(repo, "PLAN.md").move is None


def test_a_branch_that_moved_meanwhile_stays(box):
    old, new = make_pair(box)
    box.write("c.txt")
    meanwhile = box.commit()
    box.git("branch", "other")
    assert move_branch(box.open(), "main", old, new, reason="relay") is None
    assert move_branch(box.open(), "other", meanwhile, new, reason="relay") is None
    assert box.text("rev-parse", "HEAD") == meanwhile
    assert box.text("status", "--porcelain") == ""
    assert finish_pending(box.open()) == ()


def test_what_the_user_changed_is_named_before_and_left_after(box):
    old, new = make_pair(box)
    box.write("a.txt", "edited\n")
    box.write("new.sh", "the user's own\n")
    box.write("mine.txt", "edited, and in nobody's way\n")
    before = box.files()
    assert find_in_the_way(box.open(), old, new) == ("a.txt", "new.sh")
    left = move_branch(box.open(), "main", old, new, reason="relay")
    assert sorted(words.split()[0] for words in left or ()) == ["a.txt", "new.sh"]
    for path in ("a.txt", "new.sh", "mine.txt"):
        assert box.files()[path] == before[path]


def test_what_is_staged_and_nowhere_else_stays_staged(box):
    old, new = make_pair(box)
    box.write("a.txt", "staged\n")
    box.git("add", "a.txt")
    box.write("a.txt", "a\n")
    assert find_in_the_way(box.open(), old, new) == ("a.txt",)
    move_branch(box.open(), "main", old, new, reason="relay")
    assert box.git("cat-file", "blob", ":a.txt") == b"staged\n"


def test_a_file_that_gives_way_to_a_directory_is_not_in_the_way(box):
    """Wherever the work tree is, as long as it has the file: the move takes it away."""
    old, new = make_pair(box)
    box.write("b.txt", "others landed meanwhile\n")
    meanwhile = box.commit("meanwhile")
    for at in ("", old, meanwhile):
        assert find_in_the_way(box.open(), old, new, at=at) == (), at


def test_a_note_of_a_strangers_is_no_move(box):
    """A repository out of an archive may say anything there: what is no commit's id is nothing."""
    old, new = make_pair(box)
    repo = box.open()
    note_pending(repo, new, old, is_whole=True)
    (repo.relay_dir / "pending").write_text(f"{old}:--output=evil\n{old}:HEAD\n")
    assert read_kept(repo, "PLAN.md").move is None
    assert finish_pending(repo) == ()


def test_a_branch_of_relay_s_own_is_made_once_and_open_phases_go_along(box):
    repo, moved = box.open(), list[str]()
    assert begin_branch(repo, "relay/one", moved.append)
    assert not begin_branch(repo, "relay/two", moved.append)
    assert (box.text("symbolic-ref", "HEAD"), moved) == ("refs/heads/relay/one", ["relay/one"])
    box.git("checkout", "-q", "--orphan", "unborn")
    with pytest.raises(RepoError, match="there is a branch relay/one already"):
        begin_branch(repo, "relay/one", moved.append)
    assert (box.text("symbolic-ref", "HEAD"), moved) == ("refs/heads/unborn", ["relay/one"])

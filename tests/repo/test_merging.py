"""Merging two commits: the result is git's, and nothing that a repository names runs."""

import pytest

from relay.git.command import GitError
from relay.git.objects import is_ancestor, merge_commits


def make_sides(box, *, base, ours, theirs):
    """Three commits whose files are given; the work tree is left at ours."""
    for path, content in base.items():
        box.write(path, content)
    start = box.commit("base")
    box.git("switch", "-q", "-c", "theirs")
    for path, content in theirs.items():
        box.write(path, content)
    second = box.commit("theirs")
    box.git("switch", "-q", "main")
    for path, content in ours.items():
        box.write(path, content)
    return start, box.commit("ours"), second


def test_what_does_not_meet_is_merged(box):
    base, ours, theirs = make_sides(box, base={"f": "1\n2\n3\n"}, ours={"f": "0\n2\n3\n"}, theirs={"f": "1\n2\n4\n"})
    merge = merge_commits(box.open(), ours, theirs)
    assert (merge.conflicts, merge.words) == ((), "")
    assert box.tree(merge.tree)["f"] == b"0\n2\n4\n"
    assert is_ancestor(box.open(), base, ours)
    assert not is_ancestor(box.open(), ours, theirs)


def test_what_meets_is_named_and_marked_with_the_commits(box):
    odd = "a name\nof two lines"
    _, ours, theirs = make_sides(
        box, base={odd: "1\n", "gone": "1\n"}, ours={odd: "2\n", "gone": "2\n"}, theirs={odd: "3\n"}
    )
    box.git("switch", "-q", "theirs")
    (box.root / "gone").unlink()
    theirs = box.commit("and removed")
    merge = merge_commits(box.open(), ours, theirs)
    assert merge.conflicts == (odd, "gone")
    assert merge.words.count("CONFLICT") == 2
    assert box.tree(merge.tree)[odd].decode() == f"<<<<<<< {ours}\n2\n=======\n3\n>>>>>>> {theirs}\n"


@pytest.mark.parametrize("scope", ["--local", "--global"])
def test_no_driver_runs_that_a_configuration_names(box, scope):
    """An attribute of the work tree chooses it; the merge is that of git's own, as if nobody had named one."""
    attributes = "f merge=evil\nlog merge=union\n"
    _, ours, theirs = make_sides(
        box,
        base={"f": "1\n", "log": "1\n", ".gitattributes": attributes},
        ours={"f": "2\n", "log": "1\n2\n"},
        theirs={"f": "3\n", "log": "1\n3\n"},
    )
    ran = box.root.parent / "ran"
    box.git("config", scope, "merge.evil.driver", f"touch {ran}; false")
    box.git("config", scope, "merge.default", "evil")
    box.git("config", scope, "include.path", "../.gitattributes.config")
    box.git("merge-tree", "--write-tree", ours, theirs, check=False)
    assert ran.exists()  # git itself runs it
    ran.unlink()
    merge = merge_commits(box.open(), ours, theirs)
    assert not ran.exists()
    assert merge.conflicts == ("f",)
    assert box.tree(merge.tree)["log"] == b"1\n2\n3\n"


def test_it_is_merged_in_a_repository_of_long_ids_and_in_a_linked_work_tree(new_box):
    box = new_box("--object-format=sha256")
    _, ours, theirs = make_sides(box, base={"f": "1\n"}, ours={"a": "2\n"}, theirs={"b": "3\n"})
    box.git("worktree", "add", "-q", "../linked", "theirs")
    merge = merge_commits(box.open("../linked"), ours, theirs)
    assert box.tree(merge.tree) == {"f": b"1\n", "a": b"2\n", "b": b"3\n"}


def test_commits_that_have_nothing_in_common_are_refused(box):
    ours = box.commit()
    box.git("switch", "-q", "--orphan", "other")
    box.write("f")
    theirs = box.commit()
    with pytest.raises(GitError, match="unrelated histories"):
        merge_commits(box.open(), ours, theirs)

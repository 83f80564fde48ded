"""Unfinished operations are named, with the command that ends them."""

import pytest

from relay.git.status import check_state


def conflict(box):
    box.git("switch", "-qc", "side")
    box.write("src/app.py", "side\n")
    box.commit("side")
    box.git("switch", "-q", "main")
    box.write("src/app.py", "main\n")
    box.commit("main")


def bisect(box):
    box.git("bisect", "start")


def unmerged_only(box):
    box.git("merge", "side", check=False)
    (box.root / ".git/MERGE_HEAD").unlink()


CASES = [
    (lambda box: box.git("merge", "side", check=False), "a merge is in progress", "git merge --abort"),
    (lambda box: box.git("rebase", "side", check=False), "a rebase is in progress", "git rebase --continue"),
    (lambda box: box.git("rebase", "--apply", "side", check=False), "a rebase is in progress", "--abort"),
    (lambda box: box.git("cherry-pick", "side", check=False), "a cherry-pick is in progress", "git cherry-pick"),
    (lambda box: box.git("revert", "--no-edit", "HEAD~1", check=False), "a revert is in progress", "git revert"),
    (bisect, "a bisect is in progress", "git bisect reset"),
    (unmerged_only, "unmerged files", "git status"),
]


@pytest.mark.parametrize(("begin", "words", "command"), CASES, ids=[f"{n}-{case[1]}" for n, case in enumerate(CASES)])
def test_an_unfinished_operation_is_named(box, begin, words, command):
    conflict(box)
    if "revert" in words:
        box.write("src/app.py", "main, again\n")
        box.commit()
    assert check_state(box.open()) is None
    begin(box)
    found = str(check_state(box.open("src")))
    assert words in found
    assert command in found


def test_am_is_told_from_rebase(box):
    conflict(box)
    patch = box.git("format-patch", "-1", "--stdout", "side")
    box.git("am", check=False, stdin=patch)
    assert "git am is in progress" in str(check_state(box.open()))

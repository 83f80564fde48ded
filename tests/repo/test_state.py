"""Unfinished operations are named, with the command that ends them."""

from relay.git.status import check_state, read_status


def bring_conflict(box):
    box.git("switch", "-qc", "side")
    box.write("src/app.py", "side\n")
    box.commit("side")
    box.git("switch", "-q", "main")
    for content in ("main\n", "main, again\n"):
        box.write("src/app.py", content)
        box.commit("main")


CASES = [
    (("merge", "side"), "a merge is in progress", "git merge --abort"),
    (("rebase", "side"), "a rebase is in progress", "git rebase --continue"),
    (("rebase", "--apply", "side"), "a rebase is in progress", "--abort"),
    (("cherry-pick", "side"), "a cherry-pick is in progress", "git cherry-pick"),
    (("revert", "--no-edit", "HEAD~1"), "a revert is in progress", "git revert"),
    (("am", "../side.patch"), "git am is in progress", "git am --continue"),
    (("bisect", "start"), "a bisect is in progress", "git bisect reset"),
]


def test_an_unfinished_operation_is_named(box):
    """In the work tree where it is, and in no other one; unmerged files are one without its file."""
    bring_conflict(box)
    (box.root.parent / "side.patch").write_bytes(box.git("format-patch", "-1", "--stdout", "side"))
    box.git("worktree", "add", "-q", "-b", "other", "../linked")
    for command, words, way_out in CASES:
        assert check_state(box.open()) is None, command
        box.git(*command, check=False)
        found = str(check_state(box.open("src")))
        assert words in found, command
        assert way_out in found, command
        assert check_state(box.open("../linked")) is None, command
        box.git(command[0], "reset" if command[0] == "bisect" else "--abort")
    box.git("merge", "side", check=False)
    (box.root / ".git/MERGE_HEAD").unlink()
    assert read_status(box.open()).unmerged == ("src/app.py",)
    assert "unmerged files; end it with: git status" in str(check_state(box.open()))

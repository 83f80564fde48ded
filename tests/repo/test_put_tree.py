"""The tree in which gates run: nothing that an earlier gate left there helps the next one."""

from relay.git.worktrees import put_tree


def test_a_tree_s_files_are_there_and_what_is_kept_and_nothing_else(box):
    """Nothing ignored, no empty directory and no repository that a command made."""
    first, files = box.text("rev-parse", "HEAD"), box.files()
    box.write("src/app.py", "another commit's\n")
    box.commit()
    box.git("checkout", "-q", "--detach")
    (box.root / "empty/below").mkdir(parents=True)
    (box.root / "src/old.py").unlink()
    box.git("init", "-q", "made")
    kept = {"kept/one": b"1", "[k]ept two*\n": b"2"}
    for path, content in {**kept, "src/app.py": "edited", "made/file": "", "new/deep/file": "", "a.log": ""}.items():
        box.write(path, content)
    put_tree(box.open(), f"{first}^{{tree}}", head=first, kept=("kept", "[k]ept two*\n"))
    assert box.files() == files | kept
    assert not any((box.root / name).exists() for name in ("empty", "made", "new"))
    assert box.text("rev-parse", "HEAD") == first
    assert box.text("status", "--porcelain", "--untracked-files=no") == ""

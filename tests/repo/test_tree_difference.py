"""What a commit is compared with."""

from relay.store.environment import Environment, watch_sessions
from relay.store.snapshot import write_snapshot_tree
from relay.store.tree_difference import Intent, find_tree_difference


def test_each_commit_is_compared_with_the_work_tree(box):
    repo = box.open()

    def look():
        intent = Intent(head=repo.head(), paths=(), drafts=())
        found = find_tree_difference(repo, intent, write_snapshot_tree(repo), Environment())
        return found.paths

    box.write("a/b/c", "1\n")
    assert look() == ("a",)
    box.commit()
    assert look() == ()
    (box.root / "a/b/c").unlink()
    (box.root / "a/b").rmdir()
    box.write("a/b", "a file now\n")
    box.write("new", "x\n")
    assert look() == ("a/b", "a/b/c", "new")
    box.commit()
    assert look() == ()
    box.git("gc", "-q")
    box.write("new", "y\n")
    box.commit()
    assert look() == ()
    for path in ("übung/tests/ä.py", "b c/ü/x", 'quo"te/x', "back\\slash/x", "tab\there/line\nend", "\udcff/no utf-8"):
        box.write(path, "1\n")
    box.commit()
    assert look() == ()


def test_what_sessions_change_where_a_commit_has_files_too(box):
    """In a submodule a gate sees it all; beside committed packages it is hidden."""
    box.write("node_modules/dep/x.js", "1\n")
    box.commit()
    box.git("update-index", "--add", "--cacheinfo", f"160000,{box.open().head()},sub")
    box.git("commit", "-qm", "submodule")
    repo = box.open()
    with watch_sessions(repo):
        for path in (
            "node_modules/dep/x.js",
            "node_modules/dep/new.js",
            "node_modules/.cache/x",
            "sub/a/x",
            "build/new",
        ):
            box.write(path, "2\n")

    intent = Intent(head=repo.head(), paths=("node_modules/dep/x.js",), drafts=())
    found = find_tree_difference(repo, intent, write_snapshot_tree(repo), Environment(roots=frozenset({"build/new"})))

    assert found.paths == ("build/new", "node_modules/.cache/x", "node_modules/dep/new.js")
    assert found.shown == "the gate saw what sessions changed and no commit has: sub (1 change: sub/a/x)"

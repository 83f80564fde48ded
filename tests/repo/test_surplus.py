"""What a commit is compared with, read anew or from the commit before."""

from relay.store import extra_files
from relay.store.environment import Environment
from relay.store.extra_files import Intent, find_surplus, watch_sessions
from relay.store.snapshot import write_snapshot_tree


def test_a_commit_after_another_is_compared_as_if_it_were_the_first(box):
    repo = box.open()

    def look():
        intent = Intent(head=repo.head(), paths=(), drafts=())
        found = find_surplus(repo, intent, write_snapshot_tree(repo), Environment())
        extra_files._known.clear()
        assert find_surplus(repo, intent, write_snapshot_tree(repo), Environment()) == found
        listed, asked = (
            read(repo, intent.head or "") for read in (extra_files._list_commit, extra_files._ask_for_folders)
        )
        assert listed | {"": listed.get("", {})} == asked
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


def test_a_commit_is_not_read_on_from_one_of_another_repository(box, new_box):
    """Its objects may be here under the same names, and have ids of another length."""
    other = new_box("--object-format=sha256")
    other.write("a", "1\n")
    other.commit()
    for one in (box, other, box):
        repo = one.open()
        intent = Intent(head=repo.head(), paths=(), drafts=())
        assert find_surplus(repo, intent, write_snapshot_tree(repo), Environment()).paths == ()


def test_what_sessions_change_where_a_commit_has_files_too(box):
    """In a submodule a gate sees it all; beside committed packages it is hidden."""
    box.write("node_modules/dep/x.js", "1\n")
    box.commit()
    box.git("update-index", "--add", "--cacheinfo", f"160000,{box.open().head()},sub")
    box.git("commit", "-qm", "submodule")
    repo = box.open()
    with watch_sessions(repo, ()):
        for path in (
            "node_modules/dep/x.js",
            "node_modules/dep/new.js",
            "node_modules/.cache/x",
            "sub/a/x",
            "build/new",
        ):
            box.write(path, "2\n")

    intent = Intent(head=repo.head(), paths=("node_modules/dep/x.js",), drafts=())
    found = find_surplus(repo, intent, write_snapshot_tree(repo), Environment(roots=frozenset({"build/new"})))

    assert found.paths == ("build/new", "node_modules/.cache/x", "node_modules/dep/new.js")
    assert found.shown == "the gate saw what sessions changed and no commit has: sub (1 change: sub/a/x)"

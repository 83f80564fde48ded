"""A read-only session is proven to have changed nothing."""

import os

from relay.store.fingerprint import list_differences, take_fingerprint


def test_reading_changes_nothing_not_even_objects(box):
    box.write("new.txt")
    box.write("x.log")
    before = sorted((box.root / ".git").rglob("*"))
    first = take_fingerprint(box.open())
    os.utime(box.root / "src/app.py")
    box.git("status")
    assert list_differences(first, take_fingerprint(box.open())) == ()
    assert sorted((box.root / ".git").rglob("*")) == before


def edit(path, content="changed\n"):
    return lambda box: box.write(path, content)


def same_size_and_time(box):
    file = box.root / "new.txt"
    before = file.stat()
    file.write_bytes(b"x" * before.st_size)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = [
    ("files", edit("src/app.py")),
    ("files", edit("created.txt")),
    ("files", lambda box: (box.root / "src/old.py").unlink()),
    ("files", lambda box: (box.root / "run.sh").chmod(0o644)),
    ("files", same_size_and_time),
    ("files", lambda box: (box.root / "new.txt").chmod(0o600)),
    ("files", lambda box: (box.root / "ln").symlink_to("x")),
    ("index entries", lambda box: box.git("add", "new.txt")),
    ("index entries", lambda box: box.git("update-index", "--assume-unchanged", "PLAN.md")),
    ("refs", lambda box: box.git("tag", "v1")),
    ("refs", lambda box: box.git("stash", "-u")),
    ("HEAD changed", lambda box: box.git("commit", "-q", "--allow-empty", "-m", "x")),
    ("HEAD changed", lambda box: box.git("checkout", "-q", "--detach")),
    ("ignored files", edit("build/out")),
    ("ignored files", edit("x.log", "longer than before\n")),
    ("git's own files", lambda box: box.git("config", "core.fsmonitor", "evil")),
    ("git's own files", edit(".git/hooks/pre-commit")),
    ("git's own files", edit(".git/info/attributes")),
    ("nested", edit("nested/file")),
]


def test_each_kind_of_change_is_named(box):
    """One after the other, each beside all of those before it."""
    for name in ("new.txt", "x.log"):
        box.write(name)
    (box.root / "nested").mkdir()
    box.git("init", "-q", cwd=box.root / "nested")
    before = take_fingerprint(box.open())
    for number, (word, change) in enumerate(CHANGES):
        change(box)
        now = take_fingerprint(box.open())
        said = list_differences(before, now)
        assert any(word in line for line in said), (number, word, said)
        before = now


def test_a_file_that_git_was_told_to_ignore_changes_of_is_looked_at(box):
    box.git("update-index", "--assume-unchanged", "src/app.py")
    before = take_fingerprint(box.open())
    box.write("src/app.py", "hidden edit\n")
    assert list_differences(before, take_fingerprint(box.open())) == ("files changed: 'src/app.py'",)


def test_relay_s_own_traces_do_not_count(box):
    before = take_fingerprint(box.open())
    box.write(".relay/sessions/1.jsonl")
    box.git("update-ref", "refs/relay/written/main", "HEAD")
    assert list_differences(before, take_fingerprint(box.open())) == ()


def test_a_path_may_be_left_out(box):
    before = take_fingerprint(box.open(), leave_out=("docs/PLAN.md",))
    box.write("docs/PLAN.md")
    assert list_differences(before, take_fingerprint(box.open(), leave_out=("docs/PLAN.md",))) == ()

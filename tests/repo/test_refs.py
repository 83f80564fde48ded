"""What relay reads from ref files, and writes to them, is what git would say and write."""

import re
import shutil
import subprocess

import pytest

from relay.git.command import GitError
from relay.git.identity import Identity
from relay.git.message import read_text
from relay.git.objects import read_entries
from relay.git.refs import drop_ref, find_ref, move_ref
from relay.git.repository import find_head_ref, find_id
from relay.store.history import find_text
from tests.effort import take_each

REF = "refs/relay/wip/main/000001"


def pack(box):
    box.git("pack-refs", "--all")


def pack_and_move(box):
    pack(box)
    box.git("commit", "-q", "--allow-empty", "-m", "moved")


def make_symbolic(box):
    box.git("update-ref", "refs/heads/other", "HEAD")
    box.git("symbolic-ref", "refs/heads/main", "refs/heads/other")


def make_link(box):
    (box.root / ".git/refs/heads/real").write_text(box.text("rev-parse", "HEAD") + "\n", encoding="utf-8")
    (box.root / ".git/refs/heads/main").unlink()
    (box.root / ".git/refs/heads/main").symlink_to("real")


def delete(box):
    box.git("update-ref", "-d", "refs/heads/main")


def delete_packed(box):
    pack(box)
    delete(box)


def empty_folder(box):
    pack(box)
    (box.root / ".git/refs/heads/main").mkdir()


STATES = [pack_and_move, pack, make_symbolic, make_link, delete_packed, delete, empty_folder, lambda box: box.commit()]


@pytest.mark.parametrize("change", take_each(2, STATES))
def test_branch_and_head_are_what_git_says(box, change):
    repo = box.open()
    change(box)
    said = box.git("rev-parse", "-q", "--verify", "refs/heads/main", check=False).decode().strip()
    assert find_ref(repo, "refs/heads/main") == (said or None)
    assert find_id(repo.common_dir, "refs/heads/main") in {said, None}
    assert repo.branch == "main"
    assert repo.head() == (box.git("rev-parse", "-q", "--verify", "HEAD", check=False).decode().strip() or None)


def test_a_name_that_leads_elsewhere_and_an_odd_head_are_left_to_git(box, tmp_path):
    for ref in ("HEAD", "refs/../HEAD", "refs/heads/../../config", "refs//x", "main", "refs/\n"):
        assert find_id(box.open().common_dir, ref) is None, ref
    for head in (b"ref: refs/heads/../../x\n", b"ref: refs/tags/x\n", b"ref: refs/heads/a\0\n", b""):
        (tmp_path / "HEAD").write_bytes(head)
        assert find_head_ref(tmp_path) is None, head


def test_a_branch_without_its_commit_is_not_unborn(box):
    repo, commit = box.open(), box.text("rev-parse", "HEAD")
    file = box.root / ".git/objects" / commit[:2] / commit[2:]
    kept = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(b"")
    with pytest.raises(GitError, match="is corrupt"):  # by a power cut
        repo.head()
    file.unlink()
    with pytest.raises(GitError, match="which is no commit that can be read"):  # by a collection
        repo.head()
    file.write_bytes(kept)


def test_a_text_that_git_has_lost_is_not_absent(box):
    repo, blob = box.open(), box.text("rev-parse", "HEAD:src/app.py")
    assert [find_text(repo, "HEAD", path) for path in ("src", "none", "src/app.py/x")] == [None] * 3
    file = box.root / ".git/objects" / blob[:2] / blob[2:]
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(GitError, match="cannot be read as"):
        find_text(repo, "HEAD", "src/app.py")
    file.write_bytes(kept)


def test_a_ref_without_content_is_not_absent(box):
    repo, commit = box.open(), box.text("rev-parse", "HEAD")
    file = box.root / ".git/refs/heads/main"
    file.write_bytes(b"\0" * 41)
    for ask in (repo.head, lambda: find_ref(repo, "refs/heads/main")):
        with pytest.raises(GitError, match="broken ref"):
            ask()
    with pytest.raises(GitError) as said:
        repo.head()
    subprocess.run(["sh", "-c", str(said.value.hint).partition(": ")[2]], check=True)
    assert repo.head() == commit
    file.write_text(f"{commit}\n", encoding="utf-8")


def test_relay_s_own_ref_moves_only_from_where_it_was(box):
    repo, old = box.open(), box.text("rev-parse", "HEAD")
    new, other = box.commit("new"), box.commit("other")
    for number, setting in enumerate(("user.x=", "core.logAllRefUpdates=always", "core.sharedRepository=group")):
        box.git("config", *setting.split("="))
        ref = f"{REF}{number}"
        assert move_ref(repo, ref, old, None)
        assert not move_ref(repo, ref, new, other)
        assert box.text("rev-parse", ref) == old
        assert move_ref(repo, ref, new, old)
        assert box.text("rev-parse", ref) == new == find_ref(repo, ref)
        assert bool(box.git("reflog", ref, check=False)) == (number > 0), setting
    assert not list((box.root / ".git").rglob("*.lock"))


def test_relay_s_own_ref_goes_only_from_where_it_is(box):
    repo, old = box.open(), box.text("rev-parse", "HEAD")
    new = box.commit("new")
    for packed in ("not", "only", "too"):
        box.git("update-ref", REF, old)
        if packed != "not":
            pack(box)
        if packed != "only":
            box.git("update-ref", REF, new)
        there = box.text("rev-parse", REF)
        assert not drop_ref(repo, REF, new if there == old else old)
        assert box.text("rev-parse", REF) == there, packed
        assert drop_ref(repo, REF, there)
        assert (box.git("for-each-ref", REF), find_ref(repo, REF)) == (b"", None), packed
    assert not list((box.root / ".git").rglob("*.lock"))


def make_many(box):
    for name in ("refs/relay/leg/main", "refs/relay/leg/a/b", "refs/relay/wip/\u00fc\u2028/000001", "refs/relay/x.y"):
        box.git("update-ref", name, "HEAD")


def pack_many(box):
    make_many(box)
    pack(box)
    box.commit("newer")
    box.git("update-ref", "refs/relay/leg/main", "HEAD")
    box.git("update-ref", "-d", "refs/relay/leg/a/b")


@pytest.mark.parametrize("change", [make_many, pack_many])
def test_refs_are_listed_as_git_lists_them(box, change):
    repo = box.open()
    change(box)
    for places in (("refs/relay/",), ("refs/relay/leg/", "refs/relay/wip/"), ("refs/heads/",), ("refs/none/",)):
        said = box.text("for-each-ref", "--format=%(refname) %(objectname)", *places)
        expected = [tuple(line.split(" ")) for line in said.split("\n") if line]
        assert list(repo.list_refs(*places).items()) == expected
    shutil.rmtree(box.root / ".git/refs/relay", ignore_errors=True)


@pytest.mark.parametrize("packed", take_each(2, [True, False]))
def test_a_ref_is_made_where_git_would_make_it_and_nowhere_else(box, packed):
    repo, commit = box.open(), box.text("rev-parse", "HEAD")
    for taken in ("refs/relay/wip/main", "refs/relay/leg/a/b"):
        box.git("update-ref", taken, commit)
    if packed:
        pack(box)
    assert not move_ref(repo, "refs/relay/leg/a/b", commit, None)
    for refused in (REF, "refs/relay/leg/a"):
        with pytest.raises(GitError, match="update-ref failed"):
            move_ref(repo, refused, commit, None)
        assert find_ref(repo, refused) is None
    (box.root / ".git/refs/relay/leg/empty").mkdir(parents=True)
    for made in ("refs/relay/spent/main/000001", "refs/relay/leg/empty", "refs/relay/leg/a/c"):
        assert move_ref(repo, made, commit, None)
        assert box.text("rev-parse", made) == commit
    assert not move_ref(repo, "refs/relay/leg/a/c", box.commit("other"), None)
    assert not list((box.root / ".git").rglob("*.lock"))


@pytest.mark.parametrize("packed", take_each(2, [True, False]))
def test_a_replaced_commit_is_what_git_shows_in_its_place(box, packed):
    repo, commit = box.open(), box.text("rev-parse", "HEAD")
    assert read_text(repo, commit).message.subject != "in its place"
    other = box.commit("in its place")
    box.git("replace", commit, other)
    if packed:
        pack(box)
    assert read_text(repo, commit).message.subject == "in its place"
    box.git("replace", "-d", commit)


def test_a_commit_in_another_encoding_is_read_as_git_reads_it(box):
    box.git("-c", "i18n.commitEncoding=ISO-8859-1", "commit", "-q", "--allow-empty", "-m", b"gr\xfc\xdfe")
    assert read_text(box.open(), box.text("rev-parse", "HEAD")).message.subject == "grüße"


def test_entries_are_those_that_git_lists(box):
    box.write("deep/er/file", "1\n")
    commit = box.commit()
    paths = ("deep", "deep/er", "deep/er/file", "deep/er/file/x", "src/app.py", "none", "none/at/all")
    expected = {
        path: tuple(box.text("ls-tree", commit, "--", path).split()[0:3:2]) for path in ("deep/er/file", "src/app.py")
    }
    for packed in (False, True):
        if packed:
            box.git("gc", "-q")
        for rev in ("HEAD", commit, box.text("rev-parse", f"{commit}^{{tree}}")):
            assert read_entries(box.open(), rev, paths) == expected, (rev, packed)


def test_a_moved_branch_says_in_its_log_who_moved_it_and_why(box):
    repo, old = box.open(), box.text("rev-parse", "main")
    new = box.text("commit-tree", "-p", old, "-m", "next", f"{old}^{{tree}}")
    identity = Identity(name="Ada User", email="ada@example.org").environment
    assert move_ref(repo, "refs/heads/main", new, old, identity=identity, reason="relay: say hello")
    assert box.text("rev-parse", "main") == new
    for name in ("HEAD", "refs/heads/main"):
        said = (box.root / ".git/logs" / name).read_text().splitlines()[-1]
        assert re.fullmatch(rf"{old} {new} Ada User <ada@example.org> \d+ \S+\trelay: say hello", said)

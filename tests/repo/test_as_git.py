"""Whatever happens to work tree, index and HEAD: a snapshot is the tree that git makes of the same files."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.git.message import Message
from relay.git.objects import write_commit
from relay.git.refs import find_ref, move_ref
from relay.store.snapshot import write_snapshot_tree
from tests.effort import NIGHTLY
from tests.repo.conftest import CONFIG, Box

PATHS = ("a", "a.b", "a-", "a/b", "a/b.c", "a/b/c", "a0", "é/\udcff", "z\n/ \r", ".github/x")
DATA = (b"", b"1\n", b"2\n", b"\r\n" * 300)
REF = "refs/relay/wip/main/000001"
DONE_BY_GIT = (
    ("add", "-A"),
    ("add", "-A", "-N"),
    ("rm", "-r", "-q", "--cached", "."),
    ("commit", "-q", "-a", "--allow-empty", "-m", "x"),
    ("reset", "-q", "--hard"),
    ("gc", "-q", "--prune=now"),
    ("pack-refs", "--all", "--prune"),
    ("update-index", "--index-version", "4"),
    ("update-index", "--split-index"),
    ("update-index", "--really-refresh"),
    ("stash", "-q"),
    ("stash", "pop", "-q"),
)

_paths = st.sampled_from(PATHS)
_steps = st.one_of(
    st.tuples(st.just("write"), _paths, st.sampled_from(DATA)),
    st.tuples(st.just("link"), _paths, st.sampled_from(["1\n", "nowhere", "a"])),
    st.tuples(st.sampled_from(["remove", "toggle"]), _paths, st.just(b"")),
    st.tuples(st.just("git"), st.sampled_from(DONE_BY_GIT), st.just(b"")),
)


def clear_place(root, path):
    """Make room for a file: whatever is there or above it goes."""
    for place in (*reversed((root / path).parents), root / path):
        if place.is_relative_to(root) and place != root and (place.is_symlink() or place.is_file()):
            place.unlink()
    if (root / path).is_dir():
        shutil.rmtree(root / path)
    (root / path).parent.mkdir(parents=True, exist_ok=True)


def take_step(box, kind, what, data):
    if kind == "git":
        box.git(*what, check=False)
        return
    file = box.root / what
    if kind == "toggle":
        if file.is_file() and not file.is_symlink():
            file.chmod(file.stat().st_mode ^ 0o111)
        return
    clear_place(box.root, what)
    if kind == "write":
        file.write_bytes(data)
    elif kind == "link":
        file.symlink_to(data)


def ask_git(repo, index):
    """Return the tree of all files, by an index that nobody has written yet."""
    env = {"GIT_INDEX_FILE": str(index)}
    repo.git.run("add", "-A", env=env)
    tree = repo.git.run("write-tree", env=env).decode().strip()
    index.unlink(missing_ok=True)
    return tree


@contextlib.contextmanager
def open_box(*args):
    with tempfile.TemporaryDirectory() as folder:
        box = Box(root=Path(folder, "work"), home=Path(folder, "home"))
        box.root.mkdir()
        box.home.mkdir()
        (box.home / ".gitconfig").write_text(CONFIG)
        box.git("init", "-q", *args)
        box.git("write-tree")  # git-reset(1) on an unborn branch names the empty tree without storing it
        yield box
        box.fsck()


def fingerprint(box):
    """Return what is the user's: files, index, HEAD and refs."""
    refs = box.git("show-ref", "--heads", check=False)
    return box.files(), box.git("ls-files", "--stage", "-v", "-z"), (box.root / ".git/HEAD").read_bytes(), refs


@settings(max_examples=200 if NIGHTLY else 3)
@given(rounds=st.lists(st.lists(_steps, min_size=1, max_size=4), min_size=1, max_size=3), sha256=st.booleans())
def test_a_snapshot_is_the_tree_that_git_makes_of_the_same_files(rounds, sha256):
    with open_box(*(("--object-format=sha256",) if sha256 else ())) as box:
        repo, last = box.open(), None
        for steps in rounds:
            for step in steps:
                take_step(box, *step)
            before = fingerprint(box)
            tree = write_snapshot_tree(repo).tree
            assert tree == ask_git(repo, box.home / "index")
            commit = write_commit(repo, tree, (last,) if last else (), Message(subject="snapshot"))
            assert move_ref(repo, REF, commit, last)
            assert find_ref(repo, REF) == commit
            last = commit
            assert fingerprint(box) == before

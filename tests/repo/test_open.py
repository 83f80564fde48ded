"""Which repositories relay works in, and which it refuses by name."""

import os
import shutil
from dataclasses import replace

import pytest

from relay.base.errors import RepoError
from relay.git.repository import open_repo
from relay.git.status import read_status


def test_a_subdirectory_leads_to_the_root(box):
    repo = box.open("src")
    assert (repo.root, repo.git_dir, repo.branch) == (box.root, box.root / ".git", "main")
    assert repo.head() == box.text("rev-parse", "HEAD")
    assert repo.relay_dir == box.root / ".git/relay"


def test_a_work_tree_that_has_to_be_on_a_branch_is_on_that_one_or_none(box):
    repo = replace(box.open(), on="main")
    before = (repo.branch, repo.head())
    assert before == ("main", box.text("rev-parse", "HEAD"))
    box.git("switch", "-q", "-c", "side/one")
    for look in (lambda: repo.branch, repo.head):
        with pytest.raises(RepoError, match="side/one was checked out meanwhile, and this run works on main"):
            look()
    box.git("switch", "-q", "--detach")
    assert (repo.branch, repo.head()) == (None, before[1])


def test_a_linked_work_tree_has_a_directory_of_its_own(box, tmp_path):
    box.git("worktree", "add", "-q", "-b", "other", tmp_path / "linked")
    linked = open_repo(tmp_path / "linked", box.environ)
    assert linked.root == tmp_path / "linked"
    assert linked.common_dir == box.root / ".git"
    assert linked.relay_dir == box.root / ".git/worktrees/linked/relay"
    assert linked.branch == "other"


def test_a_submodule_is_a_repository_of_its_own(box, new_box):
    inner = new_box()
    inner.write("lib.c")
    inner.commit()
    box.git("submodule", "add", "-q", inner.root, "vendor/lib")
    repo = box.open("vendor/lib")
    assert repo.root == box.root / "vendor/lib"
    assert repo.git_dir == box.root / ".git/modules/vendor/lib"


def test_sha256_is_known(new_box):
    repo = new_box("--object-format=sha256").open()
    assert repo.object_format == "sha256"
    assert len(repo.zero_id) == 64
    assert repo.git.run("hash-object", "-t", "tree", "/dev/null").decode().strip() == repo.empty_tree


@pytest.mark.parametrize("way", ["file", "link", "linked work tree", "commondir", "commondir in the tree", "nobody"])
def test_a_git_directory_that_is_another_work_tree_s_is_refused(box, tmp_path, way):
    """An archive can name any repository of the user's, and git obeys."""
    here = tmp_path / "unpacked"
    here.mkdir()
    fake = here / (".git" if way == "commondir" else "fake")
    match way:
        case "file":
            (here / ".git").write_text(f"gitdir: {box.root}/.git\n")
        case "link":
            (here / ".git").symlink_to(box.root / ".git")
        case "linked work tree" | "nobody":
            box.git("worktree", "add", "-q", "-b", "side", tmp_path / "side")
            (here / ".git").write_text(f"gitdir: {box.root}/.git/worktrees/side\n")
        case _:
            fake.mkdir()
            (fake / "HEAD").write_text("ref: refs/heads/main\n")
            (fake / "commondir").write_text(f"{box.root}/.git\n")
    if way == "commondir in the tree":
        (here / ".git").write_text("gitdir: fake\n")
    if way == "nobody":
        (box.root / ".git/worktrees/side/gitdir").write_bytes(b"")
    with pytest.raises(RepoError, match=r"another work tree|not here|inside"):
        open_repo(here, box.environ)


def test_a_git_directory_elsewhere_that_is_nobody_else_s_is_taken(new_box, tmp_path):
    box = new_box("--separate-git-dir", str(tmp_path / "kept.git"))
    assert box.open().git_dir == tmp_path / "kept.git"


def test_a_linked_work_tree_with_relative_names_is_known(box):
    box.git("worktree", "add", "-q", "-b", "side", "../side")
    own = box.root / ".git/worktrees/side"
    (own / "gitdir").write_text(f"{os.path.relpath(box.root.parent / 'side', own)}/.git\n")
    assert open_repo(box.root.parent / "side", box.environ).git_dir == own


def test_what_is_no_work_tree_is_refused_with_the_reason_and_the_way_out(box, tmp_path):
    box.git("clone", "-q", "--bare", box.root, tmp_path / "bare.git")
    old = tmp_path / "old/git"
    old.parent.mkdir()
    old.write_text('#!/bin/sh\necho "git version 2.25.1"\n')
    old.chmod(0o755)
    for place, words, hint, environ in (
        (tmp_path / "bare.git", "bare repository", "git worktree add", {}),
        (tmp_path, "not inside a git repository", "git init", {}),
        (box.root / ".git", "inside the git directory", "", {}),
        (box.root, "snapshot everything below", "", {"HOME": str(box.root)}),
        (box.root, "git was not found", "", {"PATH": "/nonexistent"}),
        (box.root, r"git 2\.25\.1 is too old", "", {"PATH": str(old.parent)}),
    ):
        with pytest.raises(RepoError, match=words) as caught:
            open_repo(place, {**box.environ, **environ})
        assert hint in str(caught.value.hint), words


def test_a_configured_work_tree_elsewhere_is_refused(box, tmp_path):
    """A hostile config must not point relay at other files."""
    (tmp_path / "victim").mkdir()
    box.git("config", "core.worktree", tmp_path / "victim")
    with pytest.raises(RepoError):
        box.open()


def test_inherited_git_variables_change_nothing(box, new_box):
    other = new_box()
    other.write("theirs.txt")
    hostile = {
        "GIT_DIR": str(other.root / ".git"),
        "GIT_WORK_TREE": str(other.root),
        "GIT_INDEX_FILE": str(other.root / ".git/index"),
        "GIT_OBJECT_DIRECTORY": "/nonexistent",
        "GIT_CONFIG_PARAMETERS": "'core.bare=true'",
        "GIT_NAMESPACE": "x",
        "GIT_LITERAL_PATHSPECS": "0",
    }
    repo = open_repo(box.root, {**box.environ, **hostile})
    assert repo.root == box.root
    assert read_status(repo).entries == ()


def test_a_git_planted_in_the_repository_is_not_run(box, tmp_path):
    """A virtual environment inside the repository is on PATH and can be written by a session."""
    planted = box.write(".venv/bin/git", f'#!/bin/sh\ntouch {tmp_path}/ran\nexec /usr/bin/git "$@"\n')
    planted.chmod(0o755)
    (tmp_path / "alias").symlink_to(box.root / ".venv/bin")
    path = f"{box.root}/.venv/bin:.:{tmp_path}/alias:{os.environ['PATH']}"
    repo = open_repo(box.root / "src", {**box.environ, "PATH": path})
    assert read_status(repo).untracked == (".venv/bin/git",)
    assert not (tmp_path / "ran").exists()
    assert str(box.root) not in repo.git.env["PATH"]


def test_secrets_do_not_reach_git(box):
    repo = open_repo(box.root, {**box.environ, "ANTHROPIC_API_KEY": "sk-ant-x", "LD_PRELOAD": "/x.so"})
    assert {"ANTHROPIC_API_KEY", "LD_PRELOAD"}.isdisjoint(repo.git.env)


def test_another_users_repository_is_git_s_decision(box):
    if os.getuid() != 0 or not shutil.which("git"):
        pytest.skip("only root can give a directory away")
    os.chown(box.root, 12345, 12345)
    os.chown(box.root / ".git", 12345, 12345)
    with pytest.raises(RepoError, match="trust"):
        box.open()
    os.chown(box.root, 0, 0)
    os.chown(box.root / ".git", 0, 0)

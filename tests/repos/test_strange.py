"""Repositories that are not like the one in the tutorial: each ends in a commit, or in words that name the way out."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from relay.base.errors import ExitCode, PlanError, RepoError
from relay.git.command import GitError
from relay.session.events import Noticed
from tests.effort import take_each
from tests.scripts import HELLO

BASH = """
sessions:
  - name: hello
    turns:
      - tools: [{name: bash, input: {command: %s}}]
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello"
"""


def bash(command):
    """Return a script whose session runs a command before it does its work."""
    return BASH % ("'" + command.replace("'", "''") + "'")


@pytest.mark.nightly
def test_an_unborn_branch_gets_the_plan_as_its_first_commit(stage, finish):
    """No commit yet is no obstacle: the plan is the first one."""
    shutil.rmtree(stage.root / ".git")
    stage.git("init", "-q", "-b", "trunk")

    assert finish() == ["PLAN.md", "hello.txt"]
    assert stage.git("log", "--format=%s", "trunk").splitlines() == ["Say hello", "relay: plan — Greetings"]
    assert stage.git("status", "--porcelain").splitlines() == ["?? AGENTS.md"]


def test_a_detached_head_is_refused_with_the_way_out(stage, finish):
    """Relay commits on a branch; the hint makes one."""
    stage.git("checkout", "-q", "--detach")

    with pytest.raises(RepoError, match="detached") as caught:
        finish()

    assert caught.value.hint == "git switch -c <name>"
    stage.git("switch", "-q", "-c", "work")
    finish()


def make_conflict(stage):
    stage.git("switch", "-q", "-c", "other")
    stage.write("AGENTS.md", "theirs\n")
    stage.commit("theirs")
    stage.git("switch", "-q", "main")
    stage.write("AGENTS.md", "ours\n")
    stage.commit("ours")


OPERATIONS = [
    (("merge", "other"), "a merge is in progress", ("merge", "--abort")),
    (("rebase", "other"), "a rebase is in progress", ("rebase", "--abort")),
    (("bisect", "start"), "a bisect is in progress", ("bisect", "reset")),
    (("cherry-pick", "other"), "a cherry-pick is in progress", ("cherry-pick", "--abort")),
    (("revert", "HEAD~1"), "a revert is in progress", ("revert", "--abort")),
]
"""`tests/repo/test_state.py` has all that git names."""


@pytest.mark.parametrize(("command", "words", "way_out"), take_each(3, OPERATIONS))
def test_an_unfinished_operation_is_refused_and_named(stage, finish, command, words, way_out):
    """Nothing is touched until the user has ended it, and then the run goes."""
    make_conflict(stage)
    if command[0] == "revert":
        stage.write("AGENTS.md", "later\n")
        stage.commit("later")
    subprocess.run(["git", *command], cwd=stage.root, capture_output=True, check=False)
    before = stage.git("status", "--porcelain")

    with pytest.raises(RepoError) as caught:
        finish()

    assert words in caught.value.message
    assert f"git {way_out[0]}" in caught.value.message
    assert stage.git("status", "--porcelain") == before
    stage.git(*way_out)
    finish()


def test_submodules_are_neither_entered_nor_committed(stage, finish, make_repo):
    """A submodule whose commit moves during the work is reported by git, not committed by relay."""
    inner = make_repo("inner")
    stage.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    stage.commit("sub")
    before = stage.git("ls-tree", "HEAD", "sub")
    (stage.root / "sub/inner.txt").write_text("changed inside\n")

    assert finish() == ["PLAN.md", "hello.txt"]
    assert stage.git("ls-tree", "HEAD", "sub") == before
    assert (stage.root / "sub/inner.txt").read_text() == "changed inside\n"


@pytest.mark.nightly
def test_relay_works_inside_a_submodule(stage, finish, make_repo):
    """The submodule is a repository of its own; the outer one is not touched."""
    inner = make_repo("inner")
    outer = stage.root
    stage.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    stage.commit("sub")
    stage.root = outer / "sub"
    stage.git("switch", "-q", "-C", "main")
    stage.write("PLAN.md", (outer / "PLAN.md").read_text())

    assert "hello.txt" in finish()
    stage.root = outer
    assert stage.git("status", "--porcelain").split() == ["M", "sub"]


@pytest.mark.nightly
def test_a_nested_repository_is_left_alone_and_named(stage, finish):
    """What a session makes with git init stays in the work tree; the user is told that relay did not keep it."""
    script = bash("mkdir nested && cd nested && git init -q . && echo x > inside.txt")

    assert finish(script) == ["PLAN.md", "hello.txt"]
    assert (stage.root / "nested").is_dir()


@pytest.mark.nightly
def test_an_untracked_nested_repository_of_the_user_stays_out(stage, finish, make_repo):
    """Neither its files nor a gitlink reach a commit."""
    inner = make_repo("elsewhere")
    shutil.copytree(inner, stage.root / "vendor/lib", symlinks=True)

    assert finish() == ["PLAN.md", "hello.txt"]
    assert any("vendor/lib" in notice.text for notice in stage.seen(Noticed))
    assert stage.git("status", "--porcelain").split() == ["??", "vendor/"]


@pytest.mark.nightly
@pytest.mark.parametrize("cone", take_each(2, ["--cone", "--no-cone"]))
def test_a_sparse_checkout_keeps_what_is_not_checked_out(stage, finish, cone):
    """Files outside the cone are not taken for deleted ones."""
    stage.write("deep/inside/file.txt", "far\n")
    stage.write("near/file.txt", "near\n")
    stage.commit("more")
    patterns = ("near",) if cone == "--cone" else ("/*", "!/deep/")
    stage.git("sparse-checkout", "set", cone, *patterns)
    assert not (stage.root / "deep").exists()

    assert finish() == ["PLAN.md", "hello.txt"]
    assert stage.git("show", "HEAD:deep/inside/file.txt") == "far\n"
    assert not (stage.root / "deep").exists()
    assert stage.git("status", "--porcelain") == ""


def test_a_linked_work_tree_is_like_any_other(stage, finish):
    """The branch moves, the main work tree does not notice."""
    main = stage.root
    stage.git("worktree", "add", "-q", "-b", "side", "../side")
    stage.root = main.parent / "side"

    assert finish() == ["PLAN.md", "hello.txt"]
    assert stage.git("status", "--porcelain") == ""
    stage.root = main
    assert stage.git("status", "--porcelain") == ""
    assert not (main / "hello.txt").exists()


@pytest.mark.nightly
def test_a_shallow_clone_is_enough(stage, finish):
    """History that is not there is not asked for."""
    stage.write("more.txt", "more\n")
    stage.commit("more")
    stage.git("clone", "-q", "--depth=1", f"file://{stage.root}", "../shallow")
    stage.root = stage.root.parent / "shallow"

    assert finish() == ["PLAN.md", "hello.txt"]
    assert stage.git("rev-parse", "--is-shallow-repository") == "true\n"


@pytest.mark.nightly
def test_sha256_and_index_version_4(stage, finish):
    """Neither the hash nor the index format matters."""
    shutil.rmtree(stage.root / ".git")
    stage.git("init", "-q", "-b", "main", "--object-format=sha256")
    stage.git("config", "index.version", "4")
    stage.commit()
    stage.git("update-index", "--index-version=4")

    assert finish() == ["PLAN.md", "hello.txt"]
    assert len(stage.git("rev-parse", "HEAD").strip()) == 64
    assert (stage.root / ".git/index").read_bytes()[4:8] == b"\0\0\0\x04"
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
def test_autocrlf_keeps_lf_in_commits_and_crlf_in_the_work_tree(stage, finish):
    """A plan checked out with CRLF is not an edited one, and ticking it keeps its line ends."""
    stage.git("config", "core.autocrlf", "true")
    for name in ("PLAN.md", "AGENTS.md"):
        (stage.root / name).unlink()
    stage.git("checkout", "-q", "--", ".")
    assert b"\r\n" in (stage.root / "PLAN.md").read_bytes()

    assert finish() == ["PLAN.md", "hello.txt"]
    assert [commit.status for commit in stage.commits()] == ["done"]
    assert (
        "\r"
        not in subprocess.run(
            ["git", "cat-file", "blob", "HEAD:PLAN.md"], cwd=stage.root, check=True, capture_output=True
        ).stdout.decode()
    )
    assert b"- [x] Say hello" in (stage.root / "PLAN.md").read_bytes()
    assert b"\n" not in (stage.root / "PLAN.md").read_bytes().replace(b"\r\n", b"")
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
def test_a_filter_of_the_users_own_config_runs_as_in_git(stage, finish, tmp_path):
    """An LFS-like driver: the commit holds what clean made of the file, the work tree the file."""
    home = tmp_path / "gitconfig"
    home.write_text('[filter "shout"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n\trequired = true\n')
    shutil.copy(Path(os.environ["HOME"]) / ".gitconfig", tmp_path / "kept")
    with (Path(os.environ["HOME"]) / ".gitconfig").open("a") as file:
        file.write(home.read_text())
    try:
        stage.write(".gitattributes", "hello.txt filter=shout\n")
        stage.commit("attributes")
        assert finish() == ["PLAN.md", "hello.txt"]
        assert stage.git("cat-file", "blob", "HEAD:hello.txt") == "HELLO\n"
        assert (stage.root / "hello.txt").read_text() == "hello\n"
        assert stage.git("status", "--porcelain") == ""
    finally:
        shutil.copy(tmp_path / "kept", Path(os.environ["HOME"]) / ".gitconfig")


def test_a_filter_of_the_repositorys_config_is_refused_by_name(stage, tmp_path):
    """A command that a repository's config names is never run; the words say which."""
    mark = tmp_path / "ran"
    stage.git("config", "filter.evil.clean", f"touch {mark}; cat")
    stage.write(".gitattributes", "*.txt filter=evil\n")
    stage.git("add", "--", ".gitattributes")
    stage.git("commit", "-q", "-m", "attributes")
    head = stage.git("rev-parse", "HEAD")

    ended = stage.run(HELLO, all_=False)

    assert ended.exit_code == ExitCode.STOPPED
    assert "needs the filter 'evil'" in str(ended.reason)
    assert not mark.exists()
    assert stage.git("rev-parse", "HEAD") == head
    assert (stage.root / "hello.txt").read_text() == "hello\n"


@pytest.mark.nightly
def test_names_of_every_kind_are_committed_byte_for_byte(stage, finish):
    """Newlines, quotes, blanks, leading dashes, bytes that are not UTF-8, glob characters."""
    command = (
        r"mkdir ./-d; printf 9 > ./-d/--all; "
        r"""printf 1 > $'new\nline'; printf 2 > 'quo"te'; printf 3 > ./--; printf 4 > './-rf'; """
        r"printf 5 > $'\xff.bin'; printf 6 > ':(top)x'; printf 7 > 'st*r'; printf 8 > ' lead'"
    )
    names = {b"new\nline", b'quo"te', b"--", b"-rf", b"\xff.bin", b":(top)x", b"st*r", b" lead", b"-d/--all"}

    assert {os.fsencode(path) for path in finish(bash(command))} == names | {b"PLAN.md", b"hello.txt"}
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
def test_symlinks_are_committed_as_links_and_never_followed(stage, finish, tmp_path):
    """A link out of the repository stays a link; what it points to is not read."""
    (tmp_path / "secret").write_text("secret\n")
    finish(bash(f"ln -s {tmp_path}/secret out && ln -s hello.txt in && ln -s loop loop"))

    assert stage.git("ls-tree", "HEAD", "out", "in", "loop").count("120000") == 3
    assert stage.git("cat-file", "blob", "HEAD:out") == f"{tmp_path}/secret"
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
def test_names_that_differ_in_case_only_are_two_files(stage, finish):
    """Where the file system keeps both, so does the commit."""
    finish(bash("echo a > Readme && echo b > README"))

    assert stage.git("cat-file", "blob", "HEAD:Readme") == "a\n"
    assert stage.git("cat-file", "blob", "HEAD:README") == "b\n"


@pytest.mark.nightly
def test_read_only_files_and_modes_survive(stage, finish):
    """A read-only file stays one, an executable bit is committed."""
    stage.write("kept.txt", "kept\n")
    stage.commit("kept")
    (stage.root / "kept.txt").chmod(0o444)

    finish(bash("printf '#!/bin/sh\\n' > tool.sh && chmod 755 tool.sh && echo r > ro.txt && chmod 444 ro.txt"))

    assert stage.git("ls-tree", "HEAD", "tool.sh").startswith("100755")
    assert stat.S_IMODE((stage.root / "kept.txt").stat().st_mode) == 0o444
    assert (stage.root / "ro.txt").read_text() == "r\n"
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
def test_a_read_only_plan_is_still_ticked(stage, finish):
    """Relay replaces the file; its mode stays git's."""
    (stage.root / "PLAN.md").chmod(0o444)

    finish()

    assert "- [x] Say hello" in (stage.root / "PLAN.md").read_text()


@pytest.mark.nightly
def test_git_variables_of_the_caller_lead_nowhere(stage, finish, tmp_path, make_repo):
    """GIT_DIR and its kin point at another repository, which stays as it is."""
    other = make_repo("other")
    before = subprocess.run(["git", "log", "--all"], cwd=other, capture_output=True, check=True).stdout
    poison = {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "objects"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(tmp_path),
        "GIT_LITERAL_PATHSPECS": "1",
    }
    os.environ.update(poison)
    try:
        with pytest.raises(PlanError, match="phase 2 comes after 1"):
            stage.run("sessions: []", phase="2")
    finally:
        for name in poison:
            del os.environ[name]
    finish()
    after = subprocess.run(["git", "log", "--all"], cwd=other, capture_output=True, check=True).stdout
    assert before == after
    assert not (tmp_path / "index").exists()


def test_a_missing_identity_is_said_before_a_session_is_paid_for(stage, finish):
    """Git could not commit, so no request is sent."""
    config = Path(os.environ["HOME"]) / ".gitconfig"
    kept = config.read_text()
    config.write_text("[user]\n\tuseConfigOnly = true\n")
    try:
        with pytest.raises(RepoError) as caught:
            stage.run("sessions: []")
    finally:
        config.write_text(kept)

    assert "user.name" in f"{caught.value.message} {caught.value.hint}"
    assert stage.server is not None
    assert stage.server.requests == []
    finish()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a small file system")
def test_a_full_disk_stops_the_run_and_loses_nothing(stage, finish, tmp_path):
    """The run says that the disk is full; with room again it goes on to the same end."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], check=True)
    try:
        shutil.copytree(stage.root, small / "repo", symlinks=True)
        stage.root = small / "repo"
        script = bash("head -c 40000000 /dev/zero > big.bin; true")
        try:
            ended = stage.run(script, all_=False)
            words = ended.reason
        except (RepoError, GitError, OSError) as error:
            words = str(error)
        assert "No space left" in words or "full" in words or "write" in words, words
        (stage.root / "big.bin").unlink(missing_ok=True)
        stage.calm()
        finish()
        assert stage.git("status", "--porcelain") == ""
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)

"""One relay per work tree, and locks that a killed one left."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from relay.base.errors import RepoError
from relay.base.tree import make_temporary_name
from relay.git import lock_journal
from relay.git.lock_journal import clear_stale_locks, declare_locks
from relay.git.notes import lock_worktree
from relay.git.refs import drop_ref, move_ref
from relay.git.repository import open_repo
from relay.store.attempts import AttemptStart, open_attempt
from relay.store.completion import finish_pending
from tests.effort import take_each

HOLDER = """
import sys, time
from pathlib import Path
from relay.git.notes import lock_worktree
from relay.git.refs import drop_ref
from relay.git.repository import open_repo
import subprocess
with lock_worktree(open_repo(Path(sys.argv[1]))):
    child = subprocess.Popen(["sleep", "5"])
    print(child.pid, flush=True)
    time.sleep(30)
"""


@pytest.fixture
def holder(box):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, box.root], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    child = int(process.stdout.readline())
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    os.kill(child, signal.SIGKILL)


def test_a_second_relay_is_told_who_holds_the_lock(box, holder):
    for wait_s in (0.0, 0.1):
        with pytest.raises(RepoError, match=rf"process {holder.pid} on "), lock_worktree(box.open(), wait_s=wait_s):
            pass


def test_a_killed_holder_frees_it_although_its_child_lives(box, holder):
    """Who can wait gets it."""
    timer = threading.Timer(0.3, holder.kill)
    timer.start()
    with lock_worktree(box.open(), wait_s=60):
        timer.join()


def test_relay_s_own_left_locks_are_removed(box):
    box.git("switch", "-qc", "a/b")
    repo = box.open()
    open_attempt(repo, AttemptStart(session_id="s", phase_id="1", plan_path="PLAN.md"))
    locks = [
        repo.relay_dir / "index.lock",
        box.root / ".git/refs/relay/leg/a%2Fb.lock",
        box.root / ".git/refs/relay/wip/a%2Fb/000001.lock",
        box.root / ".git/refs/relay/written/a%2Fb.lock",
        box.root / ".git/refs/relay/rewound/a%2Fb/000001.lock",
    ]
    other = box.root / ".git/refs/relay/leg/other.lock"
    for lock in (*locks, other):
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    assert clear_stale_locks(repo) == ()
    assert [lock for lock in locks if lock.exists()] == []
    assert other.exists()


def test_what_a_killed_relay_left_in_its_directory_goes(box):
    repo = box.open()
    for name in ("status-abc/.git", "status-abd"):
        box.write(f".git/relay/{name}/file")
    box.write(f".git/relay/{make_temporary_name()}")
    box.write("kept.txt")
    (repo.relay_dir / "status-link").symlink_to(box.root)
    clear_stale_locks(repo)
    assert [path.name for path in repo.relay_dir.iterdir()] == ["status-link"]
    assert (box.root / "kept.txt").exists()


def test_only_a_name_that_relay_made_up_is_removed(box):
    names = [".relay-1.tmp", ".relay-12345678901234567890.tmp", f".relay-{'0' * 32}.tmp"]
    for name in (*names, make_temporary_name()):
        box.write(name, "the user's\n")
    clear_stale_locks(box.open())
    assert sorted(box.text("ls-files", "--others").split()) == sorted(names)


def test_a_foreign_lock_is_explained_and_left(box):
    lock = box.write(".git/index.lock", "")
    words = clear_stale_locks(box.open())
    assert len(words) == 1
    assert str(lock) in words[0]
    assert lock.exists()


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_lock_that_relay_announced_is_removed(box, is_inside):
    """Note and lock, and no git that runs: of a kill in mid-way, or of a git that could not remove its lock."""
    repo = box.open()
    outside = declare_locks(repo, repo.git_dir / "HEAD.lock") if is_inside else contextlib.nullcontext()
    with outside, declare_locks(repo, repo.git_dir / "index.lock"):
        lock = box.write(".git/index.lock", "")
    with declare_locks(repo, repo.git_dir / "HEAD.lock"):  # what comes next takes another one
        pass
    assert clear_stale_locks(repo) == ()
    assert not lock.exists()
    assert not (repo.relay_dir / "intent").exists()


def test_locks_that_others_need_are_announced_before_git_takes_them(box, tmp_path):
    """Else a kill would leave a branch's lock that no run may remove; a move of relay's own ref takes its own alone."""
    program, seen = tmp_path / "git", tmp_path / "seen"
    note = f'case "$*" in *update-ref*) cat {box.root}/.git/relay/intent >{seen} 2>/dev/null;; esac'
    program.write_text(f'#!/bin/sh\n{note}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    repo, old = box.open(), box.text("rev-parse", "HEAD")
    new = box.text("commit-tree", "-p", old, "-m", "new", f"{old}^{{tree}}")
    watched = replace(repo, git=replace(repo.git, program=str(program)))
    own, announced = "refs/relay/wip/main/000001", []
    for act in (
        lambda: move_ref(watched, "refs/heads/main", new, old),
        lambda: move_ref(watched, own, new, None),
        lambda: drop_ref(watched, own, new),
    ):
        assert act()
        text = seen.read_text()
        announced.append({Path(lock).name for lock in json.loads(text)["locks"]} if text else set())
    shared = {"HEAD.lock", "packed-refs.lock", "tables.list.lock"}
    assert announced == [{"main.lock", *shared}, set(), {"000001.lock", *shared}]


def test_a_lock_from_another_time_is_not_the_announced_one(box):
    repo = box.open()
    lock = box.write(".git/index.lock", "")
    for shift in (-3600, +3600):
        repo.relay_dir.mkdir(exist_ok=True)
        (repo.relay_dir / "intent").write_text(json.dumps({"locks": {str(lock): time.time() + shift}}))
        assert len(clear_stale_locks(repo)) == 1
        assert lock.exists()


@pytest.fixture
def impatient(monkeypatch):
    """Waits for no git that is at work."""
    monkeypatch.setattr(lock_journal, "_PATIENCE_S", 0)


@pytest.fixture
def holding_ref(box):
    """A git of the user's that holds the branch's lock, and lets go of it a moment later."""
    with subprocess.Popen(
        ["git", "update-ref", "--stdin"], cwd=box.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin
        assert running.stdout
        running.stdin.write("start\nupdate refs/heads/main HEAD\nprepare\n")
        running.stdin.flush()
        assert [running.stdout.readline() for _ in range(2)] == ["start: ok\n", "prepare: ok\n"]
        assert (box.root / ".git/refs/heads/main.lock").exists()
        timer = threading.Timer(0.6, running.stdin.close)
        timer.start()
        yield
        timer.join()


@pytest.mark.usefixtures("holding_ref")
def test_a_lock_of_a_git_that_is_at_work_is_waited_for(box):
    assert clear_stale_locks(box.open()) == ()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("place", "options", "env"),
    take_each(
        2,
        [
            ("side", (), {}),
            (".", ("--git-dir=work/.git",), {}),
            (".", (), {"GIT_DIR": "work/.git/worktrees/side"}),
            (".", ("-C", "side"), {}),
        ],
    ),
)
def test_a_lock_that_work_trees_share_stays_while_a_git_runs_for_any_of_them(box, place, options, env):
    """A git of another work tree cannot hold this one's index; what leads to the git directory itself could."""
    box.git("worktree", "add", "-q", "-b", "side", "../side")
    repo = box.open()
    repo.make_relay_dir()
    for shared, name in ((True, "packed-refs.lock"), (False, "index.lock")):
        lock = box.write(f".git/{name}", "")
        (repo.relay_dir / "intent").write_text(json.dumps({"locks": {str(lock): time.time()}}))
        with subprocess.Popen(
            ["git", *options, "cat-file", "--batch"], cwd=box.root.parent / place, env={**os.environ, **env},
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        ) as running:  # fmt: skip
            assert running.stdin
            words = clear_stale_locks(repo)
            running.stdin.close()
        stays = shared or "side" not in {place, *options}
        assert (len(words), lock.exists()) == (stays, stays), name
        (repo.relay_dir / "intent").write_text(json.dumps({"locks": {str(lock): time.time()}}))
        assert clear_stale_locks(repo) == ()


@pytest.mark.usefixtures("impatient")
def test_a_lock_that_was_announced_in_another_work_tree_stays_while_a_relay_is_at_work_there(box, tmp_path):
    """A run begins in the user's tree: what a killed phase of its own announced in another one must not keep it out."""
    box.git("worktree", "add", "-q", "-b", "side", tmp_path / "side")
    there = open_repo(tmp_path / "side", box.environ)
    with declare_locks(there, lock := box.root / ".git/packed-refs.lock"):
        lock.touch()
    with lock_worktree(there):
        assert [str(lock) in words for words in clear_stale_locks(box.open())] == [True]
        assert lock.exists()
    assert clear_stale_locks(box.open()) == ()
    assert not lock.exists()


def test_a_declaration_is_believed_of_git_s_own_locks_only(box):
    """It may come out of an archive, with any file's name and time in it."""
    repo, top = box.open(), box.root.parent
    (top / "outside.d").mkdir()
    (repo.git_dir / "refs/linked").symlink_to(top / "outside.d")
    names = ("src/app.py", "../outside", ".git/config", ".git/refs/heads/../../config.lock", ".git/refs/linked/x.lock")
    locks = [box.root / name for name in names]
    repo.make_relay_dir()
    for lock in locks:
        lock.touch()
        (repo.relay_dir / "intent").write_text(json.dumps({"locks": {str(lock): lock.stat().st_mtime}}))
        clear_stale_locks(repo)
        assert lock.exists(), lock


def test_relay_s_directory_is_never_a_link(box, tmp_path):
    """`.git/relay -> ~` would have relay remove what stands there."""
    precious = tmp_path / "home" / "yarn.lock"
    precious.parent.mkdir()
    precious.touch()
    repo = box.open()
    repo.relay_dir.symlink_to(precious.parent)
    with pytest.raises(RepoError, match="no directory"), lock_worktree(repo):
        pass
    with pytest.raises(RepoError, match="no directory"):
        clear_stale_locks(repo)
    assert [path.name for path in precious.parent.iterdir()] == ["yarn.lock"]


def test_a_link_among_the_refs_leads_to_no_lock(box, tmp_path):
    (tmp_path / "yarn.lock").touch()
    (box.root / ".git/refs/relay/wip").mkdir(parents=True)
    (box.root / ".git/refs/relay/wip/main").symlink_to(tmp_path)
    assert clear_stale_locks(box.open()) == ()
    assert (tmp_path / "yarn.lock").exists()


def plant(kind, path):
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
                server.bind(path.name)
        case _:
            path.mkdir()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
def test_what_stands_in_the_place_of_a_note_is_not_waited_for(box, kind):
    repo = box.open()
    repo.make_relay_dir()
    for name in ("intent", "pending"):
        plant(kind, repo.relay_dir / name)
    with pytest.raises(RepoError, match="is a directory") if kind == "folder" else contextlib.nullcontext():
        clear_stale_locks(repo)
    assert finish_pending(repo) == ()
    plant(kind, repo.relay_dir / "lock")
    with pytest.raises(RepoError, match="lock is not a regular file"), lock_worktree(repo):
        pass


def test_a_torn_note_announces_nothing(box):
    repo = box.open()
    repo.relay_dir.mkdir(exist_ok=True)
    for torn in (b"", b"{", b"[]", b'{"locks": {"/etc/passwd": "x"}}', b'{"locks": []}', b"\xff"):
        (repo.relay_dir / "intent").write_bytes(torn)
        assert clear_stale_locks(repo) == (), torn

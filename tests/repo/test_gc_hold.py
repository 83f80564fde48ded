"""What ``git gc --prune=now`` may take, and what relay does where something was taken."""

import os
import shutil
import subprocess
import sys
import threading
from itertools import product

import pytest

from relay.base.errors import RepoError
from relay.git import lock_journal
from relay.git.command import GitError
from relay.git.hooks import HookResult, Hooks
from relay.git.lock_journal import clear_stale_locks, hold_collections
from relay.git.message import Message
from relay.session.usage import Spent, Usage
from relay.store.attempts import AttemptStart, open_attempt, read_attempt
from relay.store.checkpoints import WipRecord, repair_refs, save_wip
from relay.store.commit import CommitEnd, CommitRequest, commit_paths
from tests.effort import NIGHTLY, take_each

START = AttemptStart(session_id="s-1", phase_id="1", plan_path="PLAN.md")


def collect(box):
    """Collect as the user would in another terminal; git refuses where somebody is at it."""
    box.git("gc", "-q", "--prune=now", check=False)


def make_snapshots(box, count=3):
    """Return the repository, and the attempt after each of its snapshots."""
    repo = box.open()
    attempts = [open_attempt(repo, START)]
    for number in range(count):
        box.write("work.txt", f"{number}\n")
        spend = Spent(usage=Usage(output_tokens=number), cost_usd=float(number))
        attempts.append(save_wip(repo, attempts[-1], WipRecord(spend=spend, items=(f"1.{number}",))))
    return repo, attempts


def lose(box, name):
    """Take an object out of the repository; return its file and bytes."""
    file = box.root / ".git/objects" / name[:2] / name[2:]
    data = file.read_bytes()
    file.unlink()
    return file, data


def test_nothing_is_collected_while_relay_stores(box):
    repo = box.open()
    with hold_collections(repo), hold_collections(repo):
        blob = box.text("hash-object", "-w", "--stdin")
        collect(box)
        assert box.text("cat-file", "-t", blob) == "blob"
    collect(box)
    assert not box.git("cat-file", "-t", blob, check=False)
    assert not list((box.root / ".git").glob("gc.pid*"))


@pytest.mark.parametrize("is_held", take_each(2, [True, False]))
def test_a_user_who_collects_all_the_time_loses_nothing_of_relay_s(box, is_held, monkeypatch):
    """Between two checkpoints he may; without the hold, objects of them are lost."""
    if not is_held:
        monkeypatch.setattr(lock_journal, "_take", lambda repo: os.open(repo.common_dir, os.O_RDONLY))
    loop = "until test -e stop; do git gc -q --prune=now 2>/dev/null && echo >>done; done"
    repo, lost = box.open(), []
    with subprocess.Popen(["sh", "-c", loop], cwd=box.root, env=box.environ):
        attempt = open_attempt(repo, START)
        for number in range(120 if NIGHTLY else 12):
            for name in range(30):
                box.write(f"src/{name}.txt", f"{number} {name}\n")
            try:
                attempt = save_wip(repo, attempt, WipRecord(spend=Spent(), items=(f"1.{number}",)))
            except RepoError as error:
                lost.append(str(error))
        (box.root / "stop").touch()
    lost += repair_refs(repo)
    missing = box.git("rev-list", "--objects", "--missing=print", "--all", "--no-object-names", check=False)
    assert (lost == [] and b"?" not in missing) is is_held, (lost, missing)
    assert (box.root / "done").read_text()
    if not is_held:  # git-fsck(1) would complain
        shutil.rmtree(box.root / ".git")


def test_what_a_killed_process_left_keeps_nobody_out(box):
    file, claim = box.root / ".git/gc.pid", box.root / ".git/gc.pid.lock"
    here = os.uname().nodename
    for left in (f"0 {here}", f"4194303 {here}", f"-1 {here}", "x", ""):
        file.write_text(left)
        claim.write_text(f"4194303 {here}")
        with hold_collections(box.open()):
            assert file.read_text() == f"{os.getpid()} {here} relay", left
        assert not list((box.root / ".git").glob("gc.pid*"))
    claim.write_text("")  # a git's, which keeps others out
    os.utime(claim, (0, 0))
    with hold_collections(box.open()):
        assert (
            b"gc.pid.lock"
            in subprocess.run(["git", "gc"], cwd=box.root, env=box.environ, check=False, capture_output=True).stderr
        )
    assert claim.exists()
    claim.write_text(f"4194303 {here}")
    assert clear_stale_locks(box.open()) == ()
    assert not claim.exists()


def end(process):
    process.kill()
    process.wait()


def test_a_collection_under_way_is_waited_for_and_another_machine_s_is_left_alone(box, monkeypatch):
    file = box.root / ".git/gc.pid"
    with subprocess.Popen(["sleep", "600"]) as other:
        file.write_text(f"{other.pid} {os.uname().nodename}")
        timer = threading.Timer(0.3, end, [other])
        timer.start()
        with hold_collections(box.open()):
            assert file.read_text().startswith(f"{os.getpid()} ")
    monkeypatch.setattr(lock_journal, "_LONGEST_S", 0)
    for holder in ("1 elsewhere", f"1 {os.uname().nodename}"):
        file.write_text(holder)
        with hold_collections(box.open()):
            assert file.read_text() == holder
        assert file.read_text() == holder
    os.utime(file, (0, 0))  # its time is over
    with hold_collections(box.open()):
        assert file.read_text().startswith(f"{os.getpid()} ")


def test_relays_that_store_in_one_repository_wait_for_each_other(box):
    """Else the first that is done would let collections in under the other."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom relay.git.lock_journal import hold_collections\n"
        "from relay.git.repository import open_repo\n"
        "with hold_collections(open_repo(Path(sys.argv[1]))):\n    print(flush=True)\n    input()\n"
    )
    command, pipe = [sys.executable, "-c", code, box.root], subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as other:
        assert other.stdout
        assert other.stdout.readline() == "\n"
        timer = threading.Timer(0.3, other.kill)  # and nobody asks for its end
        timer.start()
        with hold_collections(box.open()):
            assert (box.root / ".git/gc.pid").read_text().startswith(f"{os.getpid()} ")


def test_what_is_collected_while_a_hook_is_at_work_is_not_committed_half(box, tmp_path):
    """A hook may take minutes, and the user may collect: a commit whose file git has lost is not made."""
    hook = box.write(".git/hooks/pre-commit", "#!/bin/sh\n")
    hook.chmod(0o755)
    box.write(".gitattributes", "*.txt text\n")
    repo, head = box.open(), box.commit("attributes")
    box.write("new.txt", "one\r\ntwo\r\n")

    def run(_):
        collect(box)
        return HookResult(ok=True)

    request = CommitRequest(branch="main", head=head, message=Message(subject="s"), paths=("new.txt",))
    with pytest.raises(GitError):
        commit_paths(repo, request, hooks=Hooks(run=run, scratch=tmp_path / "scratch"))
    assert box.text("rev-parse", "HEAD") == head
    assert commit_paths(repo, request).end is CommitEnd.COMMITTED
    assert box.tree("HEAD")["new.txt"] == b"one\ntwo\n"


@pytest.mark.parametrize("rev", ["%s", "%s^{tree}", "%s:work.txt"])
def test_the_newest_whole_snapshot_is_found(box, rev):
    repo, (_, _, second, third) = make_snapshots(box)
    lose(box, box.text("rev-parse", rev % third.last_wip.commit))
    if rev == "%s":
        with pytest.raises(RepoError, match="cannot be read") as error:
            read_attempt(repo)
        assert "whole" in str(error.value.hint)
    (words,) = repair_refs(repo)
    assert words.startswith("refs/relay/wip/main/000001 named")
    assert read_attempt(repo) == second
    assert (box.root / "work.txt").read_text() == "2\n"


def test_a_ref_that_a_power_cut_emptied_is_put_aside_and_found_again(box):
    """Git neither reads nor drops it, so that every run would end there."""
    repo, (*_, attempt) = make_snapshots(box)
    (box.root / ".git/refs/relay/leg/other.lock").write_bytes(b"")
    for ref, data in product(("leg/main", "wip/main/000001"), (b"", b"\0" * 41, b"93")):
        (box.root / ".git/refs/relay" / ref).write_bytes(data)
        (words,) = repair_refs(repo)
        assert words.startswith(f"refs/relay/{ref} held no id")
        assert read_attempt(repo) == attempt, (ref, data)
        (kept,) = (box.root / ".git/relay").glob("broken-*")
        assert kept.read_bytes() == data
        kept.unlink()
        assert repair_refs(repo) == ()


def test_a_broken_ref_of_another_kind_is_put_aside(box):
    repo, (*_, attempt) = make_snapshots(box)
    file = box.root / ".git/refs/relay/spent/main/000001"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"")
    (words,) = repair_refs(repo)
    assert "its file is" in words
    assert not file.exists()
    assert read_attempt(repo) == attempt


def test_a_attempt_without_a_whole_snapshot_has_none(box):
    repo, (opened, first) = make_snapshots(box, 1)
    lose(box, first.last_wip.commit)
    assert "it is gone" in repair_refs(repo)[0]
    assert read_attempt(repo) == opened


def test_a_lost_attempt_is_the_one_that_its_snapshots_name(box):
    repo, (*_, attempt) = make_snapshots(box)
    lost = box.text("commit-tree", "HEAD^{tree}", "-m", "relay: phase 1 goes on")
    box.git("update-ref", "refs/relay/leg/main", lost)
    lose(box, lost)
    assert len(repair_refs(repo)) == 1
    assert read_attempt(repo) == attempt


def test_what_is_not_relay_s_to_find_is_named(box):
    repo = box.open()
    lost = box.text("commit-tree", "HEAD^{tree}", "-m", "tip")
    box.git("update-ref", "refs/relay/rewound/main/000001", lost)
    lose(box, lost)
    (words,) = repair_refs(repo)
    assert "git update-ref -d refs/relay/rewound/main/000001" in words
    box.git("update-ref", "-d", "refs/relay/rewound/main/000001")

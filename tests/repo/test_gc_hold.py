"""What ``git gc --prune=now`` may take, and what relay does where something was taken."""

import os

import pytest

from relay.base.errors import RepoError
from relay.git.lock_journal import claim_collections, hold_collections
from relay.session.usage import Spent, Usage
from relay.store.attempts import AttemptStart, open_attempt, read_attempt
from relay.store.checkpoints import WipRecord, repair_refs, save_wip

START = AttemptStart(session_id="s-1", phase_id="1", plan_path="PLAN.md")


def collect(box):
    """Collect as the user would in another terminal; git refuses where somebody is at it."""
    box.git("gc", "-q", "--prune=now", check=False)


def make_snapshots(box, count=3):
    """Return the repository, and the attempt after each of its snapshots."""
    repo = box.open()
    with hold_collections(repo):
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
    with hold_collections(repo):
        blob = box.text("hash-object", "-w", "--stdin")
        collect(box)
        assert box.text("cat-file", "-t", blob) == "blob"
    collect(box)
    assert not box.git("cat-file", "-t", blob, check=False)
    assert not (box.root / ".git/gc.pid").exists()


@pytest.mark.parametrize("left", ["0 here", "4194303 here", "-1 here", "x", ""])
def test_what_a_killed_process_left_keeps_nobody_out(box, left):
    file = box.root / ".git/gc.pid"
    file.write_text(left.replace("here", os.uname().nodename))
    assert claim_collections(box.open())
    assert file.read_text() == f"{os.getpid()} {os.uname().nodename}"


@pytest.mark.parametrize("holder", ["1 here", "1 elsewhere"])
def test_a_collection_under_way_is_left_alone_until_its_time_is_over(box, holder):
    file = box.root / ".git/gc.pid"
    file.write_text(holder.replace("here", os.uname().nodename))
    with hold_collections(box.open()):
        assert file.read_text().startswith("1 ")
    assert file.exists()
    os.utime(file, (0, 0))
    with hold_collections(box.open()):
        assert not file.read_text().startswith("1 ")


def test_a_link_in_its_place_is_not_followed(box, tmp_path):
    (tmp_path / "aim").write_text("kept")
    (box.root / ".git/gc.pid").symlink_to(tmp_path / "aim")
    assert claim_collections(box.open())
    assert (tmp_path / "aim").read_text() == "kept"


def test_what_is_whole_is_left_as_it_is(box):
    repo, (*_, attempt) = make_snapshots(box)
    box.git("gc", "-q")
    assert repair_refs(repo) == ()
    assert read_attempt(repo) == attempt


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


@pytest.mark.parametrize("data", [b"", b"\0" * 41, b"93"])
@pytest.mark.parametrize("ref", ["leg/main", "wip/main/000001"])
def test_a_ref_that_a_power_cut_emptied_is_put_aside_and_found_again(box, ref, data):
    """Git neither reads nor drops it, so that every run would end there."""
    repo, (*_, attempt) = make_snapshots(box)
    file = box.root / ".git/refs/relay" / ref
    file.write_bytes(data)
    (box.root / ".git/refs/relay/leg/other.lock").write_bytes(b"")
    (words,) = repair_refs(repo)
    assert words.startswith(f"refs/relay/{ref} held no id")
    assert read_attempt(repo) == attempt
    (kept,) = (box.root / ".git/relay").glob("broken-*")
    assert kept.read_bytes() == data
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

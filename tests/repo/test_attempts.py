"""What relay keeps under refs/relay/."""

import os
import shutil
from dataclasses import replace

import pytest
from msgspec import structs

from relay.base.errors import RepoError
from relay.git.command import GitError
from relay.git.message import read_text
from relay.git.objects import find_blob_id
from relay.git.status import ChangeKind, PathChange
from relay.session.usage import Spent, Usage
from relay.session.values import SessionEnd
from relay.store import snapshot
from relay.store.attempts import (
    AttemptStart,
    close_attempt,
    continue_attempt,
    drop_spent,
    find_attempt_changes,
    find_brought_paths,
    find_repeated_error,
    find_spent,
    is_refunded,
    make_ending,
    note_spent,
    open_attempt,
    read_attempt,
    render_skipped,
    select_owned,
)
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.ref_notes import Carried, Course, Ending, read_notes
from relay.store.snapshot import Skipped, write_snapshot_tree
from relay.store.spend import (
    PlanningRecord,
    drop_plan_usage,
    read_plan_usage,
    read_written_plan,
    save_plan_usage,
    save_rejected_plan,
)
from relay.store.worktree_notes import Brought, save_brought


def given(value):
    """Return `value`, which must not be None."""
    assert value is not None
    return value


START = AttemptStart(session_id="s-1", phase_id="2", plan_path="docs/PLAN.md", course=Course(tries=3))


def spend(tokens=10, cost=0.25):
    return Spent(usage=Usage(input_tokens=tokens, output_tokens=1), cost_usd=cost)


def test_a_second_attempt_is_refused_and_a_closed_one_is_gone(box):
    repo = box.open()
    attempt = open_attempt(repo, START)
    with pytest.raises(RepoError, match="an attempt is open"):
        open_attempt(repo, replace(START, session_id="s-2"))
    assert close_attempt(repo, attempt)
    assert read_attempt(repo) is None
    assert not close_attempt(repo, attempt)
    assert open_attempt(repo, START).wip_ref == "refs/relay/wip/main/000001"


def test_snapshots_form_one_chain_for_each_attempt(box):
    repo = box.open()
    attempt = open_attempt(repo, START)
    box.write("src/app.py", "1\n")
    first = save_wip(repo, attempt, WipRecord(spend=spend(), items=("2.1",)))
    box.write("src/app.py", "2\n")
    second = save_wip(
        repo,
        first,
        WipRecord(spend=spend(20), items=("2.1", "2.2"), handoff_note="next:\n\n- do"),
    )
    assert read_attempt(repo) == second
    assert second.handoff_note == "next:\n\n- do"
    assert box.text("rev-parse", f"{attempt.wip_ref}~1", f"{attempt.wip_ref}~2").split() == [
        given(first.last_wip).commit,
        attempt.commit,
    ]
    assert box.tree(attempt.wip_ref)["src/app.py"] == b"2\n"
    close_attempt(repo, second)
    other = save_wip(repo, open_attempt(repo, START), WipRecord(spend=Spent(cost_usd=None)))
    assert box.text("for-each-ref", "--format=%(refname)", "refs/relay/wip").split() == [attempt.wip_ref, other.wip_ref]
    assert other.spend == Spent(cost_usd=None)


def test_a_snapshot_that_says_nothing_new_is_none_where_the_cost_is_noted(box):
    repo, same = box.open(), WipRecord(spend=spend(20), items=("2.1",), handoff_note="next")
    evidence = Carried(evidence={"2.1": "it runs"})  # kept by each further one
    attempt = open_attempt(repo, replace(START, session_id="s1"))
    attempt = save_wip(repo, attempt, replace(same, spend=spend(), carried=evidence))
    first = save_wip(repo, attempt, same)
    assert given(first.last_wip).commit != given(attempt.last_wip).commit  # nobody else knows the cost
    note_spent(repo, "s1", spend(30), synced=True)
    assert given(save_wip(repo, first, same).last_wip).commit == given(first.last_wip).commit
    assert given(read_attempt(repo)).spend == spend(30)
    for news in (
        {"items": ()},
        {"handoff_note": ""},
        {"carried": Carried(said=("no",))},
        {"replace": {"src/app.py": b"2\n"}},
    ):
        then = save_wip(repo, first, replace(same, **news))
        assert given(then.last_wip).commit != given(first.last_wip).commit, news
        first = save_wip(repo, then, same)
    box.write("more", "3\n")
    assert given(save_wip(repo, first, same).last_wip).commit != given(first.last_wip).commit


def test_a_snapshot_of_which_an_object_cannot_be_stored_is_none(box):
    """The ref stays where it was, nobody holds its lock, and what was written beside is gone."""
    repo = box.open()
    first = save_wip(repo, open_attempt(repo, START), WipRecord(spend=spend()))
    box.write("src/app.py", "refused\n")
    blob = find_blob_id(repo, b"refused\n")
    obstacle = repo.objects_dir / blob[:2] / blob[2:]
    (obstacle / "full").mkdir(parents=True)
    with pytest.raises(GitError, match="an object cannot be stored"):
        save_wip(repo, first, WipRecord(spend=spend()))
    assert read_attempt(repo) == first
    ref = repo.common_dir / first.wip_ref
    assert list(ref.parent.iterdir()) == [ref]
    assert list(repo.objects_dir.glob("*/tmp_obj_*")) == []
    shutil.rmtree(obstacle)
    second = save_wip(repo, first, WipRecord(spend=spend()))
    assert box.tree(second.wip_ref)["src/app.py"] == b"refused\n"


def test_two_relays_on_one_attempt_do_not_overwrite_each_other(box):
    repo = box.open()
    attempt = open_attempt(repo, START)
    save_wip(repo, attempt, WipRecord(spend=spend()))
    box.write("more")
    with pytest.raises(RepoError, match="moved by somebody else"):
        save_wip(repo, attempt, WipRecord(spend=spend()))


def test_an_unborn_branch_has_attempts(new_box):
    box = new_box()
    box.write("PLAN.md", "# plan")
    repo = box.open()
    attempt = open_attempt(repo, START)
    assert (attempt.base_head, box.tree(attempt.commit)) == (None, {"PLAN.md": b"# plan"})
    assert read_attempt(repo) == attempt
    box.write("a.py", "1")
    now = save_wip(repo, attempt, WipRecord(spend=spend()))
    assert [c.path for c in find_attempt_changes(repo, now, given(now.last_wip))] == ["a.py"]
    box.fsck()


def test_hostile_text_cannot_forge_notes(box):
    repo = box.open()
    evil = '1.1"}\n\n{"cost": "0.00 USD", "session": "other"}'
    start = AttemptStart(session_id=evil, phase_id=evil, plan_path="a\nb\udcff.md")
    attempt = open_attempt(repo, start)
    assert (attempt.base_head, attempt.plan_path) == (repo.head(), "a\nb\udcff.md")
    attempt = save_wip(repo, attempt, WipRecord(spend=spend(cost=9.0), items=(evil,), handoff_note=evil))
    assert attempt == read_attempt(repo)
    assert (attempt.spend.cost_usd, attempt.session_id, attempt.handoff_note) == (9.0, evil, evil)


def test_the_attempt_s_changes_are_the_difference_to_its_start(box):
    repo = box.open()
    box.write("user-new.txt", "user")
    box.write("src/old.py", "user's edit\n")
    attempt = open_attempt(repo, START)
    box.write("src/app.py", "attempt\n")
    box.write("attempt-new.txt", "attempt")
    now = write_snapshot_tree(repo, replace={"PLAN.md": b"ticked"})
    assert [c.path for c in find_attempt_changes(repo, attempt, now)] == ["attempt-new.txt", "src/app.py"]


def test_what_is_too_large_at_either_end_is_no_change(box):
    """A user's huge file that shrinks would look like a new file, and one that grows like a deletion."""
    repo, huge, growing = box.open(), box.root / "huge\n.bin", box.root / "growing.bin"
    for file in (huge, growing):
        file.write_bytes(b"small")
    os.truncate(huge, snapshot.MAX_UNTRACKED_BYTES + 1)
    attempt = open_attempt(repo, START)
    huge.write_bytes(b"small")
    os.truncate(growing, snapshot.MAX_UNTRACKED_BYTES + 1)
    assert [s.path for s in given(read_attempt(repo)).skipped] == ["huge\n.bin"]
    assert find_attempt_changes(repo, attempt, write_snapshot_tree(repo)) == ()


@pytest.mark.parametrize("when", ["before", "after"])
def test_of_a_crowded_directory_only_untracked_files_are_left_out(box, when):
    """Snapshots hold the tracked ones, so what a command does to them is the attempt's."""
    repo = box.open()
    box.write("src/user.txt", "the user's")
    attempt = open_attempt(repo, START)
    box.write("src/app.py", "edited\n")
    (box.root / "src/old.py").unlink()
    (box.root / "src/user.txt").unlink()
    box.write("src/generated.txt", "1 of 6,210")
    crowd, now = (Skipped(path="src", reason="6,210 untracked files"),), write_snapshot_tree(repo)
    if when == "before":
        attempt = replace(attempt, begun=structs.replace(attempt.begun, skipped=render_skipped(crowd)))
    else:
        now = replace(now, skipped=crowd)
    assert [change.path for change in find_attempt_changes(repo, attempt, now)] == ["src/app.py", "src/old.py"]


def test_what_planning_cost_waits_for_its_commit(box):
    repo = box.open()
    assert read_plan_usage(repo) is None
    record = PlanningRecord(plan_path="docs/PLAN.md", session_id="p-1", spend=spend())
    save_plan_usage(repo, record, b"# one")
    again = PlanningRecord(plan_path="docs/PLAN.md", session_id="p-2", spend=spend(30, 0.75))
    save_plan_usage(repo, again, b"# two")
    assert read_plan_usage(repo) == again
    assert box.tree("refs/relay/written/main") == {"docs/PLAN.md": b"# two"}
    assert box.tree("refs/relay/written/main^") == {"docs/PLAN.md": b"# one"}
    drop_plan_usage(repo, again)
    assert read_plan_usage(repo) is None


def test_a_written_plan_goes_along_to_a_new_branch(box):
    """The user takes the file along; it waits nowhere else once HEAD has moved."""
    repo = box.open()
    record = PlanningRecord(plan_path="PLAN.md", session_id="p-1", spend=spend())
    save_plan_usage(repo, record, b"# one")
    box.git("switch", "-qc", "feature")
    assert read_plan_usage(repo) == record
    assert read_written_plan(repo, "PLAN.md") == b"# one"
    box.git("commit", "-q", "--allow-empty", "-m", "the plan")
    assert read_plan_usage(repo) is None
    drop_plan_usage(repo, record)
    assert box.git("for-each-ref", "refs/relay/written") in ("", b"", None)


def test_rejected_plans_are_kept(box):
    repo = box.open()
    one = PlanningRecord(plan_path="PLAN.md", session_id="p-1", spend=spend())
    two = PlanningRecord(plan_path="PLAN.md", session_id="p-2", spend=Spent())
    assert save_rejected_plan(repo, one, b"bad") == "refs/relay/aside/main/000001"
    save_rejected_plan(repo, two, b"worse")
    assert box.tree("refs/relay/aside/main/000001") == {"PLAN.md": b"bad"}
    assert box.tree("refs/relay/aside/main/000002") == {"PLAN.md": b"worse"}
    assert given(read_notes(read_text(repo, "refs/relay/aside/main/000001"))).session == "p-1"


def test_another_session_goes_on_with_an_open_attempt(box):
    repo = box.open()
    box.write("user.txt", "user")
    attempt = open_attempt(repo, replace(START, carried=Carried(said=("one",))))
    record = WipRecord(spend=spend(), items=("2.1",), handoff_note="go on", carried=Carried(said=("two",)))
    attempt = save_wip(repo, attempt, record)
    box.write("later.txt", "the attempt's")
    now = continue_attempt(repo, attempt, replace(START, session_id="s-2", carried=Carried(said=("three",))))
    assert read_attempt(repo) == now
    assert now.session_id == "s-2"
    assert now.carried.said == ("one", "two", "three")
    for name in ("base_tree", "base_head", "spend", "items", "handoff_note", "last_wip", "author"):
        assert getattr(now, name) == getattr(attempt, name), name
    assert [c.path for c in find_attempt_changes(repo, now, write_snapshot_tree(repo))] == ["later.txt"]
    with pytest.raises(RepoError, match="changed by somebody else"):
        continue_attempt(repo, attempt, START)


def test_what_an_attempt_cost_is_added_up_over_its_sessions(box):
    """A session's note goes when something lasting says as much, and a checkpoint from before says less."""
    repo = box.open()
    save_wip(repo, open_attempt(repo, replace(START, session_id="s1")), WipRecord(spend=spend(10)))
    note_spent(repo, "s1", spend(30), synced=True)
    continue_attempt(repo, given(read_attempt(repo)), replace(START, session_id="s2"))
    assert (given(read_attempt(repo)).spend, find_spent(repo, "s1")) == (spend(30), None)
    note_spent(repo, "s2", spend(5), synced=True)
    attempt = given(read_attempt(repo))
    assert attempt.spend == spend(30) + spend(5)
    assert close_attempt(repo, attempt)
    assert find_spent(repo, "s2") is None


def test_sessions_in_a_row_with_the_same_error_are_counted(box):
    """Each once, however many checkpoints repeat its words; one that met a limit neither counts nor ends it."""
    repo = box.open()
    close_attempt(repo, attempt := open_attempt(repo, START))
    wips = iter(range(100))

    def end(session, error, *, item="2.1", end=SessionEnd.FINISHED):
        nonlocal attempt
        attempt = continue_attempt(repo, attempt, replace(START, session_id=session))
        for _ in range(2):
            box.write("src/app.py", str(next(wips)))
            attempt = save_wip(repo, attempt, WipRecord(spend=spend(), ending=make_ending(end, item=item, error=error)))
        return find_repeated_error(repo, attempt)

    attempt = open_attempt(repo, START)
    assert find_repeated_error(repo, attempt) == (0, "")
    assert end("s1", "line 3: no table") == (1, "2.1: line 3: no table")
    assert end("s2", "line 4: no table") == (2, "2.1: line 4: no table")
    assert end("s3", "", end=SessionEnd.LIMIT)[0] == 2
    assert end("s4", "line 5: no table") == (3, "2.1: line 5: no table")
    assert end("s5", "line 5: no table", item="2.2")[0] == 1
    assert end("s6", "line 5: no row", item="2.2")[0] == 1
    assert end("s7", "") == (0, "")
    assert end("s8", "line 5: no row", item="2.2")[0] == 1


def test_of_an_attempt_s_changes_a_commit_takes_only_its_own(box):
    """Not the plan and its ledger, by either name; no submodule, and nothing that the user has ignored."""
    repo = box.open()
    save_brought(repo, Brought(copies={"brought": ("", "")}, lent=()))
    box.write("brought/users")
    brought = find_brought_paths(repo, ["brought/users", "brought/own", "own"])
    names = ("PLAN.md", "PLAN.ledger.yaml", "docs/PLAN.md", "docs/PLAN.ledger.yaml", "own", "brought/users", "module")
    changes = [
        PathChange(path=name, kind=ChangeKind.ADDED, mode="160000" if name == "module" else "100644") for name in names
    ]
    assert brought == {"brought/users"}
    assert select_owned("PLAN.md", open_attempt(repo, START), changes, brought) == ("own",)


@pytest.mark.parametrize(
    ("end", "note", "is_fault"),
    [("", "", False), (SessionEnd.LIMIT, "go on", False), (SessionEnd.FINISHED, "go on", True)],
)
def test_a_session_that_was_killed_or_limited_is_refunded(box, end, note, is_fault):
    repo = box.open()
    record = WipRecord(spend=spend(), handoff_note=note, ending=Ending(end=end))
    assert is_refunded(save_wip(repo, open_attempt(repo, START), record)) == (not is_fault)


def test_a_note_of_cost_that_is_cut_off_counts_as_the_one_before(box):
    """Whatever a full disk or a power cut leaves of the last line."""
    repo, spent = box.open(), Spent(usage=Usage(input_tokens=5, output_tokens=7), cost_usd=0.25)
    note_spent(repo, "0badcafe", spent, synced=True)
    file = repo.common_dir / "relay/spent/0badcafe"
    whole = file.read_bytes()
    for end in range(len(whole)):
        file.write_bytes(whole + whole[:end])
        assert find_spent(repo, "0badcafe") == spent, end
        note_spent(repo, "0badcafe", Spent(cost_usd=None), synced=False)
        assert find_spent(repo, "0badcafe") == Spent(cost_usd=None), end
    drop_spent(repo, "0badcafe")  # it is recorded now, and not noted again
    with pytest.raises(FileNotFoundError):
        note_spent(repo, "0badcafe", Spent(), synced=False)
    for name in ("0badcafe", "", "..", "a/b", "x" * 65):  # an id stands in a commit that anybody may have made
        assert find_spent(repo, name) is None
        drop_spent(repo, name)
    with pytest.raises(OSError, match="not a session"):
        note_spent(repo, "..", Spent(), synced=True)

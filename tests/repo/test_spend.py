"""Cost that no commit on the branch records: each session counts once, wherever it is noted."""

from dataclasses import replace

import pytest

from relay.session.usage import Spent, Usage
from relay.store import spend
from relay.store.attempts import AttemptStart, find_spent, note_spent, open_attempt, read_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.plan_state import read_plan_cost
from relay.store.spend import (
    PlanningRecord,
    begin_planning,
    find_phase_cost,
    give_up_attempt,
    keeping_spent,
    read_plan_usage,
    read_written_plan,
    save_plan_usage,
)
from tests.repo.test_history import record

START = AttemptStart(session_id="s1", phase_id="1", plan_path="PLAN.md")
PAID = "Relay-Session: {}\nRelay-Usage: input=1 output=0 cache_read=0 cache_write=0\nRelay-Cost: {} USD\n"


def usd(cost):
    return Spent(usage=Usage(input_tokens=1), cost_usd=cost)


def begin(repo, session, cost, **given):
    """Open an attempt that has spent something."""
    return save_wip(repo, open_attempt(repo, replace(START, session_id=session, **given)), WipRecord(spend=usd(cost)))


def ask(box, plan="PLAN.md"):
    return read_plan_cost(box.open(), plan).spent.cost_usd


def kill_giving_up(repo, attempt):
    """Give it up, as far as relay comes before it is killed."""
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(spend, "close_attempt", lambda *_: None)
        give_up_attempt(repo, attempt)


def test_an_attempt_that_is_given_up_counts_once(box):
    """Also where relay is killed in the midst of it. Of one that has spent nothing there is no record."""
    repo = box.open()
    give_up_attempt(repo, open_attempt(repo, START))
    assert not repo.list_refs("refs/relay/spent/")
    attempt = begin(repo, "s1", 0.5)
    for give_up in (kill_giving_up, give_up_attempt):
        give_up(repo, attempt)
        assert ask(box) == 0.5
        assert len(repo.list_refs("refs/relay/spent/")) == 1
    assert read_attempt(repo) is None


def test_what_is_open_on_another_branch_counts_until_its_commit_is_here(box):
    """Of this plan alone: neither another file's nor one that the file held before."""
    repo = box.open()
    box.git("switch", "-qc", "before")
    begin(repo, "s1", 8.0)
    box.git("switch", "-q", "main")
    box.write("PLAN.md", "# Other\n\n## Phase 1 — Else\n- [ ] Sing\n")
    box.commit("another plan")
    for branch, session, plan in (("one", "s2", "PLAN.md"), ("two", "s3", "OTHER.md")):
        box.git("switch", "-qc", branch)
        begin(repo, session, 1.0, plan_path=plan)
        box.git("switch", "-q", "main")
    assert ask(box) == 1.0
    box.git("switch", "-q", "one")
    kill_giving_up(repo, read_attempt(repo))
    box.git("switch", "-q", "main")
    assert ask(box) == 1.0
    record(box, extra=PAID.format("s2", 1.25))
    assert ask(box) == 1.25


def test_a_renamed_plan_keeps_what_was_given_up_under_its_old_name(box):
    repo = box.open()
    record(box, extra=PAID.format("s1", 0.5))
    give_up_attempt(repo, begin(repo, "s2", 0.25))
    box.git("mv", "PLAN.md", "NEW.md")
    box.commit("rename")
    assert ask(box, "NEW.md") == 0.75


def test_planning_counts_until_its_commit_is_here(box):
    """For its own plan; of two branches at one commit, each has its own."""
    save_plan_usage(repo := box.open(), PlanningRecord(plan_path="PLAN.md", session_id="p1", spend=usd(0.5)), b"")
    assert (ask(box), ask(box, "OTHER.md")) == (0.5, 0.0)
    box.git("switch", "-qc", "zone")
    save_plan_usage(repo, PlanningRecord(plan_path="PLAN.md", session_id="p2", spend=usd(2.0)), b"")
    assert ask(box) == 2.0
    box.git("switch", "-q", "main")
    record(box, status="planned", extra=PAID.format("p1", 0.5))
    assert ask(box) == 0.5


def test_planning_again_adds_to_what_the_plan_has_cost(box):
    """And keeps its text; a session that plans something else begins at nothing."""
    repo = box.open()
    begin_planning(repo, "PLAN.md", "p1")
    note_spent(repo, "p1", usd(0.5), synced=True)
    save_plan_usage(repo, PlanningRecord(plan_path="PLAN.md", session_id="p1", spend=usd(0.5)), b"# one")
    assert begin_planning(repo, "PLAN.md", "p2").spend == usd(0.5)
    assert find_spent(repo, "p1") is None
    note_spent(repo, "p2", usd(0.25), synced=True)
    planning = read_plan_usage(repo)
    assert planning is not None
    assert planning.spend == usd(0.5) + usd(0.25)
    assert read_written_plan(repo, "PLAN.md") == b"# one"
    assert begin_planning(repo, "OTHER.md", "p3").spend == Spent()
    assert read_written_plan(repo, "OTHER.md") == b""


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_session_beside_the_phases_is_paid_by_its_plan(box, is_killed):
    repo = box.open()
    kept = keeping_spent(repo, "PLAN.md", "s1", lambda: usd(0.75))
    kept.__enter__()
    note_spent(repo, "s1", usd(0.5), synced=True)
    assert ask(box) == 0.5
    if not is_killed:
        kept.__exit__(None, None, None)
        assert (ask(box), find_spent(repo, "s1")) == (0.75, None)


def test_a_phase_has_cost_its_commits_its_attempt_and_what_was_given_up(box):
    repo, start = box.open(), box.text("rev-parse", "HEAD")
    record(box, phase="2", extra=PAID.format("s1", 16.0))
    record(box, status="handoff", extra=PAID.format("s2", 1.0))
    give_up_attempt(repo, begin(repo, "s3", 2.0))
    assert find_phase_cost(repo, "PLAN.md", "main", "1", start) == usd(1.0) + usd(2.0)
    begin(repo, "s4", 4.0)
    assert find_phase_cost(repo, "PLAN.md", "main", "1", start).cost_usd == 7.0
    record(box, extra=PAID.format("s4", 4.0))  # killed right behind its commit
    assert find_phase_cost(repo, "PLAN.md", "main", "1", start).cost_usd == 7.0

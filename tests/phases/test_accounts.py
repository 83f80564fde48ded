"""What a job's run may have cost, killed or not."""

from functools import partial

import pytest

from relay.run.phases.jobs import Held, Working
from relay.run.phases.landing import Job
from relay.session.usage import Spent, Usage
from relay.store.attempts import AttemptStart, note_spent, open_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.ref_notes import Carried
from relay.store.spend import find_phase_cost


def spend(usd, tokens=10):
    return Spent(usage=Usage(input_tokens=tokens), cost_usd=usd)


@pytest.fixture
def repo(box):
    box.write("PLAN.md", "# One\n\n## Phase 1\n- [ ] Do it\n")
    box.commit("plan")
    return box.open()


def begin(repo, **given):
    return open_attempt(repo, AttemptStart(session_id="aa", phase_id="1", plan_path="PLAN.md", **given))


def work(repo):
    """Return a run that has just begun."""
    read = partial(find_phase_cost, repo, "PLAN.md", "main", "1", repo.head())
    job = Job(phase_id="1", plan_path="PLAN.md", repo=repo)
    return Working(job=job, held=Held(), child=None, merges="", has_all=False, read_cost=read, before=read())


def test_what_was_noted_before_the_last_request_counts(repo):
    """And nothing that an earlier run had spent."""
    save_wip(repo, begin(repo), WipRecord(spend=spend(0.25)))
    working = work(repo)
    assert working.find_cost() == (0.0, 0)
    note_spent(repo, "aa", spend(1.0, 40), synced=True)
    assert working.find_cost() == (pytest.approx(0.75), 30)


def test_what_it_committed_counts_but_not_what_it_landed(box, repo):
    """The commit that a landing brings has a cost of its own, which is paid already."""
    other = box.text("commit-tree", "-p", "HEAD", "-m", MESSAGE.format(usd=5), "HEAD^{tree}")
    begin(repo, onto=repo.head(), carried=Carried(merges=other))
    working = work(repo)
    merge = box.text("commit-tree", "-p", "HEAD", "-p", other, "-m", MESSAGE.format(usd=0.5), "HEAD^{tree}")
    box.git("update-ref", "HEAD", merge)
    assert working.find_cost()[0] == pytest.approx(0.5)


def test_a_run_that_was_killed_right_behind_its_commit_has_cost_that_commit(box, repo):
    """Its attempt is still open."""
    working = work(repo)
    save_wip(repo, begin(repo), WipRecord(spend=spend(0.5)))
    message = MESSAGE.format(usd=0.5) + "Relay-Session: aa\n"
    box.git("update-ref", "HEAD", box.text("commit-tree", "-p", "HEAD", "-m", message, "HEAD^{tree}"))
    assert working.find_cost()[0] == pytest.approx(0.5)


def test_an_unknown_cost_stays_unknown(repo):
    attempt = begin(repo)
    working = work(repo)
    save_wip(repo, attempt, WipRecord(spend=spend(None)))
    assert working.find_cost() == (None, 10)


MESSAGE = """\
phase 1

Relay-Plan: PLAN.md
Relay-Phase: 1
Relay-Status: done
Relay-Usage: input=10 output=0 cache_read=0 cache_write=0
Relay-Cost: {usd:.6f} USD
"""

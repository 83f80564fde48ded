"""What a job's run that was killed may have spent."""

import pytest

from relay.run.phases.jobs import find_job_cost, open_account
from relay.run.phases.landing import Job
from relay.session.usage import Spent, Usage
from relay.store.attempts import AttemptStart, note_spent, open_attempt
from relay.store.checkpoints import WipRecord, save_wip


def spend(usd, tokens=10):
    return Spent(usage=Usage(input_tokens=tokens), cost_usd=usd)


@pytest.fixture
def job(box):
    box.write("PLAN.md", "# One\n\n## Phase 1\n- [ ] Do it\n")
    box.commit("plan")
    return Job(phase_id="1", plan_path="PLAN.md", repo=box.open())


def test_what_was_noted_before_the_last_request_counts(job):
    """And nothing that an earlier run had spent."""
    attempt = open_attempt(job.repo, AttemptStart(session_id="aa", phase_id="1", plan_path="PLAN.md"))
    save_wip(job.repo, attempt, WipRecord(spend=spend(0.25)))
    account = open_account(job.repo, job, "")
    assert find_job_cost(account) == (0.0, 0)
    note_spent(job.repo, "aa", spend(1.0, 40), synced=True)
    usd, tokens = find_job_cost(account)
    assert usd == pytest.approx(0.75)
    assert tokens == 30


def test_what_it_committed_counts_but_not_what_it_landed(box, job):
    """The commit that a landing brings has a cost of its own, which is paid already."""
    other = box.text("commit-tree", "-p", "HEAD", "-m", MESSAGE.format(usd=5), "HEAD^{tree}")
    account = open_account(job.repo, job, other)
    merge = box.text("commit-tree", "-p", "HEAD", "-p", other, "-m", MESSAGE.format(usd=0.5), "HEAD^{tree}")
    box.git("update-ref", "HEAD", merge)
    usd, _ = find_job_cost(account)
    assert usd == pytest.approx(0.5)


def test_a_run_that_was_killed_right_behind_its_commit_has_cost_that_commit(box, job):
    """Its attempt is still open."""
    account = open_account(job.repo, job, "")
    attempt = open_attempt(job.repo, AttemptStart(session_id="aa", phase_id="1", plan_path="PLAN.md"))
    save_wip(job.repo, attempt, WipRecord(spend=spend(0.5)))
    message = MESSAGE.format(usd=0.5) + "Relay-Session: aa\n"
    box.git("update-ref", "HEAD", box.text("commit-tree", "-p", "HEAD", "-m", message, "HEAD^{tree}"))
    usd, _ = find_job_cost(account)
    assert usd == pytest.approx(0.5)


def test_an_unknown_cost_stays_unknown(job):
    attempt = open_attempt(job.repo, AttemptStart(session_id="aa", phase_id="1", plan_path="PLAN.md"))
    account = open_account(job.repo, job, "")
    save_wip(job.repo, attempt, WipRecord(spend=spend(None)))
    assert find_job_cost(account) == (None, 10)


MESSAGE = """\
phase 1

Relay-Plan: PLAN.md
Relay-Phase: 1
Relay-Status: done
Relay-Usage: input=10 output=0 cache_read=0 cache_write=0
Relay-Cost: {usd:.6f} USD
"""

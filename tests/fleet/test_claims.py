"""Claims against a real bare repository: who wins, what is reserved, what a lost worker leaves."""

import contextlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from relay.fleet.claims import (
    Bid,
    ClaimRegistry,
    ClaimState,
    NotTaken,
    PhaseClaim,
    describe_claim,
    is_at_work,
    name_plan,
)
from relay.fleet.exchange import save_noted
from relay.git.message import Message
from relay.git.objects import write_commit
from relay.git.remote import RefUpdate, Remote, RemoteError
from relay.git.repository import open_repo
from relay.git.trees import find_tree
from relay.store.attempts import find_spent

PLAN = name_plan("main", "PLAN.md")


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registries(stage, tmp_path, clock):
    """Return a function that makes the registry of one more worker, each with a clone of its own."""
    away = tmp_path / "away.git"
    stage.git("clone", "-q", "--bare", str(stage.root), str(away))

    def make(worker):
        place = tmp_path / worker
        stage.git("clone", "-q", str(away), str(place))
        repo = open_repo(place)
        remote = Remote(repo=repo, name="origin", environ=os.environ)
        return ClaimRegistry(remote=remote, plan_key=PLAN, worker=worker, lease_s=60, now=clock)

    return make


def bid(phase_id="1", *, reserve=2.0, cap=10.0, spent=0.0, seen=0.0, instead="", ended=0):
    return Bid(
        phase_id=phase_id,
        reserve_usd=reserve,
        cap_usd=cap,
        spent_usd=spent,
        seen_usd=seen,
        instead=instead,
        ended=ended,
    )


NOTED = (("Relay-Session", "3cd30138"), ("Relay-Usage", "input=1 output=2"), ("Relay-Cost", "0.25 USD"))


def test_what_a_lost_session_has_cost_is_handed_on(registries):
    """Nobody but its holder knows it else, until the next snapshot."""
    ann, bob = registries("ann"), registries("bob")
    claim = ann.renew(replace(ann.take(bid()), noted=NOTED))
    (there,) = bob.read().held
    assert there == claim
    taken = bob.take(bid(instead=there.commit))
    assert (taken.worker, taken.noted) == ("bob", NOTED)
    assert bob.read().held == (taken,)
    save_noted(bob.remote.repo, taken.noted)
    save_noted(bob.remote.repo, ())
    spent = find_spent(bob.remote.repo, "3cd30138")
    assert spent
    assert spent.cost_usd == 0.25


def test_a_phase_is_claimed_once_and_free_again_after(registries):
    ann, bob = registries("ann"), registries("bob")
    claim = ann.take(bid())
    assert isinstance(claim, PhaseClaim)
    refused = bob.take(bid())
    assert isinstance(refused, NotTaken)
    assert refused.words == "phase 1 is claimed by ann (attempt 1), for 60 s more"
    assert ann.read() == bob.read()

    assert ann.give_back(claim)
    assert ann.read().held == ann.read().reserved == ()
    assert bob.take(bid()).is_stale  # what ann has spent may not be counted in it
    assert isinstance(bob.take(bid(ended=1)), PhaseClaim)


def test_with_the_cap_used_up_nothing_is_claimed(registries):
    """A part of nothing is nothing, and 0 are not less than 0."""
    refused = registries("ann").take(bid(reserve=0.0, spent=10.0))
    assert isinstance(refused, NotTaken)
    assert refused.words == "of 10 USD are 10.00 spent and 0.00 reserved: not enough for phase 1"


def test_a_claim_that_says_it_holds_for_ever_does_not(registries, clock):
    """Whoever may push one could forge it: it is watched as any other that shows no sign of life."""
    ann, bob = registries("ann"), registries("bob")
    forged = replace(ann, lease_s=10**9, now=lambda: clock.now + 7 * 10**9)
    claim = forged.take(bid())
    (there,) = bob.read().held
    assert (there.commit, there.lease_s) == (claim.commit, 3_600)
    assert not is_at_work(there, now=clock.now)
    assert describe_claim(there, now=clock.now).endswith("for longer than a claim can hold")
    assert bob.take(bid(instead=there.commit)).worker == "bob"


def test_only_the_holder_renews_and_gives_back(registries, clock):
    ann, bob = registries("ann"), registries("bob")
    first = ann.take(bid())
    renewed = ann.renew(first)
    assert renewed.expires_s == first.expires_s
    assert renewed.commit != first.commit
    assert ann.renew(first) is None  # as a second process of the same worker would
    clock.now += 61
    assert not is_at_work(bob.read().find("1"), now=clock.now)
    taken = bob.take(bid(instead=renewed.commit))
    assert (taken.worker, taken.attempt) == ("bob", 2)
    assert ann.renew(renewed) is None
    assert not ann.give_back(renewed)
    assert bob.read().held == (taken,)


def test_a_claim_that_has_moved_is_not_taken_over(registries, clock):
    ann, bob = registries("ann"), registries("bob")
    first = ann.take(bid())
    clock.now += 61
    seen = bob.read().find("1")
    assert ann.renew(first) is not None
    assert isinstance(bob.take(bid(instead=seen.commit)), NotTaken)


def test_the_last_of_the_money_goes_to_one(registries):
    ann, bob = registries("ann"), registries("bob")
    assert isinstance(ann.take(bid(reserve=6.0)), PhaseClaim)
    refused = bob.take(bid("2", reserve=6.0))
    assert refused == NotTaken(words="of 10 USD are 0.00 spent and 6.00 reserved: not enough for phase 2")
    assert isinstance(bob.take(bid("2", reserve=4.0)), PhaseClaim)
    assert bob.read().reserved_usd == pytest.approx(10.0)
    assert isinstance(bob.take(bid("3", reserve=0.01)), NotTaken)
    assert isinstance(bob.take(bid("3", reserve=None, cap=None)), PhaseClaim)


def test_what_a_lost_worker_may_have_spent_stays_reserved(registries, clock):
    ann, bob = registries("ann"), registries("bob")
    first = ann.take(bid(reserve=5.0))
    clock.now += 61
    taken = bob.take(bid(reserve=4.0, spent=2.0, seen=2.0, instead=first.commit))
    assert isinstance(taken, PhaseClaim)
    assert {one.worker: one.cost_usd for one in bob.read().reserved} == pytest.approx({"ann": 3.0, "bob": 4.0})
    assert bob.give_back(taken)
    assert [(one.worker, one.cost_usd) for one in bob.read().reserved] == [("ann", pytest.approx(3.0))]
    other = bob.take(bid("2", reserve=1.0, ended=2))
    assert [one.worker for one in bob.free_lost()] == ["ann"]
    assert [one.worker for one in bob.read().reserved] == ["bob"]
    assert bob.free_lost() == ()
    assert bob.give_back(other)


def test_a_worker_that_was_killed_takes_its_own_up(registries):
    ann = registries("ann")
    first = ann.take(bid(reserve=5.0))
    again = ann.take(bid(reserve=5.0, seen=1.0, spent=1.0, instead=first.commit))
    assert again.attempt == 2
    assert ann.read().reserved_usd == pytest.approx(5.0)


def test_a_phase_that_waits_for_a_person_is_nobodys(registries, clock):
    ann, bob = registries("ann"), registries("bob")
    claim = ann.take(bid())
    assert ann.give_back(claim, waits="the gate is red three times")
    there = bob.read().find("1")
    clock.now += 1_000
    assert (there.state, is_at_work(there, now=clock.now)) == (ClaimState.WAITS, False)
    assert describe_claim(there, now=clock.now) == "waiting for a person: the gate is red three times"
    assert isinstance(bob.take(bid()), NotTaken)
    assert bob.read().reserved == ()
    assert isinstance(bob.take(bid(instead=there.commit, ended=1)), PhaseClaim)


def test_a_result_and_the_end_of_its_claim_are_one_push(registries):
    ann = registries("ann")
    repo = ann.remote.repo
    head, branch = repo.head(), f"refs/heads/{repo.branch}"
    done = write_commit(repo, find_tree(repo, head), (head,), Message(subject="phase 1"))
    claim = ann.take(bid())
    assert not ann.give_back(claim, RefUpdate(ref=branch, old=done, new=done))
    assert ann.read().find("1") is not None
    assert ann.give_back(claim, RefUpdate(ref=branch, old=head, new=done))
    assert ann.read().held == ()
    assert ann.remote.list_refs(branch) == {branch: done}


def test_many_workers_claim_each_phase_once(registries):
    workers = [registries(f"w{number}") for number in range(4)]

    def work(registry):
        won = []
        for number in range(5):
            with contextlib.suppress(RemoteError):  # too busy
                if isinstance(claim := registry.take(bid(str(number), reserve=0.5)), PhaseClaim):
                    won.append(claim.phase_id)
        return won

    with ThreadPoolExecutor(4) as pool:
        won = [phase_id for found in pool.map(work, workers) for phase_id in found]
    claims = workers[0].read()
    assert won
    assert sorted(won) == sorted(claim.phase_id for claim in claims.held)
    assert len(set(won)) == len(won)
    assert claims.reserved_usd == pytest.approx(0.5 * len(won))


def test_a_remote_without_a_word_is_an_error(registries):
    ann = registries("ann")
    claim = ann.take(bid())
    shutil.rmtree(ann.remote.repo.root.parent / "away.git")
    for act in (ann.read, lambda: ann.renew(claim), lambda: ann.give_back(claim)):
        with pytest.raises(RemoteError):
            act()


def test_a_lock_that_was_left_at_the_remote_is_not_taken_for_other_workers(registries):
    ann = replace(registries("ann"), pause=lambda _: None)
    place = ann.remote.repo.root.parent / f"away.git/refs/relay/claims/{PLAN}"
    place.mkdir(parents=True)
    (place / "account.lock").touch()
    with pytest.raises(RemoteError, match="does not move its refs, 12 times, and nobody else moved them"):
        ann.take(bid())
    (place / "account.lock").unlink()
    assert isinstance(ann.take(bid()), PhaseClaim)


def test_what_is_not_a_claim_is_passed_over(registries):
    ann = registries("ann")
    head = ann.remote.repo.head()
    ann.remote.push(
        RefUpdate(ref=f"refs/relay/claims/{PLAN}/phase/9", old=None, new=head),
        RefUpdate(ref=f"refs/relay/claims/{PLAN}/account", old=None, new=head),
    )
    assert replace(ann.read(), account=None).held == ()
    assert ann.read().reserved == ()

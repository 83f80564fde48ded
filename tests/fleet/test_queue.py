"""The queue on a real PostgreSQL: who has what, what is set aside for it, and what a dead worker leaves."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import RelayError
from relay.fleet.database import find_url, run_database
from relay.fleet.heart import Heart
from relay.fleet.queue import Queue
from relay.fleet.takes import Bid, NotTaken, Standing, Take, TakeState, Ticket, Turn
from tests.fleet.conftest import make_fresh, open_place
from tests.waiting import wait_until

TICKET = Ticket(remote="ssh://host/x.git", branch="main", plan_path="PLAN.md", phase_id="1")
BID = Bid(cap_usd=20.0, phase_cap_usd=None, spent_usd=0.0, seen_usd=0.0, shares=4, before=Standing())


@pytest.fixture(scope="module")
def emptied(database):
    return make_fresh(database)


@pytest.fixture
def queue(emptied):
    """A queue whose tables are empty: to make a database takes longer than most of these tests."""
    made = Queue(emptied, stalled_s=1.6, beat_s=0.2)
    run_sql(made, "truncate procrastinate_jobs, procrastinate_workers, relay_takes restart identity cascade")
    return made


def ignore(_text):
    pass


def find(queue, ticket=TICKET):
    return next((one for one in queue.list_placed() if one.ticket == ticket), None)


def is_free(queue):
    return (one := find(queue)) is not None and one.status == "todo"


def place(queue, *tickets):
    """Queue tickets, and have them in work."""
    queue.submit(tickets or (TICKET,))
    run_sql(queue, "update procrastinate_jobs set status = 'doing'")
    return queue.list_placed()


def take(queue, worker="w", bid=BID, ticket=TICKET):
    place(queue, ticket)
    return queue.take(find(queue, ticket), worker, replace(bid, before=queue.read(ticket.plan)))


def run_sql(queue, text, *args):
    with psycopg.connect(queue._url, autocommit=True) as there:
        cursor = there.execute(text, args)
        return cursor.fetchall() if cursor.description else cursor.rowcount


def test_a_ticket_is_queued_once_and_gone_when_done(queue):
    assert queue.submit([TICKET, TICKET]) == (TICKET,)
    assert queue.submit([TICKET]) == ()
    with Heart(queue, ignore) as heart:
        placed = queue.fetch(heart.worker_id)
        assert (placed.ticket, find(queue).status) == (TICKET, "doing")
        assert queue.submit([TICKET]) == ()  # nor beside one in hand
        with Heart(queue, ignore) as other:
            assert queue.fetch(other.worker_id) is None
        queue.finish(placed)
        assert queue.fetch(heart.worker_id) is None
    assert find(queue) is None
    assert queue.submit([TICKET]) == (TICKET,)


def test_a_worker_is_given_its_own_ticket_again_until_it_has_ended_it(queue):
    """As where the answer to it was lost: no other one would be given it as long as this one lives."""
    queue.submit([TICKET, replace(TICKET, phase_id="2")])
    with Heart(queue, ignore) as heart:
        placed = queue.fetch(heart.worker_id)
        assert queue.fetch(heart.worker_id).number == placed.number
        queue.finish(placed)
        assert queue.fetch(heart.worker_id).ticket.phase_id == "2"


def test_two_submitters_queue_a_phase_once(database):
    """In a database whose tables each of them finds missing."""
    empty = make_fresh(database, template="template1")
    with ThreadPoolExecutor(6) as pool:
        said = list(pool.map(lambda _: Queue(empty).submit([TICKET]), range(6)))
    assert sorted(said) == [()] * 5 + [(TICKET,)]


def test_what_waits_for_a_limit_keeps_nothing_back_and_what_was_taken_back_stays_out(queue):
    other = replace(TICKET, phase_id="2")
    queue.submit([TICKET], wait_s=600)
    queue.submit([other])
    with Heart(queue, ignore) as heart:
        placed = queue.fetch(heart.worker_id)
        assert placed.ticket == other
        queue.finish(placed)
        assert queue.fetch(heart.worker_id) is None
    number = find(queue).number
    assert queue.cancel([number, 10**9]) == (number,)
    assert queue.submit([TICKET], follows=True) == ()  # a person took it back
    assert queue.submit([TICKET]) == (TICKET,)


def test_a_phase_is_held_once_however_many_workers_ask(queue):
    (placed,) = place(queue)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda n: Queue(queue._url).take(placed, f"w{n}", BID), range(8)))
    (own,) = [one for one in taken if isinstance(one, Take)]
    refused = [one for one in taken if isinstance(one, NotTaken)]
    assert {one.words for one in refused} == {f"phase 1 is at work: {own.worker}"}
    assert queue.read(TICKET.plan).reserved_usd == 5.0


def test_the_last_of_the_money_goes_to_one(queue):
    placed = place(queue, *(replace(TICKET, phase_id=str(n)) for n in range(8)))
    bid = replace(BID, shares=1, spent_usd=12.5)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda one: Queue(queue._url).take(one, "w", bid), placed))
    (own,) = [one for one in taken if isinstance(one, Take)]
    assert own.reserved_usd == 7.5
    words = {one.words.partition(": ")[0] for one in taken if isinstance(one, NotTaken)}
    assert words == {"of $20.00 are 12.50 spent and 7.50 reserved"}


def test_what_ended_since_git_was_read_counts_as_spent_and_is_no_reason_to_read_again(queue):
    """Git knows of more spend by then than the bid says, and of no more than was set aside."""
    before = queue.read(TICKET.plan)
    assert queue.end(take(queue), TakeState.FREE)
    own = queue.take(find(queue), "w", replace(BID, before=before, shares=1))
    assert isinstance(own, Take)
    assert own.reserved_usd == 15.0


def make_take(token, state, reserved, seen):
    return Take(
        token=token, nonce="n", plan="", phase_id=str(token), job_id=token, worker="w", state=state, words="",
        reserved_usd=reserved, seen_usd=seen, is_settled=False, taken_at=datetime.now(UTC),
    )  # fmt: skip


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), *[st.floats(0, 9)] * 4)))
def test_no_bid_passes_the_cap_whatever_ended_or_was_raised_since_git_was_read(takes):
    """What takes spent since, and may spend yet, is never more than what counts as set aside or unseen."""
    before, now, most = [], [], 0.0
    for token, (is_new, is_raised, is_over, reserved, part, more, seen) in enumerate(takes):
        before += [] if is_new else [make_take(token, TakeState.HELD, reserved, seen)]
        known, share = (min(part, reserved), more) if is_raised and not is_new else (0.0, reserved)
        now.append(make_take(token, TakeState.DONE if is_over else TakeState.HELD, share, seen + known))
        most += known + share
    standing = Standing(takes=tuple(now))
    unseen = standing.find_unseen(Standing(takes=tuple(before)))
    assert unseen is not None
    assert standing.reserved_usd + unseen >= most - 1e-9


def test_a_bid_is_stale_where_a_worker_has_died_since_git_was_read_or_what_a_dead_one_spent_was_booked():
    dead = make_take(1, TakeState.DIED, 5.0, 0.0)
    wrong = []
    for before, now, unseen in (
        ((), (dead,), None),
        ((replace(dead, state=TakeState.HELD),), (dead,), None),
        ((dead,), (replace(dead, reserved_usd=0.0),), None),
        ((dead,), (dead,), 0.0),
    ):
        if (found := Standing(takes=now).find_unseen(Standing(takes=before))) != unseen:
            wrong.append((before, now, found))
    assert not wrong


def test_a_phase_that_stopped_waits_for_a_person_until_one_has_looked_or_it_is_done():
    stopped = replace(make_take(1, TakeState.STOPPED, 0.0, 0.0), words="its gate is red")
    after = {state: replace(stopped, token=2, state=state, words="") for state in TakeState}
    wrong = []
    for takes, waits in (
        ((stopped,), {"1": "its gate is red"}),
        ((replace(stopped, is_settled=True),), {}),
        ((stopped, after[TakeState.DONE]), {}),
        ((stopped, after[TakeState.FREE]), {"1": "its gate is red"}),
        ((after[TakeState.FREE], after[TakeState.HELD], after[TakeState.DIED]), {}),
    ):
        if (found := Standing(takes=takes).waits) != waits:
            wrong.append((takes, found))
    assert not wrong


def test_a_phase_that_lands_has_the_branch_for_itself_until_it_gives_it_back_or_ends_or_has_it_for_too_long(queue):
    """Merges that others overtake are checked for nothing."""
    first, second = take(queue, "a"), take(queue, "b", ticket=replace(TICKET, phase_id="2"))
    away = take(queue, "c", ticket=replace(TICKET, branch="other"))

    def waits(*takes):
        return [queue.take_turn(own).waits for own in takes]

    assert waits(first, first, second, away) == [False, False, True, False]
    queue.give_turn_back(first)
    assert waits(second, first) == [False, True]
    assert queue.end(second, TakeState.FREE)
    assert waits(first) == [False]
    third = take(queue, "d", ticket=replace(TICKET, phase_id="2"))
    assert waits(third) == [True]
    run_sql(queue, "update relay_takes set lands_until = now() - interval '1 second'")
    assert waits(third) == [False]


def test_who_has_the_turn_lands_along_who_waits_and_says_so(queue):
    takes = [take(queue, name, ticket=replace(TICKET, phase_id=name)) for name in "abcde"]
    away = take(queue, "z", ticket=replace(TICKET, branch="other"))
    first, *others = takes
    assert queue.take_turn(first) == Turn()
    for own in others:
        assert queue.take_turn(own).waits
    assert queue.take_turn(first) == Turn()  # not all that they have is on the remote
    for own in (*others, away):
        queue.take_turn(own, rides=True)
    assert queue.end(takes[4], TakeState.FREE)
    assert list(queue.take_turn(first).riders) == ["b", "c", "d"]
    queue.note_riders([takes[1].token], landed=False)
    queue.note_riders([takes[2].token, takes[4].token], landed=True)
    assert queue.take_turn(takes[1], rides=True).waits
    assert list(queue.take_turn(first).riders) == ["d"]
    assert queue.take_turn(takes[2], rides=True).has_landed
    queue.give_turn_back(first)
    assert queue.take_turn(takes[1], rides=True) == Turn()  # who lands alone takes nobody along
    queue.give_turn_back(takes[1])
    assert queue.take_turn(first).riders
    assert queue.end(first, TakeState.DONE)
    assert queue.take_turn(takes[3], rides=True) == Turn()  # it lands itself by now


def test_a_phase_that_has_spent_its_share_gets_the_rest_and_no_more(queue):
    own = take(queue)
    assert own.reserved_usd == 5.0
    more = queue.raise_share(own, replace(BID, spent_usd=5.0, seen_usd=5.0))
    assert isinstance(more, Take)
    assert more.reserved_usd == 15.0
    none = queue.raise_share(more, replace(BID, spent_usd=20.0, seen_usd=20.0))
    assert isinstance(none, NotTaken)
    capped = replace(BID, phase_cap_usd=0.75, spent_usd=1.0, seen_usd=0.25)  # of the phase's cap a part is spent
    other = take(queue, ticket=replace(TICKET, phase_id="2"), bid=capped)
    assert other.reserved_usd == 0.5


def test_who_lost_a_phase_can_neither_end_it_nor_have_more_for_it(queue):
    """Nor does it end the job that has taken the place of its own."""
    own = take(queue)
    assert queue.holds(own)
    assert not queue.holds(replace(own, nonce="of a database that was lost"))
    old = find(queue)
    queue.bury(old)
    assert not queue.holds(own)
    assert not queue.end(own, TakeState.DONE)
    assert isinstance(queue.raise_share(own, BID), NotTaken)
    new = find(queue)
    assert new.number != old.number
    queue.finish(old)
    assert find(queue) == new
    again = take(queue, "other")
    assert queue.read(TICKET.plan).held == {"1": again}
    assert again.token > own.token


def test_a_phase_whose_worker_has_lost_its_ticket_can_be_taken_by_others(queue):
    """As where the database went away behind the take, and the worker never heard that it has it."""
    own = take(queue)
    queue.finish(find(queue), again_s=0.0)
    standing = queue.read(TICKET.plan)
    assert (standing.held, standing.latest["1"].words) == ({}, "its worker lost its ticket")
    assert not queue.holds(own)
    again = take(queue, "other")
    assert queue.read(TICKET.plan).held == {"1": again}


def test_what_a_dead_worker_had_stays_set_aside_but_for_what_git_knows(queue):
    take(queue, "dead")
    queue.bury(find(queue))
    standing = queue.read(TICKET.plan)
    assert (standing.reserved_usd, [one.worker for one in standing.lost]) == (5.0, ["dead"])
    again = take(queue, bid=replace(BID, spent_usd=2.0, seen_usd=2.0, shares=1))
    assert again.reserved_usd == 15.0  # of 20: 2 are spent, and 3 may be
    queue.settle_lost(queue.read(TICKET.plan).lost)
    assert queue.read(TICKET.plan).reserved_usd == 15.0
    queue.bury(find(queue))
    own = take(queue, "w", replace(BID, spent_usd=3.0, seen_usd=3.0, shares=1))
    assert own.reserved_usd == 17.0  # its clone knows all that it has spent


def test_a_phase_that_killed_three_workers_is_parked_and_named_until_a_person_looks(queue):
    for name in ("a", "b", "c"):
        assert find(queue) or queue.submit([TICKET])
        take(queue, name, replace(BID, cap_usd=None))
        queue.bury(find(queue))
    assert find(queue) is None
    assert queue.read(TICKET.plan).waits == {"1": "parked: 3 workers died of it (a, b, c)"}
    queue.settle_phase(TICKET.plan, "1")
    assert queue.read(TICKET.plan).waits == {}
    take(queue, "d", replace(BID, cap_usd=None))
    queue.bury(find(queue))
    assert find(queue).status == "todo"


SLEEPER = """
import sys, time
from relay.fleet.heart import Heart
from relay.fleet.queue import Queue
from relay.fleet.takes import Bid, Standing
queue = Queue(sys.argv[1], beat_s=0.2)
with Heart(queue, print) as heart:
    placed = queue.fetch(heart.worker_id)
    heart.begin(placed.number)
    heart.take = queue.take(placed, "sleeper", Bid(
        cap_usd=None, phase_cap_usd=None, spent_usd=0.0, seen_usd=0.0, shares=1, before=Standing()))
    print("has it", flush=True)
    while not heart.has_lost and not heart.is_taken_back:
        time.sleep(0.05)
    print("lost" if heart.has_lost else "taken back", flush=True)
"""


@pytest.fixture
def sleeper(queue):
    """A worker that holds the ticket, as a process of its own."""
    queue.submit([TICKET])
    argv = [sys.executable, "-c", SLEEPER, queue._url]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == "has it\n"
        yield worker
        worker.kill()


def test_a_worker_that_is_suspended_and_revived_learns_that_its_phase_was_given_away(queue, sleeper):
    sleeper.send_signal(signal.SIGSTOP)
    with Heart(queue, ignore), Heart(queue, ignore):
        wait_until(partial(is_free, queue))
        count = (
            "select count(*) from pg_stat_activity where application_name = 'relay' and datname = current_database()"
        )
        wait_until(lambda: run_sql(queue, count) == [(3,)])  # a worker keeps one: PostgreSQL's default is a hundred
    assert queue.read(TICKET.plan).latest["1"].state is TakeState.DIED
    sleeper.send_signal(signal.SIGCONT)
    assert sleeper.stdout.readline() == "lost\n"
    assert find(queue).status == "todo"  # it has not ended it


def has_beaten(queue, before):
    """Whether all workers have given a heartbeat since."""
    return run_sql(queue, "select min(last_heartbeat) from procrastinate_workers") > before


def test_a_clock_that_jumps_kills_nobody(queue, sleeper):
    """Nor an outage, after which every heartbeat is old: who lives gives the next one in time, and hears a person."""
    with Heart(Queue(queue._url, stalled_s=3.0, beat_s=1.0), ignore):  # who is late on a busy machine lives, too
        for _ in range(3):
            before = run_sql(queue, "select max(last_heartbeat) from procrastinate_workers")
            run_sql(queue, "update procrastinate_workers set last_heartbeat = now() - interval '1 hour'")
            wait_until(partial(has_beaten, queue, before))
    assert find(queue).status == "doing"
    assert queue.read(TICKET.plan).held
    queue.cancel([find(queue).number])
    assert sleeper.stdout.readline() == "taken back\n"


@pytest.mark.parametrize(
    ("remote", "words"), [("https://me:secret@host/x.git", "holds a password"), ("x" * 2_000, "has to fit")]
)
def test_what_is_queued_is_small_and_no_secret(queue, remote, words):
    with pytest.raises(RelayError, match=words):
        queue.submit([replace(TICKET, remote=remote)])


def test_a_job_that_is_no_ticket_is_passed_over(queue):
    """A person with the database's password can put anything there."""
    refused = (
        json.dumps(asdict(replace(TICKET, remote=text))) for text in ("https://me:secret@host/x.git", "x" * 2_000)
    )
    nonsense = ("{}", "[]", "1", '"x"', '{"remote": 1, "branch": [], "plan_path": null, "phase_id": {}}')
    for text in (*nonsense, *refused):
        run_sql(
            queue,
            "insert into procrastinate_jobs (queue_name, task_name, args) values ('relay', 'relay.work', %s)",
            text,
        )
    queue.submit([TICKET])
    for text in ("", "1", "{}", "[]", '["a", "b"]', '["a", "b", 1]', '"abc"', "[" * 2_000):
        sql = "insert into relay_takes (nonce, plan, phase_id, job_id, worker) values ('x', %s, '1', 1, 'w')"
        run_sql(queue, sql, text)
    assert queue.list_plans() == (replace(TICKET, phase_id=""),)
    with Heart(queue, ignore) as heart:
        assert queue.fetch(heart.worker_id).ticket == TICKET
    assert [one.ticket for one in queue.list_placed()] == [TICKET]


@pytest.mark.skipif("TESTS_POSTGRES" in os.environ, reason="it is about the database of `relay fleet up`")
def test_a_database_is_up_once_and_opens_nothing_to_others_and_is_up_again_at_once_when_it_was_killed(tmp_path):
    """By the way to it, which the library would open as root, or by a socket in a place of everybody's."""
    said = []
    with open_place() as place:
        argv = [sys.executable, "-P", "-m", "relay", "fleet", "up", "--data", str(place)]
        unset = {"PYTHONUNBUFFERED", "XDG_RUNTIME_DIR"}
        environ = {name: value for name, value in os.environ.items() if name not in unset}
        environ["TMPDIR"] = str(tmp_path)
        (tmp_path / ".lockfile").mkdir()  # the library's, which is another user's
        for end in (signal.SIGKILL, signal.SIGINT):
            with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
                assert up.stdout
                assert up.stderr
                url = up.stdout.readline().strip()
                assert up.stdout.readline().startswith("the database is up")
                psycopg.connect(url).close()
                assert find_url(place) == url
                for taken, words in (
                    (place, "already runs in"),
                    (tmp_path / ("x" * 120), "too long for a socket"),
                    (tmp_path / "a b", "has a space"),
                ):
                    with pytest.raises(RelayError, match=words), run_database(taken):
                        pass
                postmaster = int((place / "postmaster.pid").read_text().split()[0])
                os.kill(postmaster if end is signal.SIGKILL else up.pid, end)
                said.append((up.wait(), up.stderr.read().partition("\n")[0]))
        assert find_url(place) is None
    assert said == [(1, "Error: the database has ended"), (0, "")]
    if os.geteuid() == 0:
        closed = Path(tempfile.mkdtemp(prefix="relay-fleet-"))
        with pytest.raises(RelayError, match="is not open to others"), run_database(closed / "database"):
            pass
        assert closed.stat().st_mode & 0o777 == 0o700
        closed.rmdir()

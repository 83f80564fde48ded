"""The queue on a real PostgreSQL, out of its wheel: what waits, what is done, what a dead worker leaves."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from relay.base.errors import RelayError
from relay.fleet.engine import BusyError, EndedError, Engine, Ticket, find_url, is_up, run_database
from tests.fleet.conftest import open_place
from tests.waiting import wait_until

SLEEPER = """
import asyncio, sys
from relay.fleet.engine import Engine
async def work(ticket, should_stop):
    print(ticket.phase_id, flush=True)
    while not should_stop():
        await asyncio.sleep(0.05)
    print("handed over", flush=True)
Engine(sys.argv[1], stalled_s=1.0).serve(work, name="sleeper")
"""


@pytest.fixture
def engine(database):
    return Engine(database, stalled_s=1.0)


@pytest.fixture
def ticket(request):
    """A ticket that no other test queues."""
    return Ticket(remote="ssh://host/x.git", branch=request.node.name, plan_path="PLAN.md", phase_id="1")


def find(engine, ticket):
    return next((one for one in engine.list_placed() if one.ticket == ticket), None)


def serve_once(engine, answer):
    done = []

    async def work(ticket, should_stop):
        done.append(ticket)
        assert not should_stop()
        if answer is not None:
            raise answer

    engine.serve(work, name="test", wait=False)
    return done


def test_an_ticket_is_queued_once_and_gone_when_done(engine, ticket):
    assert engine.submit([ticket, ticket]) == (ticket,)
    assert engine.submit([ticket]) == ()
    assert find(engine, ticket).status == "todo"
    assert serve_once(engine, None) == [ticket]
    assert find(engine, ticket) is None
    assert engine.submit([ticket]) == (ticket,)
    serve_once(engine, None)


def test_a_phase_that_stopped_is_not_repeated_and_one_that_is_taken_waits(engine, ticket):
    engine.submit([ticket])
    assert serve_once(engine, EndedError("the gate is red")) == [ticket]
    assert find(engine, ticket).status == "failed"
    other = Ticket(remote=ticket.remote, branch=ticket.branch, plan_path="PLAN.md", phase_id="2")
    engine.submit([other])
    assert serve_once(engine, BusyError("somebody has it")) == [other]
    assert (find(engine, other).status, find(engine, other).attempts) == ("todo", 1)
    assert serve_once(engine, None) == []  # not yet
    assert engine.cancel([find(engine, other).number, 10**9]) == (find(engine, other).number,)
    assert engine.submit([other], follows=True) == ()  # a person took it back
    assert engine.submit([other]) == (other,)
    assert engine.submit([other], follows=True) == ()
    assert serve_once(engine, None) == [other]


def test_a_worker_that_can_do_nothing_ends_and_its_ticket_waits_for_another(engine, ticket):
    engine.submit([ticket])
    with pytest.raises(RelayError, match="no API key"):
        serve_once(engine, RelayError("no API key"))
    assert find(engine, ticket).status == "todo"
    engine.cancel([find(engine, ticket).number])


def start_sleeper(database):
    return subprocess.Popen(
        [sys.executable, "-c", SLEEPER, database], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def test_what_a_dead_worker_had_is_handed_on(engine, ticket, database):
    engine.submit([ticket])
    with start_sleeper(database) as worker:
        assert worker.stdout.readline() == "1\n"
        worker.send_signal(signal.SIGKILL)
    assert find(engine, ticket).status == "doing"
    wait_until(engine.reap)
    assert find(engine, ticket).status == "todo"
    assert serve_once(engine, None) == [ticket]


def test_a_ticket_in_hand_is_not_queued_beside_itself(engine, ticket):
    """It could not be put back then, and what waits behind it would wait for ever."""
    queued = []

    async def work(ticket, _should_stop):
        queued.append(await asyncio.to_thread(engine.submit, [ticket]))
        raise BusyError("somebody has it")

    engine.submit([ticket])
    engine.serve(work, name="test", wait=False)
    assert queued == [()]
    assert (find(engine, ticket).status, find(engine, ticket).attempts) == ("todo", 1)
    engine.cancel([find(engine, ticket).number])


def test_a_dead_workers_ticket_that_was_queued_again_is_one(engine, ticket, database):
    """As two submitters may do at the same moment; reaping goes on with the others."""
    engine.submit([ticket])
    with start_sleeper(database) as worker:
        assert worker.stdout.readline() == "1\n"
        with psycopg.connect(database) as there:
            there.execute(
                "insert into procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args) select queue_name, "
                "task_name, lock, queueing_lock, args from procrastinate_jobs where lock = %s",
                (ticket.key,),
            )
        worker.send_signal(signal.SIGKILL)
    wait_until(engine.reap)
    assert [one.status for one in engine.list_placed() if one.ticket == ticket] == ["todo"]
    assert serve_once(engine, None) == [ticket]


def test_a_worker_that_is_asked_to_stop_hands_over(engine, ticket, database):
    engine.submit([ticket])
    with start_sleeper(database) as worker:
        assert worker.stdout.readline() == "1\n"
        worker.send_signal(signal.SIGINT)
        assert worker.stdout.readline() == "handed over\n"
        assert worker.wait() == 0


@pytest.mark.parametrize(
    ("remote", "words"), [("https://me:secret@host/x.git", "holds a password"), ("x" * 2_000, "has to fit")]
)
def test_what_is_queued_is_small_and_no_secret(engine, remote, words):
    with pytest.raises(RelayError, match=words):
        engine.submit([Ticket(remote=remote, branch="main", plan_path="PLAN.md", phase_id="1")])


def test_a_database_that_is_not_there_is_said():
    with pytest.raises(RelayError, match="the database does not answer"):
        Engine("postgresql:///x?host=/nowhere").list_placed()


def test_workers_that_meet_an_empty_database_together_all_begin(database):
    with psycopg.connect(database, autocommit=True) as there:
        there.execute("create database empty")
    url = urlsplit(database)._replace(path="/empty").geturl()
    with ThreadPoolExecutor(6) as workers:
        assert list(workers.map(lambda _: Engine(url).list_placed(), range(6))) == [()] * 6


def test_a_database_is_up_once_and_opens_nothing_to_others(database, tmp_path):
    """By the way to it, which the library would open as root, or by a socket in a place of everybody's."""
    place = Path(parse_qs(urlsplit(database).query)["host"][0])
    for taken, words in (
        (place, "already runs in"),
        (tmp_path / ("x" * 120), "too long for a socket"),
        (tmp_path / "a b", "has a space"),
    ):
        with pytest.raises(RelayError, match=words), run_database(taken):
            pass
    assert find_url(place) == database
    if os.geteuid() == 0:
        closed = Path(tempfile.mkdtemp(prefix="relay-fleet-"))
        with pytest.raises(RelayError, match="is not open to others"), run_database(closed / "database"):
            pass
        assert closed.stat().st_mode & 0o777 == 0o700
        closed.rmdir()


def test_two_loops_do_not_meet(engine):
    """A thread of a worker queues what waited for its phase while the worker's own loop goes on."""

    async def outer():
        return await asyncio.to_thread(engine.list_placed)

    assert isinstance(asyncio.run(outer()), tuple)


def test_a_database_that_was_killed_ends_its_command_and_is_up_again_at_once(new_database):
    with open_place() as place:
        new_database(place)
        said = []
        argv = [sys.executable, "-P", "-m", "relay", "fleet", "up", "--data", str(place)]
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        for end in (signal.SIGKILL, signal.SIGINT):
            with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
                assert up.stdout
                assert up.stderr
                url = up.stdout.readline().strip()
                assert up.stdout.readline().startswith("the database is up")
                psycopg.connect(url).close()
                postmaster = int((place / "postmaster.pid").read_text().split()[0])
                os.kill(postmaster if end is signal.SIGKILL else up.pid, end)
                said.append((up.wait(), up.stderr.read().partition("\n")[0]))
        assert said == [(1, "Error: the database has ended"), (0, "")]


KEPT = """
import subprocess, sys, time
from relay.fleet.engine import run_database
from tests.fleet.conftest import open_place
with open_place() as place:
    subprocess.run(["cp", "-a", sys.argv[1], place], check=True)
    with run_database(place):
        print(place, flush=True)
        time.sleep(600)
"""


@pytest.mark.usefixtures("new_database")
def test_no_database_of_these_tests_outlives_a_killed_pytest(arranged):
    """A worker of pytest that is killed has no time for the end of its fixtures."""
    root = Path(__file__).parents[2]
    argv = [sys.executable, "-c", KEPT, str(arranged / "database")]
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        place = Path(worker.stdout.readline().strip())
        assert is_up(place)
        pid = int((place / "postmaster.pid").read_text().split()[0])
        worker.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() and not place.parent.exists())

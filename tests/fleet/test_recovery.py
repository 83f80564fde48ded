"""What follows when a part of a fleet dies: a test for each row of the table in docs/reference/fleet.md.

Those that need a server of their own run on the embedded one, and at night on Debian's where it is installed; the
others on the embedded one, and with ``TESTS_POSTGRES=debian`` on that.
"""

import contextlib
import os
import shutil
import signal
import subprocess

import psycopg
import pytest

from relay.fleet.queue import Queue
from relay.fleet.takes import TakeState
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.fleet.conftest import make_fresh
from tests.fleet.field import HANGS, ROUND_USD, Field, count_answers, read_billed
from tests.fleet.plan_of_three import ALONE, PAIR, SCRIPT, WORDS, write_session
from tests.waiting import wait_until

OTHERS = "".join(write_session(word, number) for number, word in list(enumerate(WORDS, 1))[1:])


@pytest.fixture
def field(stage, tmp_path, url):
    """A field with the first phase alone: what happens to one is no other with two behind it."""
    return Field(tmp_path, stage, url, plan=ALONE)


def test_a_worker_that_is_killed_with_its_machine(field):
    """Another one goes on from what was pushed; what the dead one may have spent unseen stays set aside."""
    with serve(parse_script(HANGS + OTHERS)) as server:
        ann = field.start_hanging(server, push_s=0.2)
        field.wait_until_saved()
        field.signal_all(ann, signal.SIGKILL)
        with field.working("bob", server):
            wait_until(lambda: field.is_done("1"))
        assert field.list_states() == [TakeState.DIED, TakeState.DONE]
        (lost,) = field.standing.lost
        assert read_billed(server) <= field.read_told() + lost.reserved_usd
    assert field.git("show", "main:one.txt") == "one"


@pytest.mark.nightly
def test_a_worker_that_is_killed_alone_on_a_machine_that_lives(field):
    """Its run hands over by itself; a worker with the same clones goes on with it, and pays nothing again."""
    with serve(parse_script(HANGS + OTHERS)) as server:
        ann = field.start_hanging(server)
        ann.kill()
        ann.wait()
        field.let_go()
        with field.working("ann", server):
            wait_until(lambda: field.is_done("1"))
        assert field.standing.reserved_usd == 0
        assert field.read_told() == pytest.approx(read_billed(server), abs=ROUND_USD)
    assert field.git("log", "--format=%B", "main").count("Relay-Status: done") == 1


@pytest.mark.nightly
def test_a_worker_that_is_suspended_and_revived_after_its_phase_was_given_away(field):
    """It pushes nothing more, lands nothing, and books what it spent unseen."""
    with serve(parse_script(HANGS + OTHERS)) as server:
        ann = field.start_hanging(server, push_s=0.2, warm=False)
        wait_until(lambda: field.is_seen(server), by=ann)
        field.wait_until_saved()
        field.signal_all(ann, signal.SIGSTOP)
        with field.working("bob", server):
            wait_until(lambda: field.is_done("1"))
        tip = field.git("rev-parse", "main")
        assert field.standing.lost
        field.signal_all(ann, signal.SIGCONT)
        wait_until(lambda: "another worker's by now" in (field.top / "ann.out").read_text(), by=ann)
        wait_until(lambda: not field.standing.lost, by=ann)
        ann.send_signal(signal.SIGINT)
        assert ann.wait() == 0
        assert field.git("rev-parse", "main") == tip
        assert field.read_told() == pytest.approx(read_billed(server), abs=ROUND_USD)
    assert {ref.rpartition("-")[0] for ref in field.refs()} <= {"", "refs/relay/spent/main/booked"}


@pytest.mark.nightly
def test_a_database_that_is_restarted_while_a_phase_is_at_work(field_on, server):
    """The worker goes on with the phase, and ends it when the database is back."""
    field = field_on
    with serve(parse_script(HANGS + OTHERS)) as model:
        with field.hanging(model) as told:
            server.stop()
            server.start()
            field.let_go()
            wait_until(lambda: field.is_done("1", "2"))
        assert not told.has("another worker's")
        assert {take.state for take in field.standing.takes} == {TakeState.DONE}
        assert field.read_told() == pytest.approx(read_billed(model), abs=ROUND_USD)


def test_a_database_that_is_away_while_a_phase_is_done(stage, tmp_path, server):
    """What is reserved is worked up, nothing lands without the token's check, and the worker comes back by itself."""
    field = Field(tmp_path, stage, make_fresh(server.url), plan=ALONE)
    with serve(parse_script(HANGS + OTHERS)) as model:
        with field.hanging(model) as told:
            server.stop()
            try:
                wait_until(lambda: told.has("the database does not answer"))
                field.let_go()
                done = field.find_tree("ann") / "PLAN.md"
                wait_until(lambda: "[x] Write one.txt" in done.read_text())
                assert not field.is_done("1")
            finally:
                server.start()
            wait_until(lambda: field.is_done("1"))
            wait_until(lambda: not field.standing.held)
        assert told.has("the database is back")
        assert {take.state for take in field.standing.takes} == {TakeState.DONE}


@pytest.mark.nightly
def test_a_database_that_is_lost_for_good(field_on, server):
    """Submitted to an empty one, a plan goes on from git: what has landed is not paid again, nor what was pushed."""
    field = field_on
    with serve(parse_script(SCRIPT)) as model:
        field.go("ann", model, "1")
        paid = count_answers(model)
        field.url = make_fresh(server.url)
        field.queue = Queue(field.url, stalled_s=2.6, beat_s=0.4)
        field.queue.submit([field.ticket("1"), field.ticket("2")])
        with field.working("ann", model) as (told, _):
            wait_until(lambda: field.is_done("1", "2"))
        assert told.has("phase 1 is done")
        assert count_answers(model) == paid + 3
        assert field.read_told() == pytest.approx(read_billed(model), abs=ROUND_USD)


@contextlib.contextmanager
def filled(field):
    """Have the remote's disk be full."""
    fill = field.away / "fill"
    with fill.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    yield "No space left on device"
    fill.unlink()


@contextlib.contextmanager
def mounted_read_only(field):
    """Have the remote's disk be read-only."""
    subprocess.run(["mount", "-o", "remount,ro", field.away], check=True)
    yield "unable to create temporary object directory"
    subprocess.run(["mount", "-o", "remount,rw", field.away], check=True)


@contextlib.contextmanager
def closed(field):
    """Have the remote's folder be closed to who may not mount."""
    (field.away / "objects").chmod(0o555)
    yield "unable to create temporary object directory"
    (field.away / "objects").chmod(0o755)


@contextlib.contextmanager
def on_a_small_disk(field):
    """Put the remote on a file system of its own."""
    kept = field.away.rename(field.top / "kept.git")
    field.away.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "remote", field.away], check=True)
    try:
        shutil.copytree(kept, field.away, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", field.away], check=True)


@pytest.mark.nightly
@pytest.mark.parametrize("hurt", take_each(2, [filled, mounted_read_only]) if os.geteuid() == 0 else [closed])
def test_a_remote_that_is_full_or_read_only(field, hurt):
    """Nobody else has the work then: the worker holds the phase, and says what the remote says."""
    with contextlib.ExitStack() as stack:
        if os.geteuid() == 0:
            stack.enter_context(on_a_small_disk(field))
        server = stack.enter_context(serve(parse_script(HANGS + OTHERS)))
        told = stack.enter_context(field.hanging(server))
        with hurt(field) as words:
            field.let_go()
            wait_until(lambda: told.has(words))
            assert not field.is_done("1")
        wait_until(lambda: field.is_done("1"))
        assert field.read_told() == pytest.approx(read_billed(server), abs=ROUND_USD)


@pytest.mark.nightly
def test_a_branch_that_is_protected(field):
    """The phase waits for a person, with its work on the remote; asked for again it lands, and is not paid again."""
    with serve(parse_script(SCRIPT)) as server:
        field.hook("grep -q refs/heads/main && { echo protected branch >&2; exit 1; }\nexit 0\n")
        told = field.go("ann", server)
        assert told.has("does not take it on main: protected branch"), told
        assert "protected branch" in field.standing.waits["1"]
        assert "refs/heads/relay-jobs/main/1" in field.refs()
        paid = count_answers(server)
        field.hook("")
        told = field.go("bob", server)
        assert field.is_done("1"), told
        assert count_answers(server) == paid


@pytest.mark.nightly
def test_a_phase_that_killed_three_workers_is_parked(field):
    with serve(parse_script(HANGS)) as server:
        for name in ("a", "b", "c"):
            field.queue.submit([field.ticket("1")])
            with psycopg.connect(field.url, autocommit=True) as there:
                there.execute("delete from procrastinate_jobs where args->>'phase_id' <> '1'")
            worker = field.start(name, server)
            wait_until(lambda: "1" in field.standing.held, by=worker)
            field.signal_all(worker, signal.SIGKILL)
            placed = next(one for one in field.queue.list_placed() if one.ticket == field.ticket("1"))
            field.queue.bury(placed)
        assert "1" not in {one.ticket.phase_id for one in field.queue.list_placed()}
        assert field.standing.waits["1"].startswith("parked: 3 workers died of it (")


def test_a_submitter_that_dies_behind_a_landing_and_before_it_queues_what_waited(stage, tmp_path, url):
    """Every worker looks at its start for what can begin and is not queued."""
    field = Field(tmp_path, stage, url, plan=PAIR.replace("Two\nAfter: none", "Two\nAfter: 1"))
    field.queue.submit([field.ticket("1")])
    field.push_main({"PLAN.md": (field.stage.root / "PLAN.md").read_text().replace("[ ]", "[x]", 1), "one.txt": "one"})
    with serve(parse_script(SCRIPT)) as server, field.working("bob", server):
        wait_until(lambda: "2" in field.standing.held)
        assert field.list_states("1") == []  # found done


@pytest.mark.parametrize("how", take_each(2, ["force-push", "amend"]))
def test_a_remote_that_is_gone_while_a_phase_is_at_work_and_comes_back_rewritten_by_a_person(field, how):
    """The worker holds the phase, and pushes it when the remote is back.

    Its clone follows the branch and keeps what that had; the phase is put on the new tip, and checked there.
    """
    with serve(parse_script(HANGS + OTHERS)) as server:
        with field.hanging(server) as told:
            shutil.move(field.away, elsewhere := field.top / "elsewhere")
            git = field.stage.git
            if how == "amend":
                field.stage.write("notes.txt", "amended")
                git("add", "notes.txt")
                git("commit", "-q", "--amend", "-m", "plan, amended")
            else:
                git("reset", "-q", "--soft", "HEAD~1")
                field.stage.write("notes.txt", "other history")
                git("add", "notes.txt")
                git("commit", "-q", "-m", "another plan commit")
            git("push", "-q", "--force", str(elsewhere), "main")
            field.let_go()
            wait_until(lambda: told.has("relay tries again"))
            elsewhere.rename(field.away)
            wait_until(lambda: field.is_done("1"))
        assert told.has("somebody has rewritten main on the remote")
        assert {take.state for take in field.standing.takes} == {TakeState.DONE}
        assert field.read_told() == pytest.approx(read_billed(server), abs=ROUND_USD)
    assert field.git("show", "main:notes.txt")
    assert field.git("show", "main:one.txt") == "one"
    assert subprocess.run(["git", "fsck", "--strict", "--no-dangling"], cwd=field.away, check=False).returncode == 0

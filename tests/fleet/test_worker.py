"""One worker of a queue on one phase after the other: what it lands, holds back, puts aside and says."""

import os
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from relay.fleet.exchange import read_told
from relay.fleet.heart import Heart
from relay.fleet.overview import describe_fleet
from relay.fleet.queue import Queue
from relay.fleet.takes import TakeState, find_wait_s
from relay.fleet.worker import Worker
from relay.fleet.workplace import Workplace
from relay.git.remote import Remote, RemoteError
from relay.git.repository import open_repo
from relay.session.events import RunStarted
from relay.store.spend import find_phase_cost
from tests.effort import NIGHTLY
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.fleet.field import HANGS, RED, ROUND_USD, count_answers, read_billed
from tests.fleet.plan_of_three import PLAN, SCRIPT, WORDS, write_session
from tests.waiting import wait_until

OTHERS = "".join(write_session(word, number) for number, word in list(enumerate(WORDS, 1))[1:])
TIMES = 12 if NIGHTLY else 1
LANDS_FIRST = """
# Somebody lands several times, each time before the one who would.
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
while read -r old new ref; do
    [ "$ref" = refs/heads/main ] && [ "$(wc -c < {count})" -lt {times} ] || continue
    printf . >> {count}
    git config user.name x && git config user.email x@example.invalid
    git update-ref "$ref" "$(git commit-tree -p "$old" -m theirs "$old^{{tree}}")"
done
"""


def find_clone(field, name):
    (clone,) = (field.top / name).glob("*/work")
    return open_repo(clone)


def test_a_finished_phase_lands_however_often_others_are_faster(field, monkeypatch):
    """Each that is has landed something: that comes to an end, and no person has to look.

    None of the steps that may change nothing is left to it: what others land does not count as one.
    """
    monkeypatch.setattr("relay.fleet.phase._MOST_IDLE", 0)
    landed = field.top / "landed"
    landed.touch()
    field.hook(LANDS_FIRST.format(count=landed, times=TIMES))
    with serve(parse_script(SCRIPT)) as server:
        told = field.go("ann", server)
        assert field.is_done("1"), told
        assert count_answers(server) == 3
    assert landed.read_text() == "." * TIMES
    assert field.git("log", "--first-parent", "--format=%s", "main").split().count("theirs") == TIMES


@pytest.mark.nightly
def test_a_phase_that_stops_waits_for_a_person(field):
    with serve(parse_script(RED)) as server:
        told = field.go("ann", server)
    assert field.standing.latest["1"].state is TakeState.STOPPED, told
    assert field.standing.reserved_usd == 0
    remote = Remote(repo=open_repo(field.stage.root), name=str(field.away), environ=os.environ)

    def describe():
        own = field.ticket()
        return list(describe_fleet(remote, own, field.standing, field.queue.list_placed(), why=True))

    shown = describe()
    assert shown[1].startswith("   1  One: waiting for a person: phase 1: ")
    assert shown[1].endswith("; relay fleet submit --phase 1 queues it again")
    assert shown[2].startswith("   2  Two: can begin; queued as ")  # its worker has queued it
    assert shown[3] == "   3  Three: waits for 1, 2"
    field.forget_queued()
    field.queue.submit([replace(field.ticket("1"), branch="other")])
    shown = describe()
    assert shown[2] == "   2  Two: can begin; not queued: relay fleet submit"
    assert shown[4].startswith(f"of another plan: phase 1 of PLAN.md, other of {field.away}: queued as ")
    with serve(parse_script(SCRIPT)) as server:
        told = field.go("bob", server)
    assert field.is_done("1"), told


@pytest.mark.nightly
def test_what_another_machine_went_on_with_is_put_aside(field):
    with serve(parse_script(RED + RED.removeprefix("sessions:\n"))) as server:
        for name in ("ann", "bob"):
            field.go(name, server)
            with field.queue._turn(field.ticket().plan) as there:  # as when its end was never told
                there.execute("update relay_takes set state = 'died' where state = 'stopped'")
    with serve(parse_script(SCRIPT)) as server:
        told = field.go("ann", server)
    assert field.is_done("1"), told
    assert [ref for ref in find_clone(field, "ann").list_refs("refs/") if ref.startswith("refs/relay/aside/")]


@pytest.mark.nightly
def test_a_work_tree_that_somebody_removes_is_made_again_from_its_checkpoints(field):
    """As by ``rm -rf <clone>.relay``: no person has to look, and what the session had written is there."""
    script = HANGS.replace("test -e go && break", "test -e one.txt || break") + OTHERS
    with serve(parse_script(script)) as server:
        field.queue.submit([field.ticket("1")])
        with field.working("ann", server, push_s=0.2) as (told, _):
            field.wait_until_saved()
            shutil.rmtree(field.find_tree("ann").parent)
            wait_until(lambda: field.is_done("1"))
    assert told.has("its work tree was gone")
    assert field.git("show", "main:one.txt") == "one"


@pytest.mark.nightly
def test_a_heartbeat_that_comes_behind_the_end_of_a_take_loses_nothing(field):
    """The ticket is ended, too: it would stay this worker's for as long as that lives."""
    with serve(parse_script(SCRIPT)) as server:
        worker = field.worker("ann", server, queue=Slow(field.url, stalled_s=9.0, beat_s=0.1))
        told = field.go("ann", server, worker=worker)
    assert field.is_done("1"), told
    assert field.ticket("1") not in [one.ticket for one in field.queue.list_placed()]


@pytest.mark.nightly
def test_a_worker_that_looked_dead_as_its_phase_landed_leaves_nothing_reserved(field):
    """All that it spent is on the remote; no machine comes back to book more."""
    field.push_main({"PLAN.md": "---\nrelay: {max_cost_usd: 9}\n---\n" + PLAN})
    with serve(parse_script(SCRIPT)) as server:
        told = field.go("ann", server, worker=field.worker("ann", server, queue=Burying(field.url)))
        assert field.is_done("1"), told
        assert field.read_told() == pytest.approx(read_billed(server), abs=ROUND_USD)
    assert field.standing.latest["1"].state is TakeState.DIED
    assert field.standing.lost == ()


class Burying(Queue):
    """Another worker takes this one for dead when its phase has landed."""

    def end(self, take, state, words=""):
        self.bury(next(one for one in self.list_placed() if one.number == take.job_id))
        return super().end(take, state, words)


class Slow(Queue):
    """A database that answers two heartbeats later that a take has ended."""

    def end(self, take, state, words=""):
        is_own = super().end(take, state, words)
        with psycopg.connect(self._url, autocommit=True) as there:

            def has_beat(after):
                [(last,)] = there.execute("select max(last_heartbeat) from procrastinate_workers").fetchall()
                seen.append(last)
                return last != after

            seen: list[object] = []
            for _ in range(2):
                has_beat(None)
                wait_until(partial(has_beat, seen[-1]))
        return is_own


@pytest.mark.nightly
def test_a_phase_that_no_machine_can_begin_waits_for_a_person(field):
    """A phase without a gate is the plan's mistake: no worker ends of it, and none tries it again."""
    field.push_main({"PLAN.md": PLAN.replace("Verify: ", "To verify: ", 1)})
    with serve(parse_script(SCRIPT)) as server:
        field.go("ann", server)
        paid = count_answers(server)
    assert field.standing.latest["1"].state is TakeState.STOPPED
    assert "erify" in field.standing.waits["1"]
    assert field.ticket("1") not in [one.ticket for one in field.queue.list_placed()]
    assert paid == 0


@pytest.mark.nightly
def test_a_phase_that_is_taken_back_is_handed_over_before_its_worker_takes_another(field):
    """Its session ends behind what it is at, its work is pushed, and nobody queues it again but a person."""
    with serve(parse_script(HANGS + OTHERS)) as server:
        with field.hanging(server) as told:
            (busy,) = [one.number for one in field.queue.list_placed() if one.status == "doing"]
            field.queue.cancel([busy])
            wait_until(lambda: field.queue.list_placed() and not field.standing.held.get("1"))
            field.let_go()
            wait_until(lambda: field.is_done("2"))
        assert "refs/heads/relay-jobs/main/1" in field.refs(), told
        assert field.queue.submit([field.ticket("1")], follows=True) == ()
        assert not field.is_done("1")
        assert field.queue.submit([field.ticket("1")]) == (field.ticket("1"),)


def test_a_worker_that_is_asked_to_stop_hands_over(field):
    with serve(parse_script(HANGS)) as server:
        field.queue.submit([field.ticket("1")])
        ann = field.start_typed("ann", server)
        wait_until(lambda: count_answers(server) > 1, by=ann)
        ann.send_signal(signal.SIGINT)
        field.let_go()
        assert ann.wait(60) == 0, (field.top / "ann.out").read_text()
    assert field.standing.latest["1"].state is TakeState.FREE
    assert field.ticket("1") in [one.ticket for one in field.queue.list_placed() if one.status == "todo"]
    assert "refs/heads/relay-jobs/main/1" in field.refs()


@pytest.mark.nightly
def test_one_cap_binds_all_and_a_phase_that_needs_more_than_its_share_gets_it(field):
    front = "---\nrelay: {max_cost_usd: 0.75}\n---\n"
    field.push_main({"PLAN.md": front + PLAN})
    with serve(parse_script(SCRIPT)) as server:
        field.queue.submit([field.ticket("1"), field.ticket("2")])
        with field.working("ann", server) as (told, _), field.working("bob", server) as (_, _):
            wait_until(lambda: field.is_done("1", "2", "3") or field.standing.waits)
        assert field.read_told() == pytest.approx(read_billed(server), abs=ROUND_USD)
        assert field.read_told() <= 0.75
    assert field.is_done("1", "2", "3"), told


@pytest.mark.nightly
def test_one_share_binds_all_runs_of_a_take_and_a_phase_costs_the_same_while_it_is_merged(field):
    """The first run does the phase; the second one merges it with what a person pushed meanwhile, in a session."""
    field.push_main({"PLAN.md": "---\nrelay: {max_cost_usd: 9}\n---\n" + PLAN})
    written = "{tools: [{name: write, input: {path: one.txt, content: both}}]}"
    repairs = f"- {{when: {{first_message_contains: 'could not merge one.txt'}}, turns: [{written}, {{text: x}}]}}\n"
    runs = []

    def observe(event):
        if isinstance(event, RunStarted):
            clone, branch = find_clone(field, "ann"), "relay-jobs/main/1"
            told = read_told(clone, branch)
            assert told
            known = find_phase_cost(clone, "PLAN.md", branch, "1", told.start).cost_usd
            runs.append((event.cap_usd, known, read_billed(server)))
            if len(runs) == 1:
                field.push_main({"one.txt": "theirs"})

    with serve(parse_script("sessions:\n" + repairs + SCRIPT.removeprefix("sessions:\n"))) as server:
        field.go("ann", server, worker=replace(field.worker("ann", server), observe=observe))
        assert (server.errors, field.git("show", "main:one.txt")) == ([], "both")
    (share, *_), (cap, known, billed) = runs
    assert billed > 0.001
    assert known == pytest.approx(billed, abs=ROUND_USD)
    assert cap == pytest.approx(share, abs=ROUND_USD)


@pytest.mark.nightly
def test_a_phase_that_meets_a_usage_limit_waits_in_the_queue_and_holds_nobody_back(field):
    limited = parse_script(
        "sessions:\n- {when: {first_message_contains: 'Write one.txt'}, turns: ["
        "{fault: {kind: rate_limit, retry_after: '900', times: always}, text: x}]}\n" + OTHERS
    )
    with serve(limited) as server:
        field.queue.submit([field.ticket("1")])
        with field.working("ann", server) as (told, _):
            wait_until(lambda: field.is_done("2"))
        own = next(one for one in field.queue.list_placed() if one.ticket == field.ticket("1"))
    assert (own.status, find_wait_s(own.at) > 600) == ("todo", True), told
    assert field.standing.latest["1"].state is TakeState.FREE


@pytest.mark.nightly
def test_a_ticket_that_comes_late_or_too_early_is_dropped_and_pays_nothing(field):
    with serve(parse_script(SCRIPT)) as server:
        field.go("ann", server, "1")
        paid = count_answers(server)
        assert field.go("ann", server, "1").has("phase 1 is done")
        assert field.go("ann", server, "3").has("phase 3 is not ready")
        assert field.go("ann", server, "9").has("PLAN.md has no phase 9")
        assert count_answers(server) == paid
    assert {one.ticket.phase_id for one in field.queue.list_placed()} == {"2"}  # which can begin


def make_acting(field, server, remote):
    """Return a worker whose remote does something first."""

    class Acting(Worker):
        def get_remote(self, repo, ticket):
            return remote(repo=repo, name=ticket.remote, environ=self.environ)

    worker = field.worker("ann", server)
    return Acting(**{name: getattr(worker, name) for name in Workplace.__slots__})


@pytest.mark.nightly
def test_what_somebody_does_to_the_remote_s_refs_does_not_keep_a_phase_from_landing(field):
    """Who has a phase the queue says; a fence is there to be moved."""

    class Hurt(Remote):
        def fetch(self, *refspecs):
            super().fetch(*refspecs)
            if not raced:  # another worker has landed its phase in that moment
                raced.append(True)
                raise RemoteError("upload-pack: not our ref")

        def push(self, *updates):
            if any(update.ref == "refs/heads/main" for update in updates) and hurt:
                hurt.pop()()
            return super().push(*updates)

    def remove():
        for ref in field.refs():
            if ref != "refs/heads/main":
                field.git("update-ref", "-d", ref)

    raced = list[bool]()
    hurt: list[Callable[[], object]] = [remove, partial(forge_fence, field)]  # last first
    with serve(parse_script(SCRIPT)) as server:
        told = field.go("ann", server, worker=make_acting(field, server, Hurt))
    assert (raced, hurt) == ([True], [])
    assert field.is_done("1"), told
    assert field.refs() == ["refs/heads/main"]


def forge_fence(field):
    """Have the fence on the remote be another one's."""
    tree = field.git("hash-object", "-wt", "tree", "/dev/null").strip()
    own = ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
    fence = "refs/relay/fence/relay-jobs%2Fmain%2F1"
    field.git("update-ref", fence, field.git(*own, "commit-tree", "-m", "another's", tree).strip())


@pytest.mark.nightly
def test_a_phase_asks_the_remote_no_more_than_it_must(field):
    """A fetch to take it, its fence, a fetch to land it, and that; merged with others not one more.

    `benchmarks/fleet.py` reckons with that.
    """
    asked = []

    class Counting(Remote):
        def fetch(self, *refspecs):
            asked.append("fetch")
            super().fetch(*refspecs)

        def push(self, *updates):
            asked.append("push")
            return super().push(*updates)

    class Pushing(Counting):
        """A remote that somebody pushes to while the phase is at work."""

        def push(self, *updates):
            pushed = super().push(*updates)
            if asked.count("push") == 1:
                field.push_main({"theirs.txt": "theirs"})
            return pushed

    with serve(parse_script(SCRIPT)) as server:
        for phase_id, remote in (("1", Counting), ("2", Pushing)):
            asked.clear()
            told = field.go("ann", server, phase_id, worker=make_acting(field, server, remote))
            assert field.is_done(phase_id), told
            at_work = len(asked) - 4  # pushed as its session ended, beside the run
            assert at_work <= 1
            assert asked == ["fetch", *["push"] * (1 + at_work), "fetch", "push"]
    assert field.git("log", "-1", "--format=%P", "main").count(" ") == 1  # a merge


def test_who_lost_a_phase_as_it_lands_does_not_land_it(field):
    """The token was well when it was asked for; another one has the phase and its fence by the time of the push."""

    class Stolen(Remote):
        def push(self, *updates):
            if any(update.ref == "refs/heads/main" for update in updates):
                field.queue.bury(next(one for one in field.queue.list_placed() if one.status == "doing"))
                forge_fence(field)
            return super().push(*updates)

    tip = field.git("rev-parse", "main")
    with serve(parse_script(SCRIPT)) as server:
        told = field.go("ann", server, worker=make_acting(field, server, Stolen))
    assert told.has("another worker's by now"), told
    assert field.git("rev-parse", "main") == tip


@pytest.mark.nightly
def test_a_run_that_the_system_kills_is_a_death_and_is_gone_on_with(field):
    with serve(parse_script(HANGS + OTHERS)) as server:
        ann = field.start_hanging(server)
        for pid in field.list_children(ann):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: field.standing.latest["1"].state is TakeState.DONE, by=ann)
        ann.kill()
        ann.wait()
    assert field.list_states() == [TakeState.DIED, TakeState.DONE]


def test_what_anybody_queues_runs_nothing_and_ends_no_worker(field):
    """Whoever has the database's password may write any text into a row."""
    pwned = field.top / "pwned"
    own = field.ticket("1")
    remotes = (f"--upload-pack=touch {pwned}", f"ext::sh -c touch% {pwned}", "ssh://-oProxyCommand=touch/x", "/", "")
    hostile = [
        *(replace(own, remote=text) for text in remotes),
        *(replace(own, branch=text) for text in ("-x", "a:b", "../x", "x\ny", "m*")),
        *(replace(own, plan_path=text) for text in ("-x", "../PLAN.md", ".git/config")),
        *(replace(own, phase_id=text) for text in ("-x", "../1", "9" * 300)),
    ]
    with serve(parse_script(SCRIPT)) as server:
        worker = field.worker("ann", server)
        field.queue.submit(hostile)
        with Heart(worker.queue, worker.say) as heart:
            for _ in hostile:  # what follows them is the plan's own, of a ticket with an odd phase alone
                placed = field.queue.fetch(heart.worker_id)
                assert placed in [replace(placed, ticket=one) for one in hostile]
                worker._do(heart, placed)
        worker.interrupts.close()
        assert count_answers(server) == 0
    assert not pwned.exists()
    assert field.refs() == ["refs/heads/main"]
    assert field.standing.takes == ()


def test_workers_that_begin_a_clone_together_make_one(field):
    with serve(parse_script(SCRIPT)) as server, ThreadPoolExecutor(4) as pool:
        workers = [field.worker("ann", server) for _ in range(4)]
        clones = {repo.root for repo in pool.map(lambda one: one.ensure_clone(field.ticket("1")), workers)}
        for worker in workers:
            worker.interrupts.close()
    assert clones == {find_clone(field, "ann").root}


@pytest.mark.nightly
def test_a_remote_that_is_named_by_a_relative_path_has_an_address_for_others(field):
    root = field.clone("ann")
    field.stage.git("-C", str(root), "remote", "set-url", "origin", "../away.git")
    assert Remote(repo=open_repo(root), name="origin", environ=os.environ).find_address() == str(field.away)

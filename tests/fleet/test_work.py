"""Workers of one plan, each with a clone of its own, a bare repository and a rehearsed model between them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay.base.errors import ExitCode, PlanError, RepoError
from relay.base.interrupts import Interrupts, Urgency
from relay.cli.fleet import work_on
from relay.config import load_settings
from relay.fleet.claims import Bid, ClaimState, PhaseClaim, ensure_worker, name_plan
from relay.fleet.engine import Engine, Placed, Ticket
from relay.fleet.exchange import begin_shown, note_bid, read_here
from relay.fleet.holding import Holding, LostError, UnfitError
from relay.fleet.landing import Job
from relay.fleet.overview import describe_fleet, fetch_plan, open_registry
from relay.fleet.queue_worker import QueueWorker, ensure_clone
from relay.fleet.work import WorkTask, work
from relay.fleet.worktrees import ensure_job
from relay.git.notes import find_holder
from relay.git.remote import Remote, RemoteError
from relay.git.repository import open_repo
from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve
from relay.runners.messages.answers import parse_api_usage
from relay.session.prices import cost_usd
from relay.session.usage import Spent
from relay.store.attempts import AttemptStart, open_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.plan_state import read_plan_cost
from relay.store.spend import Whose, keep_spent
from relay.store.worktree_notes import find_made_places
from rigs.crash.rig import PRICE
from tests.fleet.plan_of_three import PLAN, SCRIPT, write_session
from tests.waiting import wait_until

LEASE_S = 6
"""Of what is to be lost: a busy machine takes three to come to a snapshot."""


ROUND_USD = 0.00001
"""What a few amounts of six decimals may differ in."""
HANGS = (
    "sessions:\n- {when: {first_message_contains: 'Write one.txt'}, turns: ["
    "{tools: [{name: write, input: {path: one.txt, content: one}}]}, "
    "{tools: [{name: bash, input: {command: sleep 60}}]}]}\n"
    + write_session("one", 1, first="{text: 'I look.', tools: [{name: read, input: {path: one.txt}}]}")
)
BID = Bid(phase_id="1", reserve_usd=1.0, cap_usd=20.0, spent_usd=0.0, seen_usd=0.0)
RED = "sessions:\n" + write_session("one", 1, first="{tools: [{name: bash, input: {command: 'true'}}]}")


class Field:
    def __init__(self, top, stage):
        self.top, self.away, self.stage = top, top / "away.git", stage
        stage.write("PLAN.md", PLAN)
        stage.commit("plan")
        stage.git("clone", "-q", "--bare", str(stage.root), str(self.away))

    def clone(self, name):
        self.stage.git("clone", "-q", str(self.away), str(self.top / name))
        return self.top / name

    def read_status(self, root):
        argv = [*self.stage.find_program(), "status", "--why"]
        return subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True).stdout

    def task(self, root, server, *, lease_s=300, phase_id=""):
        settings = load_settings(flags={}, environ={}, plan_settings={}, repo_root=root, user_dir=None)
        repo = open_repo(root)
        return WorkTask(
            main=repo,
            remote=Remote(repo=repo, name="origin", environ=os.environ),
            plan_path="PLAN.md",
            settings=settings,
            words=(),
            environ=self.environ(server),
            phase_id=phase_id,
            lease_s=lease_s,
        )

    def environ(self, server):
        jobs = str(Path(self.stage.find_program()[-1]).parent)  # which start warm
        return {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url, "PYTHONPATH": jobs}

    def git(self, *args):
        done = subprocess.run(["git", *args], cwd=self.away, check=True, capture_output=True, text=True)
        return done.stdout

    def stage_refs(self, root):
        return self.stage.git("-C", str(root), "for-each-ref", "--format=%(refname)").split()

    def ticket(self, phase_id):
        return Ticket(remote=str(self.away), branch="main", plan_path="PLAN.md", phase_id=phase_id)

    def worker(self, engine, server):
        def make_task(remote, ticket):
            task = self.task(remote.repo.root, server, phase_id=ticket.phase_id)
            return replace(task, remote=replace(remote, repo=task.main))

        return QueueWorker(
            engine=engine,
            place=self.top / "clones",
            environ=os.environ,
            make_task=make_task,
            tell=ignore,
            observe=ignore,
        )

    def has_saved(self):
        """Whether a snapshot was pushed, for who asks often: without a git."""
        return any(place.is_file() and place.suffix != ".lock" for place in self.away.glob("refs/relay/wip/*/*"))

    def refs(self):
        return self.git("for-each-ref", "--format=%(refname)").split()

    def registry(self, task, worker=""):
        return open_registry(task.remote, "main", "PLAN.md", worker=worker or ensure_worker(task.main), lease_s=60)


@pytest.fixture
def field(stage, tmp_path):
    return Field(tmp_path, stage)


def ignore(_event: object) -> None:
    pass


def go(task):
    interrupts = Interrupts()
    try:
        return work(task, ignore, interrupts)
    finally:
        interrupts.close()


def finish(task):
    """Work on the task's phase, which is done then."""
    end = go(task)
    assert end.exit_code == ExitCode.DONE, end.reason
    return end


def wait_for(condition, *, working=None):
    """Wait until it holds; a run that has ended before will never bring it about."""
    wait_until(lambda: condition() or (working and working.done()))
    assert condition(), working.result()


def test_another_worker_goes_on_where_a_killed_one_was(field):
    with serve(parse_script(HANGS)) as server:
        ann, bob = field.clone("ann"), field.clone("bob")
        killed = subprocess.Popen(
            [sys.executable, "-P", "-m", "relay", "work", "--phase", "1", "--lease", "15"],
            cwd=ann,
            env=field.environ(server),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        task = field.task(bob, server, phase_id="1")
        saved = "refs/relay/wip/relay-jobs%2Fmain%2F1/000001"
        wait_for(lambda: (field.away / saved).is_file() and "one.txt" in field.git("ls-tree", "--name-only", saved))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        there = field.registry(task).read().find("1")
        refused = go(task)
        assert (refused.exit_code, refused.phase_id) == (ExitCode.STOPPED, "")
        assert f"claimed by {there.worker}" in refused.reason
        shown = [field.read_status(root).splitlines() for root in (ann, bob)]  # of what each clone knows by itself
        for lines, end in zip(shown, (" (this clone)", " more"), strict=True):
            claim = next(line for line in lines if line.startswith(f"claim  phase 1 is claimed by {there.worker} "))
            assert claim.endswith(end)
        assert any(line.startswith("next   relay work, as the workers do; ") for line in shown[1])

        lapsed = field.registry(task, there.worker)
        replace(lapsed, lease_s=1, now=lambda: time.time() - 60).renew(there)
        finish(task)
        assert "claim " not in field.read_status(bob)
    assert field.git("show", "main:one.txt") == "one"  # which only the first session wrote
    message = field.git("log", "-1", "--format=%B", "main")
    assert message.count("Relay-Session: ") == 1


def test_a_run_says_what_other_machines_are_at(field):
    bid = Bid(phase_id="2", reserve_usd=None, cap_usd=None, spent_usd=0.0, seen_usd=0.0)
    for name, count in (("ann", 0), ("bob", 1)):
        with serve(parse_script(SCRIPT)) as server:
            task = field.task(field.clone(name), server)
            if name == "ann":
                assert isinstance(field.registry(task).take(bid), PhaseClaim)
            field.registry(task).read()
            argv = [*field.stage.find_program(), "run", "--phase", "1", "--json"]
            ran = subprocess.run(
                argv, cwd=task.main.root, env=task.environ, capture_output=True, text=True, check=False
            )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.count("as of the last fetch; relay run may pay for it a second time") == count


def test_a_worker_that_lost_its_claim_stops_and_pushes_nothing(field):
    with serve(parse_script(HANGS)) as server, ThreadPoolExecutor(1) as pool:
        task = field.task(field.clone("ann"), server, lease_s=LEASE_S, phase_id="1")
        working = pool.submit(go, task)
        thief = field.registry(field.task(field.clone("bob"), server), "thief")
        wait_for(field.has_saved, working=working)
        taken = None
        while taken is None:
            there = thief.read().find("1")
            claim = thief.take(replace(BID, instead=there.commit))
            taken = claim if getattr(claim, "worker", "") == "thief" else None
        end = working.result()
    assert end.exit_code == ExitCode.STOPPED
    assert "another worker's by now" in end.reason
    assert thief.read().held == (taken,)
    assert "[x]" not in field.git("show", "main:PLAN.md")


def read_billed(server):
    usages = [parse_api_usage(request.usage) for request in server.requests if request.usage]
    return sum(cost_usd(usage, PRICE) for usage in usages if usage)


def read_told(field):
    """What the plan's branch and the refs of the remote say that was spent."""
    refs = field.git("for-each-ref", "--format=%(refname)", "refs/relay/spent/").split()
    texts = [field.git("log", "--format=%B", "main"), *(field.git("log", "-1", "--format=%B", ref) for ref in refs)]
    return sum(float(cost) for cost in re.findall(r"^Relay-Cost: ~?([0-9.]+) USD$", "\n".join(texts), re.MULTILINE))


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_a_worker_spent_that_lost_its_claim_is_booked(field, is_killed):
    """When it learns of it, or comes back: then nothing is set aside for it any more, and all clones count it."""
    first = HANGS.rpartition("\n- ")[0].replace("sleep 60", "sleep 2")
    with serve(parse_script(f"{first}\n{write_session('one', 1)}")) as server:
        root = field.clone("ann")
        argv = [sys.executable, "-P", "-m", "relay", "work", "--phase", "1", "--lease", "60"]
        ann = subprocess.Popen(
            argv, cwd=root, env=field.environ(server), stdout=subprocess.DEVNULL, start_new_session=True
        )
        bob = field.task(field.clone("bob"), server, phase_id="1")
        thief = field.registry(bob, "thief")
        wait_for(lambda: thief.read().held)
        (there,) = thief.recall().held
        claim = thief.take(replace(BID, instead=there.commit))
        assert isinstance(claim, PhaseClaim), claim
        wait_for(lambda: len([request for request in server.requests if request.body]) > 1)
        if is_killed:
            os.killpg(ann.pid, signal.SIGKILL)
        assert ann.wait() != 0
        spent = read_billed(server)
        assert spent > 0
        assert (thief.read().reserved_usd > 1.0) is is_killed
        assert read_told(field) == (0 if is_killed else pytest.approx(spent, abs=ROUND_USD))
        if is_killed:
            # Its run hands over first, and is nobody's to judge until then.
            mine = field.task(root, server, phase_id="1")
            wait_until(lambda: "claimed by thief" in go(mine).reason and read_told(field) >= spent - ROUND_USD)
        assert thief.read().reserved_usd == 1.0
        assert thief.give_back(claim)
        finish(bob)
        assert read_plan_cost(bob.main, "PLAN.md").spent.cost_usd == pytest.approx(read_told(field), abs=ROUND_USD)
    assert read_told(field) >= read_billed(server) - ROUND_USD


@pytest.mark.parametrize("has_place", [False, True])
def test_what_was_set_aside_for_a_worker_that_began_nothing_is_free_when_it_is_back(field, has_place):
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="1")
    note_bid(task.main, "relay-jobs/main/1", attempt=1)
    claim = field.registry(task).take(BID)
    assert isinstance(claim, PhaseClaim)
    if has_place:  # when it is killed
        assert ensure_job(task.main, "1", "PLAN.md", copied=(), busy=())
    thief = field.registry(task, "thief")
    assert isinstance(thief.take(replace(BID, instead=claim.commit)), PhaseClaim)
    assert thief.read().reserved_usd == 2.0
    assert "claimed by thief" in go(task).reason
    assert thief.read().reserved_usd == 1.0


def test_a_worker_that_was_killed_behind_having_more_set_aside_goes_on_with_its_own_work(field):
    told: list[object] = []
    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        registry = field.registry(task)
        claim = registry.take(BID)
        job = ensure_job(task.main, "1", "PLAN.md", copied=(), busy=())
        assert isinstance(claim, PhaseClaim)
        assert job is not None
        branch, start = "relay-jobs/main/1", task.main.head() or ""
        begin_shown(task.main, "PLAN.md", branch, "1", attempt=claim.attempt, start=start)
        attempt = open_attempt(job.repo, AttemptStart(session_id="5e5510", phase_id="1", plan_path="PLAN.md"))
        save_wip(job.repo, attempt, WipRecord(spend=Spent(cost_usd=0.5)))
        ended = registry.read().ended
        assert isinstance(registry.take(replace(BID, reserve_usd=2.0, instead=claim.commit, ended=ended)), PhaseClaim)
        end = work(task, told.append, Interrupts())
        assert end.exit_code == ExitCode.DONE, end.reason
    assert not [event for event in told if "another machine" in getattr(event, "text", "")]
    assert read_told(field) == pytest.approx(0.5 + read_billed(server), abs=ROUND_USD)


def test_what_sessions_cost_whose_work_was_given_up_stays_known_when_their_phase_has_landed(field):
    """As where a landing was repaired, and others landed first: the job's own refs go from the remote."""
    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        own = Whose(plan_path="PLAN.md", phase_id="1", session_id="5e5510", base=task.main.head())
        keep_spent(task.main, "refs/relay/spent/relay-jobs%2Fmain%2F1/000001", own, Spent(cost_usd=0.5))
        finish(task)
        assert read_told(field) == pytest.approx(0.5 + read_billed(server), abs=ROUND_USD)
        other = field.task(field.clone("bob"), server, phase_id="2")
        finish(other)
        told = read_plan_cost(other.main, "PLAN.md").spent.cost_usd
        assert told == pytest.approx(0.5 + read_billed(server), abs=ROUND_USD)
    assert sorted(ref.rpartition("/")[0] for ref in field.refs())[2:] == ["refs/relay/spent/main"]


def test_what_a_remote_does_not_take_is_pushed_by_the_next_run(field):
    hook = field.away / "hooks/pre-receive"
    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\ngrep -q refs/heads/main && { echo no space left >&2; exit 1; }\nexit 0\n")
        hook.chmod(0o755)
        with pytest.raises(RemoteError, match="no space left"):
            go(task)
        paid = len(server.requests)
        assert "[x]" not in field.git("show", "main:PLAN.md")
        hook.unlink()
        finish(task)
        assert len(server.requests) == paid
    assert field.git("show", "main:PLAN.md").count("[x]") == 1


def test_a_remote_that_is_gone_ends_a_run_with_its_claim(field):
    with serve(parse_script(HANGS)) as server, ThreadPoolExecutor(1) as pool:
        root = field.clone("ann")
        task = field.task(root, server, lease_s=LEASE_S, phase_id="1")
        working = pool.submit(go, task)
        wait_for(field.has_saved, working=working)
        shutil.move(field.away, field.top / "elsewhere")
        end = working.result()
        assert end.exit_code == ExitCode.STOPPED
        shutil.move(field.top / "elsewhere", field.away)
        again = go(replace(task, lease_s=60))
        assert again.exit_code == ExitCode.DONE, again.reason
    assert field.git("show", "main:one.txt") == "one"


def test_a_work_tree_that_somebody_removes_is_made_again_from_its_checkpoints(field):
    """As by ``rm -rf <clone>.relay``: no person has to look, and what the session had written is there."""
    told: list[str] = []
    script = HANGS.replace("sleep 60", "'while test -e one.txt; do sleep 0.1; done'")  # until it is gone
    with serve(parse_script(script)) as server, ThreadPoolExecutor(1) as pool:
        task = field.task(field.clone("ann"), server, phase_id="1", lease_s=LEASE_S)
        working = pool.submit(work, task, lambda event: told.append(getattr(event, "text", "")), Interrupts())
        wait_for(field.has_saved, working=working)
        shutil.rmtree(field.top / "ann.relay")
        end = working.result()
    assert end.exit_code == ExitCode.DONE, end.reason
    assert any("its work tree was gone" in words for words in told)
    assert field.git("show", "main:one.txt") == "one"


def test_a_remote_that_does_not_answer_ends_a_run_with_its_claim(field):
    hook = field.away / "hooks/pre-receive"
    with serve(parse_script(HANGS)) as server, ThreadPoolExecutor(1) as pool:
        task = field.task(field.clone("ann"), server, lease_s=LEASE_S, phase_id="1")
        working = pool.submit(go, task)
        wait_for(field.has_saved, working=working)
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexec sleep 300\n")
        hook.chmod(0o755)
        assert working.result(60).exit_code == ExitCode.STOPPED
        hook.unlink()
        finish(replace(task, lease_s=60))


def test_two_relays_of_a_clone_do_not_take_each_others_phase(field):
    waits = "until test -e go; do sleep 0.1; done; rm go"
    with serve(parse_script(HANGS.replace("sleep 60", f"'{waits}'"))) as server:
        root = field.clone("ann")
        task = field.task(root, server, phase_id="1")
        first = subprocess.Popen(
            [sys.executable, "-P", "-m", "relay", "work", "--phase", "1"],
            cwd=root, env=field.environ(server), stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        wait_for(lambda: any("/leg/" in ref for ref in field.stage_refs(root)))
        before = field.registry(task).read().find("1")
        refused = go(task)
        assert refused.reason == "another relay is at work on phase 1 in this clone"
        assert not refused.is_over
        first.kill()
        first.wait()

        def is_done():
            if (end := go(task)).exit_code != ExitCode.DONE:
                assert "at work on phase 1 in this clone" in end.reason
                assert field.registry(task).read().find("1").attempt == before.attempt
            return end.exit_code == ExitCode.DONE

        assert not is_done()
        beside = open_repo(root.with_name("ann.relay") / "1")  # the run that it began hands over
        (beside.root / "go").touch()
        wait_until(lambda: find_holder(beside) is None and is_done())
    assert field.git("show", "main:one.txt") == "one"


def test_a_phase_that_is_done_is_done_for_who_comes_late(field):
    """A ticket is delivered again when its worker is killed behind the landing: what waits for it is queued then."""
    with serve(parse_script(SCRIPT)) as server:
        finish(field.task(field.clone("ann"), server, phase_id="1"))
        paid = len(server.requests)
        queued: list[Ticket] = []
        engine = SimpleNamespace(submit=lambda tickets, **_: queued.extend(tickets))
        end = field.worker(engine, server)._work(field.ticket("1"), Interrupts())
        assert (end.exit_code, end.phase_id) == (ExitCode.DONE, "1")
        assert [ticket.phase_id for ticket in queued] == ["2"]
        assert len(server.requests) == paid


def test_a_phase_that_lands_as_claims_and_plan_are_read_is_not_begun_again(field):
    """Its claim is gone then, and in the plan that was read it is open."""
    looked = list[object]()

    class Overtaken(Remote):
        def list_refs(self, *patterns):
            if not looked:
                field.stage.write("PLAN.md", PLAN.replace("[ ] Write one.txt", "[x] Write one.txt"))
                field.stage.commit("done elsewhere")
                field.stage.git("push", "-q", str(field.away), "main")
            looked.append(patterns)
            return super().list_refs(*patterns)

    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="1")
    end = go(replace(task, remote=Overtaken(repo=task.main, name="origin", environ=os.environ)))
    assert (end.exit_code, end.reason) == (ExitCode.DONE, "phase 1 is done and on origin")
    assert field.registry(task).read().ended == 0  # it was never claimed
    assert len(looked) == 1


@pytest.mark.timeout(120)
def test_a_remote_that_never_says_of_its_branch_what_it_gives_is_not_asked_for_ever(field):
    """As one of several machines of which one is behind: Ctrl-C ends it, between two pauses."""

    class Behind(Remote):
        def list_refs(self, *patterns):
            return {ref: commit for ref, commit in super().list_refs(*patterns).items() if ref != "refs/heads/main"}

    pauses: list[float] = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) > 1:
            interrupts.request(Urgency.FINISH_TURN)

    interrupts = Interrupts(sleep=pause)
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="1")
    end = work(replace(task, remote=Behind(repo=task.main, name="origin", environ=os.environ)), ignore, interrupts)
    interrupts.close()
    assert (end.exit_code, len(pauses)) == (ExitCode.INTERRUPTED, 2)
    assert field.registry(task).read().held == ()


def test_a_phase_that_the_plan_does_not_have_is_not_done_with_it(field):
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="9")
    field.stage.write("PLAN.md", PLAN.replace("[ ]", "[x]"))
    field.stage.commit("done")
    field.stage.git("push", "-q", str(field.away), "main")
    assert go(replace(task, phase_id="")).reason == "every phase is done"
    with pytest.raises(PlanError, match="no phase '9'"):
        go(task)


def test_a_branch_that_was_rewritten_is_said_with_the_place_of_the_old_clone(field):
    worker = field.worker(SimpleNamespace(submit=list), SimpleNamespace(base_url=""))
    clone = ensure_clone(worker.place, field.ticket("1"), os.environ, ignore)
    assert find_made_places(clone, ()) == (worker.place,)
    tree = ("-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit-tree", "-m", "x", "main^{tree}")
    field.git("update-ref", "refs/heads/main", field.git(*tree).strip())
    end = worker._work(field.ticket("1"), Interrupts())
    assert (end.exit_code, end.phase_id) == (ExitCode.USER, "")
    assert end.reason.startswith(f"somebody has rewritten main on {field.away}: ")
    assert end.reason.endswith(f", which it had, is not in it any more (its clones are in {worker.place})")


@pytest.mark.parametrize("to", ["main~1", "other"])
def test_a_clone_whose_branch_was_rewritten_on_the_remote_is_not_told_to_push(field, to):
    """That would undo what somebody did there, or be refused. What is told goes on."""
    with serve(parse_script(SCRIPT + write_session("one", 1))) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        finish(task)
        own, flags = field.git("rev-parse", "main").strip(), ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
        field.git(
            "branch", "other", field.git(*flags, "commit-tree", "-p", "main~1", "-m", "x", "main~1^{tree}").strip()
        )
        field.git("update-ref", "refs/heads/main", to)
        with pytest.raises(RepoError):
            go(task)
        with pytest.raises(RepoError, match=f"somebody has rewritten main on origin: {own[:10]}") as caught:
            go(task)
        for typed in str(caught.value.hint).partition(";")[0].split(" && "):
            field.stage.git("-C", str(task.main.root), *typed.split()[1:])
        assert field.git("-C", str(task.main.root), "rev-parse", f"kept-{own[:10]}").strip() == own
        finish(task)
    field.git("merge-base", "--is-ancestor", "other" if to == "other" else "other~1", "main")
    assert field.git("show", "main:one.txt") == "one"


def test_a_clone_that_has_gone_apart_from_the_remote_is_told_to_rebase(field):
    root = field.clone("ann")
    for place in (field.stage.root, root):
        subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", str(place)], cwd=place, check=True)
    field.stage.git("push", "-q", str(field.away), "main")
    with pytest.raises(RepoError, match="and lacks others") as caught:
        go(field.task(root, SimpleNamespace(base_url="")))
    assert caught.value.hint == "git pull --rebase origin main && git push origin main"


def test_a_phase_that_stopped_keeps_nobody_back(field):
    with serve(parse_script(RED)) as server:
        queued: list[Ticket] = []
        end = field.worker(SimpleNamespace(submit=lambda tickets, **_: queued.extend(tickets)), server)._work(
            field.ticket("1"), Interrupts()
        )
    assert end.exit_code == ExitCode.STOPPED
    assert [ticket.phase_id for ticket in queued] == ["2"]


def test_a_claim_is_watched_as_long_as_its_holder_may_be_silent(field):
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="1", lease_s=15)
    holder = replace(field.registry(task, "holder"), lease_s=400, now=lambda: time.time() - 1_000)  # its clock is slow
    claim, slept = holder.take(BID), []

    def sleep(seconds):
        slept.append(seconds)
        assert holder.renew(claim)

    end = work(task, ignore, Interrupts(sleep=sleep))
    assert slept == [pytest.approx(400, abs=5)]
    assert "claimed by holder" in end.reason


def test_a_forged_claim_is_taken_over_by_who_types_the_phase_s_number(field):
    with serve(parse_script(SCRIPT)) as server:
        task, slept = field.task(field.clone("ann"), server, phase_id="1"), list[float]()
        forger = replace(field.registry(task, "mallory"), lease_s=10**9, now=lambda: 8_204_573_071.0)
        forger.take(BID)
        end = work(task, ignore, Interrupts(sleep=slept.append))
    assert slept[0] == pytest.approx(3_600, abs=5)
    assert end.exit_code == ExitCode.DONE, end.reason


def test_a_sign_of_life_whose_answer_was_lost_was_one(field):
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""))
    registry, job = field.registry(task), Job(phase_id="1", plan_path="PLAN.md", repo=task.main)
    here = read_here(task.main, "main")
    holding = Holding(registry, registry.take(BID), "main", here, ignore, Interrupts())
    assert registry.renew(holding.claim)
    holding.renew(job)
    assert registry.renew(holding.claim)
    holding.give_back()
    assert registry.read().held == ()
    claim = registry.take(replace(BID, ended=1))
    holding = Holding(registry, claim, "main", here, ignore, Interrupts())
    thief = replace(registry, worker="thief")
    assert thief.take(replace(BID, instead=claim.commit, ended=1))
    with pytest.raises(LostError):
        holding.renew(job)


def test_a_claim_does_not_end_of_what_the_remote_does_not_take(field):
    """It is held without; it is said once, and sent as soon as it can be."""
    root = field.clone("ann")
    task = field.task(root, SimpleNamespace(base_url=""))
    registry = field.registry(task)
    told: list[Any] = []
    job = Job(phase_id="1", plan_path="PLAN.md", repo=task.main)
    claim = registry.take(BID)
    holding = Holding(registry, claim, "main", read_here(task.main, "main"), told.append, Interrupts())
    field.stage.git("-C", str(root), "update-ref", "refs/relay/wip/main/000001", "HEAD")
    script = field.away / "hooks/pre-receive"
    script.parent.mkdir(exist_ok=True)
    script.write_text("#!/bin/sh\ngrep -q refs/relay/wip/ && exit 1\nexit 0\n")
    script.chmod(0o755)

    for _ in range(2):
        holding.renew(job)
        assert registry.read().held == (holding.claim,)
    assert "refs/relay/wip/main/000001" not in field.refs()
    assert ["phase 1 stays claimed" in notice.text for notice in told] == [True]

    script.unlink()
    holding.renew(job)
    assert "refs/relay/wip/main/000001" in field.refs()


def test_a_remote_that_is_named_by_a_relative_path_has_an_address_for_others(field):
    root = field.clone("ann")
    field.stage.git("-C", str(root), "remote", "set-url", "origin", "../away.git")
    assert Remote(repo=open_repo(root), name="origin", environ=os.environ).find_address() == str(field.away)


def test_reading_claims_leaves_what_a_twin_has_fetched(field):
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""))
    tip, _ = fetch_plan(task.remote, "main", "PLAN.md")
    field.registry(task).read()
    assert tip in task.main.list_refs("refs/relay/").values()


def test_what_is_in_the_way_here_leaves_the_phase_to_others(field):
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="1")
    (field.top / "ann.relay").write_text("no folder\n")
    with pytest.raises(OSError, match=r"ann\.relay"):
        go(task)
    claims = field.registry(task).read()
    assert claims.held == claims.reserved == ()


def test_a_remote_that_is_away_for_a_while_is_asked_again(field):
    elsewhere, fetched, told = field.top / "elsewhere", list[object](), []
    ticked = PLAN.replace("[ ] Write two.txt", "[x] Write two.txt").replace(
        "[ ] Write three.txt", "[x] Write three.txt"
    )
    field.stage.write("PLAN.md", ticked)
    field.stage.commit("one phase is left")
    field.stage.git("push", "-q", str(field.away), "main")

    class Leaving(Remote):
        def fetch(self, *refspecs):
            fetched.append(refspecs)
            if len(fetched) == 3:  # as it is asked what is next, once its phase has landed
                field.away.rename(elsewhere)
            super().fetch(*refspecs)

    def observe(event):
        if getattr(event, "text", "").endswith("relay tries again"):
            told.append(event)
            elsewhere.rename(field.away)

    with serve(parse_script("sessions:\n" + write_session("one", 1))) as server:
        task = field.task(field.clone("ann"), server)
        task = replace(task, remote=Leaving(repo=task.main, name="origin", environ=os.environ))
        end = work_on(task, observe, Interrupts(), goes_on=True, poll_s=0.1)
        assert (end.reason, len(told), len(fetched)) == ("every phase is done", 1, 4)
        field.away.rename(elsewhere)
        with pytest.raises(RemoteError):  # that never answered is a mistake
            work_on(task, observe, Interrupts(), goes_on=True, poll_s=0.1)


OVERTAKES = """#!/bin/sh
# Somebody is faster, thirteen times.
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
while read -r old new ref; do
    case $ref in */account)
        [ "$(wc -c < overtaken)" -ge 13 ] && exit 0
        printf . >> overtaken
        git update-ref "$ref" "$(git commit-tree -m "$(wc -c < overtaken)" "$(git mktree </dev/null)")"
    esac
done
"""


LANDS_FIRST = """#!/bin/sh
# Somebody lands twelve times, each time before the one who would.
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
while read -r old new ref; do
    [ "$ref" = refs/heads/main ] && [ "$(wc -c < {count})" -lt 12 ] || continue
    printf . >> {count}
    git config user.name x && git config user.email x@example.invalid
    git update-ref "$ref" "$(git commit-tree -p "$old" -m theirs "$old^{{tree}}")"
done
"""


def test_a_worker_that_loses_every_race_tries_again_and_does_not_end(field):
    """A hundred that begin in the same second."""
    (field.away / "overtaken").touch()
    hook = field.away / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(OVERTAKES)
    hook.chmod(0o755)
    told = []
    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        end = work_on(
            task, lambda event: told.append(getattr(event, "text", "")), Interrupts(), goes_on=False, poll_s=0
        )
    assert end.exit_code == ExitCode.DONE, end.reason
    tried = [text for text in told if text.endswith("relay tries again")]
    assert tried == ["origin is too busy: others were faster 12 times; relay tries again"]


def test_a_finished_phase_lands_however_often_others_are_faster(field):
    """Each that is has landed something: that comes to an end, and no person has to look."""
    hook, landed = field.away / "hooks" / "pre-receive", field.top / "landed"
    hook.parent.mkdir(exist_ok=True)
    landed.touch()
    hook.write_text(LANDS_FIRST.format(count=landed))
    hook.chmod(0o755)
    with serve(parse_script(SCRIPT)) as server:
        end = go(field.task(field.clone("ann"), server, phase_id="1"))
        paid = [request for request in server.requests if request.body]
    assert end.exit_code == ExitCode.DONE, end.reason
    assert landed.read_text() == "." * 12
    assert len(paid) == 3
    assert field.git("log", "--first-parent", "--format=%s", "main").split().count("theirs") == 12


def test_a_job_s_ref_that_is_gone_before_it_is_fetched_is_looked_for_again(field):
    """Another worker has landed its phase in that moment."""
    field.git("update-ref", "refs/heads/relay-jobs/main/2", "main")

    class Landing(Remote):
        def list_refs(self, *patterns):
            found = super().list_refs(*patterns)
            field.git("update-ref", "-d", "refs/heads/relay-jobs/main/2")
            return found

    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        task = replace(task, remote=Landing(repo=task.main, name="origin", environ=os.environ))
        finish(task)


def test_what_somebody_took_off_the_remote_does_not_keep_a_phase_from_landing(field):
    class Removed(Remote):
        def push(self, *updates):
            if any(update.ref == "refs/heads/main" for update in updates):
                field.git("update-ref", "-d", "refs/heads/relay-jobs/main/1")
            return super().push(*updates)

    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        task = replace(task, remote=Removed(repo=task.main, name="origin", environ=os.environ))
        finish(task)


def test_a_git_that_the_system_ends_does_not_end_the_worker(field):
    calls = list[object]()

    class Killed(Remote):
        def list_refs(self, *patterns):
            calls.append(patterns)
            if len(calls) <= 2:
                self.repo.git.run("-c", "alias.die=!kill -9 $PPID", "die")
            return super().list_refs(*patterns)

    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        task = replace(task, remote=Killed(repo=task.main, name="origin", environ=os.environ))
        end = work_on(task, ignore, Interrupts(), goes_on=False, poll_s=0)
    assert end.exit_code == ExitCode.DONE, end.reason


def test_a_phase_that_stops_waits_for_a_person(field):
    with serve(parse_script(RED)) as server:
        ann = field.task(field.clone("ann"), server, phase_id="1")
        end = go(ann)
        assert end.exit_code == ExitCode.STOPPED
        there = field.registry(ann).read().find("1")
        assert there.state is ClaimState.WAITS
        assert there.words
        bob = field.task(field.clone("bob"), server)
        shown = list(describe_fleet(bob.remote, "PLAN.md", None, why=True))
        assert shown[1].startswith("   1  One: waiting for a person: ")
        assert shown[1].endswith("; relay work --phase 1 takes it up")
        assert shown[2:] == ["   2  Two: can begin", "   3  Three: waits for 1, 2"]
        queued = Placed(number=7, ticket=field.ticket("3"), status="todo", attempts=2)
        other = replace(queued, number=8, ticket=replace(field.ticket("1"), branch="other"), status="doing")
        shown = list(describe_fleet(bob.remote, "PLAN.md", (queued, other), why=True))
        assert shown[2] == "   2  Two: can begin; not queued: relay fleet submit"
        assert shown[3] == "   3  Three: waits for 1, 2; queued as 7, tried 2 times"
        assert shown[4] == f"of another plan: phase 1 of PLAN.md, other of {field.away}: a worker has it as 8"
        assert "refs/heads/relay-jobs/main/1" in field.refs()
    with serve(parse_script(SCRIPT)) as server:
        taken = go(field.task(field.top / "bob", server, phase_id="1"))
        assert taken.exit_code == ExitCode.DONE, taken.reason


def test_what_another_machine_went_on_with_is_put_aside(field):
    for name in ("ann", "bob"):
        with serve(parse_script(RED)) as server:
            assert go(field.task(field.clone(name), server, phase_id="1")).exit_code == ExitCode.STOPPED
    told: list[object] = []
    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.top / "ann", server, phase_id="1")
        end = work(task, told.append, Interrupts())
        assert end.exit_code == ExitCode.DONE, end.reason
    (words,) = [text for event in told if "another machine went on" in (text := getattr(event, "text", ""))]
    assert str(field.top / "ann.relay" / "1") in words
    kept = next(ref for ref in field.stage_refs(field.top / "ann") if ref.startswith("refs/relay/aside/"))
    assert f"refs/heads/relay-aside/{kept.removeprefix('refs/relay/aside/')}" in field.stage_refs(field.top / "ann")


def test_a_machine_that_can_begin_nothing_leaves_the_phase_to_others(field):
    """No key, no sandbox: one such worker must not have every phase of a plan wait for a person."""
    with serve(parse_script(SCRIPT)) as server:
        task = replace(field.task(field.clone("ann"), server), environ=dict(os.environ))
        with pytest.raises(UnfitError, match="no API key") as caught:
            work_on(task, ignore, Interrupts(), goes_on=True)
        assert "export ANTHROPIC_API_KEY" in str(caught.value.hint)
        claims = field.registry(task).read()
        assert claims.held == claims.reserved == ()
        worker = replace(field.worker(SimpleNamespace(submit=list), server), environ=dict(os.environ))
        worker = replace(worker, make_task=lambda _remote, _ticket: task)
        with pytest.raises(UnfitError):
            worker._work(field.ticket("2"), Interrupts())


def test_a_ticket_that_is_taken_back_is_handed_over_before_its_worker_takes_another(field, database):
    """Its session is ended behind what it is at, its work is pushed, and the phase is free; nobody queues it again."""
    engine, said = Engine(database, stalled_s=20.0), list[str]()
    with serve(parse_script(HANGS.replace("sleep 60", "sleep 3"))) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")

        def cancel():
            wait_for(lambda: field.registry(task).read().held)
            engine.cancel([one.number for one in engine.list_placed() if one.status == "doing"])

        worker = QueueWorker(
            engine=engine,
            place=field.top / "clones",
            environ=field.environ(server),
            make_task=lambda remote, ticket: replace(task, main=remote.repo, remote=remote, phase_id=ticket.phase_id),
            tell=said.append,
            observe=lambda _event: None,
        )
        engine.submit([field.ticket("1")])
        with ThreadPoolExecutor() as pool:
            pool.submit(cancel)
            engine.serve(worker.do, name="ann", wait=False)
        assert field.registry(task).read().held == ()
        assert "refs/heads/relay-jobs/main/1" in field.refs()
    assert [words.partition(":")[0] for words in said] == ["phase 1 was taken back from the queue"]
    assert engine.submit([field.ticket("1")], follows=True) == ()


def test_a_clone_that_is_ahead_is_told_to_push(field):
    with serve(parse_script(SCRIPT)) as server:
        root = field.clone("ann")
        subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "mine"], cwd=root, check=True)
        with pytest.raises(RepoError, match="main has commits that origin has not"):
            go(field.task(root, server))
        assert not server.requests


def test_the_last_phase_of_a_dead_worker_is_taken_over_with_what_money_is_left(field):
    """It may have spent all that it had reserved, so that stays set aside; what is left has to do, or a person."""
    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        dead = replace(field.registry(task, "dead"), lease_s=1, now=lambda: time.time() - 60)
        bid = replace(BID, reserve_usd=15.0)
        dead.take(bid)
        finish(task)
        assert field.registry(task).read().reserved_usd == pytest.approx(15.0)
        rest = replace(bid, phase_id="2", reserve_usd=5.0, ended=field.registry(task).read().ended)
        dead.take(rest)
        refused = go(replace(task, phase_id="2"))
        assert refused.reason.endswith(
            "not enough for phase 2; relay fleet reap --lost USD frees what lost workers had, but for what they spent"
        )
        shown = list(describe_fleet(task.remote, "PLAN.md", (), why=True))
        assert sum("relay fleet reap --lost USD books what it did, and frees it" in line for line in shown) == 2
        assert [one.cost_usd for one in field.registry(task).free_lost()] == [15.0, 5.0]
        finish(replace(task, phase_id="2"))


def test_a_worker_that_finds_nothing_to_do_says_why_once(field):
    task, told = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="1"), []
    bid = replace(BID, reserve_usd=15.0)
    assert field.registry(task, "holder").take(bid)

    def sleep(_seconds):
        told.append("slept")
        if len(told) > 3:
            hands.request(Urgency.FINISH_TURN)

    hands = Interrupts(sleep=sleep)
    work_on(task, lambda event: told.append(getattr(event, "text", "")), hands, goes_on=True)
    assert told.count("slept") > 1
    (words,) = [words for words in told if words != "slept"]
    assert words.startswith("phase 1 is claimed by holder (attempt 1), for ")
    assert words.endswith("; relay looks again every 20 s")


def test_a_branch_whose_name_ends_like_the_plans_is_not_taken_for_a_job(field):
    """A full name typed where git wants a short one makes it."""
    field.git("update-ref", "refs/heads/refs/heads/main", "main")
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="1")
    bid = replace(BID, reserve_usd=15.0)
    assert field.registry(task, "holder").take(bid)
    assert go(task).reason.startswith("phase 1 is claimed by holder")
    assert task.main.list_refs("refs/heads/").keys() == {"refs/heads/main"}


@pytest.mark.timeout(120)
def test_a_branch_with_a_name_that_ends_a_line_elsewhere_is_found_on_the_remote(field):
    """Git's names hold no control character, and any other sign at which Python may end a line."""
    field.git("branch", "-m", "main", "a\u2028b")
    task = field.task(field.clone("ann"), SimpleNamespace(base_url=""), phase_id="1")
    bid = replace(BID, reserve_usd=15.0)
    taken = open_registry(task.remote, "a\u2028b", "PLAN.md", worker="holder", lease_s=300).take(bid)
    assert isinstance(taken, PhaseClaim)
    assert go(task).reason.startswith("phase 1 is claimed by holder")


def test_what_a_killed_fetch_or_push_left_is_in_nobodys_way(field):
    root, young = field.clone("ann"), "refs/relay/leg/another.lock"
    key = name_plan("main", "PLAN.md")
    left = (f"refs/relay/tip/{key}.lock", f"refs/relay/remote/{key}/account.lock", "refs/remotes/origin/main.lock")
    for name in (*left, young):
        (root / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / ".git" / name).touch()
    os.utime(root / ".git" / young, (time.time() + 600, time.time() + 600))  # however busy the machine is
    assert (
        len(
            list(
                describe_fleet(
                    Remote(repo=open_repo(root), name="origin", environ=os.environ), "PLAN.md", None, why=True
                )
            )
        )
        == 4
    )
    for name in left:
        (root / ".git" / name).touch()
    with serve(parse_script(SCRIPT)) as server:
        finish(field.task(root, server, phase_id="1"))
    assert [name for name in (*left, young) if (root / ".git" / name).exists()] == [young]  # of a run that is at work


def test_a_claim_on_a_phase_that_is_done_is_ended_by_whoever_comes(field):
    """As when a worker was killed that had claimed a phase which another had just landed, or a remote as it landed."""
    with serve(parse_script(SCRIPT)) as server:
        task = field.task(field.clone("ann"), server, phase_id="1")
        finish(task)
        bid = replace(BID, reserve_usd=5.0, ended=1)
        dead = field.registry(task, "dead")
        assert dead.take(bid)
        field.git("update-ref", "refs/heads/relay-jobs/main/1", "main")
        finish(replace(task, phase_id="2"))
        assert dead.read().held == dead.read().reserved == ()
        assert "refs/heads/relay-jobs/main/1" not in field.refs()

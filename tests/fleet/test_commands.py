"""`relay fleet` as it is typed: one plan from its submission to its end, and what stands in the way."""

import os
import subprocess
from dataclasses import replace

import psycopg
import pytest

from relay.fleet.queue import Queue
from relay.fleet.takes import Bid, Standing, Take, TakeState, Ticket
from relay.git.repository import open_repo
from relay.store.plan_state import read_plan_cost
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.fleet.plan_of_three import PAIR, WORDS, write_session

PLAN = PAIR.replace("Two\nAfter: none", "Two\nAfter: 1")
SCRIPT = "sessions:\n" + "".join(write_session(word, number) for number, word in enumerate(WORDS[:2], 1))


@pytest.fixture
def ask(stage, tmp_path):
    """Type `relay fleet …` in a repository with a remote that has not seen the plan; return what it says."""
    stage.git("clone", "-q", "--bare", str(stage.root), str(tmp_path / "away.git"))
    stage.git("remote", "add", "origin", str(tmp_path / "away.git"))
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")

    def ask(*words, code=0):
        done = stage.relay("fleet", *words)
        assert done.returncode == code, done.stderr
        return (done.stderr if code else done.stdout).splitlines()

    return ask


def test_a_plan_from_its_submission_to_its_end(stage, ask, tmp_path, url, monkeypatch):
    monkeypatch.setenv("RELAY_FLEET_URL", url)
    assert ask("submit", code=1) == ["Error: main has commits that origin has not", "Hint: git push origin main"]
    assert ask("submit", "NEW.md", code=1) == ["Error: origin has no NEW.md on main", "Hint: commit and push the plan"]
    stage.git("push", "-q", "origin", "main")
    assert ask("status", "--why")[1:] == [
        "   1  One: can begin; not queued: relay fleet submit",
        "   2  Two: waits for 1",
    ]
    assert ask("submit") == ["phase 1  queued"]
    assert ask("submit") == ["phase 1  already queued"]
    assert "fleet  workers of a fleet are at this plan" in stage.relay("status").stdout

    keyless = ask("worker", "--place", str(tmp_path / "keyless"), code=1)
    assert keyless[0].startswith("Error: no API key")
    assert keyless[1].startswith("Hint: export ANTHROPIC_API_KEY=")
    shown, own = (
        ask("status", "--why"),
        Ticket(remote=str(tmp_path / "away.git"), branch="main", plan_path="PLAN.md", phase_id="1"),
    )
    assert shown[1].startswith("   1  One: can begin; queued as "), shown  # it left the phase to others
    standing = Queue(url).read(own.plan)
    assert (standing.latest["1"].state, standing.reserved_usd) == (TakeState.FREE, 0)
    number = shown[1].rpartition(" ")[2]
    assert ask("cancel", number, "999999") == [f"{number}  taken back", "999999  not queued"]
    assert ask("status", "--why")[1] == "   1  One: can begin; taken back; relay fleet submit --phase 1 queues it again"
    assert ask("submit", "--phase", "1") == ["phase 1  queued"]

    with serve(parse_script(SCRIPT)) as server:
        environ = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        # Two of them with the same clones; what waited for the first phase is queued when that is done.
        for names in (("ann", "ann"), ("bob",)):
            workers = [
                subprocess.Popen(
                    [*stage.find_program(), "fleet", "worker", "--once", "--place", name],
                    cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
                for name in names
            ]  # fmt: skip
            said = [worker.communicate()[0] for worker in workers]
            assert {worker.returncode for worker in workers} == {0}, said
            assert "Traceback" not in "".join(said)
        assert (server.errors, server.unplayed) == ([], ())  # each phase was paid for once
    assert [line.rpartition(": ")[2] for line in ask("status")[1:]] == ["done"] * 2
    assert ask("submit") == ["PLAN.md: no phase can begin now; relay fleet status --why explains each"]
    assert ask("cancel", "--lost", "1") == ["no dead worker has a reserved share"]
    away = ("--git-dir", str(tmp_path / "away.git"))
    assert [stage.git(*away, "show", f"main:{word}.txt") for word in WORDS[:2]] == list(WORDS[:2])
    assert stage.git(*away, "log", "--format=%B", "main").count("Relay-Status: done") >= 2
    assert stage.git(*away, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


@pytest.mark.nightly
def test_what_a_dead_worker_spent_is_booked_by_who_looked_at_the_bill(stage, ask, tmp_path, url, monkeypatch):
    monkeypatch.setenv("RELAY_FLEET_URL", url)
    stage.git("push", "-q", "origin", "main")
    ask("submit", "--phase", "1")
    queue = Queue(url)
    own = Ticket(remote=str(tmp_path / "away.git"), branch="main", plan_path="PLAN.md", phase_id="1")
    two = replace(own, phase_id="2")
    queue.submit([two])
    bid = Bid(cap_usd=20.0, phase_cap_usd=None, spent_usd=0.0, seen_usd=0.0, shares=2, before=Standing())
    for ticket in (own, two):
        placed = next(one for one in queue.list_placed() if one.ticket == ticket)
        taken = queue.take(placed, "dead", replace(bid, before=queue.read(own.plan)))
        assert isinstance(taken, Take)
        queue.bury(placed)
    assert ask("cancel", "--lost", "nan", code=2)
    said = [f"${usd} of dead on phase {n}: freed, " for n, usd in ((1, "10.00"), (2, "5.00"))]
    assert ask("cancel", "--lost", "1.5") == [f"{said[0]}$1.00 booked", f"{said[1]}$0.50 booked"]
    assert ask("cancel", "--lost", "1.5") == ["no dead worker has a reserved share"]
    for booked in ("here", "elsewhere"):
        with psycopg.connect(url, autocommit=True) as there:  # as where whoever booked it was killed before it freed it
            there.execute("update relay_takes set reserved_usd = 10 where phase_id = '1'")
        if booked == "elsewhere":
            for ref in stage.git("for-each-ref", "--format=%(refname)", "refs/relay/spent/").split():
                stage.git("update-ref", "-d", ref)
        assert ask("cancel", "--lost", "3") == [f"{said[0]}booked before"]
    stage.git("fetch", "-q", "origin", "refs/relay/spent/*:refs/relay/spent/*")
    assert queue.read(own.plan).reserved_usd == 0
    assert "spent  $1.50" in stage.relay("status").stdout
    stage.git("clone", "-q", str(tmp_path / "away.git"), str(tmp_path / "other"))
    fetch = ("fetch", "-q", "origin", "refs/relay/spent/*:refs/relay/spent/*")
    stage.git("-C", str(tmp_path / "other"), *fetch)
    assert read_plan_cost(open_repo(tmp_path / "other"), "PLAN.md").spent.cost_usd == 1.5


def test_without_its_database_the_queue_is_not_known_and_the_plan_is(stage, ask, monkeypatch):
    stage.git("push", "-q", "origin", "main")
    assert ask("status", "--remote", "nowhere", code=1)[-1] == "Hint: git remote -v shows those that there are"
    monkeypatch.setenv("RELAY_FLEET_URL", "postgresql:///x?host=/nowhere")
    assert ask("submit", code=1)[0].startswith("Error: the database does not answer: ")
    assert ask("worker", "--once", code=1)[-1].startswith("Hint: relay fleet up runs one here; ")
    assert ask("status", "--why")[1] == "   1  One: can begin"

"""What a killed relay has spent is known to the next one: what the endpoint billed, and never less."""

import json
import os
import signal
import subprocess
from functools import partial

import pytest

from relay.base.errors import ExitCode
from relay.base.interrupts import Urgency
from relay.base.words import render_usd
from relay.cli.views.narrate import STOPPING
from relay.git.repository import open_repo
from relay.runners.messages.answers import parse_api_usage
from relay.session.prices import cost_usd, find_price
from relay.store.plan_state import read_plan_cost
from tests.effort import take_each, take_turns
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.resume.test_signals import Running
from tests.scripts import HELLO

LOOKS = [{"tools": [{"name": "bash", "input": {"command": f"git grep word{n}"}}]} for n in range(3)]
WAIT = {"tools": [{"name": "bash", "input": {"command": "touch started; sleep 300"}}]}
STALLED = {"text": "Now I write it all down. " * 40, "fault": {"kind": "stall", "after_events": 2}}
WAYS = {
    "SIGTERM": (signal.SIGTERM,),
    "two Ctrl-C": (signal.SIGINT, signal.SIGINT),
    "stop --now": (),
    "SIGKILL": (signal.SIGKILL,),
}


def play(*turns, sessions=1):
    return parse_script(json.dumps({"sessions": [{"turns": list(turns)}] * sessions}))


def count_billed(server):
    """What the answers cost that the endpoint has sent, or begun to send."""
    price = find_price("claude-opus-5-5")
    assert price
    usages = [parse_api_usage(r.usage) for r in server.requests if r.path == "/v1/messages" and r.usage]
    return sum(cost_usd(usage, price) for usage in usages if usage)


def read_spent(stage):
    status = stage.relay("status", "--json")
    assert status.returncode == 0, status.stderr
    return json.loads(status.stdout)["spent"]


def read_recorded(stage):
    return read_spent(stage)["usd"]


def kill(running, is_reached):
    running.wait_for(is_reached)
    running.process.send_signal(signal.SIGKILL)
    running.end()


@pytest.mark.parametrize(("way", "events"), take_each(4, take_turns(WAYS, (20, 0, 1, 49))))
def test_a_request_on_its_way_has_cost_the_most_that_it_can(stage, way, events):
    """Its usage never came, and is billed: however the run ends, behind whatever event."""
    stalled = {**STALLED, "fault": {"kind": "stall", "after_events": events}}
    with serve(play(LOOKS[0], stalled)) as server:
        running = Running(stage.root, server.base_url, program=stage.find_program())
        running.wait_for(lambda: sum(r.path == "/v1/messages" for r in server.requests) == 2)
        for number in WAYS[way]:
            running.process.send_signal(number)
            if number == signal.SIGINT and STOPPING[Urgency.FINISH_TURN] not in running.said:
                running.wait_for_line(STOPPING[Urgency.FINISH_TURN])
        if not WAYS[way]:
            assert stage.relay("stop", "--now").returncode == 0
        running.end()

    billed, spent = count_billed(server), read_spent(stage)
    assert spent["estimated"]
    assert billed < spent["usd"] < billed + 32_000 * 25e-6
    reported = json.loads(stage.relay("report", "--json").stdout)
    assert [reported["totals"][name] for name in ("cost_usd", "estimated")] == [spent["usd"], True]
    assert sum(phase["cost_usd"] for phase in reported["phases"]) == pytest.approx(spent["usd"])


TWO_PHASES = """\
## Phase 1
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt

## Phase 2
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
"""
MOMENTS = (len(LOOKS) + 1, 2, 3, 1)


def test_every_command_says_the_same_sum_wherever_the_plan_was_killed(stage):
    """At the nth request of a run, or once all are answered, where it is what the endpoint billed; never below that.

    No call of the sessions that are killed changes a file, so no snapshot is taken.
    """
    stage.write("PLAN.md", TWO_PHASES)
    (stage.root / ".gitignore").write_text("started\n")
    stage.commit("plan")
    assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE
    before = count_billed(stage.server)
    whole = 0
    with serve(play(*LOOKS, WAIT, sessions=len(MOMENTS))) as server:
        for moment in take_each(4, MOMENTS):
            (stage.tree / "started").unlink(missing_ok=True)
            running = Running(stage.root, server.base_url, program=stage.find_program())
            if moment > len(LOOKS):
                kill(running, (stage.tree / "started").exists)
            else:
                kill(running, partial(has_come, server, len(server.requests) + moment))

            spent, billed = read_spent(stage), before + count_billed(server)
            reported = json.loads(stage.relay("report", "--json").stdout)
            book = read_plan_cost(open_repo(stage.root), "PLAN.md").spent
            assert reported["totals"]["cost_usd"] == book.cost_usd == spent["usd"]
            assert reported["totals"]["estimated"] == book.estimated == spent["estimated"]
            assert sum(p["cost_usd"] for p in reported["phases"]) == pytest.approx(spent["usd"])
            words = render_usd(spent["usd"], estimated=spent["estimated"])
            for command in (("status",), ("report", "--text"), ("pr", "--text")):
                assert words in stage.relay(*command).stdout, command
            rounded = (3 + len(server.requests)) * 5e-7  # each amount is written with six decimals
            assert spent["usd"] >= billed - rounded
            if not spent["estimated"]:
                whole += 1
                assert spent["usd"] == pytest.approx(billed, abs=rounded)
    assert whole


def has_come(server, number):
    return len(server.requests) >= number


def test_a_killed_planner_has_cost_something(stage):
    """And what the next one costs is added to it."""
    stage.git("rm", "-q", "PLAN.md")
    stage.git("commit", "-qm", "no plan")
    (stage.root / ".gitignore").write_text("started\n")
    look = {"tools": [{"name": "bash", "input": {"command": "ls"}}]}
    with serve(play(look, look, STALLED)) as server:
        env = {**os.environ, "ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "k"}
        words = [*stage.find_program(), "plan", "greet", "--sandbox", "off"]
        planner = subprocess.Popen(
            words, cwd=stage.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running = Running.__new__(Running)
        running.process, running.said = planner, ""
        running.wait_for(lambda: sum(r.path == "/v1/messages" for r in server.requests) == 3)
        planner.kill()
        planner.communicate(timeout=60)
    billed = count_billed(server)
    stage.write("PLAN.md", "## Phase 1\nVerify: `test -d .`\n- [ ] Say hello — hello.txt\n")

    assert billed < read_recorded(stage) < billed + 32_000 * 25e-6

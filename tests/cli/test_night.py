"""One night of the whole program: it assumes, is told, is killed, goes on, is reviewed, and calls out."""

import json
import subprocess
import sys
import threading

import pytest

from relay.base.errors import ExitCode
from tests.cli.test_run import PLAN
from tests.commit.test_review import FINDING, REPAIR, WORK, judge, report
from tests.news.listener import listen
from tests.planning.test_questions import WHERE, ask
from tests.scripts import serving
from tests.waiting import wait_until

TOOLS = (ask(WHERE), {"name": "submit_plan", "input": {"markdown": PLAN}})
PLANNED = json.dumps({"sessions": [{"turns": [{"tools": [tool]} for tool in TOOLS]}]})
LIMIT_S = 120
"""For the run that is killed: what it waits for comes within seconds."""
LONG = "touch at; until [ -e go ]; do sleep 0.02; done; rm at go"
CALLS = [{"name": "bash", "input": {"command": command}} for command in (LONG, "sleep 60")]
WAITS = json.dumps({"sessions": [{"turns": [{"tools": CALLS}]}]})
SAID = 'first_message_contains: "- use the v2 client"'
HAND_OVER = f"""
  - turns:
      - expect: {{{SAID.replace("- ", "")}}}
        tools: [{{name: hand_off, input: {{next_step: "say hello", learned: [], dead_ends: []}}}}]
"""
OTHER = FINDING | {"summary": "It is no poem", "line": 1}
REST = (
    "sessions:"
    + HAND_OVER
    + WORK.replace("- tools:", f"- expect: {{{SAID}}}\n        tools:", 1)
    + report(FINDING, OTHER)
    + judge((True, "line 2 is a command"), (False, "nobody asked for one"))
    + REPAIR
    + report()
    + '  - turns: [{tools: [{name: block, input: {reason: "which world?"}}]}]\n'
)


@pytest.mark.nightly
def test_a_night(relay, project, environ, tmp_path, git, commit):
    config = tmp_path / "home/.config/relay/config.toml"
    config.parent.mkdir(parents=True)

    def command(script, *args, during=None):
        with serving(script) as (server, env):
            ran = during(env) if during else relay(*args, env=env)
            assert server.errors == [], ran
            return ran

    def kill_once_told(env):
        words = [sys.executable, "-u", "-P", "-m", "relay", "run"]
        with subprocess.Popen(
            words, cwd=project, env=environ | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run:
            assert run.stdout
            limit = threading.Timer(LIMIT_S, run.kill)  # ends both waits: no process, no line
            limit.start()
            wait_until((project / "at").exists, by=run)
            assert relay("say", "use the v2 client").out.startswith("left for the run that is at work here")
            (project / "go").touch()
            assert any("use the v2 client" in line for line in run.stdout)
            limit.cancel()
            run.kill()

    with listen() as endpoint:
        call = f'{{ url = "{endpoint.address}", on = ["blocked"], details = true }}'
        config.write_text(f'review = "phase"\nnotify = [{call}]\n')
        planned = command(PLANNED, "plan", "greetings")
        assert planned.code == ExitCode.DONE
        assert "## Assumptions\n\n- Where are keys kept? in a file\n" in (project / "PLAN.md").read_text()
        commit()
        command(WAITS, during=kill_once_told)
        ran = command(REST, "run")
        told = [json.loads(body) for *_, body in endpoint.seen]

    assert ran.code == ExitCode.STOPPED, ran
    assert [one["title"] for one in told] == ["relay: it needs you"]
    assert "which world?" in told[0]["message"]
    done = git("log", "-1", "--format=%B")
    assert done.startswith("Say hello safely\n")
    assert "Relay-Review: rounds=2 found=2 confirmed=1 open=0 " in done
    assert git("show", "HEAD:hello.txt") == "hello"
    assert "v2 client" not in done
    assert "review 1 of phase 1: 2 found, 1 confirmed" in ran.out
    assert "gate of phase 1 passed" in ran.out.split("review 1 of phase 1:")[1]

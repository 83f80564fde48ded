"""`relay demo --check`: what is wrong with a script, and what one may hold."""

from relay.base.errors import ExitCode
from relay.rehearsal.script import FORMAT
from relay.tools.toolbox import PLANNER_SPECS, RUNNER_SPECS

GOOD = """
sessions:
  - turns:
      - tools: [{name: tick, input: {item: "1.1", evidence: seen}}, {name: mcp__theirs__look, input: {x: 1}}]
      - text: Done.
"""
WRONG = [
    (
        GOOD.replace("evidence", "evidenc"),
        's.yaml:4: tick: "evidence" is missing; "evidenc" is not known; allowed: item',
    ),
    (GOOD.replace('"1.1"', "[1]"), 's.yaml:4: tick: "item" must be a string'),
    (GOOD.replace("text: Done.", "fault: drop"), "s.yaml:5: Object contains unknown field `fault`"),
    (GOOD.replace("turns", "turn"), "s.yaml:3: Object contains unknown field `turn`"),
]


def test_a_good_script_is_measured(stage):
    stage.write("s.yaml", GOOD)
    done = stage.relay("demo", "--check", "s.yaml")
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.DONE, "s.yaml: 1 session, 2 turns\n", "")


def test_what_is_wrong_is_said_with_its_line(stage):
    for text, words in WRONG:
        stage.write("s.yaml", text)
        done = stage.relay("demo", "--check", "s.yaml")
        assert (done.returncode, words in done.stderr) == (ExitCode.USER, True), done.stderr


def test_without_a_script_it_lists_every_key_and_tool(stage):
    done = stage.relay("demo", "--check")
    assert done.returncode == ExitCode.DONE
    words = {line.split()[0] for line in done.stdout.splitlines()}
    assert {key for keys in FORMAT.values() for key in keys} <= words
    assert {spec.name for spec in (*RUNNER_SPECS, *PLANNER_SPECS)} <= words
    assert "evidence: a string, commit?: a string" in done.stdout


def test_the_demo_a_script_and_its_check_are_three_things(stage):
    for words in (["--serve", "s.yaml", "--check", "s.yaml"], ["--keep", "x", "--serve", "s.yaml"], ["--port", "1"]):
        done = stage.relay("demo", *words)
        assert (done.returncode, "do not go together" in done.stderr) == (ExitCode.USAGE, True), words

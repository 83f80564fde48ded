"""`relay review`: a committed phase, or any range, and nothing is changed."""

import json

import pytest

from relay.base.errors import ExitCode
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.scripts import HELLO

FINDING = {
    "file": "hello.txt", "line": 1, "summary": "It greets nobody", "failure_scenario": "somebody is there",
    "category": "missing", "severity": "important",
}  # fmt: skip


def act(name, field, given, **expect):
    """A session that hands this in."""
    turn = {"tools": [{"name": name, "input": {field: given}}]} | ({"expect": expect} if expect else {})
    return f"  - {json.dumps({'turns': [turn]})}\n"


@pytest.fixture
def review(stage, monkeypatch):
    """Run the command against a script, in a repository whose first phase is done."""
    stage.arrange("a phase to review", lambda: stage.run(HELLO, all_=False))

    def run(script, *args):
        with serve(parse_script(f"sessions:\n{script}")) as server:
            monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
            done = stage.relay("review", *args)
            assert server.errors == []
            return done

    return run


def test_the_phase_that_was_done_last_is_reviewed(stage, review):
    before = stage.git("rev-parse", "HEAD"), stage.git("status", "--porcelain")
    spent = json.loads(stage.relay("status", "--json").stdout)["spent"]["usd"]
    script = act("report_findings", "findings", [FINDING], first_message_contains=["+hello", "Say hello — hello.txt"])
    script += act(
        "judge_findings", "verdicts", [{"number": 1, "confirmed": True, "reason": "hello.txt:1 names nobody"}]
    )

    done = review(script, "--sarif", "found.sarif")

    assert done.returncode == ExitCode.STOPPED, done
    at = done.stdout.index("confirmed: hello.txt:1: It greets nobody")
    assert [line.partition(" ")[2] for line in done.stdout[at:].splitlines()[1:3]] == [
        "- what goes wrong: somebody is there",
        "- confirmed because: hello.txt:1 names nobody",
    ]
    assert "phase 1: 1 finding, 1 confirmed" in done.stdout
    (result,) = json.loads((stage.root / "found.sarif").read_text())["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("missing", "error")
    (stage.root / "found.sarif").unlink()
    assert (stage.git("rev-parse", "HEAD"), stage.git("status", "--porcelain")) == before
    assert json.loads(stage.relay("status", "--json").stdout)["spent"]["usd"] > spent


def test_one_commit_is_reviewed_also_the_first_of_all(review):
    done = review(act("report_findings", "findings", [], first_message_contains="> start"), "HEAD~1")
    assert (done.returncode, "HEAD~1: 0 findings" in done.stdout) == (ExitCode.DONE, True), done


def test_what_there_is_not_is_said_before_anything_is_asked(review):
    for what, words in (("2", "phase 2 is not done"), ("9", "is neither a phase"), ("nope..HEAD", "nor a range")):
        done = review("  - {turns: [{text: x}]}\n", what)
        assert (done.returncode, words in done.stderr) == (ExitCode.USER, True), done


def test_a_place_that_is_not_there_is_said_before_anything_is_paid_for(stage, review):
    script = "  - {turns: [{text: x}]}\n"
    done = review(script, "--sarif", "none/found.sarif")

    assert (done.returncode, "none/found.sarif cannot be written" in done.stderr) == (ExitCode.USER, True)
    (stage.root / "found").mkdir()
    assert review(script, "--sarif", "found").returncode == ExitCode.USAGE

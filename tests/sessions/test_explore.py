"""A session has another one find something out: it pays, and gets claims with places, or is told why not."""

import json

import pytest

from relay.base.errors import ExitCode
from relay.git.repository import open_repo
from relay.ledger.belief import ClaimStatus, judge
from relay.ledger.model import Kind, parse_ledger
from relay.session.events import LegEnded, LegStarted, OutputShown, ResponseReceived, ToolStarted
from relay.session.usage import Usage
from relay.store.staleness import find_stale_claims
from tests.resume.test_spend import count_billed

PLAN = """\
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello as the others do — app/
"""
QUESTION = "Where is a greeting made?"
CLAIM = {"claim": "greet makes each greeting", "places": ["app/greet.py:1-2"]}
LOOK = {"tools": [{"name": "read", "input": {"path": "app/greet.py"}}]}
END = [
    {"tools": [{"name": "write", "input": {"path": "hello.txt", "content": "hello\n"}}]},
    {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "grep finds it"}}]},
    {"text": "Commit: Say hello"},
]


def call(question=QUESTION, **more):
    return {"tools": [{"name": "explore", "input": {"question": question, **more}}]}


def answer(*claims):
    return {"tools": [{"name": "answer", "input": {"claims": list(claims)}}]}


def play(*explorer, asks=None, then=None, last=None):
    """A session that explores, and the explorer's turns; `last` is what the session's next turn expects."""
    outer = [asks or call(), *(then or END)]
    if last:
        outer[1] = {**outer[1], "expect": last}
    sessions = [{"name": "outer", "when": {"first_message_contains": "Carry out phase 1"}, "turns": outer}]
    return json.dumps({"sessions": [*sessions, *({"turns": list(turns)} for turns in explorer)]})


@pytest.fixture
def app(stage):
    stage.write("PLAN.md", PLAN)
    stage.write("app/greet.py", "def greet(name):\n    return f'hello {name}'\n")
    stage.commit()
    return stage


def read_ledger(stage):
    return parse_ledger((stage.root / "PLAN.ledger.yaml").read_text())


def list_messages(stage):
    return [request for request in stage.server.requests if request.path == "/v1/messages"]


def test_a_session_asks_another_one_and_gets_claims_that_the_ledger_keeps(app):
    """The explorer sees rules, phase and question; the session pays; a claim becomes stale with its file."""
    found = {"first_message_contains": ["# The question", QUESTION, "Say hello as the others do", "app/greet.py"]}
    sees = {
        **found,
        "first_message_lacks": "I am going to ask",
        "system_contains": "Be brief.",
        "tools_include": ["answer"],
    }
    script = play(
        [{**LOOK, "expect": sees}, answer(CLAIM, {"claim": "nobody says goodbye", "places": []})],
        asks={"text": "I am going to ask", **call(paths=["app/greet.py"])},
        last={
            "last_result_contains": ["greet makes each greeting (app/greet.py:1-2)", "no place: nobody says goodbye"],
            "last_result_is_error": False,
        },
    )

    ended = app.run(script, history=True)

    assert (ended.exit_code, app.server.errors) == (ExitCode.DONE, [])
    (commit,) = app.commits()
    (claim,) = read_ledger(app).claims.values()
    assert (claim.claim, claim.kind, claim.stamp.phase) == ("greet makes each greeting", Kind.OBSERVATION, "1")
    assert claim.because == f"an explorer was asked: {QUESTION}"
    (source,) = claim.sources
    assert (str(source), bool(source.blob), bool(source.text)) == ("app/greet.py:1-2", True, True)
    # Money: the commit has all of it, to the token; what the explorer used stands apart.
    assert commit.cost_usd == pytest.approx(count_billed(app.server), abs=1e-6)
    answers = app.seen(ResponseReceived)
    assert [(one.query, one.turn) for one in answers] == [
        ("", 1),
        ("explore", 0),
        ("explore", 0),
        ("", 2),
        ("", 3),
        ("", 4),
    ]
    assert sum((one.usage for one in answers), Usage()) == commit.usage == app.seen(LegEnded)[0].usage
    # One session in the log, one line in the view.
    assert (len(app.seen(LegStarted)), [one.name for one in app.seen(ToolStarted)]) == (1, ["explore", "write", "tick"])
    assert next(one.line for one in app.seen(OutputShown)) == "turn 1 of 20: read app/greet.py"
    # Both tapes can be played again.
    tapes = sorted(path.stem for path in (app.root / ".relay/history").iterdir())
    assert len(tapes) == 2
    for name in tapes:
        played = app.relay("replay", name)
        assert played.returncode == 0, played.stdout + played.stderr
    app.write("app/greet.py", "def greet(name):\n    return f'good day {name}'\n")
    ledger = read_ledger(app)
    assert judge(ledger, find_stale_claims(open_repo(app.root), ledger))[claim.id].status is ClaimStatus.STALE

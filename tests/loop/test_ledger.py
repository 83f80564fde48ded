"""The whole arc: a decision is recorded, its ground changes, a later session is told, decides anew, a person asks."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from relay.base.errors import ExitCode
from relay.git.repository import open_repo
from relay.ledger.model import Kind, Ledger, Record, Source, Stamp, append_entry, make_entries
from relay.session.events import Noticed, SessionStarted
from relay.store.staleness import cite_sources
from tests.effort import take_each

PLAN = """\
# Keys

## Phase 1 — Schema
Verify: `test -f db.py`
- [ ] Make the table — db.py

## Phase 2 — Faster
Verify: `grep -q sha256 db.py`
- [ ] Use another digest — db.py

## Phase 3 — Docs
Verify: `test -f doc.md`
- [ ] Say how keys are kept — doc.md, db.py
"""
MADE = PLAN.replace("[ ] Make", "[x] Make")
KEYS = "# keys\n\ndigest = md5\nlength = 32\n"
CHANGE = """
sessions:
  - turns:
      - tools: [{name: edit, input: {path: db.py, old: "# keys\\n", new: "# keys of organisations\\n"}}]
      - expect: {last_result_lacks: "rest"}
        tools: [{name: bash, input: {command: "sed -i s/md5/sha256/ db.py"}}]
      - expect:
          last_result_contains:
            - "relay: this changed what claims rest on"
            - "ID decision, STALE (db.py:3-4 has changed): Keys are kept as 32 hex digits"
        tools: [{name: edit, input: {path: db.py, old: "length = 32", new: "length = 64"}}]
      - expect: {last_result_lacks: "what claims rest on"}
        tools: [{name: tick, input: {item: "2.1", evidence: "grep finds it"}}]
      - text: "Commit: Use sha256"
"""
REVISE = """
sessions:
  - turns:
      - expect:
          first_message_contains:
            - "ID decision, STALE (db.py:3-4 has changed)"
            - "md5 makes as many"
        tools:
          - name: record
            input: {claim: x, because: y, sources: [], replaces: c1}
          - name: record
            input: {claim: x, because: y, sources: ["db.py::length"]}
          - name: record
            input:
              claim: Keys are kept as 64 hex digits
              because: sha256 makes as many
              sources: ["db.py:4"]
              kind: constraint
              replaces: ID
          - {name: write, input: {path: doc.md, content: "64 digits\\n"}}
          - {name: tick, input: {item: "3.1", evidence: "written"}}
      - expect:
          last_result_contains:
            - "replaces: there is no claim 'c1' in the ledger. Allowed: ID."
            - "db.py::length: no such file. A source is path, path:line or path:first-last."
            - "Recorded as c"
        text: "Commit: Say how keys are kept"
"""


def keep(stage, *records):
    """Write the ledger as a session of phase 1 left it; return the ids of its claims."""
    stamp, ledger = Stamp(phase="1", session="5e551011", at="2026-11-20T10:00:00Z"), Ledger()
    for record in records:
        cited = cite_sources(open_repo(stage.root), record.sources, ())
        ledger = append_entry(ledger, *make_entries(ledger, replace(record, sources=cited), stamp))
    stage.write("PLAN.ledger.yaml", ledger.text)
    return list(ledger.claims)


def start(stage, claim="Keys are kept as 32 hex digits"):
    """Commit a plan whose first phase is done, with its file and a claim that rests on two lines of it."""
    stage.write("PLAN.md", PLAN.replace("[ ] Make", "[x] Make"))
    stage.write("db.py", "# keys\n\ndigest = md5\nlength = 32\n")
    stage.commit()
    made = Record(claim=claim, because="md5 makes as many", sources=(Source(path="db.py", lines="3-4"),))
    (name,) = keep(stage, made)
    stage.commit("ledger")
    return name


@pytest.fixture
def arc(stage):
    """A repository in which all three phases are done, with the ids of the claim that was replaced and of its heir."""
    stage.write("PLAN.md", PLAN.replace("[ ]", "[x]"))
    stage.write("db.py", "# keys of organisations\n\ndigest = sha256\nlength = 64\n")
    stage.write("doc.md", "64 digits\n")
    stage.commit()
    old = Record(claim="Keys are kept as 32 hex digits", because="md5 makes as many", sources=())
    (name,) = keep(stage, old)
    source = Source(path="db.py", lines="4")
    new = Record(
        claim="Keys are kept as 64 hex digits", because="sha256 makes as many", kind=Kind.CONSTRAINT,
        replaces=(name,), sources=(source,),
    )  # fmt: skip
    ids = keep(stage, old, new)
    stage.commit("ledger")
    return stage, ids


def list_claims(stage):
    return json.loads(stage.relay("ledger", "list", "--json").stdout)["claims"]


def test_a_later_session_is_told_that_a_decision_is_stale_and_revisits_it(stage):
    old = start(stage)
    revise = REVISE.replace("sessions:\n", "")
    ended = stage.run(f"{CHANGE}{revise}".replace("ID", old))
    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, []), ended
    (first, new) = (claim["id"] for claim in list_claims(stage))
    assert first == old
    told = [event.text for event in stage.seen(Noticed) if "look at again" in event.text]
    assert len(told) == 1
    assert f"{old} stale (db.py:3-4 has changed" in told[0]

    added = [line for line in stage.git("show", "HEAD", "--", "PLAN.ledger.yaml").splitlines() if line.startswith("+-")]
    assert len(added) == 1
    assert f'id: "{new}"' in added[0]
    assert f'replaces: ["{old}"]' in added[0]
    assert stage.git("rev-parse", "--short=12", "HEAD:db.py").strip() in added[0]

    shown = stage.relay("ledger", "list").stdout
    assert f"{old} decision, OUT (replaced by {new}): Keys are kept as 32 hex digits" in shown
    assert f"{new} constraint: Keys are kept as 64 hex digits" in shown
    why = stage.relay("ledger", "list", old).stdout.splitlines()
    assert why[0] == f"{old} decision, OUT (replaced by {new}): Keys are kept as 32 hex digits"
    assert any(line.startswith("  source db.py:3-4 has changed") for line in why)
    assert any(
        line.startswith(f"  replaced by {new} constraint: Keys are kept as 64 hex digits — sha256 makes")
        for line in why
    )
    assert "to do" not in shown


@pytest.mark.nightly
def test_a_tick_over_a_claim_that_the_session_put_in_doubt_and_left_is_a_doubt_until_it_is_settled(stage):
    claim = start(stage)
    ended = stage.run(CHANGE.replace("ID", claim), all_=False)
    words = f"claim {claim} (Keys are kept as 32 hex digits) was put in doubt and left: db.py:3-4 has changed"

    assert stage.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly,unfold)").split("\n")[0] == words
    assert f"doubtful: {words}" in ended.reason
    assert words in stage.relay("status", "--why").stdout

    stage.run(REVISE.replace("ID", claim), all_=False)
    assert stage.server.errors == []
    assert words not in stage.relay("status", "--why").stdout  # replaced by a later session


@pytest.mark.nightly
def test_what_a_claim_says_gives_a_forge_no_command(stage):
    """Its words stand in a trailer: "Closes #7" there would close an issue that nobody spoke of."""
    claim = start(stage, "Closes #7 for good")
    stage.run(CHANGE.replace("ID", claim).replace("Keys are kept as 32 hex digits", "Closes #7"), all_=False)
    assert stage.server.errors == []
    message = stage.git("log", "-1", "--format=%B")
    assert f"Relay-Doubt: claim {claim} (" in message
    assert "Closes #7" not in message


@pytest.mark.nightly
def test_what_a_session_changed_and_looked_at_again_is_no_doubt(stage):
    claim = start(stage)
    look = {"claim": "", "because": "read it", "sources": ["db.py:4"], "confirms": claim}
    tick = "[{name: tick"
    assert tick in CHANGE
    script = CHANGE.replace(tick, f"[{{name: record, input: {json.dumps(look)}}}, {tick[1:]}").replace("ID", claim)
    assert stage.run(script, all_=False).exit_code == ExitCode.DONE
    assert stage.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly,unfold)").strip() == ""


@pytest.mark.nightly
def test_cited_lines_are_found_again_where_they_moved_to(arc):
    stage, (_old, new) = arc
    refused = stage.relay("ledger", "add", "x", "--because", "y", "--source", "db.py:9")
    assert (refused.returncode, "db.py:9: the file has 4 lines" in refused.stderr) == (ExitCode.USER, True)
    added = stage.relay("ledger", "add", "x", "--because", "y", "--source", "db.py:3")
    mine = added.stdout.partition(":")[0]
    text = (stage.root / "db.py").read_text()
    stage.write("db.py", "import hashlib\n\n" + text.replace("digest = sha256", "digest = sha512"))

    shown = {claim["id"]: claim for claim in json.loads(stage.relay("ledger", "list", "--json").stdout)["claims"]}
    assert (shown[new]["status"], shown[mine]["status"]) == ("in", "stale")
    assert "source db.py:3 has changed" in stage.relay("ledger", "list", mine).stdout
    stage.relay("ledger", "add", "--confirms", mine, "--because", "read it again")
    assert "to do" not in stage.relay("ledger", "list").stdout
    stage.write("db.py", "import hashlib\n")
    assert f"{new} constraint, STALE (db.py:4 has changed)" in stage.relay("ledger", "list").stdout


def test_what_a_person_writes_is_committed_by_the_next_run(arc):
    """Whatever is written between two runs, also where a phase is open with claims of its own."""
    stage, (old, new) = arc
    done = stage.relay("ledger", "retract", new, "--because", "the digest is secret")
    assert (done.returncode, done.stdout) == (0, f"{new}: written to PLAN.ledger.yaml; the next run commits it\n")
    added = stage.relay(
        "ledger", "add", "Never log keys", "--because", "audit", "--kind", "constraint", "--source", "db.py"
    )
    assert added.returncode == 0, added
    assert f"{old} decision, OUT (replaced by {new})" in stage.relay("ledger", "list").stdout  # it does not come back
    back = stage.relay("ledger", "add", "--confirms", new, "--because", "it is not")
    assert back.stdout.startswith(f"{new}: written to PLAN.ledger.yaml; ")
    stage.write(
        "PLAN.md",
        (stage.root / "PLAN.md").read_text()
        + "\n## Phase 4 — More\nVerify: `test -f more.md`\n- [ ] Go on — more.md\n",
    )
    script = """
sessions:
  - turns:
      - expect: {first_message_contains: ["constraint: Never log keys"]}
        tools:
        - {name: record, input: {claim: more is needed, because: of it, sources: []}}
        - {name: hand_off, input: {next_step: "more", learned: [], dead_ends: []}}
"""
    stage.run(script, max_sessions=1)
    assert stage.git("log", "--format=%s", "-1", "--", "PLAN.ledger.yaml") == "relay: ledger\n"
    person = stage.relay(
        "ledger", "add", "--contradicts", new, "--contradicts", new, "--because", "it contradicts itself"
    )
    assert person.returncode == 0, person
    script = """
sessions:
  - turns:
      - expect: {first_message_contains: ["more is needed", "CONTRADICTION"]}
        tools:
        - {name: write, input: {path: more.md, content: "more"}}
        - {name: tick, input: {item: "4.1", evidence: "written"}}
      - text: "Commit: Go on"
"""
    ended = stage.run(script)
    assert ended.exit_code == ExitCode.DONE, ended
    assert stage.server.errors == []
    ledger = stage.git("show", "HEAD:PLAN.ledger.yaml")
    assert all(words in ledger for words in ("Never log keys", "it is not", "more is needed", "contradicts itself"))
    assert stage.git("status", "--porcelain") == ""


def test_claims_that_are_added_at_once_are_all_written(stage):
    """Each holds the lock for a moment."""
    stage.write("PLAN.md", PLAN)
    stage.commit()
    stage.find_program()  # pytest makes a fixture on one thread only
    with ThreadPoolExecutor() as pool:
        added = list(pool.map(lambda n: stage.relay("ledger", "add", f"claim {n}", "--because", "x"), range(5)))
    assert [done.stderr for done in added] == [""] * 5
    listed = json.loads(stage.relay("ledger", "list", "--json").stdout)["claims"]
    assert {claim["claim"] for claim in listed} == {f"claim {n}" for n in range(5)}


RETRIES = """\
# Retries

## Phase 1 — Policy
Verify: `test -f policy.txt`
- [ ] Write the policy — policy.txt

## Phase 2 — Queue
Verify: `test -f queue.txt`
- [ ] Write the queue — queue.txt

## Phase 3 — Client
Verify: `test -f client.txt`
- [ ] Write the client — client.txt

## Phase 4 — Docs
Verify: `test -f docs.txt`
- [ ] Say what holds — docs.txt
"""


def do(n, file, *turns, told=(), lacks=()):
    """A session that writes its file, says something in its turns, and ticks."""
    first = {"first_message_contains": list(told), "first_message_lacks": list(lacks)}
    work = [
        {"name": "write", "input": {"path": f"{file}.txt", "content": "done"}},
        {"name": "tick", "input": {"item": f"{n}.1", "evidence": "written"}},
    ]
    ends = [{"expect": turns[-1][1] if turns else {}, "tools": work}, {"text": f"Commit: Write the {file}"}]
    said = [
        {
            "expect": expected,
            "tools": [{"name": "record", "input": {"because": "it was measured", "sources": [], **put}}],
        }
        for (put, _), expected in zip(turns, [first, *(expected for _, expected in turns)], strict=False)
    ]
    return json.dumps({"sessions": [{"turns": [*said, *(ends if said else [{**ends[0], "expect": first}, ends[1]])]}]})


@pytest.mark.nightly
def test_what_a_session_contradicts_it_is_asked_of_and_what_rested_on_it_goes_out_for_all_that_follow(stage):
    """Sessions decide, build on it, contradict it and are asked, replace it; the last one and the report know."""
    stage.write("PLAN.md", RETRIES)
    stage.commit()

    def play(script):
        ended = stage.run(script, all_=False)
        assert stage.server.errors == []
        assert ended.exit_code == ExitCode.DONE, ended
        return {claim["claim"]: claim for claim in json.loads(stage.relay("ledger", "list", "--json").stdout)["claims"]}

    rule, slots, now = "Retry counts must never be 2", "Three slots are kept in the queue", "The retry count must be 2"
    plain = {"last_result_contains": ["Recorded as c"], "last_result_lacks": ["Beside"]}
    first = play(do(1, "policy", ({"claim": rule, "kind": "constraint"}, plain)))[rule]["id"]
    built = play(do(2, "queue", ({"claim": slots, "rests_on": first}, plain), told=[rule]))[slots]
    assert built["rests_on"] == [first]

    asked = {
        "last_result_contains": [
            f"Beside {first}: does it rest on it, replace it or contradict it?",
            f"- {first} constraint: {rule}",
        ]
    }
    told = {
        "last_result_contains": [f"{built['id']} decision, OUT (rests on {first}): {slots}"],
        "last_result_lacks": ["Beside", rule, "OUT (replaced"],
    }
    new = {"claim": now, "kind": "constraint"}
    script = do(3, "client", (new, asked), ({**new, "replaces": first}, told), told=[rule, slots])
    last = play(script)[now]
    assert any(f"stands beside {first}; the session is asked" in event.text for event in stage.seen(Noticed))
    assert (last["status"], first in last["replaces"]) == ("in", True)

    known = [f"{last['id']} constraint: {now}", f"{built['id']} decision, OUT (rests on {first}): {slots}"]
    claims = play(do(4, "docs", told=known))
    assert {text: claim["status"] for text, claim in claims.items()} == {rule: "out", slots: "out", now: "in"}
    report = Path(stage.relay("report").stdout.strip()).read_text()
    assert f"out: replaced by {last['id']}" in report
    assert f"out: rests on {first}" in report
    (shown,) = [event.claims for event in stage.seen(SessionStarted)]
    assert {claim["id"] for claim in shown} >= {first, built["id"], last["id"]}
    assert "3 sessions had 7 claims in the first message, which cost " in report
    assert "They used 2 (" in report  # the first claim, which the second rests on and the third replaces
    assert "The ledger: 3 sessions had 7 claims" in stage.relay("lab", "tune").stdout


def test_claims_that_cannot_both_hold_are_said_to_the_person_whose_own_word_stands(stage):
    """A session cannot take it back; that it was left so is a doubt of the commit until the person settles it."""
    stage.write("PLAN.md", RETRIES)
    added = stage.relay("ledger", "add", "Never retry twice", "--because", "the bank said so")
    mine = added.stdout.partition(":")[0]
    opposite = stage.relay("ledger", "add", "Retry twice", "--because", "it helps")
    assert f"beside {mine} decision: Never retry twice — the bank said so" in opposite.stdout
    assert "relay ledger add --contradicts ID --contradicts ID" in opposite.stdout
    stage.relay("ledger", "retract", opposite.stdout.split(":")[0], "--because", "it does not")
    stage.commit()
    new = {"claim": "Always retry twice", "kind": "constraint"}
    refused = {"last_result_contains": [f"a person recorded {mine}, and only a person takes it back"]}
    doubt = {"last_result_contains": [f"in doubt (cannot hold together with {mine}: it was measured): Always retry"]}
    script = do(1, "policy", ({**new, "replaces": mine}, refused), ({**new, "contradicts": mine}, doubt))
    assert stage.run(script, all_=False).exit_code == ExitCode.DONE
    assert stage.server.errors == []
    assert any("CONTRADICTION" in event.text and event.warning for event in stage.seen(Noticed))
    assert "cannot all hold" in stage.relay("report", "--text").stdout
    known = json.loads(stage.relay("ledger", "list", "--json").stdout)
    assert {claim["claim"]: claim["status"] for claim in known["claims"]} == {
        "Never retry twice": "in", "Retry twice": "out", "Always retry twice": "in doubt",
    }  # fmt: skip
    (clash,) = known["contradictions"]
    words = f"contradiction {clash['id']} ({', '.join(clash['claims'])}) was recorded and left: it was measured"
    assert words in stage.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly,unfold)")
    assert words in stage.relay("status", "--why").stdout
    stage.relay("ledger", "retract", clash["id"], "--because", "twice is once too often")
    assert words not in stage.relay("status", "--why").stdout
    assert "CONTRADICTION" not in stage.relay("ledger", "list").stdout


@pytest.mark.parametrize("kind", take_each(2, ["constraint", "observation"]))
def test_of_a_contradiction_that_a_session_records_as_it_is_asked_to_neither_side_holds_until_it_is_settled(
    stage, kind
):
    """It records its claim again with `contradicts`; the copy before stays out.

    The next session is told at its start, and again before its first tick; it settles it, and the one after is not.
    """
    rule, other = "Retry counts must never be 2", "The retry count must be 2"
    stage.write("PLAN.md", RETRIES.replace("[ ] Write the policy", "[x] Write the policy"))
    stage.commit()
    (first,) = keep(stage, Record(claim=rule, because="it was measured", kind=Kind.CONSTRAINT, sources=()))
    stage.commit("ledger")
    asked = {"last_result_contains": [f"Beside {first}: does it rest on it, replace it or contradict it?"]}
    new = {"claim": other, "kind": kind}
    told = ["CONTRADICTION of c", f", {first}: it was measured", "(3 claims: 2 in doubt, 1 OUT; 3 shown)"]
    tick = {"name": "tick", "input": {"item": "3.1", "evidence": "x"}}
    settle = {"name": "record", "input": {"claim": "Two it is", "because": "asked", "sources": [], "replaces": first}}
    asks = ["relay: a contradiction is open; settle n", *told[:2]]
    work = [{"name": "write", "input": {"path": "client.txt", "content": "done"}}, settle, tick]
    turns = [
        {"expect": {"first_message_contains": told}, "tools": [tick]},
        {"expect": {"last_result_contains": asks}, "tools": work},
        {"expect": {"last_result_lacks": ["a contradiction is open"]}, "text": "Commit: Write the client"},
    ]
    sessions = [
        *json.loads(do(2, "queue", (new, asked), ({**new, "contradicts": first}, {})))["sessions"],
        {"turns": turns},
        *json.loads(do(4, "docs", told=["Two it is"], lacks=["CONTRADICTION"]))["sessions"],
    ]

    ended = stage.run(json.dumps({"sessions": sessions}))

    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    claims = [(claim["claim"], claim["status"]) for claim in list_claims(stage)]
    assert claims == [(rule, "out"), (other, "out"), (other, "in"), ("Two it is", "in")]


@pytest.mark.nightly
def test_a_claim_that_a_session_words_anew_when_it_is_asked_takes_the_place_of_the_one_before(stage):
    """The answer names it; a session that forgets it is asked again, so that no copy stays in unseen."""
    stage.write("PLAN.md", RETRIES)
    stage.commit()
    rule, other = "Retry counts must never be 2", "The retry count must be 2"

    def play(script):
        assert stage.run(script, all_=False).exit_code == ExitCode.DONE
        assert stage.server.errors == []
        return json.loads(stage.relay("ledger", "list", "--json").stdout)["claims"]

    first = play(do(1, "policy", ({"claim": rule, "kind": "constraint"}, {})))[0]["id"]
    asked = {"last_result_contains": [f"Beside {first}: ", "`record` it again with that id, and c", " in `replaces`"]}
    again = {"last_result_contains": ["They cannot hold together: n", f": {other}"]}
    play(do(2, "queue", ({"claim": other}, asked), ({"claim": f"{other} at most", "contradicts": first}, again)))


@pytest.mark.nightly
def test_what_stands_beside_a_claim_begins_a_line_of_its_own(stage):
    """Also behind the list of claims that the new one puts out."""
    stage.write("PLAN.md", RETRIES)
    stage.commit()
    rule, near, slots = "Retry counts must never be 2", "Retry counts stand in the log", "Three slots are kept"

    def play(script):
        assert stage.run(script, all_=False).exit_code == ExitCode.DONE
        assert stage.server.errors == []
        return {one["claim"]: one["id"] for one in json.loads(stage.relay("ledger", "list", "--json").stdout)["claims"]}

    first = play(do(1, "policy", ({"claim": rule}, {}), ({"claim": near}, {})))
    play(do(2, "queue", ({"claim": slots, "rests_on": first[rule]}, {})))
    told = {"last_result_contains": [f": {slots}\nBeside {first[near]}: does it rest on it"]}
    play(do(3, "client", ({"claim": "Retry counts must be 2", "replaces": first[rule]}, told)))


@pytest.mark.nightly
def test_a_session_that_has_looked_confirms_a_stale_claim_where_it_stands_now(arc):
    stage, (_old, new) = arc
    stage.write("db.py", "# moved\n" + (stage.root / "db.py").read_text().replace("length = 64", "length = 64  # hex"))
    stage.write(
        "PLAN.md",
        (stage.root / "PLAN.md").read_text() + "\n## Phase 4 — More\nVerify: `test -f m.txt`\n- [ ] Go on — m.txt\n",
    )
    stage.commit("by hand")
    again = {"claim": "", "confirms": new}
    where = {"last_result_contains": [f"sources: say where {new} stands now, as path, "]}
    done = {"last_result_contains": [f"Confirmed: {new}."]}
    script = do(4, "m", (again, where), ({**again, "sources": ["db.py:5"]}, done), told=[f"{new} constraint, STALE"])
    assert stage.run(script).exit_code == ExitCode.DONE
    assert stage.server.errors == []
    assert "to do" not in stage.relay("ledger", "list").stdout
    assert "confirmed by session" in stage.relay("ledger", "list", new).stdout

"""A phase that stands somewhere else by now keeps its commits, its money, its open attempt and its handoff note."""

import json

import pytest

from relay.base.errors import ExitCode, PlanError, RepoError
from relay.base.interrupts import Urgency
from relay.git.repository import open_repo
from relay.run.rewind import get_rewind
from relay.session.events import Committed, GateStarted, Noticed, SessionStarted
from relay.store.attempts import read_attempt
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.resume.conftest import LUNCH
from tests.scripts import HELLO

PLAN = """\
# Greetings

## Alpha
Verify: `grep -q hello hello.txt`
- [ ] Say it — hello.txt

## Beta
Verify: `grep -q world world.txt`
- [ ] Say it — world.txt
- [ ] Say it twice — world.txt
"""
ZETA = "## Zeta\nAfter: none\nVerify: `test -d .`\n- [ ] Say it — z.txt\n\n"
HALF = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: world.txt, content: "world\\n"}}]
      - tools: [{name: tick, input: {item: "2.1", evidence: "grep"}}]
      - tools: [{name: %s}]
"""
BLOCK = "block, input: {reason: lunch}"
NOTE_AND_BLOCK = """amend, input: {phase: "2", change: "ask whom to greet", why: "nobody said"}}]
      - tools: [{name: block, input: {reason: lunch}"""
HAND_OFF = 'hand_off, input: {next_step: "say it again", learned: [], dead_ends: []}'
REST = """
sessions:
  - turns:
      - expect: {first_message_contains: ["Carry out phase 3", "%s"]}
        tools: [{name: edit, input: {path: world.txt, old: "world", new: "world, world"}}]
      - tools: [{name: tick, input: {item: "3.2", evidence: "grep"}}]
      - text: "Commit: Say it twice"
"""
DO_ZETA = """
sessions:
  - turns:
      - expect: {first_message_contains: "Carry out phase 1"}
        tools: [{name: write, input: {path: z.txt, content: "z\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "there"}}]
      - text: "Commit: Say z"
"""


@pytest.fixture
def greeting(stage):
    """Phase 1 of a plan without numbers is done."""

    def greet():
        stage.write("PLAN.md", PLAN)
        stage.commit("plan")
        assert stage.run(HELLO, all_=False).exit_code == ExitCode.DONE

    stage.arrange("a plan without numbers", greet)
    stage.calm()
    return stage


@pytest.fixture
def half(greeting):
    """A session of phase 2 has claimed one of two items, amended the plan and stopped."""

    def work():
        assert greeting.run(HALF % NOTE_AND_BLOCK, all_=False).exit_code == ExitCode.STOPPED

    greeting.arrange("half of a phase", work)
    greeting.calm()
    return greeting


def ask(stage):
    shown = stage.relay("status", "--json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def names(stage, rev="HEAD"):
    return stage.git("show", "--name-only", "--format=", rev).split()


@pytest.mark.parametrize("who", take_each(2, ["relay", "the user"]))
def test_what_was_done_and_spent_goes_with_the_phase(greeting, who):
    """Seen before the edit is committed and after, by relay or by hand; `rewind` finds the same commit."""
    head, before = greeting.git("rev-parse", "HEAD").strip(), ask(greeting)["phases"][0]
    greeting.edit("## Alpha", f"{ZETA}## Alpha")

    for commit in (False, True):
        if commit and who == "relay":
            greeting.run(LUNCH)
        elif commit:
            greeting.commit("a phase more")
        zeta, alpha, beta = ask(greeting)["phases"]
        assert (zeta["commits"], alpha["commits"], beta["commits"]) == ([], [head], [])
        assert (alpha["spent"], zeta["done"], alpha["done"]) == (before["spent"], False, True)

    repo = open_repo(greeting.root)
    assert [text.commit for text in get_rewind(repo, "PLAN.md", "2").undone][-1] == head
    for phase in "13":
        with pytest.raises(RepoError, match=f"no commit of phase {phase}"):
            get_rewind(repo, "PLAN.md", phase)


def test_an_open_attempt_goes_on_where_its_phase_stands_now(half):
    """With its files and its claim; the new phase gets nothing of it, and the gate that was edited counts."""
    half.edit("## Alpha", f"{ZETA}## Alpha\nAfter: none")
    half.edit("grep -q world", "grep -c world")
    said = ask(half)
    states = [[item["state"] for item in phase["items"]] for phase in said["phases"]]
    assert (said["next"]["phase"], states) == ("3", [["open"], ["done"], ["claimed", "open"]])

    ended = half.run(REST % "[~] 3.1 Say it", all_=False)

    assert (ended.exit_code, half.server.errors) == (ExitCode.DONE, [])
    assert half.seen(SessionStarted)[0].reason == said["next"]["why"]
    assert [event.items for event in half.seen(Committed)] == [(), ("3.1", "3.2")]
    assert half.seen(GateStarted)[-1].commands == ("grep -c world world.txt",)
    assert names(half) == ["PLAN.md", "world.txt"]


def test_what_sessions_did_to_the_plan_is_done_again_on_an_edited_one(half):
    """Notes are there; a claimed item that was reworded is open, and the next session is told so with its text."""
    half.edit("## Alpha", f"{ZETA}## Alpha\nAfter: none")
    half.edit("- [ ] Say it — world.txt", "- [ ] Say it loudly — world.txt")

    half.run(LUNCH, phase="3", all_=False)

    told = str(half.server.requests)
    assert "item 3.1 was claimed as `Say it — world.txt`, and was reworded since: it is open" in told
    assert "[ ] 3.1 Say it loudly" in told
    assert "ask whom to greet" in told
    assert any("reworded since: it is open" in event.text for event in half.seen(Noticed))


def test_a_phase_that_comes_after_the_new_one_waits_with_its_work(half):
    """The new phase is not begun over the other's files; what they are of is said."""
    half.edit("## Beta", ZETA.replace("After: none\n", "") + "## Beta")

    with pytest.raises(
        RepoError, match=r"Phase 2, now 3, is open.*It comes after 2.*uncommitted work is in world\.txt"
    ):
        half.run(DO_ZETA)

    attempt = read_attempt(open_repo(half.root))
    assert attempt is not None
    assert attempt.phase_id == "2"


@pytest.mark.nightly
def test_a_handoff_note_goes_to_its_phase(greeting):
    """Of the commits on the branch too: the session of the new phase 2 starts without the note of the old one."""
    seen = []

    def stop():
        seen.append(1)
        if len(seen) == 3:
            greeting.interrupts.request(Urgency.FINISH_TURN)

    greeting.on_tool = stop
    assert greeting.run(HALF % HAND_OFF).exit_code == ExitCode.INTERRUPTED
    greeting.calm()
    assert greeting.commits()[0].status == "handoff"
    greeting.edit("## Beta", f"{ZETA}## Beta\nAfter: 1")

    assert greeting.run(LUNCH, phase="2", all_=False).exit_code == ExitCode.STOPPED
    assert "say it again" not in str(greeting.server.requests)
    greeting.git("update-ref", "-d", "refs/relay/leg/main")
    assert greeting.run(LUNCH, phase="3", all_=False).exit_code == ExitCode.STOPPED
    assert "say it again" in str(greeting.server.requests)


def test_another_phase_in_the_place_of_the_open_one_gets_nothing_of_it(half):
    """Neither its title nor an item nor a file is the same: the work has to be cleared away first."""
    text = (half.root / "PLAN.md").read_text()
    half.write("PLAN.md", text[: text.index("## Beta")] + ZETA)

    with pytest.raises(RepoError, match="Phase 2, which is not in the plan any more, is open"):
        half.run(DO_ZETA)


def test_a_tick_that_is_taken_back_is_refused_until_it_is_committed(greeting):
    """By hand it counts: the phase is done again. Nothing is written over."""
    greeting.edit("[x] Say it", "[ ] Say it")
    edited = (greeting.root / "PLAN.md").read_text()
    assert "item 1.1 `Say it — hello.txt` was ticked by relay and is ticked no more" in ask(greeting)["obstacle"]

    with pytest.raises(PlanError, match="ticked no more"):
        greeting.run(LUNCH)

    assert (greeting.root / "PLAN.md").read_text() == edited
    greeting.commit("again")
    assert ask(greeting)["next"]["phase"] == "1"
    greeting.run(LUNCH)
    assert [session.phase_id for session in greeting.seen(SessionStarted)] == ["1"]


def test_a_phase_whose_commit_was_reset_softly_under_an_open_one_is_done_with_its_code(greeting):
    """Its code is only staged: the open phase brings it back when it lands, and the plan does not end without it."""

    def play(script):
        with serve(parse_script(script)) as server:
            keys = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
            return greeting.relay("run", environ=keys).returncode

    assert play(HALF % BLOCK) == ExitCode.STOPPED
    greeting.git("reset", "-q", "--soft", "HEAD~1")
    greeting.git("commit", "-qm", "as relay says", "PLAN.md")
    assert greeting.git("ls-tree", "--name-only", "HEAD", "hello.txt") == ""

    assert play(REST.replace("phase 3", "phase 2").replace("3.2", "2.2") % "[~] 2.1 Say it") == ExitCode.DONE

    assert greeting.git("show", "HEAD:hello.txt", "HEAD:world.txt") == "hello\nworld, world\n"
    assert greeting.git("status", "--porcelain") == ""

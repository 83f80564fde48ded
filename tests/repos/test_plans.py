"""Plans that age, move, multiply and change hands."""

from relay.errors import ExitCode
from relay.events import Noticed

HELLO = """
  - turns:
      - expect: {first_message_contains: %s}
        tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello"
"""
WORLD = """
sessions:
  - turns:
      - expect: {first_message_contains: "Carry out phase 2"}
        tools: [{name: write, input: {path: world.txt, content: "world\\n"}}]
      - tools:
        - {name: tick, input: {item: "2.1", evidence: "grep"}}
        - {name: tick, input: {item: "2.2", evidence: "grep"}}
      - text: "Commit: Say world"
"""


def test_files_that_others_changed_since_the_plan_are_named(stage, finish):
    """To the user and to the session, with the commit; relay's own commits do not count."""
    stage.write("hello.txt", "hi\n")
    commit = stage.commit("greet by hand")[:8]

    assert finish("sessions:" + HELLO % f'"hello.txt is new: {commit} greet by hand"') == ["PLAN.md", "hello.txt"]
    noticed = [notice.text for notice in stage.seen(Noticed) if notice.warning]
    assert noticed == [f"changed since phase 1 was planned: hello.txt is new: {commit} greet by hand"]


def test_a_file_that_is_gone_is_named_until_the_plan_is_written_anew(stage, finish):
    """A commit that changes the plan file says that its author has looked."""
    stage.write("hello.txt", "hi\n")
    stage.write("PLAN.md", (stage.root / "PLAN.md").read_text() + "\n")
    stage.commit("plan with file")
    stage.git("rm", "-q", "hello.txt")
    stage.git("commit", "-q", "-m", "away")
    ended = stage.run('sessions: [{turns: [{tools: [{name: block, input: {reason: "why?"}}]}]}]')
    assert ended.exit_code == ExitCode.STOPPED
    assert any("hello.txt is gone" in notice.text for notice in stage.seen(Noticed))
    stage.write("PLAN.md", (stage.root / "PLAN.md").read_text().rstrip() + "\n")
    stage.commit("looked at it")

    finish("sessions:" + HELLO % '"Phase 1"')

    assert not any("hello.txt is gone" in notice.text for notice in stage.seen(Noticed))


def test_a_sessions_amendment_is_in_the_trailer_of_its_commit(stage, finish):
    """The phase whose text it changed is named; a commit that only ticks names none."""
    amend = '{name: amend, input: {phase: "2", change: "say it loud", why: "asked for"}}'
    finish("sessions:" + HELLO.replace("- text:", f"- tools: [{amend}]\n      - text:") % '"Phase 1"')

    assert stage.server.errors == []
    assert dict(stage.commits()[0].found)["Relay-Amended"] == "2"
    assert "say it loud" in stage.git("show", "HEAD:PLAN.md")


def test_a_plan_edited_while_a_session_works_is_not_lost(stage, finish):
    """The session ends on the plan it began with; the next run commits the edit by itself, ticks kept."""
    text = (stage.root / "PLAN.md").read_text()
    stage.on_tool = lambda: stage.write("PLAN.md", text.replace("Say it twice", "Say it three times"))
    finish()
    assert "Say it three times" in (stage.root / "PLAN.md").read_text()
    stage.calm()

    stage.run("sessions: [{turns: [{text: Done}, {text: Done}]}]")

    assert stage.commits()[0].status == "amended"
    committed = stage.git("show", "HEAD:PLAN.md")
    assert "- [x] Say hello" in committed
    assert "Say it three times" in committed


def test_a_plan_in_a_subdirectory_beside_another_one(stage, finish):
    """Each plan has its own commits, ledger and boxes."""
    stage.write("docs/PLAN.md", (stage.root / "PLAN.md").read_text())
    stage.commit("two plans")
    finish()
    (stage.root / "hello.txt").write_text("")
    stage.commit("again")
    stage.plan_path = "docs/PLAN.md"

    assert finish() == ["docs/PLAN.md", "hello.txt"]
    assert [commit.plan for commit in stage.commits()] == ["docs/PLAN.md"]
    assert (stage.root / "PLAN.md").read_text().count("- [x]") == 1
    assert (stage.root / "docs/PLAN.md").read_text().count("- [x]") == 1


def test_a_renamed_plan_keeps_its_boxes(stage, finish):
    """The file is the truth: under its new name the next open phase is next."""
    finish()
    stage.git("mv", "PLAN.md", "BUILD.md")
    stage.git("commit", "-q", "-m", "rename")
    stage.plan_path = "BUILD.md"

    ended = stage.run("sessions: []", phase="1", all_=False)
    assert (ended.exit_code, ended.reason) == (ExitCode.DONE, "the phase was done already")
    ended = stage.run(WORLD)

    assert (ended.exit_code, stage.server.errors) == (ExitCode.DONE, [])
    assert [(commit.plan, commit.phase) for commit in stage.commits()] == [("BUILD.md", "2")]
    assert (stage.root / "BUILD.md").read_text().count("- [x]") == 3

"""`relay pr`: what it says, and that it is made by the user's own program."""

import os

import pytest

from relay.errors import ExitCode

PLAN = """\
# Greetings for @everyone

Say hello, as #12 asks. Closes #12.

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt

## Phase 2 — World
Verify: `grep -q world world.txt`
- [ ] Say *world* — world.txt
"""
WORK = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep finds it"}}]
      - text: "Commit: Say hello to @team, fixes #7 <b>"
"""
FAKE = """#!/bin/sh
printf '%s\\n' "$@" > {out}.words
cat > {out}.input
exit {code}
"""


@pytest.fixture
def done(stage):
    """A repository whose first phase is committed, on a branch of its own."""
    stage.write("PLAN.md", PLAN)
    stage.commit()
    stage.git("switch", "-q", "-c", "relay/greetings")
    assert stage.run(WORK, all_=False).exit_code == ExitCode.DONE
    return stage


def put(stage, name, code=0):
    """Install a program that notes what it is given."""
    place = stage.root.parent / "bin"
    place.mkdir(exist_ok=True)
    (place / name).write_text(FAKE.format(out=stage.root.parent / name, code=code))
    (place / name).chmod(0o755)
    return f"{place}:{os.environ['PATH']}"


def test_the_text_names_what_was_done_and_mentions_nobody(done):
    shown = done.relay("pr", "--text").stdout

    assert shown.startswith("Greetings for @everyone\n")  # the title is no text in which somebody is mentioned
    assert "- [x] Say hello — hello.txt" in shown
    assert "- [ ] Say \\*world\\* — world.txt" in shown
    assert "1 of 2 phases done. The sessions have cost $0.0" in shown
    assert "(gate pass)" in shown
    assert "@team" not in shown
    assert "fixes #7" not in shown
    assert "Closes #12" in shown  # a person wrote it into the plan
    assert "\\<b\\>" in shown


@pytest.mark.parametrize("tool", ["gh", "glab"])
def test_a_draft_is_made_by_the_program_that_is_there(done, tool):
    path = put(done, tool)
    done.git("config", "branch.relay/greetings.remote", "origin")

    made = done.relay("pr", "--with", tool, path=path)

    assert (made.returncode, made.stderr) == (0, "")
    words = (done.root.parent / f"{tool}.words").read_text()
    assert "--draft\n" in words
    assert "--title\nGreetings for @everyone\n" in words
    assert "relay/greetings\n" in words
    body = (done.root.parent / f"{tool}.input").read_text() if tool == "gh" else words
    assert "## What was done" in body


def test_a_branch_that_was_not_pushed_is_not_pushed(done):
    made = done.relay("pr", "--with", "gh", path=put(done, "gh"))

    assert made.returncode == ExitCode.USER
    assert "git push -u origin relay/greetings" in made.stderr
    assert not (done.root.parent / "gh.words").exists()


def test_what_the_program_refuses_is_an_error(done):
    path = put(done, "gh", code=1)
    done.git("config", "branch.relay/greetings.remote", "origin")

    made = done.relay("pr", "--with", "gh", path=path)

    assert (made.returncode, "gh ended with 1" in made.stderr) == (ExitCode.USER, True)


def test_without_a_commit_there_is_nothing_to_ask_for(stage):
    made = stage.relay("pr")

    assert made.returncode == ExitCode.USER
    assert "no phase of the plan is committed yet" in made.stderr


def test_a_program_that_is_not_there_is_said(done):
    done.git("config", "branch.relay/greetings.remote", "origin")

    assert "glab is not installed" in done.relay("pr", "--with", "glab").stderr

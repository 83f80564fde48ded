"""`relay pr`: what it says, and that it is made by the user's own program."""

import json
import os
import shutil

import pytest

from relay.base.errors import ExitCode
from tests.effort import take_each

PLAN = """\
# Greetings for @everyone

Say hello, as #12 asks. Closes #12.

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello in `hello.txt`, not `@here | *` — hello.txt

## Phase 2 — World
Verify: `grep -q world world.txt`
- [ ] Say *world* — world.txt
"""
WORK = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "`@all finds _it_"}}]
      - text: "Commit: Say hello to @team, fixes #7 <b>"
"""
FAKE = """#!/bin/sh
case "$2" in view) cat {out}.there 2>/dev/null; exit $?;; esac
printf '%s\\n' "$@" > {out}.words
cat > {out}.input
exit {code}
"""


@pytest.fixture
def done(stage):
    """A repository whose first phase is committed, on a branch of its own."""

    def build():
        stage.write("PLAN.md", PLAN)
        stage.commit()
        stage.git("switch", "-q", "-c", "relay/greetings")
        assert stage.run(WORK, all_=False).exit_code == ExitCode.DONE

    stage.arrange("a phase on a branch of its own", build)
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

    assert shown.startswith("Greetings for @everyone\n\nSay hello, as")  # in a title nobody is mentioned
    assert (
        "- [x] Say hello in `hello.txt`, not `@here | *` — hello.txt\n  evidence: \\`@<!-- -->all finds \\_it\\_"
        in shown
    )
    assert "- [ ] Say \\*world\\* — world.txt" in shown
    assert "1 of 2 phases done. The sessions have cost $0.0" in shown
    assert "(gate pass)" in shown
    assert "@team" not in shown
    assert "fixes #7" not in shown
    assert "Closes #12" in shown  # a person wrote it into the plan
    assert "\\<b\\>" in shown


@pytest.fixture
def origin(done):
    """A remote that has main."""
    place = done.root.parent / "origin.git"
    done.git("init", "-q", "--bare", str(place))
    done.git("remote", "add", "origin", str(place))
    done.git("push", "-q", "origin", "main")
    return place


@pytest.mark.parametrize("tool", take_each(2, ["gh", "glab"]))
def test_a_draft_is_made_by_the_program_that_is_there_and_then_kept_up_to_date(done, origin, tool):
    """Without a tracking branch: --push sets none, nor does git push."""
    assert origin.exists()
    path = put(done, tool)
    assert done.relay("pr", "--push", "--with", tool, path=path).returncode == 0
    out = done.root.parent / tool
    out.with_suffix(".words").unlink()

    made = done.relay("pr", "--with", tool, "--base", "develop", path=path)

    assert (made.returncode, made.stderr) == (0, "")
    words = out.with_suffix(".words").read_text()
    assert "--draft\n" in words
    assert "--title\nGreetings for @everyone\n" in words
    assert "relay/greetings\n" in words
    assert words.endswith(
        "-\n--head\nrelay/greetings\n--base\ndevelop\n" if tool == "gh" else "--target-branch\ndevelop\n"
    )
    assert "## What was done" in (out.with_suffix(".input").read_text() if tool == "gh" else words)

    there = {"number": 7, "state": "OPEN", "headRefName": "relay/greetings"}
    if tool == "glab":
        there = {"iid": 7, "state": "opened", "source_branch": "relay/greetings"}
    out.with_suffix(".there").write_text(json.dumps(there))
    again = done.relay("pr", "--with", tool, path=path)
    assert (again.returncode, again.stdout) == (0, "replaced the text of 7\n")
    words = out.with_suffix(".words").read_text()
    assert words.split()[1:3] == ["edit" if tool == "gh" else "update", "7"]
    assert "## What was done" in (out.with_suffix(".input").read_text() if tool == "gh" else words)

    for wrong in ({"state": "CLOSED"}, {"headRefName": "7", "source_branch": "7"}):  # a number is no branch
        out.with_suffix(".there").write_text(json.dumps(there | wrong))
        assert done.relay("pr", "--with", tool, path=path).stdout == ""
        assert out.with_suffix(".words").read_text().split()[1] == "create"


def test_a_branch_that_is_not_at_its_remote_is_not_pushed_unasked(done, origin):
    assert origin.exists()
    path = put(done, "gh")
    made = done.relay("pr", "--with", "gh", path=path)

    assert made.returncode == ExitCode.USER
    assert "relay/greetings is not on origin" in made.stderr
    assert "relay pr --push pushes it" in made.stderr
    done.git("push", "-q", "origin", "HEAD")
    done.commit("more")
    assert "relay/greetings is at another commit on origin" in done.relay("pr", "--with", "gh", path=path).stderr
    assert not (done.root.parent / "gh.words").exists()


def test_where_nobody_can_make_one_the_text_is_printed_and_that_is_said(done, origin, tmp_path):
    assert origin.exists()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "sh"):
        (tools / name).symlink_to(shutil.which(name))
    made = done.relay("pr", "--push", path=str(tools))
    assert made.returncode == ExitCode.USER
    assert made.stdout.startswith("origin has relay/greetings\nGreetings for @everyone\n")
    assert "relay created no request: gh and glab are not installed" in made.stderr


def test_push_brings_this_branch_and_nothing_else_to_its_remote(done, origin):
    done.git("branch", "other")
    done.git("tag", "v1")
    made = done.relay("pr", "--push", "--with", "gh", path=put(done, "gh"))

    assert (made.returncode, made.stderr) == (0, "")
    assert "origin has relay/greetings" in made.stdout
    assert (done.root.parent / "gh.words").exists()
    refs = done.git("--git-dir", str(origin), "for-each-ref", "--format=%(refname)").split()
    assert refs == ["refs/heads/main", "refs/heads/relay/greetings"]
    assert done.relay("pr", "--push", "--text").stdout.startswith("Greetings")  # what prints a text does nothing else
    assert done.relay("pr", "--push", "--with", "gh", path=put(done, "gh")).returncode == 0


def test_push_takes_nothing_away(done, origin):
    """Somebody else's commit on the branch is neither overwritten nor merged."""
    head = done.git("rev-parse", "HEAD").strip()
    done.git("push", "-q", "origin", "HEAD")
    done.git("switch", "-q", "--detach")
    done.commit("theirs")
    theirs = done.git("rev-parse", "HEAD").strip()
    done.git("push", "-q", "origin", "HEAD:refs/heads/relay/greetings")
    done.git("switch", "-q", "relay/greetings")
    done.commit("mine")

    made = done.relay("pr", "--push", "--with", "gh", path=put(done, "gh"))

    assert made.returncode == ExitCode.USER
    assert "would not go forward" in made.stderr
    assert done.git("--git-dir", str(origin), "rev-parse", "relay/greetings").strip() == theirs != head
    assert not (done.root.parent / "gh.words").exists()


def test_what_the_program_refuses_is_an_error(done, origin):
    assert origin.exists()
    path = put(done, "gh", code=1)

    made = done.relay("pr", "--push", "--with", "gh", path=path)

    assert (made.returncode, "gh ended with 1" in made.stderr) == (ExitCode.USER, True)


def test_without_a_commit_there_is_nothing_to_ask_for(stage):
    made = stage.relay("pr")

    assert made.returncode == ExitCode.USER
    assert "no phase of the plan is committed yet" in made.stderr


def test_a_program_that_is_not_there_is_said(done, origin):
    assert origin.exists()
    assert "glab is not installed" in done.relay("pr", "--push", "--with", "glab").stderr


def test_a_program_that_cannot_be_started_is_said(done, origin):
    assert origin.exists()
    path = put(done, "gh")
    (done.root.parent / "bin/gh").write_text("#!/nonexistent/shell\n")
    made = done.relay("pr", "--push", "--with", "gh", path=path)
    assert (made.returncode, "gh could not be started: " in made.stderr) == (ExitCode.USER, True)

"""Verify commands that rewrite files, run before a phase in a work tree with the user's unfinished edits."""

import json

import pytest

from relay.base.errors import ExitCode, PlanError
from relay.session.events import Noticed

PLAN = """\
## Phase 1 — Hello
Verify: `sed -i s/bad/good/ app.txt other.txt && grep -q hello hello.txt app.txt`
- [ ] Say hello — {path}
"""


def script(command):
    turns = [
        {"tools": [{"name": "bash", "input": {"command": command}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "seen"}}]},
        {"text": "Commit: Say hello", "repeat": 6},
    ]
    return json.dumps({"sessions": [{"name": "s", "turns": turns}]})


def prepare(stage, path):
    stage.write("PLAN.md", PLAN.replace("{path}", path))
    stage.write("app.txt", "start\n")
    stage.write("other.txt", "start\n")
    stage.commit("files")


def find_kept(stage):
    return stage.git("for-each-ref", "--format=%(refname)", "refs/relay/wip").split()


EDIT = "start\nan unfinished bad edit\n"
APPEND = "echo hello | tee -a app.txt > hello.txt"


def test_the_users_edit_stays_the_users(stage):
    """A session's change on top of it could not be committed, so none is started; no gate has seen or rewritten it."""
    prepare(stage, "app.txt")
    stage.write("app.txt", EDIT)

    with pytest.raises(PlanError, match=r"needs: app\.txt"):
        stage.run(script(APPEND))

    assert (stage.root / "app.txt").read_text() == EDIT


@pytest.mark.nightly
def test_without_a_sandbox_it_is_kept_as_it_was(stage):
    """Nothing hides it from the gate then; the notice names the ref."""
    prepare(stage, "hello.txt")
    stage.write("app.txt", EDIT)

    ended = stage.run(script(APPEND), sandbox="off")

    assert ended.exit_code == ExitCode.DONE
    assert stage.git("show", "HEAD:app.txt") == "start\n"
    kept = find_kept(stage)[0]
    assert stage.git("show", f"{kept}:app.txt") == EDIT
    assert any("app.txt" in n.text and kept in n.text for n in stage.seen(Noticed))


@pytest.mark.nightly
def test_a_file_that_only_the_gate_rewrote_is_free_for_the_session(stage, finish):
    """It was as in HEAD before; the user's other edit needs no ref of its own."""
    prepare(stage, "app.txt")
    stage.write("app.txt", "start bad\n")
    stage.commit("bad")
    stage.write("notes.txt", "the user's\n")

    assert finish(script("echo hello | tee -a app.txt > hello.txt")) == ["PLAN.md", "app.txt", "hello.txt"]
    assert stage.git("show", "HEAD:app.txt") == "start good\nhello\n"
    assert len(find_kept(stage)) == 1
    assert not any("rewrote" in n.text for n in stage.seen(Noticed))

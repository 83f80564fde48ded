"""What a phase needs and its commit would not hold: its box is not ticked without its code."""

import json

from relay.errors import ExitCode


def script(*tools, repeat=6):
    """Return a session that calls tools, one a turn, and says that it is done as often as it is asked."""
    turns = [{"tools": [{"name": name, "input": given}]} for name, given in tools]
    return json.dumps({"sessions": [{"name": "s", "turns": [*turns, {"text": "Commit: Do it", "repeat": repeat}]}]})


def bash(command):
    return "bash", {"command": command}


TICK = ("tick", {"item": "1.1", "evidence": "seen"})


def committed(stage):
    return stage.git("show", "--name-only", "--format=", "HEAD").split()


def test_a_tracked_file_beside_thousands_of_generated_ones_is_committed(stage):
    """A command edits it in a directory that snapshots leave out for its untracked files."""
    stage.write("PLAN.md", "## Phase 1\nVerify: `grep -q new web/app.js`\n- [ ] Generate the pages\n")
    stage.write("web/app.js", "old\n")
    stage.commit("plan")

    ended = stage.run(script(bash("cd web && echo new > app.js && seq -f %g.html 5001 | xargs touch"), TICK))

    assert ended.exit_code == ExitCode.DONE, ended
    assert committed(stage) == ["PLAN.md", "web/app.js"]

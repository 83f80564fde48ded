"""What a user does to plan, files and branch under a phase that has handed over with a commit, or waits to land.

The next run works on all of both: no commit is left behind, nothing is done twice, no mark of git is committed.
"""

import json
import shutil

import pytest

from relay.base.errors import ExitCode
from relay.plan.parse import parse_plan
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.bench import make_plan
from tests.phases.test_user_acts import Acted

GATE, FIRST, SECOND = "test ! -e bad.txt", "- [ ] Write one — 1.txt", "- [ ] Write two — 2.txt"


class Here(Acted):
    def read_plan(self):
        return parse_plan(self.git("show", "HEAD:PLAN.md"))


def call(tool, **given):
    return {"name": tool, "input": given}


def edit(old, new):
    return lambda bench: bench.stage.edit(old, new)


def commit(name, text, *edits):
    def act(bench):
        for old, new in edits:
            bench.stage.edit(old, new)
        bench.stage.write(name, text)
        bench.git("add", name, "PLAN.md")
        bench.git("commit", "-qm", "mine")

    return act


def mend_in_tree(bench):
    (bench.stage.tree / "bad.txt").unlink()


def commit_in_tree(bench):
    mend_in_tree(bench)
    bench.git("add", "-A", root=bench.stage.tree)
    bench.git("commit", "-qm", "by hand", root=bench.stage.tree)


ACTS = {
    "renames the branch": lambda bench: bench.git("branch", "-m", "trunk"),
    "mends the gate": edit(GATE, "test -e 2.txt"),
    "commits to the same file": commit("both.txt", "first\n\n\n\nLAST\n"),
    "commits to the same line": commit("both.txt", "MINE\n\n\n\nlast\n"),
    "commits to another file": commit("other.txt", "mine\n"),
    "adds an item": edit(SECOND, f"{SECOND}\n- [ ] Write three — 3.txt"),
    "takes an item away": edit(f"{SECOND}\n", ""),
    "rewords an open item": edit(SECOND, "- [ ] Write the second — 2.txt"),
    "rewords a done item": edit(FIRST, "- [ ] Write the first — 1.txt"),
    "names the phase anew": edit("Phase 1 — one", "Phase 1 — uno"),
    "puts a phase before it": edit(
        "## Phase 1", "## Phase 0 — zero\nVerify: `test -s 0.txt`\n- [ ] Write — 0.txt\n\n## Phase 1"
    ),
    "does an open item": commit("2.txt", "2\n", (SECOND, SECOND.replace("[ ]", "[x]"))),
    "does a done item": commit("1.txt", "1\n", (FIRST, FIRST.replace("[ ]", "[x]"))),
    "picks its commit": lambda bench: bench.git("cherry-pick", "relay-jobs/main/1"),
    "merges its commit": lambda bench: bench.git("merge", "-q", "--no-edit", "relay-jobs/main/1"),
    "mends it in its tree": mend_in_tree,
    "commits in its tree": commit_in_tree,
    "commits in its tree and beside it": lambda bench: (commit_in_tree(bench), commit("other.txt", "mine\n")(bench)),
}


@pytest.mark.parametrize("act", take_each(len(ACTS), [*ACTS]))
def test_what_a_user_does_is_worked_on_with_all_that_the_phase_has(stage, act):
    bench = Here(stage, "run")
    stage.write("PLAN.md", make_plan(GATE) + f"{SECOND}\n")
    stage.write("both.txt", "first\n\n\n\nlast\n")
    stage.commit("the plan")
    ticks = [call("tick", item=item, evidence="done") for item in ("1.1", "1.2", "1.3", "0.1")]
    work = call("bash", command="echo 1 > 1.txt; sed -i s/first/FIRST/ both.txt")
    hand_off = call("hand_off", next_step="two", learned=[], dead_ends=[])
    spoil = call("bash", command="echo 2 > 2.txt; touch bad.txt"), call("block", reason="no")
    finish = "rm -f bad.txt; for n in 0 1 2 3; do echo $n > $n.txt; done; grep -q '<<<<' both.txt || exit 0"
    finish = f"{finish}; echo merged > both.txt"
    sessions = [
        {"name": "one", "turns": [{"tools": [work, ticks[0], hand_off]}]},
        {"name": "two", "turns": [{"tools": [*spoil]}]},
    ]
    bench.play(sessions, ends=ExitCode.STOPPED)
    ACTS[act](bench)
    turns = [{"tools": [call("bash", command=finish), *ticks]}, {"text": "Commit: all"}]
    with serve(parse_script(json.dumps({"sessions": [{"name": "last", "repeat": True, "turns": turns}]}))) as server:
        said = bench.finish(server)
    theirs = {"commits to the same file": "FIRST\n\n\n\nLAST\n", "commits to the same line": "merged\n"}
    assert bench.git("show", "HEAD:both.txt") == theirs.get(act, "FIRST\n\n\n\nlast\n"), said
    assert said.count("$ relay run") <= 2, said
    assert bench.git("show", "HEAD:1.txt", "HEAD:2.txt") == "1\n2\n", said
    assert bench.git("status", "--porcelain") == ""


def remove_tree(bench):
    shutil.rmtree(bench.stage.tree)
    ACTS["commits to another file"](bench)


def remove_notes(bench):
    shutil.rmtree(bench.stage.root / ".relay")
    ACTS["commits to another file"](bench)
    bench.git("gc", "-q", "--prune=now")


def write_in_tree(bench):
    (bench.stage.tree / "both.txt").write_text("torn")
    ACTS["commits to another file"](bench)


WHILE_IT_WAITS = {name: act for name, act in ACTS.items() if "in its tree" not in name and name != "mends the gate"} | {
    "amends the plan's commit": lambda bench: bench.git("commit", "-q", "--amend", "-m", "amended"),
    "removes its tree": remove_tree,
    "removes .relay, and gc": remove_notes,
    "takes a file away": lambda bench: (bench.git("rm", "-q", "both.txt"), bench.git("commit", "-qm", "mine")),
    "writes in its tree": write_in_tree,
}


@pytest.mark.parametrize("act", take_each(len(WHILE_IT_WAITS), [*WHILE_IT_WAITS]))
def test_what_a_user_does_while_a_finished_phase_waits_to_land_is_merged_with_it(stage, act):
    """A file of the user's was in the way. A session is paid only for what git cannot merge, or what is open."""
    bench = Here(stage, "run")
    stage.write("PLAN.md", make_plan("test -e 2.txt") + f"{SECOND}\n")
    stage.write("both.txt", "first\n\n\n\nlast\n")
    stage.commit("the plan")
    ticks = [call("tick", item=item, evidence="done") for item in ("1.1", "1.2", "1.3", "0.1")]
    work = call("bash", command="echo 1 > 1.txt; echo 2 > 2.txt; sed -i s/first/FIRST/ both.txt")
    turns = [{"tools": [work, *ticks[:2]]}, {"text": "Commit: all"}]
    stage.write("1.txt", "in the way\n")
    bench.play([{"name": "one", "turns": turns}], ends=ExitCode.STOPPED)
    (stage.root / "1.txt").unlink()
    WHILE_IT_WAITS[act](bench)
    finish = "echo 0 > 0.txt; echo 3 > 3.txt; test -e both.txt && ! grep -q '<<<<' both.txt || echo merged > both.txt"
    turns = [{"tools": [call("bash", command=finish), *ticks]}, {"text": "Commit: all"}]
    with serve(parse_script(json.dumps({"sessions": [{"name": "last", "repeat": True, "turns": turns}]}))) as server:
        said = bench.finish(server)
        is_paid = any(request.path == "/v1/messages" for request in server.requests)
    theirs = {"commits to the same file": "FIRST\n\n\n\nLAST\n", "commits to the same line": "merged\n"}
    assert bench.git("show", "HEAD:both.txt") == theirs.get(act, "FIRST\n\n\n\nlast\n"), said
    assert bench.git("show", "HEAD:1.txt", "HEAD:2.txt") == "1\n2\n", said
    words = ("same line", "adds an item", "rewords", "a phase before", "takes a file away")
    assert is_paid is any(word in act for word in words), said
    assert bench.git("status", "--porcelain") == ""

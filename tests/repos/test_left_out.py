"""What a phase needs and its commit would not hold: its box is not ticked without its code."""

import json

import pytest

from relay.base.errors import ExitCode, PlanError
from tests.effort import NIGHTLY, take_each


def script(*tools, repeat=6):
    """Return a session that calls tools, one a turn, and says that it is done as often as it is asked."""
    turns = [{"tools": [{"name": name, "input": given}]} for name, given in tools]
    return json.dumps({"sessions": [{"name": "s", "turns": [*turns, {"text": "Commit: Do it", "repeat": repeat}]}]})


def bash(command):
    return "bash", {"command": command}


TICK = ("tick", {"item": "1.1", "evidence": "seen"})


def committed(stage):
    return stage.git("show", "--name-only", "--format=", "HEAD").split()


def plan(stage, verify, *items):
    """Commit a plan of one phase."""
    stage.write("PLAN.md", "\n".join(["## Phase 1 — One", f"Verify: `{verify}`", *(f"- [ ] {item}" for item in items)]))
    stage.commit("plan")


def write(path, content):
    return "write", {"path": path, "content": content}


def refuse(stage, text, *, early=False, **flags):
    """Run to a refusal that leaves the branch and the boxes as they were, and early costs nothing; return its words."""
    before = stage.git("rev-parse", "HEAD")
    if early:
        with pytest.raises(PlanError) as refused:
            stage.run(text, **flags)
        assert {request.method for request in stage.server.requests} <= {"GET"}
        return f"{refused.value} {refused.value.hint}"
    ended = stage.run(text, max_sessions=1, **flags)
    assert ended.exit_code == ExitCode.STOPPED, ended
    assert stage.git("rev-parse", "HEAD") == before
    assert stage.server.errors == []
    return ended.reason


ONLY_READ = {
    "Do what `notes.md` says — app.py": "notes.md",
    "Write `app.py` as `notes.md` says": "notes.md",
    "Write `app.py` as `docs/` says": "docs/notes.md",
    "Write app.py as in `AGENTS.md` — app.py": "",
    "Keep `AGENTS.md` as it is": "",
    "Read `.env` — app.py": ".env",
    "Tidy up — src/": "src/__pycache__/a.pyc",
    "Write `app.py` with `sub/inner.txt`": "",
    "Fill the folder — src/, app.py": "src/mine.txt",
}
"""Items, and the file of the user's that each names."""


@pytest.mark.nightly
def test_what_an_item_only_reads_may_be_the_users(stage, make_repo):
    """Honest phases are not refused; one with all of the items, since a refusal of any would name its file."""
    inner = make_repo("inner")
    stage.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    stage.write(".gitignore", ".env\n__pycache__/\n")
    stage.write("src/a.py", "1\n")
    plan(stage, "test -s app.py", *ONLY_READ)
    for path in filter(None, ONLY_READ.values()):
        stage.write(path, "mine\n")
    ticks = [("tick", {"item": f"1.{number}", "evidence": "seen"}) for number in range(1, len(ONLY_READ) + 1)]

    ended = stage.run(script(write("app.py", "print()\n"), write("src/a.py", "2\n"), *ticks))

    assert ended.exit_code == ExitCode.DONE, ended
    assert committed(stage) == ["PLAN.md", "app.py", "src/a.py"]


@pytest.mark.parametrize("rule", take_each(2, ["dist/", "dist/*", "*.js"]))
def test_a_folder_that_git_ignores(stage, rule):
    """A build's output is in no commit, however the rule is written."""
    stage.write(".gitignore", f"{rule}\n")
    plan(stage, "test -s dist/app.js", "Build the bundle — dist/")

    build = script(bash("mkdir -p dist && echo js > dist/app.js"), TICK)
    words = refuse(stage, build, early=rule != "*.js")

    assert "dist (ignored by git)" in words


INSIDE = write("sub/inner.txt", "new\n"), bash("echo new > sub/inner.txt")
SUBMODULES = [
    ("Change the library — sub/inner.txt", INSIDE[0], "sub/inner.txt (in a submodule, sub)"),
    ("Change the library", INSIDE[1], "Not shown to the gate, because the commit would not hold it: sub (in a"),
    ("Change the library", INSIDE[0], "sub/inner.txt (in a submodule, sub)"),
]


@pytest.mark.parametrize(("item", "act", "said"), SUBMODULES if NIGHTLY else SUBMODULES[:2])
def test_a_file_in_a_submodule(stage, make_repo, item, act, said):
    """Relay does not enter submodules: what a session writes there is in no commit, and what is named costs nothing."""
    inner = make_repo("inner")
    stage.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    plan(stage, "grep -q new sub/inner.txt", item)

    assert said in refuse(stage, script(act, TICK), early="sub/" in item)

    stage.write("sub/inner.txt", "new\n")
    stage.git("-C", "sub", "commit", "-q", "-a", "-m", "new")
    stage.edit("[ ]", "[x]")
    stage.git("commit", "-q", "-m", "mine", "sub", "PLAN.md")
    assert stage.run("sessions: []").exit_code == ExitCode.DONE


def test_a_file_in_a_repository_inside_of_this_one(stage, make_repo):
    """Neither is what a session would make there, which is not there yet."""
    plan(stage, "grep -q new app/new.txt", "Change the app — app/new.txt")
    make_repo("repo/app")

    words = refuse(stage, "sessions: []", early=True)

    assert "app/new.txt (not of this repository, app: a repository of its own)" in words
    assert "commit it there and tick the box yourself" in words

"""What a phase needs and its commit would not hold: its box is not ticked without its code."""

import json

import pytest

from relay.base.errors import ExitCode, PlanError
from relay.store.snapshot import MAX_UNTRACKED_BYTES
from tests.effort import take_each


def script(*tools, repeat=6):
    """Return a session that calls tools, one a turn, and says that it is done as often as it is asked."""
    turns = [{"tools": [{"name": name, "input": given}]} for name, given in tools]
    return json.dumps({"sessions": [{"name": "s", "turns": [*turns, {"text": "Commit: Do it", "repeat": repeat}]}]})


def bash(command):
    return "bash", {"command": command}


TICK = ("tick", {"item": "1.1", "evidence": "seen"})


def committed(stage):
    return stage.git("show", "--name-only", "--format=", "HEAD").split()


@pytest.mark.nightly
def test_a_tracked_file_beside_thousands_of_generated_ones_is_committed(stage):
    """A command edits it in a directory that snapshots leave out for its untracked files."""
    stage.write("PLAN.md", "## Phase 1\nVerify: `grep -q new web/app.js`\n- [ ] Generate the pages\n")
    stage.write("web/app.js", "old\n")
    stage.commit("plan")

    ended = stage.run(script(bash("cd web && echo new > app.js && seq -f %g.html 5001 | xargs touch"), TICK))

    assert ended.exit_code == ExitCode.DONE, ended
    assert committed(stage) == ["PLAN.md", "web/app.js"]


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
    ended = stage.run(text, **flags)
    assert ended.exit_code == ExitCode.STOPPED, ended
    assert stage.git("rev-parse", "HEAD") == before
    assert stage.server.errors == []
    return ended.reason


@pytest.mark.nightly
@pytest.mark.parametrize(
    "item", take_each(2, ["Say hello — hello.txt", "Create `hello.txt`", "Say hello — greetings/"])
)
def test_a_file_of_the_users_that_satisfies_the_phase_already(stage, item):
    """The session only has to tick; the commit would hold nothing. What the user commits is the phase's."""
    plan(stage, "grep -rq hello --include=hello.txt .", item)
    path = "greetings/hello.txt" if "greetings" in item else "hello.txt"
    stage.write(path, "hello\n")

    words = refuse(stage, script(TICK), early="/" not in item)

    named = item.rpartition(" ")[2].strip("`/")
    assert f"{named} (uncommitted changes of the user's from before this phase)" in words
    stage.git("add", path)
    stage.git("commit", "-q", "-m", "mine")
    ended = stage.run(script(TICK))
    assert ended.exit_code == ExitCode.DONE, ended
    assert committed(stage) == ["PLAN.md"]


@pytest.mark.nightly
def test_a_dirty_file_of_the_users_that_satisfies_the_phase_already(stage):
    """The same for one that HEAD has in another form, beside an item whose code is there."""
    stage.write("config.py", "old\n")
    plan(stage, "grep -q new config.py", "Say hello — hello.txt", "Change it — config.py")
    stage.write("config.py", "new\n")
    both = ("tick", {"item": "1.2", "evidence": "seen"})

    words = refuse(stage, script(write("hello.txt", "hello\n"), TICK, both), early=True)

    assert "config.py (uncommitted changes" in words
    assert "hello.txt" not in words


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


@pytest.mark.parametrize("item", take_each(2, ["Change the library — sub/inner.txt", "Change the library"]))
def test_a_file_in_a_submodule(stage, make_repo, item):
    """Relay does not enter submodules: what a session writes there is in no commit, and what is named costs nothing."""
    inner = make_repo("inner")
    stage.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    plan(stage, "grep -q new sub/inner.txt", item)

    work = script(write("sub/inner.txt", "new\n"), TICK)
    words = refuse(stage, work, early="sub/" in item)

    assert "sub/inner.txt (in a submodule, sub)" in words
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


@pytest.mark.nightly
def test_a_file_of_the_users_that_was_too_large_at_the_start(stage):
    """It is the user's, whatever the session makes of it; once he has committed it, the phase is through."""
    plan(stage, "test $(wc -c < data.bin) -lt 100", "Shrink it — data.bin")
    with (stage.root / "data.bin").open("wb") as file:
        file.truncate(MAX_UNTRACKED_BYTES + 1)

    words = refuse(stage, script(bash("echo small > data.bin"), TICK), early=True)

    assert "needs data.bin, which no commit has" in words
    stage.git("add", "data.bin")
    stage.git("commit", "-q", "-m", "mine")
    ended = stage.run(script(bash("echo small > data.bin"), TICK))
    assert ended.exit_code == ExitCode.DONE, ended


@pytest.mark.nightly
def test_what_an_added_item_names_counts(stage):
    """An item that the session itself added is not ticked without its file either."""
    plan(stage, "grep -q hello hello.txt", "Say hello — hello.txt")
    stage.write("mine.txt", "mine\n")
    add = ("amend", {"phase": "1", "change": "- [ ] Write it — mine.txt", "why": "it is missing"})
    both = ("tick", {"item": "1.2", "evidence": "seen"})

    words = refuse(stage, script(write("hello.txt", "hello\n"), add, TICK, both))

    assert "mine.txt (uncommitted changes" in words

"""What a person saves while a session works is never lost, whatever the session's next tool does to that file."""

import subprocess

import pytest

from relay.session.events import Noticed, PlanRestored
from tests.effort import take_each, take_turns
from tests.scripted import ScriptedRunner

MINE = "a line that somebody saved in an editor\n"
ONE = ("tick", {"item": "1.1", "evidence": "grep"})
HELLO = ("write", {"path": "hello.txt", "content": "hello\n"})


def write(path, content="the model's\n"):
    return ("write", {"path": path, "content": content})


def bash(command):
    return ("bash", {"command": command})


def is_kept(stage, text):
    """Whether a reachable object has these bytes."""
    objects = stage.git("rev-list", "--objects", "--no-object-names", "--all").split()
    made = subprocess.run(
        ["git", "hash-object", "--stdin"], cwd=stage.root, input=text.encode(), capture_output=True, check=True
    )
    return made.stdout.decode().strip() in objects


@pytest.fixture
def play(stage):
    """Run phase 1 with a session that does this, in a repository with a file of its own; return its results."""

    def run(*acts, **flags):
        stage.write("c.txt", "as committed\n")
        stage.commit("a file")
        runner = ScriptedRunner([[[*acts, HELLO, ONE]]])
        stage.play(runner, all_=False, **flags)
        assert stage.commits()[0].status == "done"
        return runner.results

    return run


CASES = {
    "write": ("c.txt", [("read", {"path": "c.txt"})], write("c.txt")),
    "write twice": ("c.txt", [write("c.txt", "the model's first\n")], write("c.txt")),
    "redirect": ("c.txt", [], bash("echo gone > c.txt")),
    "rm": ("new.md", [bash("true")], bash("rm -f *.md")),
    "mv": ("new.md", [bash("echo y > y")], bash("mv y new.md")),
    "write over new": ("new.md", [], write("new.md")),
    "rm -r": ("sub/new.md", [bash("mkdir sub")], bash("rm -r sub")),
    "edit": ("c.txt", [], ("edit", {"path": "c.txt", "old": MINE, "new": "the model's\n"})),
}


@pytest.mark.parametrize(("name", "sandbox"), take_each(3, take_turns(CASES, ("auto", "off"))))
def test_what_somebody_saves_meanwhile_is_kept(stage, play, name, sandbox):
    path, before, tool = CASES[name]

    play(*before, lambda: stage.write(path, MINE), tool, sandbox=sandbox)

    assert is_kept(stage, MINE)
    told = " ".join(notice.text for notice in stage.seen(Noticed))
    assert f"somebody saved {path} while the session worked" in told


def test_a_file_that_changed_since_it_was_seen_is_not_written_over(stage, play):
    """The session has to look at it first; what it changes itself it knows."""
    results = play(
        ("read", {"path": "c.txt"}),
        bash("true"),
        lambda: stage.write("c.txt", MINE),
        bash("true"),  # a snapshot of it is taken here
        write("c.txt"),
        ("read", {"path": "c.txt"}),
        write("c.txt"),
        bash("echo more >> c.txt"),
        write("c.txt", "its own\n"),
        lambda: stage.write("c.txt", MINE),
        bash("echo gone > c.txt"),
        write("c.txt", "its own\n"),
    )

    errors = [result.text for result in results if result.is_error]
    assert errors == ["c.txt was changed by somebody else and not written: read it first."]
    assert (stage.root / "c.txt").read_text() == "its own\n"


@pytest.mark.nightly
def test_what_git_ignores_is_not_written_over_unseen(stage, play):
    """No snapshot holds it."""
    stage.write(".gitignore", "local\n")
    results = play(lambda: stage.write("local", MINE), write("local"), ("read", {"path": "local"}), write("local"))

    assert [result.is_error for result in results[:3]] == [True, False, False]


def test_an_edit_of_the_plan_meanwhile_stays(stage, play):
    """Without a sandbox too: a command that runs later did not make it."""
    plan = (stage.root / "PLAN.md").read_text()
    edited = plan.replace("# Greetings", "# Greetings and more")

    results = play(bash("true"), lambda: stage.write("PLAN.md", edited), bash("true"), sandbox="off")

    assert not any(result.is_error for result in results)
    assert "# Greetings and more" in (stage.root / "PLAN.md").read_text()


@pytest.mark.nightly
def test_a_plan_that_is_put_back_is_kept_as_it_was_found(stage, play):
    """Whoever changed it while the command ran."""
    results = play(bash("true"), bash("echo mine >> PLAN.md"), sandbox="off")

    assert "put back" in results[1].text
    (restored,) = stage.seen(PlanRestored)
    where = restored.summary.rpartition("git show ")[2].partition(":")[0]
    assert stage.git("show", f"{where}:PLAN.md").endswith("mine\n")

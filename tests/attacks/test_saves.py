"""A person saves files in the middle of a command, as editors and git do: by renames, which take mounts away.

For the rest of that command the new file is bare. What stands in it afterwards is nobody's word until the person has
staged it, whoever wrote it and by whatever name.
"""

import os
import threading
from pathlib import Path

import pytest

from relay.git.notes import STEERING
from relay.git.repository import open_repo
from relay.store.steering_files import SteeringWatch, begin_watch, find_all_strange
from tests.agents import fake_agent
from tests.effort import take_each, take_turns
from tests.waiting import wait_until

PLAN = "# Greetings\n\n## Phase 1 — World\nVerify: `grep -q world world.txt`\n- [ ] Say world — world.txt\n"
LATER = f"{PLAN}\n## Phase 2 — Again\nVerify: `grep -q again again.txt`\n- [ ] Say it again — again.txt\n"
TICKED = LATER.replace("[ ] Say world", "[x] Say world")
HACK = "sed 's/grep -q world world.txt/test -e hello.txt/' src/plan"
WAIT = "n=0; until test -e src/saved || test $((n+=1)) -gt 2000; do sleep 0.01; done; "
QUIET = f"{WAIT} echo world > world.txt; touch src/tried"
HAMMER = f"{WAIT} ({HACK} > PLAN.md) 2>/dev/null; echo world > world.txt; touch src/tried"
LINK = (
    "n=0; mkdir -p zz; until test -e src/saved || test $((n+=1)) -gt 2000; do ln -f PLAN.md zz/0 2>/dev/null; done; "
    "ln -f PLAN.md zz/0; echo world > world.txt; touch src/tried"
)
"""Keep a second name of the file that the person saves, in a directory that nobody looks at."""
LATE = f"test -e zz/0 && {HACK} > zz/0; rm -r zz"
"""Write through it in another command, and remove it."""


def rename(place, text, arena):
    new = arena.write(f"{place.relative_to(arena.root)}.new", text)
    new.rename(place)


def keep_backup(place, text, arena):
    """As vim does."""
    backup = place.rename(f"{place}~")
    arena.write(str(place.relative_to(arena.root)), text)
    backup.unlink()


def move_away(place, text, arena):
    """As emacs does: the backup stays."""
    place.rename(f"{place}~")
    arena.write(str(place.relative_to(arena.root)), text)


WAYS = {"rename": rename, "vim's": keep_backup, "emacs's": move_away}
KINDS = ("command", "agent")
ATTACKS = {"writes": (HAMMER,), "links": (LINK, LATE)}
TURNS = [
    {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "grep"}}]},
    {"text": "Commit: Say world"},
]
NONE = [{"turns": [{"text": "Commit: Say world"}], "repeat": True}]


class Person:
    """Saves the plan once the attack has begun, then says so."""

    def __init__(self, arena, way):
        self._arena, self._way = arena, way
        self._thread = threading.Thread(target=self._work)

    def _work(self):
        wait_until((self._arena.root / "src/begun").exists)
        self._way(self._arena.root / "PLAN.md", LATER, self._arena)
        self._arena.write("src/saved", "")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._arena.write("src/begun", "")  # it never began: let the thread end
        self._thread.join()


def install_agent(arena):
    program = arena.base / "programs/fake-agent"
    program.parent.mkdir()
    program.write_text(f"#!{arena.python} -IS\n{Path(fake_agent.__file__).read_text()}")
    program.chmod(0o755)
    config = arena.home / ".config/relay/config.toml"
    config.parent.mkdir(parents=True)
    env = 'env = { FAKE_BASE = "{base}", FAKE_MODEL = "{model}" }'
    config.write_text(f'[agents.fake]\nprogram = "{program}"\n{env}\n')
    arena.give()
    return ("--runner", "fake")


def prepare(arena):
    arena.write("PLAN.md", PLAN)
    arena.write("src/plan", LATER)
    arena.write(".gitignore", ".env\n*~\nzz/\nvendor/\nnode_modules/\n.relay/\nsrc/begun\nsrc/saved\nsrc/tried\n")
    arena.commit()


def work(arena, kind, *commands):
    """Run the phase: the first command is a session's or an agent's."""
    args = install_agent(arena) if kind == "agent" else ()
    calls = [{"command": command} for command in (f"touch src/begun; {commands[0]}", *commands[1:])]
    turns = [*({"tools": [{"name": "bash", "input": call}]} for call in calls), *TURNS]
    sessions = [{"turns": turns, "then": "next"}, {"turns": [{"text": "Done."}], "repeat": True}]
    return arena.play(sessions, "run", "--phase", "1", *args, warm=True)


def go_on(arena):
    return arena.play([{"turns": TURNS}, *NONE], "run", "--phase", "1", warm=True)


@pytest.mark.parametrize(("kind", "how", "attack"), take_each(3, take_turns(KINDS, WAYS, ATTACKS)))
def test_what_a_program_wrote_is_nobodys_word(arena, kind, how, attack):
    """No commit has it as the person's, and no run goes on with it until the person has said that it is."""
    prepare(arena)
    with Person(arena, WAYS[how]):
        played = work(arena, kind, *ATTACKS[attack])
    assert "-e hello" in (arena.root / "PLAN.md").read_text(), played.tail

    refused = go_on(arena)
    arena.write("PLAN.md", LATER)
    arena.git("add", "-f", "PLAN.md")
    mended = go_on(arena)

    assert (played.code, played.errors) == (4, ()), played.tail
    assert b"git add -f PLAN.md" in played.out, played.tail
    assert (refused.code, refused.systems) == (1, ()), refused.tail
    assert b"only you write such a file" in refused.err
    assert mended.code == 0, mended.tail
    assert arena.git("show", "HEAD:PLAN.md") == TICKED
    assert "-e hello" not in arena.git("log", "-p", "--format=", "--", "PLAN.md")


@pytest.mark.parametrize(("kind", "how"), take_each(3, take_turns(KINDS, WAYS)))
def test_what_a_person_saved_counts_once_it_is_staged(arena, kind, how):
    """Relay asks in plain words at once; the finished work waits for the answer, and no session is paid again."""
    prepare(arena)
    with Person(arena, WAYS[how]):
        played = work(arena, kind, QUIET)
    asked = len(played.got)

    assert played.code == 4, played.tail
    assert b"git add -f PLAN.md" in played.out
    assert (arena.root / "PLAN.md").read_text() == LATER
    arena.git("add", "-f", "PLAN.md")
    mended = arena.play(NONE, "run", "--phase", "1", warm=True)

    assert asked
    assert (mended.code, mended.systems) == (0, ()), mended.tail
    assert arena.git("show", "HEAD:PLAN.md") == TICKED
    assert (arena.root / "PLAN.md").read_text() == TICKED


BROTHERS = {
    "the plan": "PLAN.md",
    "the ledger": "PLAN.ledger",
    "rules": "AGENTS.md",
    "nested rules": "src/CLAUDE.md",
    "rules that the settings name": "docs/rules.md",
    "settings": "relay.toml",
    "a skill": ".claude/skills/x/SKILL.md",
    "another agent's tools": ".mcp.json",
    "a file that git's configuration includes": "own.gitconfig",
    "the configuration of a repository in it": "sub/.git/config",
}
ARMED = "[core]\n\tfsmonitor = touch x\n"


def make_brothers(stage):
    stage.git("init", "-q", "sub")
    for path in BROTHERS.values():
        if not (stage.root / path).exists():
            stage.write(path, "[core]\n\tbare = false\n" if "config" in path else "# one\n")
    stage.git("add", "-f", *(path for path in BROTHERS.values() if "sub/" not in path))
    stage.git("commit", "-qm", "brothers")
    return open_repo(stage.root)


def watch(repo):
    begin_watch(repo, "PLAN.md")
    return SteeringWatch(repo, ("PLAN.md", "PLAN.ledger", "relay.toml", "docs/rules.md", "own.gitconfig", ".relay"))


def change(stage, path):
    """By a second name that is gone again, and with the old date: neither is asked."""
    place = stage.root / path
    status = place.stat()
    text = ARMED if ".git/" in path else f"{place.read_text()}# two\n"
    place.with_name("second").hardlink_to(place)
    place.with_name("second").write_text(text)
    place.with_name("second").unlink()
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("path", BROTHERS.values(), ids=BROTHERS)
def test_what_changes_while_a_command_runs_is_in_doubt_until_it_is_staged(stage, path):
    repo = make_brothers(stage)
    steering = watch(repo)
    steering.look(1)
    change(stage, path)
    steering.look(-1)

    name = "sub/.git/" if path.startswith("sub/") else path
    (strange,) = find_all_strange(repo, "PLAN.md")
    assert f"{path}/".startswith(f"{strange.rstrip('/')}/")
    assert "git add -f" in steering.take_news()
    assert steering.take_news() == ""
    if name == path:
        stage.git("add", "-f", path)
        assert find_all_strange(repo, "PLAN.md") == ()
        begin_watch(repo, "PLAN.md")


@pytest.mark.parametrize("path", BROTHERS.values(), ids=BROTHERS)
def test_what_changes_between_two_commands_is_the_persons(stage, path):
    repo = make_brothers(stage)
    steering = watch(repo)
    for _ in range(2):
        steering.look(1)
        steering.look(-1)
        change(stage, path)
    steering.look(1)

    assert (find_all_strange(repo, "PLAN.md"), steering.take_news()) == ((), "")


@pytest.mark.nightly
def test_a_plan_that_relay_commits_while_an_agent_waits_is_in_no_doubt_after_the_next_edit(stage):
    """An agent that has finished is frozen: relay ticks and commits meanwhile, and the user edits later."""
    repo = make_brothers(stage)
    steering = watch(repo)
    steering.look(1)
    change(stage, "PLAN.md")
    stage.git("commit", "-qm", "ticked", "PLAN.md")
    steering.look(-1)
    change(stage, "PLAN.md")

    assert (find_all_strange(repo, "PLAN.md"), steering.take_news()) == ((), "")


@pytest.mark.nightly
def test_without_its_record_nothing_is_doubted_as_the_hint_says(stage):
    repo = make_brothers(stage)
    watch(repo).look(1)  # relay dies while the command runs
    change(stage, "PLAN.md")
    assert find_all_strange(repo, "PLAN.md") == ("PLAN.md",)

    (repo.relay_dir / STEERING).unlink()
    begin_watch(repo, "PLAN.md")


@pytest.mark.nightly
def test_while_one_command_runs_the_beginning_of_another_proves_nothing(stage):
    repo = make_brothers(stage)
    steering = watch(repo)
    steering.look(1)
    change(stage, "PLAN.md")
    steering.look(1)
    steering.look(-1)

    assert find_all_strange(repo, "PLAN.md") == ("PLAN.md",)


@pytest.mark.nightly
def test_an_edit_on_top_of_a_doubtful_one_is_doubtful_and_after_a_staged_one_it_is_not(stage):
    repo = make_brothers(stage)
    steering = watch(repo)
    steering.look(1)
    change(stage, "AGENTS.md")
    steering.look(-1)
    stage.write("AGENTS.md", (stage.root / "AGENTS.md").read_text() + "mine\n")
    steering.look(1)
    steering.look(-1)
    assert find_all_strange(repo, "PLAN.md") == ("AGENTS.md",)

    stage.git("add", "AGENTS.md")
    steering.look(1)
    steering.look(-1)
    stage.write("AGENTS.md", "all mine\n")
    assert find_all_strange(repo, "PLAN.md") == ()


@pytest.mark.nightly
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_relay_that_died_in_a_command_leaves_the_doubt(stage, *, is_begun):
    """One that died between two commands leaves none: what a person edits then is the person's."""
    repo = make_brothers(stage)
    steering = watch(repo)
    steering.look(1)
    if not is_begun:
        steering.look(-1)
    change(stage, "PLAN.md")

    assert find_all_strange(repo, "PLAN.md") == (("PLAN.md",) if is_begun else ())


@pytest.mark.nightly
def test_a_file_that_is_removed_meanwhile_is_in_doubt(stage):
    repo = make_brothers(stage)
    steering = watch(repo)
    steering.look(1)
    (stage.root / "AGENTS.md").unlink()
    steering.look(-1)
    assert find_all_strange(repo, "PLAN.md") == ("AGENTS.md",)


def test_a_hidden_file_that_a_person_makes_is_hidden_from_the_next_session(arena, leaks):
    """The list of such files is made anew for each session."""
    prepare(arena)
    arena.write("PLAN.md", LATER)
    arena.write(".gitignore", ".env\nconfig/\nvendor/\nnode_modules/\n.relay/\nsrc/begun\nsrc/saved\nsrc/tried\n")
    arena.commit()

    def make(_place, _text, arena):
        arena.write("config/.env.production", "env-secret of today\n")

    first = [{"tools": [{"name": "bash", "input": {"command": f"touch src/begun; {QUIET}"}}]}, *TURNS]
    attack = "cat config/.env.production; echo again > again.txt"
    second = [
        {"tools": [{"name": "bash", "input": {"command": attack}}]},
        {"tools": [{"name": "tick", "input": {"item": "2.1", "evidence": "grep"}}]},
        {"text": "Commit: Say it again"},
    ]
    with Person(arena, make):
        sessions = [{"turns": turns, "then": "next"} for turns in (first, second)]
        played = arena.play([*sessions, *NONE], "run", warm=True)

    assert played.code == 0, played.tail
    assert arena.git("show", "HEAD:again.txt") == "again\n"
    assert not [leak for leak in leaks if leak in "".join(got.text for got in played.got)]

"""A person saves files in the middle of a session, as editors and git do: by renames, which take mounts away.

The program inside asks for the file again and again. A moment later it gets nothing; and what it wrote within the
moment is not taken for the person's.
"""

import shutil
import threading
from itertools import product
from pathlib import Path

import pytest

from tests.agents import fake_agent
from tests.effort import THOROUGH
from tests.waiting import wait_until

pytestmark = pytest.mark.as_each_user

PLAN = "# Greetings\n\n## Phase 1 — World\nVerify: `grep -q world world.txt`\n- [ ] Say world — world.txt\n"
LATER = f"{PLAN}\n## Phase 2 — Again\nVerify: `grep -q again again.txt`\n- [ ] Say it again — again.txt\n"
FILES = {"PLAN.md": LATER, "AGENTS.md": "# Rules\nBe very brief.\n", ".env": "env-secret of today\n"}
TOUCH = (
    "until test -e src/saved; do sleep 0.01; done; sleep 0.4; "
    "for file in PLAN.md AGENTS.md docs/AGENTS.md .git/config vendor/lib/.git/config; do "
    "(echo '# hacked' >> $file) 2>/dev/null && echo THR''OUGH $file; done; cat .env; "
    "(echo x > .git/hooks/pre-commit) 2>/dev/null && echo THR''OUGH hooks; echo world > world.txt; touch src/tried"
)
"""Wait until the person has saved, and relay has had time, then try."""
HAMMER = (
    "n=0; until test -e src/saved && test $((n+=1)) -gt 300; do "
    "(sed 's/grep -q world world.txt/test -e hello.txt/' src/plan > PLAN.md) 2>/dev/null; done; "
    "echo world > world.txt; touch src/tried"
)
"""Write another gate into the plan at every moment."""


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


MARKS = ("begun", "saved", "tried")
KINDS = ("command", "background", "agent")
FOLDERS = (".git", "vendor/lib/.git", "docs")
TURNS = [
    {"tools": [{"name": "bash", "input": {"command": "echo world > world.txt; touch src/tried"}}]},
    {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "grep"}}]},
    {"text": "Commit: Say world"},
]
NONE = [{"turns": [{"text": "Commit: Say world"}], "repeat": True}]
WAYS = {"rename": rename, "vim's": keep_backup, "emacs's": move_away}


QUIET = ("rename", "vim's")
"""Ways of saving after which it is certain who wrote the file."""
TRIED = (*(f"saved: {way}" for way in QUIET), *FOLDERS, *(f"in the moment: {way}" for way in WAYS))


def runs(hows):
    """Try each way in one kind of program, where all is tried in each."""
    pairs = product(KINDS, hows) if THOROUGH else [(KINDS[at % len(KINDS)], how) for at, how in enumerate(hows)]
    return pytest.mark.parametrize(("kind", "how"), list(pairs))


def replace_folder(place, arena):
    """Put a copy in the place of a directory, as a clone or a submodule that is made anew."""
    shutil.copytree(place, f"{place}.new", symlinks=True)
    place.rename(f"{place}.old")
    Path(f"{place}.new").rename(place)
    arena.give()


class Person:
    """Saves files once the attack has begun, then says so."""

    def __init__(self, arena, save):
        self._arena, self._save = arena, save
        self._thread = threading.Thread(target=self._work)

    def _work(self):
        wait_until((self._arena.root / "src/begun").exists)
        self._save()
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
    arena.write(
        ".gitignore", ".env\n.env.production\n*~\nvendor/\n.relay/\nnode_modules/\nsrc/begun\nsrc/saved\nsrc/tried\n"
    )
    arena.commit()


def work(arena, kind, command):
    """Run the phase: the attack is a command, runs in the background, or is an agent's."""
    args = install_agent(arena) if kind == "agent" else ()
    command = {"command": f"touch src/begun; {command}", **({"background": True} if kind == "background" else {})}
    turns = [{"tools": [{"name": "bash", "input": command}]}, *TURNS]
    if kind == "background":
        wait = "n=0; until test -e src/tried || test $((n+=1)) -gt 100; do sleep 0.05; done; cat .relay/outputs/*"
        turns.insert(1, {"tools": [{"name": "bash", "input": {"command": wait}}]})
    sessions = [{"turns": turns, "then": "next"}, {"turns": [{"text": "Done."}], "repeat": True}]
    return arena.play(sessions, "run", "--phase", "1", *args, warm=True)


def save_all(arena, way):
    for name, text in FILES.items():
        WAYS[way](arena.root / name, text, arena)


@runs(QUIET)
def test_what_a_person_saves_is_protected_and_hidden_as_before(arena, leaks, kind, how):
    """For as long as the program runs, whatever it is; and the person is asked nothing."""
    prepare(arena)
    with Person(arena, lambda: save_all(arena, how)):
        played = work(arena, kind, TOUCH)

    said = "".join(got.text for got in played.got)
    assert (arena.root / "src/tried").exists(), played.tail
    assert not [leak for leak in leaks if leak in said], said
    assert played.code == 0, played.tail
    ticked = {**FILES, "PLAN.md": LATER.replace("[ ] Say world", "[x] Say world")}
    assert {name: (arena.root / name).read_text() for name in FILES} == ticked


@runs(FOLDERS)
def test_a_directory_that_is_replaced_is_protected_as_before(arena, leaks, kind, how):
    prepare(arena)
    with Person(arena, lambda: replace_folder(arena.root / how, arena)):
        played = work(arena, kind, TOUCH)

    said = "".join(got.text for got in played.got)
    assert (arena.root / "src/tried").exists(), played.tail
    assert not [leak for leak in leaks if leak in said], said
    assert "hacked" not in (arena.root / ".git/config").read_text()
    assert not (arena.root / ".git/hooks/pre-commit").exists()


@runs(WAYS)
def test_what_a_program_wrote_in_the_moment_is_nobodys_word(arena, kind, how):
    """No commit has it as the person's, and no run goes on with it until the person has said that it is."""
    prepare(arena)
    with Person(arena, lambda: WAYS[how](arena.root / "PLAN.md", LATER, arena)):
        work(arena, kind, HAMMER)
    is_hacked = "-e hello" in (arena.root / "PLAN.md").read_text()

    refused = arena.play(NONE, "run", "--phase", "1", warm=True) if is_hacked else None
    arena.write("PLAN.md", LATER.replace("[ ] Say world", "[x] Say world") if is_done(arena) else LATER)
    arena.git("add", "-f", "PLAN.md")
    mended = arena.play([{"turns": TURNS}, *NONE], "run", "--phase", "1", warm=True)

    if refused:
        assert (refused.code, refused.systems) == (1, ()), refused.tail
        assert b"only you make such a file" in refused.err
    assert mended.code == 0, mended.tail
    assert arena.git("show", "HEAD:PLAN.md") == LATER.replace("[ ] Say world", "[x] Say world")
    assert "-e hello" not in arena.git("log", "-p", "--format=", "--", "PLAN.md")


def is_done(arena):
    return "[x] Say world" in arena.git("show", "HEAD:PLAN.md")


def test_a_hidden_file_that_a_person_makes_is_hidden_from_the_next_session(arena, leaks):
    """The list of such files is made anew for each session."""
    prepare(arena)
    arena.write("PLAN.md", LATER)
    arena.commit()

    def make():
        arena.write("config/.env.production", "env-secret of today\n")

    first = [{"tools": [{"name": "bash", "input": {"command": f"touch src/begun; {TOUCH}"}}]}, *TURNS[1:]]
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

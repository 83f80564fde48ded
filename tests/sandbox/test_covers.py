"""Somebody replaces protected and hidden files while a program runs: what the program had of them by then."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import pytest

from relay.sandbox.child import start_child
from relay.sandbox.covers import _WATCH
from relay.sandbox.policy import Level
from tests.sandbox.conftest import LIMITS, Place
from tests.waiting import wait_until

WAIT = "touch src/begun; until test -e src/saved; do sleep 0.01; done; "
TRY = "(echo hacked >> PLAN.md) 2>/dev/null && echo wrote; cat .env 2>/dev/null; echo end"
HAMMER = """
import os, time
open("src/begun", "w").close()
def take():
    try:
        TAKE
    except OSError:
        return None
while not (taken := take()):
    pass
open("src/taken", "w").close()
time.sleep(20)
"""
"""Tries again and again to take hold of the plan, and keeps what it has got."""
HOLD = """
        plan = open("PLAN.md", "a")
        return plan if os.fstat(plan.fileno()).st_nlink else None
"""
"""In the middle of a rename the kernel lets a program open the file before, which nobody reads any more."""


class Doubts(list[list[str]]):
    """The names that were in doubt, of each time."""

    def note(self, places: tuple[Path, ...]) -> None:
        self.append(sorted(place.name for place in places))


@pytest.fixture
def doubts() -> Doubts:
    return Doubts()


def save(root: Path, name: str = "PLAN.md", text: str = "new\n") -> None:
    (root / "src/new").write_text(text)
    (root / "src/new").rename(root / name)


@contextmanager
def person(root: Path, act: Callable[[], object]) -> Iterator[None]:
    """Have somebody do something once the program has begun."""

    def work() -> None:
        wait_until((root / "src/begun").exists)
        act()
        (root / "src/saved").touch()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        (root / "src/begun").touch()
        thread.join()


def save_unseen(root: Path) -> None:
    """Save the plan while relay cannot look, until the program has taken hold of it."""
    with ExitStack() as stack:  # the moment is too short for a test otherwise
        for cover in tuple(_WATCH._covers.values()):
            stack.enter_context(cover._lock)
        _save_beside(root)
        wait_until((root / "src/taken").exists)


@pytest.mark.parametrize("level", [Level.WORKSPACE_WRITE, Level.READ_ONLY])
def test_a_hidden_file_that_is_saved_stays_hidden(place: Place, doubts: Doubts, level: Level) -> None:
    with place.open(level, doubt=doubts.note) as box, person(place.root, lambda: save(place.root, ".env", "today\n")):
        (place.root / "src/begun").touch()
        said = box.sh("until test -e src/saved; do sleep 0.01; done; sleep 0.3; cat .env; echo end")
    assert (said.output.splitlines()[-1], said.notes, doubts) == (b"end", (), [])
    assert b"today" not in said.output


def test_one_who_saves_the_plan_is_asked_nothing(place: Place, doubts: Doubts) -> None:
    """The file was put there as a whole, and the program did not touch it."""
    with (
        place.open(Level.WORKSPACE_WRITE, doubt=doubts.note) as box,
        person(place.root, lambda: _save_beside(place.root)),
    ):
        said = box.sh(f"{WAIT} sleep 0.3; {TRY}")
    assert (said.output, said.notes, doubts) == (b"end\n", (), [])
    assert (place.root / "PLAN.md").read_text() == "new\n"


def _save_beside(root: Path) -> None:
    (root / "PLAN.new").write_text("new\n")
    (root / "PLAN.new").rename(root / "PLAN.md")


def test_a_file_that_comes_from_elsewhere_is_in_doubt(place: Place, doubts: Doubts) -> None:
    """A command may have written it there."""
    with place.open(Level.WORKSPACE_WRITE, doubt=doubts.note) as box, person(place.root, lambda: save(place.root)):
        said = box.sh(f"{WAIT} sleep 0.3; {TRY}")
    assert (said.output, said.notes, doubts) == (b"end\n", (), [["PLAN.md"]])


def test_a_program_that_holds_the_new_file_is_ended(place: Place, doubts: Doubts) -> None:
    """It could write it past every mount."""
    act = partial(save_unseen, place.root)
    with place.open(Level.WORKSPACE_WRITE, doubt=doubts.note) as box, person(place.root, act):
        said = box.python(HAMMER.replace("TAKE", HOLD.strip()))
    assert said.exit_code is None
    assert [note for note in said.notes if "held PLAN.md open" in note], said.notes
    assert ["PLAN.md"] in doubts


def test_a_program_is_ended_if_relay_fails_to_protect_its_files(place: Place) -> None:
    def fail(_places: tuple[Path, ...]) -> None:
        raise OSError("the disk is gone")

    with place.open(Level.WORKSPACE_WRITE, doubt=fail) as box, person(place.root, lambda: save(place.root)):
        said = box.sh(f"{WAIT} sleep 10; {TRY}")
        assert [note for note in said.notes if "the disk is gone" in note], said.notes
        assert box.sh(TRY).output == b"end\n"


def test_a_second_name_is_cut_off(place: Place, doubts: Doubts) -> None:
    """Whoever has it changes the plan no more."""
    take = 'os.link("PLAN.md", "src/second"); open("src/second", "a").close(); return True'
    with place.open(Level.WORKSPACE_WRITE, doubt=doubts.note) as box:
        with person(place.root, partial(save_unseen, place.root)):
            box.python(HAMMER.replace("TAKE", take).replace("sleep(20)", "sleep(1)"))
        said = box.sh("echo hacked >> src/second; cat PLAN.md")
    assert said.output == b"new\n"
    assert ["PLAN.md"] in doubts


def test_what_a_program_makes_in_the_place_of_a_file_that_was_removed_is_in_doubt(place: Place, doubts: Doubts) -> None:
    script = f"{WAIT} sleep 1; echo planted > PLAN.md; sleep 0.5; {TRY}"
    with (
        place.open(Level.WORKSPACE_WRITE, doubt=doubts.note) as box,
        person(place.root, (place.root / "PLAN.md").unlink),
    ):
        said = box.sh(script)
    assert (said.output, doubts) == (b"end\n", [["PLAN.md"]])
    assert (place.root / "PLAN.md").read_text() == "planted\n"


def test_a_program_whose_mounts_cannot_be_put_back_is_ended(place: Place) -> None:
    def act() -> None:
        (place.root / ".git").rename(place.outside / "git")
        (place.root / ".git").symlink_to(place.outside / "git")

    with place.open(Level.WORKSPACE_WRITE) as box, person(place.root, act):
        said = box.sh(f"{WAIT} sleep 20; echo end")
    assert said.exit_code is None
    assert b"end" not in said.output
    assert [note for note in said.notes if "could not protect it again" in note], said.notes


def test_the_copy_of_a_file_that_a_gate_may_write_becomes_the_file_to_read(place: Place) -> None:
    act = partial(_save_beside, place.root)
    with place.open(Level.WORKSPACE_WRITE) as box, box.sandbox.renew() as fresh, person(place.root, act):
        argv = ("/bin/sh", "-c", f"echo own >> PLAN.md; {WAIT} sleep 0.3; {TRY}; cat PLAN.md")
        said = fresh.run(argv, limits=LIMITS)
    assert (said.output, said.notes) == (b"end\nnew\n", ())


def test_a_stopped_program_stays_stopped(place: Place, tmp_path: Path) -> None:
    """An agent must not write while its work is checked, whoever saves a file meanwhile."""
    with place.open(Level.WORKSPACE_WRITE) as box:
        script = f"touch src/begun; while :; do echo x >> src/beat; ({TRY}) > /dev/null; sleep 0.01; done"
        child = start_child(
            box.sandbox, ("/bin/sh", "-c", script), limits=LIMITS, cwd=place.root, extra_env={}, errors=tmp_path / "err"
        )
        wait_until((place.root / "src/beat").exists)
        child.freeze()
        size = (place.root / "src/beat").stat().st_size
        seen = Path(f"/proc/{child._init_pid}/root{place.root}/PLAN.md")  # nobody else asks for it
        _save_beside(place.root)
        wait_until(lambda: seen.read_text() == "new\n" and os.statvfs(seen).f_flag & os.ST_RDONLY)
        assert (place.root / "src/beat").stat().st_size == size
        child.thaw()
        wait_until(lambda: (place.root / "src/beat").stat().st_size > size)
        child.end()
        child.output.close()
    assert (place.root / "PLAN.md").read_text() == "new\n"


def test_a_program_that_lives_long_is_shown_no_socket_and_no_file_that_appears(place: Place, tmp_path: Path) -> None:
    """Once its next request, or call, is there."""
    late, server = place.root / "src/late.yaml", place.root / "src/s"
    with place.open(Level.WORKSPACE_WRITE, unreadable=(late,)) as box, socket.socket(socket.AF_UNIX) as listener:
        script = "while read -r line; do cat src/late.yaml 2>&1; test -S $line && echo open; echo end; done"
        child = start_child(
            box.sandbox, ("/bin/sh", "-c", script), limits=LIMITS, cwd=place.root, extra_env={}, errors=tmp_path / "err"
        )
        late.write_text("secret\n")
        listener.bind(str(server))
        said = []
        for renews in (False, True):
            if renews:
                child.renew()
            child.send(f"{server}\n".encode())
            said.append(_read_to_end(child.output))
        child.end()
        child.output.close()
    assert said[0] == [b"secret", b"open"]
    assert b"secret" not in said[1]
    assert b"open" not in said[1]


def _read_to_end(stream: IO[bytes]) -> list[bytes]:
    text = b""
    while not text.endswith(b"end\n"):
        text += stream.read(1)
    return text.splitlines()[:-1]

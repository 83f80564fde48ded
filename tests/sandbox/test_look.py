"""Somebody replaces protected and hidden files while a program runs: when relay compares, what the next one gets."""

from pathlib import Path

import pytest

from relay.base.errors import SandboxError
from relay.sandbox.child import Child, start_child
from relay.sandbox.policy import Level
from tests.sandbox.conftest import LIMITS, Box, Place
from tests.waiting import wait_until

TRY = "(echo hacked >> PLAN.md) 2>/dev/null && echo wrote; cat .env 2>/dev/null; echo end"


def start(box: Box, place: Place, script: str, tmp_path: Path) -> Child:
    return start_child(
        box.sandbox, ("/bin/sh", "-c", script), limits=LIMITS, cwd=place.root, extra_env={}, errors=tmp_path / "errors"
    )


def test_the_next_command_is_protected_from_what_was_saved(place: Place) -> None:
    """What a person saved by a rename is bare for the rest of the command that ran then, and for no other."""
    with place.open(Level.WORKSPACE_WRITE) as box:
        for name, text in {"PLAN.md": "new\n", ".env": "today\n"}.items():
            (place.root / "saved").write_text(text)
            (place.root / "saved").rename(place.root / name)
        said = box.sh(TRY)
    assert said.output == b"end\n"
    assert (place.root / "PLAN.md").read_text() == "new\n"


def test_relay_compares_before_a_program_begins_and_when_all_of_it_has_ended(place: Place, tmp_path: Path) -> None:
    seen: list[tuple[int, bool]] = []

    def look(begun: int) -> None:
        seen.append((begun, (place.root / "src/wrote").exists()))

    with place.open(Level.WORKSPACE_WRITE, look=look) as box:
        box.sh("(sleep 0.3; touch src/wrote) & wait")
        box.run("/no/such/program")
        assert seen == [(1, False), (-1, True), (1, True), (-1, True)]

        seen.clear()
        child = start(box, place, "cat", tmp_path)
        child.look()
        child.freeze()
        child.end()
        child.end()
        child.output.close()
        assert [begun for begun, _ in seen] == [1, 0, 0, -1]

        seen.clear()
        with pytest.raises(SandboxError):
            start_child(box.sandbox, ("/bin/\ud800",), limits=LIMITS, cwd=place.root, extra_env={}, errors=tmp_path)
        assert [begun for begun, _ in seen] == [1, -1]


def test_what_writes_nothing_is_not_compared(place: Place) -> None:
    seen: list[int] = []
    with place.open(Level.READ_ONLY, look=seen.append) as box:
        box.sh("true")
    assert seen == []


def test_a_command_does_not_begin_where_nothing_could_be_noted(place: Place) -> None:
    def look(begun: int) -> None:
        if begun > 0:
            raise OSError("the disk is full")

    with place.open(Level.WORKSPACE_WRITE, look=look) as box, pytest.raises(OSError, match="disk is full"):
        box.sh("touch src/wrote")
    assert not (place.root / "src/wrote").exists()


BEAT = "while :; do echo x >> src/beat; sleep 0.01; done"
WAKERS = """
import os, signal, time
for _ in range(3):
    os.fork()
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) not in (1, os.getpid()):
            try:
                os.kill(int(pid), signal.SIGCONT)
            except OSError:
                pass
    with open("src/beat", "a") as beat:
        beat.write("x")
    time.sleep(0.001)
"""


@pytest.mark.parametrize("kind", ["one process", "processes that wake each other"])
def test_a_stopped_program_writes_nothing(place: Place, tmp_path: Path, kind: str) -> None:
    """An agent must not write while its work is checked."""
    beat = place.root / "src/beat"
    with place.open(Level.WORKSPACE_WRITE) as box:
        (place.root / "src/wake.py").write_text(WAKERS)
        script = BEAT if kind == "one process" else "exec python3 src/wake.py"
        child = start(box, place, script, tmp_path)
        wait_until(lambda: beat.exists() and beat.stat().st_size > 20)
        child.freeze()
        size = beat.stat().st_size
        box.sh("sleep 0.5")
        assert beat.stat().st_size == size
        child.thaw()
        wait_until(lambda: beat.stat().st_size > size)
        child.end()
        child.output.close()

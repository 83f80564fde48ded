"""The sandbox of the next command is made ahead, and taken only where nothing of what it shows has changed."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from relay.sandbox.bwrap import find_bwrap
from relay.sandbox.command import CommandResult, Standby, render_words, wrap_limits
from relay.sandbox.covers import has_mounts
from relay.sandbox.policy import Limits
from relay.sandbox.private_folder import find_survivors
from relay.sandbox.supervisor import find_descendants
from tests.waiting import wait_until

LIMITS = Limits(timeout_s=20)
_TRIES = 5
"""Tests at the same time make and remove sockets, which are covered: a sandbox made meanwhile may be made again."""


@dataclass(frozen=True)
class Counted:
    """A sandbox whose bubblewrap notes each start."""

    box: Any
    notes: Path

    @property
    def starts(self) -> int:
        return len(self.notes.read_text().splitlines())

    def make_ready(self) -> None:
        """Have the next command's sandbox wait for it."""
        standby, others = self.box.sandbox.standby, {*find_descendants(os.getpid())}  # a warm relay, say
        for _ in range(_TRIES):
            self.box.sandbox.expect_command(limits=LIMITS)
            self.box.sandbox.make_ready()
            wait_until(lambda: find_shell() or others.issuperset(find_descendants(os.getpid())))
            if find_shell():
                return
            standby.close()
        pytest.fail("no sandbox was made")

    def run(self, script: str, **more: Any) -> tuple[CommandResult, bool]:
        """Run a script; with the result comes whether that was in what waited for it."""
        before = self.starts
        return self.box.sh(script, **more), self.starts == before

    def run_taken(self, script: str) -> CommandResult:
        """Run a script in what waits for it; a socket that another test makes on this machine is a reason not to."""
        for _ in range(_TRIES):
            self.make_ready()
            result, is_taken = self.run(script)
            if is_taken:
                return result
        pytest.fail("what waits is never taken")


def find_shell() -> int:
    """Return the shell that waits below this process, the last that a sandbox starts before its command; 0 for none."""
    for pid in find_descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/comm").read_bytes() == b"sh\n":
                return pid
    return 0


@contextlib.contextmanager
def count_starts(place: Any, tmp_path: Path, **changes: Any) -> Iterator[Counted]:
    """Open a sandbox on a repository with a file to protect at its top and one below."""
    (place.root / "docs").mkdir(exist_ok=True)
    for name in ("AGENTS.md", "docs/AGENTS.md"):
        (place.root / name).write_text("old\n")
    notes, program = tmp_path / "starts", tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\n[ "$1" = --help ] || echo >> {notes}\nexec {find_bwrap()} "$@"\n')
    program.chmod(0o755)
    notes.touch()
    with place.open("workspace-write", **changes) as box:
        sandbox = replace(box.sandbox, bwrap=replace(box.sandbox.bwrap, program=program), standby=Standby())
        yield Counted(replace(box, sandbox=sandbox), notes)
        sandbox.standby.close()


@pytest.fixture
def counted(place: Any, tmp_path: Path) -> Iterator[Counted]:
    with count_starts(place, tmp_path) as opened:
        yield opened


def test_without_a_command_to_come_none_is_made(counted: Counted) -> None:
    counted.box.sandbox.make_ready()
    assert counted.starts == 0


def test_what_is_ended_as_it_begins_leaves_nothing(counted: Counted) -> None:
    """One in twenty that was killed in its first milliseconds left the child that it was cloning just then."""
    sandbox = counted.box.sandbox
    for n in range(40):
        sandbox.expect_command(limits=LIMITS)
        sandbox.make_ready()
        for _ in range(2 * n):  # some microseconds each: where in its set-up it is met
            Path("/proc/loadavg").read_bytes()
        sandbox.standby.close()
    assert find_survivors(sandbox.private.tmp) == ()


def test_it_is_made_where_there_is_time(counted: Counted) -> None:
    counted.box.sandbox.expect_command(limits=LIMITS)
    assert not find_shell()


def test_the_next_command_runs_in_what_was_made_for_it(counted: Counted) -> None:
    """And the one behind it does not."""
    shown = counted.run_taken('echo "$0" "$1"; echo \'two\n lines\' \\\\; pwd; cat; exit 3')
    lines = ["/bin/sh ", "two", " lines \\", str(counted.box.sandbox.policy.root)]
    assert (shown.output.decode().splitlines(), shown.exit_code) == (lines, 3)
    result, is_taken = counted.run("cat AGENTS.md")
    assert (result.output, is_taken) == (b"old\n", False)


def test_what_waits_ends_with_the_sandbox(counted: Counted) -> None:
    counted.make_ready()
    counted.box.sandbox.close()
    assert find_survivors(counted.box.sandbox.private.tmp) == ()


def test_a_command_with_streams_of_its_own_leaves_it_alone(counted: Counted) -> None:
    counted.make_ready()
    shell = find_shell()
    with Path(os.devnull).open("r+b") as null:
        assert counted.box.run("/bin/true", streams=(null.fileno(),) * 3).exit_code == 0
    assert find_shell() == shell


def test_it_is_taken_though_files_were_written(counted: Counted) -> None:
    """Those are seen as they are."""
    counted.make_ready()
    (counted.box.sandbox.policy.root / "AGENTS.md").write_text("new\n")
    (counted.box.sandbox.policy.root / "more.txt").write_text("more\n")
    assert counted.run_taken("cat AGENTS.md more.txt").output == b"new\nmore\n"


def _replace(root: Path) -> None:
    (root / "AGENTS.md").rename(root / "old.md")
    (root / "AGENTS.md").write_text("new\n")


def _make_again(root: Path) -> None:
    """The new file mostly gets the number of the old one."""
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").write_text("new\n")


def _save(root: Path) -> None:
    """As editors do."""
    (root / "AGENTS.md.tmp").write_text("new\n")
    (root / "AGENTS.md.tmp").replace(root / "AGENTS.md")


def _move_above(root: Path) -> None:
    (root / "docs").rename(root / "moved")
    (root / "docs").mkdir()
    (root / "docs" / "AGENTS.md").write_text("new\n")


def _move_away_and_back(root: Path) -> None:
    """The mount goes with the file."""
    _replace(root)
    (root / "old.md").replace(root / "AGENTS.md")


CHANGES = pytest.mark.parametrize(
    ("change", "protected", "is_covered"),
    [
        (_replace, "AGENTS.md", False),
        (_make_again, "AGENTS.md", False),
        (_save, "AGENTS.md", False),
        (_move_above, "docs/AGENTS.md", False),
        (_move_away_and_back, "AGENTS.md", True),
    ],
)


@CHANGES
def test_the_kernel_tells_what_is_covered_no_more(
    counted: Counted, change: Callable[[Path], None], protected: str, *, is_covered: bool
) -> None:
    """Also where a new file has the number of the old one."""
    root = counted.box.sandbox.policy.root
    counted.make_ready()
    shell = find_shell()
    assert has_mounts(shell, (root / "AGENTS.md", root / "docs/AGENTS.md"))
    change(root)
    assert has_mounts(shell, (root / protected,)) == is_covered


@CHANGES
def test_it_is_not_taken_when_what_it_covers_was_replaced(
    counted: Counted, change: Callable[[Path], None], protected: str, *, is_covered: bool
) -> None:
    """A command that begins now cannot write what stands there now."""
    root = counted.box.sandbox.policy.root
    counted.make_ready()
    change(root)
    text = (root / protected).read_text()
    result, is_taken = counted.run(f"cat {protected}; echo planted >> {protected}")
    assert (result.exit_code != 0, result.output.startswith(text.encode())) == (True, True)
    assert is_covered or not is_taken
    assert (root / protected).read_text() == text


def test_it_is_ended_when_that_was_replaced_while_the_command_waited(counted: Counted) -> None:
    """What has to come first may take seconds, in a large repository; it is asked for again with the new sandbox."""
    root, begun = counted.box.sandbox.policy.root, 0

    def save_meanwhile() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            _save(root)

    for _ in range(_TRIES):
        counted.make_ready()
        begun = 0
        sandbox = replace(counted.box.sandbox, prepare=save_meanwhile)
        result = sandbox.run(("/bin/sh", "-c", "echo planted >> AGENTS.md"), limits=LIMITS)
        if begun > 1:
            assert (result.exit_code != 0, (root / "AGENTS.md").read_text()) == (True, "new\n")
            return
    pytest.fail("a command began where nothing covered the file")


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_socket_that_its_server_made_again_is_the_new_one(place: Any, tmp_path: Path, *, is_kept: bool) -> None:
    """A server that starts again removes the old one, or finds that it was moved."""
    path = place.outside / "server"

    def serve(listener: socket.socket) -> None:
        listener.bind(str(path))
        listener.listen()

    ask = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r}); print('open')"
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        serve(first)
        with count_starts(place, tmp_path, sockets=(path,)) as counted:
            counted.make_ready()
            if is_kept:
                path.rename(f"{path}.old")
            else:
                path.unlink()
            first.close()
            serve(second)
            assert counted.box.python(ask).output == b"open\n"


@pytest.mark.parametrize(
    "more",
    [{"limits": Limits(timeout_s=20, file_bytes=512)}, {"extra_env": {"MORE": "1"}}, {"cwd": Path("docs")}],
    ids=["limits", "env", "cwd"],
)
def test_it_is_not_taken_for_a_command_that_differs(counted: Counted, more: dict[str, Any]) -> None:
    counted.make_ready()
    result, is_taken = counted.run("echo $MORE; pwd; head -c 1000 /dev/zero > $TMPDIR/big", **more)
    lines = [more.get("extra_env", {}).get("MORE", ""), str(counted.box.sandbox.policy.root / more.get("cwd", ""))]
    assert (result.output.decode().splitlines()[:2], is_taken) == (lines, False)
    assert (result.exit_code == 0) == ("limits" not in more)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), max_size=4), st.data())
@hypothesis(max_examples=20)
def test_words_arrive_as_they_are(words: list[str], data: st.DataObject) -> None:
    """All of them, or the command does not begin; its variables are the caller's."""
    told = render_words(("/usr/bin/printf", r"%s\0", *words, ""))
    sent = data.draw(st.sampled_from([len(told), len(told), 0, len(told) - 1]) | st.integers(0, len(told)))
    command = wrap_limits(None, LIMITS, shared_user=True)
    ours, theirs = socket.socketpair()
    with theirs, subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.PIPE) as process:
        theirs.close()
        with ours:
            assert ours.recv(1) == b"\n"
            ours.sendall(told[:sent])
        assert process.stdout
        output = process.stdout.read()
    assert output.decode().split("\0")[:-1] == ([*words, ""] if sent == len(told) else [])

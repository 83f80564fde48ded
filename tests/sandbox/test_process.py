"""A command is read, bounded and ended with everything that it started."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relay.base.errors import SandboxError
from relay.sandbox.command import wrap_limits
from relay.sandbox.policy import MIB, Level, Limits, Mechanism
from relay.sandbox.private_folder import end_survivors, find_survivors
from relay.sandbox.process import ATTEMPTS, wait_until_bound
from relay.sandbox.supervisor import read_processes
from tests.effort import NIGHTLY, take_each
from tests.waiting import wait_until

SHORT = Limits(timeout_s=1.0)
REPOSITORY = Path(__file__).parents[2]
MODES = [(Level.WORKSPACE_WRITE, Mechanism.BWRAP), (Level.WORKSPACE_WRITE, Mechanism.OFF)]


@pytest.fixture(params=MODES, ids=["bwrap", "off"])
def box(request: Any, place: Any) -> Any:
    level, mechanism = request.param
    with place.open(level, mechanism) as opened:
        yield opened


OWN = os.getpid()
"""Behind the point of how long something sleeps: other suites on this machine run the same tests."""


def find_marked(mark: str) -> list[str]:
    """Return the command lines of living processes that carry the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mark in line and "pytest" not in line:
                found.append(line)
    return found


def count_zombies() -> int:
    """Count dead children of this process that nobody waited for."""
    stats = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    states = [Path(f"/proc/{pid}/stat") for line in stats for pid in line.split()]
    return sum(path.exists() and path.read_text().rpartition(")")[2].split()[0] == "Z" for path in states)


ENDS = (
    ("echo one; echo two >&2; echo three; exit 3", 3, b"one\ntwo\nthree\n"),  # one stream, in order
    (f"sleep 4242.{OWN} & echo hi", 0, b"hi\n"),  # a job that keeps the pipe open
    ("exec >&- 2>&-; sleep 0.2; exit 5", 5, b""),  # a closed output is no end
    ("kill -SEGV $$", 128 + 11, b""),
    ("no-such-program", 127, b"/bin/sh: "),
    ("ulimit -c", 0, b"0\n"),  # no core is dumped
    ("cat; read x </dev/tty; git commit --allow-empty; head -c1 | wc -c", 0, b""),  # nothing waits for a person
)


def test_each_end_is_told(box: Any) -> None:
    """Exit codes are a shell's, and the output is what was written until the command itself ended."""
    for script, code, output in ENDS:
        result = box.sh(script)
        assert (result.exit_code, result.output[: len(output)]) == (code, output), script
        assert (result.timed_out, result.interrupted, result.notes) == (False, False, ())
    assert find_marked(f"sleep 4242.{OWN}") == []
    assert box.run("no-such-program", "--help").exit_code == 127


def test_what_it_printed_last_is_heard_while_it_runs(bare: Any) -> None:
    """Head and tail together where the output is longer than what is kept; on the caller's thread."""
    heard: list[tuple[bytes, int]] = []
    hear = replace(bare.sandbox, hear=lambda end: heard.append((end, threading.get_ident())))
    script = "echo one; seq 2000; echo last; sleep 0.3"
    hear.run(["/bin/sh", "-c", script], limits=Limits(timeout_s=20, keep_bytes=64))
    assert [end[-5:] for end, _ in heard][-1] == b"last\n"
    assert {thread for _, thread in heard} == {threading.get_ident()}


def test_timeout_holds_for_one_that_ignores_signals(box: Any) -> None:
    """TERM, INT and HUP may be ignored; the end comes anyway."""
    result = box.sh(f"trap '' TERM INT HUP; echo up; while :; do sleep 4243.{OWN}; done", limits=Limits(timeout_s=0.5))
    assert (result.timed_out, result.exit_code, result.output) == (True, None, b"up\n")
    assert find_marked(f"sleep 4243.{OWN}") == []


@pytest.mark.parametrize("end", ["exit 0", "sleep 30"])
def test_daemons_do_not_survive(box: Any, tmp_path: Path, end: str) -> None:
    """Double forks and new sessions, fifty of them, end with the command, when it ends and when it is stopped."""
    script = f"for i in $(seq 50); do (setsid sleep 4244.{OWN} >/dev/null 2>&1 &) ; done; echo made; {end}"
    spool = tmp_path / "spool"

    def is_made() -> bool:
        return spool.exists() and spool.read_bytes() == b"made\n"

    limits = Limits(timeout_s=60, keep_bytes=0)
    result = box.sh(script, limits=limits, spool=spool, should_stop=lambda: end != "exit 0" and is_made())
    assert is_made()
    assert result.interrupted == (end != "exit 0")
    assert find_marked(f"sleep 4244.{OWN}") == []
    assert count_zombies() == 0


def test_stop_is_asked_for_often(box: Any) -> None:
    """`should_stop` ends a silent command and a flooding one within a fraction of a second."""
    for script in ("sleep 30", "yes"):
        begin = time.monotonic()
        result = box.sh(script, should_stop=lambda begin=begin: time.monotonic() - begin > 0.2)
        assert (result.interrupted, result.timed_out, result.exit_code) == (True, False, None)


@contextlib.contextmanager
def start(box: Any, command: tuple[str, ...], is_up: Callable[[Any, Any], Any]) -> Iterator[tuple[Any, socket.socket]]:
    """Start what waits for relay; once more where a socket of another test, which is covered, went meanwhile."""
    for _ in range(ATTEMPTS):
        launch = box.sandbox.build_launch(command, cwd=box.sandbox.policy.root, extra_env={})
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            for fd in (*launch.pass_fds, *([launch.status_fd] if launch.status_fd is not None else [])):
                stack.callback(os.close, fd)
            process = subprocess.Popen(
                launch.argv, env=launch.env, stdin=theirs.fileno(), pass_fds=launch.pass_fds, stderr=subprocess.PIPE
            )
            stack.enter_context(process)
            stack.enter_context(ours)
            theirs.close()
            if is_up(process, ours):
                yield process, ours
                return
            process.communicate()
    pytest.fail("it does not start")


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_command_begins_only_when_relay_says_so(box: Any, *, is_ready: bool) -> None:
    """A relay that was killed cannot: whatever it had just started ends by itself, before it did anything."""
    root = box.sandbox.policy.root
    command = wrap_limits(("/bin/touch", "late"), SHORT, shared_user=box.sandbox.shares_user)
    with start(box, command, lambda _, ours: not is_ready or ours.recv(1) == b"\n") as (process, ours):
        ours.close()
        assert process.wait(10) != 0
    assert not (root / "late").exists()


def test_what_was_on_the_way_to_a_command_is_ended_by_the_next_run(box: Any) -> None:
    """Also where bwrap lost its parent; a process that has nothing of the sandbox stays."""
    end = box.sandbox.private.tmp

    def is_up(process: Any, _: Any) -> bool:  # bwrap and its child; the supervisor and its
        wait_until(lambda: len(find_survivors(end)) > 1 or process.poll() is not None)
        return process.poll() is None

    with (
        subprocess.Popen(["/bin/sleep", "60"], env={"TMPDIR": f"{end}x"}) as kept,
        start(box, ("/bin/sh", "-c", "read never"), is_up) as (started, _),
    ):
        started.kill()
        end_survivors(end)
        assert (find_survivors(end), kept.poll()) == ((), None)
        kept.kill()


def test_what_bwrap_left_that_was_killed_alone_is_ended_and_no_other_sandbox(writer: Any, place: Any) -> None:
    """In its first milliseconds one in twenty leaves the child that it was cloning, which waits for it for ever."""
    end = writer.sandbox.private.tmp

    def kill(process: Any, _: Any, after: int) -> bool:
        for _ in range(after):  # some microseconds each
            Path("/proc/loadavg").read_bytes()
        process.kill()
        return True

    with place.open(Level.WORKSPACE_WRITE) as beside:
        theirs = beside.sandbox.private.tmp

        def is_up(process: Any, _: Any) -> bool:
            wait_until(lambda: len(find_survivors(theirs)) > 1 or process.poll() is not None)
            return process.poll() is None

        with start(beside, ("/bin/sh", "-c", "read never"), is_up) as (other, _):
            before = set(find_survivors(theirs))
            for n in range(40 if NIGHTLY else 12):
                with start(
                    writer, ("/bin/sh", "-c", "read never"), partial(kill, after=(4 if NIGHTLY else 13) * n)
                ) as (
                    killed,
                    _,
                ):
                    killed.wait()
            end_survivors(end)
            assert (find_survivors(end), set(find_survivors(theirs)), other.poll()) == ((), before, None)
            other.kill()


def test_where_bwrap_is_killed_no_command_runs_twice_and_those_of_another_relay_go_on(place: Any) -> None:
    """The memory's watchdog may do it. In every sandbox the temporary directory has the same name."""
    script = """
import os, sys
from pathlib import Path
from relay.sandbox.policy import Level, Limits, Policy
from relay.sandbox.run import open_sandbox
box = open_sandbox(Policy(root=Path(sys.argv[1]), env=dict(os.environ)), Level.WORKSPACE_WRITE)
sys.exit(box.run(("/bin/sh", "-c", sys.argv[2]), limits=Limits(timeout_s=60)).exit_code)
"""
    waits = "echo x >> theirs; while test ! -e down; do sleep 0.02; done"
    mine = place.root / "mine"
    with place.open(Level.WORKSPACE_WRITE) as box:

        def kill_bwrap() -> bool:
            table = read_processes()
            for pid in find_survivors(box.sandbox.private.tmp) if mine.exists() else ():
                if pid in table and table[pid].parent == os.getpid():
                    os.kill(pid, signal.SIGKILL)
            return False

        with subprocess.Popen((sys.executable, "-c", script, str(place.root), waits), cwd=REPOSITORY) as other:
            wait_until((place.root / "theirs").exists, by=other)
            ended = box.sh("echo x >> mine; sleep 60", limits=Limits(timeout_s=10), should_stop=kill_bwrap)
            (place.root / "down").touch()
        assert (ended.exit_code, other.returncode) == (137, 0)
    assert (mine.read_text(), (place.root / "theirs").read_text()) == ("x\n", "x\n")


def test_without_descriptors_it_is_the_sandbox_that_fails(place: Any) -> None:
    """Not the command, which a model would be told to write otherwise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with place.open("workspace-write") as box:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(fd.name) for fd in Path("/proc/self/fd").iterdir()), hard))
        taken = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            with pytest.raises(SandboxError, match=r"could not be laid out: .*Too many open files"):
                box.sh("true")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in taken:
                os.close(fd)


def test_impossible_command_line_is_a_result(bare: Any) -> None:
    """What the kernel or the encoding refuses is said in the output."""
    for argv in (("a\0b",), ("\ud800",), ("echo", "x" * 300_000), ()):
        result = bare.run(*argv)
        assert (result.exit_code, result.output[:7]) == (126, b"relay: "), argv


def test_cwd_stays_in_the_repository(bare: Any, place: Any) -> None:
    """A directory outside, reached by name or by a link, is refused; one inside is entered."""
    (place.root / "out").symlink_to(place.outside)
    assert bare.sh("pwd", cwd=place.root / "src").output == f"{place.root}/src\n".encode()
    for cwd in (place.outside, place.root / "out", place.root / "absent", place.root / ".."):
        assert bare.sh("pwd", cwd=cwd).exit_code == 126


def test_file_size_is_limited(box: Any, place: Any) -> None:
    """A file cannot grow beyond the limit."""
    result = box.sh("head -c 3000000 /dev/zero > big; true", limits=Limits(timeout_s=10, file_bytes=MIB))
    assert result.exit_code is not None
    assert (place.root / "big").stat().st_size == MIB


HOARDS = {
    "allocates": "kept = []\nwhile True: kept.append(b'x' * (8 << 20))",
    "allocates in many processes": "import os\nfor _ in range(4): os.fork()\nkept = []\n"
    "while True: kept.append(b'x' * (1 << 20))",
    "fills files that live in memory": "import os\nn = 0\nwhile True:\n    n += 1\n"
    "    for place in ('/dev/shm', os.environ['HOME'], '/var/tmp'):\n"
    "        with open(f'{place}/hoard', 'ab') as file: file.write(b'x' * (4 << 20))",
}
IN_GROUP = """
import os, sys
from pathlib import Path
from relay.sandbox.policy import Level, Limits, Policy
from relay.sandbox.run import open_sandbox
root, group, *hoards = sys.argv[1:]
Path(group, "cgroup.procs").write_text(str(os.getpid()))
with open_sandbox(Policy(root=Path(root), env=dict(os.environ)), Level.WORKSPACE_WRITE) as box:
    for script in (*hoards, "print('alive')"):
        done = box.run((sys.executable, "-I", "-S", "-c", script), limits=Limits(timeout_s=100))
        print("end", done.exit_code, done.timed_out, done.output.decode()[-200:].strip())
"""


def _make_group() -> Path | None:
    for base, limits in (
        ("/sys/fs/cgroup/memory", {"memory.limit_in_bytes": 300 * MIB, "memory.memsw.limit_in_bytes": 300 * MIB}),
        ("/sys/fs/cgroup", {"memory.max": 300 * MIB, "memory.swap.max": 0}),
    ):
        made = Path(base, f"relay-test-{OWN}")
        try:
            made.mkdir()
            for name, size in limits.items():
                (made / name).write_text(str(size))
        except OSError:
            with contextlib.suppress(OSError):
                made.rmdir()
        else:
            return made
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group in which memory runs out: 300 MiB, and none on a disk."""
    made = _make_group()
    if made is None:
        pytest.skip("no control group can be made here")
    yield made
    wait_until(lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


def test_where_memory_runs_out_a_command_is_killed_and_relay_is_not(place: Any, group: Path) -> None:
    """By the kernel, however many processes or files hold it; the next command runs."""
    kinds = take_each(2, HOARDS)
    argv = (sys.executable, "-c", IN_GROUP, str(place.root), str(group), *(HOARDS[kind] for kind in kinds))
    done = subprocess.run(argv, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ends = [line for line in done.stdout.splitlines() if line.startswith("end ")]
    assert [line.startswith("end 137 False") for line in ends] == [True] * len(kinds) + [False], done.stdout
    assert ends[-1] == "end 0 False alive"


def test_fork_bomb_is_stopped(box: Any) -> None:
    """Either the kernel refuses further processes or relay kills the tree; nothing is left."""
    script = f"i=0; while [ $i -lt 400 ]; do sleep 4245.{OWN} & i=$((i+1)); done; echo done; sleep 10"
    result = box.sh(script, limits=Limits(timeout_s=8, processes=60))
    assert b"done" not in result.output or result.notes
    assert any("more than 60" in note for note in result.notes) or b"ork" in result.output
    assert find_marked(f"sleep 4245.{OWN}") == []


def test_what_is_ended_as_it_begins_leaves_nothing(writer: Any) -> None:
    """One in twenty that was killed in its first milliseconds left the child that it was cloning just then."""
    for n in range(40 if NIGHTLY else 12):

        def stop(busy: int = (2 if NIGHTLY else 7) * n) -> bool:
            for _ in range(busy):  # some microseconds each: where in its set-up it is met
                Path("/proc/loadavg").read_bytes()
            return True

        assert writer.sandbox.run(("/bin/sleep", "60"), limits=SHORT, should_stop=stop).interrupted
    assert find_survivors(writer.sandbox.private.tmp) == ()


def test_death_of_relay_ends_its_commands(place: Any, tmp_path: Path) -> None:
    """When relay is killed, nothing goes on writing to the work tree."""
    script = """
import os, sys
from pathlib import Path
from relay.sandbox.policy import Level, Limits, Mechanism, Policy
from relay.sandbox.run import open_sandbox
policy = Policy(root=Path(sys.argv[1]), env=dict(os.environ))
box = open_sandbox(policy, Level.WORKSPACE_WRITE, mechanism=Mechanism(sys.argv[2]))
nap = sys.argv[3]
box.run(("/bin/sh", "-c", f"(setsid sleep {nap} &); echo x > up; sleep {nap}"), limits=Limits(timeout_s=60))
"""
    for mode in ("off", "bwrap"):
        with place.open(Level.WORKSPACE_WRITE, Mechanism(mode)):
            up = place.root / "up"
            up.unlink(missing_ok=True)
            env = {**os.environ, "TMPDIR": str(tmp_path)}
            argv = (sys.executable, "-c", script, str(place.root), mode, f"4246.{OWN}")
            with subprocess.Popen(argv, env=env, cwd=Path(__file__).parents[2]) as relay:
                wait_until(up.exists, by=relay)
                relay.send_signal(signal.SIGKILL)
            wait_until(lambda: not find_marked(f"sleep 4246.{OWN}"))


def test_memory_directories_are_bounded(writer: Any) -> None:
    """Home and shared memory live in memory and cannot take all of it."""
    sizes = writer.sh("df -k --output=size $HOME /dev/shm | tail -n +2").output.split()
    assert [int(size) for size in sizes] == [1024 * 1024] * 2


def test_other_processes_of_the_user_do_not_count(place: Any) -> None:
    """The limit on processes is the sandbox's own: a busy machine does not make commands fail."""
    others = [subprocess.Popen(("/bin/sleep", "60")) for _ in range(40)]
    try:
        with place.open(Level.WORKSPACE_WRITE) as box:
            assert (
                box.sh("sleep 0 & sleep 0 & wait; echo ok", limits=Limits(timeout_s=10, processes=20)).output == b"ok\n"
            )
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_what_stands_below_the_first_process_of_a_sandbox_is_first_in_line_too():
    """Relay says it of bwrap, whose child may have been made a moment before."""
    command = ["bash", "-c", "(sleep 60; true) & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as first:
        try:
            assert first.stdout
            below = int(first.stdout.readline())
            wait_until_bound(first.pid)
            scores = [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in (first.pid, below)]
        finally:
            os.killpg(first.pid, signal.SIGKILL)
    assert scores == ["1000\n"] * 2

"""A program of the user's: it ends, its output is bounded, and what it leaves behind is waited for by nobody."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.base.program import Ended, run_program
from tests.waiting import wait_until

FOREVER = 30.0
"""Seconds within which a program ends here, on a machine with much to do."""


def run(script: str, *, limit_s: float = FOREVER, most_bytes: int = 100, stdin: bytes = b"") -> Ended:
    words = ("/bin/sh", "-c", script)
    return run_program(words, env={"OWN": "1"}, cwd="/", limit_s=limit_s, most_bytes=most_bytes, stdin=stdin)


def waits(pid: str) -> bool:
    """Whether a process has started its program, and waits for that."""
    with contextlib.suppress(OSError):  # until it knows that the program is started, it has a pipe to that
        links = {fd.name: str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        piped = [name for name, link in links.items() if link.startswith("pipe:") and int(name) > 2]
        return not piped or any("eventpoll" in link for link in links.values())
    return False


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def read_pid(place: Path) -> str:
    return (place / "pid").read_text().strip()


@settings(max_examples=max(10, settings().max_examples // 5))
@given(out=st.binary(max_size=300), err=st.binary(max_size=300), code=st.integers(0, 255), most=st.integers(0, 200))
def test_outputs_are_kept_to_a_bound_and_the_code_is_its_own(out, err, code, most):
    script = f"import sys, os; sys.exit(os.write(1, {out!r}) and 0 or os.write(2, {err!r}) and 0 or {code})"
    ended = run_program((sys.executable, "-S", "-I", "-c", script), env={}, cwd=None, limit_s=FOREVER, most_bytes=most)
    assert ended == Ended(code=code, out=out[:most], err=err[:most])


def test_it_has_the_environment_and_the_input_that_it_is_given():
    """A long input fills no pipe: the program need not read it."""
    assert run("env | grep -c OWN; cat; pwd; pwd >&2", stdin=b"in\n") == Ended(code=0, out=b"1\nin\n/\n", err=b"/\n")
    assert run("exit 3", stdin=b"x" * 3_000_000).code == 3
    assert run("cat", stdin=b"x" * 3_000_000).out == b"x" * 100
    assert run("kill -9 $$").code == -9


@pytest.mark.parametrize("last", ["wait", "exec >&- 2>&-; wait", "yes", "trap '' TERM; wait"])
@pytest.mark.parametrize("most_bytes", [0, 100])
def test_at_the_limit_all_of_its_group_is_killed(tmp_path, last, most_bytes):
    ended = run(f"sleep 600 & echo $! > {tmp_path}/pid; {last}", limit_s=0.3, most_bytes=most_bytes)
    assert ended.code is None
    wait_until(lambda: not is_alive(read_pid(tmp_path)))


@pytest.mark.parametrize("most_bytes", [0, 100])
def test_nobody_waits_for_what_it_leaves_behind_or_kills_it(tmp_path, most_bytes):
    ended = run(f"sleep 600 & echo $! > {tmp_path}/pid; echo said", most_bytes=most_bytes)
    assert ended == Ended(code=0, out=b"said\n"[:most_bytes], err=b"")
    assert is_alive(read_pid(tmp_path))
    subprocess.run(["kill", read_pid(tmp_path)], check=True)


def test_what_cannot_be_started_is_raised(tmp_path):
    for words, error in (((str(tmp_path / "none"),), FileNotFoundError), (("/bin/true", "\0"), ValueError),
                         (("/bin/true", "x" * 3_000_000), OSError)):  # fmt: skip
        with pytest.raises(error):
            run_program(words, env={}, cwd=None, limit_s=FOREVER, most_bytes=1)


def test_a_signal_that_ends_the_wait_ends_the_program(tmp_path):
    """As Ctrl-C does at relay, and SIGTERM at a call of `relay.news`."""
    script = (
        "import signal, sys; from relay.base.program import run_program\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        f"run_program(('/bin/sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 600'),"
        " env={}, cwd=None, limit_s=600, most_bytes=1)"
    )
    relay = subprocess.Popen((sys.executable, "-c", script), env=os.environ)
    wait_until(lambda: waits(str(relay.pid)) and (tmp_path / "pid").exists() and read_pid(tmp_path))
    pid = read_pid(tmp_path)
    relay.terminate()
    assert relay.wait(FOREVER) == 5
    wait_until(lambda: not is_alive(pid))

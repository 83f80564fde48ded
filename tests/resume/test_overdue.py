"""A signal ends relay also where nothing looks at flags: in a pattern, and while it waits for git."""

import os
import re
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from relay.base.errors import RelayError
from relay.base.interrupts import Interrupted, Interrupts
from relay.git.command import Git
from relay.runners.messages.reading import open_within

SLOW = re.compile(r"(a+)+\Z")


@pytest.fixture
def interrupts():
    made = Interrupts(grace_s=0.3)
    yield made
    made.close()


@pytest.fixture
def stuck(tmp_path):
    """A git that never ends, and says who it is."""
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    program.chmod(0o755)
    return Git(program=str(program), cwd=tmp_path, env={"PATH": os.environ["PATH"]}, limit_s=0.5)


def is_gone(folder):
    pid = int((folder / "pid").read_text())
    comm = Path(f"/proc/{pid}/comm")
    return not comm.exists() or "sleep" not in comm.read_text()


def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


def ask(interrupts, numbers, work):
    with interrupts.installed():
        send(*numbers)
        work()


@pytest.mark.timeout(60)
def test_a_pattern_without_end_is_cut_off(interrupts):
    with pytest.raises(Interrupted):
        ask(interrupts, (signal.SIGINT, signal.SIGINT), lambda: SLOW.match("a" * 60 + "b"))


@pytest.mark.timeout(60)
def test_a_git_without_end_is_killed_by_a_stop(interrupts, stuck, tmp_path):
    with pytest.raises(Interrupted):
        ask(interrupts, [signal.SIGTERM], lambda: replace(stuck, limit_s=600).probe("status"))
    assert not (tmp_path / "pid").exists() or is_gone(tmp_path)


@pytest.mark.timeout(60)
def test_a_git_without_end_is_killed_by_its_limit(stuck, tmp_path):
    with pytest.raises(RelayError, match=r"git status was ended: no answer within 0.5 s"):
        stuck.run("status")
    assert not (tmp_path / "pid").exists() or is_gone(tmp_path)


@pytest.mark.timeout(60)
def test_an_alarm_of_what_is_waited_for_takes_this_one_along_for_a_moment_only(interrupts):
    """The alarm that bounds a request's headers and this one share a timer."""

    def wait_and_match():
        with suppress(Interrupted), interrupts.interruptible(), open_within(60):
            send(signal.SIGTERM)
        SLOW.match("a" * 60 + "b")

    with pytest.raises(Interrupted):
        ask(interrupts, [], wait_and_match)


def test_a_run_that_ends_in_time_leaves_no_alarm():
    interrupts = Interrupts()
    before = signal.getsignal(signal.SIGALRM)
    ask(interrupts, [signal.SIGTERM], lambda: None)
    interrupts.close()
    assert (signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)) == ((0, 0), before)

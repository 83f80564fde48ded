"""Ctrl-Z during a run leaves a terminal that one can type on."""

import os
import pty
import signal
import subprocess
import sys

CODE = """
import sys, time
from relay.cli.views.live import LiveView
with LiveView(sys.stdout, colour=False):
    for _ in range(600):  # in short ones: a signal that comes just before one is handled behind it
        time.sleep(0.1)
"""
SHOW, HIDE = b"\x1b[?25h", b"\x1b[?25l"


def read_until(terminal, mark):
    """Read what the terminal is sent up to a mark."""
    seen = b""
    while mark not in seen:
        seen += os.read(terminal, 65_536)
    return seen


def test_the_cursor_is_shown_while_relay_is_stopped(environ):
    terminal, theirs = pty.openpty()
    # A group of its own in this session: an orphaned one is never stopped.
    child = subprocess.Popen([sys.executable, "-c", CODE], env=environ, stdout=theirs, stderr=theirs, process_group=0)
    read_until(terminal, HIDE)
    for _ in range(2):
        os.kill(child.pid, signal.SIGTSTP)
        assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
        read_until(terminal, SHOW)
        os.kill(child.pid, signal.SIGCONT)
        read_until(terminal, HIDE)
    os.kill(child.pid, signal.SIGKILL)
    child.wait(60)
    os.close(theirs)
    os.close(terminal)

"""`relay shell`: run a shell or a command in a session's sandbox.

The command gets its own terminal, and relay copies input and output: a command on the user's terminal could insert
input that the user's shell would run.
"""

import contextlib
import fcntl
import math
import os
import pty
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import click

from relay.base.words import render_output
from relay.cli.options import network_option, plan_option, sandbox_option
from relay.cli.screen import complain
from relay.cli.sessions import make_request, take_open_tree
from relay.sandbox.process import prepare_process
from relay.session.values import SessionKind
from relay.setup.workspace import open_own_workspace

_CHUNK_BYTES = 64 * 1024
_END_OF_FILE = b"\x04"


@contextmanager
def bridge_terminal(user_fd: int, shown_fd: int) -> Iterator[int]:
    """Open a terminal of the same size and modes, copy its traffic, and restore the user's terminal at the end.

    Args:
        user_fd: The user's input.
        shown_fd: The user's output.

    Yields:
        The command's end of the terminal.
    """
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(user_fd)
    termios.tcsetattr(theirs, termios.TCSANOW, before)
    _copy_size(user_fd, ours)
    told = signal.signal(signal.SIGWINCH, lambda *_: _copy_size(user_fd, ours))
    over, done = os.pipe()
    carrier = threading.Thread(target=_carry, args=(user_fd, shown_fd, ours, over), name="terminal", daemon=True)
    tty.setraw(user_fd, termios.TCSANOW)
    carrier.start()
    try:
        yield theirs
    finally:
        os.close(theirs)  # the last descriptor: remaining output arrives, then the end of file
        os.close(done)
        carrier.join()
        termios.tcsetattr(user_fd, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, told)
        for fd in (ours, over):
            os.close(fd)


def _copy_size(source: int, target: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8))


def _carry(typed: int, shown: int, ours: int, over: int) -> None:
    """Copy both ways until the command's side is closed; copy input only until the command is `over`."""
    sources = {typed, ours, over}
    while True:
        ready, _, _ = select.select(sources, (), ())
        try:
            if ours in ready:
                if not (chunk := os.read(ours, _CHUNK_BYTES)):
                    return
                _write_all(shown, chunk)
        except OSError:  # EIO: no process has the other end open any more
            return
        if over in ready:
            sources -= {typed, over}
        elif typed in ready:
            chunk = os.read(typed, _CHUNK_BYTES)
            if not chunk:
                sources.discard(typed)
            _write_all(ours, chunk or _END_OF_FILE)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


_KILLED = 128 + 9
_PROMPT = {"PS1": r"[relay sandbox] \w\$ "}


@click.command("shell", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[-- COMMAND ...]", help="Command to run; default: a shell.")
@click.option("--read-only", is_flag=True, help="Forbid writing to the repository, as `relay plan` does.")
@plan_option
@network_option
@sandbox_option
def command(words: tuple[str, ...], *, read_only: bool, **options: Any) -> int:
    """Run a shell, or COMMAND, in the sandbox of a session: the same files, variables, network and limits.

    It works on the files of the phase that is open (`relay shell -- git diff`), else on your own, starts at the root of
    the repository and has no time limit. bash runs a COMMAND of one word, as it runs a session's commands: relay shell
    -- 'make test | tail'. The exit status is the command's.
    """
    request, _ = make_request(SessionKind.PLAN if read_only else SessionKind.RUN, options, needs_plan=False)
    request = take_open_tree(request)
    prepare_process()
    with open_own_workspace(request) as workspace:
        sandbox, has_terminal = workspace.sandbox, os.isatty(0) and os.isatty(1)
        for gap in sandbox.gaps:
            complain(f"relay: {gap}")
        if has_terminal and not words:
            complain(f"relay: a shell in a session's sandbox ({sandbox.mechanism}, {sandbox.level}); `exit` leaves it")
        argv = list(words) if len(words) > 1 else ["bash", "-c", words[0]] if words else ["bash", "--norc"]
        limits = replace(workspace.limits, timeout_s=math.inf)
        with bridge_terminal(0, 1) if has_terminal else nullcontext() as fd:
            sys.stdout.flush()
            streams = (0, 1, 2) if fd is None else (fd, fd, fd)
            result = sandbox.run(argv, limits=limits, streams=streams, extra_env=_PROMPT)
    # The sandbox's notes are no output of the command.
    for said in filter(None, (render_output(result.output).strip(), *(f"relay: {note}" for note in result.notes))):
        complain(said)
    return _KILLED if result.exit_code is None else result.exit_code

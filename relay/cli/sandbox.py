"""`relay sandbox`: a shell or a command exactly as a session has it, and the resources that it sees.

The command has a terminal of its own, and relay carries the input and output: with the user's terminal it could type
words that the user's shell would run.
"""

import contextlib
import dataclasses
import fcntl
import math
import os
import pty
import select
import signal
import sys
import termios
import textwrap
import threading
import tty
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from relay.cli.options import plan_option
from relay.cli.screen import complain, say, say_document
from relay.cli.sessions import make_request
from relay.session.values import SessionKind

if TYPE_CHECKING:
    from relay.sandbox.inventory import Inventory
    from relay.sandbox.process import CommandResult
    from relay.tools.workspace import Workspace


_CHUNK_BYTES = 64 * 1024
_END_OF_FILE = b"\x04"


@contextmanager
def lend_terminal(user_fd: int, shown_fd: int) -> Iterator[int]:
    """Make a terminal of the same size and modes, carry its traffic, and put the user's back in order.

    Args:
        user_fd: Where is typed.
        shown_fd: Where is shown.

    Yields:
        The end for the command.
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
        os.close(theirs)  # the last one: what is left to show comes, then the end
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
    """Carry both ways until the command's side is closed; what is typed only until the command is `over`."""
    sources = {typed, ours, over}
    while True:
        ready, _, _ = select.select(sources, (), ())
        try:
            if ours in ready:
                if not (chunk := os.read(ours, _CHUNK_BYTES)):
                    return
                _write_all(shown, chunk)
        except OSError:  # EIO: nobody has the other end open any more
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
_WIDTH = 80
_PROMPT = {"PS1": r"[relay sandbox] \w\$ "}


@click.command(
    "sandbox",
    short_help="Run a shell or a command exactly as a session has it, or show what it sees.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, metavar="[-- COMMAND ...]", help="What runs in it; a shell when left out.")
@click.option("--show", is_flag=True, help="Run nothing; say what is visible, writable, hidden and dropped.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
@click.option("--read-only", is_flag=True, help="As `relay plan` has it: nothing of the repository can be written.")
@plan_option
@click.option("--network/--no-network", default=None, help="As for `relay run`.")
@click.option("--sandbox", type=click.Choice(["auto", "container", "off"]), help="As for `relay run`.")
def command(words: tuple[str, ...], *, show: bool, as_json: bool, read_only: bool, **options: Any) -> int:
    """Run a shell, or COMMAND, in the sandbox of a session: the same files, variables, network and limits.

    A single word is read by bash, as a session's commands are: relay sandbox -- 'make test | tail'. It works on your
    files, as a session does, starts at the root of the repository and has no time limit. The exit status is the
    command's.
    """
    from relay.sandbox.memory import prepare_process
    from relay.setup.workspace import open_own_workspace

    if words and (show or as_json):
        raise click.UsageError("--show runs nothing: leave out the command")
    request, _ = make_request(SessionKind.PLAN if read_only else SessionKind.RUN, options, needs_plan=False)
    prepare_process()
    with open_own_workspace(request) as workspace:
        if show or as_json:
            return show_inventory(workspace, as_json=as_json)
        return run_words(workspace, words)


def run_words(workspace: "Workspace", words: Sequence[str]) -> int:
    """Run a command, or a shell, with the streams of relay itself; return its exit code."""
    for gap in workspace.sandbox.gaps:
        complain(f"relay: {gap}")
    argv = list(words) if len(words) > 1 else ["bash", "-c", words[0]] if words else ["bash", "--norc"]
    if not (os.isatty(0) and os.isatty(1)):
        return _tell(_run(workspace, argv, (0, 1, 2)))

    if not words:
        sandbox = workspace.sandbox
        complain(f"relay: a shell as a session has it ({sandbox.mechanism}, {sandbox.level}); `exit` leaves it")
    with lend_terminal(0, 1) as fd:
        result = _run(workspace, argv, (fd, fd, fd))
    return _tell(result)


def _run(workspace: "Workspace", argv: Sequence[str], streams: tuple[int, int, int]) -> "CommandResult":
    sys.stdout.flush()
    limits = replace(workspace.limits, timeout_s=math.inf)
    return workspace.sandbox.run(argv, limits=limits, streams=streams, extra_env=_PROMPT)


def _tell(result: "CommandResult") -> int:
    """Say what did not come from the command itself."""
    from relay.sandbox.output import render_output

    for words in (render_output(result.output).strip(), *(f"relay: {note}" for note in result.notes)):
        if words:
            complain(words)
    return _KILLED if result.exit_code is None else result.exit_code


def show_inventory(workspace: "Workspace", *, as_json: bool) -> int:
    """Print what a command would see."""
    from relay.sandbox.inventory import take_inventory

    found = take_inventory(workspace.sandbox)
    if as_json:
        say_document(dataclasses.asdict(found))
        return 0
    say(f"{found.mechanism}, {found.level}: what a command of `relay {_name(found)}` has here", style="bold")
    for head, words in _describe(found):
        _show(head, words)
    return 0


def _name(found: "Inventory") -> str:
    return "plan" if found.level == "read-only" else "run"


def _describe(found: "Inventory") -> Iterable[tuple[str, Sequence[str]]]:
    """Yield each group with its entries; what is empty is left out."""
    scratch = (f"{found.tmp} (TMPDIR; private, kept from command to command)", f"{found.home} (HOME; new for each)")
    groups = (
        ("writes", (*found.writable, *scratch)),
        ("writes, and loses with the command", found.lost),
        ("only reads, in these", found.protected),
        ("sees as empty", found.hidden),
        ("but for, only read", found.shown),
        ("cannot read", found.masked),
        ("cannot reach the sockets", found.sockets),
        ("everything else", ("only read",)),
        ("network", found.opened or ("none but its own loopback: no host, no service of this machine",)),
        ("variables it has", (" ".join(found.passed),)),
        ("dropped (`env` names what to pass)", (" ".join(found.dropped),)),
        ("never passed", (" ".join(found.refused),)),
        ("not protected here", found.gaps),
    )
    return ((head, entries) for head, entries in groups if any(entries))


def _show(head: str, entries: Sequence[str]) -> None:
    say()
    say(head, style="cyan")
    for entry in entries:
        text = textwrap.wrap(entry, _WIDTH - 2, break_long_words=False, break_on_hyphens=False)
        say("\n".join(f"  {line}" for line in text))
